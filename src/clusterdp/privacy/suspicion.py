"""What a guarantee means to whoever suspects something: how far a belief can move."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from clusterdp.privacy.accounting import Guarantee

# What somebody may think beforehand.
_BEFORE = (Decimal("0.5"), Decimal("0.1"), Decimal("0.01"))
# With δ > 0, odds change by more than this times e^ε with a probability of at most this times δ.
SLACK = 2
_PRECISION, _MOST_DIGITS, _SMALL = 60, 6, Decimal("0.1")


class Suspicion(NamedTuple):
    """A belief about one unit's outcome before and after a release, as percentages."""

    before: str
    at_least: str
    at_most: str


def suspicions(guarantee: Guarantee) -> list[Suspicion]:
    """How far beliefs of 50%, 10% and 1% can move.

    With δ = 0, the odds p/(1−p) of any statement about a unit's outcome change by a factor of at
    most c = e^ε. With δ > 0 let c = 2e^ε. On the set S of releases that are more than c times
    likelier under one outcome (P) than under another (Q), Q(S) ≤ P(S)/c, so that
    P(S) ≤ e^ε Q(S) + δ ≤ P(S)/2 + δ: the odds change by more than c with a probability of at most
    2δ. Rounded outwards.
    """
    with localcontext() as context:
        context.prec = _PRECISION
        factor = Decimal(guarantee.epsilon).exp() * (SLACK if guarantee.delta else 1)
        return [
            Suspicion(
                before=f"{100 * before:.0f}%",
                at_least=_percent(before / (before + (1 - before) * factor), ROUND_FLOOR),
                at_most=_percent(before * factor / (before * factor + 1 - before), ROUND_CEILING),
            )
            for before in _BEFORE
        ]


def _percent(prob: Decimal, rounding: str) -> str:
    """A percentage: below 10% with a digit after the point, and more to tell it from 0 and 100."""
    for digits in range(int(prob < _SMALL), _MOST_DIGITS + 1):
        rounded = (100 * prob).quantize(Decimal(1).scaleb(-digits), rounding=rounding)
        if 0 < rounded < 100:
            break
    return f"{rounded}%"
