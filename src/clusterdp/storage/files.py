"""The files of a published folder: what they are called, and their checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Literal, Self

from msgspec import Struct

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path
    from types import TracebackType

# Written last of all: a folder without a manifest is not a release.
MANIFEST = "manifest.json"
CELLS, CHANNELS, TOTALS = "cells.parquet", "channels.parquet", "totals.parquet"
LOOK = "look.parquet"
README, INDEX = "README.md", "index.html"
# What is added after a release was sealed: no checksum covers it.
ERRATA = "errata.md"
# The rows: one file, or a folder of parts that many machines wrote.
UNITS, UNIT_PARTS = "units.parquet", "units"
# What a run owns a place in a store by, while it publishes there.
CLAIM = "_clusterdp.claim"
# Names of folders that are not finished, or are removed with the run.
PARTIAL_SUFFIX, SCRATCH_SUFFIX = ".partial", ".scratch"
# More bytes than a text of a few options, or a manifest, ever has.
MOST_OF_TEXT, MOST_OF_MANIFEST = 2**22, 2**26
# How published rows are ordered: by their ids, or as in the table.
RowOrderKind = Literal["ids", "table"]


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A file for reading, which may stand behind a link; never a device or a pipe.

    Those could have no end, or never begin. Nothing is waited for.

    Raises:
        OSError: If it cannot be opened, or is no regular file.
    """
    unusual = OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    # To open some devices does something already. What is opened may be another file by then.
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a path may be a text
        raise unusual
    waits_not = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, os.O_RDONLY | waits_not), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise unusual
    return file


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a file of at most so many bytes; see `open_regular`.

    Raises:
        OSError: If it cannot be read, is no regular file, or is larger.
    """
    with open_regular(path) as file:
        # A file may grow meanwhile.
        is_larger = os.fstat(file.fileno()).st_size > most
        content = b"" if is_larger else file.read(most + 1)
    if is_larger or len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes", os.fspath(path))
    return content


class FileSum(Struct, frozen=True, forbid_unknown_fields=True):
    """The size and the checksum of a file, as a manifest lists them."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileSum:
        """The size and checksum of a file."""
        with open_regular(path) as file:
            digest = hashlib.file_digest(file, "sha256")
            return cls(os.fstat(file.fileno()).st_size, digest.hexdigest())


class SummedFile:
    """A file whose checksum is computed while it is written, instead of reading it again.

    Attributes:
        error: Why it could not be written; None if it could. Whoever writes it may hide that.
    """

    def __init__(self, path: Path) -> None:
        self._file, self._digest, self._size = path.open("wb"), hashlib.sha256(), 0
        self.error: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        """Write some bytes."""
        self._digest.update(data)
        self._size += len(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Hand what was written over to the system."""
        self._file.flush()

    def sum(self) -> FileSum:
        """The size and checksum of what was written."""
        return FileSum(self._size, self._digest.hexdigest())
