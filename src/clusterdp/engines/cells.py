"""The public cells of a table: which columns make them, and the layout that they make.

Clusters may be crossed from several columns, `"a,b"`, whichever engine reads them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp._text import counted
from clusterdp.cells.layout import (
    EVERYONE,
    AssignedGroups,
    Breakdown,
    Layout,
    default_control,
    find_arm,
)
from clusterdp.errors import DataError, missing_column
from clusterdp.rows.column_types import check_type
from clusterdp.rows.value_codes import CellEncoder, ValueCodes, n_unplain
from clusterdp.sources.source import ColumnRequest
from clusterdp.spec.columns import PRIVATE_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.spec.columns import Columns

# More groups of a breakdown would each be a handful of units.
MOST_GROUPS = 10_000


class CellOptions(NamedTuple):
    """What is needed to read the cells of a table, and nothing else of it.

    Attributes:
        columns: Which column plays which part. Of a private cluster, nothing is read.
        control: The control arm; None for the default.
        size: The column with the number of units that a row stands for; None if each is one.
        several_rows: Whether a unit may have several rows, and is counted once.
    """

    columns: Columns
    control: Any = None
    size: str | None = None
    several_rows: bool = False

    @property
    def cluster(self) -> str | None:
        """The column of public clusters; `"a,b"` crosses two. None without public clusters."""
        return None if self.columns.private_cluster else self.columns.cluster

    @property
    def groups(self) -> dict[str, str]:
        """The columns that units are counted by, with the parts they play."""
        columns = self.columns
        cut_by = (name for names in columns.breakdowns for name in names)
        named = {
            columns.randomization_unit: "randomization unit",
            self.cluster: "cluster",
            columns.arm: "arm",
        }
        return {
            **dict.fromkeys(cut_by, "breakdown"),
            **{name: part for name, part in named.items() if name is not None},
        }

    @property
    def parts(self) -> dict[str, str]:
        """The columns that cells follow from, with the parts they play."""
        more = {} if self.size is None else {self.size: "size"}
        return self.groups | more | ({self.columns.unit: "unit"} if self.several_rows else {})

    @property
    def checked(self) -> dict[str, str]:
        """What else a release needs that is public; empty for a table of cells."""
        if self.size is not None:
            return {}
        ids = {self.columns.unit: "unit"} if self.columns.unit else {}
        return ids | {name: "passthrough" for name in self.columns.kept if name not in self.groups}

    @property
    def needed(self) -> dict[str, str]:
        """All columns that a table must have, with the parts they play."""
        columns = self.columns
        is_private = columns.private_cluster and columns.cluster is not None
        private = {str(columns.cluster): PRIVATE_CLUSTER} if is_private else {}
        return self.parts | self.checked | private

    @property
    def wanted(self) -> ColumnRequest:
        """What a table by name is read for."""
        public = {*self.parts, *self.checked, *possible_parts(self.cluster)}
        return ColumnRequest(public=public, unit=self.columns.unit or None)


def check_cell_columns(schema: Mapping[str, Any], asked: CellOptions) -> None:
    """Raise a DataError unless columns that a plan or a release reads hold what they may."""
    cut_by = {name for names in asked.columns.breakdowns for name in names}
    for name, part in (asked.groups | asked.checked).items():
        check_type(name, "breakdown" if name in cut_by else part, schema[name])
    if asked.size is not None and not schema[asked.size].is_integer():
        raise DataError(f"column {asked.size!r} (size) must hold whole numbers")


def to_layout(sizes: pl.DataFrame, asked: CellOptions) -> tuple[Layout, CellEncoder]:
    """The layout of a table whose cells were counted, and how to encode its rows.

    Args:
        sizes: One row for every combination of the columns `CellOptions.groups`, which come first,
            by any names; then its number of units, `size`, and of rows, `n_rows`.
        asked: Which columns they are.
    """
    import polars as pl

    columns, control, arm = asked.columns, asked.control, asked.columns.arm
    if len(sizes) == 0:
        raise DataError("the table has no rows")
    size, n_rows = sizes["size"], sizes["n_rows"]
    sizes = sizes.select(pl.nth(range(len(asked.groups))))
    sizes.columns = list(asked.groups)
    n_several = int((n_rows > 1).sum())
    if asked.size is not None and n_several:
        raise DataError(
            f"with column {asked.size!r} (size) the table must have one row per cluster and arm; "
            f"{counted(n_several, 'cell')} of it have several"
        )
    for name, part in asked.groups.items():
        values = unnamed(sizes[name])
        gap = values.is_null()
        if values.dtype.is_float():
            gap = gap | values.is_nan()
        refuse_missing(name, part, int(size.filter(gap).sum()))
        if n_unplain(sizes[name]):
            raise unplain(name, part)
    arms = ValueCodes.from_column(sizes[arm])
    assigned = _assigned_groups(sizes, columns, size, arms)
    encoder = CellEncoder(
        clusters=None if asked.cluster is None else ValueCodes.from_column(sizes[asked.cluster]),
        arms=arms,
        breakdowns={
            name: ValueCodes.from_column(sizes[name])
            for names in columns.breakdowns
            for name in names
        },
    )
    clusters = (EVERYONE,) if encoder.clusters is None else tuple(encoder.clusters.values)
    labels = tuple(arms.values)
    n_units, n_arms = size.to_numpy(), len(labels)

    def count(groups: IntArray, n_groups: int) -> IntArray:
        table = np.zeros((n_groups, n_arms), dtype=np.int64)
        np.add.at(table, (groups, arms.encode(sizes[arm])), n_units)
        return table

    cells = encoder.encode(sizes, asked.cluster, arm) // n_arms
    breakdowns = []
    for names in columns.breakdowns:
        groups = tuple(tuple(encoder.breakdowns[name].values.cast(pl.String)) for name in names)
        n_groups = math.prod(map(len, groups))
        if n_groups > MOST_GROUPS:
            raise DataError(
                f"the breakdown by {', '.join(names)} has {n_groups:,} groups, at most "
                f"{MOST_GROUPS:,} are possible; give fewer columns, or columns with fewer values"
            )
        found = count(encoder.groups(sizes, names), n_groups)
        # Groups that were assigned as a whole show how much groups differ.
        if (found > 0).sum(axis=1).max() < 2 and names != (columns.randomization_unit,):
            raise DataError(
                f"every group of the breakdown by {','.join(names)} has units in one arm only, so "
                "effects cannot be estimated there; leave it out (breakdown=..., --breakdown)"
            )
        breakdowns.append(Breakdown(columns=names, labels=groups, sizes=found))
    layout = Layout(
        clusters=clusters,
        arms=labels,
        control=default_control(labels) if control is None else find_arm(labels, control),
        sizes=count(cells, len(clusters)),
        breakdowns=tuple(breakdowns),
        folds=columns.folds,
        assigned=assigned,
    )
    return layout, encoder


def _assigned_groups(
    sizes: pl.DataFrame, columns: Columns, n_units: pl.Series, arms: ValueCodes
) -> AssignedGroups | None:
    """The groups that were assigned to arms as a whole; None if units were.

    Raises:
        DataError: If a group has several arms.
    """
    import polars as pl

    if columns.randomization_unit is None:
        return None
    named = pl.DataFrame(
        {
            "group": sizes[columns.randomization_unit],
            "arm": arms.encode(sizes[columns.arm]),
            "size": n_units,
        }
    )
    arm = pl.col("arm")
    groups = named.group_by("group").agg(arm.first(), pl.col("size").sum(), n_arms=arm.n_unique())
    n_several = int((groups["n_arms"] > 1).sum())
    if n_several:
        raise DataError(
            f"{counted(n_several, 'group')} of {columns.randomization_unit!r} have units in "
            "several arms, so it is not what was randomized; leave out randomization_unit "
            "(--randomization-unit), or name the column that was"
        )
    return AssignedGroups.from_sizes(groups["arm"].to_list(), groups["size"].to_list())


def refuse_missing(name: str, part: str, n_missing: int) -> None:
    """Raise a DataError if a column has gaps."""
    if n_missing:
        fill = "" if part == "unit" else "fill the gaps (with a label such as 'unknown'), or "
        raise DataError(
            f"column {name!r} ({part}) has {counted(n_missing, 'missing value')}, and every unit "
            f"needs one; {fill}leave these rows out"
        )


def unplain(name: str, part: str) -> DataError:
    """What to raise where a column has texts that cannot be shown everywhere."""
    return DataError(
        f"column {name!r} ({part}) has text with control characters, or with ones that cannot be "
        "seen; remove these from the table"
    )


def crossed_parts(names: list[str], name: str | None, secret: tuple[str, ...]) -> list[str]:
    """The columns that a column `"a,b,c"` is to be crossed from; none if it is a column itself.

    Raises:
        DataError: As `cross_columns`.
    """
    parts = possible_parts(name)
    if name in names or len(parts) < 2:
        return []
    if set(parts) & set(secret):
        raise DataError(f"clusters are public: {name!r} cannot be crossed from ids or outcomes")
    missing = [part for part in parts if part not in names]
    if missing:
        raise missing_column(missing[0], "cluster", names, "to cross")
    return parts


def check_named(names: list[str], parts: Mapping[str, str], secret: tuple[str, ...] = ()) -> None:
    """Raise a DataError unless a table has the columns that are needed, or what they cross.

    Args:
        names: All columns of the table.
        parts: The columns that are needed, with the parts they play.
        secret: Columns that cannot be crossed: ids and outcomes.
    """
    for name, part in parts.items():
        is_crossed = part == "cluster" and crossed_parts(names, name, secret)
        if part == PRIVATE_CLUSTER and crossed_parts(names, name, secret[:1]):
            raise crossed_private(name)
        if name not in names and not is_crossed:
            raise missing_column(name, part, names)


def crossed_private(name: str | None) -> DataError:
    """What to raise where a private cluster would be crossed from several columns."""
    return DataError(
        f"a private cluster is one column, and {name!r} names several: add a column to the table "
        "that combines them"
    )


def possible_parts(name: str | None) -> list[str]:
    """The columns that a column `"a,b,c"` would be crossed from; none if it is None."""
    return [] if name is None else [part.strip() for part in name.split(",")]
