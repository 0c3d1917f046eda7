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

from clusterdp.errors import ParameterError
from clusterdp.experiment.decimals import DECIMAL
from clusterdp.experiment.expressions import (
    PLAIN_NAME,
    SIGNS,
    Comparison,
    Factor,
    Metric,
    OutcomeValue,
)

_SIGN = "|".join(re.escape(sign) for sign in SIGNS)
_TOKEN = re.compile(
    rf'\s*(?:(?P<name>{PLAIN_NAME})|"(?P<quoted>[^"]+)"|(?P<decimal>{DECIMAL})'
    rf"|(?P<sign>{_SIGN})|(?P<mark>[*()]))\s*"
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
    return _Parser(given).metric()


class _Parser:
    """Reads tokens from the left, one look ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _split(text)
        self._place = 0

    def metric(self) -> Metric:
        """The whole text as a metric."""
        factors = [self._factor()]
        if isinstance(factors[0], OutcomeValue) and self._kind() == "sign":
            factors = [self._comparison_of(factors[0].outcome)]
        else:
            while self._kind() == "*":
                self._take("*")
                factors.append(self._factor())
        if self._kind() is not None:
            self._refuse()
        return Metric(factors=tuple(factors))

    def _factor(self) -> Factor:
        if self._kind() != "(":
            return OutcomeValue(outcome=self._take("name"))
        self._take("(")
        comparison = self._comparison_of(self._take("name"))
        self._take(")")
        return comparison

    def _comparison_of(self, name: str) -> Comparison:
        sign = self._take("sign")
        return Comparison(outcome=name, sign=sign, threshold=float(self._take("decimal")))

    def _kind(self) -> str | None:
        """The kind of the next token; None at the end."""
        return self._tokens[self._place].kind if self._place < len(self._tokens) else None

    def _take(self, kind: str) -> str:
        if self._kind() != kind:
            self._refuse()
        self._place += 1
        return self._tokens[self._place - 1].text

    def _refuse(self) -> NoReturn:
        raise ParameterError(_FORM.format(self._text))


def _split(text: str) -> list[_Token]:
    tokens, place = [], 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found:
            raise ParameterError(_FORM.format(text))
        tokens.append(_token(found))
        place = found.end()
    return tokens


def _token(found: re.Match[str]) -> _Token:
    group = str(found.lastgroup)
    kind = {"quoted": "name", "mark": found[group]}.get(group, group)
    return _Token(kind=kind, text=found[group])
