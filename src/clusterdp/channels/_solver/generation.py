"""The best mixture over all high sets, found by adding those that would improve it.

Prices of a program with few high sets jump from round to round where many are as good. So a penalty
holds them near the best prices so far, the *centre* (a proximal bundle method, as it is called).
Slack that it allows the equations vanishes as prices settle. Sets are also added that would improve
the mixture at prices on the way from the centre: the bound rises there first.

Now and then, and once prices have settled, the program is solved without a penalty: its mixture
fulfils the equations. The best such mixture is kept, and its sets are never dropped: without them
the equations can be fulfilled at a far higher cost only. If what it costs is far above the bound,
rounds go on with a lower penalty.

**Reduction**, from a mixture of many steps to one of few that is as good. An interior-point solver
spreads mass over every high set that does no harm. With what outputs count as fixed, the masses
solve a linear program of (m + 1)·K equations, m metrics and K categories. A simplex solution of it
has at most as many outputs. For its high sets the equations are linear in masses and, apart from
them, in means: both are then moved to hold to the precision of doubles.

Masses are changed by factors, never by terms: none falls below 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels._solver import sets as pricing
from clusterdp.channels._solver.program import Prices, solve_cones
from clusterdp.channels._solver.sets import distinct, first_sets

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray
    from clusterdp.channels._solver.program import ConeProgram, StepMixture
    from clusterdp.channels._solver.sets import PricedSets


# Rounds end once the excess variance is within this share of its lower bound; after much work, of
# some seconds, within the larger one, and after most in any case. Work is counted and not timed, so
# that a design is the same wherever it is made: numbers in the sets of all rounds.
GOAL, ROUGH_GOAL = 1e-3, 1e-2
_MUCH_WORK, _MOST_WORK = 5e6, 2e7
_MOST_ROUNDS, _MOST_PROOFS = 60, 3
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


class _Search:
    """The state of the search.

    Attributes:
        program: What is solved.
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
        goal: How near to the bound is near enough.
    """

    def __init__(self, program: ConeProgram, high: BoolArray, mixture: StepMixture) -> None:
        self.program, self.high, self.mixture = program, high, mixture
        nothing = Prices(np.zeros(program.n_categories), np.zeros(program.values.shape))
        self.centre = self.best = self.last = nothing
        self.bound, self.promised, self.proved = 0.0, np.inf, -np.inf
        self.penalty, self.n_proofs, self.goal = _FIRST_PENALTY, 0, GOAL

    def inform(self, priced: PricedSets) -> None:
        """Take the bound that pricing gives, if it is larger."""
        known = self.program.excess(priced.prices, self.high).max()
        prices = priced.prices.lowered(max(priced.most, known, 0.0), self.program.prior)
        bound = self.program.value_of(prices)
        if priced.is_proved:
            self.proved = max(self.proved, bound)
        if bound > self.bound:
            self.bound, self.best = bound, prices

    def move(self, before: float, last: Prices) -> None:
        """Move centre and penalty after a round, by how much of its promise was kept."""
        self.last, self.promised = last, self.program.value_of(last)
        kept = (self.bound - before) / max(self.promised - before, _TINY)
        if kept <= _SERIOUS:
            self.penalty = min(self.penalty * _HIGHER, _MOST_PENALTY)
            return
        self.centre = self.best
        if kept > _MUCH:
            self.penalty = max(self.penalty * _LOWER, _LEAST_PENALTY)

    def correct(self, proof: PricedSets) -> None:
        """Take the bound that a proof gives, which may be lower than was thought."""
        self.bound, self.n_proofs = -np.inf, self.n_proofs + 1
        self.inform(proof)
        self.centre = self.best

    def add_sets(self, added: list[BoolArray]) -> None:
        """Add sets, and drop idle ones if there are too many.

        Idle are those far from being used both at the best prices and at the last: the bound uses
        the former, and the latter depend on the sets.
        """
        kept = self.high
        if len(kept) + sum(map(len, added)) > _MOST_SETS:
            excess = [self.program.excess(prices, kept) for prices in (self.best, self.last)]
            order = np.argsort(-np.maximum(*excess), kind="stable")
            kept = kept[order[: int(_KEPT_SHARE * _MOST_SETS)]]
        used = self.mixture.high[self.mixture.mass > _USED]
        self.high = distinct(np.vstack([kept, used, *added]))

    def is_settled(self) -> bool:
        """Whether prices promise hardly more than the bound."""
        return self.promised - self.bound <= self.goal * (self.promised - self.program.spread)

    def is_near(self) -> bool:
        """Whether the best mixture costs hardly more than the bound."""
        cost = self.program.cost_of(self.mixture)
        return cost - self.bound <= self.goal * (cost - self.program.spread)

    def round(self, *, is_exact: bool) -> list[BoolArray]:
        """Take one round; sets worth adding."""
        program = self.program
        can_gain = max(self.promised - self.bound, 0.0)
        precision = max(_PRECISEST, _PRECISE * min(can_gain, 1.0))
        held = solve_cones(program, self.high, (self.penalty, self.centre), precision)
        if held is None:
            self.penalty *= _HIGHER
            return []
        before, centre, added = self.bound, self.centre, []
        for place in _PLACES:
            priced = pricing.price(program, centre.towards(held.prices, place), held)
            self.inform(priced)
            added.append(priced.high[:_MOST_ADDED])
        self.move(before, held.prices)
        is_settled = self.is_settled()
        if is_settled or is_exact:
            found = solve_cones(program, self.high)
            if found is not None and program.cost_of(found) < program.cost_of(self.mixture):
                self.mixture = found
        if is_settled and not self.is_near():
            self.penalty = max(self.penalty * _SETTLED_LOWER, _LEAST_PENALTY)
        return added

    def proof(self) -> PricedSets | None:
        """Every set priced at the best prices, if the bound is not proved and can be."""
        n_sets = pricing.n_sets_to_price(self.program)
        if self.bound == self.proved or n_sets > pricing.MOST_AT_ALL:
            return None
        return pricing.price_exactly(self.program, self.best)

    def proved_bound(self) -> float:
        """The largest bound that is proved."""
        if self.proved == -np.inf:
            proof = self.proof()
            if proof is None:
                return _separate_bound(self.program)
            self.correct(proof)
        return self.proved


def find_optimum(program: ConeProgram) -> tuple[StepMixture, float] | None:
    """The least-cost mixture, and a lower bound on the cost of any (−inf if none is known).

    None if the solver gives up.
    """
    high = first_sets(program)
    mixture = solve_cones(program, high)
    if mixture is None:
        return None
    search = _Search(program, high, mixture)
    priced = pricing.price(program, mixture.prices, mixture)
    search.inform(priced)
    # Prices far off are no centre to begin with, even where their bound is good.
    if not search.is_near():
        search = _Search(program, high, mixture)
    added, work = [priced.high[:_MOST_ADDED]], 0
    for number in range(1, _MOST_ROUNDS):
        if search.is_near():
            proof = search.proof()
            if proof is None or search.n_proofs == _MOST_PROOFS:
                break
            search.correct(proof)
            added.append(proof.high[:_MOST_ADDED])
            if search.is_near():
                break
        search.add_sets(added)
        work += search.high.size * (program.n_metrics + 1)
        is_last = work > _MOST_WORK
        search.goal = ROUGH_GOAL if work > _MUCH_WORK else GOAL
        added = search.round(is_exact=is_last or number % _EXACT_EVERY == 0)
        if is_last:
            break
    return search.mixture, search.proved_bound()


# What the program of a plan is solved to; of programs with more numbers, sets are not priced.
_NEAR, _MOST_PRICED = 1e-6, 100
# How often they are priced at most, and the share of the excess variance that is worth it again.
_MOST_PRICINGS, _LITTLE = 4, 1e-3


def near_optimum(program: ConeProgram) -> StepMixture | None:
    """A mixture that costs hardly more than the best, without a bound; for plans.

    First sets are nearly enough. For 64 categories and 2 metrics they cost up to 2.5% more excess
    variance than the best mixture. For 24 categories they cost up to 4% more, and 0.2% with those
    that few pricings add. The search takes 3 to 10 times as long.
    """
    high = first_sets(program)
    mixture = solve_cones(program, high, precision=_NEAR)
    if mixture is None or program.values.size > _MOST_PRICED:
        return mixture
    for _ in range(_MOST_PRICINGS):
        priced = pricing.price(program, mixture.prices, mixture)
        high = distinct(np.vstack([high, priced.high[:_MOST_ADDED]]))
        better = solve_cones(program, high, precision=_NEAR)
        if better is None:
            break
        gained, mixture = program.cost_of(mixture) - program.cost_of(better), better
        if gained <= _LITTLE * (program.cost_of(mixture) - program.spread):
            break
    return mixture


def _separate_bound(program: ConeProgram) -> float:
    """What metrics would cost if each had a channel of its own: valid, and far below."""
    if program.n_metrics == 1:
        return -np.inf
    found = [find_optimum(program.of_metric(metric)) for metric in range(program.n_metrics)]
    return sum(-np.inf if alone is None else alone[1] for alone in found)


# Steps nowhere more probable than this are left out before; and after, if equations hold without.
_UNUSED, _NEGLIGIBLE = 1e-13, (1e-6, 1e-8, 1e-10, 0.0)
# Steps of Newton's method, until equations are wrong by no more than rounding; and of refinement.
_MOST_STEPS, _ROUNDING, _POLISHINGS = 40, 4e-15, 3
# A direction of categories in which steps differ by less, relative to the others, is not spanned.
_SPANNED = 1e-14
# Equations must hold to this. Outputs that reveal may exceed their ends by so much: ends are for
# variance, not for privacy.
_EXACT, _BEYOND = 1e-11, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReducedMixture:
    """Few steps that fulfil the equations of a program.

    Attributes:
        high: High sets; axes `[step, category]`.
        mass: μ, above 0; axes `[step]`.
        outputs: What each counts as, q/μ; axes `[step, metric]`.
        reveals: ρ; axes `[metric, category]`.
        cost: Σ μ·|output|², and what revealing costs.
    """

    high: BoolArray
    mass: FloatArray
    outputs: FloatArray
    reveals: FloatArray
    cost: float


def reduce_mixture(program: ConeProgram, mixture: StepMixture) -> ReducedMixture | None:
    """At most (m + 1)·K of a mixture's steps, as good as all; None if the equations are lost."""
    used = _likeliest(program, mixture.high, mixture.mass) > _UNUSED
    mass = mixture.mass[used]
    outputs = mixture.moved[used] / mass[:, np.newaxis]
    full = _polished(program, mixture.high[used], mass, outputs, mixture.reveals)
    if len(full.mass) <= (program.n_metrics + 1) * program.n_categories:
        return _best_exact(program, full, full.mass)
    return _best_exact(program, full, _eliminated(program, full))


