"""What all engines know of text files: how they are called, and what separates their fields."""

from __future__ import annotations

import re

TEXT = (".csv", ".tsv")
COMPRESSED = (".gz", ".zst")
# What may separate fields, the usual one first.
_DELIMITERS = (",", ";", "\t", "|")


def find_delimiter(header: str) -> str:
    """The delimiter that occurs most often in a header, outside of quotes; a comma if none does.

    Only the names of columns are looked at: a delimiter that was found from rows would follow from
    outcomes.
    """
    names = re.sub(r'"[^"]*"', "", header)
    return max(_DELIMITERS, key=names.count)
