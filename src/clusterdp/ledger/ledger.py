"""The ledger: what was spent on each population, and what is left.

A release reserves its budget before any outcome is read, and commits when it is published. In
between, the ledger keeps what is needed to finish it: the key, and what was drawn. A release that
cannot be finished is closed, and its budget stays spent. One that drew nothing can be cancelled.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from clusterdp.errors import LedgerError
from clusterdp.ledger._encryption import Encryption, unencrypted_error
from clusterdp.ledger._store import RANDOMIZING, WITHDRAWN, LedgerStore, Secrets
from clusterdp.ledger.balance import Balance, normalize_population, population_problem
from clusterdp.ledger.history import (
    describe_opening,
    find_problems,
    format_problem,
    named_release,
    populations_of,
    read_releases,
    refuse_answered,
)
from clusterdp.ledger.reservation import (
    Reservation,
    describe_closing,
    describe_left,
    describe_reason,
    remove_later,
    secret_context,
    secrets_problem,
    unused_id,
    worker_name,
)
from clusterdp.ledger.statement import Statement, ending_command, status_of
from clusterdp.privacy.accounting import Guarantee
from clusterdp.rows.keys import ReleaseKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp.ledger._store import Entry, Transaction
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.spec.terms import Terms


class Ledger:
    """The privacy budget of several releases about the same units.

    Example:
        ```python
        ledger = cdp.Ledger.create("budget.db", cap_epsilon=8)
        ledger.show()
        ```
    """

    def __init__(
        self,
        where: str | Path,
        passphrase: str | None = None,
        key_file: str | Path | None = None,
    ) -> None:
        """Open a ledger.

        Args:
            where: A file, or a PostgreSQL URL.
            passphrase: The passphrase that the ledger was made with, if any.
            key_file: The key file that the ledger was made with, if any. Only releases need the
                passphrase or the key file.

        Raises:
            LedgerError: If there is no ledger, or the passphrase or the key file is wrong.
        """
        self._store = LedgerStore(str(where))
        with self._store.reading() as stored:
            stored.entries()  # raises an error unless there is something to read
        self._encryption: Encryption | None = None
        self.key_file: Path | None = None
        if passphrase is not None or key_file is not None:
            self.unlock(passphrase=passphrase, key_file=key_file)

    def __str__(self) -> str:
        return str(self._store)

    def __repr__(self) -> str:
        return f"Ledger({str(self)!r})"

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    @classmethod
    def create(  # noqa: PLR0913 - the options of a ledger
        cls,
        where: str | Path,
        cap_epsilon: float = 8,
        cap_delta: float = 0.0,
        *,
        passphrase: str | None = None,
        key_file: str | Path | None = None,
        tight: bool = False,
    ) -> Ledger:
        """Create a ledger and open it.

        Args:
            where: A file that does not exist, or the URL of a database without a ledger.
            cap_epsilon: The total ε that may be spent on each population.
            cap_delta: The total δ that may be spent on each population.
            passphrase: Encrypts the keys of unfinished releases.
            key_file: The same, with a file of at least 32 random bytes.
            tight: Whether to use tight composition instead of adding up losses. Valid only if the
                parameters of later releases do not depend on earlier results.

        Raises:
            ParameterError: If the cap is out of range, or has no δ for tight composition.
            LedgerError: If the ledger exists already, or cannot be made.
        """
        cap = Guarantee(epsilon=cap_epsilon, delta=cap_delta)
        encryption = Encryption.new(passphrase=passphrase, key_file=key_file)
        LedgerStore.create(str(where), describe_opening(cap, encryption, tight=tight))
        return cls(where, passphrase, key_file)

    @cached_property
    def _opening(self) -> dict[str, Any]:
        """The content of the first entry."""
        return self._entries()[0].content

    @property
    def cap(self) -> Guarantee:
        """The budget cap of each population."""
        return Guarantee(epsilon=self._opening["cap_epsilon"], delta=self._opening["cap_delta"])

    @property
    def tight(self) -> bool:
        """Whether tight composition is used; basic composition otherwise."""
        return self._opening["composition"] == "tight" and self.cap.delta > 0

    @property
    def protection(self) -> str:
        """What the secrets of unfinished releases are encrypted with."""
        return str(self._opening["encryption"]["protection"])

    def unlock(self, *, passphrase: str | None = None, key_file: str | Path | None = None) -> None:
        """Give the passphrase or the key file, which reserving and resuming a release need."""
        self._encryption = Encryption.unlocked(
            self._opening["encryption"], passphrase=passphrase, key_file=key_file
        )
        self.key_file = None if key_file is None else Path(key_file)

    def _unlocked(self) -> Encryption:
        if self._encryption is None:
            self.unlock()
        assert self._encryption is not None  # noqa: S101 - unlocked, or refused
        return self._encryption

    def head(self) -> Entry:
        """The last entry. Its hash depends on the whole history."""
        return self._entries()[-1]

    def releases(self) -> list[ReleaseRecord]:
        """Every release, in the order of reservation."""
        return read_releases(self._entries())

    def balances(self) -> list[Balance]:
        """The balance of every population."""
        releases = self.releases()
        return [self._balance(name, releases) for name in populations_of(releases)]

    def balance(self, population: str) -> Balance:
        """The balance of one population."""
        return self._balance(normalize_population(population), self.releases())

    def _balance(self, population: str, releases: Sequence[ReleaseRecord]) -> Balance:
        theirs = tuple(one for one in releases if one.population == population)
        return Balance(population=population, cap=self.cap, tight=self.tight, releases=theirs)

    def show(self, population: str | None = None) -> Statement:
        """What was spent, by which releases, and what remains.

        Args:
            population: Only this population; all of them by default.

        Returns:
            A value that prints itself, and that notebooks show as a table.

        Raises:
            LedgerError: If the ledger has no release about that population.
        """
        balances = self.balances()
        if population is not None:
            known = {one.population: one for one in balances}
            name = normalize_population(population)
            if name not in known:
                listed = ", ".join(map(repr, known)) or "none"
                raise LedgerError(f"nothing was spent on {name!r}; populations are: {listed}")
            balances = [known[name]]
        return Statement(
            ledger=str(self),
            cap=self.cap,
            tight=self.tight,
            balances=tuple(balances),
            head=self.head().hash,
        )

    def verify(self, head: str | None = None) -> list[str]:
        """The problems of the ledger's history; empty if it is intact.

        Args:
            head: The hash of the last entry, as noted earlier. Without it, removed entries at the
                end, or a replaced history, cannot be detected.
        """
        with self._store.reading() as stored:
            entries = stored.entries()
            problems = find_problems(entries)
            if head is not None and head not in {entry.hash for entry in entries}:
                problems.append("no entry has the hash that was given: history was changed")
            if not problems and format_problem(entries):
                problems.append(f"the ledger {format_problem(entries)}")
            if problems:
                return problems
            unfinished = {
                one.release_id: one for one in read_releases(entries) if one.is_unfinished
            }
            for release_id, record in unfinished.items():
                problem = secrets_problem(record, stored.secrets(release_id))
                problems += [self._unusable(release_id, problem)] if problem else []
            return problems + [
                f"secrets of {release_id} are stored, which is not an unfinished release"
                for release_id in sorted(set(stored.unfinished()) - set(unfinished))
            ]

    def _entries(self) -> list[Entry]:
        with self._store.reading() as stored:
            return self._history(stored)

    def _history(self, transaction: Transaction) -> list[Entry]:
        """All entries.

        Raises:
            LedgerError: If the history was changed, or another version made the ledger.
        """
        entries = transaction.entries()
        problems = find_problems(entries)
        if problems:
            raise LedgerError(
                f"the ledger {self} was edited: {problems[0]}; see: clusterdp ledger verify "
                f"{shlex.quote(str(self))}"
            )
        if format_problem(entries):
            raise LedgerError(f"the ledger {self} {format_problem(entries)}")
        return entries

    def reserve(  # noqa: PLR0913 - what is reserved, all but people by name
        self,
        population: str,
        *,
        terms: Terms,
        about: dict[str, Any],
        place: str,
        confirmed_new: bool | None = None,
        continues: Sequence[str] = (),
        answers: str | None = None,
        followup: str | None = None,
    ) -> Reservation:
        """Spend the budget of a release that is about to begin.

        Args:
            population: The people it is about.
            terms: What it is going to publish, and what that costs.
            about: More to record about the release, as JSON can hold it.
            place: Where it is going to be published.
            confirmed_new: Whether the owner confirms that the population is new to the ledger. It
                must be new if so, and known if not. None skips the check.
            continues: The batches that it continues, by the checksums of their manifests: all
                published ones of a chain, whose units it has none of.
            answers: The release whose follow-up it answers, by the checksum of its manifest. None
                for all others.
            followup: That follow-up, by its checksum.

        Raises:
            LedgerError: If the cap does not allow it, or the population is new and should not be,
                or the reverse; if it answers a release that the ledger does not have, or a
                follow-up that has an answer; or if it could share units with a batch that it does
                not continue. Nothing is spent then.
        """
        guarantee = terms.guarantee
        key = ReleaseKey.from_system()
        name = normalize_population(population)
        encryption = self._unlocked()
        with self._store.writing() as transaction:
            entries = self._history(transaction)
            releases = read_releases(entries)
            if confirmed_new is not None:
                _check_population(name, releases, confirmed=confirmed_new)
            balance = self._balance(name, releases).continuing(continues)
            if answers is not None:
                balance = balance.answering(answers)
                refuse_answered(releases, answers, followup)
            if not balance.allows(guarantee, terms.losses()):
                raise LedgerError(balance.refusal(guarantee))
            release_id = unused_id(transaction, entries)
            stored = encryption.encrypt(key.expose(), secret_context(release_id, "key"))
            spent = {"epsilon": balance.basic.epsilon, "delta": balance.basic.delta}
            # In the order in which they were published.
            earlier = [one.manifest_sha256 for one in releases if one.manifest_sha256 in continues]
            content = {
                "population": name,
                **msgspec.to_builtins(terms),
                **about,
                **({"continues": earlier} if earlier else {}),
                **({} if answers is None else {"answers": answers}),
                **({} if followup is None else {"followup": followup}),
                "spent_before": spent,
                "claim": key.claim(),
                "key_sha256": sha256(stored).hexdigest(),
            }
            entry = transaction.append(event="reserved", release_id=release_id, content=content)
            kept = Secrets(key=stored, place=place, host=worker_name(place))
            transaction.add_secrets(release_id, kept)
        (record,) = read_releases([entry])
        return Reservation(self._store, encryption, record, kept)

    def check_population(self, population: str, *, confirmed_new: bool) -> None:
        """Raise a LedgerError unless a population is new to the ledger exactly if confirmed so."""
        name = normalize_population(population)
        _check_population(name, self.releases(), confirmed=confirmed_new)

    def resume(self, release_id: str) -> Reservation:
        """The reservation of an unfinished release.

        Raises:
            LedgerError: If there is no such release, it is finished, or its secrets were changed.
        """
        encryption = self._unlocked()
        with self._store.writing() as transaction:
            record = self._record(transaction, release_id)
            release_id = record.release_id
            self._check_unfinished(record, "resume")
            kept = transaction.secrets(release_id)
        problem = secrets_problem(record, kept)
        if kept is None or problem:
            raise LedgerError(self._unusable(release_id, problem))
        return Reservation(self._store, encryption, record, kept)

    def close(self, release_id: str, reason: str | None = None) -> ReleaseRecord:
        """Abandon a release. Its budget stays spent; its key and noise are deleted.

        Removes what a killed run left. A run at work on it fails and publishes nothing. A release
        that was published already is recorded as published.

        Args:
            release_id: Its id.
            reason: One line that the ledger keeps.

        Returns:
            The release as it is now, "closed" or "committed".

        Raises:
            LedgerError: If there is no such release, it is finished, or a run is publishing it.
        """
        return self._give_up(release_id, "close", reason)

    def cancel(self, release_id: str, reason: str | None = None) -> ReleaseRecord:
        """Give back the budget of a release that drew nothing; its key is deleted.

        A release whose rows were being randomized has drawn, even if they are gone. A run that is
        working on it fails before it publishes anything.

        Args:
            release_id: Its id.
            reason: One line that the ledger keeps.

        Returns:
            The release as it is now, "cancelled".

        Raises:
            LedgerError: If there is no such release, it is finished, or it may have drawn noise.
        """
        return self._give_up(release_id, "cancel", reason)

    def withdraw(self, release_id: str, reason: str | None = None) -> ReleaseRecord:
        """Record that a published folder is not to be used any more. Its budget stays spent.

        Files stay where they are. A batch still has to continue the folder.

        Args:
            release_id: Its id.
            reason: One line that the ledger keeps.

        Raises:
            LedgerError: If there is no such release, it is not published, or it was withdrawn.
        """
        with self._store.writing() as transaction:
            record = self._record(transaction, release_id)
            if status_of(record) != "published":
                why = f"release {record.release_id} is {status_of(record)}"
                raise LedgerError(f"{why}: only a published one can be withdrawn")
            content = describe_reason(reason)
            transaction.append(event=WITHDRAWN, release_id=record.release_id, content=content)
            return self._record(transaction, record.release_id)

    def _check_cancellable(self, record: ReleaseRecord, kept: Secrets | None) -> None:
        """Raise a LedgerError unless a release drew nothing."""
        problem = secrets_problem(record, kept)
        if record.has_drawn or problem or (kept and kept.sealed):
            drew = "it has drawn " + ("rows" if record.status == RANDOMIZING else "noise")
            raise LedgerError(
                f"release {record.release_id} cannot be cancelled: {problem or drew}, so its "
                f"budget stays spent; {self._how_to_close(record.release_id)}"
            )

    def _give_up(
        self, release_id: str, verb: Literal["close", "cancel"], reason: str | None
    ) -> ReleaseRecord:
        """Add the last entry of a release, after what its runs left is removed.

        A release that was ended so before stays as it is: what a run left after that is removed.
        """
        content = describe_reason(reason)
        with self._store.writing() as transaction:
            record = self._record(transaction, release_id)
            release_id = record.release_id
            event, details = {"close": "closed", "cancel": "cancelled"}[verb], dict[str, str]()
            if record.status == event and remove_later(record):
                ended = {key: one for key, one in (record.ended or {}).items() if key != "at_work"}
                return replace(record, ended=ended)
            self._check_unfinished(record, verb)
            kept = transaction.secrets(release_id)
            if verb == "close":
                event, details = describe_closing(record, kept)
            else:
                self._check_cancellable(record, kept)
            content |= details | describe_left(record, kept)
            transaction.append(event=event, release_id=release_id, content=content)
            transaction.wipe(release_id)
            return self._record(transaction, release_id)

    def _record(self, transaction: Transaction, release_id: str) -> ReleaseRecord:
        record = named_release(read_releases(self._history(transaction)), release_id)
        if record is not None:
            return record
        why = f"the ledger {self} has no release {release_id}"
        raise LedgerError(f"{why}. Fix: give an id that clusterdp ledger show {self} lists.")

    def _check_unfinished(self, record: ReleaseRecord, verb: str) -> None:
        if not record.is_unfinished:
            why = f"release {record.release_id} is {record.status}"
            raise LedgerError(f"{why}: there is nothing to {verb}")

    def _unusable(self, release_id: str, problem: str | None) -> str:
        how = self._how_to_close(release_id)
        return f"release {release_id} cannot be finished: {problem}; {how}"

    def _how_to_close(self, release_id: str) -> str:
        return f"close it with: {ending_command('close', release_id, str(self))}"


def _check_population(name: str, releases: Sequence[ReleaseRecord], *, confirmed: bool) -> None:
    problem = population_problem(name, populations_of(releases), confirmed=confirmed)
    if problem:
        raise LedgerError(problem)


PASSPHRASE = "CLUSTERDP_LEDGER_PASSPHRASE"  # noqa: S105 - the name of a variable


def open_ledger(
    where: str, key_file: Path | None, ask: Callable[[], str | None] | None = None
) -> Ledger:
    """A ledger, unlocked.

    Args:
        where: A file, or a PostgreSQL URL.
        key_file: The key file that the ledger was made with, if any.
        ask: Asks the owner for the passphrase, if the environment does not have it.

    Raises:
        LedgerError: If it cannot be unlocked; or if it does not encrypt although a passphrase is in
            the environment, because it may have been replaced.
    """
    ledger = Ledger(where)
    if ledger.protection == "none" and PASSPHRASE in os.environ:
        raise unencrypted_error(f"{PASSPHRASE} is set", "passphrase")
    passphrase = None
    if ledger.protection == "passphrase":
        passphrase = os.environ.get(PASSPHRASE)
        if passphrase is None and ask is not None:
            passphrase = ask()
        if passphrase is None:
            raise LedgerError(f"the ledger needs its passphrase: set {PASSPHRASE}")
    ledger.unlock(passphrase=passphrase, key_file=key_file)
    return ledger
