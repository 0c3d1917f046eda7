"""The budget ledger: what was spent on whom, and what is left.

A release reserves its budget before any outcome is read, and commits when it is published. Between
the two the ledger keeps what is needed to finish it: the key, and what was drawn. A release that
cannot be finished is closed, and stays spent; one that drew nothing can be cancelled instead.
"""

from __future__ import annotations

import secrets as system
import shlex
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.errors import LedgerError, ParameterError
from clusterdp.ledger.balance import Account, plain_name, population_problem
from clusterdp.ledger.encryption import Vault
from clusterdp.ledger.history import (
    FORMAT_VERSION,
    chain_problems,
    is_cap,
    other_format,
    read_spendings,
)
from clusterdp.ledger.reservation import Reservation, place_of
from clusterdp.ledger.store import Books, Secrets
from clusterdp.privacy.accounting import Guarantee
from clusterdp.published import manifest as manifests
from clusterdp.rows.keys import ReleaseKey
from clusterdp.storage.folder import LocalFolder, is_being_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.ledger.history import Spending
    from clusterdp.ledger.store import Entry, Transaction
    from clusterdp.mechanisms.mechanism import Mechanism

# Beyond this a budget protects nobody.
_LARGEST_CAP = 100
# So many that two releases never share one by chance; the ledger sees to it all the same.
_ID_BYTES = 16
_LONGEST_REASON = 500


