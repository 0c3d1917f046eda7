"""Releases of Spark tables with their key and their noise fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import clusterdp as cdp
from categories import one_outcome
from clusterdp._progress import NoProgress
from clusterdp.engines.spark._sources import spark_texts_as_numbers
from clusterdp.engines.spark.table import SparkTable
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare_table
from clusterdp.rows.column_types import PLAIN
from clusterdp.rows.keys import ReleaseKey
from clusterdp.sources.source import ColumnRequest
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import LocalFolder
from fixed_release import checksums
from runs import write_with

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from clusterdp.storage.folder import Destination

SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
COLUMNS = Columns(unit="user", arm="treated", cluster="market", outcomes=("clicks",))
KEY = ReleaseKey(b"k" * 32)
# Outcomes that are written with one character, or nine.
WIDE_SPACE = one_outcome("clicks", cdp.OutcomeSpace.of([0, 1, 100_000_000]))
WIDE_COLUMNS = Columns(
    unit="user", arm="treated", cluster="market", outcomes=("clicks",), kept=("name", "spend")
)
WIDE_WANTED = ColumnRequest(
    public=WIDE_COLUMNS.public, outcomes=WIDE_COLUMNS.outcomes, unit=WIDE_COLUMNS.unit
)


def to_table(rows: DataFrame) -> SparkTable:
    return SparkTable(rows=rows, columns=COLUMNS, spaces=(SPACE,), clip=False)


def write(table: SparkTable, target: Destination, progress: Any = None) -> None:
    """Write a release with both sources of randomness fixed."""
    write_with(
        prepare_table(table),
        (cdp.cluster_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5),),
        target,
        progress or NoProgress(),
        journal=NoJournal(KEY),
        add_noise=simulated_noise(np.random.default_rng(0)),
    )


def write_wide(rows: DataFrame, folder: Path) -> dict[str, str]:
    """The checksums of a release without noisy statistics, of a fixed key."""
    numbers = spark_texts_as_numbers(rows, WIDE_COLUMNS.outcomes, PLAIN)
    table = SparkTable(rows=numbers, columns=WIDE_COLUMNS, spaces=(WIDE_SPACE,), clip=False)
    write_with(
        prepare_table(table),
        (cdp.uniform_prior_dp(epsilon=1),),
        LocalFolder(folder),
        NoProgress(),
        journal=NoJournal(KEY),
        add_noise=simulated_noise(np.random.default_rng(0)),
    )
    return checksums(folder)
