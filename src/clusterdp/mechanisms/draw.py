"""Stages 1 to 3 in one step: from true counts to all that is published about cells.

A release in memory, one on disk and a simulated one take this same step; after it, only rows are
left to be randomized.

**How much a row reveals** is how often the best guess from it is the true outcome. It follows from
the mechanism and public numbers, so it can be stated before a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._text import counted, percent, plural, range_in_words, with_article
from clusterdp.channels.asked import AskedChannel
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import ClusterDPError, ParameterError
from clusterdp.privacy.statement import percent_rounded_up
from clusterdp.statistics.sums import NoisyMetricSums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel, RowRule
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.statistics.base import CellTotals, DrawnStatistic, Histogram
    from clusterdp.statistics.noise import NoiseSource

    Statistics = tuple[DrawnStatistic, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """Outcomes that are asked together, and what is published of them.

    Attributes:
        space: The categories of its outcomes; after a pilot, those of clipped numbers.
        mechanism: What is published; after a pilot, with the prior that it shows.
    """

    space: Categories
    mechanism: Mechanism

    @property
    def name(self) -> str:
        """What it is called in the rows of a release of several questions: its outcomes."""
        return "+".join(self.space.declared.names)

    @property
    def rows(self) -> RowRule:
        """How its rows are randomized; there must be rows."""
        return self.mechanism.settled_rows(self.space)

    @property
    def public_prior(self) -> FloatArray:
        """What its channel is designed for; axes `[category]`."""
        return self.rows.public_prior(self.space)

    def released(self, statistics: Statistics, channel: Channel | None) -> ReleasedQuestion:
        """The same, with what is published of it."""
        return ReleasedQuestion(
            space=self.space, mechanism=self.mechanism, statistics=statistics, channel=channel
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleasedQuestion(Question):
    """A question, and what is published of it.

    Attributes:
        statistics: The noisy statistics, in the order of the mechanism's.
        channel: What rows go through; None where no rows are published.
    """

    statistics: Statistics
    channel: Channel | None

    @property
    def answers(self) -> Channel | AskedChannel:
        """What everyone goes through: the channel, with "not asked" as its last output if need be.

        There must be rows.
        """
        assert self.channel is not None  # noqa: S101 - there are rows
        if self.mechanism.asked == ASKED_TOTAL:
            return self.channel
        share = self.mechanism.asked_share
        return AskedChannel(channel=self.channel, share=share, prior=self.public_prior)


def check_exact(layout: Layout, space: CategorySpace, mechanism: Mechanism) -> None:
    """Raise a ParameterError if a release of these cells could not be completed.

    It reads what is public alone, and is called before anything is drawn or reserved. All that
    could refuse a release for public reasons is here: after it, every step from the draw to the
    published folder succeeds, but for failures of the disk and a table that changes meanwhile.
    """
    mechanism.guarantee(space)
    if mechanism.releases_rows:
        mechanism.settled_rows(space).public_prior(space)
    elif mechanism.is_answer:
        pass  # estimates take these totals next to the rows of the release
    elif space.of_observed():
        raise ParameterError(
            f"{mechanism.name} publishes differences between arms, and an outcome that may be "
            "missing is a ratio in each; choose a mechanism that releases rows"
        )
    elif layout.assigned is not None:
        raise ParameterError(
            f"arms were assigned to whole groups, and {mechanism.name} does not publish how "
            "groups differ; choose a mechanism that releases rows"
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
) -> tuple[Statistics, Channel | None]:
    """Draw the noise that a mechanism asks for, and design the channel of its rows, if it has any.

    Args:
        totals: True totals of every cell.
        layout: What is public.
        space: The outcome space.
        mechanism: What to publish.
        add_noise: Where noise comes from; `add_exact_noise` for a real release.
    """
    statistics = draw_statistics(totals, layout, space, mechanism, add_noise)
    return statistics, _channel(statistics, layout, space, mechanism)


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

    Statistics of all units are drawn once, for all questions together: their mechanisms share them.
    """
    for space, mechanism in zip(spaces, mechanisms, strict=True):
        if mechanism.sums != mechanisms[0].sums:
            raise ValueError("sums of all units must be the same for all questions")
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


def complete(statistics: Statistics, layout: Layout, question: Question) -> ReleasedQuestion:
    """Stages 2 and 3: what follows from the statistics without another look at outcomes."""
    channel = _channel(statistics, layout, question.space, question.mechanism)
    return question.released(statistics, channel)


