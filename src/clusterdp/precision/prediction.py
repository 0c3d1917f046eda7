"""What to expect of effects, from a mechanism and public numbers: of everyone, groups, segments.

An expectation is a standard error, and what of it privacy costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.outcomes.space import ValueRange
from clusterdp.precision.closed_form import (
    LevelNoise,
    arm_cells,
    calibrated_variances,
    level_noise,
)
from clusterdp.precision.row_noise import public_unit_noise, spread_over_asked
from clusterdp.statistics.contrasts import NoisyContrasts

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.precision.closed_form import ArmLayout


# What is shown in place of a detectable effect that is larger than any effect can be.
UNSEEN = "cannot be seen"
# Two-sided 5% test, 80% power.
_TESTED, _POWER = 0.975, 0.8


class Prediction(NamedTuple):
    """What the standard error of an effect should be, and what of it privacy costs.

    Of several treatments, the least certain one.

    Attributes:
        std_error: The standard error.
        sampling_std_error: The same from true outcomes.
        privacy_std_error: What privacy adds, in squares.
        largest_effect: The largest effect that is possible: the range of the metric.
        degrees: Degrees of freedom that are expected of it; infinite if intervals are normal.
        sampling_degrees: The same from true outcomes.
    """

    std_error: float
    sampling_std_error: float
    privacy_std_error: float
    largest_effect: float = math.inf
    degrees: float = math.inf
    sampling_degrees: float = math.inf

    @classmethod
    def from_variances(
        cls,
        sampling: FloatArray,
        privacy: FloatArray,
        largest_effect: float = math.inf,
        degrees: tuple[FloatArray, FloatArray] | None = None,
    ) -> Prediction:
        """From variances of every treatment; axes `[treatment]`.

        Args:
            sampling: From true outcomes.
            privacy: What privacy adds.
            largest_effect: The range of the metric.
            degrees: Degrees of freedom, and those from true outcomes; None if there are many.
        """
        total = sampling + privacy
        worst = int(np.argmax(total))
        return cls(
            math.sqrt(total[worst]),
            math.sqrt(sampling[worst]),
            math.sqrt(privacy[worst]),
            largest_effect,
            *(() if degrees is None else (float(one[worst]) for one in degrees)),
        )

    def to_dict(self) -> dict[str, float | None]:
        """Everything about it as plain values; no degrees of freedom where intervals are normal."""
        known = self._asdict()
        for name in ("degrees", "sampling_degrees"):
            known[name] = None if math.isinf(known[name]) else known[name]
        return {**known, "detectable_effect": self.detectable_effect}

    @property
    def detectable_effect(self) -> float:
        """The smallest effect that a two-sided 5% test finds with 80% probability."""
        return _detectable(self.degrees) * self.std_error

    @property
    def detectable_without_privacy(self) -> float:
        """The same from true outcomes."""
        return _detectable(self.sampling_degrees) * self.sampling_std_error

    @property
    def is_visible(self) -> bool:
        """Whether some possible effect can be detected."""
        return self.detectable_effect <= self.largest_effect

    @property
    def is_visible_without_privacy(self) -> bool:
        """The same from true outcomes."""
        return self.detectable_without_privacy <= self.largest_effect


def _detectable(degrees: float) -> float:
    """How many standard errors an effect has that is found."""
    if math.isinf(degrees):
        return NormalDist().inv_cdf(_TESTED) + NormalDist().inv_cdf(_POWER)
    from scipy.special import stdtrit

    return float(stdtrit(degrees, _TESTED) + stdtrit(degrees, _POWER))


# Of more clusters than this, some stand for all where each takes long; it changes the third digit.
_CLUSTERS = 400
_TINY = 1e-100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedVariance:
    """Variances that are expected of effects on one metric.

    Targets are everyone, then the groups of each breakdown; everyone alone where no rows are
    published.

    Attributes:
        sampling: Of effects from true outcomes; axes `[target, treatment]`.
        privacy: What privacy adds; axes `[target, treatment]`.
        by_rows: What privacy adds for everyone by rows alone, axes `[treatment]`; None if no rows
            are published.
        largest_effect: The largest effect that is possible: the range of the metric.
        between: The part of sampling that is between groups which were assigned as a whole; axes
            `[treatment]`.
        degrees: Degrees of freedom that such groups leave, with noise of privacy on what each adds,
            and without; axes `[treatment]` each. None if units were assigned.
    """

    sampling: FloatArray
    privacy: FloatArray
    by_rows: FloatArray | None
    largest_effect: float = math.inf
    between: FloatArray | float = 0.0
    degrees: tuple[FloatArray, FloatArray] | None = None

    @property
    def overall(self) -> Prediction:
        """Of the overall effect."""
        return self.of_target(0)

    def of_target(self, target: int) -> Prediction:
        """Of everyone (0), or of a group."""
        return self._prediction(self.sampling[target], self.privacy[target])

    def segment(self, share: float) -> Prediction | None:
        """Of a segment with this share of every cell; None if no rows are published.

        Calibration moves a segment as it moves everyone, and only rows tell the two apart.
        """
        if self.by_rows is None:
            return None
        privacy = self.privacy[0] + (1 / share - 1) * self.by_rows
        sampling = (self.sampling[0] - self.between) / share + self.between
        return self._prediction(sampling, privacy)

    def _prediction(self, sampling: FloatArray, privacy: FloatArray) -> Prediction:
        return Prediction.from_variances(sampling, privacy, self.largest_effect, self.degrees)


def expected_variances(  # noqa: PLR0913 - the parts of a release, and what is thought of it
    mechanism: Mechanism,
    layout: Layout,
    space: CategorySpace,
    probs: FloatArray,
    unit_noise: FloatArray | None,
    *,
    assumed: FloatArray | None = None,
) -> tuple[ExpectedVariance, ...]:
    """What to expect of effects on each metric.

    Args:
        mechanism: What is published.
        layout: What is public.
        space: The categories of outcomes.
        probs: What outcomes are thought to be like; axes `[cluster or 1, arm or 1, category]`.
        unit_noise: The noise variance of the row of a unit that is asked, axes `[metric, arm]`;
            None without rows.
        assumed: The same as far as it is public, axes `[metric]`; by default that of the
            mechanism's own channel, which then is designed.
    """
    values = space.metric_values()
    if unit_noise is None:
        metrics = range(len(values))
        found = [_by_statistics(mechanism, layout, space, probs, metric) for metric in metrics]
    else:
        assumed = public_unit_noise(mechanism, space) if assumed is None else assumed
        every = [
            _Measured(*parts, level_noise(mechanism, layout, space, metric))
            for metric, parts in enumerate(zip(values, unit_noise, assumed, strict=True))
        ]
        measured, overall = list(every), probs.mean(axis=(0, 1))
        for metric, ratio in space.of_observed().items():
            measured[metric] = _among_observed(every[metric], every[ratio.observed], overall)
        prior = mechanism.settled_rows(space).public_prior(space)
        cells, share = arm_cells(layout, mechanism.total_weights(layout)), mechanism.asked_share
        found = [_by_rows(one, share, layout, cells, probs, prior) for one in measured]
    spans = np.ptp(values, axis=1).tolist()
    return tuple(replace(one, largest_effect=span) for one, span in zip(found, spans, strict=True))


class _Measured(NamedTuple):
    """A function of the category, and the noise on it.

    Attributes:
        values: Axes `[category]`.
        noise: The noise variance of the row of a unit that is asked; axes `[arm]`.
        assumed: The same as far as it is public.
        levels: The noise on sums.
    """

    values: FloatArray
    noise: FloatArray
    assumed: float
    levels: LevelNoise


def _among_observed(above: _Measured, below: _Measured, overall: FloatArray) -> _Measured:
    """A mean N/D among those observed, by linearisation: (N − θD)/E[D].

    θ and E[D] are those of all clusters together. The noise of privacy on N and D counts as
    independent.
    """
    share = float(overall @ below.values)
    mean = float(overall @ above.values) / share
    square = max(mean**2, _TINY)  # sums that are not published have infinite noise

    def both(first: FloatArray, second: FloatArray) -> FloatArray:
        return np.asarray((first + square * second) / share**2)

    return _Measured(
        values=(above.values - mean * below.values) / share,
        noise=both(above.noise, below.noise),
        assumed=(above.assumed + square * below.assumed) / share**2,
        levels=LevelNoise(*map(both, above.levels, below.levels)),
    )


def _by_rows(  # noqa: PLR0913, PLR0917 - what is measured, of whom, and what is thought of it
    measured: _Measured,
    share: float,
    layout: Layout,
    cells: list[ArmLayout],
    probs: FloatArray,
    prior: FloatArray,
) -> ExpectedVariance:
    """What to expect of a metric whose rows are of a share of units that are asked."""
    values = measured.values
    noise = spread_over_asked(measured.noise, unit_spread(layout, probs, values), share)
    spread = prior @ (values - prior @ values) ** 2
    assumed = np.asarray(spread_over_asked(measured.assumed, spread, share))
    every = [
        calibrated_variances(arm, measured.levels, of_unit, assumed)
        for arm, of_unit in zip(cells, noise, strict=True)
    ]
    privacy = np.stack(every, axis=-1)
    by_rows, degrees = noise * [arm.by_rows for arm in cells], None
    sampling = sampling_variances(layout, probs, values)
    if layout.assigned is not None:
        each = ((privacy, by_rows), (np.zeros_like(privacy), np.zeros_like(by_rows)))
        with_privacy, without = (group_degrees(layout, sampling[0], *one) for one in each)
        degrees = with_privacy, without
    return ExpectedVariance(
        sampling=layout.against_control(sampling),
        privacy=layout.against_control(privacy),
        by_rows=layout.against_control(by_rows),
        between=layout.against_control(between_variances(layout, probs, values)),
        degrees=degrees,
    )


def unit_spread(layout: Layout, probs: FloatArray, values: FloatArray) -> FloatArray:
    """σ² of a unit within its cell, averaged over an arm; axes `[arm]`.

    Args:
        layout: What is public.
        probs: The distributions of outcomes; axes `[cluster or 1, arm or 1, category]`.
        values: Of the categories.
    """
    means = (probs @ values)[..., np.newaxis]
    spread = (probs * (values - means) ** 2).sum(axis=-1)
    return layout.arm_averages(spread)


def sampling_variances(layout: Layout, probs: FloatArray, values: FloatArray) -> FloatArray:
    """Variances of means from true outcomes: of arms, then of groups; axes `[target, arm]`.

    Args:
        layout: What is public.
        probs: The distributions of outcomes; axes `[cluster or 1, arm or 1, category]`.
        values: Of the categories.
    """
    everyone = layout.mean_weights.sum(axis=0) * unit_spread(layout, probs, values)
    between = between_variances(layout, probs, values)
    if layout.assigned is not None:
        everyone = (1 - layout.assigned.correlation) * everyone
    with np.errstate(divide="ignore"):
        inverse = [one.sizes.sum(axis=0) / one.sizes for one in layout.breakdowns]
    parts = [everyone[np.newaxis], *(everyone * one for one in inverse)]
    return np.asarray(np.concatenate(parts) + between)


def between_variances(layout: Layout, probs: FloatArray, values: FloatArray) -> FloatArray:
    """The part of them that groups have which were assigned as a whole: ρσ²·Σ w²; axes `[arm]`.

    Segments have it as well: all groups are in them.
    """
    of_units, assigned = unit_spread(layout, probs, values), layout.assigned
    if assigned is None:
        return np.zeros_like(of_units)
    return np.asarray(assigned.correlation * of_units * assigned.concentrations)


def group_degrees(
    layout: Layout, sampling: FloatArray, privacy: FloatArray, by_rows: FloatArray
) -> FloatArray:
    """Degrees of freedom of variances between groups; axes `[..., treatment]`.

    Groups differ by S + N, N the noise on what they add to the mean: by their own totals, if there
    are any, or by rows. With V = S + P that is as much as ν·(V/(S + N))² of ν degrees; Welch's of
    both arms.

    Args:
        layout: What is public, with groups that were assigned.
        sampling: S; axes `[arm]`.
        privacy: Variances of privacy of means, P first; axes `[..., target, arm]`.
        by_rows: N by rows alone; axes `[..., arm]`.
    """
    assert layout.assigned is not None  # noqa: S101 - the caller asks for groups
    noise, first = by_rows, 1
    for one in layout.breakdowns:
        last = first + len(one.sizes)
        if not one.compares_arms:
            shares = one.sizes / one.sizes.sum(axis=0)
            known = np.where(one.sizes > 0, privacy[..., first:last, :], 0.0)
            noise = (shares**2 * known).sum(axis=-2)
        first = last
    variances = sampling + privacy[..., 0, :]
    degrees = layout.assigned.degrees * (variances / (sampling + noise)) ** 2
    uncertain = layout.against_control(variances**2 / degrees)
    return np.asarray(np.maximum(layout.against_control(variances) ** 2 / uncertain, 1.0))


def _by_statistics(
    mechanism: Mechanism, layout: Layout, space: CategorySpace, probs: FloatArray, metric: int
) -> ExpectedVariance:
    """What to expect of a metric where statistics alone are published."""
    everyone = replace(layout, breakdowns=())
    values = space.metric_values()[metric]
    sampling = sampling_variances(everyone, probs, values)
    if mechanism.find(NoisyContrasts) is not None:
        sampling = _largest_sampling(everyone, ValueRange.from_values(values).span)
    chosen = layout.clusters_by_size(_CLUSTERS)
    some = layout.of_clusters(chosen)
    noise = mechanism.statistics[0].contrast_variance(some, space, metric)
    shares = layout.cluster_shares[chosen]
    stand_for = len(layout.clusters) / len(chosen)
    return ExpectedVariance(
        sampling=layout.against_control(sampling),
        privacy=stand_for * (shares**2 * noise).sum(axis=0, keepdims=True),
        by_rows=None,
    )


def _largest_sampling(layout: Layout, span: float) -> FloatArray:
    """The largest possible variances of means, which estimates from contrasts alone print.

    Contrasts do not tell how outcomes spread. In an interval it is at most span²/4 (Popoviciu).
    """
    sizes = layout.sizes.sum(axis=1, keepdims=True)
    largest = span**2 / 4 * sizes / np.maximum(sizes - 1, 1)
    return np.asarray((layout.mean_weights * largest).sum(axis=0, keepdims=True))
