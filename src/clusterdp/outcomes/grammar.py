"""The text of metrics and constraints, read by one small parser.

    constraint := metric "->" metric
    metric      := factor ("*" factor)* | comparison
    factor      := name | "(" comparison ")"
    comparison  := name sign decimal
    name        := a word, or any text in double quotes

Python's own parser would refuse names such as `class` or `day 7`, and would read far more than is
meant. A comparison inside a product stands in parentheses, so that none can be misread. What an
analyst can ask besides means is read by the kinds of metrics in `estimation/metrics`.
"""

from __future__ import annotations

import re
from typing import NoReturn

from clusterdp._text import DECIMAL
from clusterdp.errors import ParameterError
from clusterdp.outcomes.metric import (
    PLAIN_NAME,
    SIGNS,
    Constraint,
    Factor,
    Metric,
    OutcomeValue,
    Threshold,
)

_SIGN = "|".join(re.escape(sign) for sign in SIGNS)
_TOKEN = re.compile(
    rf'\s*(?:(?P<name>{PLAIN_NAME})|"(?P<quoted>[^"]+)"|(?P<decimal>{DECIMAL})'
    rf"|(?P<sign>{_SIGN})|(?P<mark>[*()/]))\s*"
)
# An even number of quotes follows an arrow that is not itself in quotes.
_BARE_ARROW = re.compile(r'->(?=[^"]*(?:"[^"]*"[^"]*)*$)')
_FORM = "a metric must be written as visit, spend>0, visit*spend or visit*(spend>0), got {!r}"


def parse_metric(given: Metric | str) -> Metric:
    """A metric as people write it: `rounds`, `rounds>=10`, `visit*spend`, `visit*(spend>0)`."""
    if isinstance(given, Metric):
        return given
    parser = Parser(given, _FORM)
    metric = parser.metric()
    if parser.kind() == "/":
        names = ",".join(given.split("/"))
        raise ParameterError(
            f"{given!r} is a ratio, which needs no declaration; it is most precise if its outcomes "
            f"are asked together: question={names!r} (--question {names})"
        )
    parser.end()
    return metric


def parse_constraint(given: Constraint | str) -> Constraint:
    """A constraint as people write it: `conversion -> visit`, `spend>0 -> conversion`."""
    if isinstance(given, Constraint):
        return given
    sides = _BARE_ARROW.split(given)
    if len(sides) != 2:
        raise ParameterError(
            f"a constraint must be CONDITION -> CONDITION (spend>0 -> visit), got {given!r}"
        )
    return Constraint(condition=parse_metric(sides[0]), consequence=parse_metric(sides[1]))


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
