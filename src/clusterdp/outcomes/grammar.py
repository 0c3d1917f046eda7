"""The text of metrics and implications, read by a parser that knows nothing else.

    implication := metric "->" metric
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
from typing import NoReturn

from clusterdp._text import DECIMAL
from clusterdp.errors import ParameterError
from clusterdp.outcomes.metric import PLAIN_NAME, SIGNS, Comparison, Factor, Metric, OutcomeValue

_SIGN = "|".join(re.escape(sign) for sign in SIGNS)
_TOKEN = re.compile(
    rf'\s*(?:(?P<name>{PLAIN_NAME})|"(?P<quoted>[^"]+)"|(?P<decimal>{DECIMAL})'
    rf"|(?P<sign>{_SIGN})|(?P<mark>[*()/]))\s*"
)
_FORM = "a metric reads visit, spend>0, visit*spend or visit*(spend>0), got {!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    """A piece of the text; its kind is `name`, `decimal`, `sign`, or the mark itself."""

    kind: str
    text: str


def parse_metric(given: Metric | str) -> Metric:
    """A metric as people write it: `rounds`, `rounds>=10`, `visit*spend`, `visit*(spend>0)`."""
    if isinstance(given, Metric):
        return given
    parser = Parser(given, _FORM)
    metric = parser.metric()
    parser.end()
    return metric


class Parser:
    """Reads tokens from the left, one look ahead.

    Args:
        text: What to read.
        form: What to say if it reads otherwise, with a place for the text.
    """

    def __init__(self, text: str, form: str) -> None:
        self._text, self._form = text, form
        self._tokens = _split(text, form)
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
        return self._tokens[place].kind if place < len(self._tokens) else None

    def take(self, kind: str) -> str:
        """The text of the next token, which must be of this kind."""
        if self.kind() != kind:
            self.refuse()
        self._place += 1
        return self._tokens[self._place - 1].text

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

    def _comparison_of(self, name: str) -> Comparison:
        sign = self.take("sign")
        return Comparison(outcome=name, sign=sign, threshold=float(self.take("decimal")))


def _split(text: str, form: str) -> list[_Token]:
    tokens, place = [], 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found:
            raise ParameterError(form.format(text))
        tokens.append(_token(found))
        place = found.end()
    return tokens


def _token(found: re.Match[str]) -> _Token:
    group = str(found.lastgroup)
    kind = {"quoted": "name", "mark": found[group]}.get(group, group)
    return _Token(kind=kind, text=found[group])
