"""Intervals of differences and ratios of two independent numbers, from the limits of each.

The method of variance estimates recovery (MOVER; Zou and Donner, 2008): how far a number is from
its limit shows its variance near that limit. So θ₁ − θ₀, with limits l and u of each, has the lower
limit θ̂₁ − θ̂₀ − √((θ̂₁ − l₁)² + (u₀ − θ̂₀)²), and the upper one likewise. Ratios θ₁/θ₀ are those ρ for
which the interval of θ₁ − ρθ₀ holds zero (Donner and Zou, 2012).

A number may be known up to bounds only, however many units there are. Distances are then those
from the estimated bounds, and bounds are subtracted from each other as they are.

**Other scales than the difference**: ratios of means, odds ratios of shares, lift.

All are ratios A/B of what is estimated without bias. With p₁ and p₀ the arms' means,

    ratio of means   A = p₁             B = p₀
    odds ratio       A = p₁(1 − p₀)     B = p₀(1 − p₁)

and the interval holds every ρ for which A − ρB is within q standard errors of zero (Fieller, 1954).
No ratio is taken to be normal, and estimates outside of 0 to 1, as noise gives them, do no harm. At
ρ = 1 both differences are p₁ − p₀: an interval leaves out one exactly if that of the difference
leaves out zero. For the odds, A − ρB is linear in each mean, and (ρ − 1)·d₁·d₀ is what errors d of
both add to it.

Where B is not significantly different from zero, the interval has no upper limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, Protocol

from clusterdp.errors import ParameterError

Limits = tuple[float, float]
EVERYTHING: Limits = (-math.inf, math.inf)
# So many halvings leave a p-value exact to six digits.
_STEPS = 25
_LEAST_P_VALUE = 1e-12


class ArmValue(Protocol):
    """A number of an arm, with limits that need not be equally far from it."""

    @property
    def value(self) -> float:
        """The estimate."""

    @property
    def bounds(self) -> Limits:
        """The estimated bounds of what can be known of it; the estimate twice, if it can be."""

    @property
    def variances(self) -> tuple[float, float]:
        """The parts of its variance that sampling and privacy cost."""

    def limits(self, level: float) -> Limits:
        """A confidence interval."""


class EffectInterval(Protocol):
    """How the interval of an effect is made, where it is not so many standard errors."""

    @property
    def p_value(self) -> float:
        """Of a zero effect."""

    def ci(self, level: float) -> Limits:
        """The interval; with what it leaves out inside, if it is no interval."""

    def gap(self, level: float) -> Limits | None:  # noqa: ARG002 - of some effects
        """What is left out inside; None if nothing is, as by default."""
        return None

    def lift(self, level: float) -> tuple[float, float, float] | None:  # noqa: ARG002 - of some
        """The effect relative to control, with limits; None if it is unknown, as by default."""
        return None


class ArmPair(EffectInterval):
    """Two arms' numbers, independent of each other: of the treatment, and of control."""

    def __init__(self, treated: ArmValue, control: ArmValue) -> None:
        self.treated, self.control = treated, control

    @property
    def difference(self) -> float:
        """Treatment minus control."""
        return self.treated.value - self.control.value

    @property
    def bounds(self) -> Limits:
        """The estimated bounds of the difference; the estimate twice, where it can be known."""
        (low, high), (rest_low, rest_high) = self.treated.bounds, self.control.bounds
        return low - rest_high, high - rest_low

    def ci(self, level: float) -> Limits:
        """Limits of the difference."""
        treated, control = self.treated.limits(level), self.control.limits(level)
        (low, high), (rest_low, rest_high) = self.treated.bounds, self.control.bounds
        down = math.hypot(low - treated[0], control[1] - rest_high)
        up = math.hypot(treated[1] - high, rest_low - control[0])
        return low - rest_high - down, high - rest_low + up

    def lift(self, level: float) -> tuple[float, float, float] | None:
        """The difference relative to control, with limits; None unless control is above zero."""
        treated, control = self.treated.limits(level), self.control.limits(level)
        if not (control[0] > 0 and all(map(math.isfinite, (*treated, control[1])))):
            return None
        (low, high), (rest_low, rest_high) = self.treated.bounds, self.control.bounds
        first = _ratio_limit(low, treated[0], rest_high, control[1], sign=-1)
        last = _ratio_limit(high, treated[1], rest_low, control[0], sign=1)
        if first is None or last is None:
            return None
        return self.treated.value / self.control.value - 1, first - 1, last - 1

    @property
    def p_value(self) -> float:
        """One minus the highest level at which the interval does not hold zero.

        It is found by halving its logarithm.
        """

        def holds_zero(p_value: float) -> bool:
            low, high = self.ci(1 - p_value)
            return low <= 0 <= high

        if math.isnan(self.difference):
            return math.nan
        if not holds_zero(_LEAST_P_VALUE):
            return 0.0
        low, high = math.log(_LEAST_P_VALUE), 0.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if holds_zero(math.exp(middle)) else (low, middle)
        return math.exp(low)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueClusterInterval(EffectInterval):
    """The interval of an effect in a true cluster (Fieller's).

    How many units of the cluster an arm has is an estimate itself. With arms' means μ̂_a and counts
    W_a = Σ w, let ā = W₁/(W₁ + W₀). If the effect is τ = τ̂ + d, arms' means are μ̂₁ + (1 − ā)d and
    μ̂₀ − ād, and τ̂ has the variance V(d) = V − 2Bd + Cd² of residuals from these. The interval holds
    every d with d² ≤ q²·V(d).

    Attributes:
        effect: τ̂.
        variance: V, at d = 0.
        lean: B = (1 − ā)B₁ − āB₀, with B_a = Σ w²(ỹ − μ̂_a)/W_a².
        spread: C = (1 − ā)²C₁ + ā²C₀, with C_a = Σ w²/W_a².
        degrees: Degrees of freedom of the variance; infinite if it is normal.
    """

    effect: float
    variance: float
    lean: float
    spread: float
    degrees: float

    @property
    def p_value(self) -> float:
        """Of a zero effect; at least that of zero units, below which intervals have no bounds."""
        within = self.variance + 2 * self.effect * self.lean + self.effect**2 * self.spread
        no_units = two_sided(1.0, math.sqrt(self.spread), self.degrees)
        return max(two_sided(self.effect, math.sqrt(within), self.degrees), no_units)

    def ci(self, level: float) -> tuple[float, float]:
        """The interval; everything, where the cluster may have no units."""
        variances = self.variance, self.spread, self.lean
        (low, high), _ = ratio_set(0.0, 1.0, variances, quantile(level, self.degrees))
        return self.effect + low, self.effect + high


