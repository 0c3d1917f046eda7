"""The best mixture over all high sets, found by adding those that would improve it.

Prices of a program with few high sets jump from round to round where many are as good. So a penalty
holds them near the best prices so far, the *centre* (a proximal bundle method, as it is called).
Slack that it allows the equations vanishes as prices settle. Once they have, the program is solved
without it; if what that costs is far above the bound, rounds go on with a lower penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels import pricing
from clusterdp.channels.cone_program import ROUGH, Pull, solve_cones
from clusterdp.channels.high_sets import MOST_FOR_ALL_SETS, distinct, first_sets

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray
    from clusterdp.channels.cone_program import ConeProgram, Mixture, Prices
    from clusterdp.channels.pricing import Priced

# Rounds end once the excess variance is within this share of its lower bound.
GOAL = 3e-4
# At a penalty, rounds have come to rest once it is within this share of what prices promise.
_SETTLED = 1e-4
_MOST_ROUNDS, _MOST_PROOFS = 40, 3
# Penalties of the first and of the last rounds, by what they fall, and that of the mixture itself.
_FIRST_PENALTY, _LAST_PENALTY, _FALL, _NO_PENALTY = 1e-2, 1e-5, 0.1, 1e-10
# The centre moves where the bound rises by this share of what prices promised; if by so much more,
# the penalty falls.
_SERIOUS, _MUCH, _LOWER = 0.1, 1 / 3, 0.5
_TINY = np.finfo(np.float64).tiny
# Sets added in a round. Beyond so many rows of cones the idle sets go: all but this share of the
# best.
_MOST_ADDED, _MOST_ROWS, _KEPT_SHARE = 200, 5000, 0.7


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
        most_penalty: The largest that it may be.
        centre: The prices that others are held near to; None before the first round.
        bound: The largest value of prices that no set exceeds, as far as is known.
        best: The prices of that value.
        proved: The largest value of prices that no set at all exceeds.
        n_proofs: How often the bound was proved or corrected.
        is_done: Whether rounds end.
        mixture: What is best for the sets so far, without a penalty; None while rounds go on.
    """

    high: BoolArray
    penalty: float
    most_penalty: float
    centre: Prices | None = None
    bound: float = -np.inf
    best: Prices | None = None
    proved: float = -np.inf
    n_proofs: int = 0
    is_done: bool = False
    mixture: Mixture | None = None

    def informed(self, program: ConeProgram, priced: Priced) -> _Search:
        """The search with the bound that pricing gives, and the centre there if it has risen."""
        known = program.excess(priced.prices, self.high).max()
        prices = priced.prices.lowered(max(priced.most, known, 0.0), program.prior)
        bound = program.value_of(prices)
        proved = max(self.proved, bound) if priced.is_proved else self.proved
        kept = (bound - self.bound) / max(program.value_of(priced.prices) - self.bound, _TINY)
        search = replace(self, proved=proved, penalty=self._penalty_after(kept))
        if self.centre is None or kept > _SERIOUS:
            search = replace(search, centre=prices)
        return replace(search, bound=bound, best=prices) if bound > self.bound else search

    def _penalty_after(self, kept: float) -> float:
        """The next penalty: lower where a round kept much of its promise, higher where little."""
        if kept > _MUCH:
            return self.penalty * _LOWER
        return min(self.penalty / _LOWER, self.most_penalty) if kept < _SERIOUS else self.penalty

    def corrected(self, program: ConeProgram, proof: Priced) -> _Search:
        """The search with the bound that a proof gives, which may be lower than was thought."""
        lower = replace(self, bound=-np.inf, n_proofs=self.n_proofs + 1)
        return lower.informed(program, proof)

    def gap(self, program: ConeProgram, mixture: Mixture) -> float:
        """How far a mixture's cost is above the bound, as a share of the excess variance."""
        value = program.value_of(mixture.prices)
        return (value - self.bound) / max(value - program.spread, _TINY)


def find_optimum(program: ConeProgram) -> Optimum | None:
    """The least-cost mixture; None if the solver gives up."""
    penalty = _first_penalty(program)
    search = _Search(high=first_sets(program), penalty=penalty, most_penalty=penalty)
    for _ in range(_MOST_ROUNDS):
        mixture = solve_cones(program, search.high, Pull(search.penalty, search.centre), ROUGH)
        if mixture is None:
            break
        priced = pricing.price(program, mixture.prices, mixture)
        search = search.informed(program, priced)
        if search.gap(program, mixture) <= _SETTLED or not len(priced.high):
            priced, search = _settled(program, search, priced)
            if search.is_done:
                break
        search = _with_sets(program, mixture, search, priced)
    mixture = search.mixture if search.is_done else None
    mixture = mixture or solve_cones(program, search.high, Pull(_NO_PENALTY))
    return None if mixture is None else Optimum(mixture, _bound(program, search, mixture))


def _settled(program: ConeProgram, search: _Search, priced: Priced) -> tuple[Priced, _Search]:
    """The search after rounds have come to rest: done, or with a lower penalty or a truer bound."""
    mixture = solve_cones(program, search.high, Pull(_NO_PENALTY))
    if mixture is None or search.gap(program, mixture) > GOAL:
        is_done = search.most_penalty <= _LAST_PENALTY
        lower = search.most_penalty * _FALL
        return priced, replace(
            search, mixture=mixture, is_done=is_done, most_penalty=lower, penalty=lower
        )
    proof = _proof(program, search)
    if proof is None or search.n_proofs == _MOST_PROOFS:
        return priced, replace(search, mixture=mixture, is_done=True)
    search = search.corrected(program, proof)
    is_done = search.gap(program, mixture) <= GOAL
    return proof, replace(search, mixture=mixture, is_done=is_done)


def _first_penalty(program: ConeProgram) -> float:
    """Small where sets to begin with are all that matter, or nearly so."""
    is_small = program.n_categories <= MOST_FOR_ALL_SETS or program.n_metrics == 1
    return _LAST_PENALTY if is_small else _FIRST_PENALTY


def _proof(program: ConeProgram, search: _Search) -> Priced | None:
    """Every set priced at the best prices, if the bound is not proved and can be."""
    if search.best is None or search.bound == search.proved or not pricing.can_be_exact(program):
        return None
    return pricing.price_exactly(program, search.best)


def _bound(program: ConeProgram, search: _Search, mixture: Mixture) -> float:
    """The largest bound that is proved."""
    if pricing.is_exact_every_round(program):
        search = search.informed(program, pricing.price_exactly(program, mixture.prices))
    if search.proved > -np.inf:
        return search.proved
    proof = _proof(program, search)
    if proof is None:
        return _separate_bound(program)
    return search.corrected(program, proof).proved


def _separate_bound(program: ConeProgram) -> float:
    """What metrics would cost if each had a channel of its own: valid, and far below."""
    if program.n_metrics == 1:
        return -np.inf
    found = [find_optimum(program.of_metric(metric)) for metric in range(program.n_metrics)]
    return sum(-np.inf if alone is None else alone.bound for alone in found)


def _with_sets(program: ConeProgram, mixture: Mixture, search: _Search, priced: Priced) -> _Search:
    """The search with new sets, without idle ones if there are too many."""
    kept = search.high
    if len(kept) * (program.n_metrics + 2) > _MOST_ROWS:
        excess = program.excess(mixture.prices, kept)
        kept = kept[excess >= np.quantile(excess, 1 - _KEPT_SHARE)]
    return replace(search, high=distinct(np.vstack([kept, priced.high[:_MOST_ADDED]])))
