"""The text of metrics, of implications and of what an analyst asks, read by one small parser.

    implication := metric "->" metric
    request     := metric | metric "/" metric | "p" percent "(" name ")" | "median" "(" name ")"
                   | "dist" "(" name ")"
    metric      := factor ("*" factor)* | comparison
    factor      := name | "(" comparison ")"
    comparison  := name sign decimal
    name        := a word, or any text in double quotes

Python's own parser would refuse names such as `class` or `day 7`, and would read far more than is
meant. A comparison inside a product stands in parentheses, so that none can be misread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from clusterdp._text import DECIMAL, exact, shortest_decimal
from clusterdp.errors import ParameterError
from clusterdp.outcomes.metric import (
    PLAIN_NAME,
    SIGNS,
    Factor,
    Implication,
    Metric,
    OutcomeValue,
    Threshold,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Collection


_SIGN = "|".join(re.escape(sign) for sign in SIGNS)
_TOKEN = re.compile(
    rf'\s*(?:(?P<name>{PLAIN_NAME})|"(?P<quoted>[^"]+)"|(?P<decimal>{DECIMAL})'
    rf"|(?P<sign>{_SIGN})|(?P<mark>[*()/]))\s*"
)
_REQUEST_FORM = (
    "a metric reads rounds, rounds>=10, visit*spend, spend/visit, p90(rounds), median(rounds) or "
    "dist(rounds), got {!r}"
)
_PERCENT = re.compile(r"p(\d+(?:\.\d+)?)")
# An even number of quotes follows an arrow that is not itself in quotes.
_BARE_ARROW = re.compile(r'->(?=[^"]*(?:"[^"]*"[^"]*)*$)')
_FORM = "a metric reads visit, spend>0, visit*spend or visit*(spend>0), got {!r}"


def parse_metric(given: Metric | str) -> Metric:
    """A metric as people write it: `rounds`, `rounds>=10`, `visit*spend`, `visit*(spend>0)`."""
    if isinstance(given, Metric):
        return given
    parser = Parser(given, _FORM)
    metric = parser.metric()
    parser.end()
    return metric


def parse_implication(given: Implication | str) -> Implication:
    """An implication as people write it: `conversion -> visit`, `spend>0 -> conversion`."""
    if isinstance(given, Implication):
        return given
    sides = _BARE_ARROW.split(given)
    if len(sides) != 2:
        raise ParameterError(
            f"an implication reads CONDITION -> CONDITION (spend>0 -> visit), got {given!r}"
        )
    return Implication(condition=parse_metric(sides[0]), consequence=parse_metric(sides[1]))


class Parser:
    """Reads tokens from the left, one look ahead.

    Args:
        text: What to read.
        form: What to say if it reads otherwise, with a place for the text.
    """

    def __init__(self, text: str, form: str) -> None:
        self._text, self._form = text, form
        self._tokens = self._split()
        self._place = 0

    def metric(self) -> Metric:
        """A comparison by itself, or a product."""
        factors = [self._factor()]
        if isinstance(factors[0], OutcomeValue) and self.kind() == "sign":
            return Metric(factors=(self._comparison_of(factors[0].outcome),))
        while self.kind() == "*":
            self.take("*")
            factors.append(self._factor())
        return Metric(factors=tuple(factors))

    def end(self) -> None:
        """Refuse what is left."""
        if self.kind() is not None:
            self.refuse()

    def kind(self, ahead: int = 0) -> str | None:
        """The kind of the next token, or of one after it; None at the end."""
        place = self._place + ahead
        return self._tokens[place][0] if place < len(self._tokens) else None

    def take(self, kind: str) -> str:
        """The text of the next token, which must be of this kind."""
        if self.kind() != kind:
            self.refuse()
        self._place += 1
        return self._tokens[self._place - 1][1]

    def refuse(self) -> NoReturn:
        """Say how it should read."""
        raise ParameterError(self._form.format(self._text))

    def _factor(self) -> Factor:
        if self.kind() != "(":
            return OutcomeValue(outcome=self.take("name"))
        self.take("(")
        comparison = self._comparison_of(self.take("name"))
        self.take(")")
        return comparison

    def _comparison_of(self, name: str) -> Threshold:
        sign = self.take("sign")
        return Threshold(outcome=name, sign=sign, threshold=float(self.take("decimal")))

    def _split(self) -> list[tuple[str, str]]:
        """The kind and the text of each token; its kind is `name`, `decimal`, `sign` or a mark."""
        tokens, place = [], 0
        while place < len(self._text):
            found = _TOKEN.match(self._text, place)
            if not found:
                self.refuse()
            group = str(found.lastgroup)
            kind = {"quoted": "name", "mark": found[group]}.get(group, group)
            tokens.append((kind, found[group]))
            place = found.end()
        return tokens


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
    parser = Parser(text, _REQUEST_FORM)
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
    lone = len(metric.factors) == 1 and isinstance(metric.factors[0], Threshold)
    return f"({metric})" if lone else str(metric)
