"""A past experiment as reference: never the experiment itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "epsilon": 2,
}


@pytest.mark.parametrize("call", [cdp.plan, cdp.preview, cdp.publish], ids=lambda one: one.__name__)
def test_the_table_itself_is_refused(
    call: Callable[..., Any], table: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "own.parquet"
    table.write_parquet(path)
    more = {} if call is cdp.plan else {"out": tmp_path / "out"}
    with pytest.raises(cdp.ParameterError, match="is the table to be released"):
        call(path, reference=[str(path)], **NAMES, **more)
    assert not (tmp_path / "out").exists()


def test_a_past_table_is_published_in_part_and_the_owner_is_warned(
    table: pl.DataFrame, tmp_path: Path
) -> None:
    past = tmp_path / "past.parquet"
    table.with_columns(clicks=(pl.col("clicks") + 1) % 4).write_parquet(past)
    with pytest.warns(cdp.OwnerNotice, match="become part of what is published"):
        cdp.release(table, reference=[str(past)], **NAMES)
