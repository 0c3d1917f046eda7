"""The least-variance unbiased channel as a second-order cone program, for given high sets.

Every ε-private channel is a mixture of steps: outputs whose probability has two levels, `ratio`
(e^ε) times as high on a *high set* A of categories as elsewhere. With L_A the levels, scaled so
that Σ_y p(y)·L_A(y) = 1, and weights of one, the program is (Jensen: one output per high set)

    minimise   Σ_A |q_A|² / μ_A                 over μ_A ≥ 0 and q_A, one number per metric
    subject to Σ_A μ_A·L_A(y) = 1 − δ           for every category y
               Σ_A q_A·L_A(y) + δ·ρ(y) = Y(y)   for every category y and metric

P(A|y) = μ_A·L_A(y), and q_A / μ_A is what output A counts as. With δ > 0 each category also has an
output ρ(y) of its own, which adds δ·p(y)·|ρ(y)|² to the cost.

Clarabel is given the dual: prices u(y), v(y) of the equations with U_A + |V_A|²/4 ≤ 0 for every
high set, where U_A = Σ_y L_A(y)·u(y). Two things make it fast and well scaled. Prices are replaced
by running sums over categories, in which a high set of few runs has few nonzero coefficients. And
a penalty on the distance of prices from a centre picks one dual solution where there are many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scipy.sparse import csc_matrix

    from clusterdp._arrays import BoolArray, FloatArray

# The precision that Clarabel is asked for: of a mixture to be used, and of prices on the way to it.
# Where it makes no more progress it stops with less.
FINE, ROUGH = 1e-9, 1e-6
_MOST_ITERATIONS = 100
# Solutions of these kinds are tried: `reduction` makes the equations hold, or rejects them.
_USABLE = ("Solved", "AlmostSolved", "InsufficientProgress", "NumericalError", "MaxIterations")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConeProgram:
    """What a channel is designed for, scaled so that every metric has weight one.

    Attributes:
        values: Y, what each category counts as; axes `[metric, category]`.
        prior: p, above 0; axes `[category]`.
        ratio: e^ε.
        delta: δ.
        ends: The least and the largest output that may reveal a category; axes `[metric, end]`.
    """

    values: FloatArray
    prior: FloatArray
    ratio: float
    delta: float
    ends: FloatArray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.prior):
            raise ValueError(
                f"values must have axes [metric, category] with {len(self.prior)} categories, "
                f"got shape {self.values.shape}"
            )
        if not self.ratio > 1:
            raise ValueError(f"ratio must be above 1, got {self.ratio}")

    @property
    def n_metrics(self) -> int:
        """How many numbers a category counts as."""
        return len(self.values)

    @property
    def n_categories(self) -> int:
        """How many categories there are."""
        return len(self.prior)

    @property
    def spread(self) -> float:
        """The cost of no noise at all: Σ_y p(y)·|Y(y)|²."""
        return float((self.prior * self.values**2).sum())

    def of_metric(self, metric: int) -> ConeProgram:
        """The program of one metric alone.

        Categories that count as the same become one: of a channel that treats them differently, the
        average is as private and as good.
        """
        values, places = np.unique(self.values[metric], return_inverse=True)
        return replace(
            self,
            values=values[np.newaxis],
            prior=np.asarray(np.bincount(places, self.prior), dtype=np.float64),
            ends=self.ends[[metric]],
        )

    def levels(self, high: BoolArray) -> FloatArray:
        """L_A, of unit mass under the prior; axes `[step, category]`."""
        levels = np.where(high, self.ratio, 1.0)
        return np.asarray(levels / (levels @ self.prior)[:, np.newaxis])

    def value_of(self, prices: Prices) -> float:
        """The dual objective; a lower bound if no high set exceeds 0 in `excess`."""
        value = (1 - self.delta) * prices.total.sum() + (self.values * prices.mean).sum()
        if self.delta:
            reveals = np.clip(prices.mean / (2 * self.prior), self.ends[:, :1], self.ends[:, 1:])
            gained = prices.mean * reveals - self.prior * reveals**2
            value -= self.delta * gained.sum()
        return float(value)

    def excess(self, prices: Prices, high: BoolArray) -> FloatArray:
        """U_A + |V_A|²/4; axes `[step]`. Above 0, using the step would lower the cost."""
        levels = self.levels(high)
        return np.asarray(levels @ prices.total + ((levels @ prices.mean.T) ** 2).sum(axis=1) / 4)


class Prices(NamedTuple):
    """Dual prices of the equations.

    Attributes:
        total: u, of the probabilities; axes `[category]`.
        mean: v, of the means; axes `[metric, category]`.
    """

    total: FloatArray
    mean: FloatArray

    def lowered(self, excess: float, prior: FloatArray) -> Prices:
        """Prices at which every high set's excess is less by this much."""
        return Prices(self.total - excess * prior, self.mean)


