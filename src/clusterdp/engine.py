"""What an engine is: two passes over a table, and the refusals that every engine shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from clusterdp.cells import Layout, default_control, find_arm
from clusterdp.encoding import TABLE_CHANGED, CellEncoder, Labels
from clusterdp.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from clusterdp.arrays import IntArray
    from clusterdp.batches import RowPublisher, Tally
    from clusterdp.encoding import Columns
    from clusterdp.fingerprint import Fingerprint
    from clusterdp.outcomes import OutcomeSpace
    from clusterdp.staging import FileSum


# What an engine calls its files of rows: one, or a folder of parts that many machines wrote.
UNITS, UNIT_PARTS = "units.parquet", "units"


class Counted(NamedTuple):
    """What pass 1 found, for the owner's side of the pipeline alone.

    Attributes:
        counts: N[cluster, arm, outcome].
        n_clipped: How many outcomes were clipped.
        seen: What was read.
        notices: What to tell the owner of this table, and nobody else.
    """

    counts: IntArray
    n_clipped: int
    seen: Fingerprint
    notices: tuple[str, ...] = ()


class WrittenRows(NamedTuple):
    """What pass 2 read and wrote.

    Attributes:
        seen: What was read.
        files: The files it wrote, by their names in the folder.
    """

    seen: Fingerprint
    files: dict[str, FileSum]


class Table(Protocol):
    """A table that an engine can read twice."""

    @property
    def columns(self) -> Columns:
        """Which column plays which part."""
        ...

    @property
    def space(self) -> OutcomeSpace:
        """The declared outcome space."""
        ...

    @property
    def clip(self) -> bool:
        """Whether outcomes beyond the ends of the space count as the nearest end."""
        ...

    def read_layout(self, control: Any) -> tuple[Layout, CellEncoder]:
        """Clusters, arms and sizes, from these two columns alone; and how to encode them."""
        ...

    def count(
        self, layout: Layout, encoder: CellEncoder, progress: Callable[[int], None] = ...
    ) -> Counted:
        """Pass 1: check every row and count outcomes."""
        ...

    def write_rows(
        self, publisher: RowPublisher, folder: str, progress: Callable[[int], None] = ...
    ) -> WrittenRows:
        """Pass 2: the published rows into a folder."""
        ...


def no_progress(n_rows: int) -> None:
    """Report to nobody."""


def to_layout(
    sizes: pl.DataFrame, cluster: str, arm: str, space: OutcomeSpace, control: Any
) -> tuple[Layout, CellEncoder]:
    """The layout of a table whose cells were counted, and how to encode its rows.

    Args:
        sizes: One row per cell, with its number of units in a column `size`.
        cluster: The column of clusters.
        arm: The column of arms.
        space: The declared outcome space.
        control: The control arm; None for the default.
    """
    if len(sizes) == 0:
        raise DataError("the table has no rows")
    for name, part in ((cluster, "cluster"), (arm, "arm")):
        gap = sizes[name].is_null()
        if sizes[name].dtype.is_float():
            gap = gap | sizes[name].is_nan()
        refuse_missing(name, part, int(sizes["size"].filter(gap).sum()))
    clusters, arms = Labels.of(sizes[cluster]), Labels.of(sizes[arm])
    encoder = CellEncoder(clusters=clusters, arms=arms)
    table = np.zeros((len(clusters.values), len(arms.values)), dtype=np.int64)
    cells = encoder.encode(sizes[cluster], sizes[arm])
    np.add.at(table.reshape(-1), cells, sizes["size"].to_numpy())
    labels = tuple(arms.values)
    layout = Layout(
        clusters=tuple(clusters.values),
        arms=labels,
        control=default_control(labels) if control is None else find_arm(labels, control),
        sizes=table,
        space=space,
    )
    return layout, encoder


def refuse_unsound(tally: Tally, table: Table) -> None:
    """Raise a DataError, which counts rows and shows no value, unless every row can be used."""
    columns = table.columns
    refuse_missing(columns.unit, "unit", tally.n_without_id)
    refuse_missing(columns.outcome, "outcome", tally.n_missing)
    if tally.n_outside:
        remedy = "declare a space that holds them" + (
            "" if table.clip else ", or clip (clip=True, --clip)"
        )
        raise DataError(
            f"column {columns.outcome!r} (outcome) has {tally.n_outside} rows outside the "
            f"outcome space of {table.space.n_outcomes} values; {remedy}"
        )


def refuse_repeated(n_repeated: int, unit: str) -> None:
    """Raise a DataError if a unit has more than one row."""
    if n_repeated:
        raise DataError(
            f"column {unit!r} (unit) repeats an id in {n_repeated} rows; privacy is promised per "
            "row, so each unit must have exactly one"
        )


def refuse_missing(name: str, part: str, n_missing: int) -> None:
    """Raise a DataError if a column has gaps."""
    if n_missing:
        raise DataError(
            f"column {name!r} ({part}) has {n_missing} missing values; every unit needs one"
        )


def to_counts(tally: Tally, layout: Layout) -> Counted:
    """What pass 1 found, if it adds up to the public sizes."""
    counts = tally.counts.reshape(*layout.sizes.shape, tally.n_outcomes)
    if not np.array_equal(counts.sum(axis=-1), layout.sizes):
        raise DataError(TABLE_CHANGED)
    return Counted(counts=counts, n_clipped=tally.n_clipped, seen=tally.seen)
