"""Effects on outcomes that may be missing: on observed ones, and how attrition may bias them.

A metric of such an outcome is measured as R·f, R whether it was observed. Its mean among units with
an observed outcome is the ratio E[R·f]/E[R] of each arm.

Lee bounds: on the effect on units that would be observed in either arm (Lee, 2009).

If treatment moves who is observed in one direction only, the arm with the smaller share observed,
π, has observed exactly the units that are observed in either arm. They are the share π of all units
in the other arm, too, but not known there. At worst they have its lowest, or its highest, outcomes.
So the effect on observed outcomes, where neither arm is trimmed, lies between both bounds. The mean
of the lowest is the largest of

    t − E[R·(t − y)₊]/π    over all t,

and every t gives a bound that holds, only a wider one (Rockafellar and Uryasev, 2000); that of the
highest likewise. For a fixed t a bound is linear in means over π, so its error is known. The limit
is the best one over t, each at a level that makes them simultaneous (Bonferroni); and the
bound is that of the same t, so that it is not chosen for its error.

E[R·(t − y)₊] is decoded from rows where their channel identifies it. With t at an end it is linear
in y, and always identified. With t a grid point it is linear between grid points, so that rounding
a number at random to one of them keeps its mean.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from clusterdp._text import p_text
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect, EffectTarget
from clusterdp.estimation.effects.findings import AttritionBounds
from clusterdp.estimation.effects.intervals import quantile
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.metrics._composed import ArmEstimates, compared_arms
from clusterdp.estimation.metrics.base import MetricFindings, QuestionRows
from clusterdp.estimation.metrics.ratio import ArmRatio, RatioData
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import DeclaredOutcomes
from clusterdp.outcomes.metric import OBSERVED, Metric

# A mean of R·(y − t)₊, or of R·(t − y)₊, in an arm: t, the mean and its variance.
_Tail = tuple[float, float, float]
# What is known about an arm: the means of R·y and of R; and tails above thresholds (1) and below
# (−1).
_Arm = tuple[ArmRatio, dict[int, list[_Tail]]]


def attrition_bounds(ratio: RatioData, source: QuestionRows, outcome: int) -> list[AttritionBounds]:
    """Bounds on each treatment's overall effect on an outcome that may be missing.

    Args:
        ratio: Its mean among units with an observed outcome.
        source: The question of the outcome.
        outcome: The index of the outcome.
    """
    values = source.question.space.outcome_values()[outcome]
    levels = np.unique(values[~np.isnan(values)]).tolist()
    tails = {}
    for sign, level in itertools.product((-1, 1), levels):
        tail = np.nan_to_num(np.maximum(sign * (values - level), 0.0))
        if tail.any():
            function = CategoryFunction.from_values("a tail", tail, source.question.space)
            with contextlib.suppress(ParameterError):  # rows do not identify it
                (tails[sign, level],) = source.read(function)
    from_ends = len(levels) > 2 and not {level for _, level in tails} & set(levels[1:-1])
    found = []
    # R·y times R is R·y, so that rows show how both covary, and no covariance is worse.
    for one in compared_arms([*ratio.data, *tails.values()], ratio.name):
        if one.of.segment or one.control is None or one.treated is None:
            break
        control, treated = (
            (ratio.of_arm(arm), _tails(tails, levels, arm)) for arm in (one.control, one.treated)
        )
        found.append(_bounds(one.of, control, treated, source.request.level, from_ends=from_ends))
    return found


def _tails(
    told: Collection[tuple[int, float]], levels: list[float], arm: ArmEstimates
) -> dict[int, list[_Tail]]:
    """The tails of an arm, those that are zero among them."""
    tails = {-1: [(levels[0], 0.0, 0.0)], 1: [(levels[-1], 0.0, 0.0)]}
    first = len(arm.means) - len(told)
    for (sign, level), mean, variance in zip(
        told, arm.means[first:], arm.variances[first:], strict=True
    ):
        tails[sign].append((level, float(mean), float(variance)))
    return tails


def _bounds(
    of: EffectTarget, control: _Arm, treated: _Arm, level: float, *, from_ends: bool
) -> AttritionBounds:
    """The bounds of one treatment."""
    more = treated[0].below > control[0].below
    (trimmed, tails), (kept, _) = (treated, control) if more else (control, treated)
    (low, low_limit), (high, high_limit) = (
        _best(trimmed, tails, kept, level, sign=1 if more else -1, side=side) for side in (-1, 1)
    )
    effect = treated[0].value - control[0].value
    return AttritionBounds(
        of=of,
        low=min(low, effect),
        high=max(high, effect),
        limits=(min(low_limit, effect), max(high_limit, effect)),
        level=level,
        trimmed=of.arm if more else of.control,
        trimmed_share=1 - kept.below / trimmed.below,
        from_ends=from_ends,
        widened=low > effect or high < effect,
    )


def _best(  # noqa: PLR0913 - two arms, and which bound
    trimmed: ArmRatio,
    tails: dict[int, list[_Tail]],
    kept: ArmRatio,
    level: float,
    *,
    sign: int,
    side: int,
) -> tuple[float, float]:
    """The bound whose limit is best, and that limit.

    Args:
        trimmed: The arm with more observed.
        tails: Its tails.
        kept: The other one, with means B of R·y and π of R.
        level: The confidence level of both limits together.
        sign: 1 if the treatment is trimmed, −1 if control is.
        side: −1 for the lower bound, 1 for the upper one.
    """
    if not (kept.below > 0 and trimmed.below > 0):
        return math.nan, side * math.inf
    chosen = tails[sign * side]
    reach = quantile(1 - (1 - level) / len(chosen), min(kept.degrees, trimmed.degrees))
    found = []
    for threshold, mean, variance in chosen:
        # ±(t + (±T − B)/π); the error of π enters by what is divided by it.
        shift = (sign * side * mean - kept.above) / kept.below
        of_kept = kept.sampling.of_difference(-shift) + kept.privacy.of_difference(-shift)
        error = math.sqrt(variance + of_kept) / kept.below
        value = sign * (threshold + shift)
        found.append((value, value + side * reach * error))
    return min(found, key=lambda bound: side * bound[1])


# The level of the tests that arms have the same share observed, of all arms and outcomes of a
# question together (Bonferroni). Other checks use `ALARM_LEVEL`, for what does not happen in a
# sound experiment. Treatment often moves who responds, and overlooking that costs more than a
# false positive: the remedy, to read the Lee bounds, is right in any case. So this test has more
# power.
ATTRITION_LEVEL = 0.01


class ObservedMeanEstimator(NamedTuple):
    """The mean of a metric among those with an outcome observed.

    Attributes:
        name: The name of the metric.
        question: The index of its question.
        above: The metric, 0 where the outcome is missing.
        below: Whether it was observed.
        outcome: The index of the outcome, if the metric is the outcome itself.
    """

    name: str
    question: int
    above: CategoryFunction
    below: CategoryFunction
    outcome: int | None

    @classmethod
    def from_metric(
        cls, metric: Metric, function: CategoryFunction, question: int, space: Categories
    ) -> ObservedMeanEstimator:
        """A metric of an outcome that may be missing.

        Args:
            metric: The metric.
            function: The same as a function of the category.
            question: The index of its question.
            space: The categories.

        Raises:
            ParameterError: If it uses several such outcomes.
        """
        declared = space.declared
        declared.check_missing(metric)
        (name,) = metric.valued & set(declared.missing)
        place = len(declared.outcomes) + declared.missing.index(name)
        below = CategoryFunction.declared(name + OBSERVED, space, place)
        outcome = declared.names.index(name)
        if metric != declared.metrics[outcome]:
            return cls(str(metric), question, function, below, None)
        above = CategoryFunction.measured(str(metric), space, outcome)
        return cls(str(metric), question, above, below, outcome)

    def estimate(self, questions: Sequence[QuestionRows]) -> MetricFindings:
        """Effects on the mean, with bounds for attrition of an outcome itself."""
        source = questions[self.question]
        ratio = RatioData(self.name, self.above, self.below, source)
        found = ratio.estimate()
        found.notes.extend(source.means_alone_notes(self.name))
        found.note_outcomes(source, self.above, self.below)
        is_share = self.above.is_share(source.question.space)
        found.describe(self.name, self.above.values[self.below.values > 0], is_share=is_share)
        if self.outcome is not None:
            found.bounds.extend(attrition_bounds(ratio, source, self.outcome))
        return found


def missing_notes(
    declared: DeclaredOutcomes, shown: Collection[str], units: str = "units"
) -> list[str]:
    """Which units effects cover on those of the shown outcomes that may be missing."""
    return [
        f"{name}: mean over {units} with an observed outcome."
        for name in declared.missing
        if name in shown
    ]


def attrition_notes(declared: DeclaredOutcomes, effects: Iterable[Effect]) -> list[Note] | None:
    """Warnings where the share observed differs between arms, overall.

    Args:
        declared: The declared outcomes.
        effects: All effects.

    Returns:
        The warnings; None if effects on who is observed are not among these.
    """
    names = {name + OBSERVED: name for name in declared.missing}
    on_shares = [one for one in effects if one.of.metric in names and one.of.label == "overall"]
    notes = [
        Note(
            f"Attrition: response rates differ between {one.of.arm} and {one.of.control} "
            f"({p_text(one.p_value)}). The effect on {names[one.of.metric]} may reflect who "
            "answered. Use the Lee bounds.",
            Weight.WARNING,
        )
        for one in on_shares
        if one.p_value < ATTRITION_LEVEL / len(on_shares)
    ]
    return notes if on_shares else None
