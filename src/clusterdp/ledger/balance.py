"""The balance of one population: what was spent, what is left, whether one more release fits."""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from clusterdp.errors import ClusterDPError, ParameterError
from clusterdp.privacy.accounting import Guarantee, ReleaseLoss, any_loss
from clusterdp.privacy.composition import ComposedLoss, basic_composition
from clusterdp.privacy.statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.ledger.history import ReleaseRecord

# Under tight composition, what is left is found to this fraction of the cap.
_N_STEPS = 1000
# How many names of populations a message lists.
_MOST_NAMES = 20
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
    def basic(self) -> Guarantee:
        """Basic composition of the releases that count: Σε and Σδ."""
        return basic_composition([one.guarantee for one in self.spent])

    @cached_property
    def _together(self) -> ComposedLoss:
        return ComposedLoss.from_losses([loss for one in self.spent for loss in one.terms.losses()])

    def tight_epsilon(self) -> float | None:
        """ε of the releases that count at the cap's δ, by tight composition.

        None if the cap has no δ, or if basic composition decides and dp-accounting is missing.
        """
        if not self.cap.delta:
            return None
        try:
            together = self._together.epsilon(self.cap.delta)
        except ClusterDPError:
            if self.tight:
                raise
            return None
        in_sum = self.basic.epsilon if self.basic.delta <= self.cap.delta else math.inf
        return min(together, in_sum)

    def allows(self, guarantee: Guarantee, losses: Sequence[ReleaseLoss]) -> bool:
        """Whether one more release, which loses so much in its blocks, stays within the cap."""
        in_sum = basic_composition([self.basic, guarantee])
        if in_sum.epsilon <= self.cap.epsilon and in_sum.delta <= self.cap.delta:
            return True
        if not self.tight:
            return False
        together = self._together
        for loss in losses:
            together = together.and_more(loss)
        return together.delta(self.cap.epsilon) <= self.cap.delta

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

    def spends(self, guarantee: Guarantee) -> str:
        """What a release would take of what is left."""
        cost = budget_in_short(guarantee).removeprefix("ε = ")
        return f"{self.population}: spends {cost} of the {shown_below(self.remaining)} remaining"

    def why_not(self, guarantee: Guarantee) -> str:
        """Why a release is not allowed, and which would be."""
        left = shown_below(self.remaining)
        return (
            f"Not enough budget for {self.population!r}: this release needs "
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
