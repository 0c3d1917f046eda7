"""A release on a store that Hadoop reaches (s3a, hdfs, ...), where nothing can be renamed at once.

Rows are written in their place; then the small files, and the manifest last of all: it is what
makes a folder a release.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.engines.spark.files import hadoop_path
from clusterdp.errors import OutputError
from clusterdp.storage.files import MANIFEST, PARTIAL_SUFFIX
from clusterdp.storage.folder import Staged, remove_left, working_folder, working_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# A file that marks a folder in which a run is at work.
_CLAIM = f"_clusterdp{PARTIAL_SUFFIX}"


@dataclass(frozen=True, slots=True, eq=False)
class HadoopFolder:
    """A folder on such a store, published by its manifest.

    Attributes:
        spark: The session whose settings reach the store.
        uri: The folder, such as `s3a://bucket/published`.
    """

    spark: SparkSession
    uri: str

    def __str__(self) -> str:
        return self.uri

    def check_free(self, claim: str | None = None) -> None:  # noqa: ARG002 - it has its own mark
        """Raise an OutputError if there is something at the place."""
        with self._errors():
            store, path = self._store(), self._path()
            if store.exists(path) and list(store.listStatus(path)):
                raise OutputError(
                    f"{self.uri} exists already; a release is never overwritten. If a run was "
                    f"killed there ({MANIFEST} is missing), remove it"
                )

    @contextmanager
    def staged(self, claim: str) -> Iterator[Staged]:  # noqa: ARG002 - it has its own mark
        """A private folder of this machine for small files, and the place itself for rows."""
        self.check_free()
        with self._errors():
            store = self._store()
            # Two runs at once: only one can create it.
            store.create(self._path(_CLAIM), False).close()  # noqa: FBT003 - Java has no names
        try:
            with working_folder(working_of(self.uri)) as folder:
                yield Staged(files=folder, rows=self.uri)
                self._publish(folder)
                shutil.rmtree(folder, ignore_errors=True)
        except BaseException:
            with self._errors():
                store.delete(self._path(), True)  # noqa: FBT003
            raise

    def manifest(self) -> bytes | None:
        """The manifest of the release that is there; None if there is none."""
        with self._errors(), tempfile.TemporaryDirectory(prefix="clusterdp-") as folder:
            store, path = self._store(), self._path(MANIFEST)
            if not store.exists(path):
                return None
            copy = Path(folder) / MANIFEST
            # Without Hadoop's own checksums, whose files it would leave beside.
            store.copyToLocalFile(False, path, self._local(copy), True)  # noqa: FBT003
            return copy.read_bytes()

    def clear(self, claim: str) -> None:  # noqa: ARG002 - it has its own mark
        """Remove what is left on this machine.

        Only the owner knows whether a run that marked the place itself is still at work.
        """
        remove_left(working_of(self.uri))

    def _publish(self, folder: Path) -> None:
        names = sorted(path.name for path in folder.iterdir() if path.name != MANIFEST)
        with self._errors():
            store = self._store()
            for name in names:
                self._copy(store, folder / name)
            store.delete(self._path(_CLAIM), False)  # noqa: FBT003
            self._copy(store, folder / MANIFEST)

    def _copy(self, store: Any, path: Path) -> None:
        store.copyFromLocalFile(self._local(path), self._path(path.name))
        # Hadoop's own checksum, which it keeps on disks of this machine alone.
        store.delete(self._path(f".{path.name}.crc"), False)  # noqa: FBT003

    def _local(self, path: Path) -> Any:
        return hadoop_path(self.spark, f"file://{path}")[1]

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
