"""The balance of one population: what was spent, what is left, whether one more release fits.

What counts is the largest loss of any person. Releases add up, unless no person is in both: the
batches of a chain have different units, so of these the largest counts, each with the answers to
its follow-ups. That also holds where later batches are designed from what earlier ones published.
Take one person, and everything that is published as one long output. Given the output so far, it
is public whether the next batch has this person. If not, that batch is drawn from the same
distribution for all outcomes of the person. So the odds between two outcomes change only by the
person's own batch, its answers, and what is outside the chain. Their losses add up as always.
"""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from clusterdp.errors import ClusterDPError, LedgerError, ParameterError
from clusterdp.privacy.accounting import (
    OUTCOME,
    Guarantee,
    ReleaseLoss,
    any_loss,
    basic_composition,
)
from clusterdp.privacy.composition import ComposedLoss
from clusterdp.privacy.statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.ledger.history import ReleaseRecord

# Under tight composition, what is left is found to this fraction of the cap.
_N_STEPS = 1000
# How many names of populations a message lists.
_MOST_NAMES = 20
# Letters of an id in messages.
_SHOWN = 8
# Combinations of batches of several chains that tight composition looks at; of more, sums decide.
_MOST_COMBINED = 64
_CONFIRMATION = "new_population=True (--new-population)"


