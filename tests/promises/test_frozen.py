"""Releases, estimates and plans are what they were, to the byte.

`fixtures/frozen.json` holds the SHA-256 of every file of small releases with a fixed key, fixed
noise and a fixed day (`support/fixed_randomness.py`), so nothing in them is masked; estimates from
them; and plan files. It says what the program did, not what is right: other tests do.

A change on purpose: run `make freeze`, and say why in the commit.

Bytes also follow from who writes Parquet, and channels of least variance from last digits of linear
algebra (`frozen_releases.made_with`). Where these are others than in the fixture, what depends on
them is skipped. To compare there, run `make freeze` on the commit before the change.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
import spark_runs
from frozen_releases import (
    ON_SPARK,
    PLANS,
    RELEASES,
    checksums,
    estimates,
    experiment,
    made_with,
    memory_release,
    plan_text,
    write_release,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

FIXTURE = Path(__file__).parents[1] / "fixtures" / "frozen.json"
CHANNELS = "channels.parquet"

pytestmark = pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")


@pytest.fixture(scope="module")
def frozen() -> Any:
    return json.loads(FIXTURE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=RELEASES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release, in a folder of its name."""
    place: Path = tmp_path_factory.mktemp("frozen") / request.param
    write_release(request.param, experiment(), place)
    return place


def skip_unless_same(frozen: Any, files: dict[str, str], *names: str) -> None:
    """Skip where what was named is another; the arithmetic matters to solved channels alone."""
    now = made_with()
    for name in names:
        matters = name != "arithmetic" or CHANNELS in files
        if matters and now[name] != frozen["made_with"][name]:
            pytest.skip(f"frozen with {name} {frozen['made_with'][name]}, here {now[name]}")


def test_bytes(frozen: Any, folder: Path) -> None:
    before = frozen["releases"][folder.name]["files"]
    skip_unless_same(frozen, before, "polars", "arithmetic")
    assert checksums(folder) == before


def test_memory_gives_the_same_release(folder: Path) -> None:
    released = memory_release(folder.name)
    assert released.cells.equals(pl.read_parquet(folder / "cells.parquet"))
    assert released.notes == cdp.read_release(folder).notes
    if released.units is None:
        assert not (folder / "units.parquet").exists()
    else:
        assert released.units.equals(pl.read_parquet(folder / "units.parquet"))


def test_estimates(frozen: Any, folder: Path) -> None:
    before = frozen["releases"][folder.name]
    skip_unless_same(frozen, before["files"], "arithmetic")
    now = json.loads(json.dumps(estimates(folder.name, folder)))
    assert list(differing(before["estimates"], now)) == []


@pytest.mark.parametrize("name", PLANS)
def test_plans(name: str, frozen: Any, tmp_path: Path) -> None:
    assert plan_text(name, tmp_path) == frozen["plans"][name]


@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_bytes_of_spark(name: str, frozen: Any, spark: SparkSession, tmp_path: Path) -> None:
    before = frozen["spark"][name]
    skip_unless_same(frozen, before, "polars", "pyarrow", "arithmetic")
    assert write_on_spark(name, spark, tmp_path / name) == before


@pytest.mark.parametrize(
    ("before", "now", "where"),
    [
        ({"a": [1.0, "x"]}, {"a": [1.0 + 1e-8, "x"]}, ["/a/0: 1.0, now 1.00000001"]),
        ({"a": [1.0, "x"]}, {"a": [1.0 + 1e-11, "x"]}, []),
        ({"a": [1.0, "x"]}, {"a": [1.0, "y"]}, ["/a/1: 'x', now 'y'"]),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, ["/a: 1 values, now 2"]),
        ({"a": 1.0}, {"b": 1.0}, [": ['a'], now ['b']"]),
        ({"a": 0.0}, {"a": None}, ["/a: 0.0, now None"]),
        ({"a": 1}, {"a": True}, ["/a: 1, now True"]),
    ],
)
def test_differences_are_found(before: Any, now: Any, where: list[str]) -> None:
    assert list(differing(before, now)) == where


def differing(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Where two values differ: numbers by more than 1e-9 of them, all else at all."""
    if isinstance(before, dict) and isinstance(now, dict):
        if list(before) != list(now):
            yield f"{path}: {list(before)}, now {list(now)}"
            return
        for name in before:
            yield from differing(before[name], now[name], f"{path}/{name}")
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield f"{path}: {len(before)} values, now {len(now)}"
            return
        for place, pair in enumerate(zip(before, now, strict=True)):
            yield from differing(*pair, f"{path}/{place}")
    elif type(before) is type(now) is float:
        if not math.isclose(before, now, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{path}: {before}, now {now}"
    elif type(before) is not type(now) or before != now:
        yield f"{path}: {before!r}, now {now!r}"


def write_on_spark(name: str, spark: SparkSession, folder: Path) -> dict[str, str]:
    return write_release(name, spark.createDataFrame(experiment().to_pandas()), folder)


def freeze(scratch: Path) -> dict[str, Any]:
    """All that the fixture holds, as the program makes it now."""
    releases = {}
    for name in RELEASES:
        files = write_release(name, experiment(), scratch / name)
        releases[name] = {"files": files, "estimates": estimates(name, scratch / name)}
    plans = {name: plan_text(name, scratch) for name in PLANS}
    sessions = spark_runs.session(scratch / "spark")
    spark = next(sessions)
    on_spark = {name: write_on_spark(name, spark, scratch / f"{name}.spark") for name in ON_SPARK}
    next(sessions, None)
    return {"made_with": made_with(), "releases": releases, "plans": plans, "spark": on_spark}


if __name__ == "__main__":
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    if missing := spark_runs.missing_java():
        sys.exit(missing)
    with tempfile.TemporaryDirectory() as made:
        text = json.dumps(freeze(Path(made)), indent=1, ensure_ascii=False)
    FIXTURE.write_text(text + "\n", encoding="utf-8")
