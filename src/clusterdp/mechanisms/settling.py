"""What is released after a look: categories and a mechanism that follow from what was drawn.

Every part's ε was fixed before the look, so that the losses of look, statistics and rows add up
whatever it shows. Nothing here can refuse a release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.errors import ParameterError
from clusterdp.experiment.decimals import shown
from clusterdp.experiment.look_outcomes import settle_outcomes
from clusterdp.mechanisms.draw import check_exact

if TYPE_CHECKING:
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.statistics.look import DrawnLook


class Settled(NamedTuple):
    """What a release has after a look.

    Attributes:
        space: The categories, with clipped numbers.
        mechanism: With the prior that the look shows.
    """

    space: Categories
    mechanism: Mechanism


def settle(declared: Categories, mechanism: Mechanism, layout: Layout, look: DrawnLook) -> Settled:
    """What follows from a look; what was declared, where that could not be released.

    Args:
        declared: The categories as they were checked before the look.
        mechanism: As it was checked before the look.
        layout: The cells.
        look: What was drawn.
    """
    before = mechanism.settled(declared)
    try:
        found = settle_outcomes(look.bins, look.noisy_counts, look.variance, layout.n_units)
        after = before.with_prior(found.prior)
        check_exact(layout, found.categories, after)
    except ParameterError:
        return Settled(declared, before)
    return Settled(found.categories, after)


def look_notes(
    declared: Categories, prior: tuple[float, ...] | None, after: Settled
) -> tuple[str, ...]:
    """What a look decided, number by number; or of the prior alone; nothing without a look.

    Args:
        declared: The categories before the look.
        prior: The public prior of these; None if none was declared.
        after: What followed from the look.
    """
    space, mechanism = after
    if mechanism.look is None:
        return ()
    share = mechanism.look.epsilon / mechanism.guarantee(space).epsilon
    cost = f"a look that cost {100 * share:.2g}% of epsilon"
    if space == declared and mechanism.prior == prior:
        return (f"{cost} changed nothing",)
    grids = dict(zip(space.declared.numbers, space.grids, strict=True))
    clips = [
        f"{name} was clipped to {shown(grids[name].number.low)}..{shown(grids[name].number.high)} "
        f"(a grid of {len(grids[name].points)} values)"
        for name, number in declared.declared.numbers.items()
        if grids[name].number != number
    ]
    if not clips:
        return (f"the channel is designed for the distribution of outcomes in {cost}",)
    return tuple(f"{one}, found by {cost}; effects are on the clipped outcome" for one in clips)
