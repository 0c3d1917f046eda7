"""Stages 3 and 5 of the paper: keep each outcome or redraw it; and what decodes that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.channels.alias_sampling import RedrawSampler
from clusterdp.channels.integers import KEEP_TOTAL, PRIOR_TOTAL
from clusterdp.statistics.columns import list_column

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.statistics.base import Arrays


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResamplingChannel:
    """P(released | true) of every cell: keep the outcome, or redraw it from the cell's prior.

    Q = (1−λ)I + λ q̃ 1ᵀ, with 1−λ = `keep_weight / KEEP_TOTAL` and q̃ = `weights / PRIOR_TOTAL`.
    Cells that share a prior share a group.

    Attributes:
        keep_weight: The probability of keeping a row, in integers.
        weights: The prior in integers; axes `[..., group, outcome]`.
        groups: The group of each cell; axes `[cluster, arm]`.
        space: The outcomes that are kept or redrawn.
    """

    keep_weight: int
    weights: IntArray
    groups: IntArray
    space: CategorySpace

    @property
    def values(self) -> FloatArray:
        """What categories count as; axes `[metric, category]`."""
        return self.space.metric_values()

    @property
    def resample_prob(self) -> float:
        """λ, exactly."""
        return (KEEP_TOTAL - self.keep_weight) / KEEP_TOTAL

    @property
    def keep_prob(self) -> float:
        """1−λ, exactly."""
        return self.keep_weight / KEEP_TOTAL

    def prior(self) -> FloatArray:
        """q̃, exactly; axes `[..., group, outcome]`."""
        return self.weights / PRIOR_TOTAL

    def transition(self) -> FloatArray:
        """Q; axes `[..., group, released, true]`."""
        redrawn = self.resample_prob * self.prior()[..., np.newaxis]
        return redrawn + self.keep_prob * np.eye(self.weights.shape[-1])

    def decode(self, metric: int = 0) -> FloatArray:
        """What each released category counts as: (ỹ − λm)/(1−λ), m the mean of the prior.

        Its expectation is the true outcome, whatever the prior. Axes `[..., group, released]`.
        """
        return self._decode(self.values[metric])

    def decode_function(self, values: FloatArray, priors: FloatArray) -> tuple[FloatArray, bool]:  # noqa: ARG002 - as other channels
        """The same of any function of the category `[category]`, and that it is in the span."""
        return self._decode(values), True

    def _decode(self, values: FloatArray) -> FloatArray:
        exact = self._unmix(np.broadcast_to(values, self.weights.shape).astype(np.longdouble))
        rounded = exact.astype(np.float64)
        # Rounding biases every outcome of a group alike, by λΣq̃(rounded − exact). It is taken back
        # from the one value where the smallest step of a float moves that sum the least.
        bias = self._prior_mean(rounded - exact)
        step = self.weights * np.spacing(np.abs(rounded))
        finest = step.argmin(axis=-1)[..., np.newaxis]
        share = np.take_along_axis(self.weights, finest, axis=-1) / PRIOR_TOTAL
        moved = np.take_along_axis(rounded, finest, axis=-1) - bias / share
        np.put_along_axis(rounded, finest, moved.astype(np.float64), axis=-1)
        return rounded

    def decoded(self) -> FloatArray:
        """`decode` of every metric; axes `[..., group, metric, released]`."""
        return np.stack([self.decode(metric) for metric in range(len(self.values))], axis=-2)

    def noise_variance(self, metric: int = 0) -> FloatArray:
        """Var(debiased | true) = λ/(1−λ)·(y−m)² + λ/(1−λ)²·v; axes `[..., group, true]`.

        m and v are the mean and the variance of the prior.
        """
        return self.noise_of(self.values[metric])

    def noise_of(self, values: FloatArray, debiased: FloatArray | None = None) -> FloatArray:  # noqa: ARG002 - as other channels
        """The same of any function `[category]`."""
        deviation = values - self._prior_mean(values)
        spread = self._prior_mean(deviation**2)
        odds = self.resample_prob / self.keep_prob
        return np.asarray(odds * deviation**2 + odds / self.keep_prob * spread)

    def read_numbers(self, numbers: FloatArray) -> FloatArray:
        """An unbiased reading of numbers of categories `[..., group, true]` from released ones.

        That of `noise_variance` has a mean over rows that estimates what privacy cost.
        """
        return self._unmix(numbers)

    def possible(self) -> BoolArray:
        """Which outputs each group has: all categories; axes `[group, released]`."""
        return np.ones(self.weights.shape, dtype=np.bool_)

    def sampler(self) -> RedrawSampler:
        """The channel as look-up tables."""
        return RedrawSampler.of(self.keep_weight, self.weights)

    def simulate(self, counts: IntArray, rng: np.random.Generator) -> IntArray:
        """How often each outcome is released, in distribution as if every row were randomized.

        Axes of `counts`: `[..., cluster, arm, outcome]`; of the result `[..., cluster, arm,
        released]`.
        """
        resampled = rng.binomial(counts, self.resample_prob)
        prior = self.prior()[..., self.groups, :]
        redrawn = rng.multinomial(resampled.sum(axis=-1), prior)
        return np.asarray(counts - resampled + redrawn)

    def cell_columns(self) -> list[pl.Series]:
        """The prior and the decode values of every cell."""
        return [
            list_column("prior", self.prior(), self.groups),
            list_column("decode", self.decoded(), self.groups),
        ]

    def channels_table(self) -> None:
        """There is no table of channels: everything is in the table of cells."""

    def arrays(self) -> Arrays:
        """What the channel is made of, by name; `ResampledRows.restore` takes it back."""
        return {"weights": self.weights, "groups": self.groups}

    def _unmix(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The function of the released outcome whose mean is `numbers` of the true one."""
        return (numbers - self.resample_prob * self._prior_mean(numbers)) / self.keep_prob

    def _prior_mean(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        total: npt.NDArray[Any] = (self.weights * numbers).sum(axis=-1, keepdims=True)
        return total / PRIOR_TOTAL
