"""Blocks of outcomes: which outcomes must stay together, and what is declared of some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.errors import ParameterError
from clusterdp.experiment.declared import DeclaredOutcomes
from clusterdp.experiment.lists import parse_names

if TYPE_CHECKING:
    from collections.abc import Sequence

Names = tuple[str, ...]


class ChosenBlock(NamedTuple):
    """A block that an owner or a plan chose.

    Attributes:
        names: Its outcomes.
        share: Its share of ε; None if that is left open.
    """

    names: Names
    share: float | None

    def __str__(self) -> str:
        """What `parse_block` reads back."""
        listed = ",".join(self.names)
        return listed if self.share is None else f"{listed}={self.share!r}"


def parse_block(text: str) -> ChosenBlock:
    """A block as people write it: `visit,conversion`, or with its share of ε, `visit,sale=0.4`."""
    listed, found, share = text.partition("=")
    names = parse_names(listed)
    if not names:
        raise ParameterError(f"a block names outcomes (visit,conversion), got {text!r}")
    if not found:
        return ChosenBlock(names, None)
    try:
        number = float(share)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ParameterError(f"the share of a block lies in (0, 1] (visit,sale=0.4), got {text!r}")
    return ChosenBlock(names, number)


def check_blocks(blocks: Sequence[ChosenBlock], declared: DeclaredOutcomes) -> None:
    """Raise a ParameterError unless blocks hold every outcome once, and linked ones together."""
    named = [name for block in blocks for name in block.names]
    for name in named:
        if name not in declared.names:
            raise ParameterError(
                f"block names {name!r}, which is no declared outcome; the outcomes are "
                f"{', '.join(map(repr, declared.names))}"
            )
    wrong = [name for name in declared.names if named.count(name) != 1]
    if wrong:
        raise ParameterError(
            f"outcome {wrong[0]!r} is in {named.count(wrong[0])} blocks; put every outcome in one "
            "(block=..., --block)"
        )
    for linked in linked_outcomes(declared):
        if not any(set(linked) <= set(block.names) for block in blocks):
            raise ParameterError(
                f"{', '.join(map(repr, linked))} are linked by implications or metrics, so they "
                "must be in one block"
            )
    given = [block.share for block in blocks if block.share is not None]
    if given and len(given) < len(blocks):
        raise ParameterError("give every block its share of epsilon (visit,sale=0.4), or none")
    if sum(given) > 1 + 1e-9:
        raise ParameterError(f"the shares of blocks are together at most 1, got {sum(given):g}")


def linked_outcomes(declared: DeclaredOutcomes) -> tuple[Names, ...]:
    """Outcomes that implications or products link, directly or not; in the declared order.

    They are the smallest blocks that are possible: across blocks nothing can be ruled out, and no
    product can be measured.
    """
    links = [metric.outcomes for metric in declared.metrics]
    links += [one.condition.outcomes | one.consequence.outcomes for one in declared.implications]
    groups = [{name} for name in declared.names]
    for link in links:
        met = [group for group in groups if group & link]
        merged = set().union(*met)
        groups = [group for group in groups if not group & link]
        groups.append(merged)
    ordered = [tuple(name for name in declared.names if name in group) for group in groups]
    return tuple(sorted(ordered, key=lambda names: declared.names.index(names[0])))


def declared_of(declared: DeclaredOutcomes, names: Sequence[str]) -> DeclaredOutcomes:
    """What is declared of some outcomes alone; no link leads to others."""
    kept = [place for place, one in enumerate(declared.metrics) if one.outcomes <= set(names)]
    return DeclaredOutcomes(
        outcomes=tuple(one for one in declared.outcomes if one.name in names),
        implications=tuple(
            one for one in declared.implications if one.condition.outcomes <= set(names)
        ),
        metrics=tuple(declared.metrics[place] for place in kept),
        multipliers=tuple(declared.multipliers[place] for place in kept),
    )
