"""All or nothing: a folder appears complete by one rename, or not at all.

What the files of a published folder are called, and their checksums, are here, too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple, Protocol, Self

from msgspec import Struct

from clusterdp.errors import DataError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from io import BufferedReader
    from types import ModuleType


# Written last of all: a folder without a manifest is not a release.
MANIFEST = "manifest.json"
CELLS, CHANNELS = "cells.parquet", "channels.parquet"
TOTALS, PILOT = "totals.parquet", "pilot.parquet"
README, INDEX = "README.md", "index.html"
# What an analyst asks the owner later, and the labels that it is about.
FOLLOWUP, LABELS = "followup.json", "labels.parquet"
# What is added after a release was sealed: no checksum covers it.
ERRATA, SIGNATURE = "errata.md", "signature.json"
# The rows: one file, or a folder of parts that many machines wrote.
UNITS, UNIT_PARTS = "units.parquet", "units"
# How many rows each of these parts has, or has about, if rows are spread by their ids: so how many
# there are follows from the public size alone.
ROWS_PER_PART = 2_000_000
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
    def from_file(cls, path: Path) -> FileSum:
        """The size and checksum of a file."""
        with open_regular(path) as file:
            digest = hashlib.file_digest(file, "sha256")
            return cls(os.fstat(file.fileno()).st_size, digest.hexdigest())


class OpenFile:
    """A file that others write to through this, and that is closed in the end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def flush(self) -> None:
        """Hand what was written over to the system."""
        self._file.flush()


