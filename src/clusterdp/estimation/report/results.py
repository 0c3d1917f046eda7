"""Effects and estimates as values: numbers, intervals, and conversions to tables and figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from clusterdp._text import plain_text
from clusterdp.document.text import terminal_width
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.intervals import quantile, two_sided
from clusterdp.estimation.report import tables as report

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure

    from clusterdp.estimation.effects.effect import Target
    from clusterdp.estimation.effects.findings import Check, Origin
    from clusterdp.estimation.effects.intervals import EffectInterval
    from clusterdp.estimation.means.sums import Estimator
    from clusterdp.estimation.metrics.differences import Homogeneity
    from clusterdp.estimation.metrics.levels import ArmDistribution
    from clusterdp.estimation.metrics.observed import AttritionBounds
    from clusterdp.privacy.accounting import Guarantee


# Below this many units in an arm, or degrees of freedom, intervals are Student's instead of normal.
FEW_UNITS = 50
# What a segment is compared with: the other segments of its dimension.
REST = "rest"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Effect:
    """An average effect, estimated.

    Attributes:
        of: What it is of: an arm against control, overall or in a segment.
        effect: Estimated average effect, in units of the outcome; NaN where an arm has no units.
        std_error: Its standard error, of assignment and privacy together.
        sampling_variance: The part of the variance that sampling cost.
        privacy_variance: The part of the variance that privacy cost.
        n_treated: Units in the treatment arm.
        n_control: Units in control.
        treated_mean: Mean outcome of the treatment; None if there is no estimate of it.
        treated_std_error: Its standard error.
        control_mean: Mean outcome of control; None if there is no estimate of it.
        control_std_error: Its standard error.
        degrees: Degrees of freedom of the standard error; infinite if intervals are normal.
        interval: How intervals are made of ratios, of quantiles and of effects on those exposed;
            None if they are so many standard errors.
        family_size: How many effects simultaneous intervals cover together.
        holm_p_value: Holm's p-value in the family: of any false alarm; NaN without an interval.
        bh_p_value: Benjamini and Hochberg's: of the share of false alarms.
        to_report: Whether to report this one, where there is an adjusted effect beside a plain one.
        possible: The least and the largest value of the metric, which intervals and lifts are cut
            to; None if they are not known. Estimates themselves are unbiased, and are not cut.
    """

    of: Target
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

    def __repr__(self) -> str:
        return plain_text(report.effect_in_short(self))

    @property
    def privacy_share(self) -> float:
        """The share of the variance that privacy cost."""
        total = self.sampling_variance + self.privacy_variance
        return self.privacy_variance / total if total else 0.0

    @property
    def p_value(self) -> float:
        """Two-sided p-value of no effect, by the distribution that intervals are made with."""
        if self.interval is not None:
            return self.interval.p_value
        return two_sided(self.effect, self.std_error, self.degrees)

    @property
    def largest(self) -> float:
        """The largest possible effect in either direction; infinite if that is not known."""
        if self.possible is None:
            return math.inf
        return (self.possible[1] - self.possible[0]) * (1 if self.of.against is None else 2)

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval: normal, or Student's t where an arm has few units."""
        low, high = self._uncut_ci(level)
        return cut(low, -self.largest, self.largest), cut(high, -self.largest, self.largest)

    def _uncut_ci(self, level: float) -> tuple[float, float]:
        if self.interval is not None:
            check_level(level)
            return self.interval.ci(level)
        reach = _quantile(level, self.degrees) * self.std_error
        return self.effect - reach, self.effect + reach

    def ci_gap(self, level: float = 0.95) -> tuple[float, float] | None:
        """What `ci` leaves out inside: of effects on those exposed, where two rays are possible."""
        check_level(level)
        return None if self.interval is None else self.interval.gap(level)

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
        above zero at this level: such a set of ratios has no bounds. Limits are cut to what is
        possible: above what the largest value of the metric would be, there is none (infinity).
        """
        found = self._uncut_lift(level)
        if found is None or self.possible is None or not self.control_mean:
            return found
        lowest, highest = (end / self.control_mean - 1 for end in self.possible)
        least = -1.0 if self.possible[0] >= 0 else -math.inf
        ratio, low, high = cut(found[0], lowest, highest), found[1], found[2]
        high = math.inf if high > highest else high
        return max(ratio, least), max(low, least), max(high, least)

    def _uncut_lift(self, level: float) -> tuple[float, float, float] | None:
        if self.interval is not None:
            return self.interval.lift(level)
        if self.control_mean is None or self.control_std_error is None:
            return None
        if math.isnan(self.std_error):
            return None
        quantile = _quantile(level, self.degrees)
        squared, control_variance = quantile**2, self.control_std_error**2
        if not self.control_mean > quantile * self.control_std_error:
            return None
        variance = max(self.std_error**2, control_variance)
        # leading·θ² − 2·middle·θ + last ≤ 0
        leading = self.control_mean**2 - squared * control_variance
        middle = self.effect * self.control_mean + squared * control_variance
        last = self.effect**2 - squared * variance
        reach = math.sqrt(max(middle**2 - leading * last, 0.0))
        if math.isnan(reach):
            return None
        return (
            self.effect / self.control_mean,
            (middle - reach) / leading,
            (middle + reach) / leading,
        )

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Everything about this effect as plain numbers."""
        low, high = self.ci(level)
        low_all, high_all = self.simultaneous_ci(level)
        gap = self.ci_gap(level) or (None, None)
        lift = self.lift(level) or (None, None, None)
        return {
            **self.of._asdict(),
            "segment": dict(self.of.segment),
            "to_report": self.to_report,
            "effect": self.effect,
            "std_error": self.std_error,
            "ci_level": level,
            "ci_low": _bounded(low),
            "ci_high": _bounded(high),
            "ci_gap_low": gap[0],
            "ci_gap_high": gap[1],
            "simultaneous_ci_low": _bounded(low_all),
            "simultaneous_ci_high": _bounded(high_all),
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
            "lift_ci_high": None if lift[2] is None else _bounded(lift[2]),
            "sampling_variance": self.sampling_variance,
            "privacy_variance": self.privacy_variance,
            "privacy_share": self.privacy_share,
            "degrees": None if math.isinf(self.degrees) else self.degrees,
            "n_treated": self.n_treated,
            "n_control": self.n_control,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Effects of every arm against control, the overall ones first.

    With one treatment arm, `effect`, `std_error` and `ci` are of its overall effect. Other effects
    are selected by metric, arm and segment: `estimate["visit"]`, `estimate["B"]`,
    `estimate["visit", "B", "tier=gold"]`. Any library that reads Arrow streams reads an estimate
    as a table.

    Attributes:
        effects: The overall effects, then those of segments, then differences between these.
        treatment: The column of arms.
        estimator: "stratified" or "unstratified".
        mechanism: The name of the mechanism that released the data, or "true outcomes".
        guarantee: What the release cost, or None for true outcomes.
        origin: What the estimate was made from.
        level: The confidence level that intervals are shown at.
        family: What varies within a family of effects: arms, segments, metrics.
        warnings: Reasons why numbers may be wrong.
        notes: Remarks for whoever uses these numbers, the weightiest first.
        tests: Whether segments have the same effect, where differences were asked for.
        distributions: Of outcomes in every arm, where they were asked for.
        bounds: Of overall effects on outcomes that may be missing, for those who would be observed
            in either arm.
        checks: What was checked of the data, with verdicts.
        adjusted_for: The covariates of adjusted effects.
    """

    effects: tuple[Effect, ...]
    treatment: str
    estimator: Estimator
    mechanism: str
    guarantee: Guarantee | None
    origin: Origin
    level: float = 0.95
    family: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tests: tuple[Homogeneity, ...] = ()
    distributions: tuple[ArmDistribution, ...] = ()
    bounds: tuple[AttritionBounds, ...] = ()
    checks: tuple[Check, ...] = ()
    adjusted_for: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_level(self.level)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The outcomes that effects are on, then functions of them."""
        return tuple(dict.fromkeys(effect.of.metric for effect in self.effects))

    @property
    def segment_columns(self) -> tuple[str, ...]:
        """The columns that segments are cut by."""
        return tuple(dict.fromkeys(name for one in self.effects for name, _ in one.of.segment))

    def __getitem__(self, key: Any) -> Effect:
        """The effect of a metric, an arm, a segment (`effect.of.label`), or of several of these."""
        parts = key if isinstance(key, tuple) else (key,)
        found = [effect for effect in self.effects if effect.of.is_named_by(parts)]
        if len(found) != 1:
            raise KeyError(self._why_not(key, found))
        return found[0]

    @property
    def effect(self) -> float:
        """The overall effect of the only treatment arm."""
        return self._only().effect

    @property
    def std_error(self) -> float:
        """The standard error of the only treatment arm's overall effect."""
        return self._only().std_error

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval of the only treatment arm's overall effect."""
        return self._only().ci(level)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON when labels are."""
        return {
            "metrics": list(self.metrics),
            "treatment": self.treatment,
            "estimator": self.estimator,
            "mechanism": self.mechanism,
            "epsilon": self.guarantee.epsilon if self.guarantee else None,
            "delta": self.guarantee.delta if self.guarantee else None,
            "effects": [effect.to_dict(self.level) for effect in self.effects],
            "homogeneity": [test.to_dict() for test in self.tests],
            "distributions": [row for one in self.distributions for row in one.to_rows()],
            "attrition_bounds": [one.to_dict() for one in self.bounds],
            "adjusted_for": list(self.adjusted_for),
            "family": list(self.family),
            "checks": [check.to_dict() for check in self.checks],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat row per effect: the segment in words, and a column for each it is cut by.

        A column that has the name of one of ours is called `segment_NAME`.
        """
        rows = []
        for effect in self.effects:
            numbers, values = effect.to_dict(self.level), dict(effect.of.segment)
            words = {"segment": report.segment_label(effect.of.segment)}
            cut = {
                f"segment_{name}" if name in numbers else name: values.get(name)
                for name in self.segment_columns
            }
            rows.append({**words, **cut, **numbers, **words})
        return rows

    def to_polars(self) -> pl.DataFrame:
        """One row per effect, as a Polars frame."""
        import polars as pl

        return pl.DataFrame(self.to_rows(), infer_schema_length=None)

    def to_pandas(self) -> pd.DataFrame:
        """One row per effect, as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.to_rows())

    def plot(self, path: str | Path | None = None) -> Figure:
        """A forest plot, which notebooks show; written to a .svg, .png or .pdf file if asked."""
        from clusterdp.estimation.report.charts import forest_plot

        return forest_plot(self, path)

    def to_html(self) -> str:
        """A page to share: a whole document that needs nothing beside itself."""
        from clusterdp.estimation.report.document import report_page

        return report_page(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_polars().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return plain_text(report.as_text(self, terminal_width()), "\n")

    def _repr_html_(self) -> str:
        from clusterdp.estimation.report.document import notebook_part

        return notebook_part(self)

    def _why_not(self, key: Any, found: list[Effect]) -> str:
        named = {
            "metrics": (effect.of.metric for effect in found or self.effects),
            "arms": (effect.of.arm for effect in found or self.effects),
            "segments": (effect.of.label for effect in found or self.effects),
        }
        listed = {kind: list(dict.fromkeys(map(repr, each))) for kind, each in named.items()}
        if found:
            several = next(kind for kind, each in listed.items() if len(each) > 1)
            names = ", ".join(listed[several])
            return f"{key!r} has several {several} ({names}); name one too: estimate[{key!r}, ...]"
        known = "; ".join(f"the {kind} are {', '.join(each)}" for kind, each in listed.items())
        return f"no effect of {key!r}; {known}"

    def _only(self) -> Effect:
        overall = [effect for effect in self.effects if effect.of.label == "overall"]
        if len(overall) != 1:
            raise ParameterError(
                f"there are {len(overall)} overall effects; take one: "
                "estimate[metric], estimate[arm] or estimate[metric, arm]"
            )
        return overall[0]


def cut(number: float, low: float, high: float) -> float:
    """A number within bounds."""
    return min(max(number, low), high)


def check_level(level: Any) -> None:
    """Raise a ParameterError unless this is a confidence level."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ParameterError(f"level must be a number strictly between 0 and 1, got {level!r}")


def _quantile(level: float, degrees: float = math.inf) -> float:
    """How many standard errors an interval reaches to each side."""
    check_level(level)
    return quantile(level, degrees)


def _bounded(limit: float) -> float | None:
    """A limit of an interval; None where there is none."""
    return None if math.isinf(limit) else limit
