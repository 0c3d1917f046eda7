"""A release whose budget is spent, until it is published or given up."""

from __future__ import annotations

import os
import secrets as system
import socket
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from clusterdp.engines.spark._files import HadoopFolder
from clusterdp.errors import LedgerError, OutputError, ParameterError, notify_owner
from clusterdp.ledger._store import DRAWN_EVENTS, ENDED, RANDOMIZING
from clusterdp.rows.keys import ReleaseKey
from clusterdp.storage.folder import (
    LocalFolder,
    has_private_folders,
    has_scheme,
    is_being_written,
    remove_private_folders,
    working_of,
)
from clusterdp.storage.store import is_store
from clusterdp.storage.store_folder import StoreFolder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.ledger._encryption import Encryption
    from clusterdp.ledger._store import DrawnEvent, Entry, LedgerStore, Secrets, Transaction
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.storage.folder import Destination


_LONGEST_REASON = 500
# Long enough that two releases never have the same id by chance; the ledger checks it anyway.
_ID_BYTES = 16


def secrets_problem(record: ReleaseRecord, kept: Secrets | None) -> str | None:
    """Why an unfinished release cannot be finished with the secrets that are stored."""
    if kept is None:
        return "its secrets are lost"
    if sha256(kept.key).hexdigest() != record.content["key_sha256"]:
        return "its key was changed"
    for event in DRAWN_EVENTS:
        stored = getattr(kept, event)
        found = None if stored is None else sha256(stored).hexdigest()
        if found != getattr(record, f"{event}_sha256"):
            return "what it drew was changed or is lost"
    return None


def worker_name(place: str) -> str:
    """How the ledger names who works on a release: this machine.

    For a place that is not a folder here, also next to which folder of this machine. That follows
    from who runs it and from its environment, so a later run could look elsewhere.
    """
    machine = socket.gethostname()
    return f"{machine}:{working_of(place)}" if has_scheme(place) else machine


def _working(place: str, host: str | None) -> Path | None:
    """Next to which folder a run worked; None if that was on another machine."""
    machine, _, folder = (host or "").partition(":")
    return Path(folder or place) if machine == socket.gethostname() else None


def remove_leftovers(place: str, host: str | None, claim: str) -> str | None:
    """Remove what a killed run left at a place and next to it; a published release stays.

    Args:
        place: Where the run was going to publish.
        host: Who worked on it; see `worker_name`.
        claim: What runs of the release own a place by.

    Returns:
        What may be left, and where; None if nothing is.

    Raises:
        OutputError: If a run is at work there.
    """
    target, working = _target(place), _working(place, host)
    if working is None and (target is None or isinstance(target, LocalFolder)):
        return f"what it left at {place} on the machine {host} cannot be removed from here"
    if working is not None and not working.parent.is_dir():
        # It may have been moved, or not be mounted: what is in it is still there.
        return f"what it left next to {working} is out of reach: there is no {working.parent}"
    if working is not None:
        remove_private_folders(working)
    if target is None:
        return (
            f"what it wrote to {place} may be left there, without a manifest: remove it; within a "
            "Spark session that reaches the place, this is done for you"
        )
    target.clear(claim)
    if working is None:
        return f"what it left on the machine {host} cannot be removed from here"
    return None


def _try_removing(place: str, host: str | None, claim: str) -> str | None:
    """As `remove_leftovers`; what keeps it from removing is what may be left."""
    try:
        return remove_leftovers(place, host, claim)
    except OutputError as error:
        return str(error)


