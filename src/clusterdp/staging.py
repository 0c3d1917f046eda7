"""All or nothing: a folder appears complete by one rename, or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTIAL_SUFFIX = ".partial"


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """A private folder beside `target` that becomes it when the block ends without an error.

    Whatever happens before, `target` does not exist; what an earlier run left behind is removed. A
    second run for the same target waits for nobody: it is refused.

    Yields:
        The folder to fill, readable by its owner alone.

    Raises:
        OutputError: If the target exists, its parent does not, or another run is writing it.
    """
    target = Path(os.path.abspath(target))  # noqa: PTH100 - resolve() would follow a symlink
    check_free(target)
    partial = target.with_name(f".{target.name}{PARTIAL_SUFFIX}")
    handle: int | None = None
    try:
        handle = _claim(partial, target)
        _empty(partial)
        yield partial
        check_free(target)
        _publish(partial, target)
    except BaseException as error:
        if handle is not None:
            shutil.rmtree(partial, ignore_errors=True)
        elif not isinstance(error, OutputError):  # interrupted before it was claimed
            with suppress(OSError):
                partial.rmdir()
        raise
    finally:
        if handle is not None:
            os.close(handle)


def _claim(partial: Path, target: Path) -> int:
    """Make the folder and lock it; the lock goes with the process, however it ends."""
    try:
        partial.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(partial, os.O_RDONLY)
    except OSError as error:
        raise OutputError(f"cannot write in {target.parent}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise OutputError(f"another run is writing {target}") from None
    return handle


def check_free(target: Path) -> None:
    """Raise an OutputError unless a new folder can be made at `target`."""
    if target.exists() or target.is_symlink():
        raise OutputError(f"{target} exists already; a release is never overwritten")
    if not target.parent.is_dir():
        raise OutputError(f"there is no folder {target.parent} to make {target.name} in")


def private_file(path: Path) -> Path:
    """An empty file that its owner alone can read, to be written by others."""
    path.touch(mode=0o600, exist_ok=False)
    return path


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _publish(partial: Path, target: Path) -> None:
    """Make the files durable and readable, then give the folder its name."""
    umask = os.umask(0)
    os.umask(umask)
    for entry in partial.iterdir():
        _sync(entry)
        entry.chmod(0o666 & ~umask)
    _sync(partial)
    partial.chmod(0o777 & ~umask)
    partial.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
