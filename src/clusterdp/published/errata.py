"""Errata of a release: what turned out to be wrong after it was sealed.

They stand in `errata.md` beside the manifest. Nothing seals them: whoever can write the folder can
write them, so they are shown as what they are and decide nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._words import plain_text
from clusterdp.errors import FormatError
from clusterdp.published.provenance import check_line
from clusterdp.storage.files import ERRATA

if TYPE_CHECKING:
    from datetime import date

    from clusterdp.storage.reading import Files

LONGEST_ERRATUM = 2000
# A larger file is not read.
_MOST_BYTES = 100_000
_HEAD = "# Errata\n\nAdded after the release was sealed; no checksum covers them.\n\n"


def read_errata(folder: Files) -> list[str]:
    """The errata of a folder, a line each, without characters that could change a terminal."""
    if not _is_file(folder):
        return []
    if (folder.size(ERRATA) or 0) > _MOST_BYTES:
        return [f"{ERRATA} is too large to be shown; open it yourself"]
    content = folder.read(ERRATA, _MOST_BYTES)
    try:
        text = None if content is None else content.decode()
    except UnicodeDecodeError:
        text = None
    if text is None:
        return [f"{ERRATA} cannot be read as text"]
    lines = text.removeprefix(_HEAD).splitlines()
    return [plain_text(line.strip().removeprefix("- ")) for line in lines if line.strip()]


def add_erratum(folder: Files, text: str, day: date) -> None:
    """Append a dated entry to the errata of a folder.

    Raises:
        ParameterError: If the text is empty, too long or not one plain line.
        FormatError: If what is there is no file.
        OutputError: If it cannot be written.
    """
    check_line("an erratum", text, LONGEST_ERRATUM)
    begun = _is_file(folder)
    if not begun and folder.is_taken(ERRATA):
        raise FormatError(f"{folder}/{ERRATA} is not a file of its own; remove it")
    folder.append(ERRATA, f"{'' if begun else _HEAD}- {day.isoformat()}: {text.strip()}\n")


def _is_file(folder: Files) -> bool:
    """Whether it is a file, and not a link to one elsewhere."""
    return folder.size(ERRATA) is not None and not folder.is_link(ERRATA)
