"""The budget ledger: what was spent on whom, and what is left.

A release reserves its budget before any outcome is read, and commits when it is published. Between
the two the ledger keeps what is needed to finish it: the key, and what was drawn.
"""

from __future__ import annotations

import math
import secrets as system
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp import manifest as manifests
from clusterdp.accounting import Guarantee, ReleaseLoss, any_loss, shown
from clusterdp.books import Books
from clusterdp.composition import basic_composition, tight_delta, tight_epsilon
from clusterdp.errors import LedgerError, ParameterError
from clusterdp.journal import Drawn
from clusterdp.randomness import ReleaseKey
from clusterdp.recipes import LARGEST_EPSILON
from clusterdp.vault import Vault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from clusterdp.books import Entry, Secrets
    from clusterdp.mechanisms import Mechanism
    from clusterdp.outcomes import OutcomeSpace

FORMAT_VERSION = 1
# How finely what is left is searched for, as a share of the cap.
_FINENESS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """One release, as the ledger has it.

    Attributes:
        release: Its id.
        population: Whom it is about.
        status: "reserved", "committed" or "cancelled".
        at: When it was reserved.
        who: Who did.
        content: What was said of it when it was reserved.
        manifest_sha256: The checksum of what was published; None before.
    """

    release: str
    population: str
    status: str
    at: str
    who: str
    content: dict[str, Any]
    manifest_sha256: str | None = None

    @property
    def guarantee(self) -> Guarantee:
        """What it costs."""
        stated = self.content["guarantee"]
        return Guarantee(epsilon=stated["epsilon"], delta=stated["delta"])

    @property
    def loss(self) -> ReleaseLoss:
        """What it can tell, from its parameters."""
        space = manifests.read_space(self.content)
        return manifests.read_mechanism(self.content).loss(space)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What was spent on one population, and the cap that holds for it.

    Attributes:
        population: Its name.
        cap: What may be spent in all.
        tight: Whether the tight composition decides as well as the basic one.
        spent: The releases that count, in their order.
    """

    population: str
    cap: Guarantee
    tight: bool
    spent: tuple[Spending, ...]

    @property
    def basic(self) -> Guarantee:
        """Σε and Σδ."""
        return basic_composition([one.guarantee for one in self.spent])

    def tight_epsilon(self) -> float | None:
        """ε of all releases together at the cap's δ; None where that composition has no say."""
        if not self.tight:
            return None
        return min(tight_epsilon([one.loss for one in self.spent], self.cap.delta), self._basic())

    def _basic(self) -> float:
        basic = self.basic
        return basic.epsilon if basic.delta <= self.cap.delta else math.inf

    def allows(self, guarantee: Guarantee, loss: ReleaseLoss) -> bool:
        """Whether one more release stays within the cap."""
        together = basic_composition([*(one.guarantee for one in self.spent), guarantee])
        if together.epsilon <= self.cap.epsilon and together.delta <= self.cap.delta:
            return True
        if not self.tight:
            return False
        losses = [*(one.loss for one in self.spent), loss]
        return tight_delta(losses, self.cap.epsilon) <= self.cap.delta

    def room(self) -> float:
        """The largest ε of one more release without δ that stays within the cap, rounded down."""
        left = max(0.0, self.cap.epsilon - self.basic.epsilon)
        if not self._allows_pure(left):
            left = 0.0 if not self._allows_pure(0.0) else math.nextafter(left, 0.0)
        return max(left, self._tight_room()) if self.tight else left

    def _allows_pure(self, epsilon: float) -> bool:
        one = ReleaseLoss(atoms=any_loss(epsilon))
        return self.allows(Guarantee(epsilon=epsilon), one)

    def _tight_room(self) -> float:
        low, high = 0, _FINENESS
        while low < high:
            middle = (low + high + 1) // 2
            if self._allows_pure(self.cap.epsilon * middle / _FINENESS):
                low = middle
            else:
                high = middle - 1
        return self.cap.epsilon * low / _FINENESS


