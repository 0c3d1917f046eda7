"""Exposure next to assignment: complier effects (CACE).

An arm's effect on an outcome, N, and on exposure, D, are intention-to-treat effects: of assignment.
If the arm acts on the outcome through exposure alone, and keeps nobody from it, N/D is the complier
average causal effect (CACE; Imbens and Angrist, 1994): the effect on units that are exposed in the
arm and would not be in control.

Its interval holds every r for which N̂ − r·D̂ is within q standard errors of zero (Anderson and
Rubin, 1949). It covers however small D is, and holds zero if that of N does. It has bounds if D̂ is
significantly different from zero; else it is everything, or everything but what lies between two
numbers. It is never empty, as it holds N̂/D̂.

The covariance of N̂ and D̂ depends on the source of exposure:

- An outcome of the same question. One response has both, so noise covaries as well: see
  `_composed.py`. At a small ε responses do not show how outcomes go with exposure. Then the
  covariance has bounds, and every r is tested with the one that is worse: with the least if r > 0,
  with the largest if r < 0.
- A public column, without noise, or an outcome of another question, which no unit answers together
  with this one: see there. Of another question the covariance has bounds, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from clusterdp.estimation.effects.effect import Effect, segment_label
from clusterdp.estimation.effects.intervals import EffectInterval, Limits, quantile, two_sided
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.means.functions import CategoryFunction, DecodedFunction
from clusterdp.estimation.means.responses import ResponseValues
from clusterdp.estimation.means.spread import RowNoiseBound
from clusterdp.estimation.metrics._composed import (
    ArmComparison,
    ArmEstimates,
    apart_covariances,
    compared_arms,
    crossed_covariance,
    question_product,
    shared_data,
    unidentified_note,
)
from clusterdp.estimation.metrics.base import MetricData, MetricFindings, QuestionRows
from clusterdp.estimation.metrics.mean import mean_effects
from clusterdp.estimation.metrics.ratio import ArmRatio
from clusterdp.estimation.reading.request import ExposureRequest
from clusterdp.estimation.reading.segments import RowCounts
from clusterdp.outcomes.metric import quoted
from clusterdp.outcomes.space import ValueRange

# With a smaller F of the effect on exposure, N̂/D̂ is far from normal (Staiger and Stock, 1997).
_WEAK = 10.0
# Shares of units that differ by less are the same, but for rounding.
_ROUNDING = 1e-12
# Of a public column of 0 and 1.
PUBLIC_NOISE = RowNoiseBound(
    ends=ValueRange.from_values(np.array([0.0, 1.0])),
    variance=0.0,
    square_variance=0.0,
    largest=0.0,
    kurtosis=0.0,
    two_values=True,
    origin=0.0,
)


class ExposedEffect(ArmRatio, EffectInterval):
    """How the interval of a complier effect is made: N/D of effects of assignment."""

    __slots__ = ()

    @property
    def p_value(self) -> float:
        """Of a zero effect on the outcome."""
        return two_sided(self.above, math.sqrt(self.total.above), self.degrees)

    def ci(self, level: float) -> Limits:
        """Anderson and Rubin's interval; everything where it has no bounds."""
        return self.limits(level)

    def lift(self, level: float) -> None:
        """None: the mean of compliers is not estimated in control."""


class Exposure:
    """What units were exposed to, as a release identifies it.

    Attributes:
        name: What it is called.
        data: The rows as it reads them.
        function: The outcome of a question that it is; None for a public column.

    Args:
        asked: The exposure.
        questions: The questions of the release.
    """

    def __init__(self, asked: ExposureRequest, questions: Sequence[QuestionRows]) -> None:
        self.name, self.function = quoted(asked.name), None
        if asked.place is None:
            self.data = _public_data(self.name, questions[0])
            return
        source = questions[asked.place]
        space = source.question.space
        outcome = space.declared.names.index(asked.name)
        self.function = CategoryFunction.declared(self.name, space, outcome)
        (self.data,) = source.read(self.function)

    def effects_with(self, function: CategoryFunction, source: QuestionRows) -> MetricFindings:
        """Complier effects on the mean of a function; empty if it is the exposure."""
        found, name = MetricFindings(), f"cace({function.name}, {self.name})"
        if self.function is None or self.data.rows is not source.rows:
            found.effects.extend(self._apart(function, source, name))
        elif (function.values != self.function.values).any():
            exposure = self.function
            if function.combination is None:
                exposure = exposure.from_counts_alone()  # calibrated by the same sums
            products = question_product(source, function, exposure)
            data, factor = shared_data(function, exposure, products, source, ridge_of=function)
            compose = partial(ExposedEffect.from_shared, factor=factor)
            found.effects.extend(exposed_effect(one, compose) for one in compared_arms(data, name))
            if products[0] is not products[1]:
                found.notes.append(unidentified_note(function.name, self.name, "cace"))
        level = source.request.level
        for one in found.effects:
            found.notes.extend(_unbounded(one, self.name, level))
        if found.effects:
            found.notes.extend(source.means_alone_notes(name, is_exposed=True))
        return found

    def effects(self, known: Sequence[Effect]) -> MetricFindings:
        """Effects on exposure, with what they mean for complier effects.

        Args:
            known: What else was estimated, which may have these effects.
        """
        found = MetricFindings()
        mine = [one for one in known if one.of.metric == self.name and self.function is not None]
        if not mine:
            found.add(mean_effects(self.data))
            found.effects[:] = mine = [
                # Nobody, or everyone, was exposed.
                replace(one, effect=0.0, std_error=0.0)
                if abs(one.effect) < _ROUNDING and one.std_error < math.sqrt(_ROUNDING)
                else one
                for one in found.effects
            ]
        plain = [one for one in mine if one.of.against is None and not one.of.adjusted]
        found.notes.extend(_notes(self.name, plain, self.data.request.level))
        return found

    def _apart(
        self, function: CategoryFunction, source: QuestionRows, name: str
    ) -> Iterator[Effect]:
        """Effects where another question, or a column, shows exposure."""
        n_treatments = len(source.request.layout.treatments)
        crossed = [one for one in source.rows.crossed for _ in range(n_treatments)]
        compared = compared_arms([*source.read(function), self.data], name)
        for place, one in enumerate(compared):
            bounds = (math.nan, math.nan)
            if one.means and crossed:
                bounds = (crossed_covariance(one, crossed[place]),) * 2
            elif one.means:
                least, most = apart_covariances(one)
                bounds = float(least.sum()), float(most.sum())
            yield exposed_effect(one, partial(ExposedEffect.covarying, sampling=bounds))


