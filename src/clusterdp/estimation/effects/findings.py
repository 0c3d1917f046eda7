"""What an estimate found: effects, tests, distributions, bounds, checks and notes.

`Findings` is all of it as values. Reports are made of findings; `Estimate`, which people hold, is
findings that can be shown. Also here: what an estimate was made from, and how to make it again, by
names of files and never by their paths.

Families of effects: p-values and intervals that hold for all effects of a family at once.

A family has effects of one kind: overall effects, effects in segments, or differences between
segments; adjusted ones apart, because one of the two is reported. What varies within a family is
declared: arms, segments, metrics. Effects without an interval count for nothing.

Which effect to report, where there is an adjusted one next to a plain one.

Slopes count the less, the noisier they are (see `adjustment`), so that an adjusted effect is hardly
ever known worse. The choice follows from numbers of units, never from the effects.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp._lists import parse_names
from clusterdp._text import plural
from clusterdp.cells.layout import Layout, units_in_words
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import (
    Effect,
    EffectTarget,
    Estimator,
    Segment,
    segment_label,
)
from clusterdp.estimation.effects.intervals import Scale
from clusterdp.estimation.effects.looks import Look
from clusterdp.estimation.effects.margins import BestArm, MarginVerdict
from clusterdp.estimation.effects.notes import DataCheck
from clusterdp.privacy.accounting import Guarantee
from clusterdp.published.manifest import plain

# A call that is longer than a line of this width has a line for each argument.
_WIDTH = 80
# What can be written into a call as it is.
_PLAIN = (str, int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an estimate was made from.

    Attributes:
        data: The title of the release, or the name of its folder; None if it has neither.
        n_clusters: How many clusters there are; 0 where none were given.
        cluster: The column of clusters; None where none were given.
        arm_sizes: Every arm with its units.
        shares: The metrics that are shares of units.
        made_by: The call or the command that makes it again.
        unit: What a unit is called.
    """

    data: str | None
    n_clusters: int
    cluster: str | None
    arm_sizes: tuple[tuple[Any, int], ...]
    shares: tuple[str, ...]
    made_by: str
    unit: str = "unit"

    @classmethod
    def from_layout(
        cls,
        data: str | None,
        layout: Layout,
        cluster: str | None,
        shares: Iterable[str],
        made_by: str,
    ) -> Origin:
        """The origin of an estimate, from the name and the layout of its release."""
        sizes = layout.sizes.sum(axis=0).tolist()
        return cls(
            data=data,
            n_clusters=layout.n_clusters,
            cluster=cluster,
            arm_sizes=tuple(zip(layout.arms, sizes, strict=True)),
            shares=tuple(shares),
            made_by=made_by,
        )

    @property
    def n_units(self) -> int:
        """How many units there are."""
        return sum(size for _, size in self.arm_sizes)

    def in_short(self) -> str:
        """For people: "published: 64,000 units in 7 clusters"."""
        name = "" if self.data is None else f"{self.data}: "
        return name + units_in_words(self.n_units, self.n_clusters, self.unit)

    @property
    def units(self) -> str:
        """What units are called."""
        return plural(self.unit)


