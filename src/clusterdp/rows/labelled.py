"""Outcomes that are labels, as numbers: 0 for the first label and 1 for the second, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._named import column
from clusterdp.errors import DataError
from clusterdp.experiment.labels import folded
from clusterdp.rows.written_numbers import MISSING_WORDS, NO_NUMBER

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    Labels = Mapping[str, tuple[str, str]]


def numbers_of(labels: tuple[str, str]) -> dict[str, float]:
    """The number of each label, as labels are compared."""
    return {folded(label): float(number) for number, label in enumerate(labels)}


def with_numbers(rows: pl.LazyFrame, labels: Labels) -> pl.LazyFrame:
    """The same rows, with numbers in place of labels.

    Raises:
        DataError: If a column of labels holds something other than text or booleans.
    """
    there = {name: kind for name, kind in rows.collect_schema().items() if name in labels}
    for name, kind in there.items():
        check_holds_labels(name, labels[name], kind)
    return rows.with_columns(_number(name, labels[name]) for name in there)


def check_holds_labels(name: str, labels: tuple[str, str], kind: pl.DataType) -> None:
    """Raise a DataError unless a column of a type can hold labels."""
    import polars as pl

    if not isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Boolean | pl.Null):
        raise DataError(
            f"column {name!r} (outcome) holds {kind.base_type()}, and is declared by the labels "
            f"{','.join(labels)}; declare the values that it holds, such as {name}=0,1"
        )


def _number(name: str, labels: tuple[str, str]) -> pl.Expr:
    """Each label as its number; missing where it is missing, unless that word is a label."""
    import polars as pl

    text = column(name).cast(pl.String)
    known: dict[str, float | None] = {**dict.fromkeys(MISSING_WORDS), **numbers_of(labels)}
    number = (
        text.str.strip_chars()
        .str.to_lowercase()
        .replace_strict(known, default=NO_NUMBER, return_dtype=pl.Float64)
    )
    return pl.when(text.is_not_null()).then(number).alias(name)
