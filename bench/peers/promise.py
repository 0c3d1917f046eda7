"""What ε means: who is protected from whom, and what is taken to be public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What stands beside an ε. Two methods compare by ε only if theirs are equal.

    Attributes:
        title: Short, for headings of groups.
        neighbours: What two tables differ in that must look alike.
        trusted: Who sees true outcomes.
        public: What is not protected.
        delta: δ of the guarantee.
    """

    title: str
    neighbours: str
    trusted: str
    public: str
    delta: float = 0.0


_EVERYTHING_ELSE = "ids, arms, features"
TRUE_ROWS: Final = Promise(
    title="no privacy",
    neighbours="none",
    trusted="the collector and every analyst",
    public="everything",
)
LOCAL: Final = Promise(
    title="each person's outcome, nobody trusted",
    neighbours="one person's outcome is replaced",
    trusted="nobody: people randomize before they answer",
    public=_EVERYTHING_ELSE,
)
LOCAL_WITH_ARM: Final = Promise(
    title="each person's arm and outcome, nobody trusted",
    neighbours="one person's arm and outcome are replaced",
    trusted="nobody: people randomize before they answer",
    public="ids, features",
)
CENTRAL: Final = Promise(
    title="each person's outcome, collector trusted",
    neighbours="one person's outcome is replaced",
    trusted="the collector",
    public=_EVERYTHING_ELSE,
)
RECORD: Final = Promise(
    title="each person's whole record, collector trusted",
    neighbours="one person's outcome, arm and features are replaced",
    trusted="the collector",
    public="how many people there are",
)
RECORD_OF_ARM: Final = Promise(
    title="each person's whole record in an arm, collector trusted, δ > 0",
    neighbours="one person's outcome and features are added to an arm, or removed",
    trusted="the collector",
    public="ranges of features, sizes of arms",
    delta=1e-5,
)
PROMISES: Final = (LOCAL, LOCAL_WITH_ARM, CENTRAL, RECORD, RECORD_OF_ARM, TRUE_ROWS)
