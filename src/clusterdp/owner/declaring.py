"""From the texts that declare outcomes to their categories and what is expected of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.experiment.blocks import ChosenBlock, check_blocks, declared_of, parse_block
from clusterdp.experiment.categories import Categories, CategoriesRecord
from clusterdp.experiment.chosen_grids import choose_categories, reference_prior, usual_points
from clusterdp.experiment.decimals import shown
from clusterdp.experiment.declared import declare
from clusterdp.experiment.expressions import OBSERVED
from clusterdp.experiment.lists import parse_numbers
from clusterdp.experiment.margins import parse_margins
from clusterdp.planning.assumptions import MOST_OBSERVED, observed_assumed
from clusterdp.planning.blocks import best_partition, fits_one_block, shares_of
from clusterdp.rows.written_numbers import PLAIN, Notation

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.experiment.joint_prior import JointPrior
    from clusterdp.experiment.margins import Margin
    from clusterdp.planning.blocks import Partition

# A margin that is missed by less is met: in shares, or in standard deviations.
_MET = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What an owner declares about outcomes, as texts; every part is as options hold it.

    Attributes:
        outcomes: Such as `visit=0,1`.
        implies: Such as `conversion -> visit`.
        metric: Such as `rounds>=10`.
        weight: Such as `rounds=2`.
        reference: Such as `visit=0.15`.
        grids: Such as `rounds=0,1,5,493`; empty if the grids of numbers are to be placed.
        missing: The names of outcomes that may be missing.
        block: Such as `visit,conversion` or `visit,conversion=0.4`; empty if outcomes are to be put
            into blocks.
        epsilon: The budget that blocks are chosen for; None if there is none yet.
        notation: How outcomes that are text have numbers.
    """

    outcomes: tuple[str, ...]
    implies: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    grids: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    epsilon: float | None = None
    notation: Notation = PLAIN

    @property
    def declared(self) -> DeclaredOutcomes:
        """The declared outcomes."""
        return declare(
            self.outcomes,
            implications=self.implies,
            metrics=self.metric,
            weights=self.weight,
            missing=self.missing,
        )

    def margins(self, declared: DeclaredOutcomes) -> dict[str, Margin]:
        """What is expected of each outcome, by name."""
        texts = self.reference
        if len(texts) == 1 and "=" not in texts[0] and len(declared.names) == 1:
            return parse_margins({declared.names[0]: texts[0]}, declared.spaces)
        named = [text.partition("=")[0].strip() for text in texts]
        repeated = [name for name in named if named.count(name) > 1]
        if repeated:
            raise ParameterError(f"reference gives {repeated[0]!r} twice; give it once")
        return parse_margins(texts, declared.margin_spaces)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockOutcomes:
    """The categories of a block, and what is expected of them.

    Attributes:
        categories: The categories, with the grids of numbers.
        probs: Their expected distribution; axes `[category]`.
        is_declared: Whether anything was declared about it.
        share: The block's share of ε.
        notes: What the owner should know about it.
    """

    categories: Categories
    probs: FloatArray
    is_declared: bool
    share: float = 1.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenOutcomes:
    """The blocks of a release.

    Attributes:
        blocks: The outcomes of each block.
        notes: What the owner should know about them.
    """

    blocks: tuple[BlockOutcomes, ...]
    notes: tuple[str, ...] = ()

    @property
    def spaces(self) -> tuple[Categories, ...]:
        """The categories of each block."""
        return tuple(block.categories for block in self.blocks)

    @property
    def grid_texts(self) -> list[str]:
        """The grids as a plan holds them."""
        grids = [pair for space in self.spaces for pair in space.record().grids.items()]
        return [f"{name}={','.join(map(shown, points))}" for name, points in grids]

    @property
    def block_texts(self) -> list[str]:
        """The blocks as a plan holds them; none where there is one."""
        if len(self.blocks) == 1:
            return []
        return [str(ChosenBlock(one.categories.declared.names, one.share)) for one in self.blocks]


