"""Categories of declared outcomes, as most tests need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.experiment.categories import Categories
from clusterdp.experiment.declared import declare
from clusterdp.published.terms import Terms

if TYPE_CHECKING:
    import clusterdp as cdp
    from clusterdp.mechanisms.mechanism import Mechanism


def one_outcome(name: str, space: cdp.OutcomeSpace) -> Categories:
    return Categories(declared=declare({name: space}))


def one_block(space: Categories, mechanism: Mechanism) -> Terms:
    """The terms of a release of one block."""
    return Terms.of([space], [mechanism])
