"""Noisy moments of an owner's covariates, which adjust overall effects and are published nowhere.

A covariate x, such as last month's spend, is declared for an outcome y. Of each arm are published,
all with noise: how far the stratified mean of x is from that of all units (imbalance), and within
clusters the sums of squares of x, and of products with y. Estimates subtract θ times the imbalance,
θ from these moments; see `estimation/means/owner_covariates.py`.

**What that costs.** With `x` in steps 0…K and a metric that spans D, replacing a unit changes

- products Σ(x − x̄)(y − ȳ) of one cell: by (n − 1)/n·(x − a)(y − b), a and b the means of the other
  units. For x, a in [0, K] and y, b in [0, D] values of (x − a)(y − b) lie within K·D, so products
  move by K·D at most, whether x, y or both are replaced;
- squares Σ(x − x̄)² of one cell likewise by K² at most;
- imbalance, Σ (n_c/n_ac)·T_ac − T_c with T sums of x: of its own arm by K·(n_c/n_ac − 1), of each
  other arm by K.

Products are the only ones that depend on outcomes. They cost `epsilon`; imbalance and squares cost
`covariate_epsilon`, of covariates alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from clusterdp._text import DECIMAL, shortest_decimal
from clusterdp.errors import ParameterError
from clusterdp.outcomes.space import LARGEST_INTEGER
from clusterdp.privacy.accounting import LossAtom, any_loss, checked_epsilon, noise_scale_for
from clusterdp.statistics.base import (
    CovariateMoments,
    DrawnStatistic,
    NoisyStatistic,
    list_column,
    read_lists,
)
from clusterdp.statistics.noise import noise_variance

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.statistics.base import Arrays, CellTotals
    from clusterdp.statistics.noise import NoiseSource


# K: a covariate is rounded to so many steps of its range.
STEPS = 1024
# Imbalance is in this fraction of a step, so that rounding it moves no estimate.
_FINER = 256
# Of the ε of covariates, what imbalance gets; squares get the rest.
_IMBALANCE_SHARE = Fraction(7, 8)
_IMBALANCE, _SQUARES, _PRODUCTS = (
    "covariate_imbalance",
    "covariate_squares",
    "covariate_products",
)
_MOST_CORRELATION = 1.0
_FORM = re.compile(rf"([^=]+)=(.+):({DECIMAL})\.\.({DECIMAL})(?: +correlation +({DECIMAL}))?")


class Covariate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column that the owner keeps, and the outcome that it helps to predict.

    Attributes:
        outcome: The outcome.
        column: The column; its name is published, and none of its values.
        low: The lower end of its range; lower values count as this.
        high: The upper end.
        correlation: The correlation with the outcome within clusters that is expected, for
            planning; None if nobody said.
    """

    outcome: str
    column: str
    low: float
    high: float
    correlation: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            msgspec.structs.force_setattr(self, name, float(getattr(self, name)))
        if not -np.inf < self.low < self.high < np.inf:
            raise ParameterError(
                f"the range of the covariate {self.column!r} must be two finite numbers, the "
                f"smaller first; got {self.low:g} and {self.high:g}"
            )
        if self.correlation is not None and not abs(self.correlation) <= _MOST_CORRELATION:
            raise ParameterError(
                f"the correlation of {self.column!r} with {self.outcome!r} must lie in [-1, 1], "
                f"got {self.correlation:g}"
            )

    @classmethod
    def parse(cls, text: str) -> Covariate:
        """A covariate from a text such as `spend=spend_before:0..500 correlation 0.7`."""
        found = _FORM.fullmatch(text.strip())
        if not found:
            raise ParameterError(
                "covariate must be OUTCOME=COLUMN:LOW..HIGH (spend=spend_before:0..500), and may "
                f"end with: correlation 0.7; got {text!r}"
            )
        outcome, column, low, high, correlation = found.groups()
        return cls(
            outcome=outcome.strip(),
            column=column.strip(),
            low=float(low),
            high=float(high),
            correlation=None if correlation is None else float(correlation),
        )

    @property
    def step(self) -> float:
        """How far two neighboring steps are apart."""
        return (self.high - self.low) / STEPS

    def steps(self, values: FloatArray) -> IntArray:
        """The step of each value, clipped to the range; axes `[row]`. None may be NaN."""
        within = np.clip(values.astype(np.float64), self.low, self.high)
        return np.rint((within - self.low) * (STEPS / (self.high - self.low))).astype(np.int64)