class Problem(NamedTuple):
    """What is wrong with a ledger, and with which entry."""

    number: int | None
    text: str


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
        first = self._first(self._books.entries())
        self.cap = Guarantee(epsilon=first["cap_epsilon"], delta=first["cap_delta"])
        self.tight: bool = first["composition"] == "tight" and self.cap.delta > 0
        self._locked: dict[str, Any] = first["vault"]
        self._vault: Vault | None = None

    def _first(self, entries: list[Entry]) -> dict[str, Any]:
        problems = chain_problems(entries)
        if problems:
            raise LedgerError(
                f"the ledger {self._books} was edited: {problems[0].text}; look with: clusterdp "
                f"ledger verify {self._books}"
            )
        content = entries[0].content
        if _is_newer(entries):
            raise LedgerError(f"the ledger {self._books} is of a newer format; upgrade clusterdp")
        return content

    @classmethod
    def create(cls, where: str, cap: Guarantee, vault: Vault, *, tight: bool = True) -> Ledger:
        """Make a ledger.

        Args:
            where: A file that does not exist, or the URL of a database without a ledger.
            cap: What may be spent on each population.
            vault: How secrets are kept.
            tight: Whether the tight composition may decide, where the cap has a δ.
        """
        if not 0 < cap.epsilon <= LARGEST_EPSILON:
            raise ParameterError(
                f"cap_epsilon must be positive and at most {LARGEST_EPSILON:g}, got {cap.epsilon}"
            )
        if not 0 <= cap.delta < 1:
            raise ParameterError(f"cap_delta must lie in [0, 1), got {cap.delta}")
        books = Books(where, new=True)
        content = {
            "format_version": FORMAT_VERSION,
            "cap_epsilon": cap.epsilon,
            "cap_delta": cap.delta,
            "composition": "tight" if tight else "basic",
            "vault": vault.describe(),
        }
        with books.writing() as transaction:
            transaction.append(event="opened", release="", content=content)
        books.close()
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
        return self._books.entries()[-1]

    def spendings(self) -> list[Spending]:
        """Every release, in the order of reservation."""
        return read_spendings(self._books.entries())

    def populations(self) -> list[str]:
        """Everyone that something was spent on."""
        return list(dict.fromkeys(one.population for one in self.spendings()))

    def account(self, population: str) -> Account:
        """What was spent on a population."""
        return self._account(population, self._books.entries())

    def _account(self, population: str, entries: list[Entry]) -> Account:
        spent = (one for one in read_spendings(entries) if one.status != "cancelled")
        return Account(
            population=population,
            cap=self.cap,
            tight=self.tight,
            spent=tuple(one for one in spent if one.population == population),
        )

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
            "population": population,
            **manifests.describe_terms(outcome, space, mechanism, guarantee),
            **about,
        }
        stored = self.vault.protect(key.expose(), _place(release, "key"))
        with self._books.writing() as transaction:
            entries = transaction.entries()
            self._first(entries)  # nothing is built on a chain that is broken
            account = self._account(population, entries)
            if not account.allows(guarantee, loss):
                raise LedgerError(_refusal(account, guarantee))
            transaction.append(event="reserved", release=release, content=content)
            transaction.add_key(release, stored)
        return self.resume(release)

    def resume(self, release: str) -> Reservation:
        """A reservation that is not finished.

        Raises:
            LedgerError: If there is none of that id, or it is finished.
        """
        found = [one for one in self.spendings() if one.release == release]
        if not found:
            raise LedgerError(f"the ledger {self._books} has no release {release}")
        kept = self._books.secrets(release)
        if found[0].status != "reserved" or kept is None:
            raise LedgerError(f"release {release} is {found[0].status}: there is nothing to resume")
        return Reservation(self._books, self.vault, found[0], kept)

    def verify(self, head: str | None = None) -> list[Problem]:
        """Everything that is wrong with the ledger.

        Args:
            head: A hash that the chain showed earlier; without it, entries that were removed from
                the end, or a chain that was written anew as a whole, cannot be noticed.
        """
        return verify_books(self._books, head)


def verify_books(books: Books, head: str | None = None) -> list[Problem]:
    """As `Ledger.verify`, of a ledger that may be too broken to open."""
    entries = books.entries()
    problems = chain_problems(entries)
    if head is not None and head not in {entry.hash for entry in entries}:
        problems.append(Problem(None, "no entry has the hash that was given: history was changed"))
    if problems:
        return problems
    open_ones = {one.release for one in read_spendings(entries) if one.status == "reserved"}
    kept = set(books.unfinished())
    problems += [
        Problem(None, f"release {release} is finished, and its secrets are still kept")
        for release in sorted(kept - open_ones)
    ]
    problems += [
        Problem(None, f"release {release} is unfinished, and its secrets are lost")
        for release in sorted(open_ones - kept)
    ]
    return problems


def chain_problems(entries: Sequence[Entry]) -> list[Problem]:
    """What is wrong with a chain of entries."""
    if not entries or entries[0].event != "opened":
        return [Problem(None, "the first entry is missing")]
    problems = []
    previous, status = "0" * 64, dict[str, str]()
    for place, entry in enumerate(entries):
        if entry.number != place:
            problems.append(Problem(entry.number, f"entry {place} is missing"))
            break
        if entry.hash != entry.expected_hash():
            problems.append(Problem(place, f"entry {place} was changed"))
        elif entry.previous != previous:
            problems.append(Problem(place, f"entry {place} does not follow the one before"))
        elif place and (status.get(entry.release), entry.event) not in _STEPS:
            problems.append(Problem(place, f"entry {place} is out of turn"))
        elif not (_is_newer(entries) or _says_what_it_should(entry)):
            problems.append(Problem(place, f"entry {place} does not say what it should"))
        previous, status[entry.release] = entry.hash, entry.event
    return problems


