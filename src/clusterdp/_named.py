"""Columns by their names, in Polars, which takes some names for patterns.

To Polars a text such as `^clicks$` is a pattern, and `*` is every column: `pl.col`, `select`,
`group_by`, `sort` and `drop` would find other columns than the one of that name. So all names that
come from a table's owner or an analyst go through here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl
    from polars.selectors import Selector


def column(name: str) -> pl.Expr:
    """The column of this name."""
    return columns([name]).as_expr()


def columns(names: Iterable[str]) -> Selector:
    """The columns of these names, in their order."""
    from polars import selectors

    return selectors.by_name(*names)


def unnamed(values: pl.Series) -> pl.Series:
    """The same values without a name: by its name Polars finds a series again that it works on."""
    return values.alias("")