class SummedFile(OpenFile):
    """A file whose checksum is computed while it is written, instead of reading it again.

    Attributes:
        error: Why it could not be written; None if it could. Its caller may hide that.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.open("wb"))
        self._digest, self._size = hashlib.sha256(), 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write some bytes."""
        self._digest.update(data)
        self._size += len(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def sum(self) -> FileSum:
        """The size and checksum of what was written."""
        return FileSum(self._size, self._digest.hexdigest())


# What is about to be published, within the private folder of a run.
_WHOLE = f".whole{PARTIAL_SUFFIX}"


class Staged(NamedTuple):
    """Where a release is put together.

    Attributes:
        files: A private folder for everything but rows.
        rows: Where the engine puts rows: the same folder, or a store that only it can reach.
    """

    files: Path
    rows: str


class Destination(Protocol):
    """A folder that does not exist yet, and appears complete or not at all."""

    def check_free(self, claim: str | None = None) -> None:
        """Raise an OutputError unless a new folder can be made there.

        Args:
            claim: What an interrupted run of the same release owns the place by; None if this is
                the first.
        """

    def staged(self, claim: str) -> AbstractContextManager[Staged]:
        """Where to put things; they are published when the block ends without an error.

        Args:
            claim: What distinguishes runs of this release from those of others.
        """

    def manifest(self) -> bytes | None:
        """The manifest of the release that is there; None if there is no release."""

    def clear(self, claim: str) -> None:
        """Remove what killed runs of a release left here and next to it; a published one stays.

        Args:
            claim: What runs of the release own the place by.

        Raises:
            OutputError: If a run is at work here, or something cannot be removed.
        """


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder on a disk of this machine, published by one rename."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def working(self) -> Path:
        """Where temporary files are stored: next to it, on the same disk."""
        return self.path

    def check_free(self, claim: str | None = None) -> None:  # noqa: ARG002 - nothing is ever there
        """Raise an OutputError unless a new folder can be made there."""
        target = self.path
        check_system()
        if target.name.endswith((PARTIAL_SUFFIX, SCRATCH_SUFFIX)):
            raise OutputError(f"{target.name} is a name for unfinished folders; choose another")
        # The names of private folders are longer: what is too long for one is found here.
        is_there, *_ = map(_is_there, (target, _partial_of(target), _scratch_of(target)))
        if is_there:
            raise OutputError(
                f"{target} exists already, and a release is never overwritten. Nothing was "
                "published. Fix: choose another folder (out=..., --out), if you mean to spend "
                "epsilon again."
            )
        if not target.parent.is_dir():
            raise OutputError(f"there is no folder {target.parent} to make {target.name} in")
        # Checked before anything is spent. The system checks again when the folder is made.
        if not os.access(target.parent, os.W_OK | os.X_OK, effective_ids=True):
            raise OutputError(f"cannot write in {target.parent}: permission denied")

    @contextmanager
    def staged(self, claim: str) -> Iterator[Staged]:  # noqa: ARG002 - a lock distinguishes runs
        """A private folder next to it that becomes it when the block ends without an error.

        Before that it does not exist; what an earlier run left behind is removed. A
        second run for the same place does not wait: it gets an error.

        Raises:
            OutputError: If it exists, its parent does not, or another run is writing it.
        """
        target = Path(os.path.abspath(self.path))  # noqa: PTH100 - resolve() would follow a symlink
        LocalFolder(target).check_free()
        with working_folder(target) as partial:
            yield Staged(files=partial, rows=str(partial))
            LocalFolder(target).check_free()
            _publish(partial, target)

    def manifest(self) -> bytes | None:
        """The manifest of the release that is there; None if there is no release."""
        try:
            return read_regular(self.path / MANIFEST, MOST_OF_MANIFEST)
        except OSError:
            return None

    def clear(self, claim: str) -> None:  # noqa: ARG002 - a lock distinguishes runs
        """Remove the private folders next to it; a rename leaves nothing else behind."""
        remove_private_folders(self.path)


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")


def has_scheme(place: str) -> bool:
    """Whether a place is an address, such as s3a://bucket/folder, or file:/folder of Hadoop."""
    return _SCHEME.match(place) is not None


def working_of(address: str) -> Path:
    """Where this machine stores temporary files for a place in object storage."""
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"clusterdp-{os.geteuid()}-{name}"


@contextmanager
def working_folder(target: Path) -> Iterator[Path]:
    """A private folder next to `target`, which is removed if the block ends with an error.

    What an earlier run left behind is removed, too.

    Raises:
        OutputError: If it cannot be made, or another run is using it.
    """
    partial = _partial_of(target)
    with _claimed(partial, target):
        try:
            _empty(partial)
            _remove_stale_scratch(target)
            yield partial
        except DataError as error:
            # Its budget is given back, so nothing that was drawn may be left.
            try:
                _remove(partial)
            except OutputError as failed:
                raise OutputError(f"{error}; {failed}") from None
            raise
        except BaseException:
            # Only while it is ours; an unclaimed empty one harms nobody.
            shutil.rmtree(partial, ignore_errors=True)
            raise


@contextmanager
def _claimed(folder: Path, target: Path) -> Iterator[None]:
    """Make a folder and lock it; the lock goes with the process, however it ends."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        # Never through a link: what is found inside is going to be removed.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise OutputError(f"cannot write in {target.parent}: {error.strerror}") from None
    try:
        _lock_as_ours(handle, folder, target)
        yield
    finally:
        os.close(handle)


def _lock_as_ours(handle: int, folder: Path, target: Path) -> None:
    try:
        _lock(handle, exclusive=True)
        opened, there = os.fstat(handle), os.lstat(folder)
        if opened.st_uid != os.geteuid() or not os.path.samestat(opened, there):
            raise BlockingIOError
        os.fchmod(handle, 0o700)
    except OSError:
        raise OutputError(f"another run is writing {target}") from None


def is_being_written(target: Path) -> bool:
    """Whether a run of this machine is making `target`, or stores a table for it."""
    return _is_locked(_partial_of(target)) or _is_locked(_scratch_of(target))


def _is_locked(folder: Path) -> bool:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except PermissionError:
        return True  # another user's: it may be
    except (OSError, ValueError):
        return False
    try:
        _lock(handle, exclusive=False)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """A private folder next to `target` for what must be stored while it is made.

    It is removed in the end, and what a killed run left of it by the next run.

    Raises:
        OutputError: If it cannot be made, or another run is using it.
    """
    scratch = _scratch_of(target)
    with _claimed(scratch, target):
        try:
            _empty(scratch)
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def has_private_folders(target: Path) -> bool:
    """Whether a run left, or uses, private folders next to `target`."""
    return any(os.path.lexists(folder) for folder in (_partial_of(target), _scratch_of(target)))


def remove_private_folders(target: Path) -> None:
    """Remove the private folders that a killed run left next to `target`.

    Raises:
        OutputError: If a run is using one of them, or it cannot be removed.
    """
    for folder in (_partial_of(target), _scratch_of(target)):
        if os.path.lexists(folder):
            with _claimed(folder, target):
                _remove(folder)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise OutputError(f"{folder} cannot be removed: {error.strerror}") from None


def _remove_stale_scratch(target: Path) -> None:
    """Remove what a killed run left of its scratch folder; one that is in use is left alone."""
    if not _scratch_of(target).exists():
        return
    with suppress(OutputError), scratch_folder(target):
        pass


def _partial_of(target: Path) -> Path:
    return target.absolute().with_name(f".{target.name}{PARTIAL_SUFFIX}")


def _scratch_of(target: Path) -> Path:
    return target.absolute().with_name(f".{target.name}{SCRATCH_SUFFIX}")


def _lock(handle: int, *, exclusive: bool) -> None:
    """Lock a folder, or raise an OSError if another process has locked it."""
    locks = _locks()
    locks.flock(handle, (locks.LOCK_EX if exclusive else locks.LOCK_SH) | locks.LOCK_NB)


def _locks() -> ModuleType:
    """The system's locks, which go with the process; Windows has none."""
    try:
        import fcntl
    except ImportError:
        raise OutputError(
            "a folder can be published on Linux and macOS only; release in memory instead"
        ) from None
    return fcntl


def check_system() -> None:
    """Raise an OutputError on a system that cannot lock folders."""
    _locks()


def _is_there(path: Path) -> bool:
    """Whether there is something of this name, where there can be."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        raise OutputError(f"no folder can be made at {str(path)[:200]}") from None
    return True


def private_file(path: Path) -> Path:
    """An empty file that its owner alone can read, to be written by others."""
    path.touch(mode=0o600, exist_ok=False)
    return path


def _empty(folder: Path) -> None:
    try:
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    except OSError as error:
        raise OutputError(f"cannot empty {folder}: {error.strerror}") from None


def _publish(partial: Path, target: Path) -> None:
    """Make the files durable, and give a folder of them its name, at which others can read it.

    It has its modes before, within the private folder, where nobody else gets to it.
    """
    umask = os.umask(0)
    os.umask(umask)
    entries, whole = list(partial.iterdir()), partial / _WHOLE
    whole.mkdir()
    for entry in entries:
        entry.rename(whole / entry.name)
    for entry in (whole, *whole.rglob("*")):
        _sync(entry)
        entry.chmod((0o777 if entry.is_dir() else 0o666) & ~umask)
    whole.rename(target)
    with suppress(OSError):  # the next run removes it, too
        partial.rmdir()
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
