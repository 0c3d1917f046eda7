"""How much of ε goes to noisy counts, to noisy sums and to rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from clusterdp.errors import ParameterError
from clusterdp.estimation.calibration import summary_mean_variance
from clusterdp.planning.assumptions import cell_reference
from clusterdp.planning.predictions import (
    Prediction,
    objective_weights,
    predict_metrics,
    sampling_variances,
    takes_long,
)
from clusterdp.planning.row_noise import RowNoise
from clusterdp.theory import formulas as theory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp._arrays import FloatArray
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


class Predictor:
    """Predicted variances of a mechanism that rows of several ε belong to, by interpolation."""

    def __init__(self, like: Mechanism, scenario: Scenario) -> None:
        self._layout, self._space = scenario.layout, scenario.space
        self._sampling = sampling_variances(scenario)
        self._weights = objective_weights(scenario)
        self._noise = RowNoise(like, scenario)
        prior = like.settled_rows(self._space).public_prior(self._space)
        public = scenario._replace(reference=cell_reference(prior[None, None]))
        self._public = RowNoise(replace(like, statistics=()), public)

    def variance(self, mechanism: Mechanism, segment_share: float) -> float:
        """Σ_j w_j·Var_j, of the treatment that is known least.

        The mechanism differs from the one at hand in its split alone.
        """
        total = self._sampling / segment_share + self._privacy(mechanism, segment_share)
        return float((self._weights @ total).max())

    def predict(self, mechanism: Mechanism, segment_share: float) -> tuple[Prediction, ...]:
        """What to expect of every metric."""
        sampling = self._sampling / segment_share
        return tuple(map(Prediction.of, sampling, self._privacy(mechanism, segment_share)))

    def _privacy(self, mechanism: Mechanism, segment_share: float) -> FloatArray:
        """The privacy variances of effects; axes `[metric, treatment]`."""
        epsilon = mechanism.row_epsilon(self._space)
        noise, public = self._noise(epsilon), self._public(epsilon)
        cells = (
            theory.mean_noise(
                noise[metric],
                self._layout.sizes,
                segment_share,
                by_summary=summary_mean_variance(mechanism, self._layout, self._space, metric),
                public=public[metric],
            )
            for metric in range(len(noise))
        )
        return np.stack([theory.weighted(of_metric, self._layout) for of_metric in cells])


def quick_predictions(
    mechanism: Mechanism, scenario: Scenario, segment_share: float = 1.0
) -> tuple[Prediction, ...]:
    """What to expect of every metric; by interpolation where a channel takes long to design."""
    if not mechanism.designs_rows or not takes_long(scenario.space):
        return predict_metrics(mechanism, scenario, segment_share)
    return Predictor(mechanism, scenario).predict(mechanism, segment_share)


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
            predictor = Predictor(affordable[0][1], scenario)
            for split, mechanism in affordable:
                yield split, partial(predictor.variance, mechanism)


def _leaves_rows(mechanism: Mechanism, space: CategorySpace) -> bool:
    """Whether a split leaves enough of ε for rows."""
    try:
        mechanism.guarantee(space)
    except ParameterError:
        return False
    return True
