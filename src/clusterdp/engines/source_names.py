"""How sources and crossed columns are written, whichever engine reads them."""

from __future__ import annotations

from clusterdp.errors import DataError

DUCKDB = "duckdb:"
TEXT = (".csv", ".tsv")


def crossed_parts(names: list[str], name: str, secret: tuple[str, ...]) -> list[str]:
    """The columns that a column `"a,b,c"` is to be crossed from; none if it is a column itself.

    Raises:
        DataError: As `cross_columns`.
    """
    parts = possible_parts(name)
    if name in names or len(parts) == 1:
        return []
    if set(parts) & set(secret):
        raise DataError(f"clusters are public: {name!r} cannot be crossed from ids or outcomes")
    missing = [part for part in parts if part not in names]
    if missing:
        raise DataError(
            f"there is no column {missing[0]!r} to cross; "
            f"the table has {', '.join(map(repr, names))}"
        )
    return parts


def possible_parts(name: str) -> list[str]:
    """The columns that a column `"a,b,c"` would be crossed from."""
    return [part.strip() for part in name.split(",")]
