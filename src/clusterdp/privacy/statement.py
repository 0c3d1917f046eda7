"""What a guarantee means, in words: the only privacy sentences of the product.

Every page, folder, plan, preview and ledger takes them from a `PrivacyStatement`. Numbers are
rounded up: a stated ε, δ or percentage is never below the true one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext

from clusterdp._text import plural, with_article

# Far more digits than a float holds, so that rounding up happens once, at the very end.
_DIGITS = Context(prec=60)
# Percentages that need more decimals than this to differ from 100% are shown as "over 99.999999%".
_MOST_PERCENT_DIGITS = 6
# How sure a reader may be before.
_BEFORE = (Decimal("0.5"), Decimal("0.1"), Decimal("0.01"))
# With δ > 0, odds change by more than this times e^ε with a probability of at most this times δ.
SLACK = 2
_SMALL = Decimal("0.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyStatement:
    """The guarantee of a release in words.

    Each sentence holds for a reader who knows the protected values of every other unit. That is a
    condition: ε alone does not cover readers who link units, such as twins or repeated ids.

    Attributes:
        epsilon: ε.
        delta: δ.
        protected: What of a unit is protected: "outcomes", or "cluster and outcomes".
        unit: What a unit is called, in the singular: "user", "patient".
    """

    epsilon: float
    delta: float = 0.0
    protected: str = "outcomes"
    unit: str = "unit"

    def __str__(self) -> str:
        return f"{self.budget}. {self.plain}"

    @property
    def numbers(self) -> str:
        """`ε = 2, δ = 0`."""
        return f"ε = {rounded_up(self.epsilon)}, δ = {rounded_up(self.delta)}"

    @property
    def budget(self) -> str:
        """What is spent, and on what: `ε = 2, δ = 0, one unit's outcomes (label DP)`."""
        return f"{self.numbers}, one {self.unit}'s {self.protected} (label DP)"

    @property
    def formal(self) -> str:
        """The definition."""
        return (
            "Everything in this release, taken together, is (ε, δ)-label differentially private "
            f"with ε = {rounded_up(self.epsilon)} and δ = {rounded_up(self.delta)}, with respect "
            f"to replacing one {self.unit}'s {self.protected} by any other allowed ones."
        )

    @property
    def odds(self) -> str:
        """The definition for a reader: what e^ε bounds."""
        if self.delta:
            return (
                f"Replacing one {self.unit}'s {self.protected} raises the probability of any set "
                "of releases to at most e^ε times its value, plus δ."
            )
        return (
            f"For a reader who knows everything else, including every other {self.unit}'s "
            f"{self.protected}, it changes the odds between any two {self._choices} of "
            f"{with_article(self.unit)} by a factor of at most e^ε."
        )

    @property
    def plain(self) -> str:
        """What ε means to a reader who is undecided about one unit."""
        if self.at_most is None:
            return (
                "This ε gives no meaningful protection: an undecided reader can become "
                "practically certain."
            )
        knows = f"A reader who knows every other {self.unit}'s {self.protected}"
        if self.delta:
            return (
                f"{knows}, and finds two {self._choices} of one {self.unit} equally likely, "
                f"guesses the true one at most {self.at_most} of the time."
            )
        return (
            f"{knows} and is 50% sure of one {self.unit}'s {self._one} can be at most "
            f"{self.at_most} sure after reading the release."
        )

    @property
    def short(self) -> str:
        """The plain statement for prompts and tables."""
        if self.at_most is None:
            return "no meaningful protection: an undecided reader can become practically certain"
        knows = f"reader who knows all other {plural(self.unit)}' {self.protected}"
        if self.delta:
            return f"{knows}: guesses one of two, right at most {self.at_most} of the time"
        return f"{knows}: 50% sure → at most {self.at_most}"

    @property
    def limits(self) -> str:
        """What is not protected."""
        return (
            f"Not protected: that {with_article(self.unit)} took part, its public columns, and "
            f"what other {plural(self.unit)}' {self.protected} suggest about it. Privacy losses "
            f"of several releases about the same {plural(self.unit)} add up."
        )

    @property
    def bounds_lead(self) -> str:
        """What `bounds` are, to stand above them."""
        rarely = f", except with probability at most {SLACK}δ" if self.delta else ""
        return (
            f"Take a reader who knows everything about one {self.unit} except its "
            f"{self.protected}, and every other {self.unit}'s {self.protected}. After reading "
            f"this folder, how sure they are of {with_article(self._one)} stays within these "
            f"limits{rarely}:"
        )

    @property
    def at_most(self) -> str | None:
        """How sure an undecided reader can become, in percent; None if practically certain.

        With δ = 0 odds change by at most e^ε, so 1/2 becomes at most e^ε/(1+e^ε). With δ > 0 they
        can change by more; but the best test between two outcomes, held for equally likely, is
        right with probability (1 + TV)/2 at most, where the total variation TV of (ε, δ)-DP is at
        most (e^ε − 1 + 2δ)/(e^ε + 1): that is (e^ε + δ)/(1 + e^ε).
        """
        with localcontext(_DIGITS):
            odds = Decimal(self.epsilon).exp()
            return _percent_above((odds + Decimal(self.delta)) / (1 + odds))

    def bounds(self) -> list[tuple[str, str, str]]:
        """How far 50%, 10% and 1% can move: sure before, sure after at least and at most.

        With δ = 0, the odds p/(1−p) of any statement about a unit's outcome change by a factor of
        at most c = e^ε. With δ > 0 let c = 2e^ε. On the set S of releases that are more than c
        times likelier under one outcome (P) than under another (Q), Q(S) ≤ P(S)/c, so that
        P(S) ≤ e^ε Q(S) + δ ≤ P(S)/2 + δ: the odds change by more than c with a probability of at
        most 2δ. Rounded outwards.
        """
        with localcontext(_DIGITS):
            factor = Decimal(self.epsilon).exp() * (SLACK if self.delta else 1)
            return [
                (
                    f"{100 * before:.0f}%",
                    _percent(before / (before + (1 - before) * factor), ROUND_FLOOR),
                    _percent(before * factor / (before * factor + 1 - before), ROUND_CEILING),
                )
                for before in _BEFORE
            ]

    @property
    def _one(self) -> str:
        return self.protected.removesuffix("s")

    @property
    def _choices(self) -> str:
        """What a reader chooses between, in the plural."""
        if self.protected == "outcomes":
            return self.protected
        return f"combinations of {self.protected}"


def rounded_up(number: float) -> str:
    """Four decimals or four digits, rounded up, as a guarantee must be; whole ones as integers."""
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    digits = 4 if number >= 1e-3 else 3 - math.floor(math.log10(number))
    quantum = Decimal(1).scaleb(-digits)
    shown = float(Decimal(repr(float(number))).quantize(quantum, rounding=ROUND_CEILING))
    return f"{shown:g}" if number < 1e-3 else str(shown).removesuffix(".0")


def percent_rounded_up(prob: float) -> str:
    """A probability in percent, rounded up, with enough digits to differ from 100%."""
    nearly_all = f"over {100 - Decimal(1).scaleb(-_MOST_PERCENT_DIGITS)}%"
    return _percent_above(Decimal(repr(float(prob)))) or nearly_all


def _percent_above(prob: Decimal) -> str | None:
    """As `percent_rounded_up`; None if it takes too many digits."""
    for digits in range(_MOST_PERCENT_DIGITS + 1):
        above = (100 * prob).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING)
        if above < 100:
            return f"{above}%"
    return None


def _percent(prob: Decimal, rounding: str) -> str:
    """A percentage: a decimal below 10%, and as many as it takes to differ from 0% and 100%."""
    for digits in range(int(prob < _SMALL), _MOST_PERCENT_DIGITS + 1):
        rounded = (100 * prob).quantize(Decimal(1).scaleb(-digits), rounding=rounding)
        if 0 < rounded < 100:
            break
    return f"{rounded}%"
