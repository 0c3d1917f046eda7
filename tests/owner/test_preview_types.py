"""A preview accepts and refuses the types of outcome columns that a release does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import clusterdp as cdp

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "epsilon": 1,
}
_WIDTHS = [f"{sign}{bits}" for sign in ("int", "uint") for bits in (8, 16, 32, 64)]
_CAPITALS = [name.replace("int", "Int").replace("uI", "UI") for name in _WIDTHS]
# Numbers first, then what is none: text, times, categories, objects.
PANDAS = [
    *_WIDTHS,
    *_CAPITALS,
    *(f"{name}[pyarrow]" for name in _WIDTHS),
    *("float32", "float64", "Float32", "Float64", "float[pyarrow]", "double[pyarrow]"),
    *("bool", "boolean", "bool[pyarrow]"),
    *("str", "string", "string[pyarrow]", "object", "category"),
    *("datetime64[ns]", "timedelta64[ns]", "timestamp[ns][pyarrow]", "complex128"),
]
POLARS = [
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128),
    *(pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64),
    *(pl.Float32, pl.Float64, pl.Decimal(9, 2), pl.Boolean, pl.String, pl.Categorical),
    *(pl.Enum(["0", "1", "2", "3"]), pl.Date, pl.Datetime, pl.Duration, pl.Time),
]
ARROW = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.decimal128(21, 2), pa.bool_()),
    *(pa.string(), pa.large_string(), pa.timestamp("ns"), pa.duration("ns"), pa.date32()),
]


def _with_pandas(table: pl.DataFrame, kind: str) -> Any:
    frame = table.to_pandas()
    values = frame["clicks"].astype("bool") if kind.lower().startswith("bool") else frame["clicks"]
    return frame.assign(clicks=values.astype(kind))


def _with_polars(table: pl.DataFrame, kind: Any) -> pl.DataFrame:
    text = kind in (pl.Categorical, pl.Enum)
    values = pl.col("clicks").cast(pl.String) if text else pl.col("clicks")
    return table.with_columns(values.cast(kind))


def _with_arrow(table: pl.DataFrame, kind: pa.DataType) -> pa.Table:
    values = _with_polars(table, pl.Date)["clicks"] if kind == pa.date32() else table["clicks"]
    wanted = pa.array(values.to_list()).cast(kind)
    return table.drop("clicks").to_arrow().append_column("clicks", wanted)


def _refusal(call: Callable[..., Any], frame: Any) -> str | None:
    """Why a table is refused by the type of its outcomes; None if it is not."""
    try:
        call(frame, **NAMES)
    except cdp.DataError as error:
        return str(error) if "(outcome) holds" in str(error) else None
    return None


def _check_alike(frame: Any) -> None:
    assert _refusal(cdp.preview, frame) == _refusal(cdp.release, frame)


@pytest.mark.parametrize("kind", PANDAS)
def test_columns_of_pandas(kind: str, table: pl.DataFrame) -> None:
    _check_alike(_with_pandas(table, kind))


@pytest.mark.parametrize("kind", POLARS, ids=str)
@pytest.mark.parametrize("is_lazy", [False, True])
def test_columns_of_polars(kind: Any, is_lazy: bool, table: pl.DataFrame) -> None:
    frame = _with_polars(table, kind)
    _check_alike(frame.lazy() if is_lazy else frame)


@pytest.mark.parametrize("kind", ARROW, ids=str)
def test_columns_of_arrow(kind: pa.DataType, table: pl.DataFrame) -> None:
    _check_alike(_with_arrow(table, kind))


def test_numbers_are_accepted_also_as_text(table: pl.DataFrame) -> None:
    for kind in ("int8", "int64", "Int64", "float32", "bool", "string"):
        assert _refusal(cdp.preview, _with_pandas(table, kind)) is None
