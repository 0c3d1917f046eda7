"""The best mixture over all high sets, found by adding those that would improve it.

Prices of a program with few high sets jump from round to round where many are as good. Two things
limit that. A penalty on prices picks those of least norm; it is lowered once the bound is near. And
sets are priced half-way between the newest prices and the best ones so far.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels import pricing
from clusterdp.channels.cone_program import solve_cones
from clusterdp.channels.high_sets import MOST_FOR_ALL_SETS, distinct, first_sets

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray
    from clusterdp.channels.cone_program import ConeProgram, Mixture, Prices
    from clusterdp.channels.pricing import Priced

# Rounds end once the excess variance is within this share of its lower bound.
GOAL = 1e-3
_MOST_ROUNDS = 40
_FIRST_PENALTY, _LAST_PENALTY = 1e-4, 1e-10
# By what the penalty is lowered, and by what if no set is worth adding.
_FALL, _LARGE_FALL = 0.1, 1e-3
# The penalty is lowered once the gap is below this share, times the root of how far it has fallen.
_NEAR = 0.03
_HALF_WAY = 0.5
# Sets added in a round. Beyond so many sets the idle ones go: all but this share of the best.
_MOST_ADDED, _MOST_SETS, _KEPT_SHARE = 200, 1200, 0.7
_USED = 1e-8


class Optimum(NamedTuple):
    """The best mixture found, and a lower bound on the cost of any; −inf if there is none."""

    mixture: Mixture
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Search:
    """The state of the search.

    Attributes:
        high: The high sets so far; axes `[set, category]`.
        penalty: The weight of the penalty on prices.
        bound: The largest value of prices that no known set exceeds.
        centre: The prices of that value; None before the first round.
        is_proved: Whether no set at all exceeds them, so that the bound holds for every channel.
    """

    high: BoolArray
    penalty: float
    bound: float = -np.inf
    centre: Prices | None = None
    is_proved: bool = False

    def informed(self, program: ConeProgram, priced: Priced) -> _Search:
        """The search with the bound that pricing gives, if it is higher than before."""
        centre = priced.prices.lowered(max(priced.most, 0.0), program.prior)
        bound = program.value_of(centre)
        if bound <= self.bound:
            return self
        return replace(self, bound=bound, centre=centre, is_proved=priced.is_proved)


def find_optimum(program: ConeProgram) -> Optimum | None:
    """The least-cost mixture; None if the solver gives up before it has found any."""
    is_small = program.n_categories <= MOST_FOR_ALL_SETS or program.n_metrics == 1
    search = _Search(
        high=first_sets(program), penalty=_LAST_PENALTY if is_small else _FIRST_PENALTY
    )
    best: Mixture | None = None
    for _ in range(_MOST_ROUNDS):
        mixture = solve_cones(program, search.high, search.penalty)
        if mixture is None:
            break
        best = mixture
        priced, search = _price(program, mixture, search)
        if _is_done(program, mixture, search, priced):
            break
        search = _with_penalty(search, _gap(program, mixture, search), priced)
        search = _with_sets(program, mixture, search, priced)
    if best is None:
        return None
    return Optimum(best, _proved_bound(program, search))


def _price(program: ConeProgram, mixture: Mixture, search: _Search) -> tuple[Priced, _Search]:
    """Sets to add, and the search with the bound that they give."""
    newest = mixture.prices
    start = newest if search.centre is None else newest.between(search.centre, _HALF_WAY)
    priced = _price_at(program, start, mixture)
    search = search.informed(program, priced)
    if start is newest or (program.excess(newest, priced.high) > 0).any():
        return priced, search
    # Nothing found half-way would change the mixture: look at the newest prices themselves.
    priced = _price_at(program, newest, mixture)
    return priced, search.informed(program, priced)


def _price_at(program: ConeProgram, prices: Prices, mixture: Mixture) -> Priced:
    if pricing.is_exact_every_round(program):
        return pricing.price_exactly(program, prices)
    return pricing.price_locally(program, prices, mixture)


def _is_done(program: ConeProgram, mixture: Mixture, search: _Search, priced: Priced) -> bool:
    """Whether the cost is near its bound, or nothing is left to add, at the last penalty."""
    near = _gap(program, mixture, search) <= GOAL
    return search.penalty <= _LAST_PENALTY and (near or not len(priced.high))


def _proved_bound(program: ConeProgram, search: _Search) -> float:
    """The bound, proved now if local search alone has found it."""
    if search.is_proved:
        return search.bound
    if search.centre is None or not pricing.can_be_exact(program):
        return _separate_bound(program)
    priced = pricing.price_exactly(program, search.centre)
    return replace(search, bound=-np.inf).informed(program, priced).bound


def _separate_bound(program: ConeProgram) -> float:
    """What metrics would cost if each had a channel of its own: valid, and far below."""
    if program.n_metrics == 1:
        return -np.inf
    total = 0.0
    for metric in range(program.n_metrics):
        values, ends = program.values[[metric]], program.ends[[metric]]
        found = find_optimum(replace(program, values=values, ends=ends))
        total += -np.inf if found is None else found.bound
    return total


def _gap(program: ConeProgram, mixture: Mixture, search: _Search) -> float:
    """How far the cost is from its bound, as a share of the excess variance."""
    value = program.value_of(mixture.prices)
    excess = value - float((program.prior * program.values**2).sum())
    return (value - search.bound) / max(excess, np.finfo(np.float64).tiny)


def _with_penalty(search: _Search, gap: float, priced: Priced) -> _Search:
    """The search with a lower penalty, if the gap is small enough or no set is worth adding."""
    fallen = np.sqrt(search.penalty / _FIRST_PENALTY)
    if gap > max(GOAL / 2, _NEAR * fallen) and len(priced.high):
        return search
    fall = _FALL if len(priced.high) else _LARGE_FALL
    penalty = search.penalty * fall
    return replace(search, penalty=penalty if penalty > 2 * _LAST_PENALTY else _LAST_PENALTY)


def _with_sets(program: ConeProgram, mixture: Mixture, search: _Search, priced: Priced) -> _Search:
    """The search with new sets, without idle ones if there are too many."""
    kept = search.high
    if len(kept) > _MOST_SETS:
        excess = program.excess(mixture.prices, kept)
        near = excess >= np.quantile(excess, 1 - _KEPT_SHARE)
        kept = kept[near | (mixture.mass > _USED)]
    return replace(search, high=distinct(np.vstack([kept, priced.high[:_MOST_ADDED]])))