@dataclass(frozen=True, kw_only=True)
class Balance:
    """What was spent on one population, and its budget cap.

    Attributes:
        population: Its name.
        cap: What may be spent in total.
        tight: Whether a release is also allowed if tight composition alone allows it. Tight
            composition holds only if parameters are not chosen from earlier results.
        releases: Every release about the population, in the order of reservation.
    """

    population: str
    cap: Guarantee
    tight: bool
    releases: tuple[ReleaseRecord, ...]

    @cached_property
    def spent(self) -> tuple[ReleaseRecord, ...]:
        """The releases that count: all except cancelled ones."""
        return tuple(one for one in self.releases if one.status != "cancelled")

    @cached_property
    def chains(self) -> tuple[tuple[ReleaseRecord, ...], ...]:
        """The releases that count, with their answers, by chains of batches.

        A release that nothing continues is a chain of its own.
        """
        chains: dict[str, list[ReleaseRecord]] = {}
        for one in self.spent:
            chains.setdefault(_first_of(self._answered(one)), []).append(one)
        return tuple(map(tuple, chains.values()))

    @cached_property
    def _shared(self) -> tuple[tuple[tuple[ReleaseRecord, ...], ...], ...]:
        """Of each chain, the sets of releases that one person may be in."""
        return tuple(map(self._sets_of, self.chains))

    def _sets_of(self, chain: Sequence[ReleaseRecord]) -> tuple[tuple[ReleaseRecord, ...], ...]:
        """The sets of releases of a chain that one person may be in.

        At most one batch that is published, with its answers; and batches that are not published,
        unless they were checked against it. Nobody can check later batches against those.
        """
        batches = [one for one in chain if self._answered(one) is one]
        published = [one for one in batches if one.manifest_sha256]
        others = [one for one in batches if not one.manifest_sha256]
        sets = [
            [
                *(one for one in chain if self._answered(one) is batch),
                *(one for one in others if batch.manifest_sha256 not in one.continues),
            ]
            for batch in published
        ]
        if others:
            sets.append(others)
        return tuple(map(tuple, sets))

    def _answered(self, one: ReleaseRecord) -> ReleaseRecord:
        """The release that an answer is about; any other release itself."""
        if one.answers is None:
            return one
        known = (other for other in self.spent if other.manifest_sha256 == one.answers)
        return next(known, one)

    def apart_from(self, continues: Sequence[str], manifest: str | None = None) -> Balance:
        """The same without what shares no person with a release.

        Args:
            continues: The batches that the release continues, by their manifests.
            manifest: Its own manifest, if it is published.
        """

        def is_apart(one: ReleaseRecord) -> bool:
            batch = self._answered(one)
            return batch.manifest_sha256 in continues or manifest in batch.continues

        theirs = tuple(one for one in self.releases if not is_apart(one))
        return replace(self, releases=theirs)

    def answering(self, manifest: str) -> Balance:
        """What the people of a published release have lost: one more answer about it adds to that.

        Raises:
            LedgerError: If the ledger has no such release about the population.
        """
        for one in self.spent:
            if one.manifest_sha256 == manifest and one.answers is None:
                return self.apart_from(one.continues, manifest)
        raise LedgerError(
            f"the ledger has no release about {self.population!r} with the manifest "
            f"{manifest[:_SHOWN]}; give the ledger and the population that it was published with"
        )

    def continuing(self, manifests: Sequence[str]) -> Balance:
        """What the people of a new batch may have lost: the batch adds to that.

        Args:
            manifests: The batches that it continues; none for a release that continues nothing.

        Raises:
            LedgerError: If the batch may share people with another one that it does not name.
        """
        if not manifests:
            return self
        problem = self._chain_problem(manifests)
        if problem:
            what, fix, how = f"{problem.rstrip('.')}.".partition("Fix: ")
            done = "No outcome was read and nothing was spent."
            raise LedgerError(f"{what.rstrip()} {done} {fix}{how}".rstrip())
        return self.apart_from(manifests)

    def _chain_problem(self, manifests: Sequence[str]) -> str | None:
        """Why a batch cannot continue these: it must continue all of one chain, and nothing else.

        While another batch of the chain is open, nobody can check whether the two share people.
        """
        by_manifest = {
            one.manifest_sha256: one
            for one in self.releases
            if one.manifest_sha256 and one.answers is None
        }
        for manifest in manifests:
            if manifest not in by_manifest:
                return (
                    f"the ledger has no release about {self.population!r} with the manifest "
                    f"{manifest[:_SHOWN]}, so a batch cannot continue it. Fix: give the ledger "
                    "and the population that it was published with"
                )
        chains = {_first_of(by_manifest[manifest]) for manifest in manifests}
        if len(chains) > 1:
            return (
                "a batch continues the batches of one experiment, and these do not continue each "
                "other. Fix: leave out those of the other experiment in continues (--continues)"
            )
        (chain,) = (chain for chain in self.chains if _first_of(self._answered(chain[0])) in chains)
        batches = [one for one in chain if one.answers is None]
        for one in batches:
            if one.is_unfinished:
                return (
                    f"batch {one.release_id} continues the same releases and is unfinished, so "
                    "the two could share units. Fix: resume it, or cancel or close it"
                )
        for one in batches:
            if one.manifest_sha256 and one.manifest_sha256 not in manifests:
                kept = ". It was withdrawn: a copy will do" if one.is_withdrawn else ""
                return (
                    "a batch continues all earlier batches, and these lack the one published at "
                    f"{one.folder}{kept}. Fix: name it in continues (--continues), too"
                )
        return None

    @cached_property
    def basic(self) -> Guarantee:
        """The largest loss of any person by basic composition: Σε and Σδ.

        Over the releases that count; of the batches of a chain, the largest.
        """
        return basic_composition(
            [
                _largest([basic_composition([one.guarantee for one in each]) for each in sets])
                for sets in self._shared
            ]
        )

    @cached_property
    def _together(self) -> tuple[ComposedLoss, ...] | None:
        """Releases that one person may be in, composed; None if there are too many such sets."""
        # What loses the same is composed once, however many batches do.
        losses = [{_losses_of(each) for each in sets} for sets in self._shared]
        if math.prod(map(len, losses)) > _MOST_COMBINED:
            return None
        return tuple(
            ComposedLoss.from_losses([loss for each in sets for loss in each])
            for sets in product(*losses)
        )

    def tight_epsilon(self) -> float | None:
        """ε of the releases that count at the cap's δ, by tight composition.

        None if the cap has no δ, or if basic composition decides and dp-accounting is missing.
        """
        if not self.cap.delta:
            return None
        try:
            together = self._together
            composed = (
                math.inf
                if together is None
                else max(one.epsilon(self.cap.delta) for one in together)
            )
        except ClusterDPError:
            if self.tight:
                raise
            return None
        in_sum = self.basic.epsilon if self.basic.delta <= self.cap.delta else math.inf
        return min(composed, in_sum)

    def allows(self, guarantee: Guarantee, losses: Sequence[ReleaseLoss]) -> bool:
        """Whether one more release, which loses so much in its blocks, stays within the cap."""
        in_sum = basic_composition([self.basic, guarantee])
        if in_sum.epsilon <= self.cap.epsilon and in_sum.delta <= self.cap.delta:
            return True
        if not self.tight or self._together is None:
            return False
        return all(
            _with_losses(one, losses).delta(self.cap.epsilon) <= self.cap.delta
            for one in self._together
        )

    @cached_property
    def remaining(self) -> float:
        """The largest ε of one more release with δ = 0 that stays within the cap, rounded down."""
        left = max(0.0, self.cap.epsilon - self.basic.epsilon)
        if not self._allows_pure(left):
            left = math.nextafter(left, 0.0) if self._allows_pure(0.0) else 0.0
        return max(left, self._tight_remaining()) if self.tight else left

    def refusal(self, guarantee: Guarantee) -> str:
        """The message for a release that is not allowed."""
        done = "No outcome was read and nothing was spent."
        return f"{self.why_not(guarantee)}. {done} Fix: {self.remedy(guarantee)}."

    def remedy(self, guarantee: Guarantee) -> str:
        """What an owner can do about a release that is not allowed."""
        left, pure = shown_below(self.remaining), " and delta = 0" if guarantee.delta else ""
        if left == "0":
            return "ask for a higher budget cap"
        return f"set epsilon = {left} or less{pure}"

    def spends(self, guarantee: Guarantee, *, is_allowed: bool = True) -> str:
        """What a release would take of what is left, or that this is too little."""
        cost, left = budget_in_short(guarantee).removeprefix("ε = "), shown_below(self.remaining)
        said = f"spends {cost} of the {left}" if is_allowed else f"needs {cost}, and has {left}"
        return f"{self.population}: {said} remaining"

    def why_not(self, guarantee: Guarantee) -> str:
        """Why a release is not allowed, and which would be."""
        left = shown_below(self.remaining)
        return (
            f"not enough budget for {self.population!r}: this release needs "
            f"{budget_in_short(guarantee)}, and {left} of "
            f"{budget_in_short(self.cap).removeprefix('ε = ')} remains"
        )

    def _allows_pure(self, epsilon: float) -> bool:
        return self.allows(Guarantee(epsilon=epsilon), [ReleaseLoss(atoms=any_loss(epsilon))])

    def _tight_remaining(self) -> float:
        def is_too_much(step: int) -> bool:
            return not self._allows_pure(self.cap.epsilon * step / _N_STEPS)

        n_allowed = bisect_left(range(1, _N_STEPS + 1), x=True, key=is_too_much)
        return self.cap.epsilon * n_allowed / _N_STEPS


