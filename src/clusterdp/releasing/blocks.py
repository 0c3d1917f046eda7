"""The steps of a release that are taken block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.mechanisms.draw import (
    check_exact,
    draw_statistics,
    public_channel,
    release_cells,
)
from clusterdp.published.manifest import Manifest, software_name
from clusterdp.published.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.draw import CellRelease, Statistics
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.published.manifest import BeforeLook
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.statistics.base import CellTotals
    from clusterdp.statistics.noise import NoiseSource


def check_blocks(prepared: Prepared, mechanisms: Sequence[Mechanism]) -> None:
    """Raise a ParameterError if a release of a table's blocks could not be completed.

    See `check_exact`; it reads what is public alone, or given labels in place of private clusters.
    """
    spaces = prepared.table.spaces
    for space, mechanism in zip(spaces, mechanisms, strict=True):
        check_exact(prepared.layout, space, mechanism)
    terms = Terms.of(spaces, mechanisms, prepared.response)
    if prepared.assignment is not None and not terms.releases_rows:
        raise ParameterError(
            "without rows, effects cannot be weighted for arms that have different probabilities "
            "in private clusters; choose a mechanism that releases rows"
        )


def describe(
    prepared: Prepared, mechanisms: Sequence[Mechanism], before: BeforeLook | None
) -> Manifest:
    """The manifest of a release, but for its files: all that is known before noise is drawn."""
    table = prepared.table
    return Manifest.of(
        software=software_name(),
        columns=table.columns,
        layout=prepared.layout,
        terms=Terms.of(table.spaces, mechanisms, prepared.response),
        assignment=prepared.assignment,
        pooling=prepared.pooling,
        aggregates=table.aggregates,
        row_order=table.row_order,
        expected=prepared.expected,
        before_look=before,
        provenance=prepared.provenance,
    )


def draw_blocks(
    totals: Sequence[CellTotals],
    layout: Layout,
    spaces: Sequence[Categories],
    mechanisms: Sequence[Mechanism],
    add_noise: NoiseSource,
) -> tuple[CellRelease, ...]:
    """Draw the noise of every block, and design the channels of its rows; see `release_cells`."""
    return tuple(
        release_cells(true, layout, space, mechanism, add_noise)
        for true, space, mechanism in zip(totals, spaces, mechanisms, strict=True)
    )


def draw_noise(
    totals: Sequence[CellTotals],
    layout: Layout,
    spaces: Sequence[Categories],
    mechanisms: Sequence[Mechanism],
    add_noise: NoiseSource,
) -> tuple[Statistics, ...]:
    """Draw the noise of every block alone, where channels follow from what is public."""
    return tuple(
        draw_statistics(true, layout, space, mechanism, add_noise)
        for true, space, mechanism in zip(totals, spaces, mechanisms, strict=True)
    )


def public_channels(
    layout: Layout, spaces: Sequence[Categories], mechanisms: Sequence[Mechanism]
) -> tuple[Channel, ...]:
    """The channel of every block, where all of them follow from what is public; else none."""
    found = []
    for space, mechanism in zip(spaces, mechanisms, strict=True):
        channel = public_channel(layout, space, mechanism)
        if channel is None:
            return ()
        found.append(channel)
    return tuple(found)


def channels_of(drawn: Sequence[CellRelease]) -> tuple[Channel, ...]:
    """The channel of every block; none where no rows are published."""
    return tuple(one.channel for one in drawn if one.channel is not None)
