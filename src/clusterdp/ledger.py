"""The budget ledger: what was spent on whom, and what is left.

A release reserves its budget before any outcome is read, and commits when it is published. Between
the two the ledger keeps what is needed to finish it: the key, and what was drawn.
"""

from __future__ import annotations

import secrets as system
import shlex
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from clusterdp import manifest as manifests
from clusterdp.account import Account, plain_name
from clusterdp.accounting import Guarantee
from clusterdp.books import Books, Secrets
from clusterdp.chain import FORMAT_VERSION, chain_problems, is_cap, is_newer, read_spendings
from clusterdp.errors import LedgerError, ParameterError
from clusterdp.randomness import ReleaseKey
from clusterdp.reservation import Reservation, place_of
from clusterdp.vault import Vault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clusterdp.books import Entry, Transaction
    from clusterdp.chain import Spending
    from clusterdp.mechanisms import Mechanism
    from clusterdp.outcomes import OutcomeSpace

# Beyond this a budget protects nobody.
_LARGEST_CAP = 100


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
    def create(cls, where: str, cap: Guarantee, vault: Vault, *, tight: bool = True) -> Ledger:
        """Make a ledger.

        Args:
            where: A file that does not exist, or the URL of a database without a ledger.
            cap: What may be spent on each population.
            vault: How secrets are kept.
            tight: Whether the tight composition may decide, where the cap has a δ.
        """
        if not 0 < cap.epsilon <= _LARGEST_CAP:
            raise ParameterError(
                f"cap_epsilon must lie between 0 and {_LARGEST_CAP}, got {cap.epsilon}"
            )
        if not is_cap(cap):
            raise ParameterError(f"cap_delta must lie in [0, 1), got {cap.delta}")
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
        if is_newer(entries):
            raise LedgerError(f"the ledger {self} is of a newer format; upgrade clusterdp")
        return entries

    def reserve(
        self,
        population: str,
        *,
        outcome: str,
        space: OutcomeSpace,
        mechanism: Mechanism,
        about: dict[str, Any],
    ) -> Reservation:
        """Spend the budget of a release that is about to begin.

        Args:
            population: Whom it is about.
            outcome: The name of the outcome.
            space: The values it can take.
            mechanism: What is going to be published of it.
            about: What else there is to say of it, as JSON can hold it.

        Raises:
            LedgerError: If the cap does not allow it. Nothing is spent then.
        """
        guarantee, loss = mechanism.guarantee(space), mechanism.loss(space)
        key, release = ReleaseKey.from_system(), system.token_hex(4)
        content = {
            "population": plain_name(population),
            **manifests.describe_terms(outcome, space, mechanism, guarantee),
            **about,
        }
        stored = self.vault.protect(key.expose(), place_of(release, "key"))
        with self._books.writing() as transaction:
            spendings = read_spendings(self._entries(transaction))
            account = self._account(content["population"], spendings)
            if not account.allows(guarantee, loss):
                raise LedgerError(account.refusal(guarantee))
            entry = transaction.append(event="reserved", release=release, content=content)
            transaction.add_key(release, stored)
        (spending,) = read_spendings([entry])
        return Reservation(self._books, self.vault, spending, Secrets(stored, None, None))

    def resume(self, release: str) -> Reservation:
        """A reservation that is not finished.

        Raises:
            LedgerError: If there is none of that id, it is finished, or its secrets were changed.
        """
        found = [one for one in self.spendings() if one.release == release]
        if not found:
            raise LedgerError(f"the ledger {self} has no release {release}")
        (spending,) = found
        if not spending.is_open:
            raise LedgerError(f"release {release} is {spending.status}: there is nothing to resume")
        kept = self._books.secrets(release)
        problem = _secrets_problem(spending, kept)
        if kept is None or problem:
            raise LedgerError(f"release {release} cannot be finished: {problem}")
        return Reservation(self._books, self.vault, spending, kept)


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
    if problems or is_newer(entries):
        return problems or ["the ledger is of a newer format; upgrade clusterdp"]
    unfinished = {one.release: one for one in read_spendings(entries) if one.is_open}
    for release, spending in unfinished.items():
        problem = _secrets_problem(spending, books.secrets(release))
        if problem:
            problems.append(f"release {release} cannot be finished: {problem}")
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