class Mixture(NamedTuple):
    """What the program found.

    Attributes:
        high: The high sets; axes `[step, category]`.
        mass: μ; axes `[step]`.
        moved: q; axes `[step, metric]`.
        reveals: ρ; axes `[metric, category]`. Nothing is revealed if δ = 0.
        prices: The dual solution.
    """

    high: BoolArray
    mass: FloatArray
    moved: FloatArray
    reveals: FloatArray
    prices: Prices


class Pull(NamedTuple):
    """What holds prices near a centre, and allows the equations slack in proportion to the way.

    Attributes:
        penalty: The weight of the squared distance in the dual.
        centre: The centre; None for prices of 0.
    """

    penalty: float
    centre: Prices | None = None


def solve_cones(
    program: ConeProgram, high: BoolArray, pull: Pull, tolerance: float = FINE
) -> Mixture | None:
    """The best mixture of steps with these high sets; None if the solver gives up.

    Args:
        program: What is solved.
        high: High sets, neither empty nor full; axes `[step, category]`.
        pull: What picks one of many dual solutions.
        tolerance: The precision that the solver is asked for.
    """
    import clarabel  # type: ignore[import-untyped]  # it ships no types
    from scipy import sparse

    n_steps, n_metrics, n_categories = len(high), program.n_metrics, program.n_categories
    n_prices = (n_metrics + 1) * n_categories
    n_ends = 2 * n_metrics * n_categories if program.delta else 0
    to_prices = _to_prices(program)
    cones = _cone_rows(program, high)
    beyond = sparse.diags(np.full(n_ends, -1.0))
    rows = sparse.block_diag([cones, beyond], format="csc") if n_ends else cones
    right = np.zeros((n_steps, n_metrics + 2))
    right[:, :2] = 1.0, -1.0
    kinds = [clarabel.SecondOrderConeT(n_metrics + 2)] * n_steps
    if n_ends:
        kinds.append(clarabel.NonnegativeConeT(n_ends))
    solution = clarabel.DefaultSolver(
        _quadratic(program, to_prices, pull.penalty),
        _linear(program, to_prices, pull),
        rows,
        np.concatenate([right.ravel(), np.zeros(n_ends)]),
        kinds,
        _settings(tolerance),
    ).solve()
    found, cone_duals = np.array(solution.x), np.array(solution.z)[: right.size]
    if str(solution.status) not in _USABLE or not np.isfinite(found).all():
        return None
    sums = found[:n_prices].reshape(n_metrics + 1, n_categories)
    prices = np.asarray(sums @ to_prices.T)
    duals = cone_duals.reshape(n_steps, n_metrics + 2)
    mass, moved = duals[:, 0] + duals[:, 1], -duals[:, 2:]
    reveals = _reveals(program, moved.T @ program.levels(high))
    return Mixture(high, mass, moved, reveals, Prices(prices[0], prices[1:]))


def _reveals(program: ConeProgram, means: FloatArray) -> FloatArray:
    """ρ, from the equations that it must fulfil; axes `[metric, category]`."""
    if not program.delta:
        return program.values
    wanted = (program.values - means) / program.delta
    return np.clip(wanted, program.ends[:, :1], program.ends[:, 1:])


def _settings(tolerance: float) -> object:
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    # One thread: the same input gives the same numbers.
    settings.max_threads = 1
    settings.direct_solve_method = "qdldl"
    settings.max_iter = _MOST_ITERATIONS
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    return settings


def _to_prices(program: ConeProgram) -> csc_matrix:
    """Prices from running sums; axes `[category, sum]`.

    Sum y < K − 1 is (ratio − 1)·Σ_{x ≤ y} u(x); the last one is Σ_x u(x). Then a set's levels times
    prices are the last sum, plus the difference of two sums for each run of categories in the set.
    """
    from scipy import sparse

    steps = np.full(program.n_categories, 1 / (program.ratio - 1))
    steps[-1] = 1.0
    return sparse.diags([steps, -steps[:-1]], [0, -1], format="csc")


