"""Kills this process at one of its writes: to files, folders, the ledger or a store.

What Python opens, renames and removes is seen by an audit hook. Rows are written by Polars through
a file object of ours; the ledger by transactions; a store by its client.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.ledger._store import LedgerStore
from clusterdp.storage.folder import SummedFile
from clusterdp.storage.parquet import HiddenFile
from clusterdp.storage.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator

# At which write this process dies; and a file that gets the names of all writes, if it lives.
DEADLY, LISTED = "SOAK_DEADLY_WRITE", "SOAK_LISTED_WRITES"
# The name of a write to a table that is published; that of rows is the first.
TABLE = "write"
_CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Writes:
    """Counts the writes of this process, and kills it at one of them."""

    def __init__(self, deadly: int) -> None:
        self.passed, self._deadly = list[str](), deadly

    def tick(self, name: str) -> None:
        """Take note of a write that is about to happen, or has just happened."""
        self.passed.append(name)
        if len(self.passed) == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of what Python changes on a disk."""
        if event in _CHANGES or (event == "open" and arguments[2] & _WRITING):
            self.tick(event)


def install() -> None:
    """Begin to count, if the environment asks for it."""
    if DEADLY not in os.environ:
        return
    writes = Writes(int(os.environ[DEADLY]))
    for owner, name in (
        (SummedFile, TABLE),
        (HiddenFile, TABLE),
        (HiddenFile, "reveal"),
        *((ObjectStore, name) for name in ("create", "append", "upload", "remove")),
    ):
        _watch(writes, owner, name)
    honest = LedgerStore.writing

    @contextmanager
    def writing(store: LedgerStore) -> Iterator[Any]:
        with honest(store) as transaction:
            yield transaction
            writes.tick("ledger")
        writes.tick("ledger")

    setattr(LedgerStore, "writing", writing)  # noqa: B010 - a plain assignment has no type
    if LISTED in os.environ:
        listed = Path(os.environ[LISTED])
        atexit.register(lambda: listed.write_text("\n".join(writes.passed)))
    sys.addaudithook(writes.audit)


def _watch(writes: Writes, owner: Any, name: str) -> None:
    honest = getattr(owner, name)

    def watched(*arguments: Any) -> Any:
        writes.tick(name)
        result = honest(*arguments)
        writes.tick(name)
        return result

    setattr(owner, name, watched)
