"""A release whose budget is spent, until it is published or given up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from clusterdp.errors import LedgerError
from clusterdp.ledger.closing import machine_name, remove_left
from clusterdp.ledger.history import RANDOMIZING
from clusterdp.published.provenance import Spent
from clusterdp.rows.keys import ReleaseKey

if TYPE_CHECKING:
    from datetime import date

    from clusterdp.ledger.encryption import Encryption
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.ledger.store import DrawnEvent, Secrets, Store, Transaction
    from clusterdp.mechanisms.mechanism import Mechanism


class OvertakenError(LedgerError):
    """Another run finished the same release or is about to, or somebody closed or cancelled it."""


@dataclass(slots=True)
class Reservation:
    """The journal of a release whose budget is spent; it makes the release resumable.

    Attributes:
        record: The release as the ledger recorded it when this run began.
    """

    _store: Store
    _encryption: Encryption
    record: ReleaseRecord
    _kept: Secrets = field(repr=False)
    _began_rows: bool = False
    _given_up: bool = False

    @property
    def release_id(self) -> str:
        """The id of the release."""
        return self.record.release_id

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanism of each block, with the parameters that were reserved."""
        return self.record.terms.mechanisms

    @property
    def begun_on(self) -> date:
        """The day on which the budget was reserved, in UTC."""
        return datetime.fromisoformat(self.record.at).astimezone(UTC).date()

    @property
    def spent_before(self) -> Spent:
        """What had been spent on the population when the budget was reserved."""
        return Spent(**self.record.content["spent_before"])

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
    def sealed(self) -> str | None:
        """The checksum of the manifest that was about to be published, if it got that far."""
        return self._kept.sealed

    @property
    def may_be_cancelled(self) -> bool:
        """Whether nothing depends on outcomes but rows of this run, which it removes when it fails.

        What an earlier run randomized may have been seen before it was removed.
        """
        drawn = (self._kept.labelled, self._kept.looked, self._kept.drawn)
        return not self.record.has_drawn and all(one is None for one in drawn)

    @property
    def is_given_up(self) -> bool:
        """Whether this run has found that the release can never be finished."""
        return self._given_up

    def begin_at(self, place: str) -> None:
        """Write down where this run works, after it removed what the last one left elsewhere.

        Raises:
            OutputError: If another run of this release is at work.
            LedgerError: If rows with another key may be left where this run cannot remove them.
        """
        last, here = self._kept, machine_name()
        if last.place is not None and (last.place, last.host) != (place, here):
            left = remove_left(last.place, last.host, self.record.content["claim"])
            if left is not None and self.record.n_attempts and self.sealed is None:
                raise LedgerError(
                    f"release {self.release_id} was interrupted while it randomized rows, and "
                    f"{left}. This run would randomize them once more: resume it there, or close it"
                )
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

    def recall_labels(self) -> bytes | None:
        """The counts of given labels that an earlier run kept."""
        return self._recall("labelled")

    def keep_labels(self, counted: bytes) -> None:
        """Write down that units were given labels; raises as `keep` does."""
        self._keep("labelled", counted)

    def recall_look(self) -> bytes | None:
        """The look that an earlier run drew."""
        return self._recall("looked")

    def keep_look(self, drawn: bytes) -> None:
        """Write down a look; raises as `keep` does."""
        self._keep("looked", drawn)

    def recall(self) -> bytes | None:
        """What an earlier run drew."""
        return self._recall("drawn")

    def keep(self, drawn: bytes) -> None:
        """Write down what was drawn.

        Raises:
            OvertakenError: If another run was faster, or the release was closed or cancelled.
        """
        self._keep("drawn", drawn)

    def _recall(self, event: DrawnEvent) -> bytes | None:
        stored = getattr(self._kept, event)
        if stored is None:
            return None
        return self._encryption.decrypt(stored, secret_context(self.release_id, event))

    def _keep(self, event: DrawnEvent, drawn: bytes) -> None:
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
                    "this would be another release than the one that was about to be published, so "
                    "nothing was published"
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
        self._finish("cancelled", {"reason": f"the table was refused; {reason}"})

    def give_up(self, reason: str) -> None:
        """Close the release: its budget stays spent, its secrets are wiped."""
        self._finish("closed", {"reason": reason})
        self._given_up = True

    def _finish(self, event: str, content: dict[str, Any]) -> None:
        with self._store.writing() as transaction:
            self._still_kept(transaction)
            theirs = [one.event for one in transaction.entries(self.release_id)]
            if event == "cancelled" and theirs != ["reserved", *[RANDOMIZING] * self._began_rows]:
                raise OvertakenError(f"another run is finishing release {self.release_id}")
            transaction.append(event=event, release_id=self.release_id, content=content)
            transaction.wipe(self.release_id)

    def _still_kept(self, transaction: Transaction) -> Secrets:
        """The secrets of the release as they are stored now."""
        kept = transaction.secrets(self.release_id)
        if kept is not None:
            return kept
        theirs = transaction.entries(self.release_id)
        if theirs and theirs[-1].event in ("closed", "cancelled"):
            event, who = theirs[-1].event, theirs[-1].who
            raise OvertakenError(
                f"release {self.release_id} was {event} by {who} while this run was at work"
            )
        raise OvertakenError(f"another run has finished release {self.release_id}")


def secret_context(release_id: str, part: str) -> str:
    """What a secret is encrypted for; it can be decrypted for nothing else."""
    return f"{release_id}/{part}"


def absolute(place: str) -> str:
    """A path that means the same in another working directory; a URL as it is."""
    if "://" in place:
        return place
    return os.path.abspath(place)  # noqa: PTH100 - resolve() would follow links
