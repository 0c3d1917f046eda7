"""The least-variance unbiased channel as a second-order cone program, for given high sets.

Every ε-private channel is a mixture of steps: outputs whose probability has two levels, `ratio`
(e^ε) times as high on a *high set* A of categories as elsewhere. With L_A the levels, scaled so
that Σ_y p(y)·L_A(y) = 1, and weights of one, the program is (Jensen: one output per high set)

    minimize   Σ_A |q_A|² / μ_A                 over μ_A ≥ 0 and q_A, one number per metric
    subject to Σ_A μ_A·L_A(y) = 1 − δ           for every category y
               Σ_A q_A·L_A(y) + δ·ρ(y) = Y(y)   for every category y and metric

P(A|y) = μ_A·L_A(y), and q_A / μ_A is what output A counts as. With δ > 0 each category also has an
output ρ(y) of its own, which adds δ·p(y)·|ρ(y)|² to the cost.

Its dual has prices u(y), v(y) of the equations, with U_A + |V_A|²/4 ≤ 0 for every high set, where
U_A = Σ_y L_A(y)·u(y). A primal-dual interior-point method solves both.

The dual has few unknowns, (m + 1)·K prices x, and many constraints c_A(x) = U_A + |V_A|²/4 ≤ 0, one
per high set. With slacks s_A = −c_A(x), masses are the multipliers, and on the central path

    Σ_A μ_A·∇c_A(x) = ∇(dual objective),   c_A(x) + s_A = 0,   μ_A·s_A = τ

for a τ that falls to 0. The first are the equations of the program. Newton's method makes them hold
to rounding while all masses are above 0: they need no repair. A step solves one system in the
prices alone, dense and small, which is why the method is not left to a general solver of cones.
Clarabel in its place inside the same search finds channels as good. It takes 3 times the processor
time for 16 categories of three metrics, 6 times for 64 of one, 9 times for 2 × 2 × 12 and 16 times
for 8 × 8 (45 s). Only for 8 categories, where hundredths of a second are at stake, is it as fast.

Prices are unknowns in coordinates that suit small ε, where levels are nearly constant: the prior
itself, on which every set's levels are 1, and e_y − p over (ratio − 1) for every category but the
likeliest, on which they are (1_A(y) − P(A)) / mass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import BoolArray, FloatArray


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
        """The cost without noise: Σ_y p(y)·|Y(y)|²."""
        return float((self.prior * self.values**2).sum())

    def cost_of(self, mixture: StepMixture) -> float:
        """What a mixture costs whose equations hold."""
        used = mixture.mass > 0
        cost = float((mixture.moved[used] ** 2 / mixture.mass[used, np.newaxis]).sum())
        return cost + self.delta * float((self.prior * mixture.reveals**2).sum())

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

    def towards(self, other: Prices, share: float) -> Prices:
        """Prices that lie this share of the way to others."""
        return Prices(
            self.total + share * (other.total - self.total),
            self.mean + share * (other.mean - self.mean),
        )

    def lowered(self, excess: float, prior: FloatArray) -> Prices:
        """Prices at which every high set's excess is less by this much."""
        return Prices(self.total - excess * prior, self.mean)


class StepMixture(NamedTuple):
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


if TYPE_CHECKING:
    # A penalty on squared distances from a centre holds prices near it in the dual. It allows the
    # equations slack in proportion to the way.
    Pull = tuple[float, Prices]


# Duality gap of a mixture to be used. Equations hold to this share of it, or to rounding.
FINE = 1e-9
_EQUATIONS = 0.1
# What equations of a mixture to be used may be open by, where rounding allows no more.
_OPEN = 1e-4
_TINY = 1e-12
_MOST_STEPS = 60
# How much of the way to the border a step goes, and the least share of the gap that is aimed at.
_STEP, _LEAST_SHARE, _AIM = 0.99, 1e-3, 0.3
# What is added to the diagonal of a system whose diagonal is one, until it has a factor.
_REGULAR = (1e-15, 1e-13, 1e-11, 1e-9)


