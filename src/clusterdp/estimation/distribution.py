"""How an outcome is distributed in an arm: shares of units at or below each value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.estimation.composed import compared_arms
from clusterdp.estimation.formatting import segment_label
from clusterdp.estimation.levels import ArmLevels
from clusterdp.experiment.decimals import shown
from clusterdp.published.manifest import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.cuts import Segment
    from clusterdp.estimation.levels import Levels
    from clusterdp.estimation.metric_effects import MetricRows


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
    """

    outcome: str
    arm: Any
    segment: Segment
    values: FloatArray
    shares: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, found: ArmLevels, arm: Any, segment: Segment, level: float) -> ArmDistribution:
        """From tail shares: P(y ≤ g_k) lies between 1 − S_k and 1 − S_{k+1}, at cuts it is that."""
        tails, (low, high) = found.tails, found.limits(level)
        known = np.append(found.levels.divided, [True])

        def most(terms: FloatArray) -> FloatArray:
            """P(y > g_k) at most."""
            return np.where(known, terms[1:], terms[:-1])

        # Limits are widened until they increase: each then covers as before.
        upper = np.maximum.accumulate(1 - low[1:])
        lower = np.minimum.accumulate((1 - most(high))[::-1])[::-1]
        shares = 1 - (tails[1:] + most(tails)) / 2
        return cls(
            outcome=found.levels.outcome,
            arm=arm,
            segment=segment,
            values=found.levels.values,
            shares=shares,
            low=np.minimum(lower, shares),
            high=np.maximum(upper, shares),
        )

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
            }
            for value, share, low, high in zip(
                self.values, self.shares, self.low, self.high, strict=True
            )
        ]

    def lines(self) -> list[str]:
        """The distribution for people."""
        title = f"share of units with {self.outcome} at or below a value, {self.arm}"
        title += f", {segment_label(self.segment)}" if self.segment else ""
        width = max(len(shown(value)) for value in self.values)
        return [
            f"{title}:",
            *(
                f"  {shown(row['value']):>{width}}  {row['share']:7.2%}  "
                f"[{row['ci_low']:.2%}, {row['ci_high']:.2%}]"
                for row in self.to_rows()
            ),
        ]


def distributions(rows: Sequence[MetricRows], levels: Levels) -> list[ArmDistribution]:
    """The distribution of an outcome in every arm, overall and in every segment.

    Args:
        rows: As each of `levels.functions` reads them.
        levels: The levels of the outcome.
    """
    level, found = rows[0].wanted.level, {}
    for one in compared_arms(rows, levels.outcome):
        for arm, estimates in ((one.of.control, one.control), (one.of.arm, one.treated)):
            if estimates is not None and (arm, one.of.segment) not in found:
                arm_levels = ArmLevels.of(levels, estimates)
                key = (arm, one.of.segment)
                found[key] = ArmDistribution.of(arm_levels, arm, one.of.segment, level)
    return list(found.values())