def exposed_effect(one: ArmComparison, compose: Callable[[ArmEstimates], ExposedEffect]) -> Effect:
    """The complier effect; empty if exposure does not differ at all.

    Args:
        one: The arms.
        compose: From differences of the means of both arms to the effect's interval.
    """
    if one.control is None or one.treated is None:
        return one.no_effect()
    ratio = compose(one.treated.minus(one.control))
    if abs(ratio.below) < _ROUNDING:
        return one.no_effect()
    return one.effect(ratio.value, *ratio.variances, degrees=ratio.degrees, interval=ratio)


def public_outputs(shape: tuple[int, int]) -> ResponseValues:
    """What a public column of 0 and 1 shows; `shape` is how many clusters and arms there are."""
    return ResponseValues(
        values=np.array([[0.0, 1.0]]),  # so that the share of nobody is 0 without rounding
        noise=np.zeros((1, 2)),
        groups=np.zeros(shape, np.int64),
        middle=PUBLIC_NOISE.origin,
    )


def _public_data(name: str, source: QuestionRows) -> MetricData:
    """The rows as a public column of 0 and 1 reads them: without noise, and with no sums."""
    rows = source.rows
    whole, *segments = (exposed for _, exposed in rows.crossed)
    n_arms = int(rows.profiles.released_arms.max()) + 1
    outputs = public_outputs((rows.profiles.shape[0], max(n_arms, rows.profiles.shape[1])))
    decoded = DecodedFunction(
        name=name, outputs=outputs, readings=(), noise=PUBLIC_NOISE, breakdowns=frozenset()
    )
    names = (segment for segment, _ in rows.segments)
    of_segments = tuple(zip(names, segments, strict=True))
    exposed = RowCounts(profiles=rows.profiles, whole=whole, segments=of_segments)
    return MetricData(decoded, exposed, source.request)


def _unbounded(effect: Effect, exposure: str, level: float) -> list[Note]:
    """What is possible where the interval of an effect has no bounds."""
    if math.isnan(effect.effect) or math.isfinite(effect.ci(level)[0]):
        return []
    gap = effect.ci_gap(level)
    possible = "any value" if gap is None else f"any value outside {gap[0]:.4g} to {gap[1]:.4g}"
    return [
        Note(
            f"{effect.of.metric} of {effect.of.arm} can have {possible}: the effect on {exposure} "
            "is not significantly different from zero.",
            Weight.SCOPE,
            segment_label(effect.of.segment),
        )
    ]


def _notes(name: str, effects: Sequence[Effect], level: float) -> Iterator[Note]:
    """What effects on exposure mean for complier effects.

    Args:
        name: The exposure.
        effects: On it, overall and in segments.
        level: The confidence level.
    """
    yield Note(
        f"cace(metric, {name}): effect on compliers, assuming treatment changes the metric only "
        f"through {name}.",
        Weight.SCOPE,
    )
    for one in effects:
        arm, z_value = one.of.arm, one.effect / one.std_error if one.std_error > 0 else 0.0
        if not one.std_error > 0 and one.effect:
            z_value = math.copysign(math.inf, one.effect)
        if not one.of.segment:
            yield Note(
                f"First stage, effect of {arm} on {name}: z = {z_value:.3g}, F = {z_value**2:,.4g}."
            )
            yield from _two_sided_notes(name, one, level)
        if z_value**2 < _WEAK:
            yield Note(
                f"Weak instrument: {arm} (F < {_WEAK:g}). Ignore the CACE estimate and its SE. The "
                "Anderson–Rubin CI is still valid.",
                Weight.SCOPE,
                segment_label(one.of.segment),
            )


def _two_sided_notes(name: str, effect: Effect, level: float) -> Iterator[Note]:
    """Whom effects describe, if units of both arms were exposed; arguments as of `_notes`."""
    arms = [
        (effect.of.control, effect.control_mean or 0.0, effect.control_std_error or 0.0),
        (effect.of.arm, effect.treated_mean or 0.0, effect.treated_std_error or 0.0),
    ]
    (less, share, error), (more, *_) = arms if effect.effect > 0 else arms[::-1]
    if share > quantile(level) * error:
        yield Note(
            f"{share:.1%} of {less} have {name} anyway. The CACE of {effect.of.arm} describes "
            f"units that have it only because of {more}, assuming no defiers.",
            Weight.SCOPE,
        )
