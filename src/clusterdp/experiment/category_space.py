"""What the pipeline needs of outcomes: categories, and what they count as in every metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from fractions import Fraction

    from clusterdp._arrays import FloatArray, IntArray


class MetricLattice(NamedTuple):
    """Metrics as integers times a unit, so that sums can be noised exactly.

    Attributes:
        units: The unit of each metric.
        integers: The integer of each category; axes `[metric, category]`. Between cuts a number
            adds integers between those of its categories to a sum.
        squared: For each metric whether squares are published beside its sums. With two values
            they follow from the sums.
        is_number: For each metric whether rows can have integers between those of categories.
        shifts: For each metric how many bits distances from the middle lose before they are
            squared, so that sums of squares fit 64 bits: none for finite outcomes.
    """

    units: tuple[Fraction, ...]
    integers: IntArray
    squared: tuple[bool, ...]
    is_number: tuple[bool, ...]
    shifts: tuple[int, ...]

    def first(self, n_metrics: int) -> MetricLattice:
        """Those of the first metrics."""
        kept = slice(n_metrics)
        return MetricLattice(
            self.units[kept],
            self.integers[kept],
            self.squared[kept],
            self.is_number[kept],
            self.shifts[kept],
        )

    def has_two_values(self, metric: int) -> bool:
        """Whether a metric has two values: both are equally far from their middle."""
        return not self.is_number[metric] and len(np.unique(self.integers[metric])) <= 2

    def squares(self) -> IntArray:
        """Squares of twice the distance from the middle, less their bits; `[metric, category]`."""
        ends = self.integers.min(axis=1) + self.integers.max(axis=1)
        doubled = 2 * self.integers - ends[:, np.newaxis]
        return np.asarray((doubled >> np.array(self.shifts)[:, np.newaxis]) ** 2)


class CategorySpace(Protocol):
    """Finitely many categories, each with a value in every metric. It can be hashed."""

    @property
    def n_categories(self) -> int:
        """K, the number of categories."""
        ...

    def metric_values(self) -> FloatArray:
        """What categories count as; axes `[metric, category]`."""
        ...

    def metric_lattice(self) -> MetricLattice:
        """The same as integers."""
        ...

    def metric_weights(self, prior: FloatArray | None) -> FloatArray:
        """How much the variance of each metric counts in the design of a channel; `[metric]`."""
        ...

    def __hash__(self) -> int: ...


class Ends(NamedTuple):
    """The least and the largest value of a metric."""

    low: float
    high: float

    @classmethod
    def of(cls, space: CategorySpace, metric: int) -> Ends:
        """The ends of a metric of some space."""
        return cls.of_values(space.metric_values()[metric])

    @classmethod
    def of_values(cls, values: FloatArray) -> Ends:
        """The ends of some numbers."""
        return cls(float(np.min(values)), float(np.max(values)))

    @property
    def middle(self) -> float:
        """Half way between them."""
        return (self.low + self.high) / 2

    @property
    def span(self) -> float:
        """How far replacing one outcome can move a sum."""
        return self.high - self.low
