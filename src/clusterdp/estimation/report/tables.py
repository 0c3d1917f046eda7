"""Tables of effects, distributions and tests: the numbers that screens, pages and figures share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._text import shortest_decimal
from clusterdp.document.charts import Interval
from clusterdp.document.text import Column
from clusterdp.estimation.effects.text import p_value_text, plain_label, segment_label
from clusterdp.estimation.report.numbers import (
    MetricNumbers,
    lift_ci_text,
    lift_text,
    privacy_text,
    shown_effect,
    shown_mean,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.estimation.effects.findings import ArmDistribution, Findings

# All units, in a column of segments.
_ALL = "all"
# What most people read of overall effects and of effects in segments; `more_columns` has the rest.
_FIRST = ("effect", "CI", "p-value", "control", "treatment", "lift")
_FIRST_IN_SEGMENTS = ("units", "effect", "difference", "CI", "Holm p")
_PRECISION = ("SE", "control SE", "treatment SE", "due to privacy", "units per arm")
_TESTING = ("p-value", "Holm p", "BH p", "simultaneous CI", "lift CI")
# Which columns a narrow terminal leaves out, the last one first.
_RANKS = ("p-value", "Holm p", "units", "lift", "treatment", "control")


def level_text(estimate: Findings) -> str:
    """The confidence level: `95%`."""
    return f"{100 * estimate.level:.4g}%"


def is_significant(effect: Effect, level: float) -> bool:
    """Whether an effect differs from zero, corrected for the other tests of its family."""
    is_one_of_several = effect.family_size > 1
    return (effect.holm_p_value if is_one_of_several else effect.p_value) < 1 - level


def has_several_arms(estimate: Findings) -> bool:
    """Whether effects are of more than one arm."""
    return len({effect.of.arm for effect in estimate.effects}) > 1


def first_columns(estimate: Findings, effects: Sequence[Effect]) -> list[Column]:
    """What most people read of some effects."""
    in_segments = any(effect.of.segment for effect in effects)
    names: tuple[str, ...] = _FIRST_IN_SEGMENTS if in_segments else _FIRST
    if in_segments and not any(effect.family_size > 1 for effect in effects):
        names = tuple("p-value" if name == "Holm p" else name for name in names)
    return _columns(estimate, effects, names)


def more_columns(estimate: Findings, effects: Sequence[Effect]) -> list[list[Column]]:
    """The other numbers of some effects, in two tables: precision, and multiple testing."""
    tables = [_columns(estimate, effects, names) for names in (_PRECISION, _TESTING)]
    return [columns for columns in tables if any(not one.is_label for one in columns)]


def _columns(estimate: Findings, effects: Sequence[Effect], names: Sequence[str]) -> list[Column]:
    """What effects are of, and some columns of numbers; without those that have none."""
    percent = level_text(estimate)
    columns = labels(estimate, effects)
    for name in names:
        cells = tuple(cells_of(estimate, effects, name))
        if any(cell != "–" for cell in cells):
            written = name.replace("CI", f"{percent} CI")
            rank = _RANKS.index(name) + 1 if name in _RANKS else 0
            columns.append(Column(written, cells, rank=rank))
    return columns


def cells_of(estimate: Findings, effects: Sequence[Effect], name: str) -> list[str]:
    """A number of each effect as text, by the name of its column."""
    numbers = {
        metric: MetricNumbers.from_effects(estimate, metric)
        for metric in dict.fromkeys(effect.of.metric for effect in effects)
    }
    level, write = estimate.level, _CELLS[name]
    return [write(effect, numbers[effect.of.metric], level) for effect in effects]


def _effect(one: Effect, numbers: MetricNumbers, *, is_difference: bool) -> str:
    is_shown = (one.of.against is not None) == is_difference
    return numbers.effect(shown_effect(one)) if is_shown else "–"


_CELLS: dict[str, Callable[[Effect, MetricNumbers, float], str]] = {
    "effect": lambda one, numbers, _: _effect(one, numbers, is_difference=False),
    "difference": lambda one, numbers, _: _effect(one, numbers, is_difference=True),
    "CI": lambda one, numbers, level: numbers.interval(one, level),
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
    """What each effect is of, in as few columns as distinguish effects."""

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
        columns.append(label("adjusted", [_adjusted(effect) for effect in effects]))
    return columns


def _adjusted(effect: Effect) -> str:
    """Whether an effect is covariate-adjusted; with a star if it is the one to report."""
    return ("yes" if effect.of.adjusted else "no") + (" *" if effect.to_report else "")


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
                    found.append(rows)
    return found


def to_interval(effect: Effect, numbers: MetricNumbers, level: float, label: str = "") -> Interval:
    """An effect as charts draw it, in the unit that it is written in."""
    factor = 100 if numbers.is_share else 1
    low, high = effect.ci(level)
    return Interval(
        label,
        factor * effect.effect,
        factor * low,
        factor * high,
        f"{numbers.effect(shown_effect(effect))} {numbers.interval(effect, level)}",
        is_muted=not is_significant(effect, level),
    )


def heterogeneity_rows(estimate: Findings) -> list[tuple[str, ...]]:
    """Heterogeneity tests: a header, and a row for each."""
    several = has_several_arms(estimate)
    rows = [
        (
            plain_label(test.metric)
            + (f", {plain_label(test.arm)}" if several else "")
            + f" by {', '.join(map(plain_label, test.by))}"
            + (" (adjusted)" if test.adjusted else ""),
            str(test.n_segments),
            f"{test.statistic:.4g}",
            p_value_text(test.p_value),
        )
        for test in estimate.tests
    ]
    return [("effect on", "segments", "F", "p-value"), *rows]


def distribution_tables(
    estimate: Findings, outcome: str, arm_name: Callable[[object], str]
) -> list[tuple[str, list[tuple[str, ...]]]]:
    """The distribution of an outcome in every arm, of all units and then of each segment."""
    every = [one for one in estimate.distributions if one.outcome == outcome]
    return [
        (
            plain_label(segment_label(segment)),
            _distribution_rows([one for one in every if one.segment == segment], arm_name),
        )
        for segment in dict.fromkeys(one.segment for one in every)
    ]


def _distribution_rows(
    of_arms: Sequence[ArmDistribution], arm_name: Callable[[object], str]
) -> list[tuple[str, ...]]:
    header = (plain_label(of_arms[0].outcome), *(arm_name(one.arm) for one in of_arms))
    rows = [
        (
            shortest_decimal(value),
            *(
                f"{one.shares[index]:.2%} [{one.low[index]:.2%}, {one.high[index]:.2%}]"
                for one in of_arms
            ),
        )
        for index, value in enumerate(of_arms[0].values)
    ]
    return [header, *rows]
