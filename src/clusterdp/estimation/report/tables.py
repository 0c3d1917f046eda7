"""Tables of effects, distributions and tests: the numbers that screens, pages and figures share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from clusterdp._text import NOTHING, limits_text, p_value_text, shortest_decimal, to_decimals
from clusterdp.document.scales import Interval
from clusterdp.document.text import Column
from clusterdp.estimation.effects.effect import (
    Effect,
    Segment,
    plain_label,
    segment_label,
)
from clusterdp.estimation.effects.findings import ArmDistribution, Findings, SegmentTest
from clusterdp.estimation.effects.intervals import Scale, scale_name, within

# All units, in a column of segments.
_ALL = "all"
# What most people read of overall effects and of effects in segments; `more_columns` has the rest.
_FIRST = ("effect", "CI", "p-value", "control", "treatment", "lift")
_FIRST_IN_SEGMENTS = ("units", "effect", "difference", "CI", "Holm p")
# Of many segments: shrunken effects with the ranks that segments can have, next to plain ones.
_FIRST_IN_MANY = ("units", "shrunken", "shrunken CI", "rank", "effect")
_PRECISION = ("SE", "control SE", "treatment SE", "due to privacy", "units per arm")
_TESTING = ("p-value", "Holm p", "BH p", "simultaneous CI", "lift CI")
# Which columns a narrow terminal leaves out, the last one first.
_RANKS = ("p-value", "Holm p", "rank", "units", "lift", "treatment", "control")


class MetricNumbers:
    """How the numbers of a metric are written.

    Two digits of the smallest standard error of the metric are shown.

    Attributes:
        is_share: Whether they are shares of units: means are in percent, effects in points.
        show: A number as text, with the decimals of the metric.
    """

    def __init__(self, estimate: Findings, metric: str) -> None:
        self.is_share = metric in estimate.origin.shares
        factor = 100.0 if self.is_share else 1.0
        errors = (factor * one.std_error for one in estimate.effects if one.of.metric == metric)
        written = to_decimals(errors)

        def show(number: float | None) -> str:
            return written(None if number is None else factor * number)

        self.show = show

    @property
    def unit(self) -> str:
        """The unit of effects: "pp", or none."""
        return "pp" if self.is_share else ""

    def effect(self, number: float | None) -> str:
        """A signed effect with its unit: `+3.95 pp`."""
        text = self.show(number)
        sign = "" if text == NOTHING or text.startswith("-") else "+"
        return f"{sign}{self.error(number)}"

    def error(self, number: float | None) -> str:
        """A number in the unit of effects."""
        text = self.show(number)
        return f"{text} {self.unit}" if self.unit and text != NOTHING else text

    def mean(self, number: float | None) -> str:
        """The mean of an arm: `28.72%`."""
        text = self.show(number)
        return f"{text}%" if self.is_share and text != NOTHING else text

    def interval(self, effect: Effect, level: float) -> str:
        """`[3.42, 4.47]`, in the unit of effects; or what it leaves out, if it is all else."""
        gap = effect.ci_gap(level)
        if gap is not None:
            return f"outside {limits_text(gap, self.show)}"
        return limits_text(effect.ci(level), self.show)


def shown_effect(effect: Effect) -> float:
    """An effect as people are shown it: what is possible, where noise took it further."""
    return within(effect.effect, (-effect.largest, effect.largest))


def shown_mean(mean: float | None, effect: Effect) -> float | None:
    """The mean of an arm, likewise."""
    return mean if mean is None or effect.possible is None else within(mean, effect.possible)


def lift_text(effect: Effect, level: float) -> str:
    """The effect relative to control's mean."""
    lift = effect.lift(level)
    return NOTHING if lift is None else f"{lift[0]:+.1%}"


def lift_ci_text(effect: Effect, level: float) -> str:
    """The interval of the lift."""
    lift = effect.lift(level)
    if lift is None:
        return NOTHING
    _, low, high = lift
    return f"above {low:+.1%}" if math.isinf(high) else f"[{low:+.1%}, {high:+.1%}]"


def _scaled_text(effect: Effect, scale: Scale, level: float) -> str:
    """An effect on a scale: `1.14`, `+13.7%`."""
    found = effect.on_scale(scale, level)
    return NOTHING if found is None else _on_scale(found.value, scale)