def _is_newer(entries: Sequence[Entry]) -> bool:
    version = entries[0].content.get("format_version")
    return type(version) is int and version > FORMAT_VERSION


def _says_what_it_should(entry: Entry) -> bool:
    """Whether an entry's content can be counted with: a budget, or a release at its true cost."""
    content = entry.content
    try:
        if entry.event == "opened":
            cap = Guarantee(epsilon=content["cap_epsilon"], delta=content["cap_delta"])
            known = content["format_version"] == FORMAT_VERSION
            named = content["composition"] in ("tight", "basic")
            return _is_cap(cap) and known and named and bool(content["vault"]["protection"])
        if entry.event == "reserved":
            manifests.read_guarantee(content)
            names = (
                content["population"],
                content["outcome"]["name"],
                content["mechanism"]["name"],
            )
            return all(isinstance(name, str) for name in names)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def _is_cap(cap: Guarantee) -> bool:
    return 0 < cap.epsilon <= LARGEST_EPSILON and 0 <= cap.delta < 1


# What may follow what, in the life of a release.
_STEPS = {(None, "reserved"), ("reserved", "committed"), ("reserved", "cancelled")}


def read_spendings(entries: Sequence[Entry]) -> list[Spending]:
    """The releases that entries tell of, in the order of reservation."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.event == "reserved":
            found[entry.release] = {
                "release": entry.release,
                "population": entry.content["population"],
                "status": "reserved",
                "at": entry.at,
                "who": entry.who,
                "content": entry.content,
            }
        elif entry.release in found:
            found[entry.release]["status"] = entry.event
            found[entry.release]["manifest_sha256"] = entry.content.get("manifest_sha256")
    return [Spending(**one) for one in found.values()]


@dataclass(slots=True)
class Reservation:
    """The journal of a release whose budget is spent: what makes it resumable."""

    _books: Books
    _vault: Vault
    spending: Spending
    _kept: Secrets
    _sealed: str | None = field(init=False)

    def __post_init__(self) -> None:
        self._sealed = self._kept.sealed

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
        return self._sealed

    def recall(self) -> Drawn | None:
        """What an earlier run drew."""
        stored = self._kept.drawn
        if stored is None:
            return None
        return Drawn.from_bytes(self._vault.reveal(stored, _place(self.release, "drawn")))

    def keep(self, drawn: Drawn) -> None:
        """Write down what was drawn.

        Raises:
            LedgerError: If another run was faster.
        """
        stored = self._vault.protect(bytes(drawn), _place(self.release, "drawn"))
        with self._books.writing() as transaction:
            if not transaction.set_drawn(self.release, stored):
                raise LedgerError(f"another run is finishing release {self.release}")
        self._kept = self._kept._replace(drawn=stored)

    def seal(self, manifest: bytes) -> None:
        """Write down what is about to be published."""
        checksum = sha256(manifest).hexdigest()
        with self._books.writing() as transaction:
            if not transaction.set_sealed(self.release, checksum):
                raise LedgerError(f"another run has finished release {self.release}")
        self._sealed = checksum

    def commit(self) -> None:
        """The release is published: say so, and wipe its secrets."""
        self._finish("committed", {"manifest_sha256": self._sealed})

    def cancel(self) -> None:
        """Give the budget back: nothing was drawn, so nothing can have got out."""
        if self._kept.drawn is not None:
            raise LedgerError(f"release {self.release} has drawn noise: its budget stays spent")
        self._finish("cancelled", {"reason": "refused before anything was drawn"})

    def _finish(self, event: str, content: dict[str, Any]) -> None:
        with self._books.writing() as transaction:
            kept = transaction.secrets(self.release)
            if kept is None:
                raise LedgerError(f"another run has finished release {self.release}")
            if event == "cancelled" and kept.drawn is not None:
                raise LedgerError(f"another run is finishing release {self.release}")
            transaction.append(event=event, release=self.release, content=content)
            transaction.wipe(self.release)


def _place(release: str, part: str) -> str:
    return f"{release}/{part}"


def _refusal(account: Account, guarantee: Guarantee) -> str:
    return (
        f"the budget of population {account.population!r} does not allow it: of "
        f"{budget_in_short(account.cap)}, {len(account.spent)} releases have spent "
        f"{budget_in_short(account.basic)} in sum; one more may cost epsilon "
        f"{shown_below(account.room())}, and this one costs {budget_in_short(guarantee)}. No "
        "outcome was read, and nothing was spent"
    )


def budget_in_short(guarantee: Guarantee) -> str:
    """For people: "epsilon 2, delta 1e-06"."""
    delta = f", delta {shown(guarantee.delta)}" if guarantee.delta else ""
    return f"epsilon {shown(guarantee.epsilon)}{delta}"


def shown_below(number: float) -> str:
    """A budget for people, rounded down."""
    return f"{math.floor(number * 10_000) / 10_000:g}"
