"""From the texts that declare outcomes to their categories and what is expected of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.experiment.categories import Categories, CategoriesRecord
from clusterdp.experiment.chosen_grids import choose_categories, reference_prior, usual_points
from clusterdp.experiment.decimals import shown
from clusterdp.experiment.declared import declare
from clusterdp.experiment.lists import parse_numbers
from clusterdp.experiment.margins import parse_margins
from clusterdp.planning.past_table import TABLES, past_categories, past_shares, read_past

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.experiment.joint_prior import JointPrior
    from clusterdp.experiment.margins import Margin

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
        reference: Such as `visit=0.15`, or the name of a table.
        grids: Such as `rounds=0,1,5,493`; empty if the grids of numbers are to be placed.
        missing: The names of outcomes that may be missing.
    """

    outcomes: tuple[str, ...]
    implies: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()
    grids: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

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

    @property
    def past(self) -> str | None:
        """The table of a past experiment that is the reference; None if there is none."""
        tables = [text for text in self.reference if text.lower().endswith(TABLES)]
        if not tables:
            return None
        if len(self.reference) > 1:
            raise ParameterError(
                f"reference {tables[0]} is a table, which says it all; leave out the others"
            )
        return tables[0]

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
class ChosenOutcomes:
    """The categories of a release, and what is expected of them.

    Attributes:
        categories: The categories, with the grids of numbers.
        probs: Their expected distribution; axes `[category]`.
        is_declared: Whether anything was declared about it.
        notes: What the owner should know about it.
    """

    categories: Categories
    probs: FloatArray
    is_declared: bool
    notes: tuple[str, ...] = ()

    @property
    def grid_texts(self) -> list[str]:
        """The grids as a plan holds them."""
        grids = self.categories.record().grids.items()
        return [f"{name}={','.join(map(shown, points))}" for name, points in grids]


def choose_outcomes(declaration: Declaration) -> ChosenOutcomes:
    """The categories of declared outcomes, computed once for each declaration."""
    past = declaration.past
    return _chosen(declaration, None if past is None else _changed(past))


@lru_cache(maxsize=16)
def _chosen(declaration: Declaration, changed: int | None) -> ChosenOutcomes:
    """Chosen outcomes; `changed` is when the table of a past experiment did."""
    if changed is not None:
        return _like_the_past(declaration, declaration.past or "")
    declared = declaration.declared
    margins = declaration.margins(declared)
    if declaration.grids:
        categories = _with_grids(declared, declaration.grids)
        prior = reference_prior(categories, margins)
    else:
        categories, prior = choose_categories(declared, margins, usual_points(declared))
    return ChosenOutcomes(
        categories=categories,
        probs=prior.probs,
        is_declared=bool(margins),
        notes=_missed(prior),
    )


def refuse_own_table(declaration: Declaration, table: str | None) -> None:
    """Raise a ParameterError if the reference is the table that is to be released.

    Args:
        declaration: What is declared about the outcomes.
        table: The name of the table; None for a frame.
    """
    past = declaration.past
    if past is None or table is None:
        return
    if Path(past).resolve() == Path(table).resolve():
        raise ParameterError(
            f"reference={past!r} is the table to be released (--reference): the shares of its "
            "outcomes would be published as they are; give the table of a past experiment"
        )


def _like_the_past(declaration: Declaration, past: str) -> ChosenOutcomes:
    declared = declaration.declared
    columns = read_past(past, declared)
    if declaration.grids:
        categories = _with_grids(declared, declaration.grids)
    else:
        categories = past_categories(declared, columns, usual_points(declared))
    note = (
        f"the shares of outcomes in {past} become part of what is published; use a table that "
        "nobody in this experiment is in, or one that is public"
    )
    probs = past_shares(past, categories, columns)
    return ChosenOutcomes(categories=categories, probs=probs, is_declared=True, notes=(note,))


def _with_grids(declared: DeclaredOutcomes, texts: tuple[str, ...]) -> Categories:
    """Categories with the grids that a plan decided."""
    named = (text.partition("=") for text in texts)
    grids = {name: parse_numbers(points) for name, _, points in named}
    return CategoriesRecord(declared=declared.record(), grids=grids).categories()


def _missed(prior: JointPrior) -> tuple[str, ...]:
    """Notes about margins that contradict each other."""
    return tuple(
        f"the reference of {name!r} contradicts the implications or the other references; the "
        "nearest distribution that keeps the implications is used"
        for name, miss in prior.misses.items()
        if miss > _MET
    )


def _changed(name: str) -> int:
    """When a file changed last; 0 if there is none, or if it is many files."""
    try:
        return Path(name).stat().st_mtime_ns
    except OSError:
        return 0
