"""The files that Spark wrote, under plain names: the same release has the same files anywhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from clusterdp.errors import OutputError
from clusterdp.storage.files import FileSum

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

LOCAL_SCHEME = "file:"
# How many files are renamed by a store, or read again, at once.
_AT_ONCE = 16


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
    paths = [part.rename(folder / part_name(number)) for number, part in enumerate(parts)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sums = pool.map(FileSum.of, paths)
        return {path.name: found for path, found in zip(paths, sums, strict=True)}


def settle_store(spark: SparkSession, place: str) -> None:
    """As `settle_files`, on a store that Hadoop reaches.

    Stores without renames copy each file themselves, so several are asked for at once.
    """
    store, folder = hadoop_path(spark, place)
    names = sorted(entry.getPath().getName() for entry in store.listStatus(folder))
    parts = [name for name in names if name.startswith("part-")]
    for name in set(names) - set(parts):
        store.delete(hadoop_path(spark, f"{place}/{name}")[1], True)  # noqa: FBT003 - Java has no names

    def rename(number: int, name: str) -> None:
        _, old = hadoop_path(spark, f"{place}/{name}")
        _, new = hadoop_path(spark, f"{place}/{part_name(number)}")
        if not store.rename(old, new):
            raise OutputError(f"cannot name the files in {place}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(rename, range(len(parts)), parts))


def hadoop_path(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """Hadoop's way to a place: the store, and the path there."""
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 - Hadoop has no other door
    assert jvm is not None  # noqa: S101 - a session that runs has one
    path = jvm.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001


def part_name(number: int) -> str:
    """What the so-many-th file of rows is called."""
    return f"part-{number:05}.parquet"


def sum_files(spark: SparkSession, place: str) -> dict[str, FileSum]:
    """The sizes and checksums of the files at a place, computed where they are read."""
    from pyspark.sql import functions as sf

    files = spark.read.format("binaryFile").load(place)
    summed = files.select("path", "length", sf.sha2("content", 256).alias("sha256"))
    return {
        row["path"].rsplit("/", 1)[-1]: FileSum(row["length"], row["sha256"])
        for row in summed.toArrow().to_pylist()
    }
