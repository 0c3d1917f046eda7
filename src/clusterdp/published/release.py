"""A release as a value: everything that is published, whatever it is kept in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._words import counted

if TYPE_CHECKING:
    from clusterdp.channels.design import Channel
    from clusterdp.channels.statistics import Summary, SumSummary
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.rows.encoding import Columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Everything that is published, and nothing else: no true outcome, no key.

    Attributes:
        units: One row per unit, in the order of ids: unit, arm, cluster, `released_outcome`,
            `debiased_outcome`. A frame of the library that was given, without its index or
            metadata; or None when the mechanism publishes aggregates alone.
        cells: One row per (cluster, arm): size, noisy statistics, and the prior and decode values
            or the number of the channel. Lists follow the order of `layout.space.values`. In a
            release of one histogram per arm (`cluster_free_dp`) the clusters of an arm repeat the
            arm's statistics.
        mechanism: What was run.
        guarantee: What the whole release costs.
        columns: The names of the published columns.
        layout: Clusters, arms, cell sizes and the outcome space.
        summary: The noisy statistics, as arrays.
        sums: The noisy sums that estimates are calibrated by, as arrays.
        channel: The channel of the rows, as arrays.
        notes: What a reader should know about this release.
    """

    units: Any
    cells: Any
    mechanism: Mechanism
    guarantee: Guarantee
    columns: Columns
    layout: Layout
    summary: Summary | None
    sums: SumSummary | None
    channel: Channel | None
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [
            (
                f"{self.mechanism.name} release of {counted(self.layout.n_units, 'unit')} in "
                f"{counted(len(self.layout.clusters), 'cluster')} and {len(self.layout.arms)} arms"
            ),
            f"  {self.guarantee}",
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)
