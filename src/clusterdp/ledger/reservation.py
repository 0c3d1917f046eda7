"""A release whose budget is spent, until it is published or given up."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from clusterdp.errors import LedgerError
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
        record: The release as the ledger records it.
        place: Where it is going to be published; None if that is not known.
    """

    _store: Store
    _encryption: Encryption
    record: ReleaseRecord
    _kept: Secrets = field(repr=False)
    place: str | None = None

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
        """The key of its rows."""
        return ReleaseKey(
            self._encryption.decrypt(self._kept.key, secret_context(self.release_id, "key"))
        )

    @property
    def sealed(self) -> str | None:
        """The checksum of the manifest that was about to be published, if it got that far."""
        return self._kept.sealed

    @property
    def has_drawn(self) -> bool:
        """Whether something exists that depends on outcomes."""
        return self._kept.has_drawn

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
            transaction.set_sealed(self.release_id, checksum, self.place)
        self._kept = self._kept._replace(sealed=checksum)

    def commit(self, place: str) -> None:
        """Record that the release is published at a place, and wipe its secrets."""
        self._finish("committed", {"manifest_sha256": self.sealed, "folder": absolute(place)})

    def cancel(self) -> None:
        """Give back the budget of a release that drew nothing."""
        if self.has_drawn:
            raise LedgerError(f"release {self.release_id} has drawn noise: its budget stays spent")
        self._finish("cancelled", {"reason": "refused before anything was drawn"})

    def _finish(self, event: str, content: dict[str, Any]) -> None:
        with self._store.writing() as transaction:
            kept = self._still_kept(transaction)
            if event == "cancelled" and kept.has_drawn:
                raise OvertakenError(f"another run is finishing release {self.release_id}")
            transaction.append(event=event, release_id=self.release_id, content=content)
            transaction.wipe(self.release_id)

    def _still_kept(self, transaction: Transaction) -> Secrets:
        """The secrets of the release as they are stored now."""
        kept = transaction.secrets(self.release_id)
        if kept is not None:
            return kept
        theirs = [one for one in transaction.entries() if one.release_id == self.release_id]
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
