"""The boundary with data frames: any table in, and a table of the same kind back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import narwhals as nw
    import polars as pl


def read_frame(frame: Any) -> nw.DataFrame[Any]:
    """Any frame narwhals knows, as an eager one.

    A lazy frame is evaluated here, once: evaluated again later it could give other rows, and
    noise drawn for rows must never be drawn twice.
    """
    import narwhals as nw

    try:
        table = nw.from_native(frame)
    except TypeError as error:
        raise ParameterError(
            f"the table must be a pandas, Polars, PyArrow, DuckDB or Spark frame, "
            f"got {type(frame).__name__}"
        ) from error
    return table.collect() if isinstance(table, nw.LazyFrame) else table


def to_polars(table: nw.DataFrame[Any], parts: Mapping[str, str]) -> pl.DataFrame:
    """The columns that are needed, in Polars, without any index or metadata.

    Args:
        table: The table.
        parts: The names of the columns, with the parts they play; some may be missing.
    """
    import polars as pl

    series = []
    for name, part in parts.items():
        if name not in table.columns:
            continue  # the engine says what is missing
        try:
            series.append(table.select(name).to_polars().to_series())
        except (TypeError, ValueError, OverflowError) as error:
            # The library's own message quotes the value it could not convert: it must not get out.
            kind = type(error).__name__
            message = f"column {name!r} ({part}) mixes values of different types ({kind})"
            raise DataError(message) from None
    if not series:
        raise DataError(f"the table has none of the columns {', '.join(parts)}")
    return pl.DataFrame(series)


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
