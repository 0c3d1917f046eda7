"""Stages 1 to 3 in one step: from true counts to all that is published about cells.

A release in memory, one on disk and a simulated one take this same step; after it, only rows are
left to be randomized.

**After a look**, categories and mechanism follow from what was drawn. Every part's ε was fixed
before the look, so that the losses of look, statistics and rows add up whatever it shows. Nothing
here can refuse a release.

**How much a row reveals** is how often the best guess from it is the true outcome. It follows from
the mechanism and public numbers, so it can be stated before a release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp._text import shortest_decimal
from clusterdp.errors import ClusterDPError, ParameterError
from clusterdp.outcomes.categories import together
from clusterdp.outcomes.look import settle_outcomes
from clusterdp.privacy.accounting import percent_rounded_up
from clusterdp.statistics.sums import NoisyMetricSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.statistics.base import CellTotals, DrawnStatistic, Histogram
    from clusterdp.statistics.look import DrawnLook
    from clusterdp.statistics.noise import NoiseSource


if TYPE_CHECKING:
    Statistics = tuple[DrawnStatistic, ...]


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
    elif layout.assigned is not None:
        raise ParameterError(
            f"{mechanism.name} publishes nothing that shows how groups differ, and arms were "
            "assigned to groups as a whole; choose a mechanism that releases rows"
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
    """Stage 1 of a release of one question; arguments as in `release_cells`."""
    return draw_together([totals], layout, [space], [mechanism], add_noise)[0]


def draw_together(
    totals: Sequence[CellTotals],
    layout: Layout,
    spaces: Sequence[CategorySpace],
    mechanisms: Sequence[Mechanism],
    add_noise: NoiseSource,
) -> tuple[Statistics, ...]:
    """Stage 1: all noisy statistics of every question, or none of them.

    What is of everyone is drawn once, for all questions together: their mechanisms have it alike.
    """
    for space, mechanism in zip(spaces, mechanisms, strict=True):
        if mechanism.sums != mechanisms[0].sums:
            raise ValueError("sums of everyone are alike for all questions")
        for statistic in mechanism.statistics:
            statistic.check(layout, space)
    shared: dict[str, Sequence[DrawnStatistic]] = {}
    found = []
    for place, mechanism in enumerate(mechanisms):
        drawn: list[DrawnStatistic] = []
        for one in mechanism.statistics:
            if isinstance(one, NoisyMetricSums):
                if one.label not in shared:
                    shared[one.label] = one.draw_together(totals, layout, spaces, add_noise)
                drawn.append(shared[one.label][place])
            else:
                cells = mechanism.layout_of(one, layout)
                drawn.append(one.draw(totals[place], cells, spaces[place], add_noise))
        found.append(tuple(drawn))
    return tuple(found)


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
    bound: Any = mechanism.settled_rows(space).bound(space)  # of the channel's own kind
    if not bound.allows(channel):
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


def histogram_of(statistics: Sequence[DrawnStatistic]) -> Histogram | None:
    """The noisy counts among some statistics, if there are any."""
    histograms = (one.histogram() for one in statistics)
    return next((one for one in histograms if one is not None), None)


class Question(NamedTuple):
    """Outcomes that are asked together, and what is published of them.

    Attributes:
        space: The categories; after a look, those of clipped numbers.
        mechanism: What is published; after a look, with the prior that it shows.
    """

    space: Categories
    mechanism: Mechanism

    def public_prior(self) -> FloatArray:
        """What its channel is designed for; axes `[category]`."""
        return self.mechanism.settled_rows(self.space).public_prior(self.space)


def settle(
    declared: Sequence[Categories],
    mechanisms: Sequence[Mechanism],
    layout: Layout,
    looks: Sequence[DrawnLook | None],
) -> tuple[Question, ...]:
    """What each question has after looks; what was declared, where that could not be released.

    Args:
        declared: The categories of each question as they were checked before the looks.
        mechanisms: As they were checked before the looks.
        layout: The cells.
        looks: What was drawn of each question; None where it has no look.
    """
    before = [
        Question(space, mechanism if look is None else mechanism.settled(space))
        for space, mechanism, look in zip(declared, mechanisms, looks, strict=True)
    ]
    after = [_settle(one, layout, look) for one, look in zip(before, looks, strict=True)]
    spaces = together([one.space for one in after])
    found = [one._replace(space=space) for one, space in zip(after, spaces, strict=True)]
    try:
        for one in found:
            check_exact(layout, *one)
    except ParameterError:
        return tuple(before)
    return tuple(found)


def _settle(before: Question, layout: Layout, look: DrawnLook | None) -> Question:
    """What follows from the look at a question, by itself."""
    if look is None:
        return before
    # Those who were looked at are as many as are asked, up to chance.
    n_units = max(1, round(before.mechanism.asked_share * layout.n_units))
    try:
        space, prior = settle_outcomes(look.bins, look.noisy_counts, look.variance, n_units)
        after = Question(space, before.mechanism.with_prior(prior))
        check_exact(layout, *after)
    except ParameterError:
        return before
    return after


def look_notes(
    declared: Categories, prior: tuple[float, ...] | None, after: Question
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
    unchanged = (space.declared, space.grids) == (declared.declared, declared.grids)
    if unchanged and mechanism.prior == prior:
        return (f"{cost} changed nothing",)
    clips = [
        f"{name} was clipped to "
        f"{shortest_decimal(grid.number.low)}..{shortest_decimal(grid.number.high)} "
        f"(a grid of {len(grid.points)} values)"
        for name, grid in zip(space.declared.numbers, space.grids, strict=True)
        if grid.number != declared.declared.numbers[name]
    ]
    if not clips:
        return (f"the channel is designed for the distribution of outcomes in {cost}",)
    return tuple(f"{one}, found by {cost}; effects are on the clipped outcome" for one in clips)


# From this ε on, rows reveal so much that readers are informed of it.
_REVEALING_EPSILON = 3.0


def best_guesses(
    mechanism: Mechanism, space: CategorySpace, channel: Channel | None = None
) -> tuple[float, float]:
    """How often the best guess of a person's outcome is right, if outcomes are as the public prior.

    The first is for a reader of the person's row, Σ_s max_y p(y)P(s|y); the second for one who
    knows the distribution of outcomes alone, max_y p(y).

    Args:
        mechanism: What is published.
        space: The outcome space.
        channel: The published channel of its rows, if it was designed: to design it again takes
            long. Of several, the one that reveals most. By default the one that the mechanism makes
            of the public prior; one that is made of noisy counts has the same bound.
    """
    rows = mechanism.settled_rows(space)
    prior = rows.public_prior(space)
    if channel is None or not mechanism.designs_rows:
        channel = rows.public_channel(space)
    reached = channel.transition() * prior  # [channel, released, true]
    return float(reached.max(axis=-1).sum(axis=-1).max()), float(prior.max())


def disclosure_notes(
    mechanism: Mechanism, space: CategorySpace, channel: Channel | None = None
) -> tuple[str, ...]:
    """Notes about rows that reveal much; none for small ε, or without rows."""
    if not mechanism.releases_rows or mechanism.guarantee(space).epsilon < _REVEALING_EPSILON:
        return ()
    from_row, without = best_guesses(mechanism, space, channel)
    uniform = without <= 1 / space.n_categories
    shown = "declared" if mechanism.look is None else "the look shows"
    believed = "equally likely" if uniform else f"as likely as {shown}"
    return (
        (
            f"rows reveal much about outcomes: if these are {believed}, the best guess from a "
            f"person's row is right for {percent_rounded_up(from_row)} of people, and "
            f"without the row for {without:.0%}"
        ),
    )
