"""The release: the pipeline from a table to published rows and cells, in memory."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.cells import POOLED_LABEL, Layout, pool_small_clusters
from clusterdp.designed import DesignedChannel
from clusterdp.encoding import RELEASED, TABLE_CHANGED, CellEncoder, Columns
from clusterdp.engine import LocalTable
from clusterdp.errors import DataError, OwnerNotice, ParameterError
from clusterdp.fingerprint import Fingerprint
from clusterdp.frames import read_frame, table_like, to_native, to_polars
from clusterdp.noise import add_exact_noise
from clusterdp.randomize import RowRandomizer
from clusterdp.randomness import ReleaseKey
from clusterdp.recipes import BudgetedResampling
from clusterdp.stages import release_cells
from clusterdp.summary import ContrastSummary, CountSummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import polars as pl

    from clusterdp.accounting import Guarantee
    from clusterdp.arrays import IntArray
    from clusterdp.channel import Channel
    from clusterdp.mechanisms import Mechanism
    from clusterdp.noise import NoiseSource
    from clusterdp.outcomes import OutcomeSpace
    from clusterdp.stages import CellRelease
    from clusterdp.summary import Summary, SumSummary


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Everything that is published, and nothing else: no true outcome, no key.

    Attributes:
        units: One row per unit, in the order given: unit, arm, cluster, `released_outcome`,
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
                f"{self.mechanism.name} release of {self.layout.n_units:,} units "
                f"in {len(self.layout.clusters):,} clusters and {len(self.layout.arms)} arms"
            ),
            f"  {self.guarantee}",
            *(f"  note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def release(  # noqa: PLR0913 - the parts of a table and the owner's choices, all by name
    frame: Any,
    *,
    mechanism: Mechanism,
    outcomes: OutcomeSpace,
    unit: str,
    arm: str,
    cluster: str,
    outcome: str,
    keep: Sequence[str] = (),
    control: Any = None,
    clip: bool = False,
    min_cell_size: int | None = None,
) -> Release:
    """Privatize every outcome of an experiment's table.

    Each call spends the stated guarantee anew: two releases of the same people's outcomes add up.

    Args:
        frame: A pandas, Polars, PyArrow or DuckDB table with one row per unit.
        mechanism: From a builder such as `cluster_dp`.
        outcomes: The declared outcome space.
        unit: The column of ids, integers or strings.
        arm: The column of treatment arms.
        cluster: The column of public clusters.
        outcome: The column of sensitive outcomes.
        keep: Public columns to publish as they are.
        control: The control arm. Needed unless the arms are 0 and 1.
        clip: Move outcomes beyond the ends of the space to the nearest end, instead of an error.
        min_cell_size: Pool clusters with fewer units than this in some arm into one cluster.

    Raises:
        DataError: If the table breaks a rule.
        ParameterError: If a parameter is out of range.
    """
    return run_release(
        frame,
        mechanism=mechanism,
        outcomes=outcomes,
        columns=Columns(unit=unit, arm=arm, cluster=cluster, outcome=outcome, kept=tuple(keep)),
        control=control,
        clip=clip,
        min_cell_size=min_cell_size,
        key=ReleaseKey.from_system(),
        add_noise=add_exact_noise,
    )


def run_release(  # noqa: PLR0913 - as `release`
    frame: Any,
    *,
    mechanism: Mechanism,
    outcomes: OutcomeSpace,
    columns: Columns,
    control: Any,
    clip: bool,
    min_cell_size: int | None,
    key: ReleaseKey,
    add_noise: NoiseSource,
) -> Release:
    """The pipeline with its two sources of randomness given: the door for tests.

    With the same key and the same noise it gives the same release.
    """
    refuse_paper_accounting(mechanism)
    guarantee = mechanism.guarantee(outcomes)
    given = read_frame(frame)
    table = LocalTable(
        rows=to_polars(given, columns).lazy(), columns=columns, space=outcomes, clip=clip
    )
    layout, encoder, notes = lay_out(table, control, min_cell_size)
    counts, n_clipped, seen = table.count(layout, encoder)
    if n_clipped:
        message = f"{n_clipped} outcomes were clipped to the ends of the outcome space"
        # Past run_release and release: at the owner's own line.
        warnings.warn(message, OwnerNotice, stacklevel=3)
    about_cells = release_cells(counts, layout, mechanism, add_noise)
    units = None
    if about_cells.channel is not None:
        channel = about_cells.channel
        randomizer = RowRandomizer.of(channel, outcomes, key.for_outcome(columns.outcome))
        again = Fingerprint()
        rows = table.randomize(layout, encoder, randomizer, again)
        published = rows.collect(engine="streaming")
        if not again.matches(seen):
            raise DataError(TABLE_CHANGED)
        units = to_native(table_like(given, published), frame)
    cells = cells_table(encoder, layout, about_cells)
    return Release(
        units=units,
        cells=to_native(table_like(given, cells), frame),
        mechanism=mechanism,
        guarantee=guarantee,
        columns=columns,
        layout=layout,
        summary=about_cells.summary,
        sums=about_cells.sums,
        channel=about_cells.channel,
        notes=notes,
    )


def lay_out(
    table: LocalTable, control: Any, min_cell_size: int | None
) -> tuple[Layout, CellEncoder, tuple[str, ...]]:
    """The cells of a table, from public columns alone; small clusters pooled if asked for."""
    return pool(*table.read_layout(control), min_cell_size)


def pool(
    layout: Layout, encoder: CellEncoder, min_cell_size: int | None
) -> tuple[Layout, CellEncoder, tuple[str, ...]]:
    """The cells after pooling, if asked for, and what is to be said about it."""
    notes: tuple[str, ...] = ()
    if min_cell_size is not None:
        pooled, regroup = pool_small_clusters(layout, min_cell_size)
        if pooled is not layout:
            n_pooled = len(layout.clusters) - len(pooled.clusters) + 1
            notes = (
                (
                    f"{n_pooled} clusters with fewer than {min_cell_size} units in some arm were "
                    f"pooled into {POOLED_LABEL!r} ({int(pooled.sizes[-1].sum())} units)"
                ),
            )
            layout, encoder = pooled, replace(encoder, pooled=regroup)
    layout.check()
    return layout, encoder, notes


def refuse_paper_accounting(mechanism: Mechanism) -> None:
    """Raise a ParameterError if the mechanism's budget was solved the paper's way."""
    strength = mechanism.rows
    if isinstance(strength, BudgetedResampling) and strength.accounting == "paper":
        raise ParameterError(
            'a budget solved with accounting="paper" understates the loss; it serves simulations '
            "that reproduce the paper, and cannot be released"
        )


def cells_table(encoder: CellEncoder, layout: Layout, about_cells: CellRelease) -> pl.DataFrame:
    """The published table of cells; lists follow the order of the outcome space."""
    import polars as pl

    summary, sums, channel = about_cells

    n_clusters, n_arms = layout.sizes.shape
    clusters, arms = encoder.clusters.values, encoder.arms.values
    if encoder.pooled is not None:
        clusters = pl.Series(clusters.name, layout.clusters)
    published = [
        clusters.gather(np.repeat(np.arange(n_clusters), n_arms)),
        arms.gather(np.tile(np.arange(n_arms), n_clusters)),
        pl.Series("size", layout.sizes.ravel()),
    ]
    if isinstance(summary, CountSummary):
        published.append(_list_column("noisy_counts", summary.noisy_counts, summary.groups))
    if isinstance(summary, ContrastSummary):
        contrasts = np.full(layout.sizes.shape, np.nan)
        contrasts[:, list(layout.treatments)] = summary.contrasts
        # Contrasts stand beside the treatment cells they belong to; control cells have none.
        published.append(pl.Series("noisy_contrast", contrasts.ravel()).fill_nan(None))
    if sums is not None:
        published.append(pl.Series("noisy_sum", sums.sums.ravel()))
        if sums.squares is not None:
            published.append(pl.Series("noisy_squares", sums.squares.ravel()))
    if isinstance(channel, DesignedChannel):
        published.append(pl.Series("channel", channel.groups.ravel()))
    elif channel is not None:
        published.append(_list_column("prior", channel.prior(), channel.groups))
        published.append(_list_column("decode", channel.decode(), channel.groups))
    return pl.DataFrame(published)


def channels_table(channel: DesignedChannel) -> pl.DataFrame:
    """The published table of designed channels: one row per output.

    `weights` follow the order of the outcome space: P(released | outcome) is weight / 2^48.
    """
    import polars as pl

    n_channels, n_outputs = channel.numbers.shape
    possible = channel.tables.any(axis=1).ravel()
    weights = channel.tables.swapaxes(1, 2).reshape(-1, len(channel.values))
    return pl.DataFrame(
        {
            "channel": np.repeat(np.arange(n_channels), n_outputs)[possible],
            RELEASED: channel.numbers.ravel()[possible],
            "weights": pl.Series(weights[possible]).arr.to_list(),
        }
    )


def _list_column(name: str, by_group: npt.NDArray[Any], groups: IntArray) -> pl.Series:
    import polars as pl

    return pl.Series(name, by_group[groups.ravel()]).arr.to_list()
