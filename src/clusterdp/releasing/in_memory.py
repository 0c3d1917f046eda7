"""The release: the pipeline from a table to published rows and cells, in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.errors import TableChangedError, notify_owner
from clusterdp.published.cells import cells_table
from clusterdp.published.notes import release_notes
from clusterdp.published.release import Block, Release
from clusterdp.releasing.blocks import channels_of, check_blocks, describe, draw_blocks
from clusterdp.releasing.journal import Unrecorded
from clusterdp.releasing.labelling import label_first
from clusterdp.releasing.looking import look_first
from clusterdp.releasing.prepare import asked_of, prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.experiment.categories import Categories
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.rows.columns import Columns
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
    """Prepare a frame and release it in one block, with all randomness given, for tests.

    With the same key and the same noise it gives the same release. Choices are those of `prepare`.
    """
    prepared = prepare(frame, columns=columns, spaces=(space,), **choices)
    return release_in_memory(prepared, (mechanism,), key, add_noise)


def release_in_memory(
    prepared: Prepared, mechanisms: Sequence[Mechanism], key: ReleaseKey, add_noise: NoiseSource
) -> Release:
    """Privatize every outcome of a table; what is published are frames of its own library.

    Args:
        prepared: The table.
        mechanisms: What to publish of each block.
        key: Where the randomness of rows comes from.
        add_noise: Where noise on statistics comes from.
    """
    check_blocks(prepared, mechanisms)
    if prepared.labelling is not None:
        prepared = label_first(prepared, Unrecorded(key))
        check_blocks(prepared, mechanisms)
    prepared, mechanisms, look, before, _ = look_first(
        prepared, mechanisms, Unrecorded(key), add_noise
    )
    table, layout, encoder = prepared.table, prepared.layout, prepared.encoder
    manifest = describe(prepared, mechanisms, before)
    asked = [asked_of(mechanism, layout, key) for mechanism in mechanisms]
    found = table.count(layout, encoder, asked=asked)
    for notice in found.notices:
        notify_owner(notice)
    drawn = draw_blocks(found.totals, layout, table.spaces, mechanisms, add_noise)
    channels, units = channels_of(drawn), None
    if channels:
        units, again, notices = table.collect_rows(prepared.randomizer(channels, key))
        if again != found.seen:
            raise TableChangedError
        for notice in notices:
            notify_owner(notice)
    return Release(
        units=units,
        cells=table.like(cells_table(encoder, layout, drawn)),
        blocks=tuple(
            Block(space=space, mechanism=mechanism, statistics=one.statistics, channel=one.channel)
            for space, mechanism, one in zip(table.spaces, mechanisms, drawn, strict=True)
        ),
        guarantee=manifest.terms.to_guarantee(),
        columns=table.columns,
        layout=layout,
        notes=release_notes(manifest, layout, [one.channel for one in drawn]),
        look=look,
        response=prepared.response,
        assignment=prepared.assignment,
        provenance=prepared.provenance,
    )
