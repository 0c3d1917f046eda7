"""Experiments for `bench/metric_coverage.py`, drawn and released as counts by cell.

Means of arms, and the numbers that are composed of them, are those that `estimate` would find.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.effect import FEW_UNITS
from clusterdp.estimation.effects.intervals import EVERYTHING, ArmPair, quantile
from clusterdp.estimation.means.arms import to_means
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.means.responses import CellMoments, ProfileSums
from clusterdp.estimation.means.sums import WeightedSums, public_ridge
from clusterdp.estimation.means.weights import arm_variances, weigh
from clusterdp.estimation.metrics._composed import ArmEstimates
from clusterdp.estimation.metrics.levels import ArmBounds, ArmLevels, BoundsEstimator, Levels
from clusterdp.estimation.metrics.quantiles import ArmQuantile, QuantilePair
from clusterdp.estimation.metrics.ratio import ArmRatio
from clusterdp.estimation.reading.profiles import Profiles, spread_cells
from clusterdp.mechanisms.draw import release_cells
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Density, Grid
from clusterdp.outcomes.metric import Threshold
from clusterdp.outcomes.number import Number
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.effects.intervals import ArmValue, EffectInterval, Limits
    from clusterdp.estimation.means.arms import ArmMeans
    from clusterdp.mechanisms.mechanism import Mechanism

N_CLUSTERS = 4
AS_NORMAL = "median, as of normal numbers"
_ROUNDS = Number(0, 120)
# Both have a cut at 10.
GRIDS = (
    (0, 9.99999, 10, 15, 22, 30, 45, 70, 120),
    (0, 2, 4, 6, 8, 9.99999, 10, 11, 12, 14, 16, 18, 20, 23, 27, 32, 38, 45, 55, 70, 90, 120),
)


class ArmMean(NamedTuple):
    """A mean of an arm, with a normal interval."""

    arm: ArmEstimates

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.arm.means[0])

    @property
    def bounds(self) -> Limits:
        """The mean twice."""
        return self.value, self.value

    @property
    def variances(self) -> tuple[float, float]:
        """Of sampling, and of privacy."""
        return max(float(self.arm.sampling[0]), 0.0), float(self.arm.privacy[0])

    def limits(self, level: float) -> Limits:
        """A normal interval, or Student's."""
        reach = quantile(level, self.arm.degrees) * math.sqrt(float(self.arm.variances[0]))
        return self.value - reach, self.value + reach


class Experiment(NamedTuple):
    """How outcomes are distributed, and what is asked of them.

    Attributes:
        space: The categories of `visit` and `spend`, or of `spend` alone.
        probs: How likely categories are in each arm; axes `[arm, category]`.
    """

    space: Categories
    probs: FloatArray

    @classmethod
    def of(cls, n_outcomes: int) -> Experiment:
        """Spend of 0 to K − 1: half of units spend nothing, the others less and less often."""
        space = Categories(declared=declare({"spend": list(range(n_outcomes))}))
        return cls(space, np.stack([_spend(n_outcomes, share) for share in (0.55, 0.62)]))

    @classmethod
    def with_visits(cls, n_outcomes: int) -> Experiment:
        """Units that do not visit do not spend; there is one more category."""
        declared = declare(
            {"visit": "0,1", "spend": list(range(n_outcomes))}, constraints=["spend>0 -> visit"]
        )
        probs = []
        for visits, share in ((0.4, 0.55), (0.45, 0.62)):
            probs.append(np.concatenate([[1 - visits], visits * _spend(n_outcomes, share)]))
        return cls(Categories(declared=declared), np.stack(probs))


def _spend(n_outcomes: int, share: float) -> FloatArray:
    """A share of units spends; levels from 1 on become less likely by a fifth each."""
    weights = 0.8 ** np.arange(n_outcomes - 1)
    return np.concatenate([[1 - share], share * weights / weights.sum()])


class Question(NamedTuple):
    """What is asked, and how it follows from means of functions.

    Attributes:
        name: In words.
        functions: The functions whose means are needed.
        compose: From an arm's means to a number with limits.
        truths: The true numbers of control and treatment.
        ridge_of: The function by whose noise all are calibrated; None for each by its own.
        compare: From both arms' numbers to the interval of their difference.
        span: The least and the largest value it can have.
        share: q, of a quantile that is one of a few values; None for anything else.
    """

    name: str
    functions: tuple[CategoryFunction, ...]
    compose: Callable[[ArmEstimates], ArmValue]
    truths: tuple[float, float]
    ridge_of: CategoryFunction | None = None
    compare: Callable[[Any, Any], EffectInterval] = ArmPair
    span: Limits = EVERYTHING
    share: float | None = None