@lru_cache(maxsize=16)
def choose_outcomes(declaration: Declaration) -> ChosenOutcomes:
    """The categories of declared outcomes, computed once for each declaration."""
    declared = declaration.declared
    margins = declaration.margins(declared)
    # Where nothing at all is declared, all outcomes are equally likely, which is said as well.
    unsaid = [name for name in declared.missing if margins and name + OBSERVED not in margins]
    observed = {name + OBSERVED: str(MOST_OBSERVED) for name in unsaid}
    margins |= parse_margins(observed, declared.margin_spaces)
    chosen, notes = _blocks(declaration, declared, margins)
    notes += tuple(observed_assumed(name) for name in unsaid)
    found = []
    for one in chosen:
        own = declared_of(declared, one.names)
        known = {name: margin for name, margin in margins.items() if name in own.margin_spaces}
        block = _expected(own, known, declaration.grids)
        found.append(replace(block, share=one.share or 1.0))
    of_blocks = dict.fromkeys(note for block in found for note in block.notes)
    return ChosenOutcomes(blocks=tuple(found), notes=(*of_blocks, *notes))


def _blocks(
    declaration: Declaration, declared: DeclaredOutcomes, margins: dict[str, Margin]
) -> tuple[list[ChosenBlock], tuple[str, ...]]:
    """The outcomes of each block with its share of ε, and what was done, in words."""
    n_points, epsilon = usual_points(declared), declaration.epsilon
    if declaration.block:
        given = [parse_block(text) for text in declaration.block]
        check_blocks(given, declared)
        if all(one.share is not None for one in given):
            return given, ()
        shares = shares_of(declared, margins, epsilon, n_points, [one.names for one in given])
        return [one._replace(share=share) for one, share in zip(given, shares, strict=True)], ()
    if fits_one_block(declared):
        return [ChosenBlock(declared.names, 1.0)], ()
    found = best_partition(declared, margins, epsilon, n_points)
    pairs = zip(found.blocks, found.shares, strict=True)
    chosen = [ChosenBlock(names, share) for names, share in pairs]
    return chosen, _partition_notes(found)


def _partition_notes(found: Partition) -> tuple[str, ...]:
    """What was done, and what it costs."""
    listed = "; ".join(
        f"{', '.join(names)} ({share:.0%} of epsilon)"
        for names, share in zip(found.blocks, found.shares, strict=True)
    )
    more = found.cost / found.one_block
    against = f"about {more:.2g} times" if more > 1 else "less than"
    note = (
        f"the outcomes have more categories than one channel serves, so they are in blocks: "
        f"{listed}. The noise of rows is predicted to be {against} that of one channel which picks "
        "one outcome of each person at random (what the best single channel would do cannot be "
        f"computed), and {found.separate / found.cost:.2g} times less than with a channel for each "
        "outcome"
    )
    return (note,)


def _expected(
    declared: DeclaredOutcomes, margins: dict[str, Margin], grids: tuple[str, ...]
) -> BlockOutcomes:
    """A block whose outcomes are expected to have some margins."""
    if grids:
        categories = _with_grids(declared, grids)
        prior = reference_prior(categories, margins)
    else:
        categories, prior = choose_categories(declared, margins, usual_points(declared))
    return BlockOutcomes(
        categories=categories,
        probs=prior.probs,
        is_declared=bool(margins),
        notes=_missed(prior),
    )


def _with_grids(declared: DeclaredOutcomes, texts: tuple[str, ...]) -> Categories:
    """Categories with the grids that a plan decided."""
    named = (text.partition("=") for text in texts)
    grids = {name: parse_numbers(points) for name, _, points in named if name in declared.names}
    return CategoriesRecord(declared=declared.record(), grids=grids).categories()


def _missed(prior: JointPrior) -> tuple[str, ...]:
    """Notes about margins that contradict each other."""
    return tuple(
        f"the reference of {name!r} contradicts the implications or the other references; the "
        "nearest distribution that keeps the implications is used"
        for name, miss in prior.misses.items()
        if miss > _MET
    )
