"""Rows of a question that a share of units is asked: a channel with one more output, "not asked".

A unit is asked with the public probability π, by a hash of its id. Asked, it answers through the
question's channel, and its debiased outcome is ỹ. For every unit let

    u = c + 1{asked}·(ỹ − c)/π

Then E[u | y] = y for any center c, and Var(u | y) = v/π + (1/π − 1)(y − c)², v the noise of ỹ.
So a question is as a channel that everyone goes through, in which "not asked" says nothing, and all
that is known of channels holds for it. A centre that is wrong by d adds (1/π − 1)d² per unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.channels import Channel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskedChannel:
    """The answers of everyone to a question: those of a channel, and "not asked", which is last.

    Attributes:
        channel: What the units that are asked go through.
        share: π.
        prior: What categories are thought to be like, from public numbers; axes `[category]`. The
            centre of a function is its mean under it.
    """

    channel: Channel
    share: float
    prior: FloatArray

    @property
    def groups(self) -> IntArray:
        """The channel of each cell; axes `[cluster, arm]`."""
        return self.channel.groups

    @property
    def values(self) -> FloatArray:
        """What categories count as; axes `[metric, category]`."""
        return self.channel.values

    def transition(self) -> FloatArray:
        """Q; axes `[channel, released, true]`."""
        asked = self.share * self.channel.transition()
        silent = np.full_like(asked[..., :1, :], 1 - self.share)
        return np.concatenate([asked, silent], axis=-2)

    def possible(self) -> BoolArray:
        """Which outputs each channel has; axes `[channel, released]`."""
        asked = self.channel.possible()
        return np.concatenate([asked, np.ones_like(asked[..., :1])], axis=-1)

    def decode(self, metric: int = 0) -> FloatArray:
        """What each output counts as in a metric; axes `[channel, released]`."""
        return self._everyone(self.channel.decode(metric), self.values[metric])

    def decode_function(self, values: FloatArray, priors: FloatArray) -> tuple[FloatArray, bool]:
        """What each output counts as in any function of the category; see `OptimalChannel`."""
        debiased, spanned = self.channel.decode_function(values, priors)
        return self._everyone(debiased, values), spanned

    def noise_variance(self, metric: int = 0) -> FloatArray:
        """Var(debiased | true) of a metric; axes `[channel, true]`."""
        return self.noise_of(self.values[metric], self.decode(metric))

    def noise_of(self, values: FloatArray, debiased: FloatArray) -> FloatArray:
        """The same of any function `[category]`, from what outputs count as in it."""
        distances = debiased[..., np.newaxis] - values
        return np.asarray((self.transition() * distances**2).sum(axis=-2))

    def read_numbers(self, numbers: FloatArray) -> FloatArray:
        """A reading of numbers of categories `[channel, true]`; axes `[channel, released]`."""
        return self._everyone(self.channel.read_numbers(numbers), numbers)

    def _everyone(self, debiased: FloatArray, values: FloatArray) -> FloatArray:
        """u, from ỹ of units that are asked; the center is the mean of values under the prior."""
        centre = (values @ self.prior)[..., np.newaxis]
        centre = np.broadcast_to(centre, debiased[..., :1].shape)
        return np.concatenate([centre + (debiased - centre) / self.share, centre], axis=-1)
