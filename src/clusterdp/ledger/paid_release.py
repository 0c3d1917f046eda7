"""A release that a ledger pays for: reserve the budget, write the release, commit it."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clusterdp._text import counted
from clusterdp._version import __version__
from clusterdp.errors import (
    ClusterDPError,
    DataError,
    LedgerError,
    OutputError,
    ParameterError,
    errors_about,
)
from clusterdp.ledger.balance import (
    budget_in_short,
    normalize_population,
    population_problem,
    shown_below,
)
from clusterdp.ledger.reservation import OvertakenError, absolute, is_published
from clusterdp.ledger.statement import resume_command
from clusterdp.privacy.accounting import basic_composition
from clusterdp.privacy.statement import rounded_up
from clusterdp.sources.source import NamedSource
from clusterdp.spec.provenance import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clusterdp.ledger.balance import Balance
    from clusterdp.ledger.ledger import Ledger
    from clusterdp.ledger.reservation import Reservation
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.spec.answers import Answers
    from clusterdp.spec.spec import ReleaseSpec
    from clusterdp.spec.terms import Terms
    from clusterdp.storage.folder import Destination

    # Writes a release, and returns what to show.
    Write = Callable[[OpenTable, ReleaseSpec, Destination, Journal], dict[str, Any]]

# The options that may change when a release is resumed: where the table is, and the folder.
_TABLE = ("input", "query", "delimiter")
_PLACES = (*_TABLE, "continues", "out")


@dataclass(frozen=True, slots=True)
class PopulationBudget:
    """The budget of one population in a ledger, for one release.

    Attributes:
        ledger: The ledger, unlocked.
        population: The people the release is about; None when a release is resumed, because its
            reservation names them.
        confirmed_new: Whether the owner confirms that the population is new to the ledger.
        continues: The batches that the release continues, by the checksums of their manifests.
        on_message: Takes messages for the owner.
        resume_hint: How to finish the release with a given id, for messages; the command line by
            default.
        answers: The follow-up that it answers; None for a release.
    """

    ledger: Ledger
    population: str | None
    _: KW_ONLY
    on_message: Callable[[str], None]
    confirmed_new: bool = False
    continues: tuple[str, ...] = ()
    resume_hint: Callable[[str], str] | None = None
    answers: Answers | None = None

    def check_population(self) -> None:
        """Raise a LedgerError if the population is new and unconfirmed, or the reverse."""
        with errors_about("population"):
            self.ledger.check_population(self._named(), confirmed_new=self.confirmed_new)

    def balance(self) -> Balance:
        """What people in the release may have lost by others: it adds to that.

        Raises:
            LedgerError: If the batches that it continues are not all of one experiment.
        """
        balance = self.ledger.balance(self._named())
        if self.answers is not None:
            return balance.answering(self.answers.release)
        with errors_about("continues"):
            return balance.continuing(self.continues)

    def check_allowed(self, terms: Terms) -> None:
        """Raise a LedgerError if the ledger would reject a release; nothing is reserved."""
        balance = self.balance()
        if not balance.allows(terms.guarantee, terms.losses()):
            with errors_about("epsilon"):
                raise LedgerError(balance.refusal(terms.guarantee))

    def allows(self, epsilon: float | None) -> bool:
        """Whether so much is left; False where it is not known how much a release takes."""
        left = self.balance().remaining
        return epsilon is not None and epsilon <= left

    def describe(self, terms: Terms) -> dict[str, Any]:
        """The balance before and after a release; everything in it is public."""
        balance = self.balance()
        guarantee = terms.guarantee
        after = basic_composition([balance.basic, guarantee])
        names = set(terms.outcome_names)
        earlier = sum(not names.isdisjoint(one.terms.outcome_names) for one in balance.spent)
        note = (
            f"The ledger has {counted(earlier, 'earlier release')} of "
            f"{', '.join(map(repr, terms.outcome_names))} about {balance.population!r}. With this "
            f"one, all releases about {balance.population!r} spend {budget_in_short(after)}."
        )
        refusals = self._refusals(balance, terms)
        spends = balance.spends(guarantee, is_allowed=not refusals)
        return {
            "population": balance.population,
            "cap_epsilon": balance.cap.epsilon,
            "cap_delta": balance.cap.delta,
            "spent_epsilon": balance.basic.epsilon,
            "spent_delta": balance.basic.delta,
            "after_epsilon": after.epsilon,
            "after_delta": after.delta,
            "earlier_releases_of_outcomes": earlier,
            "remaining_epsilon": balance.remaining,
            "remaining_after": None
            if balance.tight
            else f"{shown_below(balance.cap.epsilon - after.epsilon)} of "
            f"{rounded_up(balance.cap.epsilon)}",
            "refusals": refusals,
            "notes": [note] if earlier else [],
            "in_short": spends + self._continued(),
        }

    def release(
        self,
        opened: OpenTable,
        spec: ReleaseSpec,
        target: Destination,
        options: dict[str, Any],
        write: Write,
    ) -> dict[str, Any]:
        """Reserve the budget, and write the release.

        Args:
            opened: The table, with its public columns read.
            spec: What is published of it.
            target: Where it is published.
            options: What was asked for, to resume it with.
            write: Writes it.
        """
        layout, answers = opened.layout, self.answers
        reservation = self.ledger.reserve(
            self._named(),
            terms=spec.terms,
            about={
                "software": __version__,
                "n_units": layout.n_units,
                "n_clusters": layout.n_clusters,
                "options": _portable(options),
            },
            place=absolute(str(target)),
            confirmed_new=self.confirmed_new,
            continues=self.continues,
            answers=None if answers is None else answers.release,
            followup=None if answers is None else answers.followup,
        )
        return self.finish(reservation, opened, spec, target, write)

    def finish(
        self,
        reservation: Reservation,
        opened: OpenTable,
        spec: ReleaseSpec,
        target: Destination,
        write: Write,
    ) -> dict[str, Any]:
        """Write a release whose budget is reserved."""
        content, layout = reservation.record.content, opened.layout
        if (content["n_units"], content["n_clusters"]) != (layout.n_units, layout.n_clusters):
            raise DataError("the table is not the one that the release was reserved for")
        # What is published of the beginning is on record, so that every run publishes the same.
        begun_on = datetime.fromisoformat(reservation.record.at).astimezone(UTC).date()
        record = reservation.record
        spec = spec.begun(begun_on, Spent(**content["spent_before"]), record.continues)
        with self._explained_errors(reservation, target, opened):
            # With the parameters from the ledger, so that every run does the same.
            spec = spec.with_mechanisms(reservation.mechanisms)
            finished = write(opened, spec, target, reservation)
        return {**finished, "release_id": reservation.release_id}

    def check_continued(self, reservation: Reservation, checksums: Sequence[str]) -> None:
        """Raise a LedgerError unless a reserved batch continues folders with these manifests."""
        if set(checksums) != set(reservation.record.continues):
            raise LedgerError(
                f"release {reservation.release_id} continues other folders than were given. Fix: "
                f"name the {len(reservation.record.continues)} folders that it continues with "
                "continues=[...] (--continues)"
            )

    def finish_published(
        self, reservation: Reservation, target: Destination
    ) -> dict[str, Any] | None:
        """Commit a release that was published just before its run was interrupted.

        Returns:
            What to show; None if the release is not published.
        """
        if not is_published(target, reservation.sealed):
            return None
        try:
            left = reservation.remove_leftovers()
            target.clear(reservation.key.claim())
        except OutputError as error:  # another user's: the release is published all the same
            left = f"what its run left stays: {error}"
        if left is not None:
            self.on_message(f"{left}; remove it there")
        reservation.commit(str(target))
        return {"folder": str(target), "release_id": reservation.release_id}

    def _named(self) -> str:
        assert self.population is not None  # noqa: S101 - only resumed releases name none
        return normalize_population(self.population)

    def _continued(self) -> str:
        """What a preview adds of the folders that a batch continues."""
        if not self.continues:
            return ""
        folders = counted(len(self.continues), "earlier folder")
        return f"; continues {folders}, whose ids are compared before it is published"

    def _refusals(self, balance: Balance, terms: Terms) -> list[str]:
        """Why the ledger would reject a release, and what to do; empty if it would not."""
        known = [one.population for one in self.ledger.balances()]
        is_allowed = balance.allows(terms.guarantee, terms.losses())
        problems = [
            None
            if is_allowed
            else f"{balance.why_not(terms.guarantee)}. Fix: {balance.remedy(terms.guarantee)}.",
            population_problem(balance.population, known, confirmed=self.confirmed_new),
        ]
        return [f"This release would be rejected: {problem}" for problem in problems if problem]

    def _hint(self, reservation: Reservation) -> str:
        """How to resume: as the caller says, or on the command line."""
        if self.resume_hint is not None:
            return self.resume_hint(reservation.release_id)
        key_file = self.ledger.key_file
        key = "" if key_file is None else f" --ledger-key-file {shlex.quote(str(key_file))}"
        return resume_command(reservation.release_id, absolute(str(self.ledger))) + key

    @contextmanager
    def _explained_errors(
        self, reservation: Reservation, target: Destination, opened: OpenTable
    ) -> Iterator[None]:
        """Add to every error what happened to the budget."""
        try:
            yield
        except OvertakenError as error:
            if is_published(target, reservation.sealed):
                raise LedgerError(
                    f"{target} is published, but {error}: its budget stays spent"
                ) from None
            raise OvertakenError(f"{error}; this run published nothing") from None
        except KeyboardInterrupt as error:
            if is_published(target, reservation.sealed):
                raise self._unrecorded(reservation, target, "interrupted") from None
            remark = f"the budget stays reserved. Resume with: {self._hint(reservation)}"
            error.add_note(f"release {reservation.release_id} was interrupted: {remark}")
            self.on_message(remark)
            raise
        except DataError as error:
            if reservation.is_given_up:
                raise DataError(
                    f"{error}. Rows of the changed table had been randomized, so the release is "
                    "closed and its budget stays spent. Begin another one"
                ) from None
            if reservation.may_be_cancelled:
                opened.table.close()  # nothing is left of a release that is cancelled
                raise self._given_back(error, reservation) from None
            raise self._still_reserved(error, reservation) from None
        except ClusterDPError as error:
            if is_published(target, reservation.sealed):
                raise self._unrecorded(reservation, target, str(error)) from None
            raise self._still_reserved(error, reservation) from None

    def _given_back(self, error: DataError, reservation: Reservation) -> ClusterDPError:
        """Cancel a release of which nothing is left, and add that to the error."""
        try:
            reservation.cancel()
        except OvertakenError as overtaken:
            return DataError(f"{error} ({overtaken})")
        except LedgerError:  # it stays reserved then, which the ledger shows
            return self._still_reserved(error, reservation)
        return DataError(f"{error} (the budget was given back)")

    def _unrecorded(self, reservation: Reservation, target: Destination, why: str) -> LedgerError:
        return LedgerError(
            f"{target} is published, but that could not be recorded ({why}); record it with: "
            f"{self._hint(reservation)}"
        )

    def _still_reserved(self, error: ClusterDPError, reservation: Reservation) -> ClusterDPError:
        return type(error)(
            f"{error}. The budget stays reserved. Resume with: {self._hint(reservation)}"
        )


def resumed_options(reservation: Reservation, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a release from its reservation, with locations that may have changed."""
    content = reservation.record.content
    if content["software"] != __version__:
        raise LedgerError(
            f"release {reservation.release_id} was begun with clusterdp {content['software']}; "
            "only that version finishes it exactly: install it from its source"
        )
    more = [key for key in given if given[key] is not None and key not in (*_PLACES, "ledger")]
    if more:
        flag = more[0].replace("_", "-")
        raise ParameterError(
            f"{more[0]} (--{flag}) was decided when the release began; leave it out"
        )
    moved = {key: given[key] for key in _PLACES if given[key] is not None}
    # Another table is read as is said with it, and not as the first one was.
    is_moved = "input" in moved
    kept = {k: v for k, v in content["options"].items() if not (is_moved and k in _TABLE)}
    return {**kept, **moved}


def _portable(spec: dict[str, Any]) -> dict[str, Any]:
    """Options that mean the same in another working directory; a frame has no `input`."""
    options = {key: value for key, value in spec.items() if key != "ledger"}
    source = spec.get("input")
    if source:
        options["input"] = NamedSource(name=source, query=spec.get("query")).absolute()
    if "continues" in spec:
        options["continues"] = list(map(absolute, spec["continues"]))
    return {**options, "out": absolute(str(spec["out"]))}
