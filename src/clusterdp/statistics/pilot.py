"""A pilot: one noisy histogram of all units, drawn before anything else.

What is released afterwards follows from it: where numbers are clipped, their grids, and the prior
that channels are designed for. So it is drawn once, written down before it is used, and published.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import msgspec

from clusterdp.errors import FormatError, ParameterError
from clusterdp.privacy.accounting import (
    LossAtom,
    checked_epsilon,
    noise_scale_for,
    noisy_counts_loss,
)
from clusterdp.statistics.noise import noise_variance

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.outcomes.categories import Categories
    from clusterdp.statistics.noise import NoiseSource

_BIN, _COLUMN = "bin", "noisy_count"
# Noise of less buries any table.
_LEAST_EPSILON = 1e-6


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
