"""Notes on an estimate, and checks of the data it rests on, each with a verdict.

Estimates are unbiased, so a mean may be a little outside the range of its metric. Far outside, or
different in one fold than in another, its rows were chosen by their noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import combinations
from typing import Any, Literal, NamedTuple

from clusterdp._text import counted, effect_text, mean_text, p_text
from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.effect import FAR, FEW_UNITS, Effect, segment_label
from clusterdp.estimation.effects.intervals import Scale, scale_name, two_sided
from clusterdp.estimation.effects.looks import Look

# This many segments are named; more are counted.
_NAMED = 3
# The probability of a false positive of a check: about any mean of an estimate, the folds of any
# segment, the arms of a table, any covariate, or any difference that adjustment makes.
ALARM_LEVEL = 1e-3
_CHOSEN = (
    "The rows that chose a segment cannot measure its effect. Choose segments in one fold, and "
    "estimate in another (fold, --fold)."
)
_FEW = f"fewer than {FEW_UNITS} units in an arm. The CIs are wide (Student's t)."
_NO_NUMBERS = "not reported, because an arm has too few units."
Verdict = Literal["passed", "note", "warning"]


class Weight(IntEnum):
    """How much a note matters; the heaviest is shown first."""

    WARNING = 0  # numbers may be wrong
    SCOPE = 1  # who or what the numbers are about
    METHOD = 2  # how they were computed


class Note(NamedTuple):
    """A remark.

    Attributes:
        text: The remark.
        weight: How much it matters.
        segment: The segment that it is about; None if it is about all numbers.
    """

    text: str
    weight: Weight = Weight.METHOD
    segment: str | None = None


def between_notes(effects: Sequence[Effect], name: str) -> list[Note]:
    """How much effects differ between the segments of a column: Cochran's Q, and τ.

    τ² is what the variance of effects is above that of their errors (DerSimonian and Laird, 1986).
    """
    groups: dict[tuple[str, Any, bool], list[Effect]] = {}
    for one in effects:
        of = one.of
        is_part = tuple(key for key, _ in of.segment) == (name,) and of.against is None
        if is_part and one.std_error > 0:
            groups.setdefault((of.metric, of.arm, of.adjusted), []).append(one)
    notes = []
    for (metric, arm, adjusted), parts in groups.items():
        weights = [one.std_error**-2 for one in parts]
        total, n_parts = sum(weights), len(parts)
        if n_parts < 2:
            continue
        pairs = list(zip(weights, (one.effect for one in parts), strict=True))
        mean = sum(weight * effect for weight, effect in pairs) / total
        q = sum(weight * (effect - mean) ** 2 for weight, effect in pairs)
        scale = total - sum(weight**2 for weight in weights) / total
        tau = math.sqrt(max(q - (n_parts - 1), 0.0) / scale)
        notes.append(
            Note(
                f"{metric}{', adjusted' * adjusted}, {arm} by {name}: Cochran's Q = {q:.3g} of "
                f"{n_parts} effects, which differ with a standard deviation of τ = {tau:.3g}."
            )
        )
    return notes


def scale_notes(effects: Sequence[Effect], scale: Scale, level: float) -> list[Note]:
    """Which effects have no value on a scale, or no upper limit."""
    if scale == "difference":
        return []
    notes = []
    for one in effects:
        found, of, name = (
            one.on_scale(scale, level),
            one.of,
            scale_name(scale, is_share=one.is_share),
        )
        if of.against is not None or not one.std_error > 0 or one.bounds is not None:
            continue
        text, mean = "", "share" if one.is_share else "mean"
        if found is None and scale == "odds" and not one.is_share:
            text = f"{of.metric} is no share, so it has no odds ratio."
        elif found is None:
            text = f"{of.metric} has no {name}: control is not significantly above zero."
            if one.control_mean is None:
                text = f"{of.metric} has no {name}: control's mean is not estimated."
        elif math.isinf(found.high) and (scale == "odds" or one.lift(level) is None):
            text = (
                f"the {name} of {of.metric} has no upper limit: control's {mean} is not "
                "significantly different from zero"
                f"{', or that of an arm from one' * (scale == 'odds')}."
            )
        if text:
            where = segment_label(of.segment) if of.segment else None
            notes.append(Note(text, Weight.SCOPE, where))
    return notes


def look_notes(look: Look | None, level: float, n_folders: int, *, has_tests: bool) -> list[Note]:
    """What intervals and p-values hold over, where there are several looks or folders.

    Args:
        look: Which of several looks it is; None for one.
        level: The confidence level.
        n_folders: How many folders there are.
        has_tests: Whether heterogeneity was tested.
    """
    if look is None:
        text = (
            "Repeated looks as folders arrive are not accounted for. If there are any, use look "
            "(--look 3/8) or anytime (--anytime UNITS)."
        )
        return [Note(text, Weight.SCOPE)] if n_folders > 1 else []
    notes = [Note(look.in_words(1 - level), Weight.SCOPE)]
    if has_tests:
        notes.append(Note("Heterogeneity tests hold for one look.", Weight.SCOPE))
    return notes


def sorted_notes(notes: Iterable[Note]) -> dict[Weight, tuple[str, ...]]:
    """Notes of each weight. A note on many segments is there once."""
    about: dict[tuple[Weight, str], dict[str, None]] = {}
    for note in notes:
        segments = about.setdefault((note.weight, note.text), {})
        if note.segment is not None:
            segments[note.segment] = None
    lines = [
        (weight, _gathered(text, list(segments)))
        for (weight, text), segments in sorted(about.items(), key=lambda item: item[0][0])
    ]
    return {weight: tuple(line for found, line in lines if found == weight) for weight in Weight}


def _gathered(text: str, segments: list[str]) -> str:
    if not segments:
        return text
    if len(segments) > _NAMED:
        return f"{counted(len(segments), 'segment')}: {text}"
    return f"{'; '.join(segments)}: {text}"


class DataCheck(NamedTuple):
    """A check of the data, and what it found.

    Attributes:
        name: What was checked.
        verdict: Whether numbers can be used as they are ("passed"), mean something else than they
            seem to ("note"), or may be wrong ("warning").
        found: What was found, each in a text.
    """

    name: str
    verdict: Verdict
    found: tuple[str, ...]

    @classmethod
    def from_notes(cls, name: str, notes: Sequence[Note], *, passed: str) -> DataCheck:
        """A check that found these notes, or `passed` without any."""
        if not notes:
            return cls(name, "passed", (passed,))
        found = sorted_notes(notes)
        verdict: Verdict = "warning" if found[Weight.WARNING] else "note"
        return cls(name, verdict, tuple(text for weight in Weight for text in found[weight]))

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**self._asdict(), "found": list(self.found)}


def arms_check(layout: Layout, notes: Sequence[Note]) -> DataCheck:
    """Whether arms have their planned shares, from what the check of sample ratios noted."""
    sizes = layout.sizes.sum(axis=0)
    shares = [
        f"{arm} {size / layout.n_units:.1%}" for arm, size in zip(layout.arms, sizes, strict=True)
    ]
    like = "equal shares" if layout.arm_shares is None else "the declared shares"
    passed = f"no mismatch found, against {like} ({', '.join(shares)})"
    return DataCheck.from_notes("Sample ratio", notes, passed=passed)


def segment_size_check(effects: Sequence[Effect], unit: str = "unit") -> list[DataCheck]:
    """Whether every segment has units enough for numbers; nothing if there are no segments."""
    arm_sizes: dict[str, int] = {}
    for one in effects:
        if one.of.segment and one.of.against is None:
            is_unknown = math.isnan(one.effect) and one.bounds is None
            n_units = 0 if is_unknown else min(one.n_treated, one.n_control)
            label = segment_label(one.of.segment)
            arm_sizes[label] = min(arm_sizes.get(label, n_units), n_units)
    if not arm_sizes:
        return []
    notes = [
        Note(_FEW if n_units else _NO_NUMBERS, Weight.SCOPE, name)
        for name, n_units in arm_sizes.items()
        if n_units < FEW_UNITS
    ]
    smallest = min(arm_sizes, key=lambda name: arm_sizes[name])
    passed = f"smallest arm has {counted(arm_sizes[smallest], unit)} ({smallest})"
    return [DataCheck.from_notes("Segment size", notes, passed=passed)]


def range_notes(effects: Sequence[Effect]) -> list[Note]:
    """Means of arms that are outside the range of their metric by more than chance, by segment."""
    means = [
        (effect, arm, mean, error, max(effect.possible[0] - mean, mean - effect.possible[1], 0.0))
        for effect in effects
        if effect.possible is not None and effect.of.against is None
        for arm, mean, error in (
            (effect.of.arm, effect.treated_mean, effect.treated_std_error),
            (effect.of.control, effect.control_mean, effect.control_std_error),
        )
        if mean is not None and error is not None and error > 0
    ]
    far: dict[tuple[str | None, str], dict[object, str]] = {}
    for effect, arm, mean, error, off in means:
        is_chance = two_sided(off, error, effect.degrees) / 2 * len(means) >= ALARM_LEVEL
        if off <= FAR * error or is_chance:
            continue
        metric = effect.of.metric
        text = mean_text(mean, error, is_share=effect.is_share)
        where = effect.of.label if effect.of.segment else None
        far.setdefault((where, metric), {})[arm] = f"{text} in arm {arm} ({off / error:.0f} SEs)"
    for effect in effects:
        where, metric = effect.of.label if effect.of.segment else None, effect.of.metric
        if effect.is_impossible and (where, metric) not in far:
            text = effect_text(effect.effect, effect.std_error, is_share=effect.is_share)
            far[where, metric] = {effect.of.arm: f"their difference is {text}"}
    return [
        Note(
            f"means of {metric} are far outside its allowed values: "
            f"{', '.join(texts.values())}. {_CHOSEN}",
            Weight.WARNING,
            where,
        )
        for (where, metric), texts in far.items()
    ]


def fold_notes(
    by_fold: Sequence[Sequence[Effect]], n_segments: int, shares: Sequence[str]
) -> list[Note]:
    """Segments whose effect in one fold is not that in another.

    Args:
        by_fold: Effects that stand out, each fold by fold.
        n_segments: How many effects there are in segments.
        shares: The metrics that are shares of units.
    """
    return [
        Note(
            f"effects of {of.arm} on {of.metric} differ between folds by more than chance "
            f"({p_text(p_value)}): "
            + ", ".join(
                f"{effect_text(one.effect, one.std_error, is_share=of.metric in shares)} "
                f"in fold {fold}"
                for fold, one in enumerate(effects)
            )
            + f". {_CHOSEN}",
            Weight.WARNING,
            of.label,
        )
        for effects in by_fold
        for of, p_value in [(effects[0].of, _same_effect_p_value(effects))]
        if p_value * n_segments < ALARM_LEVEL
    ]


def _same_effect_p_value(effects: Sequence[Effect]) -> float:
    """That all folds have the same effect (Bonferroni over pairs); one where none has any."""
    pairs = list(combinations([one for one in effects if one.std_error > 0], 2))
    p_values = [
        two_sided(
            one.effect - other.effect,
            math.hypot(one.std_error, other.std_error),
            min(one.degrees, other.degrees),
        )
        for one, other in pairs
    ]
    return min(min(p_values, default=1.0) * len(pairs), 1.0)


def likelihood_notes(name: str, n_likely: int, n_arms: int) -> list[Note]:
    """That shares of some arms are by maximum likelihood.

    Args:
        name: The metric.
        n_likely: How many arms, in segments too, are.
        n_arms: How many there are.
    """
    if not n_likely:
        return []
    where = "" if n_likely == n_arms else f" in {n_likely} of {n_arms} arms and segments"
    text = f"{name} is by maximum likelihood (ML){where}: more precise here than unbiased shares."
    return [Note(text, Weight.SCOPE)]
