"""The noise of a unit's row: of a channel at hand, of one that is designed, or of those asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from clusterdp.mechanisms.draw import complete
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace

Noise = TypeVar("Noise", float, "FloatArray")


def unit_noise(
    counts: IntArray,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    rng: np.random.Generator,
) -> FloatArray:
    """Noise variance of a unit, given one draw of the statistics; axes `[metric, cluster, arm]`."""
    # Only counts are asked for; sums of large values may not fit 64 bits.
    nothing = np.zeros((*layout.sizes.shape, 0), dtype=np.int64)
    totals = CellTotals(counts=counts, sums=nothing, squares=nothing, groups={})
    noise = simulated_noise(rng)
    learned_from = tuple(
        one.draw(totals, layout, space, noise) for one in mechanism.statistics if one.of_categories
    )
    channel = complete(learned_from, layout, space, mechanism).channel
    assert channel is not None  # noqa: S101 - there are rows
    return _summed_noise(channel, counts) / layout.sizes


def public_unit_noise(mechanism: Mechanism, space: CategorySpace) -> FloatArray:
    """The noise variance of a unit as far as it is public; axes `[metric]`.

    It is of a channel that is made without statistics, and decides how rows are weighed against
    sums.
    """
    rows = mechanism.settled_rows(space)
    channel, prior = rows.public_channel(space), rows.public_prior(space)
    metrics = range(len(channel.values))
    return np.array([channel.noise_variance(metric)[0] @ prior for metric in metrics])


def channel_unit_noise(channel: Channel, layout: Layout, probs: FloatArray) -> FloatArray:
    """The noise variance of a unit's row in a channel; axes `[metric, arm]`.

    Averaged over clusters as they count in the mean of an arm.

    Args:
        channel: The channel of every cell.
        layout: What is public.
        probs: What outcomes are thought to be like; axes `[cluster or 1, arm or 1, category]`.
    """
    return layout.arm_averages(_summed_noise(channel, probs))


def spread_over_asked(noise: Noise, spread: FloatArray | float, share: float) -> Noise:
    """v/π + (1/π − 1)σ²: the noise variance of a unit if a share π of units is asked.

    Args:
        noise: v, that of the row of a unit that is asked.
        spread: σ², the variance of what is asked.
        share: π.
    """
    return noise / share + (1 / share - 1) * spread  # type: ignore[return-value]  # of one shape


def _summed_noise(channel: Channel, counts: FloatArray | IntArray) -> FloatArray:
    """The noise of all units of a cell, from how many have each category.

    Axes `[cluster, arm, category]` in, `[metric, cluster, arm]` out.
    """
    return np.stack(
        [
            (counts * channel.noise_variance(metric)[channel.groups]).sum(axis=-1)
            for metric in range(len(channel.values))
        ]
    )
