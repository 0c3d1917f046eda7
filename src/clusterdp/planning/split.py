"""How much of ε goes to noisy counts, to noisy sums and to rows."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from clusterdp.channels.integers import LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON
from clusterdp.errors import ParameterError
from clusterdp.estimation.calibration import summary_mean_variance
from clusterdp.planning.assumptions import cell_reference
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario

# Rows keep at least half of ε: what is published at user level has to be of use.
MOST_SUMS_SHARE = 0.5
_SUM_SHARES = np.linspace(0, MOST_SUMS_SHARE, 51)
# Of all splits whose error is this near to the least, the one that is best for the other purpose.
_INDIFFERENT = 0.004
# What a plan for the overall effect looks at besides: a segment of this share.
USUAL_SEGMENT = 0.1
# Noise variances of rows are computed at powers of this, and interpolated in between; coarser and
# from fewer clusters where each cell needs a channel of its own.
_GRID, _DESIGNED_GRID = 1.15, 1.6
_CLUSTERS, _DESIGNED_CLUSTERS, _DRAWS = 64, 6, 4
_HAIR = 1e-9


class Split(NamedTuple):
    """Shares of ε for noisy counts and noisy sums; the rest is for the rows."""

    counts: float
    sums: float


class _Errors(NamedTuple):
    """Predicted variances of a split: of what is asked for, and of the other purpose."""

    split: Split
    wanted: float
    other: float


def best_split(
    build: Callable[[Split], Mechanism],
    scenario: Scenario,
    *,
    counts: tuple[float, ...],
    sums: float | None,
    segment_share: float,
) -> Split:
    """The split of least predicted standard error.

    Where several are as good as the best, it is the one that serves the other purpose most: small
    segments if the overall effect is asked for, the overall effect if a segment is.

    Args:
        build: The mechanism of a split.
        scenario: What is known.
        counts: Shares for counts to choose from.
        sums: The share for sums, if it is given.
        segment_share: The share of every cell that effects are wanted of.
    """
    shares = _SUM_SHARES if sums is None else np.array([sums])
    if len(counts) == 1 and len(shares) == 1:
        return Split(counts[0], float(shares[0]))
    other = 1.0 if segment_share < 1 else USUAL_SEGMENT
    found = [
        _Errors(split, predict_(segment_share), predict_(other))
        for split, predict_ in _predictions(build, scenario, counts, shares)
    ]
    if not found:
        build(Split(counts[0], float(shares[0]))).guarantee(scenario.space)  # raises what is wrong
    least = min(errors.wanted for errors in found)
    as_good = [errors for errors in found if errors.wanted <= least * (1 + _INDIFFERENT) ** 2]
    return min(as_good, key=lambda errors: errors.other).split


class _Predictor:
    """Predicted variances of a mechanism that rows of several ε belong to."""

    def __init__(self, like: Mechanism, scenario: Scenario) -> None:
        layout, space, reference = scenario
        self._layout, self._space = layout, space
        self._sampling = theory.sampling_variance(
            reference.of_clusters(np.arange(len(layout.clusters))), layout, space.metric_values()[0]
        )
        self._noise = _RowNoise(like, scenario)
        prior = like.settled_rows(space).public_prior(space)
        public = scenario._replace(reference=cell_reference(prior[None, None]))
        self._public = _RowNoise(replace(like, statistics=()), public)

    def variance(self, mechanism: Mechanism, segment_share: float) -> float:
        """Of the effect that is known least, for a mechanism that differs in its split alone."""
        epsilon = mechanism.row_epsilon(self._space)
        cells = theory.mean_noise(
            self._noise(epsilon),
            self._layout.sizes,
            segment_share,
            by_summary=summary_mean_variance(mechanism, self._layout, self._space),
            public=self._public(epsilon),
        )
        total = theory.weighted(cells, self._layout) + self._sampling / segment_share
        return float(total.max())


def _predictions(
    build: Callable[[Split], Mechanism],
    scenario: Scenario,
    counts: tuple[float, ...],
    shares: FloatArray,
) -> Iterator[tuple[Split, Callable[[float], float]]]:
    """Every split that leaves enough for rows, with its predicted variances."""
    for counted in counts:
        most = 1.0 if len(shares) == 1 else max(MOST_SUMS_SHARE - counted, 0.0) + _HAIR
        splits = [Split(counted, float(share)) for share in shares if share <= most]
        made = [(split, build(split)) for split in splits]
        affordable = [pair for pair in made if _leaves_rows(pair[1], scenario.space)]
        if affordable:
            predictor = _Predictor(affordable[0][1], scenario)
            for split, mechanism in affordable:
                yield split, partial(predictor.variance, mechanism)


def _leaves_rows(mechanism: Mechanism, space: CategorySpace) -> bool:
    """Whether a split leaves enough of ε for rows."""
    try:
        mechanism.guarantee(space)
    except ParameterError:
        return False
    return True


class _RowNoise:
    """The average noise variance of a unit, for any ε of the rows."""

    def __init__(self, like: Mechanism, scenario: Scenario) -> None:
        layout, space, reference = scenario
        counted = like.find(NoisyCounts) is not None
        per_cell = like.designs_rows and counted
        self._like, self._rows, self._space = like, like.settled_rows(space), space
        chosen = layout.clusters_by_size(_DESIGNED_CLUSTERS if per_cell else _CLUSTERS)
        self._layout = layout.of_clusters(chosen)
        probs = reference.of_clusters(chosen)
        self._counts = cast("IntArray", self._layout.sizes[..., np.newaxis] * probs)
        self._n_draws = _DRAWS if counted and not per_cell else 1
        self._step = math.log(_DESIGNED_GRID if per_cell else _GRID)
        self._known: dict[int, float] = {}

    def __call__(self, epsilon: float) -> float:
        place = math.log(epsilon) / self._step
        least = math.ceil(math.log(SMALLEST_ROW_EPSILON) / self._step)
        most = math.floor(math.log(LARGEST_ROW_EPSILON) / self._step)
        below = min(max(math.floor(place), least), most - 1)
        part = place - below
        return math.exp((1 - part) * self._log_at(below) + part * self._log_at(below + 1))

    def _log_at(self, power: int) -> float:
        """The logarithm at a point of the grid."""
        if power not in self._known:
            rows = self._rows.at_epsilon(math.exp(power * self._step), self._space)
            made = replace(self._like, rows=rows)
            rng = np.random.default_rng(0)  # the same noise for every candidate; no data
            draws = [
                theory.unit_noise(self._counts, self._layout, self._space, made, rng)
                for _ in range(self._n_draws)
            ]
            weights = theory.cell_weights(self._layout)
            self._known[power] = math.log(np.average(np.mean(draws, axis=0), weights=weights))
        return self._known[power]
