"""A release in an object store, where nothing can be renamed at once.

    free ── claim ──> claimed ── manifest ──> published

The release is put together on a private disk of this machine. A run then owns the place by an
object of its own, the claim, which is created only if the place has no claim. What is uploaded
after it is visible to everyone who can read the store. The manifest comes last, and is created only
if the place has no manifest: it is what makes a folder a release. Then the claim is removed.

A claim follows from the key of a release. A run that finishes an interrupted one has the same claim
and the same bytes, so it writes them again. Nobody else writes below a claim. What was uploaded is
removed only when the release is given up, and its claim before it: a run that is still at work then
publishes nothing.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp.errors import OutputError
from clusterdp.storage.folder import (
    CLAIM,
    MANIFEST,
    Staged,
    check_system,
    remove_private_folders,
    working_folder,
    working_of,
)
from clusterdp.storage.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class ClaimedFolder(ABC):
    """A folder of a store, which a run owns by a claim and publishes by a manifest."""

    __slots__ = ()

    @abstractmethod
    def _names(self) -> set[str]:
        """What is there."""

    @abstractmethod
    def _read(self, name: str) -> bytes | None:
        """A small file as it is; None if no file has that name."""

    @abstractmethod
    def _remove(self, name: str) -> None:
        """Remove a file."""

    @property
    def working(self) -> Path:
        """Where this machine stores temporary files: in the system's own folder."""
        return working_of(str(self))

    def manifest(self) -> bytes | None:
        """The manifest of the release that is there; None if there is no release."""
        return self._read(MANIFEST)

    def check_free(self, claim: str | None = None) -> None:
        """Raise an OutputError unless the place is free, or is claimed by the same release."""
        check_system()
        there = self._names()
        if MANIFEST in there:
            raise OutputError(
                f"{self} exists already, and a release is never overwritten. Nothing was "
                "published. Fix: choose another folder (out=..., --out), if you mean to spend "
                "epsilon again."
            )
        if CLAIM in there and (claim is None or not self._owned(claim)):
            raise self._claimed()
        if there and CLAIM not in there:
            raise OutputError(f"{self} is not empty; choose another folder (out=..., --out)")

    def clear(self, claim: str) -> None:
        """Remove what killed runs wrote without a manifest, their claim, and what is left here.

        The folder of this machine comes first: a run that is at work has locked it.
        """
        remove_private_folders(self.working)
        self._remove_below(claim)

    def _owned(self, claim: str) -> bool:
        """Whether runs of a release own the place."""
        return self._read(CLAIM) == claim.encode()

    def _remove_below(self, claim: str) -> None:
        """Remove the claim of a release; without a manifest, also everything that is below it."""
        if not self._owned(claim):
            return
        there = self._names()
        # The claim goes first: a run elsewhere that has lost it publishes nothing.
        self._remove(CLAIM)
        if MANIFEST not in there:
            for name in there - {CLAIM}:
                self._remove(name)
            self._remove_folder()

    def _remove_folder(self) -> None:  # noqa: B027 - object stores have no folders
        """Remove the folder itself, in stores where an empty one is something."""

    def _claimed(self) -> OutputError:
        return OutputError(
            f"another run is publishing at {self}, or was interrupted there: finish that release "
            "(--resume), or choose another folder (out=..., --out)"
        )

    def _check_claim(self, claim: str, sealed: bytes) -> None:
        """Raise an OutputError if another run took the place, unless this manifest is there."""
        if not self._owned(claim) and self.manifest() != sealed:
            raise OutputError(f"the claim of this run at {self} was removed")

    def _remove_claim(self) -> None:
        with suppress(OutputError):  # `clear` tries again; it harms no reader
            self._remove(CLAIM)


@dataclass(frozen=True, slots=True, eq=False)
class StoreFolder(ClaimedFolder):
    """A folder of an object store, published by its manifest."""

    store: ObjectStore

    @classmethod
    def at(cls, uri: str) -> StoreFolder:
        """The folder at an address."""
        return cls(ObjectStore.open(uri, OutputError))

    def __str__(self) -> str:
        return str(self.store)

    def _names(self) -> set[str]:
        return set(self.store.sizes())

    def _read(self, name: str) -> bytes | None:
        return self.store.read(name)

    def _remove(self, name: str) -> None:
        self.store.remove(name)

    @contextmanager
    def staged(self, claim: str) -> Iterator[Staged]:
        """A private folder of this machine, uploaded when the block ends without an error."""
        with working_folder(self.working) as folder:
            self._claim(claim)
            try:
                yield Staged(files=folder, rows=str(folder))
            except BaseException:
                self._give_up(claim)
                raise
            self._claim(claim)  # it may have been removed in the meantime
            self._publish(folder, claim)
            shutil.rmtree(folder, ignore_errors=True)

    def _claim(self, claim: str) -> None:
        """Own the place.

        Raises:
            OutputError: If another run owns it, or the store does not honor conditions.
        """
        created = self.store.create(CLAIM, claim.encode())
        if created and self.store.create(CLAIM, claim.encode()):
            self._remove_claim()
            raise OutputError(
                f"{self} is in object storage that ignores conditional writes (If-None-Match), so "
                "two owners could publish to one place; choose another"
            )
        if not created:
            self.check_free(claim)
            if not self._owned(claim):
                raise self._claimed()
            return
        try:
            self._check_empty()
        except OutputError:
            self._remove_claim()
            raise

    def _check_empty(self) -> None:
        """Raise an OutputError if there is anything but the claim."""
        there = self._names() - {CLAIM}
        if there:
            what = "exists already" if MANIFEST in there else "is not empty"
            raise OutputError(f"{self} {what}; choose another folder (out=..., --out)")

    def _publish(self, folder: Path, claim: str) -> None:
        sealed = (folder / MANIFEST).read_bytes()
        # What the manifest does not name stays here.
        names = sorted(json.loads(sealed)["files"])
        for name in names:
            self.store.upload(name, folder / name)
        try:
            self._check_claim(claim, sealed)
        except OutputError:
            # Without a claim nobody removes these; below that of another run they may be its own.
            if not self._names() & {CLAIM, MANIFEST}:
                for name in names:
                    self._remove(name)
            raise
        # An answer that was lost is asked for again: the manifest that is there may be this one.
        if not self.store.create(MANIFEST, sealed) and self.manifest() != sealed:
            raise OutputError(f"another run published {self} in the meantime")
        self._remove_claim()

    def _give_up(self, claim: str) -> None:
        """Leave the place free if nothing was uploaded, by this run or an earlier one."""
        with suppress(OutputError):
            self._check_empty()
            if self._owned(claim):
                self._remove_claim()
