"""The unbiased channel of least variance that (ε, δ) allows, as real numbers.

Minimise Σ_y p(y) Σ_s P(s|y)(s − y)² over outputs s and probabilities with Σ_s P(s|y) = 1 and
Σ_s s·P(s|y) = y for every outcome y, and P(s|y) ≤ e^ε P(s|y′). The probabilities of one output are
a combination of steps, low on some outcomes and e^ε times as high on the others (these are the
extreme rays of the constraint). So the channel is a mixture of steps (s, high set): a linear
program with a column for each, solved by generating columns. With δ > 0 each outcome may also spend
δ on outputs of its own, no farther out than those of Duchi's two-point mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import BoolArray, FloatArray, IntArray

# The channel is proven to be within this of the least variance; it usually is ten times nearer.
TOLERANCE = 5e-3
# The proof takes most of the time where outcomes are many: less is asked of it there.
_MANY_OUTCOMES, _MANY_TOLERANCE = 32, 5e-2
_MOST_ROUNDS = 100
# Beyond this many outcomes, the columns of a problem of half as many are a start.
_COARSE_OUTCOMES = 16
# Columns kept, times the number of outcomes, and when to throw others away.
_KEPT_COLUMNS, _MOST_COLUMNS = 8, 12
_NEGLIGIBLE = 1e-12
_POLISHINGS = 4
# How a program is solved. Constraints that hold to 1e-10 can be made exact in integers; where the
# solver gives that up, its own 1e-7 must do.
_PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-9}
_ATTEMPTS: tuple[tuple[str, dict[str, float]], ...] = (
    ("highs", _PRECISE),
    ("highs", {}),
    ("highs-ipm", {}),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Outputs whose probability has two levels.

    Attributes:
        outputs: What is released; axes `[step]`.
        high: The outcomes under which it is likelier; axes `[step, true]`.
        low: Its probability under the others; axes `[step]`.
    """

    outputs: FloatArray
    high: BoolArray
    low: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reveals:
    """Outputs that occur under one outcome only, within δ.

    Attributes:
        outputs: What is released; axes `[reveal]`.
        outcomes: The outcome; axes `[reveal]`.
        probs: The probability, given that outcome; axes `[reveal]`.
    """

    outputs: FloatArray
    outcomes: IntArray
    probs: FloatArray


class Staircase(NamedTuple):
    """A channel in real numbers: P(s|y) = low, or `ratio` times low, plus what is revealed."""

    steps: Steps
    reveals: Reveals
    ratio: float


def design_staircases(
    values: FloatArray, priors: FloatArray, *, ratio: float, delta: float = 0.0
) -> Iterator[Staircase | None]:
    """The channel of least expected variance for each of several priors.

    What one channel is made of is a good start for the next. Where the solver gives up there is
    None in its place.

    Args:
        values: Outcome values, increasing; axes `[outcome]`.
        priors: How likely outcomes are thought to be, each above 0; axes `[prior, outcome]`.
        ratio: e^ε.
        delta: δ.
    """
    centre, span = (values[0] + values[-1]) / 2, values[-1] - values[0]
    scaled = (values - centre) / span
    start = _first_columns(scaled, ratio)
    if len(values) > _COARSE_OUTCOMES and len(priors):
        start = _coarse_columns(scaled, priors[0], ratio, delta, start)
    for prior in priors:
        found, start = _design(scaled, prior, ratio, delta, start)
        if found is None:
            yield None
            continue
        steps, reveals = found.steps, found.reveals
        yield Staircase(
            Steps(outputs=centre + span * steps.outputs, high=steps.high, low=steps.low),
            Reveals(
                outputs=centre + span * reveals.outputs,
                outcomes=reveals.outcomes,
                probs=reveals.probs,
            ),
            ratio,
        )


def _coarse_columns(
    values: FloatArray, prior: FloatArray, ratio: float, delta: float, first: _Columns
) -> _Columns:
    """The first columns, and those of the problem with every two neighbouring outcomes as one."""
    pairs = np.arange(len(values)) // 2
    coarse_values: FloatArray = np.bincount(pairs, values) / np.bincount(pairs)
    coarse_prior = np.asarray(np.bincount(pairs, prior), dtype=np.float64)
    start = _first_columns(coarse_values, ratio)
    if len(coarse_values) > _COARSE_OUTCOMES:
        start = _coarse_columns(coarse_values, coarse_prior, ratio, delta, start)
    coarse, _ = _design(coarse_values, coarse_prior, ratio, delta, start)
    if coarse is None:
        return first
    return first.joined(coarse.steps.outputs, coarse.steps.high[:, pairs])


def _design(
    values: FloatArray, prior: FloatArray, ratio: float, delta: float, start: _Columns
) -> tuple[Staircase | None, _Columns]:
    """The channel for a prior, or None if none was found; and the columns it was found among."""
    program, columns = _Program(values, prior, ratio, delta), start
    solution = program.solve(columns)
    if solution is None:
        return None, start
    tolerance = TOLERANCE if len(values) <= _MANY_OUTCOMES else _MANY_TOLERANCE
    for _ in range(_MOST_ROUNDS):
        priced = program.price(solution)
        if priced.shortfall <= tolerance * solution.variance:
            break
        more = program.without_idle(columns, solution)
        more = more.joined(priced.outputs, priced.high)
        better = program.solve(more)
        if better is None:  # what was found before is a channel, too
            break
        columns, solution = more, better
    return program.channel(columns, solution), columns