class Ledger:
    """A ledger that is open. Everything it says comes from its entries."""

    def __init__(self, where: str) -> None:
        """Open a ledger.

        Args:
            where: A file, or a PostgreSQL URL.

        Raises:
            LedgerError: If it is none, or was edited.
        """
        self._books = Books(where)
        first = self._entries()[0].content
        self.cap = Guarantee(epsilon=first["cap_epsilon"], delta=first["cap_delta"])
        self.tight: bool = first["composition"] == "tight" and self.cap.delta > 0
        self._locked: dict[str, Any] = first["vault"]
        self._vault: Vault | None = None

    def __str__(self) -> str:
        return str(self._books)

    @classmethod
    def create(cls, where: str, cap: Guarantee, vault: Vault, *, tight: bool = False) -> Ledger:
        """Make a ledger.

        Args:
            where: A file that does not exist, or the URL of a database without a ledger.
            cap: What may be spent on each population.
            vault: How secrets are kept.
            tight: Whether the tight composition may decide, and not sums alone. It holds only if
                parameters of later releases are not chosen from earlier results.

        Raises:
            ParameterError: If the cap is none, or has no δ for the tight composition.
        """
        if not 0 < cap.epsilon <= _LARGEST_CAP:
            raise ParameterError(
                f"cap_epsilon must lie between 0 and {_LARGEST_CAP}, got {cap.epsilon}"
            )
        if not is_cap(cap):
            raise ParameterError(f"cap_delta must lie in [0, 1), got {cap.delta}")
        if tight and not cap.delta:
            raise ParameterError("tight composition needs a cap_delta above 0, got 0")
        content = {
            "format_version": FORMAT_VERSION,
            "cap_epsilon": float(cap.epsilon),
            "cap_delta": float(cap.delta),
            "composition": "tight" if tight else "basic",
            "vault": vault.describe(),
        }
        Books.create(where, content)
        return cls(where)

    @property
    def protection(self) -> str:
        """How secrets are kept."""
        return str(self._locked["protection"])

    def unlock(self, *, passphrase: str | None = None, key_file: Path | None = None) -> None:
        """Give what the secrets are encrypted with; must come before a release."""
        self._vault = Vault.unlocked(self._locked, passphrase=passphrase, key_file=key_file)

    @property
    def vault(self) -> Vault:
        """The open vault."""
        if self._vault is None:
            self.unlock()
        assert self._vault is not None  # noqa: S101 - unlocked, or refused
        return self._vault

    def head(self) -> Entry:
        """The last entry; its hash stands for all of history."""
        return self._entries()[-1]

    def spendings(self) -> list[Spending]:
        """Every release, in the order of reservation."""
        return read_spendings(self._entries())

    def accounts(self) -> list[Account]:
        """Everyone that something was spent on."""
        by_population: dict[str, list[Spending]] = {}
        for one in self.spendings():
            by_population.setdefault(one.population, []).append(one)
        return [self._account(name, releases) for name, releases in by_population.items()]

    def account(self, population: str) -> Account:
        """What was spent on a population."""
        return self._account(population, self.spendings())

    def _account(self, population: str, releases: Sequence[Spending]) -> Account:
        theirs = tuple(one for one in releases if one.population == population)
        return Account(population=population, cap=self.cap, tight=self.tight, releases=theirs)

    def _entries(self, transaction: Transaction | None = None) -> list[Entry]:
        """All entries; nothing is said of a chain that is broken, nor built on it."""
        entries = (transaction or self._books).entries()
        problems = chain_problems(entries)
        if problems:
            raise LedgerError(
                f"the ledger {self} was edited: {problems[0]}; look with: clusterdp ledger verify "
                f"{shlex.quote(str(self))}"
            )
        if other_format(entries) is not None:
            raise LedgerError(f"the ledger {self} {_other_version(entries)}")
        return entries

    def reserve(  # noqa: PLR0913 - what a release is, and for whom
        self,
        population: str,
        *,
        outcome: str,
        space: OutcomeSpace,
        mechanism: Mechanism,
        about: dict[str, Any],
        confirmed_new: bool | None = None,
    ) -> Reservation:
        """Spend the budget of a release that is about to begin.

        Args:
            population: Whom it is about.
            outcome: The name of the outcome.
            space: The values it can take.
            mechanism: What is going to be published of it.
            about: What else there is to say of it, as JSON can hold it.
            confirmed_new: Whether the owner says that the population is new to the ledger, which
                must then be so, and else must not; None if nobody was asked.

        Raises:
            LedgerError: If the cap does not allow it, or the population is new and should not be,
                or the reverse. Nothing is spent then.
        """
        guarantee, loss = mechanism.guarantee(space), mechanism.loss(space)
        key = ReleaseKey.from_system()
        content = {
            "population": plain_name(population),
            **manifests.describe_terms(outcome, space, mechanism, guarantee),
            **about,
        }
        vault = self.vault
        with self._books.writing() as transaction:
            entries = self._entries(transaction)
            spendings = read_spendings(entries)
            if confirmed_new is not None:
                _check_population(content["population"], spendings, confirmed=confirmed_new)
            account = self._account(content["population"], spendings)
            if not account.allows(guarantee, loss):
                raise LedgerError(account.refusal(guarantee))
            release = _unused_id(transaction, entries)
            stored = vault.protect(key.expose(), place_of(release, "key"))
            entry = transaction.append(event="reserved", release=release, content=content)
            transaction.add_key(release, stored)
        (spending,) = read_spendings([entry])
        return Reservation(self._books, vault, spending, Secrets(stored))

    def check_population(self, population: str, *, confirmed_new: bool) -> None:
        """Raise a LedgerError unless a population is new to the ledger exactly if it is said so."""
        _check_population(plain_name(population), self.spendings(), confirmed=confirmed_new)

    def resume(self, release: str) -> Reservation:
        """A reservation that is not finished.

        Raises:
            LedgerError: If there is none of that id, it is finished, or its secrets were changed.
        """
        vault = self.vault
        with self._books.writing() as transaction:
            spending = self._unfinished(transaction, release, "resume")
            kept = transaction.secrets(release)
        problem = _secrets_problem(spending, kept)
        if kept is None or problem:
            raise LedgerError(
                f"release {release} cannot be finished: {problem}; {self._how_to_close(release)}"
            )
        return Reservation(self._books, vault, spending, kept)

    def close(self, release: str, reason: str | None = None) -> Spending:
        """Give a release up: its budget stays spent, and its key and what it drew are wiped.

        A run that is at work on it fails before it publishes anything. If the release turns out to
        be published at the place that it was sealed for, it is committed instead.

        Args:
            release: Its id.
            reason: What to say of it in the ledger.

        Returns:
            The release as it is now, "closed" or "committed".

        Raises:
            LedgerError: If there is none of that id, it is finished, or a run is publishing it.
        """
        content = _said(reason)
        with self._books.writing() as transaction:
            spending = self._unfinished(transaction, release, "close")
            event, ending = _ending(spending, transaction.secrets(release))
            transaction.append(event=event, release=release, content=content | ending)
            transaction.wipe(release)
            return _find(read_spendings(self._entries(transaction)), release)[0]

    def cancel(self, release: str, reason: str | None = None) -> Spending:
        """Give the budget of a release back that drew nothing; its key is wiped.

        A run that is at work on it fails before it publishes anything.

        Args:
            release: Its id.
            reason: What to say of it in the ledger.

        Raises:
            LedgerError: If there is none of that id, it is finished, or it may have drawn noise.
        """
        content = _said(reason)
        with self._books.writing() as transaction:
            spending = self._unfinished(transaction, release, "cancel")
            kept = transaction.secrets(release)
            problem = _secrets_problem(spending, kept)
            if spending.status != "reserved" or problem or (kept and kept.sealed):
                raise LedgerError(
                    f"release {release} cannot be cancelled: {problem or 'it has drawn noise'}, so "
                    f"its budget stays spent; {self._how_to_close(release)}"
                )
            transaction.append(event="cancelled", release=release, content=content)
            transaction.wipe(release)
            return _find(read_spendings(self._entries(transaction)), release)[0]

    def _unfinished(self, transaction: Transaction, release: str, verb: str) -> Spending:
        found = _find(read_spendings(self._entries(transaction)), release)
        if not found:
            raise LedgerError(f"the ledger {self} has no release {release}")
        (spending,) = found
        if not spending.is_open:
            raise LedgerError(f"release {release} is {spending.status}: there is nothing to {verb}")
        return spending

    def _how_to_close(self, release: str) -> str:
        return f"close it with: clusterdp ledger close {shlex.quote(str(self))} {release}"