def _channel(
    statistics: Statistics, layout: Layout, space: CategorySpace, mechanism: Mechanism
) -> Channel | None:
    if not mechanism.releases_rows:
        return None
    return design_channel(statistics, layout, space, mechanism)


def design_channel(
    statistics: Statistics, layout: Layout, space: CategorySpace, mechanism: Mechanism
) -> Channel:
    """The channel of rows that follows from the statistics, and from what is public."""
    designed = mechanism.settled_rows(space).design(layout, space, histogram_of(statistics))
    return checked_channel(designed, space, mechanism)


def checked_channel(channel: Channel, space: CategorySpace, mechanism: Mechanism) -> Channel:
    """A channel that was designed, or restored, if its integers cost no more than stated.

    Raises:
        ClusterDPError: If they cost more: nothing may be randomized then. No design leads to that.
    """
    bound: Any = mechanism.settled_rows(space).bound(space)  # of the channel's own kind
    if not bound.allows(channel):
        raise ClusterDPError(
            "the randomizer of the rows would cost more than was stated, so no row was "
            "randomized; this is a bug, or the ledger was edited"
        )
    return channel


def public_channel(layout: Layout, question: Question) -> Channel | None:
    """The channel of rows where it follows from what is public; None where noisy counts decide it.

    It is the channel that `complete` designs. Rows can be randomized before anything is drawn.
    """
    mechanism = question.mechanism
    if not mechanism.releases_rows or any(one.of_categories for one in mechanism.statistics):
        return None
    return design_channel((), layout, question.space, mechanism)


def histogram_of(statistics: Sequence[DrawnStatistic]) -> Histogram | None:
    """The noisy counts among some statistics, if there are any."""
    histograms = (one.histogram() for one in statistics)
    return next((one for one in histograms if one is not None), None)


def pilot_notes(
    declared: Categories, prior: tuple[float, ...] | None, after: Question
) -> tuple[str, ...]:
    """What a pilot decided, number by number; or of the prior alone; nothing without a pilot.

    Args:
        declared: The categories before the pilot.
        prior: The public prior of these; None if none was declared.
        after: What followed from the pilot.
    """
    space, mechanism = after.space, after.mechanism
    if mechanism.pilot is None:
        return ()
    share = mechanism.pilot.epsilon / mechanism.guarantee(space).epsilon
    pilot = f"a pilot histogram ({percent(share)} of ε)"
    unchanged = (space.declared, space.grids) == (declared.declared, declared.grids)
    if unchanged and mechanism.prior == prior:
        return (f"{pilot[0].upper()}{pilot[1:]} changed nothing.",)
    clips = [
        f"{name} is clipped to {range_in_words(grid.number.low, grid.number.high)}, which {pilot} "
        f"found. Rows have a grid of {counted(len(grid.points), 'value')}."
        for name, grid in zip(space.declared.numbers, space.grids, strict=True)
        if grid.number != declared.declared.numbers[name]
    ]
    if not clips:
        return (f"The randomizer is optimized for the distribution that {pilot} found.",)
    return tuple(clips)


# From this ε on, rows may reveal so much that readers are informed of it.
_REVEALING_EPSILON = 3.0
# A row reveals much where the best guess from it is right this much more often than without it, or
# wrong this much less often. Neither happens where nearly all units have one outcome: a large ε
# alone says little, and the statement of the guarantee has it. Both are needed: among many values a
# guess can be right ten times as often and still be mostly wrong; between two it is right half of
# the time without the row, and cannot be right twice as often.
_MUCH = 2.0


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
    mechanism: Mechanism,
    space: Categories,
    channel: Channel | None = None,
    *,
    unit: str = "unit",
) -> tuple[str, ...]:
    """A note if rows reveal much about the outcomes of a question; none without rows.

    Args:
        mechanism: What is published.
        space: Its outcomes.
        channel: As of `best_guesses`.
        unit: What a unit is called.
    """
    if not mechanism.releases_rows or mechanism.guarantee(space).epsilon < _REVEALING_EPSILON:
        return ()
    from_row, without = best_guesses(mechanism, space, channel)
    if from_row < _MUCH * without and 1 - from_row > (1 - without) / _MUCH:
        return ()
    uniform = without <= 1 / space.n_categories
    shown = "declared" if mechanism.pilot is None else "the pilot shows"
    believed = "equally likely" if uniform else f"as likely as {shown}"
    return (
        (
            f"At this ε rows reveal a lot about {', '.join(space.declared.names)}: the best guess "
            f"from {with_article(unit)}'s row is right for {percent_rounded_up(from_row)} of "
            f"{plural(unit)}, against {without:.0%} without the row (if outcomes are {believed})."
        ),
    )