def describe_closing(record: ReleaseRecord, kept: Secrets | None) -> tuple[str, dict[str, str]]:
    """The event that closes a release, and the content of its entry.

    A sealed release may be published, or about to be. A run that publishes to a local folder locks
    a folder next to it from before the sealing until after the rename. So what is not published yet
    is looked for once more after the lock was checked.

    Raises:
        LedgerError: If a run is about to publish the release.
    """
    if kept is None or not isinstance(kept.sealed, str):
        return "closed", {}
    sealed, place = kept.sealed, kept.place
    if not _is_place(place):
        return "closed", {"sealed_sha256": sealed}
    target, working = _target(place), _working(place, kept.host)
    if working is None and isinstance(target, LocalFolder):
        working = target.working  # a machine may have two names, and a disk two machines
    published = is_published(target, sealed)
    if not published and working is not None and is_being_written(working):
        raise LedgerError(
            f"a run is about to publish release {record.release_id} at {place}; end that run, "
            "and then close the release"
        )
    published = published or is_published(target, sealed)
    if published and record.drawn_sha256 is not None:
        return "committed", {"manifest_sha256": sealed, "folder": place}
    return "closed", {"sealed_sha256": sealed, "sealed_for": place}


def _is_place(place: str | None) -> TypeGuard[str]:
    """Whether a folder could be there: an edited database may hold anything, bytes included."""
    return isinstance(place, str) and "\0" not in place and bool(Path(place).name)


def _target(place: str) -> LocalFolder | StoreFolder | HadoopFolder | None:
    """A place on record; None if it cannot be opened, or Spark alone reaches it and is not here."""
    if not has_scheme(place):
        return LocalFolder(Path(place))
    try:
        return StoreFolder.at(place) if is_store(place) else HadoopFolder.within_reach(place)
    except OutputError:
        return None


def is_published(target: Destination | None, sealed: str | None) -> bool:
    """Whether the manifest of this checksum is at a place.

    False if the place cannot be seen from here: the run that resumes the release asks again.
    """
    try:
        manifest = None if target is None else target.manifest()
    except OutputError:
        return False
    return manifest is not None and sha256(manifest).hexdigest() == sealed


def describe_left(record: ReleaseRecord, kept: Secrets | None) -> dict[str, str]:
    """Remove what killed runs of a release left; what an entry says if some of it may remain.

    A run that is at work removes what it made when it finds the entry. It may be killed before, or
    have stored nothing yet: so the entry says where runs work, and what they leave later is removed
    when the release is ended once more.
    """
    if kept is None or not _is_place(kept.place):
        return {"left": "where its runs worked is not known, and what they left may remain there"}
    working, worked = _working(kept.place, kept.host), worked_at(kept)
    if working is not None and is_being_written(working):
        return {**worked, "at_work": kept.place}
    left = _try_removing(kept.place, kept.host, record.content["claim"])
    return worked if left is None else {**worked, "left": left}


def worked_at(kept: Secrets) -> dict[str, str]:
    """Where the last run of a release worked, as an entry holds it."""
    return {} if kept.place is None else {"worked_at": kept.place, "worker": kept.host or ""}


def remove_later(record: ReleaseRecord) -> bool:
    """Remove what runs left after their release was ended; whether there was anything to look for.

    Raises:
        LedgerError: If a run is still at work, or what it left is out of reach.
    """
    ended = record.ended or {}
    place, worker = ended.get("worked_at"), ended.get("worker")
    working = None if place is None else _working(place, worker)
    has_left = working is not None and has_private_folders(working)
    if place is None or not (has_left or "at_work" in ended):
        return False
    left = _try_removing(place, worker, record.content["claim"])
    if left is not None:
        raise LedgerError(f"release {record.release_id} is {record.status}, and {left}")
    return True


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


class OvertakenError(LedgerError):
    """Another run finished or finishes the same release, or it was closed or canceled."""