def _first_of(batch: ReleaseRecord) -> str:
    """The first batch of its chain, by its manifest; by its id while it has none."""
    return (*batch.continues, batch.manifest_sha256 or batch.release_id)[0]


def _largest(guarantees: Sequence[Guarantee]) -> Guarantee:
    """The largest ε with the largest δ: what holds for each person, whichever of them it is."""
    relations = {one.neighbours for one in guarantees}
    return Guarantee(
        epsilon=max(one.epsilon for one in guarantees),
        delta=max(one.delta for one in guarantees),
        neighbours=relations.pop() if len(relations) == 1 else OUTCOME,
    )


def _losses_of(releases: Sequence[ReleaseRecord]) -> tuple[ReleaseLoss, ...]:
    """What some releases lose, in an order of its own."""
    return tuple(sorted(loss for one in releases for loss in one.terms.losses()))


def _with_losses(together: ComposedLoss, losses: Sequence[ReleaseLoss]) -> ComposedLoss:
    for loss in losses:
        together = together.and_more(loss)
    return together


def normalize_population(population: str) -> str:
    """The name of a population without spaces around it, in Unicode's normal form C.

    Raises:
        ParameterError: If it is empty, or holds characters that cannot be printed.
    """
    is_text = isinstance(population, str)
    name = unicodedata.normalize("NFC", population).strip() if is_text else ""
    if not name or not name.isprintable():
        raise ParameterError(
            f"population must be a name of printable characters, got {population!r}."
        )
    return name


def population_problem(name: str, known: Sequence[str], *, confirmed: bool) -> str | None:
    """Why a release may not use a population: a typo would open a second budget.

    Args:
        name: The population.
        known: The populations of the ledger.
        confirmed: Whether the owner confirms that it is new.
    """
    # In an empty ledger no name can be misspelled.
    if (name in known) != confirmed or not known:
        return None
    if confirmed:
        return (
            f"Population {name!r} is already in the ledger. Fix: leave out new_population "
            "(--new-population)."
        )
    return (
        f"Population {name!r} is new: the ledger has {_listed(name, known)}. Nothing was "
        f"published. Fix: correct the name. If no unit is in both, confirm it with "
        f"{_CONFIRMATION}."
    )


def _listed(name: str, known: Sequence[str]) -> str:
    """Known names, the most similar to `name` first."""
    from difflib import SequenceMatcher

    def unlike(other: str) -> float:
        return -SequenceMatcher(None, name.casefold(), other.casefold()).ratio()

    listed = ", ".join(map(repr, sorted(known, key=unlike)[:_MOST_NAMES]))
    more = len(known) - _MOST_NAMES
    return f"{listed} and {more} more" if more > 0 else listed


def budget_in_short(guarantee: Guarantee) -> str:
    """For people: "ε = 2, δ = 1e-06"."""
    delta = f", δ = {rounded_up(guarantee.delta)}" if guarantee.delta else ""
    return f"ε = {rounded_up(guarantee.epsilon)}{delta}"


def shown_below(number: float) -> str:
    """A budget for people, rounded down to four decimals."""
    return f"{math.floor(number * 10_000) / 10_000:.4f}".rstrip("0").rstrip(".")
