"""The release: the pipeline from a table to published rows and cells, in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.cells import POOLED_LABEL, Layout, count_cells, pool_small_clusters
from clusterdp.channel import Channel, design_channel
from clusterdp.errors import ParameterError
from clusterdp.frames import (
    DEBIASED,
    RELEASED,
    Columns,
    encode_rows,
    read_frame,
    table_like,
    to_native,
)
from clusterdp.mechanisms import BudgetedResampling, Mechanism
from clusterdp.noise import add_exact_noise
from clusterdp.randomize import RandomizedRows, RowRandomizer
from clusterdp.randomness import ReleaseKey
from clusterdp.row_order import check_row_order
from clusterdp.summary import ContrastSummary, CountSummary, Summary, draw_summary

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp.accounting import Guarantee
    from clusterdp.arrays import IntArray
    from clusterdp.frames import Rows
    from clusterdp.noise import NoiseSource
    from clusterdp.outcomes import OutcomeSpace

# Rows randomized at a time: words and look-ups of a batch stay in the processor's cache.
_BATCH_ROWS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Everything that is published, and nothing else: no true outcome, no key.

    Attributes:
        units: One row per unit, in the order given: unit, arm, cluster, `released_outcome`,
            `debiased_outcome`. A frame of the library that was given, without its index or
            metadata; or None when the mechanism publishes aggregates alone.
        cells: One row per (cluster, arm): size, noisy statistics, prior, decode values. Lists
            follow the order of `layout.space.values`. In a release of one histogram per arm
            (`cluster_free_dp`) the clusters of an arm repeat the arm's statistics.
        mechanism: What was run.
        guarantee: What the whole release costs.
        layout: Clusters, arms, cell sizes and the outcome space.
        summary: The noisy statistics, as arrays.
        channel: The channel of the rows, as arrays.
        released_counts: How often each outcome was released; axes `[cluster, arm, released]`.
        notes: What a reader should know about this release.
    """

    units: Any
    cells: Any
    mechanism: Mechanism
    guarantee: Guarantee
    layout: Layout
    summary: Summary | None
    channel: Channel | None
    released_counts: IntArray | None
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
        columns=Columns(unit=unit, arm=arm, cluster=cluster, outcome=outcome),
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
    _refuse_paper_accounting(mechanism)
    guarantee = mechanism.guarantee(outcomes)
    table = read_frame(frame)
    rows = encode_rows(table, columns, outcomes, clip=clip)
    rows, layout, notes = _lay_out(rows, columns, control, min_cell_size)
    counts = count_cells(rows.clusters, rows.arms, rows.outcomes, layout)
    check_row_order(rows.clusters, rows.arms, rows.outcomes, counts)
    summary = draw_summary(counts, layout, mechanism.summary, add_noise)
    channel = released_counts = units = None
    if mechanism.releases_rows:
        channel = design_channel(mechanism, layout, summary)
        randomizer = RowRandomizer.of(channel, key.for_outcome(columns.outcome))
        randomized = randomize_rows(rows, randomizer)
        released_counts = count_cells(rows.clusters, rows.arms, randomized.codes, layout)
        units = to_native(table_like(table, _units_table(rows, randomized)), frame)
    return Release(
        units=units,
        cells=to_native(table_like(table, _cells_table(columns, layout, summary, channel)), frame),
        mechanism=mechanism,
        guarantee=guarantee,
        layout=layout,
        summary=summary,
        channel=channel,
        released_counts=released_counts,
        notes=notes,
    )


def randomize_rows(rows: Rows, randomizer: RowRandomizer) -> RandomizedRows:
    """All rows, batch by batch on all cores."""
    n_rows = len(rows.outcomes)
    result = RandomizedRows(
        codes=np.empty(n_rows, np.uint16), released=np.empty(n_rows), debiased=np.empty(n_rows)
    )

    def randomize(start: int) -> None:
        batch = slice(start, start + _BATCH_ROWS)
        randomized = randomizer(
            rows.units[batch], rows.clusters[batch], rows.arms[batch], rows.outcomes[batch]
        )
        for whole, part in zip(result, randomized, strict=True):
            whole[batch] = part

    with ThreadPoolExecutor() as threads:
        # Draining the iterator raises what a batch raised.
        list(threads.map(randomize, range(0, n_rows, _BATCH_ROWS)))
    return result


def _refuse_paper_accounting(mechanism: Mechanism) -> None:
    strength = mechanism.resampling
    if isinstance(strength, BudgetedResampling) and strength.accounting == "paper":
        raise ParameterError(
            'a budget solved with accounting="paper" understates the loss; it serves simulations '
            "that reproduce the paper, and cannot be released"
        )


def _lay_out(
    rows: Rows, columns: Columns, control: Any, min_cell_size: int | None
) -> tuple[Rows, Layout, tuple[str, ...]]:
    """The cells of the rows, with small clusters pooled when that was asked for."""
    layout = rows.layout(control)
    notes: tuple[str, ...] = ()
    if min_cell_size is not None:
        pooled, recode = pool_small_clusters(layout, min_cell_size)
        if pooled is not layout:
            n_pooled = len(layout.clusters) - len(pooled.clusters) + 1
            notes = (
                (
                    f"{n_pooled} clusters with fewer than {min_cell_size} units in some arm were "
                    f"pooled into {POOLED_LABEL!r} ({int(pooled.sizes[-1].sum())} units)"
                ),
            )
            rows = rows.with_clusters(columns.cluster, recode[rows.clusters], pooled.clusters)
            layout = pooled
    layout.check()
    return rows, layout, notes


def _units_table(rows: Rows, randomized: RandomizedRows) -> pl.DataFrame:
    """The published table of units: three public columns and two private ones, nothing else."""
    import polars as pl

    return rows.public.with_columns(
        pl.Series(RELEASED, randomized.released), pl.Series(DEBIASED, randomized.debiased)
    )


def _cells_table(
    columns: Columns, layout: Layout, summary: Summary | None, channel: Channel | None
) -> pl.DataFrame:
    """The published table of cells; lists follow the order of the outcome space."""
    import polars as pl

    n_clusters, n_arms = layout.sizes.shape
    published = [
        pl.Series(columns.cluster, layout.clusters).gather(
            np.repeat(np.arange(n_clusters), n_arms)
        ),
        pl.Series(columns.arm, layout.arms).gather(np.tile(np.arange(n_arms), n_clusters)),
        pl.Series("size", layout.sizes.ravel()),
    ]
    if isinstance(summary, CountSummary):
        published.append(_list_column("noisy_counts", summary.noisy_counts, summary.groups))
    if isinstance(summary, ContrastSummary):
        contrasts = np.full(layout.sizes.shape, np.nan)
        contrasts[:, list(layout.treatments)] = summary.contrasts
        # Contrasts stand beside the treatment cells they belong to; control cells have none.
        published.append(pl.Series("noisy_contrast", contrasts.ravel()).fill_nan(None))
    if channel is not None:
        published.append(_list_column("prior", channel.prior(), channel.groups))
        published.append(_list_column("decode", channel.decode(), channel.groups))
    return pl.DataFrame(published)


def _list_column(name: str, by_group: npt.NDArray[Any], groups: IntArray) -> pl.Series:
    import polars as pl

    return pl.Series(name, by_group[groups.ravel()]).arr.to_list()
