"""The steps of a release that are taken question by question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.mechanisms.draw import check_exact, complete, draw_together, public_channel
from clusterdp.published.manifest import Manifest, software_name
from clusterdp.spec.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.mechanisms.draw import CellRelease
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.published.manifest import BeforeLook
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.statistics.base import CellTotals
    from clusterdp.statistics.noise import NoiseSource


def check_questions(prepared: Prepared, mechanisms: Sequence[Mechanism]) -> None:
    """Raise a ParameterError if a release of a table's questions could not be completed.

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
    prepared: Prepared, mechanisms: Sequence[Mechanism], before: tuple[BeforeLook | None, ...]
) -> Manifest:
    """The manifest of a release, but for its files: all that is known before noise is drawn."""
    table = prepared.table
    return Manifest.of(
        software=software_name(),
        columns=table.columns.as_published(),
        layout=prepared.layout,
        terms=Terms.of(table.spaces, mechanisms, prepared.response),
        assignment=prepared.assignment,
        pooling=prepared.pooling,
        aggregates=table.aggregates,
        row_order=table.row_order,
        expected=prepared.expected,
        before_look=before,
        asking=prepared.asking,
        provenance=prepared.provenance,
    )


def draw_questions(
    totals: Sequence[CellTotals],
    layout: Layout,
    spaces: Sequence[Categories],
    mechanisms: Sequence[Mechanism],
    add_noise: NoiseSource,
) -> tuple[CellRelease, ...]:
    """Draw the noise of every question, and design the channels of its rows."""
    drawn = draw_together(totals, layout, spaces, mechanisms, add_noise)
    parts = zip(drawn, spaces, mechanisms, strict=True)
    return tuple(complete(one, layout, space, mechanism) for one, space, mechanism in parts)


def public_channels(
    layout: Layout, spaces: Sequence[Categories], mechanisms: Sequence[Mechanism]
) -> tuple[Channel, ...]:
    """The channel of every question, where all of them follow from what is public; else none."""
    found = []
    for space, mechanism in zip(spaces, mechanisms, strict=True):
        channel = public_channel(layout, space, mechanism)
        if channel is None:
            return ()
        found.append(channel)
    return tuple(found)


def channels_of(drawn: Sequence[CellRelease]) -> tuple[Channel, ...]:
    """The channel of every question; none where no rows are published."""
    return tuple(one.channel for one in drawn if one.channel is not None)
