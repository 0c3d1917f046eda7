"""Batches of rows into a Parquet file, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._named import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import polars as pl


def store_batches(
    batches: Callable[[], Iterator[pl.DataFrame]], schema: dict[str, pl.DataType], path: Path
) -> None:
    """Write batches of these columns into a file that is there. Their errors come through."""
    from polars.io.plugins import register_io_source

    def produce(names: list[str] | None, *_: object) -> Iterator[pl.DataFrame]:
        for batch in batches():
            yield batch if names is None else batch.select(columns(names))

    rows = register_io_source(produce, schema=schema)
    rows.sink_parquet(path, compression="zstd", compression_level=1, statistics=False)
