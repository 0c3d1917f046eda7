"""Releases into an object store whose key and noise are fixed, and tables to put there."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._progress import NoProgress
from clusterdp.releasing.journal import NoJournal
from clusterdp.rows.keys import ReleaseKey
from clusterdp.statistics.noise import simulated_noise
from runs import write_with

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.storage.folder import Destination

KEY = ReleaseKey(b"k" * 32)
WRITERS: dict[str, Callable[[pl.DataFrame, io.BytesIO], object]] = {
    "parquet": lambda table, file: table.write_parquet(file),
    "csv": lambda table, file: table.write_csv(file),
    "arrow": lambda table, file: table.write_ipc(file),
    "csv.gz": lambda table, file: file.write(gzip.compress(table.write_csv().encode())),
}


def as_bytes(table: pl.DataFrame, kind: str = "parquet") -> bytes:
    """A table as a file of some kind."""
    file = io.BytesIO()
    WRITERS[kind](table, file)
    return file.getvalue()


def write_fixed(
    prepared: OpenTable,
    mechanisms: Sequence[Mechanism],
    target: Destination,
    key: ReleaseKey = KEY,
) -> None:
    """Write a release with both sources of randomness fixed."""
    write_with(
        prepared,
        mechanisms,
        target,
        NoProgress(),
        journal=NoJournal(key),
        add_noise=simulated_noise(np.random.default_rng(0)),
    )
