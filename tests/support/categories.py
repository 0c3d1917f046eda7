"""Categories of declared outcomes, as most tests need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.experiment.categories import Categories
from clusterdp.experiment.declared import declare

if TYPE_CHECKING:
    import clusterdp as cdp


def one_outcome(name: str, space: cdp.OutcomeSpace) -> Categories:
    return Categories(declared=declare({name: space}))
