"""The first step of a release with private clusters: give every unit a label, and count cells.

The labels follow from the key of the release. Their counts are written down before anything is done
with them: from then on the budget stays spent. Whatever follows, pooling and refusals among it,
sees the given labels alone. All rows were checked when they were counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.cells.assignment import (
    Pooled,
    assignment_probs,
    check_assignment,
    expected_sizes,
    pool_small_clusters,
)
from clusterdp.engines.base import no_progress
from clusterdp.errors import DataError, ParameterError
from clusterdp.releasing.journal import KeptLabels
from clusterdp.rows.value_codes import ANOTHER_TABLE, Labels, NoisyLabels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.assignment import AssignmentProbs
    from clusterdp.cells.layout import Layout
    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.engines.base import Progress
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.rows.value_codes import CellEncoder


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLabels:
    """What an owner declares of private clusters.

    Attributes:
        response: The labels, and the response that they go through.
        shares: The share of units that each label is expected to have, for plans alone.
        assignment: Of every label, the probabilities of treatments as text; None if arms have the
            same in all of them.
    """

    response: ClusterResponse
    shares: tuple[float, ...]
    assignment: Mapping[str, str] | None = None

    def probs(self, layout: Layout) -> AssignmentProbs | None:
        """The declared probabilities of arms by label; None if they are alike."""
        return None if self.assignment is None else assignment_probs(self.assignment, layout)

    def expected(self, layout: Layout) -> Layout:
        """The cells to plan with: given labels and arms, of the sizes that are to be expected."""
        return self._expected(layout, self.response.probs())

    def unanswered(self, layout: Layout) -> Layout:
        """The same, if units were given their own labels."""
        return self._expected(layout, np.eye(self.response.n_labels))

    def _expected(self, layout: Layout, response: FloatArray) -> Layout:
        probs = self.probs(layout)
        sizes = expected_sizes(
            layout.sizes.sum(axis=0).tolist(),
            response,
            np.array(self.shares) / sum(self.shares),
            None if probs is None else np.array(probs),
        )
        return replace(layout, clusters=self.response.labels, sizes=sizes.astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """How units are given labels.

    Attributes:
        response: The labels, and the response that they go through.
        assignment: The declared probabilities of arms by label; None if they are alike.
        min_cell_size: Pool labels that expect fewer units than this in some arm into one.
    """

    response: ClusterResponse
    assignment: AssignmentProbs | None
    min_cell_size: int | None

    def __post_init__(self) -> None:
        if self.assignment is not None and self.min_cell_size is not None:
            raise ParameterError(
                "labels with probabilities of arms of their own cannot be pooled: leave out "
                "min_cell_size (--min-cell-size)"
            )

    def pool(self, layout: Layout) -> Pooled:
        """The cells after small ones were pooled, by given labels; checked."""
        if self.assignment is not None:
            layout.check()
            return Pooled(layout)
        check_assignment(layout)
        pooled = pool_small_clusters(layout, self.min_cell_size)
        pooled.layout.check()
        return pooled


def label_first(prepared: Prepared, journal: Journal, progress: Progress = no_progress) -> Prepared:
    """Give every unit a label, if clusters are private; a table with its cells counted by them.

    Raises:
        DataError: If a row breaks a rule, before anything is written down; if the table is not the
            one that an earlier run labelled; or if no label has units in every arm.
    """
    labelling = prepared.labelling
    if labelling is None:
        return prepared
    import polars as pl

    encoder = replace(
        prepared.encoder,
        clusters=Labels.listed(
            pl.Series(prepared.table.columns.noisy_name, labelling.response.labels)
        ),
        noisy=NoisyLabels.of(labelling.response, journal.key),
    )
    sizes = _count(prepared, encoder, journal, progress)
    pooled = labelling.pool(replace(prepared.layout, sizes=sizes))
    return replace(
        prepared,
        layout=pooled.layout,
        encoder=replace(encoder, pooled=pooled.regroup),
        pooling=pooled.pooling,
    )


def _count(
    prepared: Prepared, encoder: CellEncoder, journal: Journal, progress: Progress
) -> IntArray:
    """The units of cells that an earlier run counted, if there was one; else counted now."""
    stored = journal.recall_labels()
    kept = None if stored is None else KeptLabels.from_bytes(stored)
    if kept is None or journal.recall() is None:
        found = prepared.table.count_cells(prepared.layout, encoder, progress)
        tag = journal.key.tag(found.seen)
        if kept is None:
            journal.keep_labels(bytes(KeptLabels(sizes=found.sizes, table_tag=tag)))
            return found.sizes
        if kept.table_tag != tag:
            raise DataError(ANOTHER_TABLE)
    # Else the whole table was counted after it, and is compared with that.
    return kept.sizes