def solve_cones(
    program: ConeProgram, high: BoolArray, pull: Pull | None = None, precision: float = FINE
) -> StepMixture | None:
    """The best mixture of steps with these high sets; None if equations stay open.

    Args:
        program: What is solved.
        high: High sets, neither empty nor full; axes `[step, category]`.
        pull: What picks one of many dual solutions, and leaves equations open; None for neither.
        precision: The duality gap to reach. Where rounding allows no more, the result has less.
    """
    system = _System(program, high, pull)
    point = system.start()
    for _ in range(_MOST_STEPS):
        opened = system.opened(point)
        equations, slacks = (np.abs(one).max() for one in opened[:2])
        # The gap is as small as wanted, and what is open is negligible.
        is_closed = equations <= _EQUATIONS * precision and slacks <= precision
        if is_closed and point.gap <= precision:
            break
        stepped = system.step(point, opened, precision)
        if stepped is None:
            break
        point = stepped
    prices = system.prices(point.prices)
    # Mixtures whose equations are open look cheaper than the best there is. With δ, ρ closes them.
    most = _OPEN if pull is None and not program.delta else np.inf
    if not np.abs(system.opened(point)[0]).max() <= most:
        return None
    moved = point.mass[:, np.newaxis] * system.means(point.prices) / 2
    reveals = _reveals(program, moved.T @ program.levels(high))
    return StepMixture(high, point.mass, moved, reveals, Prices(prices[0], prices[1:]))


def _reveals(program: ConeProgram, means: FloatArray) -> FloatArray:
    """ρ, from the equations that it must fulfil; axes `[metric, category]`."""
    if not program.delta:
        return program.values
    wanted = (program.values - means) / program.delta
    return np.clip(wanted, program.ends[:, :1], program.ends[:, 1:])


class _Point(NamedTuple):
    """Where the method is.

    Attributes:
        prices: In its coordinates; axes `[1 + metric, coordinate]`.
        mass: μ; axes `[set]`.
        slack: s; axes `[set]`.
    """

    prices: FloatArray
    mass: FloatArray
    slack: FloatArray

    def moved(self, change: _Point, share: float) -> _Point:
        """The point after this share of a change."""
        return _Point(*(own + share * other for own, other in zip(self, change, strict=True)))

    def room(self, change: _Point) -> float:
        """The largest share of a change, up to 1, that leaves masses and slacks at least 0."""
        own = np.concatenate([self.mass, self.slack])
        fall = -np.concatenate([change.mass, change.slack])
        return float(min(1.0, np.min(own[fall > 0] / fall[fall > 0], initial=np.inf)))

    @property
    def gap(self) -> float:
        """The duality gap, once all equations hold."""
        return float(self.mass @ self.slack)