def _scaled_ci_text(effect: Effect, scale: Scale, level: float) -> str:
    """Its interval: `[1.12, 1.16]`, `above 1.12`."""
    found = effect.on_scale(scale, level)
    if found is None:
        return NOTHING
    low, high = (_on_scale(number, scale) for number in found[1:])
    return f"above {low}" if math.isinf(found.high) else f"[{low}, {high}]"


def _on_scale(number: float, scale: Scale) -> str:
    if math.isnan(number):
        return NOTHING
    return f"{number:+.1%}" if scale == "lift" else f"{number:.{3 if 0 < number < 0.1 else 2}f}"


def privacy_text(shares: Iterable[float]) -> str:
    """The largest share of variances that is due to privacy."""
    known = [share for share in shares if not math.isnan(share)]
    if not known:
        return NOTHING
    return "<1%" if 0 < max(known) < 0.005 else f"{max(known):.0%}"


def level_text(estimate: Findings) -> str:
    """The confidence level: `95%`."""
    return f"{100 * estimate.level:.4g}%"


def is_significant(effect: Effect, level: float) -> bool:
    """Whether an effect differs from zero, corrected for the other tests of its family."""
    is_one_of_several = effect.family_size > 1
    return (effect.holm_p_value if is_one_of_several else effect.p_value) < 1 - level


def has_several_arms(estimate: Findings) -> bool:
    """Whether there are effects of more than one arm."""
    return len({effect.of.arm for effect in estimate.effects}) > 1


def first_columns(estimate: Findings, effects: Sequence[Effect]) -> list[Column]:
    """What most people read of some effects."""
    in_segments = any(effect.of.segment for effect in effects)
    names: tuple[str, ...] = _FIRST_IN_SEGMENTS if in_segments else _FIRST
    if is_scaled(estimate, effects):
        replaced = {"effect": "scaled", "CI": "scaled CI"}
        names = tuple(replaced.get(name, name) for name in names if name != "lift")
    if in_segments and not any(effect.family_size > 1 for effect in effects):
        names = tuple("p-value" if name == "Holm p" else name for name in names)
    if any(effect.shrunken is not None for effect in effects):
        names = _FIRST_IN_MANY
    return _columns(estimate, effects, names)


def is_scaled(estimate: Findings, effects: Sequence[Effect]) -> bool:
    """Whether some effects are shown on another scale than as differences."""
    are_plain = all(one.of.against is None and one.shrunken is None for one in effects)
    return are_plain and estimate.scale != "difference"


def scaled_header(effects: Sequence[Effect], scale: Scale) -> str:
    """What effects on a scale are called."""
    return scale_name(scale, is_share=all(one.is_share for one in effects))


def more_columns(estimate: Findings, effects: Sequence[Effect]) -> list[list[Column]]:
    """The other numbers of some effects, in two tables: precision, and multiple testing."""
    plain: tuple[str, ...] = ("CI",) * any(effect.shrunken is not None for effect in effects)
    if is_scaled(estimate, effects):
        plain = ("effect", "CI")
    tables = [_columns(estimate, effects, names) for names in ((*plain, *_PRECISION), _TESTING)]
    return [columns for columns in tables if any(not one.is_label for one in columns)]


def _columns(estimate: Findings, effects: Sequence[Effect], names: Sequence[str]) -> list[Column]:
    """What effects describe, and some columns of numbers; without those that have none."""
    percent = level_text(estimate)
    columns = labels(estimate, effects)
    for name in names:
        cells = tuple(cells_of(estimate, effects, name))
        if any(cell != "–" for cell in cells):
            written = name.replace("scaled CI", "CI").replace("CI", f"{percent} CI")
            written = written.replace("units", estimate.origin.units)
            if name == "scaled":
                written = scaled_header(effects, estimate.scale)
            rank = _RANKS.index(name) + 1 if name in _RANKS else 0
            columns.append(Column(written, cells, rank=rank))
    return columns


