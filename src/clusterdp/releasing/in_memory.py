"""The release: the pipeline from a table to published rows and cells, in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from clusterdp.channels.disclosure import disclosure_notes
from clusterdp.channels.draw import check_exact, release_cells
from clusterdp.channels.noise import add_exact_noise
from clusterdp.engines.base import NO_ORDER_TO_KEEP
from clusterdp.engines.local.table import LocalTable
from clusterdp.engines.spark.frame import SparkFrame
from clusterdp.errors import DataError, ParameterError, notify_owner
from clusterdp.experiment.layout import POOLED_LABEL, Layout, pool_small_clusters
from clusterdp.mechanisms.parts import BudgetedResampling
from clusterdp.published.cells import cells_table
from clusterdp.published.release import Release
from clusterdp.rows.batches import RowEncoder, RowPublisher
from clusterdp.rows.encoding import TABLE_CHANGED, CellEncoder, Columns, plain_type
from clusterdp.rows.frames import (
    check_given_back,
    is_spark,
    read_frame,
    table_like,
    to_native,
    to_polars,
)
from clusterdp.rows.keys import ReleaseKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    import narwhals as nw
    import polars as pl

    from clusterdp.channels.noise import NoiseSource
    from clusterdp.engines.base import Table
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.rows.fingerprint import Fingerprint


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
    keep_order: bool = False,
    verbose: bool = False,
    allow_unencrypted_spark: bool = False,
) -> Release:
    """Privatize every outcome of an experiment's table.

    Each call spends the stated guarantee anew: two releases of the same people's outcomes add up.

    Args:
        frame: A pandas, Polars, PyArrow, DuckDB or Spark table with one row per unit. A Spark
            table is evaluated several times and must give the same rows each time; if it does not,
            checkpoint it.
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
        keep_order: Publish rows in the order of the table, which is then public, instead of the
            order of their ids. The order must not depend on outcomes.
        verbose: Say how many rows an error or a notice is about. For the owner's eyes alone: such
            numbers depend on true outcomes.
        allow_unencrypted_spark: Release a frame of a Spark cluster that does not encrypt what its
            machines store and send. Who can read their disks or their network can then learn the
            key of the release, and with it every outcome.

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
        keep_order=keep_order,
        verbose=verbose,
        key=ReleaseKey.from_system(),
        add_noise=add_exact_noise,
        allow_unencrypted_spark=allow_unencrypted_spark,
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
    keep_order: bool = False,
    verbose: bool = False,
    allow_unencrypted_spark: bool = False,
) -> Release:
    """The pipeline with its two sources of randomness given: the door for tests.

    With the same key and the same noise it gives the same release.
    """
    refuse_paper_accounting(mechanism)
    guarantee = mechanism.guarantee(outcomes)
    given = open_frame(
        frame,
        columns,
        outcomes,
        clip=clip,
        keep_order=keep_order,
        verbose=verbose,
        allow_unencrypted_spark=allow_unencrypted_spark,
    )
    table = given.table
    layout, encoder, notes = lay_out(table, control, min_cell_size)
    check_exact(layout, mechanism)
    told = disclosure_notes(mechanism, outcomes)
    counts, seen, notices = table.count(layout, encoder)
    for notice in notices:
        notify_owner(notice)
    about_cells = release_cells(counts, layout, mechanism, add_noise)
    units = None
    if about_cells.channel is not None:
        encode = RowEncoder(columns=columns, space=outcomes, clip=clip, cells=encoder)
        publisher = RowPublisher.of(encode, about_cells.channel, layout, key)
        units, again = given.randomized(publisher)
        if again != seen:
            raise DataError(TABLE_CHANGED)
    return Release(
        units=units,
        cells=given.like(cells_table(encoder, layout, about_cells)),
        mechanism=mechanism,
        guarantee=guarantee,
        columns=columns,
        layout=layout,
        summary=about_cells.summary,
        sums=about_cells.sums,
        channel=about_cells.channel,
        notes=(*notes, *told),
    )


class Frame(Protocol):
    """A frame of some library, as a table, and what is published as frames of that library."""

    @property
    def table(self) -> Table:
        """Its rows."""
        ...

    def randomized(self, publisher: RowPublisher) -> tuple[Any, Fingerprint]:
        """Pass 2: the published rows, evaluated once and for all, and what was read."""
        ...

    def like(self, published: pl.DataFrame) -> Any:
        """A table as a frame of the same library."""
        ...


def open_frame(  # noqa: PLR0913 - the parts of a table
    frame: Any,
    columns: Columns,
    space: OutcomeSpace,
    *,
    clip: bool,
    keep_order: bool,
    verbose: bool,
    allow_unencrypted_spark: bool,
) -> Frame:
    """Anyone's frame, with the engine that reads it."""
    if is_spark(frame):
        if keep_order:
            raise ParameterError(NO_ORDER_TO_KEEP)
        return SparkFrame.of(
            frame,
            columns,
            space,
            clip=clip,
            verbose=verbose,
            allow_unencrypted=allow_unencrypted_spark,
        )
    read = read_frame(frame)
    table = LocalTable(
        rows=to_polars(read, columns).lazy(),
        columns=columns,
        space=space,
        clip=clip,
        keep_order=keep_order,
        verbose=verbose,
    )
    schema = table.rows.collect_schema()
    published = {name: plain_type(schema[name]) for name in columns.public}
    check_given_back(read, frame, published)
    return LocalFrame(given=frame, read=read, table=table)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalFrame:
    """A frame of this process: any that narwhals knows.

    Attributes:
        given: The frame as it was given.
        read: The same, evaluated.
        table: Its rows.
    """

    given: Any
    read: nw.DataFrame[Any]
    table: LocalTable

    def randomized(self, publisher: RowPublisher) -> tuple[Any, Fingerprint]:
        """Pass 2."""
        published, seen = self.table.collect_rows(publisher)
        return self.like(published), seen

    def like(self, published: pl.DataFrame) -> Any:
        """A table as a frame of the same library."""
        return to_native(table_like(self.read, published), self.given)


def lay_out(
    table: Table, control: Any, min_cell_size: int | None
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