def within(number: float, bounds: tuple[float, float]) -> float:
    """A number within bounds."""
    return min(max(number, bounds[0]), bounds[1])


def check_level(level: Any) -> None:
    """Raise a ParameterError unless this is a confidence level."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ParameterError(f"level must lie between 0 and 1, as 0.95 does; got {level!r}")


def quantile(level: float, degrees: float = math.inf) -> float:
    """How many standard errors an interval reaches to each side: normal, or Student's t."""
    from scipy.special import ndtri, stdtrit

    prob = (1 + level) / 2
    return float(ndtri(prob) if math.isinf(degrees) else stdtrit(degrees, prob))


def two_sided(effect: float, std_error: float, degrees: float = math.inf) -> float:
    """The p-value of a zero effect: normal, or by Student's t."""
    if std_error == 0:
        return 1.0 if effect == 0 else 0.0
    distance = abs(effect) / std_error
    if math.isinf(degrees):
        return math.erfc(distance / math.sqrt(2))
    from scipy.special import stdtr

    return 2 * float(stdtr(degrees, -distance))


def ratio_set(
    above: float, below: float, variances: tuple[float, float, float], reach: float
) -> tuple[Limits, Limits | None]:
    """Fieller's set (1954): every r for which N̂ − r·D̂ is within q standard errors of zero.

    That is (D² − q²V_D)r² − 2(ND − q²C)r + (N² − q²V_N) ≤ 0.

    Args:
        above: N̂.
        below: D̂.
        variances: V_N, V_D and the covariance C.
        reach: q.

    Returns:
        Its limits, everything where it has no bounds; and what it leaves out between two rays,
        None if it is no such set.
    """
    of_above, of_below, both = variances
    leading = below**2 - reach**2 * of_below
    middle = above * below - reach**2 * both
    inside = middle**2 - leading * (above**2 - reach**2 * of_above)
    half = math.sqrt(max(inside, 0.0))
    if leading > 0:
        return ((middle - half) / leading, (middle + half) / leading), None
    if leading < 0 < inside:
        return EVERYTHING, ((middle + half) / leading, (middle - half) / leading)
    return EVERYTHING, None


