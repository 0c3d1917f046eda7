"""A claim of the paper, how it is tested, and what came out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["reproduced", "not reproduced", "cannot be decided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence of the paper that could be false.

    Attributes:
        name: A short name that stays the same from run to run.
        place: Where the paper says it.
        sentence: What it says.
        test: What was computed to decide.
        verdict: What came out.
        evidence: The numbers, in a line.
        why: For a claim that fails: the reason, and under which reading it would hold.
    """

    name: str
    place: str
    sentence: str
    test: str
    verdict: Verdict
    evidence: str
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def decide(*, holds: bool) -> Verdict:
    """The verdict of a test that has an answer."""
    return "reproduced" if holds else "not reproduced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an experiment gives.

    Attributes:
        number: The paper's number of the experiment.
        tables: Rows of numbers by name; each becomes a CSV file.
        claims: The claims it decides.
    """

    number: int
    tables: dict[str, list[dict[str, Any]]]
    claims: list[Claim]
