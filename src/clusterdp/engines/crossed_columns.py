"""How crossed columns are written, whichever engine reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.errors import DataError, missing_column
from clusterdp.spec.columns import PRIVATE_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping


def crossed_parts(names: list[str], name: str | None, secret: tuple[str, ...]) -> list[str]:
    """The columns that a column `"a,b,c"` is to be crossed from; none if it is a column itself.

    Raises:
        DataError: As `cross_columns`.
    """
    parts = possible_parts(name)
    if name in names or len(parts) < 2:
        return []
    if set(parts) & set(secret):
        raise DataError(f"clusters are public: {name!r} cannot be crossed from ids or outcomes")
    missing = [part for part in parts if part not in names]
    if missing:
        raise missing_column(missing[0], "cluster", names, "to cross")
    return parts


def check_named(names: list[str], parts: Mapping[str, str], secret: tuple[str, ...] = ()) -> None:
    """Raise a DataError unless a table has the columns that are needed, or what they cross.

    Args:
        names: All columns of the table.
        parts: The columns that are needed, with the parts they play.
        secret: Columns that cannot be crossed: ids and outcomes.
    """
    for name, part in parts.items():
        is_crossed = part == "cluster" and crossed_parts(names, name, secret)
        if part == PRIVATE_CLUSTER and crossed_parts(names, name, secret[:1]):
            raise crossed_private(name)
        if name not in names and not is_crossed:
            raise missing_column(name, part, names)


def crossed_private(name: str | None) -> DataError:
    """What to raise where a private cluster would be crossed from several columns."""
    return DataError(
        f"a private cluster is one column, and {name!r} is none: add a column to the table that "
        "holds what it would be crossed to"
    )


def possible_parts(name: str | None) -> list[str]:
    """The columns that a column `"a,b,c"` would be crossed from; none of no column."""
    return [] if name is None else [part.strip() for part in name.split(",")]
