"""What is published of outcomes and what that costs: all that is known before they are read.

A manifest states it, and so does a ledger.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from clusterdp.channels.label_response import LabelResponse  # noqa: TC001 - for msgspec
from clusterdp.errors import FormatError, ParameterError
from clusterdp.experiment.categories import (  # noqa: TC001 - for msgspec
    Categories,
    CategoriesRecord,
)
from clusterdp.mechanisms.mechanism import Mechanism  # noqa: TC001 - for msgspec
from clusterdp.privacy.accounting import Guarantee, shown
from clusterdp.privacy.composition import basic_composition
from clusterdp.privacy.neighbours import CLUSTER_AND_OUTCOME, Neighbours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.privacy.accounting import ReleaseLoss
    from clusterdp.statistics.look import NoisyLook

LOOK_OF_ONE_BLOCK = (
    "a look is of outcomes that share one channel; leave out look, or release fewer outcomes "
    "together"
)


class GuaranteeTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the whole release costs."""

    epsilon: float
    delta: float
    neighbours: Neighbours

    @property
    def in_words(self) -> str:
        """The guarantee as a sentence for people."""
        return in_words(
            Guarantee(epsilon=self.epsilon, delta=self.delta, neighbours=self.neighbours)
        )


class BlockTerms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is published of a block of outcomes, how, and what that costs.

    Attributes:
        outcomes: The declared outcomes, and the grids of numbers.
        mechanism: What is published, by the parameters that the machine uses.
        noise: Numbers that follow from them and that readers need, by statistic.
        epsilon: The ε of the block.
        delta: The δ of the block.
    """

    outcomes: CategoriesRecord
    mechanism: Mechanism
    noise: dict[str, dict[str, list[float | None]]]
    epsilon: float
    delta: float

    @classmethod
    def of(cls, space: Categories, mechanism: Mechanism) -> BlockTerms:
        """The terms of a block.

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
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its outcomes."""
        return tuple(outcome.name for outcome in self.outcomes.declared.outcomes)


class Terms(Struct, frozen=True, kw_only=True):
    """What is published of all outcomes, and what that costs.

    Attributes:
        blocks: What is published of each block. One unit's outcomes are in all of them, so that
            their losses add up.
        labels: The response that private clusters went through; None where clusters are public.
        guarantee: What all blocks and labels cost together.
    """

    blocks: tuple[BlockTerms, ...]
    labels: LabelResponse | None
    guarantee: GuaranteeTerms

    @classmethod
    def of(
        cls,
        spaces: Sequence[Categories],
        mechanisms: Sequence[Mechanism],
        labels: LabelResponse | None = None,
    ) -> Terms:
        """The terms of a release, from the categories and the mechanism of each block.

        Raises:
            ParameterError: If a budget cannot be met, a prior is of another outcome space, some
                blocks have rows and others do not, or one of several has a look.
        """
        guarantee = total_guarantee(spaces, mechanisms, labels)
        if len({mechanism.releases_rows for mechanism in mechanisms}) > 1:
            raise ParameterError(
                "some blocks would publish rows and others would not; choose mechanisms that all do"
            )
        if len(mechanisms) > 1 and any(mechanism.look is not None for mechanism in mechanisms):
            raise ParameterError(LOOK_OF_ONE_BLOCK)
        pairs = zip(spaces, mechanisms, strict=True)
        return cls(
            blocks=tuple(BlockTerms.of(space, mechanism) for space, mechanism in pairs),
            labels=labels,
            guarantee=GuaranteeTerms(
                epsilon=guarantee.epsilon,
                delta=guarantee.delta,
                neighbours=guarantee.neighbours,
            ),
        )

    @property
    def spaces(self) -> tuple[Categories, ...]:
        """The categories of each block."""
        return tuple(block.outcomes.categories() for block in self.blocks)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanism of each block."""
        return tuple(block.mechanism for block in self.blocks)

    @property
    def mechanism_names(self) -> str:
        """The names of its mechanisms, each once."""
        return ", ".join(dict.fromkeys(one.name for one in self.mechanisms))

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """The names of all outcomes, block by block."""
        return tuple(name for block in self.blocks for name in block.names)

    @property
    def missing_names(self) -> tuple[str, ...]:
        """The names of outcomes that may be missing, block by block."""
        return tuple(name for block in self.blocks for name in block.outcomes.declared.missing)

    @property
    def look(self) -> NoisyLook | None:
        """The look that was paid for; only a release of one block has one."""
        return self.mechanisms[0].look

    @property
    def releases_rows(self) -> bool:
        """Whether user-level rows are published, or aggregates alone."""
        return all(mechanism.releases_rows for mechanism in self.mechanisms)

    def losses(self) -> tuple[ReleaseLoss, ...]:
        """What each block loses at worst, and labels; all are drawn independently, and add up."""
        pairs = zip(self.spaces, self.mechanisms, strict=True)
        of_labels = () if self.labels is None else (self.labels.loss(),)
        return (*of_labels, *(mechanism.loss(space) for space, mechanism in pairs))

    def check(self) -> None:
        """Raise a FormatError unless all of it follows from the parameters of the mechanisms."""
        if not self.blocks:
            raise FormatError("there is no block of outcomes")
        try:
            again = Terms.of(self.spaces, self.mechanisms, self.labels)
        except ParameterError as error:
            raise FormatError(f"the parameters are of no mechanism of ours: {error}") from None
        if again.guarantee != self.guarantee:
            raise FormatError(
                f"the stated guarantee does not follow from the parameters, which cost "
                f"{again.to_guarantee()}"
            )
        for ours, theirs in zip(again.blocks, self.blocks, strict=True):
            for name in BlockTerms.__struct_fields__:
                if getattr(ours, name) != getattr(theirs, name):
                    raise FormatError(f"{name!r} does not hold together")

    def to_guarantee(self) -> Guarantee:
        """The guarantee, as a value."""
        stated = self.guarantee
        return Guarantee(epsilon=stated.epsilon, delta=stated.delta, neighbours=stated.neighbours)


