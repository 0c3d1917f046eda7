"""What the pipeline needs of outcomes: categories, and what they count as in every metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from clusterdp._arrays import FloatArray, IntArray


# Larger integers, and differences of them, do not fit 64 bits.
LARGEST_INTEGER = 2**62
# Squares of larger distances do not fit.
_LARGEST_DISTANCE = 2**31


def squares_fit(integers: Sequence[int] | IntArray) -> bool:
    """Whether squares of twice the distances from the middle fit 64 bits."""
    return int(max(integers)) - int(min(integers)) <= _LARGEST_DISTANCE


def doubled_distances(integers: IntArray, low: int, high: int) -> IntArray:
    """Twice the distances from the middle of two ends; no step of it is larger than their span."""
    return np.asarray((integers - low) - (high - integers))


class MetricLattice(NamedTuple):
    """Metrics as integers times a unit, so that sums can be noised exactly.

    Attributes:
        units: The unit of each metric.
        integers: The integer of each category; axes `[metric, category]`. Between cuts a number
            adds integers between those of its categories to a sum.
        squared: For each metric whether squares are published next to its sums. With two values
            they follow from the sums; with values too far apart they do not fit.
        is_number: For each metric whether rows can have integers between those of categories.
        shifts: For each metric how many bits distances from the middle lose before they are
            squared, so that sums of squares fit 64 bits: none for finite outcomes.
        slacks: For each metric how many times noisier its sums are, relative to its span, than
            those of others.
    """

    units: tuple[Fraction, ...]
    integers: IntArray
    squared: tuple[bool, ...]
    is_number: tuple[bool, ...]
    shifts: tuple[int, ...]
    slacks: tuple[int, ...]

    def has_two_values(self, metric: int) -> bool:
        """Whether a metric has two values: both are equally far from their middle."""
        return not self.is_number[metric] and len(np.unique(self.integers[metric])) <= 2

    def doubled(self) -> IntArray:
        """Twice the distance of each category from the middle; axes `[metric, category]`."""
        ends = zip(self.integers, self.integers.min(axis=1), self.integers.max(axis=1), strict=True)
        return np.stack([doubled_distances(one, low, high) for one, low, high in ends])

    def squares(self) -> IntArray:
        """Squares of `doubled`, less their bits; right where `squared`. `[metric, category]`."""
        return np.asarray((self.doubled() >> np.array(self.shifts)[:, np.newaxis]) ** 2)


class ObservedRatio(NamedTuple):
    """A metric of units with an observed outcome: its mean is N/D, D the share observed.

    Attributes:
        observed: The index of the metric R, which is 1 for them and 0 for others. D is its mean.
        origin: The number that the metric, 0 for others, is a distance from for them.
    """

    observed: int
    origin: float


class CategorySpace(Protocol):
    """Finitely many categories, each with a value in every metric. It can be hashed."""

    @property
    def n_categories(self) -> int:
        """K, the number of categories."""

    def metric_values(self) -> FloatArray:
        """What categories count as; axes `[metric, category]`."""

    def metric_lattice(self) -> MetricLattice:
        """The same as integers."""

    def metric_weights(self, prior: FloatArray | None) -> FloatArray:
        """How much the variance of each metric counts in the design of a channel; `[metric]`."""

    def of_observed(self) -> dict[int, ObservedRatio]:
        """The metrics that cover units with an observed outcome, by their indexes."""

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The outcomes, whose means are the first metrics; none where they have no names."""

    @property
    def together(self) -> tuple[CategorySpace, ...]:
        """The spaces of all questions of a release in their order, this one among them."""

    @property
    def place(self) -> int:
        """The index of this one among them."""

    def __hash__(self) -> int: ...


class ValueRange(NamedTuple):
    """The least and the largest value of a metric."""

    low: float
    high: float

    @classmethod
    def from_values(cls, values: FloatArray) -> ValueRange:
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