class ArmDistribution(NamedTuple):
    """The share of an arm's units at or below each value, with intervals, all increasing.

    Each interval covers by itself. On numbers a share is known up to bounds, except at cuts; the
    estimate is half way between them, and the interval holds both.

    Attributes:
        outcome: The outcome.
        arm: The arm.
        segment: The segment; empty for everyone.
        values: The values; axes `[value]`.
        shares: The estimates; axes `[value]`.
        low: Lower limits; axes `[value]`.
        high: Upper limits; axes `[value]`.
        is_likelihood: Whether they are by maximum likelihood.
    """

    outcome: str
    arm: Any
    segment: Segment
    values: FloatArray
    shares: FloatArray
    low: FloatArray
    high: FloatArray
    is_likelihood: bool = False

    def to_rows(self) -> list[dict[str, Any]]:
        """One plain row per value."""
        return [
            {
                "outcome": self.outcome,
                "arm": plain(self.arm),
                "segment": segment_label(self.segment),
                "value": float(value),
                "share": float(share),
                "ci_low": float(low),
                "ci_high": float(high),
                "method": "maximum likelihood" if self.is_likelihood else "unbiased, made monotone",
            }
            for value, share, low, high in zip(
                self.values, self.shares, self.low, self.high, strict=True
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTest:
    """A heterogeneity test: that an arm has the same effect in all segments of a dimension.

    Attributes:
        metric: The metric that effects are on.
        arm: The treatment arm.
        control: The control arm.
        by: The columns that define segments.
        adjusted: Whether covariates were adjusted for.
        statistic: Its F statistic.
        n_segments: How many segments were compared.
        effect_degrees: Degrees of freedom of the effects: one less, or fewer where published sums
            have long tails of noise.
        degrees: Degrees of freedom of the standard errors.
    """

    metric: str
    arm: Any
    control: Any
    by: tuple[str, ...]
    adjusted: bool
    statistic: float
    n_segments: int
    effect_degrees: float
    degrees: float

    @property
    def p_value(self) -> float:
        """How often the effects would differ as much if they were the same."""
        from scipy.special import fdtrc

        return float(fdtrc(self.effect_degrees, self.degrees, self.statistic))

    def to_dict(self) -> dict[str, Any]:
        """Everything about this test as plain values."""
        return {**asdict(self), "by": list(self.by), "p_value": self.p_value}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttritionBounds:
    """Lee bounds: on the overall effect on units that would respond in either arm.

    They hold if treatment moves response in one direction only.

    Attributes:
        of: What effect they bound.
        low: The lower bound, estimated.
        high: The upper bound, estimated.
        limits: What the effect lies between, at `level`.
        level: The confidence level of the limits.
        trimmed: The arm of which a part counts: that with more observed.
        trimmed_share: The share of its observed that is left out.
        from_ends: Whether only the declared ends of the outcome were used, as rows do not show how
            it is distributed.
        widened: Whether noise had the bounds in another order, or the effect on units with an
            observed outcome outside. That effect lies between the true bounds, so they were moved
            to hold it.
    """

    of: EffectTarget
    low: float
    high: float
    limits: tuple[float, float]
    level: float
    trimmed: Any
    trimmed_share: float
    from_ends: bool
    widened: bool

    def to_dict(self) -> dict[str, Any]:
        """Everything about these bounds as plain values."""
        return {
            "metric": self.of.metric,
            "arm": self.of.arm,
            "control": self.of.control,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "limit_low": self.limits[0],
            "limit_high": self.limits[1],
            "trimmed": self.trimmed,
            "trimmed_share": self.trimmed_share,
            "from_ends": self.from_ends,
            "widened": self.widened,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Effects of every arm against control, the overall ones first, and all that goes with them.

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
        notes: What changes the meaning of numbers.
        method: How numbers were computed.
        tests: Heterogeneity tests, where differences were asked for.
        distributions: Of outcomes in every arm, where they were asked for.
        bounds: Lee bounds of overall effects on outcomes that may be missing.
        verdicts: On overall effects, where margins were given.
        best: Which arm is best for each metric, with probabilities.
        checks: What was checked of the data, with verdicts.
        adjusted_for: The covariates of adjusted effects.
        owner_covariates: Metrics whose overall effects are adjusted by a covariate of the owner,
            each with its column.
        look: Which of several looks this is; None for one.
        scale: What tables show effects as.
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
    method: tuple[str, ...] = ()
    tests: tuple[SegmentTest, ...] = ()
    distributions: tuple[ArmDistribution, ...] = ()
    bounds: tuple[AttritionBounds, ...] = ()
    verdicts: tuple[MarginVerdict, ...] = ()
    best: tuple[BestArm, ...] = ()
    checks: tuple[DataCheck, ...] = ()
    adjusted_for: tuple[str, ...] = ()
    owner_covariates: tuple[tuple[str, str], ...] = ()
    look: Look | None = None
    scale: Scale = "difference"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The outcomes that effects are on, then functions of them."""
        return tuple(dict.fromkeys(effect.of.metric for effect in self.effects))

    @property
    def segment_columns(self) -> tuple[str, ...]:
        """The columns that define segments."""
        return tuple(dict.fromkeys(name for one in self.effects for name, _ in one.of.segment))


def file_name(source: Any) -> str | None:
    """The name of a file or folder, without where it is; None if it is neither."""
    return Path(source).resolve().name if isinstance(source, str | os.PathLike) else None


def call_text(function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """A call of a function, as someone would write it to repeat it.

    The first argument is named if it is the path of a file or folder, or a list of them. Tables and
    other objects stand as their parameter.

    Args:
        function: What was called.
        given: Its arguments by parameter.
    """
    parameters = inspect.signature(function).parameters
    first, *others = parameters
    source, words = given[first], [first]
    if isinstance(source, list | tuple) and all(file_name(one) for one in source):
        words = [repr([file_name(one) for one in source])]
    elif name := file_name(source):
        words = [repr(name)]
    words += [
        f"{name}={_written(name, given[name])}"
        for name in others
        if given[name] is not parameters[name].default
    ]
    name = f"clusterdp.{function.__name__}"
    if len(line := f"{name}({', '.join(words)})") <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), ")"])


def _written(name: str, value: Any) -> str:
    """A value as code; the name of its parameter if it is no plain value."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(name, one) for one in value)}]"
    if isinstance(value, dict):
        pairs = (f"{_written(name, key)}: {_written(name, one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    return name


# What effects of a family may differ in.
VARYING = ("arms", "segments", "metrics")


def parse_family(family: Any) -> tuple[str, ...]:
    """What varies within a family, in the order of `VARYING`.

    Raises:
        ParameterError: If it is something else.
    """
    if isinstance(family, str | list | tuple):
        names = parse_names(family)
        if names and set(names) <= set(VARYING):
            return tuple(name for name in VARYING if name in names)
    raise ParameterError(
        f"family must be some of {', '.join(VARYING)}, separated by commas; got {family!r}"
    )


def with_families(effects: Sequence[Effect], varying: tuple[str, ...]) -> tuple[Effect, ...]:
    """The same effects, each with the size of its family and its p-values in it.

    What is reported is one family, adjusted or not; all else is a family of adjusted or of plain
    effects.
    """
    families: dict[Hashable, list[int]] = {}
    known = [place for place, one in enumerate(effects) if one.std_error == one.std_error]
    for place in known:
        family = _family_of(effects[place].of, varying)
        families.setdefault((family, effects[place].of.adjusted), []).append(place)
    # After those, so that they count.
    for place in known:
        if effects[place].to_report:
            family = _family_of(effects[place].of, varying)
            families.setdefault((family, "reported"), []).append(place)
    found = list(effects)
    for places in families.values():
        p_values = np.array([effects[place].p_value for place in places])
        for place, holm, rate in zip(
            places, holm_p_values(p_values), benjamini_hochberg(p_values), strict=True
        ):
            found[place] = replace(
                effects[place],
                family_size=len(places),
                holm_p_value=float(holm),
                bh_p_value=float(rate),
            )
    return tuple(found)


def holm_p_values(p_values: FloatArray) -> FloatArray:
    """Holm's (1979): the chance of any false positive in the family, however effects are related.

    The k-th smallest of m is multiplied by m − k + 1, and is at least the one before it.
    """
    order = np.argsort(p_values)
    rising = np.maximum.accumulate(np.arange(len(p_values), 0, -1) * p_values[order])
    return np.asarray(np.minimum(rising, 1.0)[np.argsort(order)])


def benjamini_hochberg(p_values: FloatArray) -> FloatArray:
    """Benjamini and Hochberg's (1995): the expected share of false positives among all positives.

    The k-th smallest of m is multiplied by m/k, and is at most the one after it.
    """
    order, ranks = np.argsort(p_values)[::-1], np.arange(len(p_values), 0, -1)
    falling = np.minimum.accumulate(len(p_values) / ranks * p_values[order])
    return np.asarray(np.minimum(falling, 1.0)[np.argsort(order)])


def _family_of(of: EffectTarget, varying: tuple[str, ...]) -> Hashable:
    """What the effects of a family have in common."""
    kind = (bool(of.segment), of.against is not None)
    fixed = {"arms": of.arm, "segments": (of.segment, of.against), "metrics": of.metric}
    return (kind, *(value for name, value in fixed.items() if name not in varying))


# With fewer units for each slope, a regression may cost more than it gains.
_UNITS_PER_SLOPE = 20


def mark_reported(effects: Sequence[Effect], n_slopes: float) -> list[Effect]:
    """The same effects; of a plain and an adjusted one, one is marked.

    Args:
        effects: Plain ones, and adjusted ones next to some of them.
        n_slopes: How many slopes each arm has; infinite if plain effects are to be reported.
    """
    fewest = _UNITS_PER_SLOPE * n_slopes
    adjusted = {
        effect.of.plain
        for effect in effects
        if effect.of.adjusted
        and not math.isnan(effect.std_error)
        and min(effect.n_treated, effect.n_control) >= fewest
    }
    return [
        replace(effect, to_report=effect.of.adjusted == (effect.of.plain in adjusted))
        for effect in effects
    ]
