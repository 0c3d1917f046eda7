"""How tables are written as Parquet: the bytes of a file follow from its rows and their order.

A file that nobody can read until it is revealed: its key is in the memory of this run alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from clusterdp.storage.folder import OpenFile, SummedFile, private_file

if TYPE_CHECKING:
    import polars as pl
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    from clusterdp.storage.folder import FileSum


# Half the time of the default level, for files a tenth larger.
_COMPRESSION_LEVEL = 1
# Row groups have a size of their own. Left to Polars, they would follow the batches of the input,
# and those can follow how many characters true outcomes are written with.
_ROWS_PER_GROUP = 2**18


def write_table(rows: pl.LazyFrame, file: SummedFile | IO[bytes]) -> None:
    """Write a query to a file."""
    rows.sink_parquet(
        cast("IO[bytes]", file),  # it has what Polars calls
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        row_group_size=_ROWS_PER_GROUP,
        statistics=False,
    )


def sum_written(rows: pl.LazyFrame) -> FileSum:
    """The size and checksum that a file of these rows has, written by this version of Polars."""
    with SummedFile(Path(os.devnull)) as file:
        write_table(rows, file)
    return file.sum()


_PIECE_BYTES = 2**22


class HiddenFile(OpenFile):
    """A new file, encrypted by AES-256 while it is written. What a killed run leaves is noise."""

    def __init__(self, path: Path) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._path = private_file(path)
        super().__init__(self._path.open("r+b"))
        # A key and a nonce for one file, which is written once.
        self._cipher: Cipher[CTR] = Cipher(
            algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))
        )
        self._encryptor = self._cipher.encryptor()

    def write(self, data: bytes) -> int:
        """Write some bytes."""
        self._file.write(self._encryptor.update(data))
        return len(data)

    def reveal(self) -> Path:
        """Decrypt the file where it is; from now on its owner can read it."""
        decryptor = self._cipher.decryptor()
        self._file.seek(0)
        while piece := self._file.read(_PIECE_BYTES):
            self._file.seek(-len(piece), os.SEEK_CUR)
            self._file.write(decryptor.update(piece))
        self._file.flush()
        return self._path
