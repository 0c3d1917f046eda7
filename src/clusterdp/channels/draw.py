"""Stages 1 to 3 in one step: from true counts to all that is published about cells.

A release in memory, one on disk and a simulated one take this same step; after it, only rows are
left to be randomized.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.channels.design import design_channel, public_prior
from clusterdp.channels.statistics import check_statistics, draw_summary, draw_sums

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.channels.design import Channel
    from clusterdp.channels.noise import NoiseSource
    from clusterdp.channels.statistics import Summary, SumSummary
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism


class Statistics(NamedTuple):
    """What is drawn from true counts, once. All of it is public from here on.

    Attributes:
        summary: Noisy counts or contrasts, if any.
        sums: Noisy sums to calibrate by, if any.
    """

    summary: Summary | None
    sums: SumSummary | None


class CellRelease(NamedTuple):
    """What is published about cells: the statistics, and what follows from them.

    Attributes:
        summary: As in `Statistics`.
        sums: As in `Statistics`.
        channel: What rows go through; None where no rows are published.
    """

    summary: Summary | None
    sums: SumSummary | None
    channel: Channel | None


def check_exact(layout: Layout, mechanism: Mechanism) -> None:
    """Raise a ParameterError if a release of these cells could not be completed.

    It reads what is public alone, and is called before anything is drawn or reserved. All that
    could refuse a release for public reasons is here: after it, every step from the draw to the
    published folder succeeds, but for failures of the disk and a table that changes meanwhile.
    """
    mechanism.guarantee(layout.space)
    public_prior(mechanism, layout.space)
    check_statistics(layout, mechanism.summary, mechanism.sums)


def release_cells(
    counts: IntArray, layout: Layout, mechanism: Mechanism, add_noise: NoiseSource
) -> CellRelease:
    """Draw the noise a mechanism asks for, and design the channel of its rows.

    Args:
        counts: True counts; axes `[..., cluster, arm, outcome]`.
        layout: What is public.
        mechanism: What to publish.
        add_noise: Where noise comes from; `add_exact_noise` for a real release.
    """
    return complete(draw_statistics(counts, layout, mechanism, add_noise), layout, mechanism)


def draw_statistics(
    counts: IntArray, layout: Layout, mechanism: Mechanism, add_noise: NoiseSource
) -> Statistics:
    """Stage 1: all noisy statistics, or none of them; arguments as in `release_cells`."""
    check_statistics(layout, mechanism.summary, mechanism.sums)
    return Statistics(
        summary=draw_summary(counts, layout, mechanism.summary, add_noise),
        sums=draw_sums(counts, layout, mechanism.sums, add_noise),
    )


def complete(statistics: Statistics, layout: Layout, mechanism: Mechanism) -> CellRelease:
    """Stages 2 and 3: what follows from the statistics without another look at outcomes."""
    channel = None
    if mechanism.releases_rows:
        channel = design_channel(mechanism, layout, statistics.summary)
    return CellRelease(*statistics, channel=channel)