def verify_books(books: Books, head: str | None = None) -> list[str]:
    """Everything that is wrong with a ledger, also one that is too broken to open.

    Args:
        books: The ledger.
        head: A hash that the chain showed earlier; without it, entries that were removed from the
            end, or a chain that was written anew as a whole, cannot be noticed.
    """
    entries = books.entries()
    problems = chain_problems(entries)
    if head is not None and head not in {entry.hash for entry in entries}:
        problems.append("no entry has the hash that was given: history was changed")
    if problems or other_format(entries) is not None:
        return problems or [f"the ledger {_other_version(entries)}"]
    unfinished = {one.release: one for one in read_spendings(entries) if one.is_open}
    for release, spending in unfinished.items():
        problem = _secrets_problem(spending, books.secrets(release))
        if problem:
            problems.append(
                f"release {release} cannot be finished: {problem}; `clusterdp ledger close` closes "
                "it"
            )
    problems += [
        f"secrets of {release} are kept, which is not an unfinished release"
        for release in sorted(set(books.unfinished()) - set(unfinished))
    ]
    return problems


def _secrets_problem(spending: Spending, kept: Secrets | None) -> str | None:
    """Whether the secrets of an unfinished release are those that its entries speak of."""
    if kept is None:
        return "its secrets are lost"
    drawn = None if kept.drawn is None else sha256(kept.drawn).hexdigest()
    if drawn != spending.drawn_sha256:
        return "what it drew was changed or is lost"
    return None


def _ending(spending: Spending, kept: Secrets | None) -> tuple[str, dict[str, str]]:
    """What closing a release comes to: the event, and what its entry says of what was sealed.

    A sealed release may be published, or about to be. Who publishes to a local folder holds a lock
    beside it from before the sealing until after the rename, so: first the lock, then the folder.
    """
    if kept is None or not isinstance(kept.sealed, str):
        return "closed", {}
    sealed, place = kept.sealed, kept.place
    # A database may hold bytes where text belongs.
    if not isinstance(place, str) or "\0" in place:
        return "closed", {"sealed_sha256": sealed}
    if "://" not in place:
        if is_being_written(Path(place)):
            raise LedgerError(
                f"a run is about to publish release {spending.release} at {place}; end that run, "
                "and then close the release"
            )
        manifest = LocalFolder(Path(place)).manifest()
        published = manifest is not None and sha256(manifest).hexdigest() == sealed
        if published and spending.status == "drawn":
            return "committed", {"manifest_sha256": sealed, "folder": place}
    return "closed", {"sealed_sha256": sealed, "sealed_for": place}


def _said(reason: str | None) -> dict[str, str]:
    """A reason as an entry holds it."""
    if reason is None:
        return {}
    if not reason.isprintable() or len(reason) > _LONGEST_REASON:
        raise ParameterError(
            f"reason must be one line of at most {_LONGEST_REASON} characters; shorten it"
        )
    return {"reason": reason}


def _find(spendings: Sequence[Spending], release: str) -> list[Spending]:
    return [one for one in spendings if one.release == release]


def _check_population(name: str, spendings: Sequence[Spending], *, confirmed: bool) -> None:
    known = list(dict.fromkeys(one.population for one in spendings))
    problem = population_problem(name, known, confirmed=confirmed)
    if problem:
        raise LedgerError(problem)


def _unused_id(transaction: Transaction, entries: Sequence[Entry]) -> str:
    """An id that no release of the ledger has."""
    used = {entry.release for entry in entries}
    while True:
        release = system.token_hex(_ID_BYTES)
        if release not in used and transaction.secrets(release) is None:
            return release


def _other_version(entries: Sequence[Entry]) -> str:
    return (
        f"has format {other_format(entries)}, and this version of clusterdp reads format "
        f"{FORMAT_VERSION}; use the version that made it"
    )
