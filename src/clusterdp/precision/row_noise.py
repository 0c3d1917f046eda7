"""The noise of a unit's row: of a channel at hand, of one that is designed, or interpolated."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
import numpy as np

from clusterdp.channels.base import ASKED_TOTAL, LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON
from clusterdp.channels.optimal import OptimalRows
from clusterdp.mechanisms.draw import design_channel
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.precision.expected import Scenario

# How many clusters and draws of noisy counts the noise of rows is averaged over: where rows are
# redrawn, where every cell has a channel of its own to be designed, and where it is designed for
# several metrics, which takes longest. More of the first would change the third digit.
Sizes = tuple[tuple[int, int], ...]
_THOROUGH: Sizes = ((400, 8), (20, 2), (2, 2))
_QUICK: Sizes = ((64, 4), (6, 1), (1, 1))
# Channels are made at powers of these: those that are designed, and others. The variance of a unit
# is then known to 2%. Below this ε the noise of designed ones goes with Warner's.
_STEP_DESIGNED, _STEP, _AS_WARNER = math.sqrt(2), 1.15, 0.25
# Where a channel is known so near in ε, measured in steps, it is enough.
_NEAR = 0.02


class RowNoise(NamedTuple):
    """The noise variance of the row of a unit that is asked; `...` are alternatives.

    Attributes:
        by_arm: Averaged over clusters as they count in the mean of an arm, if outcomes are as
            expected; axes `[metric, ..., arm]`.
        public: The same if outcomes are as the public prior, which decides how rows are weighed
            against sums; axes `[metric, ...]`.
    """

    by_arm: FloatArray
    public: FloatArray

    @classmethod
    def from_channel(cls, channel: Channel, scenario: Scenario, prior: FloatArray) -> RowNoise:
        """Of a channel at hand.

        Args:
            channel: That of every cell, or one of all.
            scenario: What is known.
            prior: The public prior; axes `[category]`.
        """
        return cls._from_noise(_cell_noise(channel), scenario, prior)

    @classmethod
    def near(cls, rows: OptimalRows, scenario: Scenario) -> RowNoise:
        """Of a public channel that is nearly the one that would be designed."""
        noise = rows.near_noise(scenario.space)[:, np.newaxis, np.newaxis]
        return cls._from_noise(noise, scenario, rows.public_prior(scenario.space))

    @classmethod
    def _from_noise(cls, noise: FloatArray, scenario: Scenario, prior: FloatArray) -> RowNoise:
        """Of noise by category; axes `[metric, cluster or 1, arm or 1, category]`."""
        layout = scenario.layout
        by_arm, public = (
            layout.arm_averages((noise * probs).sum(axis=-1)) for probs in (scenario.probs, prior)
        )
        return cls(by_arm, public.mean(axis=-1))

    @classmethod
    def designed(
        cls, mechanism: Mechanism, scenario: Scenario, sizes: Sizes = _THOROUGH
    ) -> RowNoise:
        """Of the channel that a mechanism designs; where counts decide it, as they are expected."""
        space = scenario.space
        rows = mechanism.settled_rows(space)
        found = cls.from_channel(rows.public_channel(space), scenario, rows.public_prior(space))
        if mechanism.find(NoisyCounts) is None:
            return found
        return found._replace(by_arm=_learned_noise(mechanism, scenario, sizes))

    @classmethod
    def interpolated(cls, mechanism: Mechanism, scenario: Scenario) -> RowNoise:
        """The same quickly: a public channel is not designed for the very ε of its rows."""
        if not mechanism.designs_rows or mechanism.find(NoisyCounts) is not None:
            return cls.designed(mechanism, scenario)
        return NoiseCurve(mechanism, scenario)(np.array(mechanism.row_epsilon(scenario.space)))


class NoiseCurve:
    """The noise of rows at any ε, interpolated between the few channels that are designed.

    What is interpolated, linearly in log ε, is the logarithm of its ratio to Warner's
    e^ε/(e^ε − 1)². The ratio changes slowly: both fall with ε² at first and then with e^ε.

    Args:
        mechanism: The mechanism at some ε of rows.
        scenario: What is known.
        least: The least ε to design a channel for. Below, noise goes with Warner's.
    """

    def __init__(
        self, mechanism: Mechanism, scenario: Scenario, least: float = SMALLEST_ROW_EPSILON
    ) -> None:
        self._mechanism, self._scenario = mechanism, scenario
        self._rows, step = mechanism.settled_rows(scenario.space), _STEP
        if mechanism.designs_rows:
            step, least = _STEP_DESIGNED, max(least, _AS_WARNER)
        self._step = math.log(step)
        self._least = math.ceil(math.log(least) / self._step)
        self._known: dict[int, FloatArray] = {}

    def __call__(self, epsilon: FloatArray) -> RowNoise:
        """The noise at some ε of rows; axes `[...]`."""
        places = np.maximum(np.log(epsilon) / self._step, self._least)
        most = math.floor(math.log(LARGEST_ROW_EPSILON) / self._step)
        first = min(math.floor(places.min() + _NEAR), most - 1)
        last = max(min(math.ceil(places.max() - _NEAR), most), first)
        logs = np.stack([self._log_ratios(power) for power in range(first, last + 1)])
        below = np.clip(np.floor(places).astype(np.int64) - first, 0, max(last - first - 1, 0))
        above = np.minimum(below + 1, last - first)
        part = (places - first - below)[..., np.newaxis, np.newaxis]
        ratios = np.exp((1 - part) * logs[below] + part * logs[above])
        noise = np.moveaxis(warner(epsilon)[..., np.newaxis, np.newaxis] * ratios, -2, 0)
        return RowNoise(noise[..., :-1], noise[..., -1])

    def _log_ratios(self, power: int) -> FloatArray:
        """The logarithms where a channel is designed, the public one last; `[metric, arm + 1]`."""
        if power not in self._known:
            epsilon = math.exp(power * self._step)
            rows = self._rows.at_epsilon(epsilon, self._scenario.space)
            made = msgspec.structs.replace(self._mechanism, rows=rows)
            if isinstance(rows, OptimalRows) and made.find(NoisyCounts) is None:
                by_arm, public = RowNoise.near(rows, self._scenario)
            else:
                by_arm, public = RowNoise.designed(made, self._scenario, _QUICK)
            noise = np.concatenate([by_arm, public[:, np.newaxis]], axis=1)
            self._known[power] = np.log(noise / warner(epsilon))
        return self._known[power]


def warner(epsilon: float | FloatArray) -> FloatArray:
    """The noise variance of Warner's randomized response to 0 or 1: e^ε/(e^ε − 1)²."""
    return np.asarray(np.exp(epsilon) / np.expm1(epsilon) ** 2)


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
    channel = design_channel(learned_from, layout, space, mechanism)
    return np.asarray((counts * _cell_noise(channel)).sum(axis=-1) / layout.sizes)


