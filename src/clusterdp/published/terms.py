"""What is published of outcomes and what that costs: all that is known before they are read.

A manifest states it, and so does a ledger.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from clusterdp.errors import FormatError, ParameterError
from clusterdp.experiment.categories import (  # noqa: TC001 - for msgspec
    Categories,
    CategoriesRecord,
)
from clusterdp.mechanisms.mechanism import Mechanism  # noqa: TC001 - for msgspec
from clusterdp.privacy.accounting import Guarantee, shown


class GuaranteeTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the whole release costs, in numbers and in words."""

    epsilon: float
    delta: float
    neighbours: Literal["replace-one-outcome"] = "replace-one-outcome"
    in_words: str


class Terms(Struct, frozen=True, kw_only=True):
    """What is published of outcomes, how, and what that costs.

    Attributes:
        outcomes: The declared outcomes, and the grids of numbers.
        mechanism: What is published, by the parameters that the machine uses.
        noise: Numbers that follow from them and that readers need, by statistic.
        guarantee: What that costs.
    """

    outcomes: CategoriesRecord
    mechanism: Mechanism
    noise: dict[str, dict[str, list[float | None]]]
    guarantee: GuaranteeTerms

    @classmethod
    def of(cls, space: Categories, mechanism: Mechanism) -> Terms:
        """The terms of a release.

        Raises:
            ParameterError: If the budget of the mechanism cannot be met, or its prior is of another
                outcome space.
        """
        guarantee = mechanism.guarantee(space)
        if mechanism.releases_rows:
            mechanism.settled_rows(space).public_prior(space)
        facts = {one.label: one.facts(space) for one in mechanism.statistics}
        return cls(
            outcomes=space.record(),
            mechanism=mechanism.settled(space),
            noise={name: numbers for name, numbers in facts.items() if numbers},
            guarantee=GuaranteeTerms(
                epsilon=guarantee.epsilon, delta=guarantee.delta, in_words=in_words(guarantee)
            ),
        )

    def check(self) -> None:
        """Raise a FormatError unless all of it follows from the parameters of the mechanism."""
        try:
            again = Terms.of(self.outcomes.categories(), self.mechanism)
        except ParameterError as error:
            raise FormatError(f"the parameters are of no mechanism of ours: {error}") from None
        # Words for people may change.
        words = msgspec.structs.replace(again.guarantee, in_words=self.guarantee.in_words)
        if words != self.guarantee:
            raise FormatError(
                f"the stated guarantee does not follow from the parameters, which cost "
                f"{again.to_guarantee()}"
            )
        for name in ("outcomes", "mechanism", "noise"):
            if getattr(again, name) != getattr(self, name):
                raise FormatError(f"{name!r} does not hold together")

    def to_guarantee(self) -> Guarantee:
        """The guarantee, as a value."""
        return Guarantee(epsilon=self.guarantee.epsilon, delta=self.guarantee.delta)


def in_words(guarantee: Guarantee) -> str:
    """The guarantee as a sentence for people."""
    budget = f"epsilon = {shown(guarantee.epsilon)}"
    meaning = (
        "it changes the odds between any two outcomes of a person by at most a factor e^epsilon, "
        "even for whoever knows everything else, including all other outcomes"
    )
    if guarantee.delta:
        budget += f", delta = {shown(guarantee.delta)}"
        meaning = (
            "whatever could be published becomes at most e^epsilon times likelier, plus delta, "
            "when one person's outcome is another"
        )
    return (
        "Everything in this folder, taken together, is label differentially private with "
        f"{budget}, for the replacement of one unit's outcome: {meaning}. In other words: "
        f"{guarantee.in_odds()}."
    )
