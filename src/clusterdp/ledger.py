"""The budget ledger: what was spent on whom, and what is left.

A release reserves its budget before any outcome is read, and commits when it is published. Between
the two the ledger keeps what is needed to finish it: the key, and what was drawn.
"""

from __future__ import annotations

import math
import os
import secrets as system
import shlex
import unicodedata
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from clusterdp import manifest as manifests
from clusterdp.accounting import Guarantee, ReleaseLoss, any_loss, shown
from clusterdp.books import Books, Secrets
from clusterdp.chain import FORMAT_VERSION, chain_problems, is_cap, is_newer, read_spendings
from clusterdp.composition import Composed, basic_composition
from clusterdp.errors import LedgerError, ParameterError
from clusterdp.journal import Drawn
from clusterdp.randomness import ReleaseKey
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
# How finely what is left is searched for, as a share of the cap.
_FINENESS = 1000


@dataclass(frozen=True, kw_only=True)
class Account:
    """What was spent on one population, and the cap that holds for it.

    Attributes:
        population: Its name.
        cap: What may be spent in all.
        tight: Whether the tight composition decides as well as the basic one.
        releases: Every release about it, in order.
    """

    population: str
    cap: Guarantee
    tight: bool
    releases: tuple[Spending, ...]

    @cached_property
    def spent(self) -> tuple[Spending, ...]:
        """The releases that count."""
        return tuple(one for one in self.releases if one.status != "cancelled")

    @cached_property
    def basic(self) -> Guarantee:
        """Σε and Σδ."""
        return basic_composition([one.guarantee for one in self.spent])

    @cached_property
    def _together(self) -> Composed:
        return Composed.of([one.loss for one in self.spent])

    def tight_epsilon(self) -> float | None:
        """ε of all releases together at the cap's δ; None where that composition has no say."""
        if not self.tight:
            return None
        in_sum = self.basic.epsilon if self.basic.delta <= self.cap.delta else math.inf
        return min(self._together.epsilon(self.cap.delta), in_sum)

    def allows(self, guarantee: Guarantee, loss: ReleaseLoss) -> bool:
        """Whether one more release stays within the cap."""
        in_sum = basic_composition([self.basic, guarantee])
        if in_sum.epsilon <= self.cap.epsilon and in_sum.delta <= self.cap.delta:
            return True
        if not self.tight:
            return False
        return self._together.and_more(loss).delta(self.cap.epsilon) <= self.cap.delta

    @cached_property
    def room(self) -> float:
        """The largest ε of one more release without δ that stays within the cap, rounded down."""
        left = max(0.0, self.cap.epsilon - self.basic.epsilon)
        if not self._allows_pure(left):
            left = math.nextafter(left, 0.0) if self._allows_pure(0.0) else 0.0
        return max(left, self._tight_room()) if self.tight else left

    def _allows_pure(self, epsilon: float) -> bool:
        return self.allows(Guarantee(epsilon=epsilon), ReleaseLoss(atoms=any_loss(epsilon)))

    def _tight_room(self) -> float:
        low, high = 0, _FINENESS
        while low < high:
            middle = (low + high + 1) // 2
            if self._allows_pure(self.cap.epsilon * middle / _FINENESS):
                low = middle
            else:
                high = middle - 1
        return self.cap.epsilon * low / _FINENESS


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
        stored = self.vault.protect(key.expose(), _place(release, "key"))
        with self._books.writing() as transaction:
            spendings = read_spendings(self._entries(transaction))
            account = self._account(content["population"], spendings)
            if not account.allows(guarantee, loss):
                raise LedgerError(_refusal(account, guarantee))
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


class OvertakenError(LedgerError):
    """Another run finished the same release, or is about to."""


@dataclass(slots=True)
class Reservation:
    """The journal of a release whose budget is spent: what makes it resumable."""

    _books: Books
    _vault: Vault
    spending: Spending
    _kept: Secrets = field(repr=False)

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
        return ReleaseKey(self._vault.reveal(self._kept.key, _place(self.release, "key")))

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
        return Drawn.from_bytes(self._vault.reveal(stored, _place(self.release, "drawn")))

    def keep(self, drawn: Drawn) -> None:
        """Write down what was drawn.

        Raises:
            OvertakenError: If another run was faster.
        """
        stored = self._vault.protect(bytes(drawn), _place(self.release, "drawn"))
        content = {"drawn_sha256": sha256(stored).hexdigest()}
        with self._books.writing() as transaction:
            if not transaction.set_drawn(self.release, stored):
                raise OvertakenError(f"another run is finishing release {self.release}")
            transaction.append(event="drawn", release=self.release, content=content)
        self._kept = self._kept._replace(drawn=stored)

    def seal(self, manifest: bytes) -> None:
        """Write down what is about to be published.

        Raises:
            LedgerError: If it is not what an earlier run was about to publish: two different
                releases with one key would tell outcomes.
        """
        checksum = sha256(manifest).hexdigest()
        with self._books.writing() as transaction:
            kept = transaction.secrets(self.release)
            if kept is None:
                raise OvertakenError(f"another run has finished release {self.release}")
            if kept.sealed not in (None, checksum):
                raise LedgerError(
                    "this would be another release than the one that was about to be published; "
                    "nothing was"
                )
            transaction.set_sealed(self.release, checksum)
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
            kept = transaction.secrets(self.release)
            if kept is None:
                raise OvertakenError(f"another run has finished release {self.release}")
            if event == "cancelled" and kept.drawn is not None:
                raise OvertakenError(f"another run is finishing release {self.release}")
            transaction.append(event=event, release=self.release, content=content)
            transaction.wipe(self.release)


def _place(release: str, part: str) -> str:
    return f"{release}/{part}"


def plain_name(population: str) -> str:
    """The name of a population, in the one way it is written.

    Raises:
        ParameterError: If it is empty, or holds what cannot be seen.
    """
    name = unicodedata.normalize("NFC", population).strip()
    if not name or not name.isprintable():
        raise ParameterError("a population needs a name of letters, digits and the like")
    return name


def absolute(place: str) -> str:
    """A place that means the same in another working directory."""
    if "://" in place:
        return place
    return os.path.abspath(place)  # noqa: PTH100 - resolve() would follow links


def _refusal(account: Account, guarantee: Guarantee) -> str:
    return (
        f"the budget of population {account.population!r} does not allow it: of "
        f"{budget_in_short(account.cap)}, releases so far have spent "
        f"{budget_in_short(account.basic)} in sum; one more may cost epsilon "
        f"{shown_below(account.room)}, and this one costs {budget_in_short(guarantee)}. No "
        "outcome was read, and nothing was spent"
    )


def budget_in_short(guarantee: Guarantee) -> str:
    """For people: "epsilon 2, delta 1e-06"."""
    delta = f", delta {shown(guarantee.delta)}" if guarantee.delta else ""
    return f"epsilon {shown(guarantee.epsilon)}{delta}"


def shown_below(number: float) -> str:
    """A budget for people, rounded down to four decimals."""
    return f"{math.floor(number * 10_000) / 10_000:.4f}".rstrip("0").rstrip(".")
