"""The first step of a release with private clusters: give every unit a label, and count cells.

The labels follow from the key of the release. Their counts are written down before anything is done
with them: from then on the budget stays spent. Whatever follows, pooling and refusals among it,
sees the given labels alone. All rows were checked when they were counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clusterdp._progress import no_progress
from clusterdp.errors import DataError
from clusterdp.releasing.journal import KeptLabels
from clusterdp.rows.keys import KeyRing
from clusterdp.rows.tally import CountRequest
from clusterdp.rows.value_codes import ANOTHER_TABLE, ValueCodes

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp._progress import RowsDone
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.rows.value_codes import CellEncoder


def label_first(prepared: Prepared, journal: Journal, progress: RowsDone = no_progress) -> Prepared:
    """Give every unit a label, if clusters are private; a table with its cells counted by them.

    Raises:
        DataError: If a row breaks a rule, before anything is written down; if the table is not the
            one that an earlier run labelled; or if no label has units in every arm.
    """
    response = prepared.clusters.response
    if response is None:
        return prepared
    import polars as pl

    encoder = replace(
        prepared.encoder,
        clusters=ValueCodes.from_values(
            pl.Series(prepared.table.columns.noisy_name, response.labels)
        ),
        response=response,
    )
    sizes = _count(prepared, encoder, journal, progress)
    pooled = prepared.clusters.pool(replace(prepared.layout, sizes=sizes))
    return replace(
        prepared,
        layout=pooled.layout,
        encoder=replace(encoder, pooled=pooled.regroup),
        pooling=pooled.pooling,
    )


def _count(
    prepared: Prepared, encoder: CellEncoder, journal: Journal, progress: RowsDone
) -> IntArray:
    """The units of cells that an earlier run counted, if there was one; else counted now."""
    stored = journal.recall_labels()
    kept = None if stored is None else KeptLabels.from_bytes(stored)
    if kept is None or journal.recall() is None:
        counts = [CountRequest()] * len(prepared.table.spaces)
        counting = replace(prepared, encoder=encoder, asking=None).pass_with(
            KeyRing(journal.key), counts=counts, is_first=True, progress=progress
        )
        found = prepared.table.run(counting)
        tag = journal.key.tag(found.seen)
        if kept is None:
            sizes = found.counted.sizes[0]
            journal.keep_labels(bytes(KeptLabels(sizes=sizes, table_tag=tag)))
            return sizes
        if kept.table_tag != tag:
            raise DataError(ANOTHER_TABLE)
    # Else the whole table was counted after it, and is compared with that.
    return kept.sizes
