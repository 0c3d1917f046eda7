"""Overall effects from a release without rows: from its noisy statistics alone."""

from __future__ import annotations

from clusterdp.cells.layout import Layout
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect, EffectArrays, EffectTarget, to_effect
from clusterdp.estimation.effects.notes import Note
from clusterdp.estimation.means.arms import contrast_effects
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.metrics.base import MetricFindings
from clusterdp.estimation.reading.request import EstimateRequest
from clusterdp.outcomes.space import ValueRange
from clusterdp.published.release import Release

_NO_SPREAD = (
    "This release does not identify the sampling variance, so the largest possible one is used."
)


def statistics_effects(release: Release, request: EstimateRequest) -> MetricFindings:
    """Overall effects from a release without rows."""
    layout, found = request.layout, MetricFindings()
    if request.estimator == "unstratified":
        raise ParameterError(
            "A release without rows has stratified effects only. Fix: leave out estimator "
            "(--unstratified)."
        )
    for question in release.questions:
        for place, metric in enumerate(question.space.declared.metrics):
            contrasts = question.statistics[0].contrasts(layout, place)
            arrays = contrast_effects(
                contrasts, layout, ValueRange.from_values(question.space.metric_values()[place])
            )
            function = CategoryFunction.declared(str(metric), question.space, place)
            found.shares.extend([function.name] * function.is_share(question.space))
            if question.space.declared.observed_place(place) is None:
                found.describe(function.name, function.values)
            found.outcomes.extend(function.outcomes(question.space))
            found.notes.extend([Note(_NO_SPREAD)] if arrays.degrees is None else [])
            found.effects.extend(overall_effects(arrays, layout, str(metric)))
    return found


def overall_effects(arrays: EffectArrays, layout: Layout, metric: str) -> list[Effect]:
    """Effects on everyone as values, arm by arm."""
    arms, sizes = layout.arms, layout.sizes.sum(axis=0)
    return [
        to_effect(
            arrays,
            EffectTarget(metric, arms[arm], arms[layout.control]),
            sizes[[layout.control, arm]],
            position=position,
        )
        for position, arm in enumerate(layout.treatments)
    ]