def _cell_noise(channel: Channel) -> FloatArray:
    """The noise of a row of each category; axes `[metric, cluster or 1, arm or 1, category]`."""
    metrics = range(len(channel.values))
    return np.stack([channel.noise_variance(metric)[channel.groups] for metric in metrics])


def _learned_noise(mechanism: Mechanism, scenario: Scenario, sizes: Sizes) -> FloatArray:
    """The noise where channels follow from noisy counts, averaged over draws; `[metric, arm]`."""
    layout, counts = scenario.layout, mechanism.find(NoisyCounts)
    n_clusters, n_draws = sizes[1 + scenario.is_joint if mechanism.designs_rows else 0]
    if mechanism.designs_rows and counts is not None and counts.scope == "population":
        n_clusters = len(layout.clusters)  # all are counted together, and arms share a channel
    chosen = layout.clusters_by_size(n_clusters)
    sample = layout.of_clusters(chosen)
    if mechanism.asked < ASKED_TOTAL:  # counts cover units that are asked
        asked = np.maximum(np.rint(mechanism.asked_share * sample.sizes), 1).astype(np.int64)
        sample = replace(sample, sizes=asked, breakdowns=())
    # Expected counts, which need not be whole.
    expected = cast("IntArray", sample.sizes[..., np.newaxis] * scenario.probs[chosen])
    rng = np.random.default_rng(0)  # the same noise for every candidate; no data is involved
    made = mechanism.settled(scenario.space)
    draws = [unit_noise(expected, sample, scenario.space, made, rng) for _ in range(n_draws)]
    return sample.arm_averages(np.mean(draws, axis=0))
