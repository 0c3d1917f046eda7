"""What the columns of a table may hold, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.errors import DataError
from clusterdp.experiment.missing import missing_column

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp.rows.columns import Columns


def check_types(schema: dict[str, Any], columns: Columns) -> None:
    """Raise a DataError unless every column is there and of a usable type."""
    for name, part in columns.parts.items():
        if name not in schema:
            raise missing_column(name, part, schema)
    ids = schema[columns.unit]
    if not holds_ids(ids):
        raise DataError(
            f"column {columns.unit!r} (unit) holds {_named(ids)}; ids must be integers or strings"
        )
    for name in columns.outcomes:
        kind = schema[name]
        if not holds_outcomes(kind):
            raise DataError(
                f"column {name!r} (outcome) holds {_named(kind)}, not numbers; convert it to a "
                f"number per unit, such as 0 and 1, or declare its two labels: {name}=no,yes"
            )
    _check_labels(schema, columns)
    for name in columns.kept:
        if not is_publishable(schema[name]):
            raise DataError(
                f"column {name!r} (kept) holds {_named(schema[name])}; only numbers of up to 64 "
                "bits, text, booleans, dates and times can be kept: convert it"
            )


def _check_labels(schema: dict[str, Any], columns: Columns) -> None:
    """Raise a DataError unless columns that name cells and groups hold labels."""
    groups = () if columns.assigned_by is None else (columns.assigned_by,)
    for name in (*columns.cell, *groups):
        if not holds_labels(schema[name]):
            raise DataError(
                f"column {name!r} holds {_named(schema[name])}; "
                "labels must be text, integers, dates or booleans"
            )
    for name in (name for names in columns.breakdowns for name in names):
        if not holds_groups(schema[name]):
            raise DataError(
                f"column {name!r} (breakdown) holds {_named(schema[name])}; groups must be text, "
                "integers, dates or booleans"
            )


def is_publishable(kind: pl.DataType) -> bool:
    """Whether a column of a type can be published as it is.

    How lists and structs are stored in a file depends on how the table was cut into batches, and
    that can depend on outcomes.
    """
    import polars as pl

    plain = (pl.Float32, pl.Float64, pl.Boolean, pl.String, pl.Categorical, pl.Enum, pl.Decimal)
    return _is_integer(kind) or kind.is_temporal() or isinstance(kind, plain)


def _named(kind: pl.DataType) -> str:
    """A type by its name alone: its parameters can depend on the values in a column."""
    return str(kind.base_type())


def holds_ids(kind: pl.DataType) -> bool:
    """Whether a column of a type can identify units."""
    import polars as pl

    return _is_integer(kind) or isinstance(kind, pl.String | pl.Categorical | pl.Enum)


def holds_outcomes(kind: pl.DataType) -> bool:
    """Whether a column of a type can hold outcomes."""
    import polars as pl

    return kind.is_float() or _is_integer(kind) or kind == pl.Boolean


def holds_labels(kind: pl.DataType) -> bool:
    """Whether a column of a type can name arms or clusters."""
    import polars as pl

    plain = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Float32, pl.Float64)
    return _is_integer(kind) or isinstance(kind, plain)


def holds_groups(kind: pl.DataType) -> bool:
    """Whether a column of a type can name the groups of a breakdown."""
    return holds_labels(kind) and not kind.is_float()


def _is_integer(dtype: pl.DataType) -> bool:
    """Whether a column holds integers of at most 64 bits."""
    import polars as pl

    return dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128)


def plain_type(kind: pl.DataType) -> pl.DataType:
    """The type that a column is published with."""
    import polars as pl

    return pl.String() if isinstance(kind, pl.Categorical | pl.Enum) else kind


def outcome_array(column: pl.Series) -> npt.NDArray[Any]:
    """A column of outcomes as an array, NaN where one is missing.

    Floats keep their precision, since 0.1 is then what 0.1 is written as.
    """
    import polars as pl

    has_nan = column.dtype.is_float() or not column.null_count()
    return (column if has_nan else column.cast(pl.Float64)).to_numpy()
