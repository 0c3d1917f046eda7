"""One population's budget: what was spent, what is left, whether one more release fits."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from clusterdp.errors import ClusterDPError, ParameterError
from clusterdp.privacy.accounting import Guarantee, ReleaseLoss, any_loss, shown
from clusterdp.privacy.composition import Composed, basic_composition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.ledger.history import Spending

# How finely what is left is searched for, as a share of the cap.
_FINENESS = 1000
# How many names of populations one line lists.
_MOST_NAMES = 20


@dataclass(frozen=True, kw_only=True)
class Account:
    """What was spent on one population, and the cap that holds for it.

    Attributes:
        population: Its name.
        cap: What may be spent in all.
        tight: Whether a release is also allowed if the tight composition alone allows it. That
            composition holds only if parameters are not chosen from earlier results.
        releases: Every release about it, in order.
    """

    population: str
    cap: Guarantee
    tight: bool
    releases: tuple[Spending, ...]

    @cached_property
    def spent(self) -> tuple[Spending, ...]:
        """The releases that count: all but cancelled ones. Closed ones do."""
        return tuple(one for one in self.releases if one.status != "cancelled")

    @cached_property
    def basic(self) -> Guarantee:
        """Σε and Σδ."""
        return basic_composition([one.guarantee for one in self.spent])

    @cached_property
    def _together(self) -> Composed:
        return Composed.of([one.loss for one in self.spent])

    def tight_epsilon(self) -> float | None:
        """ε of all releases together at the cap's δ, whether it decides or not.

        None if the cap has no δ, or if it does not decide and dp-accounting is not installed.
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

    def refusal(self, guarantee: Guarantee) -> str:
        """What to say to a release that is not allowed."""
        return (
            f"the budget of population {self.population!r} does not allow it: of "
            f"{budget_in_short(self.cap)}, releases so far have spent "
            f"{budget_in_short(self.basic)} in sum; one more may cost epsilon "
            f"{shown_below(self.room)}, and this one costs {budget_in_short(guarantee)}. No "
            "outcome was read, and nothing was spent"
        )

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


def plain_name(population: str) -> str:
    """The name of a population, in the one way it is written.

    Raises:
        ParameterError: If it is empty, or holds what cannot be seen.
    """
    name = unicodedata.normalize("NFC", population).strip()
    if not name or not name.isprintable():
        raise ParameterError("a population needs a name of letters, digits and the like")
    return name


def population_problem(name: str, known: Sequence[str], *, confirmed: bool) -> str | None:
    """What speaks against spending on a population: a typo would open a budget of its own.

    Args:
        name: The population.
        known: The populations of the ledger.
        confirmed: Whether the owner says that it is new.
    """
    if name in known:
        if confirmed:
            return f"population {name!r} is not new to the ledger: leave out --new-population"
        return None
    if confirmed:
        return None
    if not known:
        return (
            f"population {name!r} is new to the ledger, which knows no population yet; confirm it "
            "with --new-population"
        )
    return (
        f"population {name!r} is new to the ledger, which knows {_listed(name, known)}; if it "
        "shares nobody with these, confirm it with --new-population"
    )


def _listed(name: str, known: Sequence[str]) -> str:
    """Names, those that are most like one first."""
    from difflib import SequenceMatcher

    def unlike(other: str) -> float:
        return -SequenceMatcher(None, name.casefold(), other.casefold()).ratio()

    listed = ", ".join(map(repr, sorted(known, key=unlike)[:_MOST_NAMES]))
    more = len(known) - _MOST_NAMES
    return f"{listed} and {more} more" if more > 0 else listed


def budget_in_short(guarantee: Guarantee) -> str:
    """For people: "epsilon 2, delta 1e-06"."""
    delta = f", delta {shown(guarantee.delta)}" if guarantee.delta else ""
    return f"epsilon {shown(guarantee.epsilon)}{delta}"


def shown_below(number: float) -> str:
    """A budget for people, rounded down to four decimals."""
    return f"{math.floor(number * 10_000) / 10_000:.4f}".rstrip("0").rstrip(".")
