"""A release whose budget is spent, and what is kept of it until it is published."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from clusterdp.errors import LedgerError
from clusterdp.published import manifest as manifests
from clusterdp.releasing.journal import Drawn
from clusterdp.rows.keys import ReleaseKey

if TYPE_CHECKING:
    from clusterdp.ledger.encryption import Vault
    from clusterdp.ledger.history import Spending
    from clusterdp.ledger.store import Books, Secrets, Transaction
    from clusterdp.mechanisms.mechanism import Mechanism


class OvertakenError(LedgerError):
    """Another run finished the same release or is about to, or somebody closed or cancelled it."""


@dataclass(slots=True)
class Reservation:
    """The journal of a release whose budget is spent: what makes it resumable.

    Attributes:
        spending: The release, as the ledger has it.
        place: Where it is going to be published, for whoever closes it; None if nobody says.
    """

    _books: Books
    _vault: Vault
    spending: Spending
    _kept: Secrets = field(repr=False)
    place: str | None = None

    @property
    def release(self) -> str:
        """The id of the release."""
        return self.spending.release

    @property
    def mechanism(self) -> Mechanism:
        """What the release publishes, by the parameters that were reserved."""
        return manifests.read_mechanism(self.spending.content)

    @property
    def key(self) -> ReleaseKey:
        """The key of its rows."""
        return ReleaseKey(self._vault.reveal(self._kept.key, place_of(self.release, "key")))

    @property
    def sealed(self) -> str | None:
        """The checksum of the manifest that was about to be published, if it got that far."""
        return self._kept.sealed

    @property
    def has_drawn(self) -> bool:
        """Whether something exists that depends on outcomes."""
        return self._kept.drawn is not None

    def recall(self) -> Drawn | None:
        """What an earlier run drew."""
        stored = self._kept.drawn
        if stored is None:
            return None
        return Drawn.from_bytes(self._vault.reveal(stored, place_of(self.release, "drawn")))

    def keep(self, drawn: Drawn) -> None:
        """Write down what was drawn.

        Raises:
            OvertakenError: If another run was faster, or the release was closed or cancelled.
        """
        stored = self._vault.protect(bytes(drawn), place_of(self.release, "drawn"))
        content = {"drawn_sha256": sha256(stored).hexdigest()}
        with self._books.writing() as transaction:
            self._still_kept(transaction)
            if not transaction.set_drawn(self.release, stored):
                raise OvertakenError(f"another run is finishing release {self.release}")
            transaction.append(event="drawn", release=self.release, content=content)
        self._kept = self._kept._replace(drawn=stored)

    def seal(self, manifest: bytes) -> None:
        """Write down what is about to be published.

        Raises:
            LedgerError: If it is not what an earlier run was about to publish: two different
                releases with one key would tell outcomes. Or if the release was closed.
        """
        checksum = sha256(manifest).hexdigest()
        with self._books.writing() as transaction:
            if self._still_kept(transaction).sealed not in (None, checksum):
                raise LedgerError(
                    "this would be another release than the one that was about to be published; "
                    "nothing was"
                )
            transaction.set_sealed(self.release, checksum, self.place)
        self._kept = self._kept._replace(sealed=checksum)

    def commit(self, place: str) -> None:
        """The release is published at a place: say so, and wipe its secrets."""
        self._finish("committed", {"manifest_sha256": self.sealed, "folder": absolute(place)})

    def cancel(self) -> None:
        """Give the budget back: nothing was drawn, so nothing can have got out."""
        if self.has_drawn:
            raise LedgerError(f"release {self.release} has drawn noise: its budget stays spent")
        self._finish("cancelled", {"reason": "refused before anything was drawn"})

    def _finish(self, event: str, content: dict[str, Any]) -> None:
        with self._books.writing() as transaction:
            kept = self._still_kept(transaction)
            if event == "cancelled" and kept.drawn is not None:
                raise OvertakenError(f"another run is finishing release {self.release}")
            transaction.append(event=event, release=self.release, content=content)
            transaction.wipe(self.release)

    def _still_kept(self, transaction: Transaction) -> Secrets:
        """What is kept of the release by now."""
        kept = transaction.secrets(self.release)
        if kept is not None:
            return kept
        theirs = [one for one in transaction.entries() if one.release == self.release]
        if theirs and theirs[-1].event in ("closed", "cancelled"):
            event, who = theirs[-1].event, theirs[-1].who
            raise OvertakenError(
                f"release {self.release} was {event} by {who} while this run was at work"
            )
        raise OvertakenError(f"another run has finished release {self.release}")


def place_of(release: str, part: str) -> str:
    """Where a secret belongs, for the vault."""
    return f"{release}/{part}"


def absolute(place: str) -> str:
    """A place that means the same in another working directory."""
    if "://" in place:
        return place
    return os.path.abspath(place)  # noqa: PTH100 - resolve() would follow links
