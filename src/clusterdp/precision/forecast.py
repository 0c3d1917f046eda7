"""One prediction of variance: what plans, previews and published pages expect of effects.

What to expect of an effect is a standard error, and what of it privacy costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.precision.closed_form import (
    ArmLayout,
    LevelNoise,
    arm_cells,
    calibrated_variances,
    published_noise,
)
from clusterdp.precision.expected import without_rounding
from clusterdp.precision.row_noise import RowNoise
from clusterdp.spec.purpose import BREAKDOWNS, OVERALL
from clusterdp.statistics.contrasts import NoisyContrasts
from clusterdp.statistics.covariates import NoisyCovariates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.precision.expected import Scenario
    from clusterdp.spec.purpose import Purpose


# What is shown in place of a detectable effect that is larger than any effect can be.
UNSEEN = "none"
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedVariance:
    """Variances that are expected of effects on one metric; `...` are alternatives.

    Targets are everyone, then the groups of each breakdown; everyone alone where no rows are
    published. Predictions are of one alternative, without `...`.

    Attributes:
        sampling: Of effects from true outcomes; axes `[target, treatment]`.
        privacy: What privacy adds; axes `[..., target, treatment]`.
        by_rows: What privacy adds for everyone by rows alone, axes `[..., treatment]`; None if no
            rows are published.
        largest_effect: The largest effect that is possible: the range of the metric.
        between: The part of sampling that is between groups which were assigned as a whole; axes
            `[treatment]`.
        degrees: Degrees of freedom that such groups leave, with noise of privacy on what each adds,
            axes `[..., treatment]`, and without. None if units were assigned.
        adjusted: What the owner's covariate takes off sampling of the overall effect, and what its
            noise adds to privacy; axes `[treatment]`. None without one.
    """

    sampling: FloatArray
    privacy: FloatArray
    by_rows: FloatArray | None
    largest_effect: float
    between: FloatArray | float = 0.0
    degrees: tuple[FloatArray, FloatArray] | None = None
    adjusted: tuple[FloatArray, FloatArray] | None = None

    @property
    def overall(self) -> Prediction:
        """Of the overall effect, adjusted where the owner has a covariate."""
        if self.adjusted is None:
            return self.of_target(0)
        explained, noise = self.adjusted
        return self._prediction(self.sampling[0] - explained, self.privacy[0] + noise)

    def of_target(self, target: int) -> Prediction:
        """Of everyone (0), or of a group."""
        return self._prediction(self.sampling[target], self.privacy[target])

    def segment(self, share: float) -> Prediction | None:
        """Of a segment with this share of every cell; None if no rows are published.

        Calibration moves a segment as it moves everyone, and only rows distinguish the two.
        """
        if self.by_rows is None:
            return None
        privacy = self.privacy[0] + (1 / share - 1) * self.by_rows
        sampling = (self.sampling[0] - self.between) / share + self.between
        return self._prediction(sampling, privacy)

    def least_certain(self, purpose: Purpose, layout: Layout) -> Prediction:
        """Of what a purpose is about: of the groups of a breakdown, the least certain one."""
        if purpose.kind != BREAKDOWNS or self.by_rows is None:
            return self.segment(purpose.share) or self.overall
        targets, _ = purpose.groups(layout)
        return max(map(self.of_target, targets), key=lambda one: one.std_error)

    def of_purpose(self, purpose: Purpose, layout: Layout) -> FloatArray:
        """The variance that a purpose is judged by; axes `[..., treatment]`.

        Of a breakdown it is the average over groups, each counted by its share of the units.
        Groups that were assigned are few, and noise hides how they differ: that makes intervals
        longer, and the variance count for more.
        """
        variances = self.sampling + self.privacy
        found = variances[..., 0, :]
        if purpose.kind == OVERALL and self.adjusted is not None:
            explained, noise = self.adjusted
            found = found - explained + noise
        if self.by_rows is not None and purpose.kind == BREAKDOWNS:
            targets, shares = purpose.groups(layout)
            found = np.einsum("g,...gt->...t", shares, variances[..., targets, :])
        elif self.by_rows is not None:
            rows = self.by_rows + self.sampling[0] - self.between
            found = found + (1 / purpose.share - 1) * rows
        if self.degrees is None:
            return found
        from scipy.special import stdtrit

        return np.asarray(found * stdtrit(self.degrees[0], _TESTED) ** 2)

    def _prediction(self, sampling: FloatArray, privacy: FloatArray) -> Prediction:
        return Prediction.from_variances(sampling, privacy, self.largest_effect, self.degrees)


# Of more clusters than this, some stand for all where each takes long; it changes the third digit.
_CLUSTERS = 400


def predict(
    mechanism: Mechanism, scenario: Scenario, noise: RowNoise | None = None
) -> tuple[ExpectedVariance, ...]:
    """What to expect of effects on each metric.

    Args:
        mechanism: What is published.
        scenario: What is known.
        noise: The noise of rows, if it is at hand; by default a channel is designed.
    """
    layout, space = scenario.layout, scenario.space
    if not mechanism.releases_rows:
        return tuple(
            _by_statistics(mechanism, scenario, metric, values)
            for metric, values in enumerate(space.metric_values())
        )
    prior = mechanism.settled_rows(space).public_prior(space)
    covariates = mechanism.find(NoisyCovariates)
    return Forecast(scenario, prior, mechanism.asked_share, covariates=covariates)(
        arm_cells(layout, mechanism.total_weights(layout)),
        published_noise(mechanism, layout, space),
        noise or RowNoise.designed(mechanism, scenario),
    )


def predict_quickly(mechanism: Mechanism, scenario: Scenario) -> tuple[ExpectedVariance, ...]:
    """As `predict`; a public channel is interpolated, not designed for the very ε of its rows."""
    noise = RowNoise.interpolated(mechanism, scenario) if mechanism.releases_rows else None
    return predict(mechanism, scenario, noise)


def purpose_variances(
    precisions: Sequence[ExpectedVariance], purposes: Sequence[Purpose], scenario: Scenario
) -> FloatArray:
    """Σ_j w_j·Var_j over the metrics, by purpose; axes `[..., purpose, treatment]`."""
    of_metrics = [
        np.stack([one.of_purpose(purpose, scenario.layout) for purpose in purposes], axis=-2)
        for one in precisions
    ]
    return np.asarray(np.tensordot(scenario.weights, of_metrics, 1))


class Forecast:
    """Variances of effects on the metrics of a question whose rows are published.

    Noise may have axes `...` for many splits of ε, of which one split is one row. A mean N/D among
    units with an observed outcome is linearized (see `Scenario.factors`), and the noise of privacy
    on N and D counts as independent. That numbers are rounded is noise of rows: sums are of exact
    ones.

    Args:
        scenario: What is known.
        prior: What is public of outcomes; axes `[category]`.
        asked_share: The share of units that are asked.
        likely: What variances of outcomes are taken to be, as a share of what is expected.
        covariates: The owner's covariates; None without.
    """

    def __init__(
        self,
        scenario: Scenario,
        prior: FloatArray,
        asked_share: float,
        likely: float = 1.0,
        covariates: NoisyCovariates | None = None,
    ) -> None:
        self._space, self._covariates = scenario.space, covariates
        self._layout, self._share = scenario.layout, asked_share
        values, self._factors = scenario.space.metric_values(), scenario.factors
        self._spans = np.ptp(values, axis=1).tolist()
        self._rounding = self._factors**2 @ scenario.rounding
        linear = self._factors @ values
        self._spreads = [
            likely * unit_spread(self._layout, scenario.probs, one, rounding)
            for one, rounding in zip(linear, self._rounding, strict=True)
        ]
        # As estimates have it, which weigh rows by what is published: of rounded numbers.
        self._public_spreads = [likely * prior @ (one - prior @ one) ** 2 for one in linear]

    def __call__(
        self, cells: Sequence[ArmLayout], levels: Sequence[LevelNoise], noise: RowNoise
    ) -> tuple[ExpectedVariance, ...]:
        """Variances of each metric.

        Args:
            cells: What is public of each arm.
            levels: The noise on the sums of each metric.
            noise: The noise of the row of a unit that is asked.
        """
        of_sums = zip(*levels, strict=True)
        parts: list[Iterable[FloatArray]] = [noise.by_arm, noise.public, *of_sums]
        metrics: list[list[FloatArray]] = []
        for metric, factors in enumerate(self._factors):
            by_arm, public, *at_levels = (_summed(factors, one) for one in parts)
            # With a share π of units asked, the noise of a unit is v/π + (1/π − 1)σ², v that of
            # its row: of the channel and of rounding.
            more = 1 / self._share - 1
            rows = (by_arm + self._rounding[metric]) / self._share + more * self._spreads[metric]
            assumed = public / self._share + more * self._public_spreads[metric]
            metrics.append([rows, assumed, *at_levels])
        # All metrics and arms at once: each alone would take as long.
        every_row, every_assumed, *of_levels = map(np.stack, zip(*metrics, strict=True))
        arms = ArmLayout.stacked(cells, every_assumed.ndim)
        of_arms = np.moveaxis(every_row, -1, 0)
        privacy = calibrated_variances(arms, LevelNoise(*of_levels), of_arms, every_assumed)
        by_rows = every_row * [arm.by_rows for arm in cells]
        return tuple(
            self._expected(metric, np.moveaxis(privacy[:, metric], 0, -1), by_rows[metric])
            for metric in range(len(metrics))
        )

    def _expected(self, metric: int, privacy: FloatArray, by_rows: FloatArray) -> ExpectedVariance:
        """Variances of effects, from what privacy adds to those of arms."""
        layout, spread = self._layout, self._spreads[metric]
        sampling, degrees = sampling_variances(layout, spread), None
        if layout.assigned is not None:
            nothing = np.zeros_like(sampling), np.zeros_like(spread)
            degrees = (
                _group_degrees(layout, sampling[0], privacy, by_rows),
                _group_degrees(layout, sampling[0], *nothing),
            )
        return ExpectedVariance(
            sampling=layout.against_control(sampling),
            privacy=layout.against_control(privacy),
            by_rows=layout.against_control(by_rows),
            largest_effect=self._spans[metric],
            between=layout.against_control(_between_variances(layout, spread)),
            degrees=degrees,
            adjusted=self._adjusted(metric, sampling[0]),
        )

    def _adjusted(self, metric: int, sampling: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """What a covariate of the declared correlation gives, as estimates are adjusted.

        Its range is taken to have as many standard deviations as that of the outcome. Where its
        noise is more than it explains, estimates are not adjusted.
        """
        every = () if self._covariates is None else self._covariates.of_space(self._space)
        correlation = next((one.correlation for place, one in every if place == metric), None)
        if self._covariates is None or not correlation:
            return None
        layout, span = self._layout, self._spans[metric]
        imbalance, products = self._covariates.relative_noise(layout, self._space, metric)
        spread = float(self._spreads[metric].mean()) / span**2  # of both, in units of their ranges
        weights = layout.mean_weights.sum(axis=0)
        more = 1 + 2 * imbalance / (spread * layout.against_control(weights))
        explained = correlation**2 * layout.against_control(sampling) / more
        noise = layout.against_control(weights**2 * products) * span**2
        noise = noise / (spread * layout.against_control(weights) * more)
        # Slopes carry the noise of imbalance into the effect.
        noise = noise + explained * (more - 1) / more
        explained = explained * (1 + (more - 1) / more)
        better = explained > noise
        return np.where(better, explained, 0.0), np.where(better, noise, 0.0)


def _summed(factors: FloatArray, variances: Iterable[FloatArray]) -> FloatArray:
    """The variance of a sum of metrics; infinite ones count only if their metric does."""
    pairs = zip(factors.tolist(), variances, strict=True)
    return np.asarray(sum(factor**2 * one for factor, one in pairs if factor))


def unit_spread(
    layout: Layout, probs: FloatArray, values: FloatArray, rounding: FloatArray
) -> FloatArray:
    """σ² of a unit within its cell, averaged over an arm; axes `[arm]`.

    Args:
        layout: What is public.
        probs: The distributions of outcomes; axes `[cluster or 1, arm or 1, category]`.
        values: Of the categories.
        rounding: What of it is due to rounding, and is not in true outcomes.
    """
    means = (probs @ values)[..., np.newaxis]
    spread = (probs * (values - means) ** 2).sum(axis=-1)
    return without_rounding(layout.arm_averages(spread), rounding)


def sampling_variances(layout: Layout, spread: FloatArray) -> FloatArray:
    """Variances of means from true outcomes: of arms, then of groups; axes `[target, arm]`.

    Args:
        layout: What is public.
        spread: σ² of a unit; axes `[arm]`.
    """
    everyone = layout.mean_weights.sum(axis=0) * spread
    if layout.assigned is not None:
        everyone = (1 - layout.assigned.correlation) * everyone
    with np.errstate(divide="ignore"):
        inverse = [one.sizes.sum(axis=0) / one.sizes for one in layout.breakdowns]
    parts = [everyone[np.newaxis], *(everyone * one for one in inverse)]
    return np.asarray(np.concatenate(parts) + _between_variances(layout, spread))


def _between_variances(layout: Layout, spread: FloatArray) -> FloatArray:
    """The part of them that groups have which were assigned as a whole: ρσ²·Σ w²; axes `[arm]`.

    Segments have it as well: all groups are in them.
    """
    assigned = layout.assigned
    if assigned is None:
        return np.zeros_like(spread)
    return np.asarray(assigned.correlation * spread * assigned.concentrations)


def _group_degrees(
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
    mechanism: Mechanism, scenario: Scenario, metric: int, values: FloatArray
) -> ExpectedVariance:
    """What to expect of a metric where statistics alone are published."""
    layout, span, rounded = scenario.layout, float(np.ptp(values)), np.zeros(1)
    if mechanism.find(NoisyContrasts) is not None:
        # Contrasts do not show how outcomes spread, and estimates from them alone print the largest
        # variances that are possible: in an interval, span²/4 of a unit (Popoviciu).
        sizes = layout.sizes.sum(axis=1, keepdims=True)
        largest = span**2 / 4 * sizes / np.maximum(sizes - 1, 1)
        sampling = (layout.mean_weights * largest).sum(axis=0, keepdims=True)
    else:
        everyone, rounding = replace(layout, breakdowns=()), scenario.rounding[metric]
        spread = unit_spread(layout, scenario.probs, values, rounding)
        sampling = sampling_variances(everyone, spread)
        # Counts are of rounded numbers.
        rounded = rounding * layout.mean_weights.sum(axis=0)
    chosen = layout.clusters_by_size(_CLUSTERS)
    noise = mechanism.statistics[0].contrast_variance(
        layout.of_clusters(chosen), scenario.space, metric
    )
    shares = layout.cluster_shares[chosen]
    stand_for = len(layout.clusters) / len(chosen)
    added = layout.against_control(np.broadcast_to(rounded, (1, len(layout.arms))))
    return ExpectedVariance(
        sampling=layout.against_control(sampling),
        privacy=stand_for * (shares**2 * noise).sum(axis=0, keepdims=True) + added,
        by_rows=None,
        largest_effect=span,
    )
