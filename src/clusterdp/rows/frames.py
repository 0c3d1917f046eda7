"""The boundary with data frames: any table in, and a table of the same kind back."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._named import columns
from clusterdp.errors import DataError, ParameterError, raise_alone
from clusterdp.rows.column_types import NO_NUMBER_TEXT
from clusterdp.spec.columns import PRIVATE_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import narwhals as nw
    import polars as pl

# By this name DuckDB would let a query mention the relation that it is run through.
_VIEW = "__clusterdp_rows"


def read_frame(
    frame: Any, parameter: str = "source", names: Iterable[str] | None = None
) -> nw.DataFrame[Any]:
    """Any frame that narwhals supports, as an eager one.

    A lazy frame is evaluated here, once: evaluated again later it could give other rows, and
    noise drawn for rows must never be drawn twice.
    """
    import narwhals as nw

    table = _known_frame(frame, parameter)
    if isinstance(table, nw.DataFrame):
        return table
    try:
        if names is not None:
            table = _select(table, [one for one in table.collect_schema().names() if one in names])
        with _kept_in_memory(table):
            collected: nw.DataFrame[Any] = table.collect()
    except _evaluation_errors() as error:
        kind = type(error).__name__
        raise_alone(DataError(f"the lazy frame cannot be evaluated ({kind}); collect it first"))
    return collected


@contextmanager
def _kept_in_memory(table: nw.LazyFrame[Any]) -> Iterator[None]:
    """Keep the user's DuckDB connection, if it is one, from storing rows.

    It would store them in the working directory, for everyone to read. Polars stores none, see
    `storage/spilling.py`.
    """
    rows = table.to_native()
    if not table.implementation.is_duckdb():
        yield
        return
    ((place,),) = rows.query(_VIEW, "select current_setting('temp_directory')").fetchall()
    rows.query(_VIEW, "set temp_directory = ''")
    try:
        yield
    finally:
        quoted = place.replace("'", "''")
        rows.query(_VIEW, f"set temp_directory = '{quoted}'")


def _select(table: nw.LazyFrame[Any], names: list[str]) -> nw.LazyFrame[Any]:
    """Some columns of a lazy frame."""
    import narwhals as nw
    import polars as pl

    native = table.to_native()
    if isinstance(native, pl.LazyFrame):
        return nw.from_native(native.select(columns(names)))
    return table.select(names)


def evaluated(query: pl.LazyFrame, parameter: str) -> pl.DataFrame:
    """A Polars query, evaluated in pieces: what it drops on the way is never in memory at once."""
    try:
        return query.collect(engine="streaming")
    except _evaluation_errors() as error:
        raise_alone(DataError(f"{parameter} cannot be read ({type(error).__name__}); check it"))


def _known_frame(frame: Any, parameter: str) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    """Any frame that narwhals supports."""
    import narwhals as nw

    try:
        table: nw.DataFrame[Any] | nw.LazyFrame[Any] = nw.from_native(frame)
    except TypeError as error:
        raise ParameterError(
            f"{parameter} must be a pandas, Polars, PyArrow, DuckDB or Spark table, "
            f"got {type(frame).__name__}"
        ) from error
    return table


def column_names(frame: Any, parameter: str = "source") -> list[str]:
    """The names of a frame's columns. No value is read."""
    return _known_frame(frame, parameter).collect_schema().names()


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


def to_polars(
    table: nw.DataFrame[Any], parts: Mapping[str, str], decimal: str = "."
) -> pl.DataFrame:
    """The columns that are needed, in Polars, without any index or metadata.

    Outcomes whose types could follow from all of their values are text, each by itself.

    Args:
        table: The table.
        parts: The names of the columns, with the parts they play; some may be missing.
        decimal: What separates the decimals of numbers that are written as text.
    """
    import polars as pl

    series = []
    for name, part in parts.items():
        if name not in table.columns:
            continue  # the engine raises the error
        if part in _READ_ALONE and table.schema[name] in _untyped():
            texts = (_READ_ALONE[part](value, decimal) for value in table[name].to_list())
            series.append(pl.Series(name, texts, dtype=pl.String))
            continue
        try:
            series.append(table[[name]].to_polars().to_series())
        except _evaluation_errors() as error:
            kind = type(error).__name__
            what = f"holds values of different or unknown types ({kind})"
            raise_alone(DataError(f"column {name!r} ({part}) {what}"))
    if not series:
        raise DataError(f"the table has none of the columns {', '.join(parts)}")
    return pl.DataFrame(series)


def _untyped() -> tuple[Any, ...]:
    """Types that do not determine the type of a value, or that depend on all values of a column."""
    import narwhals as nw

    return nw.Object, nw.Categorical, nw.Enum, nw.Unknown


def _outcome(value: Any, decimal: str) -> str | None:
    """An outcome that is a Python object, as text that is read as the same number."""
    if value is None or type(value).__name__ in _NOTHING:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if not isinstance(value, Real | Decimal):
        return NO_NUMBER_TEXT
    try:
        return repr(float(value)).replace(".", decimal)
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        return NO_NUMBER_TEXT


def _label(value: Any, decimal: str) -> str | None:  # noqa: ARG001 - as outcomes
    """A private cluster that is a Python object; what is no label is missing."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    is_label = isinstance(value, str | int | np.integer | date) or (
        isinstance(value, float | np.floating) and not math.isnan(value)
    )
    return str(value) if is_label else None


# How columns are read whose types could follow from all of their values, by the part they play.
_READ_ALONE = {"outcome": _outcome, "covariate": _outcome, PRIVATE_CLUSTER: _label}
# What pandas has in place of None.
_NOTHING = frozenset({"NAType", "NaTType"})


def without_secrets(source: Any, secrets: tuple[str, ...]) -> Any:
    """A frame whose outcomes, and private clusters, are missing: only what is public is looked at.

    Evaluating a query's outcomes would let them decide whether there is anything to look at. What
    is no frame, or Spark's, is returned as it is.
    """
    import narwhals as nw

    if isinstance(source, str) or is_spark(source):
        return source
    table = nw.from_native(source, pass_through=True)
    if not isinstance(table, nw.DataFrame | nw.LazyFrame):
        return source
    schema = table.collect_schema()
    kinds = {name: schema[name] for name in secrets if name in schema}
    # Some libraries have no missing value of these types.
    wide = (nw.Int128, nw.UInt128)
    floats = {
        name
        for name, kind in kinds.items()
        if kind in (*_untyped(), nw.Boolean) or (kind.is_integer() and kind not in wide)
    }
    return table.with_columns(
        nw.lit(None, nw.Float64() if name in floats else kind).alias(name)
        for name, kind in kinds.items()
    ).to_native()


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
        raise_alone(DataError(f"a passthrough column has a type that cannot be given back: {why}"))


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
    """Whether a frame is Spark's, by its type alone."""
    return type(frame).__module__.split(".")[0] == "pyspark"
