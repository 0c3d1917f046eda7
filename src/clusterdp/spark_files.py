"""The files that Spark wrote: on this machine's disks made tidy, on other stores left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.errors import OutputError
from clusterdp.staging import FileSum

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

LOCAL_SCHEME = "file:"


def has_scheme(place: str) -> bool:
    """Whether a place is written as a URI, such as s3a://bucket/folder."""
    return ":" in place.split("/", 1)[0]


def local_path(place: str) -> str | None:
    """The path of a place on this machine's disks; None if it is elsewhere."""
    if not has_scheme(place):
        return place
    if place.startswith(LOCAL_SCHEME):
        return "/" + place.removeprefix(LOCAL_SCHEME).lstrip("/")
    return None


def settle_files(folder: Path, n_rows: int) -> dict[str, FileSum]:
    """Give the files of a folder plain names, and remove what Spark left beside them.

    Args:
        folder: Where Spark wrote.
        n_rows: How many rows must be there.

    Raises:
        OutputError: If some are not, because other machines wrote to disks of their own.
    """
    import polars as pl

    parts = sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []
    arrived = pl.scan_parquet(parts, glob=False).select(pl.len()).collect().item() if parts else 0
    if arrived != n_rows:
        raise OutputError(
            f"rows that Spark wrote did not arrive in {folder.parent}: on several machines, the "
            "folder must be on a store that all of them share"
        )
    for entry in set(folder.iterdir()) - set(parts):
        entry.unlink()  # checksums of Hadoop's own
    settled = {}
    for number, part in enumerate(parts):
        path = part.rename(folder / f"part-{number:05}.parquet")
        settled[path.name] = FileSum.of(path)
    return settled


def sum_files(spark: SparkSession, place: str) -> dict[str, FileSum]:
    """The sizes and checksums of the files at a place, computed where they are read."""
    from pyspark.sql import functions as sf

    files = spark.read.format("binaryFile").load(place)
    summed = files.select("path", "length", sf.sha2("content", 256).alias("sha256"))
    return {
        row["path"].rsplit("/", 1)[-1]: FileSum(row["length"], row["sha256"])
        for row in summed.toArrow().to_pylist()
    }
