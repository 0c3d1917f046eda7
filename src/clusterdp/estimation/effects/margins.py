"""Verdicts on overall effects: above a margin, or within two of them.

An effect is above a margin if a one-sided test says so: the lower end of the interval at level
1 − 2α is above it. It is equivalent to none, within ±m, if both one-sided tests say so (Schuirmann,
1987). So each verdict is wrong with a chance of at most α, for any effect. Over several
looks the intervals hold, and so do verdicts.

**Which arm is best.** With normal errors and no prior knowledge (a flat prior), the mean of an arm
is normal around its estimate. Effects have control in common, so that Cov(τ̂_a, τ̂_b) = Var(μ̂₀):
arms are independent, control with the mean zero and the variance V₀, others with τ̂_a and V_a − V₀.
Arm a is best with the probability ∫ φ_a(x)·Π_{b≠a} Φ_b(x) dx, by the trapezoid rule.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp._lists import parse_named
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect, EffectTarget
from clusterdp.estimation.effects.intervals import two_sided

# Halvings that a p-value takes.
_HALVINGS = 24
# Points that the density of an arm is integrated at, and how many standard errors they reach.
_POINTS, _REACH = 321, 8.0


class MarginVerdict(NamedTuple):
    """Whether an effect is above a margin, or within ± a margin.

    Attributes:
        of: What the effect describes.
        margin: The margin, in units of the metric. Below zero: that the arm is not worse than
            control by more. Above: that it is better by more.
        is_equivalence: Whether the effect should lie within ± the margin.
        p_value: Of the one-sided test, or the larger of two.
        holds: Whether it does, at the level of the estimate.
    """

    of: EffectTarget
    margin: float
    is_equivalence: bool
    p_value: float
    holds: bool

    def to_dict(self) -> dict[str, Any]:
        """Everything about this verdict as plain values."""
        return {
            "metric": self.of.metric,
            "arm": self.of.arm,
            "control": self.of.control,
            "margin": self.margin,
            "equivalence": self.is_equivalence,
            "p_value": self.p_value,
            "holds": self.holds,
        }


def read_margins(option: str, given: Mapping[str, float] | Iterable[str]) -> dict[str, float]:
    """Margins by metric, from a mapping or from texts such as `visit=-0.002`.

    Raises:
        ParameterError: If one is no number, or is not above zero where it is on both sides.
    """
    texts = [given] if isinstance(given, str) else given
    form = f"{option} must be METRIC=NUMBER (visit=-0.002), got {{!r}}"
    pairs = (
        given.items() if isinstance(given, Mapping) else [parse_named(one, form) for one in texts]
    )
    found = {}
    for metric, number in pairs:
        try:
            found[metric] = float(number)
        except (TypeError, ValueError):
            raise ParameterError(form.format(f"{metric}={number}")) from None
        if not math.isfinite(found[metric]):
            raise ParameterError(form.format(f"{metric}={number}"))
        if option == "equivalence" and found[metric] <= 0:
            raise ParameterError(
                f"equivalence of {metric!r} must be above zero, got {found[metric]:g}. Fix: give "
                "the largest difference that does not matter."
            )
    return found


def margin_verdicts(
    effects: Iterable[Effect],
    margins: Mapping[str, float],
    equivalence: Mapping[str, float],
    level: float,
) -> tuple[MarginVerdict, ...]:
    """Verdicts on the overall effects to report.

    Raises:
        ParameterError: If there is no effect on a metric.
    """
    overall = [one for one in effects if not one.of.segment and one.to_report]
    for name in (*margins, *equivalence):
        if name not in {one.of.metric for one in overall}:
            known = ", ".join(repr(one) for one in dict.fromkeys(one.of.metric for one in overall))
            raise ParameterError(
                f"There is no effect on {name!r} to compare with a margin. The metrics are {known}."
            )
    return tuple(_verdicts(overall, margins, equivalence, level))


def _verdicts(
    overall: list[Effect],
    margins: Mapping[str, float],
    equivalence: Mapping[str, float],
    level: float,
) -> Iterator[MarginVerdict]:
    for one in overall:
        if not one.has_ci:
            continue
        if (margin := margins.get(one.of.metric)) is not None:
            p_value = _p_value(one, margin, above=True)
            yield MarginVerdict(
                one.of, margin, is_equivalence=False, p_value=p_value, holds=p_value < 1 - level
            )
        if (margin := equivalence.get(one.of.metric)) is not None:
            p_value = max(_p_value(one, -margin, above=True), _p_value(one, margin, above=False))
            yield MarginVerdict(
                one.of, margin, is_equivalence=True, p_value=p_value, holds=p_value < 1 - level
            )


def _p_value(effect: Effect, margin: float, *, above: bool) -> float:
    """The one-sided p-value of an effect that is at the margin, against one above or below it.

    Where intervals are no multiple of the standard error, it is the least α at which the interval
    at level 1 − 2α is beyond the margin; a half if none is.
    """
    if effect.interval is None and effect.look is None:
        distance = effect.effect - margin if above else margin - effect.effect
        half = two_sided(distance, effect.std_error, effect.degrees) / 2
        return half if distance > 0 else 1 - half
    low, high = 0.0, 0.5
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        ends = effect.ci(1 - 2 * middle)
        is_beyond = ends[0] > margin if above else ends[1] < margin
        low, high = (low, middle) if is_beyond else (middle, high)
    return high


class BestArm(NamedTuple):
    """How probable it is that each arm is the best one, under a flat prior.

    Attributes:
        metric: The metric.
        is_lower: Whether the lowest mean is the best.
        arms: Every arm with its probability, the most probable first.
    """

    metric: str
    is_lower: bool
    arms: tuple[tuple[Any, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        arms = [{"arm": arm, "probability": prob} for arm, prob in self.arms]
        return {"metric": self.metric, "lower_is_better": self.is_lower, "arms": arms}


def best_arms(effects: Iterable[Effect], lower_is_better: Collection[str]) -> tuple[BestArm, ...]:
    """Which arm is best for each metric whose overall effects have a standard error.

    Raises:
        ParameterError: If there is no metric that is said to be better if lower.
    """
    overall = [one for one in effects if not one.of.segment and one.to_report]
    metrics = list(dict.fromkeys(one.of.metric for one in overall))
    for name in lower_is_better:
        if name not in metrics:
            raise ParameterError(
                f"There is no effect on {name!r} to be better if lower. The metrics are "
                f"{', '.join(map(repr, metrics))}."
            )
    found = []
    for metric in metrics:
        mine = [one for one in overall if one.of.metric == metric]
        errors = [one.control_std_error for one in mine]
        if len(mine) == 1 and errors == [None]:  # one effect is enough for two arms
            errors = [0.0]
        known = [error for error in errors if error is not None]
        if len(known) < len(mine) or not all(one.has_ci and one.interval is None for one in mine):
            continue
        of_control = sum(error**2 for error in known) / len(known)
        rest = [one.std_error**2 - error**2 for one, error in zip(mine, known, strict=True)]
        means = np.array([0.0, *(one.effect for one in mine)])
        is_lower = metric in lower_is_better
        probs = best_probs(-means if is_lower else means, np.array([of_control, *rest]))
        labels = [mine[0].of.control, *(one.of.arm for one in mine)]
        ranked = sorted(zip(labels, probs.tolist(), strict=True), key=lambda one: -one[1])
        found.append(BestArm(metric, is_lower, tuple(ranked)))
    return tuple(found)


def best_probs(means: FloatArray, variances: FloatArray) -> FloatArray:
    """The probability of each of several independent normal variables to be the largest.

    What has hardly any variance gets a little, next to what is between the means.
    """
    from scipy.special import ndtr

    least = max(float(variances.max()) * 1e-12, float(np.ptp(means)) ** 2 * 1e-18)
    scales = np.sqrt(np.maximum(variances, max(least, np.finfo(float).tiny)))
    points = means[:, np.newaxis] + scales[:, np.newaxis] * np.linspace(-_REACH, _REACH, _POINTS)
    grid = np.unique(points)
    distances = (grid - means[:, np.newaxis]) / scales[:, np.newaxis]
    density = np.exp(-(distances**2) / 2) / scales[:, np.newaxis]
    below, others = ndtr(distances), np.ones_like(distances)
    for arm in range(len(means)):
        others[arm] = np.delete(below, arm, axis=0).prod(axis=0)
    heights = density * others
    areas = ((heights[:, 1:] + heights[:, :-1]) * np.diff(grid) / 2).sum(axis=1)
    return np.asarray(areas / areas.sum())