class _System:
    """A program with its high sets, in the coordinates of the method.

    Args:
        program: The program.
        high: The high sets; axes `[set, category]`.
        pull: What holds prices near a centre, if anything.

    Attributes:
        features: Levels in coordinates; axes `[set, coordinate]`.
        basis: Prices are coordinates times this; axes `[coordinate, category]`.
    """

    def __init__(self, program: ConeProgram, high: BoolArray, pull: Pull | None) -> None:
        prior, rise = program.prior, program.ratio - 1
        others = np.delete(np.arange(len(prior)), prior.argmax())
        within = (high @ prior)[:, np.newaxis]
        self.program, self.pull = program, pull
        self.basis = np.vstack([prior, (np.eye(len(prior))[others] - prior) / rise])
        self.features = np.ones(high.shape)
        self.features[:, 1:] = (high[:, others] - within) / (1 + rise * within)

    def prices(self, coordinates: FloatArray) -> FloatArray:
        """Prices; axes `[1 + metric, category]`."""
        return np.asarray(coordinates @ self.basis)

    def means(self, coordinates: FloatArray) -> FloatArray:
        """V; axes `[set, metric]`."""
        return np.asarray(self.features @ coordinates[1:].T)

    def start(self) -> _Point:
        """A point inside: no price on means, and all sets equal.

        Prices and slacks are of the size of the cost that binary outcomes would have. From 1, small
        ε would need many more steps than there are.
        """
        n_sets, ratio = len(self.features), self.program.ratio
        noise = min(((ratio + 1) / (ratio - 1)) ** 2, 1 / max(self.program.delta, _TINY))
        cost = max(1.0, self.program.spread * noise)
        coordinates = np.zeros((self.program.n_metrics + 1, self.program.n_categories))
        coordinates[0, 0] = -cost
        return _Point(coordinates, np.full(n_sets, 1 / n_sets), np.full(n_sets, cost))

    def opened(self, point: _Point) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What is wrong at a point, and what a step is made of.

        Returns:
            What is missing in the equations, axes as prices, in one; c + s, axes `[set]`; and ∇c,
            axes `[set, 1 + metric, coordinate]`, the last two in one.
        """
        totals, means = self.features @ point.prices[0], self.means(point.prices)
        factors = np.column_stack([np.ones(len(means)), means / 2])
        gradients = (factors[:, :, np.newaxis] * self.features[:, np.newaxis]).reshape(
            len(factors), -1
        )
        slope, _ = self._objective(self.prices(point.prices))
        return (
            (slope @ self.basis.T).ravel() - point.mass @ gradients,
            totals + (means**2).sum(axis=1) / 4 + point.slack,
            gradients,
        )

    def _objective(self, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The gradient of the dual objective and minus its curvature; axes as prices."""
        program = self.program
        totals = np.full((1, program.n_categories), 1 - program.delta)
        slope, curvature = np.vstack([totals, program.values]), np.zeros(prices.shape)
        if program.delta:
            wanted = prices[1:] / (2 * program.prior)
            reveals = np.clip(wanted, program.ends[:, :1], program.ends[:, 1:])
            slope[1:] -= program.delta * reveals
            curvature[1:] = (wanted == reveals) * program.delta / (2 * program.prior)
        if self.pull is not None:
            penalty, centre = self.pull[0], np.vstack([*self.pull[1]])
            # The prior, mixed with the uniform one: prices of rare categories do not vanish.
            weights = penalty * 2 / (program.prior + 1 / program.n_categories)
            slope, curvature = slope - weights * (prices - centre), curvature + weights
        return slope, curvature

    def step(
        self, point: _Point, opened: tuple[FloatArray, FloatArray, FloatArray], precision: float
    ) -> _Point | None:
        """One step of Newton's method, aimed where a first one without a barrier would end."""
        open_equations, open_slacks, gradients = opened
        solve = _solver(self._matrix(point, gradients))
        if solve is None:
            return None

        def change(products: FloatArray, slacks: FloatArray) -> _Point:
            """The change that moves μ·s by `products` and c + s by −`slacks`."""
            pushed = (products + point.mass * slacks) / point.slack
            flat = solve(open_equations - pushed @ gradients)
            slack = -(gradients @ flat) - slacks
            mass = (products - point.mass * slack) / point.slack
            return _Point(flat.reshape(point.prices.shape), mass, slack)

        complementary = point.mass * point.slack
        first = change(-complementary, open_slacks)
        room = point.room(first)
        share = min(1.0, max(point.moved(first, room).gap / point.gap, _LEAST_SHARE)) ** 3
        aim = max(share * point.gap, _AIM * precision) / len(complementary)
        bent = (self.means(first.prices) ** 2).sum(axis=1) / 4
        second = change(
            aim - complementary - room**2 * first.mass * first.slack,
            open_slacks + room**2 * bent,
        )
        return point.moved(second, _STEP * point.room(second) if point.room(second) < 1 else 1.0)

    def _matrix(self, point: _Point, gradients: FloatArray) -> FloatArray:
        """The matrix of Newton's method in prices alone."""
        n_coordinates = len(self.basis)
        _, curvatures = self._objective(self.prices(point.prices))
        matrix = gradients.T @ (gradients * (point.mass / point.slack)[:, np.newaxis])
        bend = self.features.T @ (self.features * point.mass[:, np.newaxis]) / 2
        for place, curvature in enumerate(curvatures):
            own = slice(place * n_coordinates, (place + 1) * n_coordinates)
            if curvature.any():
                matrix[own, own] += (self.basis * curvature) @ self.basis.T
            if place:
                matrix[own, own] += bend
        return np.asarray(matrix)


def _solver(matrix: FloatArray) -> Callable[[FloatArray], FloatArray] | None:
    """What solves a system with a positive definite matrix; None if it has no factor."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    scale = 1 / np.sqrt(np.diag(matrix))
    scaled = matrix * scale * scale[:, np.newaxis]
    if not np.isfinite(scaled).all():
        return None
    for added in _REGULAR:
        try:
            factor = cho_factor(scaled + added * np.eye(len(scaled)), check_finite=False)
        except LinAlgError:
            continue
        return lambda right: np.asarray(scale * cho_solve(factor, scale * right))
    return None