def _ratio_limit(
    above: float, above_limit: float, below: float, below_limit: float, *, sign: int
) -> float | None:
    """The ρ at which a limit of θ₁ − ρθ₀ is zero: (θ̂₁ − ρθ̂₀)² = (θ̂₁ − l₁)² + ρ²(u₀ − θ̂₀)².

    Args:
        above: θ̂₁.
        above_limit: Its limit on the side of the wanted one.
        below: θ̂₀.
        below_limit: Its limit on the other side, above zero.
        sign: −1 for the lower limit of the ratio, 1 for the upper one.

    Returns:
        The limit; None without one, as control may be too near to zero.
    """
    far, far_below = (above_limit - above) ** 2, (below_limit - below) ** 2
    leading = below**2 - far_below
    if leading <= 0:
        return None
    # (θ̂₁θ̂₀)² minus the product of the outer coefficients, without what cancels.
    inside = far_below * above**2 + far * leading
    return (above * below + sign * math.sqrt(inside)) / leading


Scale = Literal["difference", "ratio", "odds", "lift"]
SCALES: tuple[Scale, ...] = ("difference", "ratio", "odds", "lift")


class ScaledEffect(NamedTuple):
    """An effect on a scale.

    Attributes:
        value: The estimate; NaN where the denominator is not above zero.
        low: The lower limit.
        high: The upper limit; infinite without one.
    """

    value: float
    low: float
    high: float

    def minus(self, number: float) -> ScaledEffect:
        """The same, moved down."""
        return ScaledEffect(self.value - number, self.low - number, self.high - number)


def scale_name(scale: Scale, *, is_share: bool) -> str:
    """What effects on a scale are called, on shares or on other means."""
    return {"ratio": "risk ratio" if is_share else "ratio", "odds": "odds ratio"}.get(scale, scale)


def ratio_of_means(
    means: tuple[float, float], variances: tuple[float, float], reach: float
) -> ScaledEffect:
    """p₁/p₀ of means that are not below zero.

    Args:
        means: Of treatment and control, independent of each other.
        variances: Of these.
        reach: q.
    """
    return _positive_ratio(*means, (*variances, 0.0), reach)


def odds_ratio(
    means: tuple[float, float], variances: tuple[float, float], reach: float
) -> ScaledEffect:
    """The odds ratio of shares; arguments as of `ratio_of_means`."""
    (treated, control), (of_treated, of_control) = means, variances
    of_both = of_treated * of_control
    return _positive_ratio(
        treated * (1 - control),
        control * (1 - treated),
        (
            (1 - control) ** 2 * of_treated + treated**2 * of_control + of_both,
            control**2 * of_treated + (1 - treated) ** 2 * of_control + of_both,
            of_both - control * (1 - control) * of_treated - treated * (1 - treated) * of_control,
        ),
        reach,
    )


def _positive_ratio(
    above: float, below: float, variances: tuple[float, float, float], reach: float
) -> ScaledEffect:
    """A ratio that is not below zero, with the interval around Fieller's set from zero on."""
    (low, high), gap = ratio_set(above, below, variances, reach)
    if gap is not None and gap[0] < 0:  # what is above zero is one ray
        low = gap[1]
    if gap is not None or below <= 0:
        high = math.inf
    value = max(above, 0.0) / below if below > 0 else math.nan
    return ScaledEffect(value, max(low, 0.0), max(high, 0.0))