class _Columns(NamedTuple):
    """Candidate steps: outputs `[step]` and high sets `[step, true]`."""

    outputs: FloatArray
    high: BoolArray

    def joined(self, outputs: FloatArray, high: BoolArray) -> _Columns:
        return _Columns(np.concatenate([self.outputs, outputs]), np.vstack([self.high, high]))


class _Solution(NamedTuple):
    """The best mixture of some columns, with the dual prices of the constraints."""

    variance: float
    weights: FloatArray  # [step], scaled to unit mass
    reveal_weights: FloatArray  # [reveal]
    price_total: FloatArray  # u, [true]
    price_mean: FloatArray  # v, [true]
    price_reveal: FloatArray  # [true], empty without δ


class _Priced(NamedTuple):
    """Columns that would improve a solution, and at most by how much in all."""

    outputs: FloatArray
    high: BoolArray
    shortfall: float


def _two_points(values: FloatArray, ratio: float) -> tuple[float, float]:
    """The outputs of Duchi's two-point mechanism."""
    middle, half = (values[-1] + values[0]) / 2, (values[-1] - values[0]) / 2
    reach = half * (ratio + 1) / (ratio - 1)
    return middle - reach, middle + reach


def _first_columns(values: FloatArray, ratio: float) -> _Columns:
    """Steps of Duchi's two-point mechanism and of k-ary randomized response: both are feasible."""
    n_outcomes = len(values)
    upper = np.arange(n_outcomes) >= np.arange(1, n_outcomes)[:, np.newaxis]
    least, largest = _two_points(values, ratio)
    keep = (ratio - 1) / (ratio - 1 + n_outcomes)
    kept = (values - (1 - keep) * values.mean()) / keep
    ends = np.repeat([largest, least], n_outcomes - 1)
    return _Columns(
        np.concatenate([ends, kept]),
        np.vstack([upper, ~upper, np.eye(n_outcomes, dtype=np.bool_)]),
    )


def _n_first(n_outcomes: int) -> int:
    """How many columns `_first_columns` returns."""
    return 3 * n_outcomes - 2


def _polished(weights: FloatArray, constraints: FloatArray, right: FloatArray) -> FloatArray:
    """A solution whose constraints hold to the precision of doubles, not of the solver."""
    polished = np.where(weights > _NEGLIGIBLE, weights, 0.0)
    for _ in range(_POLISHINGS):
        used = np.flatnonzero(polished)
        missing = right - constraints[:, used] @ polished[used]
        change = np.linalg.lstsq(constraints[:, used], missing, rcond=None)[0]
        # A weight that would fall below 0 is not used; the next round makes up for it.
        polished[used] = np.maximum(polished[used] + change, 0.0)
    return polished