def cells_of(estimate: Findings, effects: Sequence[Effect], name: str) -> list[str]:
    """A number of each effect as text, by the name of its column."""
    numbers = {
        metric: MetricNumbers(estimate, metric)
        for metric in dict.fromkeys(effect.of.metric for effect in effects)
    }
    level = estimate.level
    if name in _SCALED_CELLS:
        return [_SCALED_CELLS[name](effect, estimate.scale, level) for effect in effects]
    write = _CELLS[name]
    return [write(effect, numbers[effect.of.metric], level) for effect in effects]


def _effect(one: Effect, numbers: MetricNumbers, *, is_difference: bool) -> str:
    is_shown = (one.of.against is not None) == is_difference
    return numbers.effect(shown_effect(one)) if is_shown else "–"


_SCALED_CELLS: dict[str, Callable[[Effect, Scale, float], str]] = {
    "scaled": _scaled_text,
    "scaled CI": _scaled_ci_text,
}
_CELLS: dict[str, Callable[[Effect, MetricNumbers, float], str]] = {
    "effect": lambda one, numbers, _: _effect(one, numbers, is_difference=False),
    "difference": lambda one, numbers, _: _effect(one, numbers, is_difference=True),
    "CI": lambda one, numbers, level: numbers.interval(one, level),
    "shrunken": lambda one, numbers, _: numbers.effect(
        shown_effect(one) if one.shrunken is None else one.shrunken.effect
    ),
    "shrunken CI": lambda one, numbers, level: (
        numbers.interval(one, level)
        if one.shrunken is None
        else limits_text((one.shrunken.low, one.shrunken.high), numbers.show)
    ),
    "rank": lambda one, *_: (
        NOTHING if one.shrunken is None else "–".join(map(str, dict.fromkeys(one.shrunken.ranks)))
    ),
    "p-value": lambda one, *_: p_value_text(one.p_value),
    "Holm p": lambda one, *_: p_value_text(one.holm_p_value),
    "BH p": lambda one, *_: p_value_text(one.bh_p_value),
    "control": lambda one, numbers, _: numbers.mean(shown_mean(one.control_mean, one)),
    "treatment": lambda one, numbers, _: numbers.mean(shown_mean(one.treated_mean, one)),
    "lift": lambda one, _, level: lift_text(one, level),
    "lift CI": lambda one, _, level: lift_ci_text(one, level),
    "SE": lambda one, numbers, _: numbers.error(one.std_error),
    "control SE": lambda one, numbers, _: numbers.error(one.control_std_error),
    "treatment SE": lambda one, numbers, _: numbers.error(one.treated_std_error),
    "due to privacy": lambda one, *_: privacy_text([one.privacy_variance_share]),
    "simultaneous CI": lambda one, numbers, level: numbers.interval(
        one, one.simultaneous_level(level)
    ),
    "units": lambda one, *_: f"{one.n_treated + one.n_control:,}",
    "units per arm": lambda one, *_: f"{one.n_control:,} / {one.n_treated:,}",
}


def labels(estimate: Findings, effects: Sequence[Effect]) -> list[Column]:
    """What each effect describes, in as few columns as distinguish effects."""

    def label(name: str, cells: list[object]) -> Column:
        return Column(plain_label(name), tuple(map(plain_label, cells)), is_label=True)

    metrics = [effect.of.metric for effect in effects]
    in_segments = any(effect.of.segment for effect in effects)
    columns = []
    if len(set(metrics)) > 1 or not in_segments:
        columns.append(label("metric", list(metrics)))
    if in_segments:
        columns += [
            label(name, [dict(one.of.segment).get(name, _ALL) for one in effects])
            for name in estimate.segment_columns
        ]
    if len({effect.of.arm for effect in effects}) > 1:
        columns.append(label(estimate.treatment, [effect.of.arm for effect in effects]))
    if any(effect.of.against is not None for effect in effects):
        columns.append(label("vs", [effect.of.against for effect in effects]))
    if any(not effect.to_report for effect in effects):
        # With a star if it is the one to report.
        cells = [("no", "yes")[one.of.adjusted] + " *" * one.to_report for one in effects]
        columns.append(label("adjusted", list(cells)))
    return columns


