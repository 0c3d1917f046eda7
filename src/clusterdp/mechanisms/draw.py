"""Stages 1 to 3 in one step: from true counts to all that is published about cells.

A release in memory, one on disk and a simulated one take this same step; after it, only rows are
left to be randomized.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import ClusterDPError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.category_space import CategorySpace
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.statistics.base import CellTotals, Histogram
    from clusterdp.statistics.catalogue import Drawn
    from clusterdp.statistics.noise import NoiseSource

    Statistics = tuple[Drawn, ...]


class CellRelease(NamedTuple):
    """What is published about cells.

    Attributes:
        statistics: The noisy statistics, in the order of the mechanism's.
        channel: What rows go through; None where no rows are published.
    """

    statistics: Statistics
    channel: Channel | None


def check_exact(layout: Layout, space: CategorySpace, mechanism: Mechanism) -> None:
    """Raise a ParameterError if a release of these cells could not be completed.

    It reads what is public alone, and is called before anything is drawn or reserved. All that
    could refuse a release for public reasons is here: after it, every step from the draw to the
    published folder succeeds, but for failures of the disk and a table that changes meanwhile.
    """
    mechanism.guarantee(space)
    if mechanism.releases_rows:
        mechanism.settled_rows(space).public_prior(space)
    elif space.of_observed():
        raise ParameterError(
            f"{mechanism.name} publishes differences between arms, and an outcome that may be "
            "missing is a ratio in each; choose a mechanism that releases rows"
        )
    elif not layout.complete.all():
        raise ParameterError(
            f"{mechanism.name} compares arms in every cluster, and some lack an arm; choose a "
            "mechanism that releases rows, or leave these clusters out of the table"
        )
    for statistic in mechanism.statistics:
        statistic.check(layout, space)


def release_cells(
    totals: CellTotals,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    add_noise: NoiseSource,
) -> CellRelease:
    """Draw the noise a mechanism asks for, and design the channel of its rows.

    Args:
        totals: True totals of every cell.
        layout: What is public.
        space: The outcome space.
        mechanism: What to publish.
        add_noise: Where noise comes from; `add_exact_noise` for a real release.
    """
    statistics = draw_statistics(totals, layout, space, mechanism, add_noise)
    return complete(statistics, layout, space, mechanism)


def draw_statistics(
    totals: CellTotals,
    layout: Layout,
    space: CategorySpace,
    mechanism: Mechanism,
    add_noise: NoiseSource,
) -> Statistics:
    """Stage 1: all noisy statistics, or none of them; arguments as in `release_cells`."""
    for statistic in mechanism.statistics:
        statistic.check(layout, space)
    return tuple(
        statistic.draw(totals, layout, space, add_noise) for statistic in mechanism.statistics
    )


def complete(
    statistics: Statistics, layout: Layout, space: CategorySpace, mechanism: Mechanism
) -> CellRelease:
    """Stages 2 and 3: what follows from the statistics without another look at outcomes."""
    channel = None
    if mechanism.releases_rows:
        designed = mechanism.settled_rows(space).design(layout, space, histogram_of(statistics))
        channel = checked_channel(designed, space, mechanism)
    return CellRelease(statistics, channel)


def checked_channel(channel: Channel, space: CategorySpace, mechanism: Mechanism) -> Channel:
    """A channel that was designed, or restored, if its integers cost no more than stated.

    Raises:
        ClusterDPError: If they cost more: nothing may be randomized then. No design leads to that.
    """
    response: Any = mechanism.settled_rows(space).response(space)  # of the channel's own kind
    if not response.allows(channel):
        raise ClusterDPError(
            "the channel of the rows would cost more than was stated, so no row was randomized; "
            "this is an error of the program, or the ledger was edited"
        )
    return channel


def public_channel(layout: Layout, space: CategorySpace, mechanism: Mechanism) -> Channel | None:
    """The channel of rows where it follows from what is public; None where noisy counts decide it.

    It is the channel that `complete` designs. Rows can be randomized before anything is drawn.
    """
    if not mechanism.releases_rows or any(one.of_categories for one in mechanism.statistics):
        return None
    return complete((), layout, space, mechanism).channel


def histogram_of(statistics: Sequence[Drawn]) -> Histogram | None:
    """The noisy counts among some statistics, if there are any."""
    histograms = (one.histogram() for one in statistics)
    return next((one for one in histograms if one is not None), None)
