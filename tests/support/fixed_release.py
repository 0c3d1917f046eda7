"""A release of a file with its key and its noise fixed: what is left to differ is the table.

As a program (`python -m fixed_release INPUT OUT MECHANISM ORDER`) it runs with as many threads as
POLARS_MAX_THREADS says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import clusterdp as cdp
from categories import one_outcome
from clusterdp._progress import NoProgress
from clusterdp.engines.local.table import LocalTable
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare_table
from clusterdp.rows.column_types import PLAIN, texts_as_numbers
from clusterdp.rows.keys import ReleaseKey
from clusterdp.sources.opening import open_source
from clusterdp.sources.source import ColumnRequest, NamedSource
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import ALONE
from clusterdp.storage.folder import FileSum, LocalFolder
from runs import write_with

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.storage.folder import Destination

KEY = ReleaseKey(b"k" * 32)
LONG = 100_000_000
SPACE = one_outcome("spend", cdp.OutcomeSpace.of([0, LONG]))
COLUMNS = Columns(unit="user", arm="treated", cluster="market", outcomes=("spend",), kept=("tier",))
_WANTED = ColumnRequest(public=COLUMNS.public, outcomes=COLUMNS.outcomes, unit=COLUMNS.unit)
MECHANISMS = {
    "rows": cdp.uniform_prior_dp(epsilon=1),
    "channels": cdp.optimal(epsilon=1, noise_scale=4, sums=cdp.SumShares(clusters=0.3)),
}


def blind_noise(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
    """Statistics that came out the same whatever the outcomes are, as noise can make them."""
    drawn = np.random.default_rng(0).laplace(0, scale, values.shape)
    return np.asarray(np.rint(drawn), dtype=np.int64) + 20


def release_file(source: Path, out: Path, mechanism: str, *, keep_order: bool) -> dict[str, str]:
    """Release a file into a folder; returns the checksums of what is published."""
    rows = open_source(NamedSource(name=str(source)), _WANTED, Path)
    return release_rows(rows, out, mechanism, keep_order=keep_order)


def release_rows(
    rows: pl.LazyFrame, out: Path, mechanism: str, *, keep_order: bool
) -> dict[str, str]:
    """Release a query into a folder; returns the checksums of what is published."""
    release_into(rows, LocalFolder(out), mechanism, keep_order=keep_order)
    return checksums(out)


def release_into(
    rows: pl.LazyFrame, target: Destination, mechanism: str, *, keep_order: bool
) -> None:
    """Release a query."""
    numbers = texts_as_numbers(rows, COLUMNS.outcomes, PLAIN)
    table = LocalTable(
        rows=numbers, columns=COLUMNS, spaces=(SPACE,), clip=False, keep_order=keep_order
    )
    write_with(
        prepare_table(table),
        (MECHANISMS[mechanism],),
        target,
        NoProgress(),
        journal=NoJournal(KEY),
        add_noise=blind_noise,
    )


def checksums(folder: Path) -> dict[str, str]:
    """What every file of a folder is, to the bit."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): FileSum.from_file(path).sha256 for path in files}


if __name__ == "__main__":
    given, target, named, order = sys.argv[1:]
    release_file(Path(given), Path(target), named, keep_order=order == "table")
