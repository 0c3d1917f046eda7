"""An average effect: its target, its numbers, its intervals, and how people read them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp._text import limits_text, plain_text, to_decimals
from clusterdp.estimation.effects.intervals import (
    EffectInterval,
    Scale,
    ScaledEffect,
    check_level,
    odds_ratio,
    quantile,
    ratio_of_means,
    ratio_set,
    two_sided,
    within,
)
from clusterdp.estimation.effects.looks import Look, nominal_level
from clusterdp.estimation.effects.shrinkage import ShrunkenEffect

# Columns with their values; empty for everyone.
Segment = tuple[tuple[str, Any], ...]
# Further outside its range than this many standard errors, no number is there by chance.
FAR = 4.0


def segment_label(segment: Segment) -> str:
    """A segment in words: "tier=gold, region=1", or "overall"."""
    return ", ".join(f"{name}={value}" for name, value in segment) or "overall"


def plain_label(label: object) -> str:
    """Any label in one line."""
    return plain_text(str(label))


def short_label(label: object, longest: int) -> str:
    """A label in one line; one that is longer is cut in the middle, as many differ at the end."""
    text = plain_label(label)
    n_last = longest // 2
    return text if len(text) <= longest else f"{text[: longest - n_last - 1]}…{text[-n_last:]}"


# How cells are weighed: by the size of their cluster, or by their own.
Estimator = Literal["stratified", "unstratified"]
# What an estimate uses: rows combined with noisy sums and counts, or rows alone.
Use = Literal["everything", "rows"]
# Below this many units in an arm, or degrees of freedom, intervals are Student's instead of normal.
FEW_UNITS = 50
# What a segment is compared with: the other segments of its dimension.
REST = "rest"


class EffectTarget(NamedTuple):
    """What an effect describes: a metric of an arm against control, in a segment.

    Attributes:
        metric: An outcome, or a function of outcomes.
        arm: The treatment arm.
        control: The control arm.
        segment: Columns and values that define the segment; empty for everyone.
        adjusted: Whether covariates were adjusted for.
        against: What the segment's effect is compared with; None if with nothing.
    """

    metric: str
    arm: Any
    control: Any
    segment: Segment = ()
    adjusted: bool = False
    against: str | None = None

    def is_named_by(self, parts: tuple[Any, ...]) -> bool:
        """Whether these name it: each its metric, its arm or its segment, which may be left out."""
        text = {self.metric, str(self.arm), self.label}
        named = all(part == self.arm or str(part) in text for part in parts)
        return named and (self.label == "overall" or self.label in map(str, parts))

    @property
    def label(self) -> str:
        """The segment in words."""
        return self.in_short(None)

    def in_short(self, longest: int | None) -> str:
        """The same in one line, with names of so many letters at most; None for whole names."""
        names = [segment_label(self.segment), *filter(None, [self.against])]
        text = " vs ".join(one if longest is None else short_label(one, longest) for one in names)
        return f"{text} (adjusted)" if self.adjusted else text

    @property
    def plain(self) -> EffectTarget:
        """The same without adjustment."""
        return self._replace(adjusted=False)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Effect:
    """An average effect, estimated.

    Attributes:
        of: What it describes: an arm against control, overall or in a segment.
        effect: Estimated average effect, in units of the outcome; NaN where an arm has no units.
        std_error: Its standard error, sampling and privacy noise included.
        sampling_variance: The part of the variance due to sampling: the estimated variance of
            debiased columns without the known part due to privacy. Where that is most of it, the
            difference is noisy; it is cut off at zero, so that its mean errs on the high side.
        privacy_variance: The part of the variance due to privacy.
        n_treated: Units in the treatment arm.
        n_control: Units in control.
        treated_mean: Mean outcome in the treatment arm; None if it is not estimated.
        treated_std_error: Its standard error.
        control_mean: Mean outcome in control; None if it is not estimated.
        control_std_error: Its standard error.
        degrees: Degrees of freedom of the standard error; infinite if intervals are normal.
        interval: How intervals of ratios, quantiles and complier effects are computed; None if
            they are a multiple of the standard error.
        family_size: How many effects simultaneous intervals cover together.
        holm_p_value: Holm's p-value, which controls the family-wise error rate; NaN without
            an interval.
        bh_p_value: Benjamini and Hochberg's, which controls the false discovery rate.
        to_report: Whether to report this one, where there is an adjusted effect next to a plain
        one.
        possible: The least and the largest value of the metric, which intervals and lifts are cut
            to; None if they are not known. Estimates themselves are unbiased, and are not cut.
        is_share: Whether the metric is a share of units.
        bounds: What the effect lies between, estimated, where rounding leaves it open by more than
            noise does. There is no estimate then: the effect is NaN, and arms have no means. None
            elsewhere.
        shrunken: The same in one of many segments, shrunken towards their mean; None elsewhere.
        look: Which of several looks this is, over which intervals and p-values hold; None for one.
    """

    of: EffectTarget
    effect: float
    std_error: float
    sampling_variance: float
    privacy_variance: float
    n_treated: int
    n_control: int
    treated_mean: float | None = None
    treated_std_error: float | None = None
    control_mean: float | None = None
    control_std_error: float | None = None
    degrees: float = math.inf
    interval: EffectInterval | None = None
    family_size: int = 1
    holm_p_value: float = math.nan
    bh_p_value: float = math.nan
    to_report: bool = True
    possible: tuple[float, float] | None = None
    is_share: bool = False
    bounds: tuple[float, float] | None = None
    shrunken: ShrunkenEffect | None = None
    look: Look | None = None

    def __repr__(self) -> str:
        show = to_decimals([self.std_error])
        return plain_text(
            f"Effect({self.of.metric}, {self.of.label}, {self.of.arm} vs {self.of.control}: "
            f"{show(self.effect)}, SE {show(self.std_error)}, "
            f"95% CI {limits_text(self.ci(), show)})"
        )

    @property
    def privacy_variance_share(self) -> float:
        """The share of the variance that is due to privacy."""
        total = self.sampling_variance + self.privacy_variance
        return self.privacy_variance / total if total else 0.0

    @property
    def p_value(self) -> float:
        """Two-sided p-value of a zero effect, by the distribution that intervals are made with.

        NaN for an effect that `is_impossible`.
        """
        if self.is_impossible:
            return math.nan
        if self.interval is not None:
            single = self.interval.p_value
        else:
            single = two_sided(self.effect, self.std_error, self.degrees)
        return single if self.look is None else self.look.p_value(single)

    @property
    def largest(self) -> float:
        """The largest possible effect in either direction; infinite if that is not known."""
        if self.possible is None:
            return math.inf
        return (self.possible[1] - self.possible[0]) * (1 if self.of.against is None else 2)

    @property
    def is_impossible(self) -> bool:
        """Whether an effect is larger than any can be, by more standard errors than by chance."""
        return abs(self.effect) - self.largest > FAR * self.std_error

    @property
    def has_ci(self) -> bool:
        """Whether there is an estimate with a confidence interval."""
        return self.bounds is None and not math.isnan(self.std_error) and not self.is_impossible

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval: normal, or Student's t where an arm has few units.

        NaN for an effect that `is_impossible`: nothing possible is near it.
        """
        level = self._nominal(level)
        if self.is_impossible:
            return math.nan, math.nan
        if self.interval is not None:
            low, high = self.interval.ci(level)
        else:
            reach = quantile(level, self.degrees) * self.std_error
            low, high = self.effect - reach, self.effect + reach
        bounds = (-self.largest, self.largest)
        return within(low, bounds), within(high, bounds)

    def ci_gap(self, level: float = 0.95) -> tuple[float, float] | None:
        """What `ci` leaves out inside: of complier effects, where two rays are possible."""
        level = self._nominal(level)
        return None if self.interval is None else self.interval.gap(level)

    def _nominal(self, level: float) -> float:
        """The level of a single look, which is as long as one at this level over all looks."""
        check_level(level)
        return nominal_level(self.look, level)

    def simultaneous_ci(self, level: float = 0.95) -> tuple[float, float]:
        """An interval that covers together with all others of its family (Bonferroni).

        It leaves out zero only if Holm's p-value is below 1 − level.
        """
        return self.ci(self.simultaneous_level(level))

    def simultaneous_level(self, level: float = 0.95) -> float:
        """The level of an interval that covers together with all others of its family."""
        check_level(level)
        return 1 - (1 - level) / self.family_size

    def lift(self, level: float = 0.95) -> tuple[float, float, float] | None:
        """Effect relative to control's mean, with its interval (Fieller, 1954).

        The interval holds every ratio θ with `|effect − θ·control| ≤ q·se(effect − θ·control)`. The
        effect is treated minus control, so its covariance with control's mean is −Var(control), and
        Var(effect − θ·control) = Var(effect) + (2θ + θ²)Var(control).

        None where control's mean or the standard error is unknown, or where control's mean is not
        above zero at this level: such a set of ratios has no limits. Limits are cut to what is
        possible: above what the largest value of the metric would be, a limit is infinite.
        """
        level = self._nominal(level)
        is_known = self.bounds is None and not self.is_impossible
        found = self._uncut_lift(level) if is_known else None
        if found is None or self.possible is None or not self.control_mean:
            return found
        lowest, highest = (end / self.control_mean - 1 for end in self.possible)
        least = -1.0 if self.possible[0] >= 0 else -math.inf
        ratio, low, high = within(found[0], (lowest, highest)), found[1], found[2]
        high = math.inf if high > highest else high
        return max(ratio, least), max(low, least), max(high, least)

    def _uncut_lift(self, level: float) -> tuple[float, float, float] | None:
        if self.interval is not None:
            return self.interval.lift(level)
        if self.control_mean is None or self.control_std_error is None:
            return None
        if math.isnan(self.std_error):
            return None
        reach, of_control = quantile(level, self.degrees), self.control_std_error**2
        if not self.control_mean > reach * self.control_std_error:
            return None
        variances = max(self.std_error**2, of_control), of_control, -of_control
        limits, _ = ratio_set(self.effect, self.control_mean, variances, reach)
        return self.effect / self.control_mean, *limits

    def on_scale(self, scale: Scale, level: float = 0.95) -> ScaledEffect | None:
        """The effect as a ratio of means ("ratio"), an odds ratio ("odds") or lift.

        Where control's mean is not significantly different from zero, there is no upper limit. None
        where means are not known, for odds of what is no share, and for ratios of what can be below
        zero unless control's mean is significantly above it.
        """
        if scale == "difference":
            return ScaledEffect(self.effect, *self.ci(level))
        if not self.has_ci:
            return None
        if scale != "odds" and (lift := self.lift(level)) is not None:
            return ScaledEffect(*lift).minus(0.0 if scale == "lift" else -1.0)
        treated, control, of_control = self.treated_mean, self.control_mean, self.control_std_error
        if treated is None or control is None or of_control is None or self.is_impossible:
            return None
        least = -math.inf if self.possible is None else self.possible[0]
        if self.interval or least < 0 or (scale == "odds" and not self.is_share):
            return None
        variances = max(self.std_error**2 - of_control**2, 0.0), of_control**2
        reach = quantile(self._nominal(level), self.degrees)
        scaled = odds_ratio if scale == "odds" else ratio_of_means
        return scaled((treated, control), variances, reach).minus(float(scale == "lift"))

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Everything about this effect as plain numbers."""
        low, high = self.ci(level)
        low_all, high_all = self.simultaneous_ci(level)
        gap = self.ci_gap(level) or (None, None)
        lift = self.lift(level) or (None, None, None)
        bounds = self.bounds or (None, None)
        return {
            **self.of._asdict(),
            "segment": dict(self.of.segment),
            "to_report": self.to_report,
            "effect": self.effect,
            "std_error": self.std_error,
            "ci_level": level,
            "ci_low": _limit(low),
            "ci_high": _limit(high),
            "ci_gap_low": gap[0],
            "ci_gap_high": gap[1],
            "bounds_low": bounds[0],
            "bounds_high": bounds[1],
            "simultaneous_ci_low": _limit(low_all),
            "simultaneous_ci_high": _limit(high_all),
            "p_value": self.p_value,
            "holm_p_value": self.holm_p_value,
            "bh_p_value": self.bh_p_value,
            "family_size": self.family_size,
            "treated_mean": self.treated_mean,
            "treated_std_error": self.treated_std_error,
            "control_mean": self.control_mean,
            "control_std_error": self.control_std_error,
            "lift": lift[0],
            "lift_ci_low": lift[1],
            "lift_ci_high": None if lift[2] is None else _limit(lift[2]),
            **self._scaled("ratio", level),
            **self._scaled("odds", level),
            "sampling_variance": self.sampling_variance,
            "privacy_variance": self.privacy_variance,
            "privacy_variance_share": self.privacy_variance_share,
            "degrees": None if math.isinf(self.degrees) else self.degrees,
            "n_treated": self.n_treated,
            "n_control": self.n_control,
            **({} if self.shrunken is None else self.shrunken.to_dict()),
        }

    def _scaled(self, scale: Scale, level: float) -> dict[str, float | None]:
        """The effect on a scale as plain numbers: None where it has no value, or no limit."""
        found = self.on_scale(scale, level) or (math.nan,) * 3
        name = "odds_ratio" if scale == "odds" else scale
        names = (name, f"{name}_ci_low", f"{name}_ci_high")
        return {
            name: number if math.isfinite(number) else None
            for name, number in zip(names, found, strict=True)
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EffectArrays:
    """Effects against control; axes `[..., treatment]`, in the order of `Layout.treatments`.

    Attributes:
        effects: Estimated average effects.
        variances: Estimated variances, of assignment and privacy together.
        privacy_variances: The part of them that privacy cost.
        control_means: The mean outcome of control, axes `[...]`; None if it is not estimated.
        control_variances: Its estimated variance.
        treated_means: The mean outcome of each treatment; None if they are not estimated.
        treated_variances: Their estimated variances.
        degrees: Degrees of freedom of the variances; None where these are known, not estimated.
    """

    effects: FloatArray
    variances: FloatArray
    privacy_variances: FloatArray
    control_means: FloatArray | None = None
    control_variances: FloatArray | None = None
    treated_means: FloatArray | None = None
    treated_variances: FloatArray | None = None
    degrees: FloatArray | None = None


# Of an arm that has no units.
NO_EFFECT = EffectArrays(
    effects=np.full(1, np.nan), variances=np.full(1, np.nan), privacy_variances=np.full(1, np.nan)
)


def to_effect(
    arrays: EffectArrays, of: EffectTarget, arm_sizes: IntArray, *, position: int = 0
) -> Effect:
    """One effect as a value, with the degrees of freedom that its interval needs.

    Where units are too few for an interval, no number is reported. Where the variance is infinite,
    as it cannot be estimated, the effect has no standard error.

    Args:
        arrays: Without axes of replicates.
        of: What the effect describes.
        arm_sizes: Units of control and of the treatment.
        position: Which effect of the arrays.
    """
    variance = float(arrays.variances[position])
    # An estimated part can fall outside the whole by chance; it is shown within it.
    privacy = min(max(float(arrays.privacy_variances[position]), 0.0), variance)
    degrees = math.inf if arrays.degrees is None else float(arrays.degrees[position])
    n_control, n_treated = (int(size) for size in arm_sizes)
    few = min(n_control, n_treated, degrees) < FEW_UNITS
    effect = float(arrays.effects[position])
    control = _mean(arrays.control_means, arrays.control_variances, ())
    treated = _mean(arrays.treated_means, arrays.treated_variances, (position,))
    if math.isnan(variance):
        effect, privacy, control, treated = math.nan, math.nan, (None, None), (None, None)
    if math.isinf(variance):
        variance = math.nan  # what privacy adds to it is known
        control, treated = (control[0], None), (treated[0], None)
    return Effect(
        of=of,
        effect=effect,
        std_error=math.sqrt(variance),
        sampling_variance=variance - privacy,
        privacy_variance=privacy,
        n_treated=n_treated,
        n_control=n_control,
        treated_mean=treated[0],
        treated_std_error=treated[1],
        control_mean=control[0],
        control_std_error=control[1],
        degrees=degrees if few else math.inf,
    )


def _mean(
    means: FloatArray | None, variances: FloatArray | None, place: tuple[int, ...]
) -> tuple[float | None, float | None]:
    """An arm's mean and its standard error, if there are any."""
    if means is None or variances is None:
        return None, None
    return float(means[place]), math.sqrt(float(variances[place]))


def _limit(limit: float) -> float | None:
    """A limit of an interval; None if it is infinite."""
    return None if math.isinf(limit) else limit
