"""The best mixture over all high sets, found by adding those that would improve it.

Prices of a program with few high sets jump from round to round where many are as good. So a penalty
holds them near the best prices so far, the *centre* (a proximal bundle method, as it is called).
Slack that it allows the equations vanishes as prices settle. Sets are also added that would improve
the mixture at prices on the way from the centre: the bound rises there first.

Now and then, and once prices have settled, the program is solved without a penalty: its mixture
fulfils the equations. The best such mixture is kept, and its sets are never dropped: without them
the equations can be fulfilled at a far higher cost only. If what it costs is far above the bound,
rounds go on with a lower penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels import pricing
from clusterdp.channels.cone_program import Prices, Pull
from clusterdp.channels.high_sets import distinct, first_sets
from clusterdp.channels.interior_point import solve_cones

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray
    from clusterdp.channels.cone_program import ConeProgram, Mixture
    from clusterdp.channels.pricing import Priced

# Rounds end once the excess variance is within this share of its lower bound.
GOAL = 1e-3
_MOST_ROUNDS, _MOST_PROOFS = 60, 3
_ROUGH_ROUNDS = 2
# In one of so many rounds the program is solved without a penalty, whether prices settled or not.
_EXACT_EVERY = 8
# Where sets are priced: shares of the way from the centre to the prices found.
_PLACES = (1.0, 0.5, 0.2)
# The first penalty, the least and the largest.
_FIRST_PENALTY, _LEAST_PENALTY, _MOST_PENALTY = 1e-3, 1e-7, 10.0
# The centre moves where the bound rises by this share of what prices promised, else the penalty
# rises; if by so much more, or if prices have settled in vain, it falls.
_SERIOUS, _HIGHER = 0.1, 2.0
_MUCH, _LOWER, _SETTLED_LOWER = 1 / 3, 0.3, 0.2
# Prices are found to this share of what they can still gain, and to no less than so much.
_PRECISE, _PRECISEST = 0.05, 1e-6
_TINY = np.finfo(np.float64).tiny
# Sets added at a place. Beyond so many sets the idle ones go: all but this share, and but those
# that the best mixture uses. With fewer, sets that hold prices back are dropped and found again.
_MOST_ADDED, _MOST_SETS, _KEPT_SHARE, _USED = 200, 3000, 0.67, 1e-6


class Optimum(NamedTuple):
    """The best mixture found, and a lower bound on the cost of any; −inf if there is none."""

    mixture: Mixture
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Search:
    """The state of the search.

    Attributes:
        high: The high sets so far; axes `[set, category]`.
        mixture: The best mixture whose equations hold.
        centre: The prices that others are held near to.
        bound: The largest value of prices that no set exceeds, as far as is known.
        best: The prices of that value.
        last: The last prices found.
        promised: Their value.
        penalty: The weight of the penalty on prices.
        proved: The largest value of prices that no set at all exceeds.
        n_proofs: How often the bound was proved or corrected.
    """

    high: BoolArray
    mixture: Mixture
    centre: Prices
    bound: float = 0.0
    best: Prices
    last: Prices
    promised: float = np.inf
    penalty: float = _FIRST_PENALTY
    proved: float = -np.inf
    n_proofs: int = 0

    def informed(self, program: ConeProgram, priced: Priced) -> _Search:
        """The search with the bound that pricing gives, if it is larger."""
        known = program.excess(priced.prices, self.high).max()
        prices = priced.prices.lowered(max(priced.most, known, 0.0), program.prior)
        bound = program.value_of(prices)
        proved = max(self.proved, bound) if priced.is_proved else self.proved
        search = replace(self, proved=proved)
        return replace(search, bound=bound, best=prices) if bound > self.bound else search

    def moved(self, program: ConeProgram, before: float, last: Prices) -> _Search:
        """The search after a round: centre and penalty by how much of its promise was kept."""
        promised = program.value_of(last)
        kept = (self.bound - before) / max(promised - before, _TINY)
        search = replace(self, last=last, promised=promised)
        if kept <= _SERIOUS:
            return replace(search, penalty=min(self.penalty * _HIGHER, _MOST_PENALTY))
        lower = max(self.penalty * _LOWER, _LEAST_PENALTY) if kept > _MUCH else self.penalty
        return replace(search, centre=self.best, penalty=lower)

    def corrected(self, program: ConeProgram, proof: Priced) -> _Search:
        """The search with the bound that a proof gives, which may be lower than was thought."""
        lower = replace(self, bound=-np.inf, n_proofs=self.n_proofs + 1).informed(program, proof)
        return replace(lower, centre=lower.best)

    def with_mixture(self, program: ConeProgram, mixture: Mixture | None) -> _Search:
        """The search with the better of two mixtures."""
        if mixture is None or program.cost_of(mixture) >= program.cost_of(self.mixture):
            return self
        return replace(self, mixture=mixture)

    def with_sets(self, program: ConeProgram, added: list[BoolArray]) -> _Search:
        """The search with more sets, without idle ones if there are too many.

        Idle are those far from being used both at the best prices and at the last: the bound is of
        the former, and the latter are where they are because of sets.
        """
        kept = self.high
        if len(kept) + sum(map(len, added)) > _MOST_SETS:
            excess = [program.excess(prices, kept) for prices in (self.best, self.last)]
            order = np.argsort(-np.maximum(*excess), kind="stable")
            kept = kept[order[: int(_KEPT_SHARE * _MOST_SETS)]]
        used = self.mixture.high[self.mixture.mass > _USED]
        return replace(self, high=distinct(np.vstack([kept, used, *added])))

    def is_settled(self, program: ConeProgram) -> bool:
        """Whether prices promise hardly more than the bound."""
        return self.promised - self.bound <= GOAL * (self.promised - program.spread)

    def is_near(self, program: ConeProgram) -> bool:
        """Whether the best mixture costs hardly more than the bound."""
        cost = program.cost_of(self.mixture)
        return cost - self.bound <= GOAL * (cost - program.spread)


def find_optimum(program: ConeProgram) -> Optimum | None:
    """The least-cost mixture; None if the solver gives up."""
    high = first_sets(program)
    mixture = solve_cones(program, high)
    if mixture is None:
        return None
    nothing = Prices(np.zeros(program.n_categories), np.zeros(program.values.shape))
    search = _Search(high=high, mixture=mixture, centre=nothing, best=nothing, last=nothing)
    priced = pricing.price(program, mixture.prices, mixture)
    informed = search.informed(program, priced)
    # Prices far off are no centre to begin with, even where their bound is good.
    search = informed if informed.is_near(program) else search
    added = [priced.high[:_MOST_ADDED]]
    for number in range(1, _MOST_ROUNDS):
        if search.is_near(program):
            proof = _proof(program, search)
            if proof is None or search.n_proofs == _MOST_PROOFS:
                break
            search = search.corrected(program, proof)
            added.append(proof.high[:_MOST_ADDED])
            if search.is_near(program):
                break
        search = search.with_sets(program, added)
        search, added = _round(program, search, is_exact=number % _EXACT_EVERY == 0)
    return Optimum(search.mixture, _bound(program, search))


def find_roughly(program: ConeProgram) -> Mixture | None:
    """A mixture a few percent above the least cost, soon; None if the solver gives up."""
    high = first_sets(program)
    mixture = solve_cones(program, high, precision=_PRECISEST)
    for _ in range(_ROUGH_ROUNDS):
        if mixture is None:
            return None
        added = pricing.price_locally(program, mixture.prices, mixture).high
        high = distinct(np.vstack([high, added]))
        mixture = solve_cones(program, high, precision=_PRECISEST)
    return mixture


def _round(
    program: ConeProgram, search: _Search, *, is_exact: bool
) -> tuple[_Search, list[BoolArray]]:
    """The search after one round, and sets worth adding."""
    can_gain = max(search.promised - search.bound, 0.0)
    precision = max(_PRECISEST, _PRECISE * min(can_gain, 1.0))
    held = solve_cones(program, search.high, Pull(search.penalty, search.centre), precision)
    if held is None:
        return replace(search, penalty=search.penalty * _HIGHER), []
    before, centre, added = search.bound, search.centre, []
    for place in _PLACES:
        priced = pricing.price(program, centre.towards(held.prices, place), held)
        search = search.informed(program, priced)
        added.append(priced.high[:_MOST_ADDED])
    search = search.moved(program, before, held.prices)
    is_settled = search.is_settled(program)
    if is_settled or is_exact:
        search = search.with_mixture(program, solve_cones(program, search.high))
    if is_settled and not search.is_near(program):
        search = replace(search, penalty=max(search.penalty * _SETTLED_LOWER, _LEAST_PENALTY))
    return search, added


def _proof(program: ConeProgram, search: _Search) -> Priced | None:
    """Every set priced at the best prices, if the bound is not proved and can be."""
    if search.bound == search.proved or not pricing.can_be_exact(program):
        return None
    return pricing.price_exactly(program, search.best)


def _bound(program: ConeProgram, search: _Search) -> float:
    """The largest bound that is proved."""
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
