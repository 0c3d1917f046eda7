"""Batches of rows into a Parquet file, one after another.

Files of a source in an object store: one, those of a folder, or those that a glob names.
"""

from __future__ import annotations

import re
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp._named import columns
from clusterdp.errors import DataError
from clusterdp.storage.store import Store

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


_WILD = re.compile(r"[*?\[]")
# A piece of a glob, and what it stands for in a regular expression; ** is any depth.
_PIECE = re.compile(r"(\*\*/)|(\*\*)|(\*)|(\?)|(\[!?[^\]]+\])")


class Located(NamedTuple):
    """Files on a disk or in a store, and the arguments that Polars needs to read them there."""

    paths: list[Path] | list[str]
    reach: dict[str, Any]


def find_objects(source: str) -> Located:
    """The addresses of the files of a source, in the order in which a disk would have them.

    Raises:
        DataError: If there are none, or the store cannot be read.
    """
    source = source.rstrip("/")
    above, _, name = source.rpartition("/")
    if not above.endswith("/"):  # there is more than a bucket
        store = Store.open(above, DataError)
        if store.size(name) is not None:
            return _found(source, store, [name])
    wild = _WILD.search(source)
    if wild is None:
        store = Store.open(source, DataError)
        paths = sorted(map(PurePosixPath, store.sizes()))
        return _found(source, store, [str(path) for path in paths if not is_hidden(path)])
    folder, _, _ = source[: wild.start()].rpartition("/")
    store, pattern = Store.open(folder, DataError), _to_pattern(source[len(folder) + 1 :])
    return _found(source, store, sorted(filter(pattern.fullmatch, store.sizes())))


def is_hidden(path: PurePath) -> bool:
    """Whether a file of a folder is what other tools leave beside their data."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _found(source: str, store: Store, names: list[str]) -> Located:
    if not names:
        raise DataError(f"there is no file {source}")
    return Located([f"{store}/{name}" for name in names], store.access.for_polars())


def _to_pattern(wild: str) -> re.Pattern[str]:
    """A glob as in shells, with ** for any depth; names with a dot first are left out."""
    stands_for = (r"(?:[^/.][^/]*/)*", r".*", r"[^/]*", r"[^/]")
    pattern, end = "", 0
    for piece in _PIECE.finditer(wild):
        which = (piece.lastindex or 0) - 1
        chosen = stands_for[which] if which < len(stands_for) else piece[0].replace("[!", "[^")
        before = wild[: piece.start()]
        visible = r"(?!\.)" if not before or before.endswith("/") else ""
        pattern += re.escape(wild[end : piece.start()]) + visible + chosen
        end = piece.end()
    return re.compile(pattern + re.escape(wild[end:]))