class NoisyCovariates(NoisyStatistic, frozen=True, kw_only=True, tag="covariates"):
    """Moments of the covariates of all units, arm by arm.

    Attributes:
        epsilon: What products with outcomes cost, of all covariates together.
        covariate_epsilon: What imbalance and squares cost a unit's covariates. No outcome is in
            them, so it is no part of the ε of outcomes.
        covariates: The covariates of all questions.
    """

    of_everyone: ClassVar[bool] = True
    estimates_effects: ClassVar[bool] = False
    in_words: ClassVar[str] = (
        "of each arm, noisy moments of the owner's covariates: how far their means are from those "
        "of all units (`covariate_imbalance`), their squares (`covariate_squares`) and products "
        "with outcomes (`covariate_products`)"
    )

    epsilon: float
    covariate_epsilon: float
    covariates: tuple[Covariate, ...]

    def __post_init__(self) -> None:
        for name in ("epsilon", "covariate_epsilon"):
            msgspec.structs.force_setattr(self, name, checked_epsilon(getattr(self, name)))
        outcomes = [one.outcome for one in self.covariates]
        if not outcomes or len(set(outcomes)) < len(outcomes):
            raise ParameterError("covariates are one for each of some outcomes; give each once")

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss of outcomes, largest first: ε at most."""
        return any_loss(self.epsilon)

    def parameters(self) -> dict[str, float]:
        """What they cost."""
        return {
            "epsilon of covariates' products": self.epsilon,
            "epsilon of covariates themselves": self.covariate_epsilon,
        }

    def facts(self, space: CategorySpace) -> dict[str, list[float | None]]:
        """Of each covariate of a question, the place and unit of its metric, and σ of products."""
        own, units = self.of_space(space), space.metric_lattice().units
        if not own:
            return {}
        return {
            "metric": [float(place) for place, _ in own],
            "unit": [float(units[place]) for place, _ in own],
            "noise_scale": [self.products_scale(space, place) for place, _ in own],
        }

    def in_sentences(self, unit: str = "unit") -> str:
        """What is published of covariates, and what that costs; `unit` is what a unit is called."""
        names = ", ".join(dict.fromkeys(one.column for one in self.covariates))
        return (
            f"{names}: no value is published. Noisy sums by arm are, at an ε of their own: "
            f"{shortest_decimal(self.covariate_epsilon + self.epsilon)} for a {unit}'s values"
        )

    def of_space(self, space: CategorySpace) -> tuple[tuple[int, Covariate], ...]:
        """The covariates of the outcomes of a question, with the places of their metrics."""
        names = space.outcome_names
        return tuple(
            (names.index(one.outcome), one) for one in self.covariates if one.outcome in names
        )

    def check(self, layout: Layout, space: CategorySpace) -> None:
        """Raise a ParameterError if effects could not be adjusted, or sums do not fit 64 bits."""
        for place, one in self.of_space(space):
            if place in space.of_observed():
                raise ParameterError(
                    f"{one.outcome!r} may be missing, and a covariate adjusts means of all units; "
                    f"leave out the covariate of {one.outcome!r}"
                )
            largest = max(map(abs, space.metric_lattice().integers[place].tolist()))
            reach = 64 * self.products_scale(space, place)
            if int(layout.sizes.sum()) * STEPS * largest + reach > LARGEST_INTEGER:
                raise ParameterError(
                    "cells and outcome values are too large for exact 64-bit sums; declare "
                    f"{one.outcome!r} in a coarser unit, or leave out its covariate"
                )
        if layout.assigned is not None:
            raise ParameterError(
                "arms were assigned to whole groups, and covariates of units do not adjust how "
                "groups differ; leave out covariate"
            )

    def products_scale(self, space: CategorySpace, place: int) -> float:
        """The scale of the noise on products: K·D, and one for rounding."""
        integers = space.metric_lattice().integers[place].tolist()
        span = STEPS * (max(integers) - min(integers)) + 1
        return noise_scale_for(Fraction(len(self.covariates) * span), self.epsilon)

    def imbalance_scale(self, layout: Layout) -> float:
        """The scale of the noise on imbalance, which a unit of the smallest cell moves most."""
        sizes, most = layout.sizes[layout.complete], Fraction(0)
        for of_cluster in sizes.tolist():
            most = max(most, Fraction(sum(of_cluster), min(of_cluster)))
        moved = _FINER * STEPS * (most + sizes.shape[1] - 2) + 1
        cost = len(self.covariates) * moved / _IMBALANCE_SHARE
        return noise_scale_for(cost, self.covariate_epsilon)

    def squares_scale(self) -> float:
        """The scale of the noise on squares: K², and one for rounding."""
        cost = len(self.covariates) * Fraction(STEPS**2 + 1) / (1 - _IMBALANCE_SHARE)
        return noise_scale_for(cost, self.covariate_epsilon)

    def relative_noise(
        self, layout: Layout, space: CategorySpace, place: int
    ) -> tuple[float, FloatArray]:
        """Variances of the noise on imbalance, and on covariances by arm.

        They are of a covariate and a metric in units of their ranges.
        """
        compared = layout.sizes[layout.complete]
        imbalance = noise_variance(self.imbalance_scale(layout))
        lattice = space.metric_lattice().integers[place]
        products = noise_variance(self.products_scale(space, place)) / float(np.ptp(lattice)) ** 2
        free = _left_by_means(compared)
        return (
            imbalance / (_FINER * STEPS * int(compared.sum())) ** 2,
            np.asarray(products / (STEPS * free) ** 2),
        )

    def draw(
        self, totals: CellTotals, layout: Layout, space: CategorySpace, add_noise: NoiseSource
    ) -> DrawnCovariates:
        """Noisy moments, from true sums of cells."""
        own = self.of_space(space)
        true = np.zeros((3, layout.sizes.shape[1], len(own)), dtype=np.int64)
        for number in range(len(own)):
            assert totals.covariates is not None  # noqa: S101 - they were counted
            true[:, :, number] = true_moments(totals.covariates[:, :, number], layout)
        imbalance, squares, products = true
        noisy = np.zeros_like(products)
        for number, (place, _) in enumerate(own):
            scale = self.products_scale(space, place)
            noisy[:, number] = add_noise(products[:, number], scale)
        if own:
            imbalance = add_noise(imbalance, self.imbalance_scale(layout))
            squares = add_noise(squares, self.squares_scale())
        arrays = {_IMBALANCE: imbalance, _SQUARES: squares, _PRODUCTS: noisy}
        return self.restore(arrays, layout, space)

    def restore(self, arrays: Arrays, layout: Layout, space: CategorySpace) -> DrawnCovariates:
        """Noisy moments from the arrays that `DrawnCovariates.arrays` gave."""
        return DrawnCovariates(
            statistic=self,
            imbalance=arrays[_IMBALANCE],
            squares=arrays[_SQUARES],
            products=arrays[_PRODUCTS],
            layout=layout,
            space=space,
        )

    def column_types(self, space: CategorySpace) -> dict[str, pl.DataType]:
        """Columns of lists by covariate; none where the question has no covariate."""
        import polars as pl

        names = (_IMBALANCE, _SQUARES, _PRODUCTS) if self.of_space(space) else ()
        return dict.fromkeys(names, pl.List(pl.Int64))

    def lengths(self, space: CategorySpace) -> dict[str, int]:
        """How many covariates the question has."""
        return dict.fromkeys(self.column_types(space), len(self.of_space(space)))

    def read(self, table: pl.DataFrame, layout: Layout, space: CategorySpace) -> DrawnCovariates:
        """Noisy moments from the published table of cells."""
        if not self.of_space(space):
            nothing = np.zeros((layout.sizes.shape[1], 0), dtype=np.int64)
            return self.restore(
                dict.fromkeys((_IMBALANCE, _SQUARES, _PRODUCTS), nothing), layout, space
            )
        names, groups = self.column_types(space), _arms_of(layout)
        return self.restore(
            {name: read_lists(table[name], groups) for name in names}, layout, space
        )


def true_moments(sums: IntArray, layout: Layout) -> IntArray:
    """Imbalance, squares and products of a covariate before noise, in whole steps.

    Cells are rounded one by one, in whole numbers: a unit moves those of its own cluster alone.

    Args:
        sums: Of x, x², xy and y, x in steps; axes `[cluster, arm, 4]`.
        layout: The cells; clusters that lack an arm are in no effect.

    Returns:
        Axes `[3, arm]`.
    """
    found = [[0] * sums.shape[1] for _ in range(3)]
    compared = layout.complete
    for sizes, cells in zip(layout.sizes[compared].tolist(), sums[compared].tolist(), strict=True):
        n_units, total = sum(sizes), sum(cell[0] for cell in cells)
        for arm, (n_own, (x, xx, xy, y)) in enumerate(zip(sizes, cells, strict=True)):
            found[0][arm] += _nearest(_FINER * n_units * x, n_own) - _FINER * total
            found[1][arm] += xx - _nearest(x * x, n_own)
            found[2][arm] += xy - _nearest(x * y, n_own)
    return np.array(found, dtype=np.int64)


def _left_by_means(sizes: IntArray) -> IntArray:
    """What is left of the units of each arm after the means of their cells; axes `[arm]`."""
    return np.asarray(np.maximum((sizes - 1).sum(axis=0), 1))


def _nearest(above: int, below: int) -> int:
    """The whole number nearest to a quotient."""
    return (2 * above + below) // (2 * below)


def _arms_of(layout: Layout) -> IntArray:
    """The arm of each cell; axes `[cluster, arm]`."""
    return np.broadcast_to(np.arange(layout.sizes.shape[1]), layout.sizes.shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnCovariates(DrawnStatistic):
    """Noisy moments of the covariates of a question; axes `[arm, covariate]`.

    Attributes:
        statistic: How they were drawn.
        imbalance: In steps, finer by `_FINER`, times the number of units.
        squares: In steps squared.
        products: In steps times the unit of the metric.
        layout: The cells.
        space: The categories of the question.
    """

    statistic: NoisyCovariates
    imbalance: IntArray
    squares: IntArray
    products: IntArray
    layout: Layout
    space: CategorySpace

    def arrays(self) -> Arrays:
        """The noisy moments."""
        return {_IMBALANCE: self.imbalance, _SQUARES: self.squares, _PRODUCTS: self.products}

    def to_columns(self) -> list[pl.Series]:
        """A column of lists of each; the same in all cells of an arm."""
        groups, names = _arms_of(self.layout), self.statistic.column_types(self.space)
        return [list_column(name, self.arrays()[name], groups) for name in names]

    def covariate_moments(self, metric: str) -> CovariateMoments | None:
        """The covariate of an outcome; None if it has none."""
        for number, (place, one) in enumerate(self.statistic.of_space(self.space)):
            if one.outcome == metric:
                return self._moments(number, place, one)
        return None

    def _moments(self, number: int, place: int, one: Covariate) -> CovariateMoments:
        layout, space = self.layout, self.space
        compared, unit = layout.sizes[layout.complete], float(space.metric_lattice().units[place])
        free, width = _left_by_means(compared), one.high - one.low
        span = float(np.ptp(space.metric_values()[place]))
        of_imbalance, of_products = self.statistic.relative_noise(layout, space, place)
        finer = one.step / _FINER / int(compared.sum())
        return CovariateMoments(
            column=one.column,
            imbalance=np.asarray(finer * self.imbalance[:, number], dtype=np.float64),
            squares=one.step**2 * self.squares[:, number] / free,
            products=one.step * unit * self.products[:, number] / free,
            imbalance_noise=np.full(len(free), width**2 * of_imbalance),
            products_noise=(width * span) ** 2 * of_products,
        )