def _cone_rows(program: ConeProgram, high: BoolArray) -> csc_matrix:
    """Coefficients of (1 − U, −1 − U, V) for every high set, with the signs that Clarabel takes.

    |V|² + (1 + U)² ≤ (1 − U)² says the same as U + |V|²/4 ≤ 0.
    """
    from scipy import sparse

    n_steps, n_categories = high.shape
    n_metrics, size = program.n_metrics, program.n_metrics + 2
    sums = np.zeros(high.shape)
    sums[:, :-1] = high[:, :-1].astype(np.float64) - high[:, 1:]
    sums[:, -1] = np.where(high[:, -1], program.ratio, 1.0)
    sums /= (1 + (program.ratio - 1) * (high @ program.prior))[:, np.newaxis]
    of_set, of_sum = np.nonzero(sums)
    numbers = sums[of_set, of_sum]
    metrics = range(n_metrics)
    return sparse.csc_matrix(
        (
            np.concatenate([numbers, numbers, *[-numbers for _ in metrics]]),
            (
                np.concatenate([of_set * size + place for place in range(size)]),
                np.concatenate(
                    [of_sum, of_sum, *[of_sum + n_categories * (1 + j) for j in metrics]]
                ),
            ),
        ),
        shape=(n_steps * size, (n_metrics + 1) * n_categories),
    )


def _linear(program: ConeProgram, to_prices: csc_matrix, pull: Pull) -> FloatArray:
    """The negative dual objective's coefficients: of running sums, then of what ends allow."""
    totals = np.full(program.n_categories, 1 - program.delta)
    right = np.vstack([totals, program.values])
    if pull.centre is not None:
        right += _weights(program, pull.penalty) * np.vstack([pull.centre.total, pull.centre.mean])
    parts = [-(to_prices.T @ row) for row in right]
    if program.delta:
        for low, high in program.ends:
            parts.append(program.delta * np.full(program.n_categories, high))
            parts.append(program.delta * np.full(program.n_categories, -low))
    return np.concatenate(parts)


def _quadratic(program: ConeProgram, to_prices: csc_matrix, penalty: float) -> csc_matrix:
    """The penalty, and what revealing costs: δ·(v − above + below)²/(4p), in its upper triangle."""
    from scipy import sparse

    n_categories, n_metrics = program.n_categories, program.n_metrics
    weights = sparse.diags(_weights(program, penalty))
    slack = sparse.block_diag([to_prices.T @ weights @ to_prices] * (n_metrics + 1))
    if not program.delta:
        return sparse.triu(slack, format="csc")
    n_beyond = 2 * n_categories * n_metrics
    same = sparse.identity(n_categories)
    costs = sparse.diags(program.delta / (2 * program.prior))
    quadratic = sparse.block_diag([slack, sparse.csc_matrix((n_beyond, n_beyond))])
    for metric in range(n_metrics):
        own = _placed(
            [
                (to_prices, (1 + metric) * n_categories),
                (-same, (1 + n_metrics + 2 * metric) * n_categories),
                (same, (2 + n_metrics + 2 * metric) * n_categories),
            ],
            quadratic.shape[0],
        )
        quadratic = quadratic + own.T @ costs @ own
    return sparse.triu(quadratic, format="csc")


def _weights(program: ConeProgram, penalty: float) -> FloatArray:
    """Twice the penalty on the square of each price; axes `[category]`.

    It weighs a price by the prior, mixed with the uniform one: rare categories have prices that do
    not vanish with them.
    """
    return np.asarray(penalty * 2 / (program.prior + 1 / program.n_categories))


def _placed(blocks: Sequence[tuple[csc_matrix, int]], n_columns: int) -> csc_matrix:
    """Blocks side by side, each beginning at its column, with zeros between them."""
    from scipy import sparse

    placed = sparse.csc_matrix((blocks[0][0].shape[0], n_columns))
    for block, begin in blocks:
        before = sparse.csc_matrix((block.shape[0], begin))
        after = sparse.csc_matrix((block.shape[0], n_columns - begin - block.shape[1]))
        placed = placed + sparse.hstack([before, block, after])
    return placed
