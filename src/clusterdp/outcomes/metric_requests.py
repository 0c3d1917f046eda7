"""What an analyst can ask of outcomes, and its text: the grammar of metrics, and a little more.

question := metric | ratio | quantile | distribution
ratio    := metric "/" metric
quantile := "p" percent "(" name ")" | "median" "(" name ")"
distribution := "dist" "(" name ")"
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp._text import exact, shortest_decimal
from clusterdp.errors import ParameterError
from clusterdp.outcomes.grammar import Parser
from clusterdp.outcomes.metric import Comparison, Metric, quoted

if TYPE_CHECKING:
    from collections.abc import Collection


_FORM = (
    "a metric reads rounds, rounds>=10, visit*spend, spend/visit, p90(rounds), median(rounds) or "
    "dist(rounds), got {!r}"
)
_PERCENT = re.compile(r"p(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The mean of a metric, which of a comparison is a share.

    Attributes:
        metric: The metric.
    """

    metric: Metric

    def __str__(self) -> str:
        return str(self.metric)

    def outcomes(self, missing: Collection[str]) -> frozenset[str]:
        """The names of the outcomes it uses, of which some may be missing."""
        return self.metric.naming_observed(missing).outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The ratio of two means.

    Attributes:
        above: The metric whose mean is divided.
        below: The metric whose mean it is divided by.
    """

    above: Metric
    below: Metric

    def __str__(self) -> str:
        return f"{_within(self.above)}/{_within(self.below)}"

    def outcomes(self, missing: Collection[str]) -> frozenset[str]:
        """The names of the outcomes it uses, of which some may be missing."""
        above, below = (one.naming_observed(missing) for one in (self.above, self.below))
        return above.outcomes | below.outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A quantile of an outcome: the least value that a share of units do not exceed.

    Attributes:
        outcome: Its name.
        share: The share, strictly between 0 and 1.
    """

    outcome: str
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ParameterError(
                f"a quantile is between p0 and p100, neither of them, got p{100 * self.share:g}; "
                "ask for p99, or for a share such as rounds>=10"
            )

    def __str__(self) -> str:
        if self.share == 0.5:
            return f"median({quoted(self.outcome)})"
        return f"p{shortest_decimal(float(exact(self.share) * 100))}({quoted(self.outcome)})"

    def outcomes(self, _missing: Collection[str]) -> frozenset[str]:
        """The name of the outcome it uses."""
        return frozenset({self.outcome})


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How an outcome is distributed in every arm.

    Attributes:
        outcome: Its name.
    """

    outcome: str

    def __str__(self) -> str:
        return f"dist({quoted(self.outcome)})"

    def outcomes(self, _missing: Collection[str]) -> frozenset[str]:
        """The name of the outcome it uses."""
        return frozenset({self.outcome})


MetricRequest = Mean | Ratio | Quantile | Distribution


def parse_metric_request(text: str) -> MetricRequest:
    """A question as people write it."""
    parser = Parser(text, _FORM)
    called = parser.kind() == "name" and parser.kind(ahead=1) == "("
    found = _called(parser) if called else _ratio_or_mean(parser)
    parser.end()
    return found


def _called(parser: Parser) -> MetricRequest:
    name = parser.take("name")
    parser.take("(")
    outcome = parser.take("name")
    parser.take(")")
    if name == "dist":
        return Distribution(outcome=outcome)
    if name == "median":
        return Quantile(outcome=outcome, share=0.5)
    percent = _PERCENT.fullmatch(name)
    if percent is None:
        parser.refuse()
    return Quantile(outcome=outcome, share=float(exact(float(percent[1])) / 100))


def _ratio_or_mean(parser: Parser) -> MetricRequest:
    above = parser.metric()
    if parser.kind() != "/":
        return Mean(metric=above)
    parser.take("/")
    return Ratio(above=above, below=parser.metric())


def _within(metric: Metric) -> str:
    lone = len(metric.factors) == 1 and isinstance(metric.factors[0], Comparison)
    return f"({metric})" if lone else str(metric)
