"""Threads of the local engine, and what libraries do at their first use."""

from __future__ import annotations

import subprocess
import sys

# What Polars has in NumPy's place whenever a batch is read.
SEEN = """
import clusterdp as cdp
import polars as pl
from polars import _dependencies
from clusterdp.engines.local.table import TablePass

seen, read = set(), TablePass._read
def watched(self, batch):
    seen.add(type(_dependencies.numpy).__name__)
    return read(self, batch)
TablePass._read = watched
table = pl.select(u=pl.int_range(40), a=pl.int_range(40) % 2, y=pl.int_range(40) // 2 % 2)
cdp.release(table, unit="u", arm="a", outcomes={"y": "0,1"}, epsilon=1)
print(seen)
"""


def test_numpy_is_loaded_before_threads_use_it() -> None:
    """Of two threads that make Polars load it at once, one can fail."""
    command = [sys.executable, "-c", SEEN]
    found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert found.stdout.strip() == "{'module'}"