def total_guarantee(
    spaces: Sequence[Categories],
    mechanisms: Sequence[Mechanism],
    labels: LabelResponse | None = None,
) -> Guarantee:
    """What the blocks of a release cost together: Σε and Σδ, rounded up.

    Neighbours differ in all outcomes of a unit, and outcomes of different blocks are a product
    space. So one unit can lose the most in every block at once. Where clusters are private,
    neighbours differ in a unit's cluster as well. Given the labels that units were given, all else
    costs as much as with these as public clusters, so that ε₁ and ε₂ add up.
    """
    pairs = zip(spaces, mechanisms, strict=True)
    blocks = [mechanism.guarantee(space) for space, mechanism in pairs]
    if labels is None:
        return basic_composition(blocks)
    total = basic_composition([labels.guarantee(), *blocks])
    return replace(total, neighbours=CLUSTER_AND_OUTCOME)


def in_words(guarantee: Guarantee) -> str:
    """The guarantee as a sentence for people."""
    budget, words = f"epsilon = {shown(guarantee.epsilon)}", guarantee.words
    meaning = (
        f"it changes the odds between any two {words.told_apart} of a person by at most a factor "
        "e^epsilon, even for whoever knows everything else, including all other "
        f"{words.told_apart}"
    )
    if guarantee.delta:
        budget += f", delta = {shown(guarantee.delta)}"
        meaning = (
            "whatever could be published becomes at most e^epsilon times likelier, plus delta, "
            f"when one person's {words.replaced} is another"
        )
    return (
        "Everything in this folder, taken together, is label differentially private with "
        f"{budget}, for the replacement of one unit's {words.replaced}: {meaning}. In other words: "
        f"{guarantee.in_odds()}."
    )
