"""The boundary with data frames: any table in, and a table of the same kind back."""

from __future__ import annotations

import sys
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

from clusterdp.errors import DataError, ParameterError, raise_alone

if TYPE_CHECKING:
    from collections.abc import Mapping

    import narwhals as nw
    import polars as pl


def read_frame(frame: Any, parameter: str = "frame") -> nw.DataFrame[Any]:
    """Any frame narwhals knows, as an eager one.

    A lazy frame is evaluated here, once: evaluated again later it could give other rows, and
    noise drawn for rows must never be drawn twice.
    """
    import narwhals as nw

    try:
        table = nw.from_native(frame)
    except TypeError as error:
        raise ParameterError(
            f"{parameter} must be a pandas, Polars, PyArrow, DuckDB or Spark table, "
            f"got {type(frame).__name__}"
        ) from error
    if isinstance(table, nw.DataFrame):
        return table
    try:
        collected: nw.DataFrame[Any] = table.collect()
    except _evaluation_errors() as error:
        kind = type(error).__name__
        raise_alone(DataError(f"the lazy frame cannot be evaluated ({kind}); collect it first"))
    return collected


def _evaluation_errors() -> tuple[type[BaseException], ...]:
    """What libraries raise while they evaluate a query. Their messages quote values."""
    import polars as pl

    errors: tuple[type[BaseException], ...] = (
        ArithmeticError,
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    )
    duckdb = sys.modules.get("duckdb")
    return errors if duckdb is None else (*errors, duckdb.Error)


def to_polars(table: nw.DataFrame[Any], parts: Mapping[str, str]) -> pl.DataFrame:
    """The columns that are needed, in Polars, without any index or metadata.

    Args:
        table: The table.
        parts: The names of the columns, with the parts they play; some may be missing.
    """
    import narwhals as nw
    import polars as pl

    series = []
    for name, part in parts.items():
        if name not in table.columns:
            continue  # the engine says what is missing
        if part == "outcome" and table.schema[name] == nw.Object:
            series.append(_numbers(name, table[name].to_list()))
            continue
        try:
            series.append(table.select(name).to_polars().to_series())
        except _evaluation_errors() as error:
            kind = type(error).__name__
            what = f"holds values of different or unknown types ({kind})"
            raise_alone(DataError(f"column {name!r} ({part}) {what}"))
    if not series:
        raise DataError(f"the table has none of the columns {', '.join(parts)}")
    return pl.DataFrame(series)


def _numbers(name: str, values: list[Any]) -> pl.Series:
    """Outcomes that are Python objects, each by itself; what is no number is missing."""
    import polars as pl

    numbers = (float(one) if isinstance(one, Real | Decimal) else None for one in values)
    return pl.Series(name, numbers, dtype=pl.Float64)


def check_given_back(
    read: nw.DataFrame[Any], given: Any, schema: Mapping[str, pl.DataType]
) -> None:
    """Raise a DataError unless columns of these types can be given back in the user's library.

    It is found out before anything is drawn.
    """
    import polars as pl

    row = pl.DataFrame({name: pl.Series([None], dtype=kind) for name, kind in schema.items()})
    try:
        frame_like(read, given, row)
    except _evaluation_errors() as error:
        why = f"{read.implementation} cannot hold it ({type(error).__name__})"
        raise_alone(DataError(f"a kept column has a type that cannot be given back: {why}"))


def frame_like(read: nw.DataFrame[Any], given: Any, published: pl.DataFrame) -> Any:
    """A published table as a frame of the library that `given` came from.

    A DuckDB relation comes back as a relation over rows that are already computed. Other lazy
    frames come back eager, for the reason given in `read_frame`.

    Args:
        read: The frame that was given, evaluated.
        given: The same as it was given.
        published: The table.
    """
    import narwhals as nw

    native = nw.from_arrow(published, backend=read.implementation).to_native()
    if type(given).__module__.split(".")[0] in {"duckdb", "_duckdb"}:
        import duckdb

        return duckdb.from_arrow(native)
    return native


def is_spark(frame: Any) -> bool:
    """Whether a frame is Spark's, told by its type alone."""
    return type(frame).__module__.split(".")[0] == "pyspark"
