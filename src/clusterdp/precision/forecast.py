"""One prediction of variance: what plans, previews and published pages expect of effects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.precision.closed_form import (
    LevelNoise,
    arm_cells,
    calibrated_variances,
    published_noise,
)
from clusterdp.precision.prediction import ExpectedVariance
from clusterdp.precision.row_noise import RowNoise
from clusterdp.statistics.contrasts import NoisyContrasts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.precision.closed_form import ArmLayout
    from clusterdp.precision.expected import Scenario
    from clusterdp.spec.purpose import Purpose


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
        metrics = range(len(space.metric_values()))
        return tuple(_by_statistics(mechanism, scenario, metric) for metric in metrics)
    prior = mechanism.settled_rows(space).public_prior(space)
    return Forecast(scenario, prior, mechanism.asked_share)(
        arm_cells(layout, mechanism.total_weights(layout)),
        published_noise(mechanism, layout, space),
        noise or RowNoise.designed(mechanism, scenario),
    )


def predict_quickly(mechanism: Mechanism, scenario: Scenario) -> tuple[ExpectedVariance, ...]:
    """As `predict`; a public channel is interpolated, not designed for the very ε of its rows."""
    with_rows = mechanism.releases_rows
    return predict(
        mechanism, scenario, RowNoise.interpolated(mechanism, scenario) if with_rows else None
    )


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
    units with an observed outcome is linearized: (N − θD)/E[D], with θ and E[D] of all clusters
    together. The noise of privacy on N and D counts as independent.

    Args:
        scenario: What is known.
        prior: What is public of outcomes; axes `[category]`.
        asked_share: The share of units that are asked.
        likely: What variances of outcomes are taken to be, as a share of what is expected.
    """

    def __init__(
        self, scenario: Scenario, prior: FloatArray, asked_share: float, likely: float = 1.0
    ) -> None:
        self._layout, self._share = scenario.layout, asked_share
        values = scenario.space.metric_values()
        self._spans = np.ptp(values, axis=1).tolist()
        means, self._factors = values @ scenario.overall, np.eye(len(values))
        for metric, ratio in scenario.space.of_observed().items():
            self._factors[metric, ratio.observed] = -means[metric] / means[ratio.observed]
            self._factors[metric] /= means[ratio.observed]
        linear = self._factors @ values
        self._spreads = [likely * unit_spread(self._layout, scenario.probs, one) for one in linear]
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
        found = []
        for metric, factors in enumerate(self._factors):
            by_arm, public, *at_levels = (_summed(factors, one) for one in parts)
            # With a share π of units asked, the noise of a unit is v/π + (1/π − 1)σ².
            more = 1 / self._share - 1
            rows = by_arm / self._share + more * self._spreads[metric]
            assumed = public / self._share + more * self._public_spreads[metric]
            privacy = [
                calibrated_variances(arm, LevelNoise(*at_levels), rows[..., place], assumed)
                for place, arm in enumerate(cells)
            ]
            by_rows = rows * [arm.by_rows for arm in cells]
            found.append(self._expected(metric, np.stack(privacy, axis=-1), by_rows))
        return tuple(found)

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
        )


def _summed(factors: FloatArray, variances: Iterable[FloatArray]) -> FloatArray:
    """The variance of a sum of metrics; infinite ones count only if their metric does."""
    pairs = zip(factors.tolist(), variances, strict=True)
    return np.asarray(sum(factor**2 * one for factor, one in pairs if factor))


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


def _by_statistics(mechanism: Mechanism, scenario: Scenario, metric: int) -> ExpectedVariance:
    """What to expect of a metric where statistics alone are published."""
    layout, values = scenario.layout, scenario.space.metric_values()[metric]
    everyone, span = replace(layout, breakdowns=()), float(np.ptp(values))
    sampling = sampling_variances(everyone, unit_spread(layout, scenario.probs, values))
    if mechanism.find(NoisyContrasts) is not None:
        sampling = _largest_sampling(everyone, span)
    chosen = layout.clusters_by_size(_CLUSTERS)
    some = layout.of_clusters(chosen)
    noise = mechanism.statistics[0].contrast_variance(some, scenario.space, metric)
    shares = layout.cluster_shares[chosen]
    stand_for = len(layout.clusters) / len(chosen)
    return ExpectedVariance(
        sampling=layout.against_control(sampling),
        privacy=stand_for * (shares**2 * noise).sum(axis=0, keepdims=True),
        by_rows=None,
        largest_effect=span,
    )


def _largest_sampling(layout: Layout, span: float) -> FloatArray:
    """The largest possible variances of means, which estimates from contrasts alone print.

    Contrasts do not tell how outcomes spread. In an interval it is at most span²/4 (Popoviciu).
    """
    sizes = layout.sizes.sum(axis=1, keepdims=True)
    largest = span**2 / 4 * sizes / np.maximum(sizes - 1, 1)
    return np.asarray((layout.mean_weights * largest).sum(axis=0, keepdims=True))
