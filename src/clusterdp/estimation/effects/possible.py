"""What cannot be: means outside what outcomes can be, and effects that differ between folds.

Estimates are unbiased, so a mean may be a little outside the range of its metric. Far outside, or
other in one fold than in another, it is of rows that were chosen by their noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.estimation.effects.findings import Note, Weight
from clusterdp.estimation.effects.intervals import two_sided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.metrics.differences import SegmentEffect
    from clusterdp.estimation.report.results import Effect


# The probability of a false alarm about any mean of an estimate, and about any segment's folds.
_LEVEL = 1e-3
# Closer to the range than this many standard errors, no mean raises an alarm.
_NEAR = 4.0
# Effects below this many standard errors are not compared between folds.
_STANDS_OUT = 2.0
_CHOSEN = (
    "Rows that chose a segment cannot measure its effect: choose by one fold, and estimate on "
    "another (holdout, --holdout)"
)


class MetricRange(NamedTuple):
    """The least and the largest value of a metric."""

    metric: str
    least: float
    most: float

    @classmethod
    def of(cls, metric: str, values: FloatArray) -> MetricRange:
        """Of a metric with these values."""
        return cls(metric, float(values.min()), float(values.max()))


class FoldEffects(NamedTuple):
    """The effect in a segment, fold by fold."""

    effects: tuple[Effect, ...]

    @property
    def p_value(self) -> float:
        """That all folds have the same effect (Bonferroni over pairs); one where none has any."""
        known = [one for one in self.effects if one.std_error > 0]
        pairs = list(combinations(known, 2))
        p_values = [
            two_sided(
                one.effect - other.effect,
                math.hypot(one.std_error, other.std_error),
                min(one.degrees, other.degrees),
            )
            for one, other in pairs
        ]
        return min(min(p_values, default=1.0) * len(pairs), 1.0)


def within_ranges(effects: Sequence[Effect], ranges: Sequence[MetricRange]) -> list[Effect]:
    """The same effects, which know what is possible."""
    known = {one.metric: (one.least, one.most) for one in ranges}
    return [replace(one, possible=known.get(one.of.metric)) for one in effects]


def range_notes(effects: Sequence[Effect]) -> list[Note]:
    """Means of arms that are outside the range of their metric by more than chance."""
    means = [
        (effect, arm, mean, error)
        for effect in effects
        if effect.possible is not None and effect.of.against is None
        for arm, mean, error in (
            (effect.of.arm, effect.treated_mean, effect.treated_std_error),
            (effect.of.control, effect.control_mean, effect.control_std_error),
        )
        if mean is not None and error is not None and error > 0
    ]
    far: dict[tuple[str, str, object], Note] = {}
    for effect, arm, mean, error in means:
        off = _outside(effect, mean)
        is_chance = two_sided(off, error, effect.degrees) / 2 * len(means) >= _LEVEL
        if off <= _NEAR * error or is_chance:
            continue
        text = (
            f"the mean of {effect.of.metric} in arm {arm} is {mean:.3g}, {off / error:.0f} "
            f"standard errors outside what is possible. {_CHOSEN}"
        )
        where = effect.of.label if effect.of.segment else None
        far[effect.of.metric, effect.of.label, arm] = Note(text, Weight.WARNING, where)
    return list(far.values())


def stands_out(effect: SegmentEffect) -> bool:
    """Whether an effect is worth a look: only those do that rows were chosen for."""
    found = effect.to_value()
    return abs(found.effect) > _STANDS_OUT * found.std_error


def fold_notes(tests: Sequence[FoldEffects], n_segments: int) -> list[Note]:
    """Segments whose effect in one fold is not that in another.

    Args:
        tests: Of effects that stand out.
        n_segments: How many effects there are in segments.
    """
    return [
        Note(
            f"the effect on {of.metric} of {of.arm} is "
            + ", ".join(f"{one.effect:.3g} in fold {fold}" for fold, one in enumerate(test.effects))
            + f": they differ by more than chance (p = {test.p_value:.2g}). {_CHOSEN}",
            Weight.WARNING,
            of.label,
        )
        for test in tests
        for of in [test.effects[0].of]
        if test.p_value * n_segments < _LEVEL
    ]


def _outside(effect: Effect, mean: float) -> float:
    """How far a mean is outside the range of its metric."""
    least, most = effect.possible or (-math.inf, math.inf)
    return max(least - mean, mean - most, 0.0)
