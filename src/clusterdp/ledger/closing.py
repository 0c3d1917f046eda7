"""Giving up a release: the content of its last entry, and whether its secrets are intact."""

from __future__ import annotations

import socket
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from clusterdp.errors import LedgerError, OutputError, ParameterError
from clusterdp.storage.access import is_store
from clusterdp.storage.folder import LocalFolder, is_being_written, working_of
from clusterdp.storage.folder import remove_left as clear_folder
from clusterdp.storage.store_folder import StoreFolder

if TYPE_CHECKING:
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.ledger.store import Secrets

_LONGEST_REASON = 500


def secrets_problem(record: ReleaseRecord, kept: Secrets | None) -> str | None:
    """Why an unfinished release cannot be finished with the secrets that are stored."""
    if kept is None:
        return "its secrets are lost"
    if _checksum(kept.key) != record.content["key_sha256"]:
        return "its key was changed"
    found = [_checksum(one) for one in (kept.labelled, kept.looked, kept.drawn)]
    if found != [record.labelled_sha256, record.looked_sha256, record.drawn_sha256]:
        return "what it drew was changed or is lost"
    return None


def machine_name() -> str:
    """How the ledger names this machine."""
    return socket.gethostname()


def remove_left(place: str, host: str | None, claim: str) -> str | None:
    """Remove what a killed run left at a place and beside it; a published release stays.

    Args:
        place: Where the run was going to publish.
        host: The machine that it ran on.
        claim: What runs of the release own a place by.

    Returns:
        What may be left, and where; None if nothing is.

    Raises:
        OutputError: If a run is at work there.
    """
    target = _target(place)
    if host != machine_name() and not isinstance(target, StoreFolder):
        return f"what it left at {place} on the machine {host} cannot be removed from here"
    if target is None:
        clear_folder(working_of(place))
        return f"what it wrote to {place} may be left there"
    target.clear(claim)
    if host != machine_name():
        return f"what it left on the machine {host} cannot be removed from here"
    return None


def _checksum(stored: bytes | None) -> str | None:
    return None if stored is None else sha256(stored).hexdigest()


def describe_closing(record: ReleaseRecord, kept: Secrets | None) -> tuple[str, dict[str, str]]:
    """The event that closes a release, and the content of its entry.

    A sealed release may be published, or about to be. A run that publishes to a local folder locks
    a folder beside it from before the sealing until after the rename. So the lock is checked first,
    and then the folder.

    Raises:
        LedgerError: If a run is about to publish the release.
    """
    if kept is None or not isinstance(kept.sealed, str):
        return "closed", {}
    sealed, place = kept.sealed, kept.place
    if not _is_place(place):
        return "closed", {"sealed_sha256": sealed}
    target = _target(place)
    if target is not None and is_being_written(target.working):
        raise LedgerError(
            f"a run is about to publish release {record.release_id} at {place}; end that run, "
            "and then close the release"
        )
    manifest = _manifest_at(target)
    published = manifest is not None and sha256(manifest).hexdigest() == sealed
    if published and record.drawn_sha256 is not None:
        return "committed", {"manifest_sha256": sealed, "folder": place}
    return "closed", {"sealed_sha256": sealed, "sealed_for": place}


def _is_place(place: str | None) -> TypeGuard[str]:
    """Whether a folder could be there: an edited database may hold anything, bytes included."""
    return isinstance(place, str) and "\0" not in place and bool(Path(place).name)


def _target(place: str) -> LocalFolder | StoreFolder | None:
    """A place on record; None if Spark alone reaches it, or it cannot be opened."""
    if "://" not in place:
        return LocalFolder(Path(place))
    try:
        return StoreFolder.at(place) if is_store(place) else None
    except OutputError:
        return None


def _manifest_at(target: LocalFolder | StoreFolder | None) -> bytes | None:
    """The manifest at a place; None if there is none, or it cannot be seen from here."""
    try:
        return None if target is None else target.manifest()
    except OutputError:
        return None


def describe_left(record: ReleaseRecord, kept: Secrets | None) -> dict[str, str]:
    """Remove what killed runs of a release left; what an entry says if some of it may remain."""
    if kept is None or not _is_place(kept.place):
        return {"left": "where its runs worked is not known, and what they left may remain there"}
    target = _target(kept.place)
    if target is not None and is_being_written(target.working):
        return {}  # a run is at work, and removes what it made when it finds the entry
    try:
        left = remove_left(kept.place, kept.host, record.content["claim"])
    except OutputError as error:
        left = str(error)
    return {} if left is None else {"left": left}


def describe_reason(reason: str | None) -> dict[str, str]:
    """A reason as an entry holds it."""
    if reason is None:
        return {}
    if not reason.isprintable() or len(reason) > _LONGEST_REASON:
        raise ParameterError(
            f"reason must be one line of at most {_LONGEST_REASON} characters, got "
            f"{len(reason)}; shorten it"
        )
    return {"reason": reason}
