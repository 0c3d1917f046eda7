"""A pilot: one noisy histogram of all units, drawn before anything else.

**Bins** are fixed before any outcome is read, and cover every value there can be. A finite outcome
has a bin for each of its values. A number has bins that widen with the distance from zero, or from
the end of its range that is nearest to zero: their edges are 1, 1.2, 1.5, 2 and so on times powers
of ten, as far as these are lattice points. Both sides of a cut are edges.

What is released afterwards follows from it: where numbers are clipped, their grids, and the prior
that channels are designed for. So it is drawn once, written down before it is used, and published.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import msgspec

from clusterdp._text import exact
from clusterdp.errors import FormatError, ParameterError
from clusterdp.outcomes.categories import Categories, TooManyCategoriesError
from clusterdp.outcomes.grid import Grid, needed_points
from clusterdp.privacy.accounting import (
    LossAtom,
    checked_epsilon,
    noise_scale_for,
    noisy_counts_loss,
)
from clusterdp.statistics.noise import noise_variance

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.outcomes.number import Number
    from clusterdp.statistics.noise import NoiseSource

_BIN, _COLUMN = "bin", "noisy_count"
# Noise of less buries any table.
_LEAST_EPSILON = 1e-6


# More bins have more noise together than they show.
MOST_BINS = 512
# Leading digits of edges, in tenths; fewer where several outcomes would make too many bins.
_LEADING = ((10, 12, 15, 20, 25, 30, 40, 50, 60, 80), (10, 20, 50), (10, 30), (10,), ())


def pilot_space(declared: DeclaredOutcomes) -> Categories:
    """The bins of a pilot, jointly over outcomes: a row is in the bin at or below its numbers."""
    for leading in _LEADING[:-1]:
        with suppress(TooManyCategoriesError):
            return _with_bins(declared, leading)
    return _with_bins(declared, _LEADING[-1])


def _with_bins(declared: DeclaredOutcomes, leading: tuple[int, ...]) -> Categories:
    grids = tuple(
        Grid(number=number, points=_edges(number, declared.cuts(name), leading))
        for name, number in declared.numbers.items()
    )
    return Categories(declared=declared, grids=grids, most=MOST_BINS)


def _edges(number: Number, cuts: tuple[int, ...], leading: tuple[int, ...]) -> tuple[int, ...]:
    """Lower edges of bins, as steps above the lower end."""
    low, high = exact(number.low), exact(number.high)
    centre = min(max(Fraction(0), low), high)
    places = (
        (centre + sign * distance - low) / number.unit
        for distance in _distances(number, leading)
        for sign in (-1, 1)
    )
    steps = {
        int(place) for place in places if place.denominator == 1 and 0 <= place <= number.n_steps
    }
    return tuple(sorted({*steps, int((centre - low) / number.unit), *needed_points(number, cuts)}))


def _distances(number: Number, leading: tuple[int, ...]) -> Iterator[Fraction]:
    """Round numbers from one step up to the whole range."""
    power = number.unit / 10
    while power <= number.n_steps * number.unit:
        yield from (digits * power for digits in leading)
        power *= 10


class NoisyPilot(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a pilot, which are published as they are.

    Attributes:
        epsilon: ε of the pilot.
    """

    label: ClassVar[str] = "pilot"

    epsilon: float

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "epsilon", checked_epsilon(self.epsilon))
        if self.epsilon < _LEAST_EPSILON:
            raise ParameterError(
                f"epsilon of a pilot must be at least {_LEAST_EPSILON:g}, got {self.epsilon:g}; "
                "give a larger share (pilot=0.02, --pilot 0.02)"
            )

    @property
    def noise_scale(self) -> float:
        """σ: replacing a unit's outcomes moves two counts by one each."""
        return noise_scale_for(Fraction(2), self.epsilon)

    def parameters(self) -> dict[str, float]:
        """Its numbers, by the names that people are shown."""
        return {"epsilon of the pilot": self.epsilon}

    def loss(self) -> tuple[LossAtom, ...]:
        """Its privacy loss, largest first: 2/σ at most."""
        return noisy_counts_loss(self.noise_scale)

    def draw(self, counts: IntArray, bins: Categories, add_noise: NoiseSource) -> DrawnPilot:
        """Noisy counts of every bin, empty ones too, from true ones; axes `[bin]`."""
        noisy = add_noise(counts, self.noise_scale)
        return DrawnPilot(statistic=self, bins=bins, noisy_counts=noisy)

    def read(self, table: pl.DataFrame, bins: Categories) -> DrawnPilot:
        """The pilot, from its published table.

        Raises:
            FormatError: If the table is not that of a pilot with these bins.
        """
        import polars as pl

        expected = _labels(bins)
        sound = table.columns == [_BIN, _COLUMN] and table.schema[_COLUMN] == pl.Int64
        if not sound or table[_COLUMN].null_count() or not table[_BIN].equals(expected):
            raise FormatError("the table of the pilot is not one noisy count for every bin")
        return DrawnPilot(statistic=self, bins=bins, noisy_counts=table[_COLUMN].to_numpy())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnPilot:
    """A pilot histogram with its noise: public from here on.

    Attributes:
        statistic: How it was drawn.
        bins: What it counts.
        noisy_counts: Units in each bin, with noise; axes `[bin]`.
    """

    statistic: NoisyPilot
    bins: Categories
    noisy_counts: IntArray

    @property
    def variance(self) -> float:
        """The variance of the noise on every count."""
        return noise_variance(self.statistic.noise_scale)

    def to_table(self) -> pl.DataFrame:
        """Its published table: a row for each bin."""
        import polars as pl

        return pl.DataFrame([_labels(self.bins), pl.Series(_COLUMN, self.noisy_counts)])


def _labels(bins: Categories) -> pl.Series:
    """Each bin by the values at its lower ends."""
    import polars as pl

    return pl.Series(_BIN, bins.labels())