def _best_exact(
    program: ConeProgram, full: ReducedMixture, mass: FloatArray
) -> ReducedMixture | None:
    """The steps of these masses without the negligible ones, at its best; None if not exact."""
    likeliest = _likeliest(program, full.high, mass)
    exact = []
    for negligible in _NEGLIGIBLE:
        kept = likeliest > negligible
        reduced = _polished(program, full.high[kept], mass[kept], full.outputs[kept], full.reveals)
        if _is_exact(program, reduced):
            exact.append(reduced)
    return min(exact, key=lambda reduced: reduced.cost, default=None)


def _likeliest(program: ConeProgram, high: BoolArray, mass: FloatArray) -> FloatArray:
    """The largest probability of each step under any category; axes `[step]`."""
    return np.asarray(mass * program.levels(high).max(axis=1))


def _eliminated(program: ConeProgram, full: ReducedMixture) -> FloatArray:
    """Masses of at most as many steps as there are equations, at no higher cost.

    Steps join in turn, likeliest first; as many as are too many are then emptied.
    """
    # What a unit of each mass adds to probabilities and means; axes `[equation, step]`.
    levels = program.levels(full.high).T
    equations = np.vstack([levels, *[levels * output for output in full.outputs.T]])
    costs = (full.outputs**2).sum(axis=1)
    order = np.argsort(-full.mass, kind="stable")
    mass = np.zeros(len(order))
    n_equations = len(equations)
    kept = order[:0]
    for begin in range(0, len(order), n_equations):
        joining = order[begin : begin + n_equations]
        mass[joining] = full.mass[joining]
        kept = np.concatenate([kept, joining])
        mass[kept] *= _emptied(equations[:, kept] * mass[kept], costs[kept] * mass[kept])
        kept = kept[mass[kept] > 0]
    return mass


