"""What Spark writes: files under plain names, and releases on a store that Hadoop reaches.

The same release has the same files anywhere. On s3a, hdfs and their like nothing can be renamed at
once. As in an object store (`storage/store_folder.py`), a run owns the place by a claim, and the
manifest makes a folder a release. Rows are written in their place, below the claim, then the small
files, and the manifest last of all. A run that finishes an interrupted one removes what is below
its claim, and writes it again.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp.errors import OutputError
from clusterdp.storage.folder import (
    CLAIM,
    MANIFEST,
    MOST_OF_MANIFEST,
    PARTIAL_SUFFIX,
    FileSum,
    Staged,
    has_scheme,
    working_folder,
)
from clusterdp.storage.store_folder import ClaimedFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


LOCAL_SCHEME = "file:"
# How many files are renamed by a store, or read again, at once.
_AT_ONCE = 16


def local_path(place: str) -> str | None:
    """The path of a place on this machine's disks; None if it is elsewhere."""
    if not has_scheme(place):
        return place
    if place.startswith(LOCAL_SCHEME):
        return "/" + place.removeprefix(LOCAL_SCHEME).lstrip("/")
    return None


def settle_files(folder: Path, n_rows: int) -> dict[str, FileSum]:
    """Give the files of a folder plain names, and remove what Spark left next to them.

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
            "folder must be on storage that all of them share"
        )
    for entry in set(folder.iterdir()) - set(parts):
        entry.unlink()  # checksums of Hadoop's own
    paths = [part.rename(folder / part_name(number)) for number, part in enumerate(parts)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sums = pool.map(FileSum.from_file, paths)
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


# What a manifest is called until all of it is there.
_COMING = f"_clusterdp{PARTIAL_SUFFIX}"


@dataclass(frozen=True, slots=True, eq=False)
class HadoopFolder(ClaimedFolder):
    """A folder on such a store, published by its manifest.

    Attributes:
        spark: The session whose settings reach the store.
        uri: The folder, such as `s3a://bucket/published`.
    """

    spark: SparkSession
    uri: str

    @classmethod
    def within_reach(cls, uri: str) -> HadoopFolder | None:
        """A folder that the session of this process reaches; None if it has no session."""
        if "pyspark" not in sys.modules:
            return None
        from pyspark.sql import SparkSession

        running = SparkSession.getActiveSession()
        return None if running is None else cls(running, uri)

    def __str__(self) -> str:
        return self.uri

    @contextmanager
    def staged(self, claim: str) -> Iterator[Staged]:
        """A private folder of this machine for small files, and the place itself for rows."""
        with working_folder(self.working) as folder:
            self.check_free(claim)
            self._remove_below(claim)
            with self._errors():
                # Two runs at once: only one can create it.
                created = self._store().create(self._path(CLAIM), False)  # noqa: FBT003 - Java has no names
                created.write(claim.encode())
                created.close()
            try:
                yield Staged(files=folder, rows=self.uri)
                self._publish(folder, claim)
            except BaseException:
                if MANIFEST not in self._names():
                    self._remove_below(claim)
                raise
            shutil.rmtree(folder, ignore_errors=True)

    def _remove_folder(self) -> None:
        with suppress(OutputError), self._errors():  # by now it may belong to another run
            self._store().delete(self._path(), False)  # noqa: FBT003

    def _publish(self, folder: Path, claim: str) -> None:
        names = sorted(path.name for path in folder.iterdir() if path.name != MANIFEST)
        with self._errors():
            store = self._store()
            for name in names:
                self._copy(store, folder / name, name)
            self._copy(store, folder / MANIFEST, _COMING)
            self._check_claim(claim, (folder / MANIFEST).read_bytes())
            if not store.rename(self._path(_COMING), self._path(MANIFEST)):
                raise OutputError(f"another run published {self} in the meantime")
        self._remove_claim()

    def _copy(self, store: Any, path: Path, name: str) -> None:
        store.copyFromLocalFile(hadoop_path(self.spark, f"file://{path}")[1], self._path(name))
        # Hadoop's own checksum, which it keeps on disks of this machine alone.
        store.delete(self._path(f".{name}.crc"), False)  # noqa: FBT003

    def _names(self) -> set[str]:
        """What is there."""
        with self._errors():
            store, path = self._store(), self._path()
            found = store.listStatus(path) if store.exists(path) else ()
            return {one.getPath().getName() for one in found}

    def _read(self, name: str) -> bytes | None:
        """A small file as it is; None if no file has that name."""
        with self._errors():
            store, path = self._store(), self._path(name)
            if not store.exists(path):
                return None
            if store.getFileStatus(path).getLen() > MOST_OF_MANIFEST:
                raise OutputError(f"{self}/{name} is larger than {MOST_OF_MANIFEST:,} bytes")
            opened = store.open(path)
            try:
                return bytes(opened.readAllBytes())
            finally:
                opened.close()

    def _remove(self, name: str) -> None:
        with self._errors():
            self._store().delete(self._path(name), True)  # noqa: FBT003

    def _path(self, name: str = "") -> Any:
        return hadoop_path(self.spark, f"{self.uri.rstrip('/')}/{name}")[1]

    def _store(self) -> Any:
        return hadoop_path(self.spark, self.uri)[0]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, Py4JError) as error:
            kind = getattr(error, "java_exception", None)
            name = kind.getClass().getSimpleName() if kind is not None else type(error).__name__
            raise OutputError(f"cannot write {self.uri}: {name}") from None
