"""The error for a column that a table does not have."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from clusterdp.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

# Parts of columns whose parameter has another name.
_PARAMETERS = {"kept": "keep"}


def missing_column(name: str, part: str, names: Iterable[str], use: str = "to use") -> DataError:
    """The error that names the parameter, the column most like it, and all columns.

    Args:
        name: The column that was asked for.
        part: The part it was to play: unit, arm, cluster, outcome, kept or size.
        names: The columns of the table.
        use: What it was for.
    """
    known, parameter = list(names), _PARAMETERS.get(part, part)
    near = nearest_name(name, known)
    asked = f"; did you mean {near!r}? The" if near is not None else "; the"
    return DataError(
        f"there is no column {name!r} {use} as {part} ({parameter}=..., --{parameter})"
        f"{asked} table has {', '.join(map(repr, known)) or 'no columns'}"
    )


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, whatever the case of its letters; None if none is."""
    folded = {other.casefold(): other for other in known}
    near = get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None
