"""The least-variance unbiased channel as a second-order cone program, for given high sets.

Every ε-private channel is a mixture of steps: outputs whose probability has two levels, `ratio`
(e^ε) times as high on a *high set* A of categories as elsewhere. With L_A the levels, scaled so
that Σ_y p(y)·L_A(y) = 1, and weights of one, the program is (Jensen: one output per high set)

    minimise   Σ_A |q_A|² / μ_A                 over μ_A ≥ 0 and q_A, one number per metric
    subject to Σ_A μ_A·L_A(y) = 1 − δ           for every category y
               Σ_A q_A·L_A(y) + δ·ρ(y) = Y(y)   for every category y and metric

P(A|y) = μ_A·L_A(y), and q_A / μ_A is what output A counts as. With δ > 0 each category also has an
output ρ(y) of its own, which adds δ·p(y)·|ρ(y)|² to the cost.

Its dual has prices u(y), v(y) of the equations, with U_A + |V_A|²/4 ≤ 0 for every high set, where
U_A = Σ_y L_A(y)·u(y). `interior_point` solves both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
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
        """The cost of no noise at all: Σ_y p(y)·|Y(y)|²."""
        return float((self.prior * self.values**2).sum())

    def cost_of(self, mixture: Mixture) -> float:
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
        centre: The centre.
    """

    penalty: float
    centre: Prices

    def weights(self, program: ConeProgram) -> FloatArray:
        """Twice the penalty on the square of each price; axes `[category]`.

        It weighs a price by the prior, mixed with the uniform one: rare categories have prices that
        do not vanish with them.
        """
        return np.asarray(self.penalty * 2 / (program.prior + 1 / program.n_categories))
