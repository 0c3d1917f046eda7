"""The release: the pipeline from a table to published rows and cells, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.errors import DataError, notify_owner
from clusterdp.mechanisms.disclosure import disclosure_notes
from clusterdp.mechanisms.draw import check_exact, release_cells
from clusterdp.published.cells import cells_table
from clusterdp.published.release import Release
from clusterdp.releasing.journal import Unrecorded
from clusterdp.releasing.looking import look_first
from clusterdp.releasing.prepare import asked_of, prepare
from clusterdp.rows.encoding import TABLE_CHANGED

if TYPE_CHECKING:
    from clusterdp.experiment.categories import Categories
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.rows.encoding import Columns
    from clusterdp.rows.keys import ReleaseKey
    from clusterdp.statistics.noise import NoiseSource


def run_release(  # noqa: PLR0913 - the parts of a table and the owner's choices, all by name
    frame: Any,
    *,
    mechanism: Mechanism,
    space: Categories,
    columns: Columns,
    key: ReleaseKey,
    add_noise: NoiseSource,
    **choices: Any,
) -> Release:
    """Prepare a frame and release it, with both sources of randomness given, for tests.

    With the same key and the same noise it gives the same release. Choices are those of `prepare`.
    """
    prepared = prepare(frame, columns=columns, space=space, **choices)
    return release_in_memory(prepared, mechanism, key, add_noise)


def release_in_memory(
    prepared: Prepared, mechanism: Mechanism, key: ReleaseKey, add_noise: NoiseSource
) -> Release:
    """Privatize every outcome of a table; what is published are frames of its own library."""
    check_exact(prepared.layout, prepared.table.space, mechanism)
    prepared, mechanism, look, _ = look_first(prepared, mechanism, Unrecorded(key), add_noise)
    table, layout, encoder = prepared.table, prepared.layout, prepared.encoder
    space = table.space
    disclosed = disclosure_notes(mechanism, space)
    found = table.count(layout, encoder, asked=asked_of(mechanism, layout, key))
    for notice in found.notices:
        notify_owner(notice)
    about_cells = release_cells(found.totals, layout, space, mechanism, add_noise)
    units = None
    if about_cells.channel is not None:
        units, again = table.collect_rows(prepared.randomizer(about_cells.channel, key))
        if again != found.seen:
            raise DataError(TABLE_CHANGED)
    return Release(
        units=units,
        cells=table.like(cells_table(encoder, layout, about_cells)),
        mechanism=mechanism,
        guarantee=mechanism.guarantee(space),
        columns=table.columns,
        layout=layout,
        space=space,
        statistics=about_cells.statistics,
        channel=about_cells.channel,
        notes=(*prepared.notes, *disclosed),
        look=look,
    )