def _emptied(equations: FloatArray, costs: FloatArray) -> FloatArray:
    """Shares of steps, of which at most as many are above 0 as there are equations.

    Along a direction that changes no equation, shares are moved, never towards a higher cost, until
    one of them is 0. The other directions are then freed of that step.
    """
    from scipy.linalg import qr

    shares = np.ones(len(costs))
    directions = qr(equations.T)[0][:, len(equations) :]
    while directions.shape[1]:
        way = directions[:, 0] * (-1.0 if costs @ directions[:, 0] > 0 else 1.0)
        falling = np.flatnonzero(way < 0)
        ends = shares[falling] / -way[falling]
        emptied = falling[ends.argmin()]
        shares = np.maximum(shares + ends.min() * way, 0.0)
        shares[emptied] = 0.0
        others = directions[:, 1:]
        directions = others - np.outer(way, others[emptied] / way[emptied])
        directions[emptied] = 0.0
    return shares


def _right(program: ConeProgram, reveals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What steps must add up to: probabilities `[category]` and means `[metric, category]`."""
    totals = np.full(program.n_categories, 1 - program.delta)
    return totals, program.values - program.delta * reveals


def _polished(
    program: ConeProgram,
    high: BoolArray,
    mass: FloatArray,
    outputs: FloatArray,
    reveals: FloatArray,
) -> ReducedMixture:
    """Steps whose equations hold to the precision of doubles, not of the solver."""
    levels = program.levels(high)
    totals, means = _right(program, reveals)
    moved = outputs * mass[:, np.newaxis]
    # Of all changes those that are least in relation to mass: of masses in relative entropy (by
    # Newton's method), of means in squares.
    for _ in range(_MOST_STEPS):
        inverse, wrong = _inverse(levels, mass), totals - mass @ levels
        if np.abs(wrong).max() <= _ROUNDING:
            break
        change = levels @ (inverse @ wrong)
        mass = mass * np.exp(change / max(1.0, np.abs(change).max()))
    for _ in range(_POLISHINGS):
        moved = moved + mass[:, np.newaxis] * (levels @ (inverse @ (means - moved.T @ levels).T))
    if program.delta:  # what steps cannot make up for
        reveals = (program.values - moved.T @ levels) / program.delta
    outputs = moved / mass[:, np.newaxis]
    revealed = program.delta * float((program.prior * reveals**2).sum())
    cost = float((outputs**2).sum(axis=1) @ mass) + revealed
    return ReducedMixture(high=high, mass=mass, outputs=outputs, reveals=reveals, cost=cost)


def _inverse(levels: FloatArray, mass: FloatArray) -> FloatArray:
    """The inverse of Σ_A μ_A·L_A·L_A', or its pseudo-inverse; axes `[category, category]`."""
    sizes, directions = np.linalg.eigh((levels * mass[:, np.newaxis]).T @ levels)
    spanned = sizes > _SPANNED * sizes[-1]
    return np.asarray((directions[:, spanned] / sizes[spanned]) @ directions[:, spanned].T)


def _is_exact(program: ConeProgram, reduced: ReducedMixture) -> bool:
    """Whether masses are above 0, all equations hold, and what reveals is within its ends."""
    if not len(reduced.mass) or not (reduced.mass > 0).all():
        return False
    levels = program.levels(reduced.high)
    totals, means = _right(program, reduced.reveals)
    wrong_totals = np.abs(reduced.mass @ levels - totals).max()
    wrong_means = np.abs((reduced.outputs.T * reduced.mass) @ levels - means).max()
    beyond = np.maximum(
        program.ends[:, :1] - reduced.reveals, reduced.reveals - program.ends[:, 1:]
    )
    within = not program.delta or beyond.max() <= _BEYOND
    return bool(max(wrong_totals, wrong_means) <= _EXACT and within)