class _Program:
    """The linear program for one prior: f_y(s) = p(y)(s − y)² is what an output costs."""

    def __init__(self, values: FloatArray, prior: FloatArray, ratio: float, delta: float) -> None:
        self._values, self._prior, self._ratio, self._delta = values, prior, ratio, delta
        # A rare output far out would save variance, and no mean of it would be near normal: what
        # reveals stays within what the two-point mechanism releases.
        self._ends = _two_points(values, ratio)
        self._revealed = values.copy()  # outputs that reveal, one candidate per outcome so far
        self._revealing = np.arange(len(values))

    def solve(self, columns: _Columns) -> _Solution | None:
        """The best mixture of columns; None if the solver gives up."""
        from scipy.optimize import linprog

        n_outcomes, n_steps = len(self._values), len(columns.outputs)
        cost, constraints, right = self._program(columns)
        for method, options in _ATTEMPTS:
            found = linprog(cost, A_eq=constraints, b_eq=right, method=method, options=options)
            if found.status == 0:
                break
        else:
            return None
        prices = found.eqlin.marginals
        weights = _polished(found.x, constraints, right)
        return _Solution(
            variance=float(found.fun),
            weights=weights[:n_steps],
            reveal_weights=weights[n_steps:],
            price_total=prices[:n_outcomes],
            price_mean=prices[n_outcomes : 2 * n_outcomes],
            price_reveal=prices[2 * n_outcomes :],
        )

    def price(self, solution: _Solution) -> _Priced:
        """The best output for every high set that prices can make best.

        At output s the best high set is where g_y(s) = f_y(s) − u_y − s·v_y is negative. It changes
        only at the roots of these parabolas; between two of them the best output is that of one
        parabola.
        """
        slope = 2 * self._prior * self._values + solution.price_mean
        constant = self._prior * self._values**2 - solution.price_total
        under_root = slope**2 - 4 * self._prior * constant
        real = under_root > 0
        half = np.sqrt(under_root[real])
        roots = np.sort(
            np.concatenate([slope[real] - half, slope[real] + half])
            / np.tile(2 * self._prior[real], 2)
        )
        edges = np.concatenate([[-np.inf], roots, [np.inf]])
        inside = np.zeros(1)
        if len(roots):
            inside = np.concatenate([[roots[0] - 1], (roots[1:] + roots[:-1]) / 2, [roots[-1] + 1]])
        levels = self._levels(self._reduced(inside, solution) < 0)
        outputs = (levels @ slope) / (2 * levels @ self._prior)
        outputs = np.clip(outputs, edges[:-1], edges[1:])
        reduced = self._reduced(outputs, solution)
        high = reduced < 0
        levels = self._levels(high)
        gains = (levels * reduced).sum(axis=1) / (levels @ self._prior)
        shortfall = -(1 - self._delta) * min(float(gains.min()), 0.0)
        if self._delta:
            shortfall += self._price_reveals(solution)
        better = gains < 0
        return _Priced(outputs[better], high[better], shortfall)

    def without_idle(self, columns: _Columns, solution: _Solution) -> _Columns:
        """The columns that are nearest to being used, when there are too many.

        The first columns always stay, and stay first: with them every program has a solution,
        whatever the prior.
        """
        n_outcomes = len(self._values)
        if len(columns.outputs) <= _MOST_COLUMNS * n_outcomes:
            return columns
        cost, total, mean = self._moments(columns)
        idle = cost - solution.price_total @ total - solution.price_mean @ mean
        idle[: _n_first(n_outcomes)] = -np.inf
        kept = np.sort(np.argsort(idle, kind="stable")[: _KEPT_COLUMNS * n_outcomes])
        return _Columns(columns.outputs[kept], columns.high[kept])

    def channel(self, columns: _Columns, solution: _Solution) -> Staircase:
        """The columns that are used."""
        used = solution.weights > _NEGLIGIBLE
        n_reveals = len(solution.reveal_weights)
        revealed = np.flatnonzero(solution.reveal_weights > _NEGLIGIBLE * self._delta)
        return Staircase(
            Steps(
                outputs=columns.outputs[used],
                high=columns.high[used],
                low=solution.weights[used] / (self._levels(columns.high[used]) @ self._prior),
            ),
            Reveals(
                outputs=self._revealed[:n_reveals][revealed],
                outcomes=self._revealing[:n_reveals][revealed],
                probs=solution.reveal_weights[revealed],
            ),
            self._ratio,
        )

    def _program(self, columns: _Columns) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Costs, equality constraints and their right-hand sides."""
        n_outcomes = len(self._values)
        cost, total, mean = self._moments(columns)
        right = np.concatenate([np.full(n_outcomes, 1 - self._delta), self._values])
        if not self._delta:
            return cost, np.vstack([total, mean]), right
        own = np.eye(n_outcomes)[:, self._revealing]
        own_cost = self._cost(self._revealed)[np.arange(len(self._revealing)), self._revealing]
        constraints = np.block(
            [
                [total, np.zeros_like(own)],
                [mean, own * self._revealed],
                [np.zeros_like(total), own],
            ]
        )
        right = np.concatenate([right, np.full(n_outcomes, self._delta)])
        return np.concatenate([cost, own_cost]), constraints, right

    def _price_reveals(self, solution: _Solution) -> float:
        """Add for each outcome the output that pays most; returns what they would save."""
        best = np.clip(self._values + solution.price_mean / (2 * self._prior), *self._ends)
        outcomes = np.arange(len(best))
        cost = self._cost(best)[outcomes, outcomes]
        gains = cost - best * solution.price_mean - solution.price_reveal
        better = gains < 0
        self._revealed = np.concatenate([self._revealed, best[better]])
        self._revealing = np.concatenate([self._revealing, outcomes[better]])
        return -self._delta * float(np.minimum(gains, 0).sum())

    def _moments(self, columns: _Columns) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cost `[step]`, probabilities and means `[true, step]`, all at unit mass under the prior.

        Columns of unit mass make the program well scaled, and make its value a bound: total mass is
        one, so no solution can save more than the best column does.
        """
        levels = self._levels(columns.high)
        levels /= (levels @ self._prior)[:, np.newaxis]
        cost = (levels * self._cost(columns.outputs)).sum(axis=1)
        return cost, levels.T, levels.T * columns.outputs

    def _levels(self, high: BoolArray) -> FloatArray:
        return np.where(high, self._ratio, 1.0)

    def _cost(self, outputs: FloatArray) -> FloatArray:
        """f_y(s); axes `[output, true]`."""
        return np.asarray(self._prior * (outputs[:, np.newaxis] - self._values) ** 2)

    def _reduced(self, outputs: FloatArray, solution: _Solution) -> FloatArray:
        """f_y(s) − u_y − s·v_y; axes `[output, true]`."""
        paid = solution.price_total + outputs[:, np.newaxis] * solution.price_mean
        return np.asarray(self._cost(outputs) - paid)