@dataclass(slots=True)
class Reservation:
    """The journal of a release whose budget is spent; it makes the release resumable.

    Attributes:
        record: The release as the ledger recorded it when this run began.
        is_given_up: Whether this run has found that the release can never be finished.
    """

    _store: LedgerStore
    _encryption: Encryption
    record: ReleaseRecord
    _kept: Secrets = field(repr=False)
    _began_rows: bool = False
    is_given_up: bool = False

    @property
    def release_id(self) -> str:
        """The id of the release."""
        return self.record.release_id

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanism of each block, with the parameters that were reserved."""
        return self.record.terms.mechanisms

    @property
    def key(self) -> ReleaseKey:
        """The key of the release."""
        return ReleaseKey(
            self._encryption.decrypt(self._kept.key, secret_context(self.release_id, "key"))
        )

    @property
    def row_key(self) -> ReleaseKey:
        """The key of its rows: that of the run which began to randomize them last."""
        return self.key.for_attempt(self.record.n_attempts + self._began_rows)

    @property
    def draws_anew(self) -> bool:
        """Whether rows get nothing from a key that another run may use with them.

        Once a manifest is sealed, some of the release may be public, and rows keep their key. So do
        labels of private clusters: their counts are on record.
        """
        return self.sealed is None and self._kept.labelled is None

    @property
    def sealed(self) -> str | None:
        """The checksum of the manifest that was about to be published, if it got that far."""
        return self._kept.sealed

    @property
    def may_be_cancelled(self) -> bool:
        """Whether nothing depends on outcomes but rows of this run, which it removes when it fails.

        What an earlier run randomized may have been seen before it was removed.
        """
        drawn = (getattr(self._kept, event) for event in DRAWN_EVENTS)
        return not self.record.has_drawn and all(one is None for one in drawn)

    def remove_leftovers(self) -> str | None:
        """Remove what the last run left; see `remove_leftovers`, which says what may remain."""
        if self._kept.place is None:
            return None
        return remove_leftovers(self._kept.place, self._kept.host, self.record.content["claim"])

    def begin_at(self, place: str) -> None:
        """Write down where this run works, after it removed what the last one left elsewhere.

        Raises:
            OutputError: If another run of this release is at work.
            LedgerError: If rows with another key may be left where this run cannot remove them.
        """
        last, here = self._kept, worker_name(place)
        if last.place is not None and (last.place, last.host) != (place, here):
            left = self.remove_leftovers()
            if left is not None and self.record.n_attempts and self.sealed is None:
                raise LedgerError(
                    f"release {self.release_id} was interrupted while it randomized rows, and "
                    f"{left}. This run would randomize them once more: resume it there, or close it"
                )
            if left is not None:
                notify_owner(f"release {self.release_id} was interrupted, and {left}")
        with self._store.writing() as transaction:
            self._still_kept(transaction)
            transaction.set_known(self.release_id, place=place, host=here)
        self._kept = self._kept._replace(place=place, host=here)

    def begin_rows(self) -> None:
        """Write down that rows are about to be randomized, by a key that no run before used.

        Once a manifest is sealed, some of the release may be public, and its rows keep their key.

        Raises:
            OvertakenError: If another run did so since this one began, or the release was ended.
        """
        if self.sealed is not None:
            return
        with self._store.writing() as transaction:
            kept = self._still_kept(transaction)
            theirs = transaction.entries(self.release_id)
            n_attempts = sum(one.event == RANDOMIZING for one in theirs)
            if (n_attempts, kept.drawn) != (self.record.n_attempts, self._kept.drawn):
                raise OvertakenError(f"another run is finishing release {self.release_id}")
            transaction.append(event=RANDOMIZING, release_id=self.release_id, content={})
        self._began_rows = True

    def recall(self, event: DrawnEvent) -> bytes | None:
        """What an earlier run drew under an event."""
        stored = getattr(self._kept, event)
        if stored is None:
            return None
        return self._encryption.decrypt(stored, secret_context(self.release_id, event))

    def keep(self, event: DrawnEvent, drawn: bytes) -> None:
        """Write down what was drawn.

        Raises:
            OvertakenError: If another run was faster, or the release was closed or cancelled.
        """
        stored = self._encryption.encrypt(drawn, secret_context(self.release_id, event))
        content = {f"{event}_sha256": sha256(stored).hexdigest()}
        with self._store.writing() as transaction:
            self._still_kept(transaction)
            if not transaction.set_once(self.release_id, event, stored):
                raise OvertakenError(f"another run is finishing release {self.release_id}")
            transaction.append(event=event, release_id=self.release_id, content=content)
        kept: dict[str, Any] = {event: stored}
        self._kept = self._kept._replace(**kept)

    def seal(self, manifest: bytes) -> None:
        """Write down what is about to be published.

        Raises:
            LedgerError: If it is not what an earlier run was about to publish: two different
                releases with one key would reveal outcomes. Or if the release was closed.
        """
        checksum = sha256(manifest).hexdigest()
        with self._store.writing() as transaction:
            if self._still_kept(transaction).sealed not in (None, checksum):
                raise LedgerError(
                    "this differs from the release that was about to be published; nothing was "
                    "published"
                )
            transaction.set_known(self.release_id, sealed=checksum)
        self._kept = self._kept._replace(sealed=checksum)

    def commit(self, place: str) -> None:
        """Record that the release is published at a place, and wipe its secrets."""
        self._finish("committed", {"manifest_sha256": self.sealed, "folder": absolute(place)})

    def cancel(self) -> None:
        """Give back the budget of a release that drew nothing, or removed the rows that it drew.

        Raises:
            OvertakenError: If another run has begun with the release.
        """
        if not self.may_be_cancelled:
            raise LedgerError(f"release {self.release_id} has drawn: its budget stays spent")
        before = "its rows, which were being randomized, were removed"
        reason = before if self._began_rows else "nothing was drawn"
        self._finish("cancelled", {"reason": f"the table was rejected; {reason}"})

    def give_up(self, reason: str) -> None:
        """Close the release: its budget stays spent, its secrets are wiped.

        This run removes what it made after that; `remove_later` does if it is killed before.
        """
        self._finish("closed", {"reason": reason, **worked_at(self._kept)})
        self.is_given_up = True

    def _finish(self, event: str, content: dict[str, Any]) -> None:
        with self._store.writing() as transaction:
            self._still_kept(transaction)
            theirs = [one.event for one in transaction.entries(self.release_id)]
            if event == "cancelled" and theirs != ["reserved", *[RANDOMIZING] * self._began_rows]:
                raise OvertakenError(f"another run is finishing release {self.release_id}")
            transaction.append(event=event, release_id=self.release_id, content=content)
            transaction.wipe(self.release_id)

    def _still_kept(self, transaction: Transaction) -> Secrets:
        """The secrets of the release as they are stored now.

        Raises:
            OvertakenError: If the release was ended, or another run works on it since this one
                began: what this one leaves would be where nobody looks.
        """
        kept = transaction.secrets(self.release_id)
        if kept is not None:
            if (kept.place, kept.host) != (self._kept.place, self._kept.host):
                raise OvertakenError(f"another run works on release {self.release_id}")
            return kept
        theirs = transaction.entries(self.release_id)
        if theirs and theirs[-1].event in ENDED:
            event, who = theirs[-1].event, theirs[-1].who
            raise OvertakenError(
                f"release {self.release_id} was {event} by {who} while this run was at work"
            )
        raise OvertakenError(f"another run has finished release {self.release_id}")


def unused_id(transaction: Transaction, entries: Sequence[Entry]) -> str:
    """An id that no release of the ledger has."""
    used = {entry.release_id for entry in entries}
    while True:
        release_id = system.token_hex(_ID_BYTES)
        if release_id not in used and transaction.secrets(release_id) is None:
            return release_id


def secret_context(release_id: str, part: str) -> str:
    """What a secret is encrypted for; it can be decrypted for nothing else."""
    return f"{release_id}/{part}"


def absolute(place: str) -> str:
    """A path that means the same in another working directory; a URL as it is."""
    if has_scheme(place):
        return place
    return os.path.abspath(place)  # noqa: PTH100 - resolve() would follow links
