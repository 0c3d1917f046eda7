"""The files of a published folder, on a disk or in a store, for readers."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.errors import FormatError, OutputError
from clusterdp.storage.folder import (
    UNIT_PARTS,
    FileSum,
    open_regular,
    read_regular,
)
from clusterdp.storage.store import ObjectStore, is_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a folder on a disk. What cannot be read is a FormatError."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """What the folder is called, without where it is."""
        return self.path.name

    def exists(self) -> bool:
        """Whether there is anything at all."""
        return os.path.lexists(self.path)

    def names(self) -> list[str]:
        """The names of all that is there; of the folder of rows, of what is in it."""
        rows = self.path / UNIT_PARTS
        with self._reading(UNIT_PARTS):
            parts = (
                [f"{UNIT_PARTS}/{path.name}" for path in rows.iterdir()] if rows.is_dir() else []
            )
            return [
                *(path.name for path in self.path.iterdir() if not parts or path != rows),
                *parts,
            ]

    def size(self, name: str) -> int | None:
        """The size of a file; None if no file has that name."""
        path = self.path / name
        return path.stat().st_size if path.is_file() else None

    def is_link(self, name: str) -> bool:
        """Whether a name leads to a file elsewhere."""
        return (self.path / name).is_symlink()

    def is_taken(self, name: str) -> bool:
        """Whether there is anything of that name: a file, a folder or a link."""
        return os.path.lexists(self.path / name)

    def read(self, name: str, most: int) -> bytes | None:
        """A file of at most so many bytes as it is; None if no file has that name."""
        try:
            with self._reading(name):
                return read_regular(self.path / name, most)
        except FileNotFoundError:
            return None

    def part(self, name: str, start: int, n_bytes: int) -> bytes:
        """So many bytes of a file from a place on, or as many as there are."""
        if min(start, n_bytes) < 0:
            raise ValueError(start)
        with self._reading(name), open_regular(self.path / name) as file:
            file.seek(start)
            return file.read(n_bytes)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Errors of reading a file in a line; that it is not there stays what it is."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError from None
        except OSError as error:
            raise FormatError(f"cannot read {self.path / name}: {error.strerror}") from None

    def sum(self, name: str) -> FileSum:
        """The size and checksum of a file."""
        with self._reading(name):
            return FileSum.from_file(self.path / name)

    def scan_parquet(self, names: list[str]) -> pl.LazyFrame:
        """A query over Parquet files."""
        import polars as pl

        return pl.scan_parquet([self.path / name for name in names], glob=False)

    def append(self, name: str, text: str) -> None:
        """Add text to the end of a file, which may be new."""
        path = self.path / name
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from None


# The files of a folder, by their names in it.
Files = LocalFiles | ObjectStore


def open_folder(place: str | os.PathLike[str]) -> Files:
    """The files at a place: an address in its store, a path on this machine's disks.

    Raises:
        FormatError: If the store cannot be reached.
    """
    name = os.fspath(place)
    if is_store(name):
        return ObjectStore.open(name, FormatError)
    return LocalFiles(Path(name))