def questions(n_outcomes: int) -> list[tuple[Experiment, Question]]:
    """A share, two quantiles and a ratio for outcomes with so many values."""
    alone, joint = Experiment.of(n_outcomes), Experiment.with_visits(n_outcomes)
    levels = Levels("spend", alone.space)
    return [
        (alone, _mean("share", levels.functions[n_outcomes // 2 - 1], alone.probs)),
        (alone, _quantile(0.5, levels, alone.probs, levels.values)),
        (alone, _quantile(0.9, levels, alone.probs, levels.values)),
        (joint, ratio_question(joint)),
    ]


def number_questions(points: Sequence[float]) -> list[tuple[Experiment, Question]]:
    """Shares at a cut and between grid points, and two quantiles, of a number."""
    grid = Grid(number=_ROUNDS, points=tuple(int(_ROUNDS.steps_to(point)) for point in points))
    space = Categories(declared=declare({"rounds": _ROUNDS}, metrics=["rounds>=10"]), grids=(grid,))
    steps = np.unique(np.linspace(0, _ROUNDS.n_steps, 4001).astype(np.int64))
    values = np.array([float(_ROUNDS.value(int(step))) for step in steps])
    probs = np.stack([_heavy_tailed(values, middle) for middle in (11.0, 13.0)])
    experiment = Experiment(
        space, np.stack([grid.rounded(Density(steps=steps, probs=each)) for each in probs])
    )
    levels = Levels("rounds", space)
    bounds = BoundsEstimator.from_comparison(
        Threshold(outcome="rounds", sign=">=", threshold=25.0), 0, space
    )
    shares = probs @ (values >= 25)
    between = Question(
        "share between", bounds.functions, ArmBounds, (float(shares[0]), float(shares[1]))
    )
    at_cut = CategoryFunction.declared("rounds>=10", space, 1)
    return [
        (experiment, _mean("share at a cut", at_cut, experiment.probs)),
        (experiment, between),
        (experiment, _quantile(0.5, levels, probs, values)),
        (experiment, _quantile(0.9, levels, probs, values)),
    ]


def jump_questions() -> list[tuple[Experiment, Question]]:
    """Medians of outcomes at both ends, with two intervals of their difference."""
    space = Categories(declared=declare({"stars": list(range(1, 6))}))
    upper = np.array([0.495, 0.505])
    probs = np.zeros((2, 5))
    probs[:, 0], probs[:, -1] = 1 - upper, upper
    levels = Levels("stars", space)
    median = _quantile(0.5, levels, probs, levels.values)
    experiment = Experiment(space, probs)
    return [(experiment, median), (experiment, median._replace(name=AS_NORMAL, compare=ArmPair))]


def _heavy_tailed(values: FloatArray, middle: float) -> FloatArray:
    """A lognormal distribution, cut off at the upper end."""
    density = np.exp(-0.5 * np.log((values + 0.01) / middle) ** 2) / (values + 0.01)
    return np.asarray(density / density.sum())


def _mean(name: str, function: CategoryFunction, probs: FloatArray) -> Question:
    control, treated = (float(true) for true in probs @ function.values)
    return Question(name, (function,), ArmMean, (control, treated))


def _quantile(share: float, levels: Levels, probs: FloatArray, values: FloatArray) -> Question:
    """A quantile, with the true distribution of the outcome over some values."""
    control, treated = (
        float(values[np.argmax(np.cumsum(each) >= share - 1e-12)]) for each in probs
    )
    return Question(
        "median" if share == 0.5 else f"P{100 * share:.0f}",
        levels.functions,
        lambda arm: ArmQuantile(ArmLevels(levels, arm), share),
        (control, treated),
        compare=QuantilePair,
        span=(float(levels.values[0]), float(levels.values[-1])),
        share=None if levels.step else share,
    )


def ratio_question(joint: Experiment) -> Question:
    """The second metric per first, such as spend per visit, where rows tell their product."""
    below, above = (
        CategoryFunction.declared(str(metric), joint.space, place)
        for place, metric in enumerate(joint.space.declared.metrics)
    )
    control, treated = (float(each @ above.values / (each @ below.values)) for each in joint.probs)
    third = above.minus(control, below)
    return Question(
        "ratio",
        (above, below, third),
        lambda arm: ArmRatio.polarized(arm, control),
        (control, treated),
        third,
    )


class Drawn(NamedTuple):
    """Counts of replicates; axes `[replicate, cluster, arm, category]`.

    Attributes:
        inside: Units of the segment.
        everyone: All units.
        layout: The cells.
    """

    inside: IntArray
    everyone: IntArray
    layout: Layout


def draw(
    experiment: Experiment, n_units: int, share: float, n_replicates: int, rng: np.random.Generator
) -> Drawn:
    """Fresh outcomes, with a segment of about a share of units."""
    sizes = np.full((N_CLUSTERS, 2), n_units // (2 * N_CLUSTERS))
    layout = Layout(clusters=tuple(range(N_CLUSTERS)), arms=(0, 1), control=0, sizes=sizes)
    shape = (n_replicates, N_CLUSTERS, 2)
    counts = rng.multinomial(np.broadcast_to(sizes, shape), experiment.probs)
    return Drawn(rng.binomial(counts, share), counts, layout)


def released_estimates(
    drawn: Drawn,
    question: Question,
    space: Categories,
    mechanism: Mechanism,
    rng: np.random.Generator,
) -> list[tuple[ArmEstimates, ArmEstimates]]:
    """Estimates of control and treatment in each replicate, from a release."""
    layout, profiles = drawn.layout, Profiles.from_layout(drawn.layout)
    totals = CellTotals.from_counts(drawn.everyone, space)
    statistics, channel = release_cells(totals, layout, space, mechanism, simulated_noise(rng))
    assert channel is not None  # noqa: S101 - all mechanisms here release rows
    part = channel.simulate(drawn.inside, rng)
    whole = part + channel.simulate(drawn.everyone - drawn.inside, rng)
    prior = np.full((channel.possible().shape[-2], space.n_categories), 1 / space.n_categories)
    ridge = None
    if (by := question.ridge_of) is not None:
        noise = by.unit_noise(mechanism, space)
        ridge = public_ridge(by.readings(statistics), noise.variance)
    found, origins = [], []
    for function in question.functions:
        outputs = function.outputs(channel, prior)
        inside, all_rows = (ProfileSums.from_cell_counts(one, outputs) for one in (part, whole))
        noise, readings = function.unit_noise(mechanism, space), function.readings(statistics)
        calibration = Calibration(readings, profiles, all_rows, noise, ridge)
        everyone = np.array_equal(drawn.inside, drawn.everyone)
        found.append(means_of_arms(inside, layout, profiles, calibration, everyone=everyone))
        origins.append(outputs.middle)
    return by_replicate(found, np.array(origins), drawn)


def means_of_arms(
    part: ProfileSums,
    layout: Layout,
    profiles: Profiles,
    calibration: Calibration,
    *,
    everyone: bool,
) -> ArmMeans:
    """Means of both arms, as `SegmentData.pair_means` makes them."""
    moments = part.cell_moments(profiles)
    weights = weigh(moments.sizes, layout, [0, 1])
    each = spread_cells(weights.of_units(), profiles, [0, 1])
    rows = calibration.apply(WeightedSums.from_rows(part, each))
    known = calibration.known_cells([0, 1]) if everyone else None
    return to_means(rows, moments, weights, known=known)


def true_estimates(drawn: Drawn, question: Question) -> list[tuple[ArmEstimates, ArmEstimates]]:
    """The same from true outcomes."""
    sizes, found = drawn.inside.sum(axis=-1), []
    weights = weigh(sizes, drawn.layout, [0, 1])
    for function in question.functions:
        means = drawn.inside @ function.values / np.maximum(sizes, 1)
        distances = function.values - means[..., np.newaxis]
        moments = CellMoments(
            sizes=sizes,
            means=means,
            squares=(drawn.inside * distances**2).sum(axis=-1),
            noise=np.zeros_like(means),
        )
        sampling = arm_variances(moments, weights)
        arms = (weights.shares * means).sum(axis=-2)
        found.append((arms, sampling, np.zeros_like(sampling), weights.degrees(0)))
    return by_replicate(found, np.zeros(len(found)), drawn)


def by_replicate(
    found: Sequence[tuple[FloatArray, ...]], origins: FloatArray, drawn: Drawn
) -> list[tuple[ArmEstimates, ArmEstimates]]:
    """Arrays of `ArmMeans` by function, as estimates by replicate."""
    # The last attribute is of no use where metrics are composed.
    means, sampling, privacy, degrees, *_ = (
        np.stack(part, axis=-1) for part in zip(*found, strict=True)
    )
    sizes = drawn.inside.sum(axis=(1, 3))  # [replicate, arm]
    few = np.minimum(sizes, degrees.min(axis=-1)) < FEW_UNITS

    def one(replicate: int, arm: int) -> ArmEstimates:
        here = replicate, arm
        least = float(degrees[here].min())
        return ArmEstimates(
            means=means[here] + origins,
            sampling=sampling[here],
            privacy=privacy[here],
            degrees=least if few[here] else math.inf,
        )

    return [(one(replicate, 0), one(replicate, 1)) for replicate in range(len(means))]
