"""The noise of a unit's row at any ε, interpolated between the few channels that are designed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec.structs import replace

from clusterdp.channels.integers import LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON
from clusterdp.channels.optimal_rows import OptimalRows
from clusterdp.planning.predictions import is_joint, takes_long
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario

# Channels are made at powers of these: of any kind; of one metric, where every cell needs its own;
# of several metrics; of several metrics and many categories.
_STEP, _STEP_PER_CELL, _JOINT_STEP, _LARGE_JOINT_STEP = 1.15, 1.6, math.sqrt(2), 2.0
_CLUSTERS, _CLUSTERS_PER_CELL, _JOINT_CLUSTERS_PER_CELL, _DRAWS = 64, 6, 1, 4
# Where a channel is known so near in ε, measured in steps, it is enough.
_NEAR = 0.02


class RowNoise:
    """The average noise variance of a unit in every metric, for any ε of the rows.

    A channel that would take long to design is not: its noise is that of a short search.

    What is interpolated, linearly in log ε, is the logarithm of its ratio to Warner's
    e^ε/(e^ε − 1)². The ratio changes slowly: both fall with ε² at first and then with e^ε.
    """

    def __init__(self, like: Mechanism, scenario: Scenario) -> None:
        layout, space, reference = scenario
        counted = like.find(NoisyCounts) is not None
        per_cell = like.designs_rows and counted
        self._like, self._rows, self._space = like, like.settled_rows(space), space
        chosen = layout.clusters_by_size(_n_clusters(like, scenario))
        self._layout = layout.of_clusters(chosen)
        probs = reference.of_clusters(chosen)
        self._counts = cast("IntArray", self._layout.sizes[..., np.newaxis] * probs)
        self._is_public = not counted
        self._n_draws = _DRAWS if counted and not per_cell else 1
        self._step = math.log(_step(like, scenario))
        self._known: dict[int, FloatArray] = {}

    def __call__(self, epsilon: float) -> FloatArray:
        """The noise variance at an ε; axes `[metric]`."""
        place = math.log(epsilon) / self._step
        least = math.ceil(math.log(SMALLEST_ROW_EPSILON) / self._step)
        most = math.floor(math.log(LARGEST_ROW_EPSILON) / self._step)
        below = min(max(math.floor(place + _NEAR), least), most - 1)
        part = place - below
        logs = self._log_ratio(below)
        if abs(part) > _NEAR:
            logs = (1 - part) * logs + part * self._log_ratio(below + 1)
        return np.asarray(warner(epsilon) * np.exp(logs))

    def _log_ratio(self, power: int) -> FloatArray:
        """The logarithm of the ratio where a channel is designed; axes `[metric]`."""
        if power not in self._known:
            epsilon = math.exp(power * self._step)
            weights = theory.cell_weights(self._layout)
            noise = (self._unit_noise(epsilon) * weights).sum(axis=(1, 2)) / weights.sum()
            self._known[power] = np.log(noise / warner(epsilon))
        return self._known[power]

    def _unit_noise(self, epsilon: float) -> FloatArray:
        """The noise variance of a unit in every cell; axes `[metric, cluster, arm]`."""
        rows = self._rows.at_epsilon(epsilon, self._space)
        if self._is_public and takes_long(self._space) and isinstance(rows, OptimalRows):
            rough = rows.rough_noise(self._space)
            if rough is not None:
                sums = self._counts @ rough.T  # [cluster, arm, metric]
                return np.moveaxis(sums / self._layout.sizes[..., np.newaxis], -1, 0)
        made = replace(self._like, rows=rows)
        rng = np.random.default_rng(0)  # the same noise for every candidate; no data
        draws = [
            theory.unit_noise(self._counts, self._layout, self._space, made, rng)
            for _ in range(self._n_draws)
        ]
        return np.asarray(np.mean(draws, axis=0))


def warner(epsilon: float | FloatArray) -> FloatArray:
    """The noise variance of Warner's randomized response to 0 or 1: e^ε/(e^ε − 1)²."""
    return np.asarray(np.exp(epsilon) / np.expm1(epsilon) ** 2)


def _step(like: Mechanism, scenario: Scenario) -> float:
    if like.designs_rows and is_joint(scenario.space):
        return _LARGE_JOINT_STEP if takes_long(scenario.space) else _JOINT_STEP
    per_cell = like.designs_rows and like.find(NoisyCounts) is not None
    return _STEP_PER_CELL if per_cell else _STEP


def _n_clusters(like: Mechanism, scenario: Scenario) -> int:
    counts = like.find(NoisyCounts)
    if counts is None or not like.designs_rows:
        return _CLUSTERS
    if counts.scope == "population":
        return len(scenario.layout.clusters)  # all that are counted together; arms share a channel
    return _JOINT_CLUSTERS_PER_CELL if is_joint(scenario.space) else _CLUSTERS_PER_CELL
