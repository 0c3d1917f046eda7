"""Categories of declared outcomes, as most tests need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.spec.terms import Terms

if TYPE_CHECKING:
    import clusterdp as cdp
    from clusterdp.mechanisms.mechanism import Mechanism


def one_outcome(name: str, space: cdp.OutcomeSpace) -> Categories:
    return Categories(declared=declare({name: space}))


def one_question(space: Categories, mechanism: Mechanism) -> Terms:
    """The terms of a release of one question."""
    return Terms.of([space], [mechanism])