def segment_tables(estimate: Findings) -> list[list[Effect]]:
    """Effects to report in segments, those of a metric and an arm together, after all units.

    Differences between segments follow in tables of their own.
    """
    reported = [effect for effect in estimate.effects if effect.to_report]
    found = []
    for is_difference in (False, True):
        for metric in estimate.metrics:
            for arm in dict.fromkeys(effect.of.arm for effect in reported):
                rows = [
                    effect
                    for effect in reported
                    if (effect.of.metric, effect.of.arm) == (metric, arm)
                    and (effect.of.against is not None) == is_difference
                ]
                if any(effect.of.segment for effect in rows):
                    found.append(sorted(rows, key=_place))
    return found


def _place(effect: Effect) -> float:
    """Where an effect stands in a table: of many segments, the largest shrunken one first."""
    if effect.shrunken is None:
        return -math.inf if not effect.of.segment else 0.0
    return -effect.shrunken.effect


def to_interval(effect: Effect, numbers: MetricNumbers, level: float, label: str = "") -> Interval:
    """An effect as charts draw it, in the unit that it is written in."""
    factor = 100 if numbers.is_share else 1
    low, high = effect.ci(level)
    told = f"{numbers.effect(shown_effect(effect))} {numbers.interval(effect, level)}"
    is_muted = not is_significant(effect, level)
    shown, outer = (effect.effect, low, high), None
    if effect.shrunken is not None:
        shown, outer = effect.shrunken[:3], (factor * low, factor * high)
    estimate, low, high = (factor * number for number in shown)
    return Interval(label, estimate, low, high, told, outer=outer, is_muted=is_muted)


def heterogeneity_name(estimate: Findings, test: SegmentTest) -> str:
    """What a heterogeneity test compares: "visit (B) by tier (adjusted)"."""
    arm = f" ({plain_label(test.arm)})" if has_several_arms(estimate) else ""
    by = ", ".join(map(plain_label, test.by))
    return f"{plain_label(test.metric)}{arm} by {by}{' (adjusted)' if test.adjusted else ''}"


def reported_tests(estimate: Findings) -> list[SegmentTest]:
    """Heterogeneity tests of the effects to report: adjusted ones, or plain ones."""
    reported = {
        (one.of.metric, one.of.arm, tuple(name for name, _ in one.of.segment), one.of.adjusted)
        for one in estimate.effects
        if one.to_report and one.of.segment
    }
    return [
        one for one in estimate.tests if (one.metric, one.arm, one.by, one.adjusted) in reported
    ]


def heterogeneity_rows(estimate: Findings) -> list[tuple[str, ...]]:
    """Heterogeneity tests: a header, and a row for each."""
    rows = [
        (
            heterogeneity_name(estimate, test),
            str(test.n_segments),
            f"{test.statistic:.4g}",
            p_value_text(test.p_value),
        )
        for test in reported_tests(estimate)
    ]
    return [("effect on", "segments", "F", "p-value"), *rows]


def distribution_tables(
    estimate: Findings, outcome: str
) -> list[tuple[str, list[tuple[str, ...]]]]:
    """The distribution of an outcome in every arm, of all units and then of each segment."""
    by_segment: dict[Segment, list[ArmDistribution]] = {}
    for one in estimate.distributions:
        if one.outcome == outcome:
            by_segment.setdefault(one.segment, []).append(one)
    tables = []
    for segment, arms in by_segment.items():
        rows = [
            (
                shortest_decimal(value),
                *(f"{one.shares[at]:.2%} [{one.low[at]:.2%}, {one.high[at]:.2%}]" for one in arms),
            )
            for at, value in enumerate(arms[0].values)
        ]
        names = (
            f"{arm_label(estimate, one.arm)}{', ML' if one.is_likelihood else ''}" for one in arms
        )
        header = (plain_label(outcome), *names)
        tables.append((plain_label(segment_label(segment)), [header, *rows]))
    return tables


def arm_label(estimate: Findings, arm: object) -> str:
    """An arm by its label; labels that are not words have the name of their column."""
    return plain_label(arm) if is_word(arm) else f"{plain_label(estimate.treatment)} = {arm}"


def is_word(arm: object) -> bool:
    """Whether a label of an arm can stand by itself."""
    return isinstance(arm, str) and any(letter.isalpha() for letter in plain_label(arm))
