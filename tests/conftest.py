"""Shared by all tests: the false-alarm rate, randomness, and a small table to release."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import settings

import spark_runs
from browsers import missing_browser, running_browser
from cli_runs import release
from soak import s3
from soak.postgres import Server, missing_server, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent
# Programs that tests start find the modules of the tests, too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(TESTS), str(TESTS / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
# Exhaustive searches take their time on shared machines; that is not a failure.
settings.register_profile("clusterdp", deadline=None)
settings.load_profile("clusterdp")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs Java or a server or Chromium is skipped, with the reason, where it is missing."""
    lacks = {
        "spark": spark_runs.missing_java(),
        "postgres": missing_server(),
        "browser": missing_browser(),
        "store": s3.missing_store(),
    }
    for item in items:
        for name, reason in lacks.items():
            if item.get_closest_marker(name) and reason:
                item.add_marker(pytest.mark.skip(reason=reason))
        # One worker runs all that needs a session: to start one takes longer than most tests.
        for name in ("spark", "browser"):
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture
def rng() -> np.random.Generator:
    """Fresh randomness for every run; a failing test prints the seed that repeats it."""
    seed = secrets.randbits(64)
    print(f"rng seed: {seed}")  # noqa: T201 - pytest shows it with the failure
    return np.random.default_rng(seed)


@pytest.fixture
def table(rng: np.random.Generator) -> pl.DataFrame:
    """An experiment of 600 users in 5 markets with clicks from 0 to 3."""
    n_users = 600
    treated = np.tile([0, 1], n_users // 2)
    return pl.DataFrame(
        {
            "user": rng.permutation(n_users),
            "treated": treated,
            "market": np.arange(n_users) // 2 % 5,
            "clicks": rng.binomial(3, 0.3 + 0.2 * treated),
            "secret": rng.normal(size=n_users),
        }
    )


@pytest.fixture
def source(table: pl.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "clicks.parquet"
    table.write_parquet(path)
    return path


@pytest.fixture
def published(source: Path, tmp_path: Path) -> Path:
    result = release(source, tmp_path / "published", "--passthrough", "secret")
    assert result.exit_code == 0, result.output
    return tmp_path / "published"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server; tests that ask for it are marked `postgres`."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def store_server() -> Iterator[s3.Server]:
    """An S3 server; tests that ask for it are marked `store`."""
    with s3.running_store() as server:
        yield server


@pytest.fixture
def bucket(store_server: s3.Server, monkeypatch: pytest.MonkeyPatch) -> s3.Bucket:
    """A fresh bucket, and an environment by which it is found."""
    for name, value in store_server.environment().items():
        monkeypatch.setenv(name, value)
    return store_server.new_bucket()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser; tests that ask for it are marked `browser`."""
    yield from running_browser()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session; tests that ask for it are marked `spark`."""
    yield from spark_runs.session(tmp_path_factory.mktemp("spark"))
