"""Which profile released rows are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.profiles import Counted, Profiles
from clusterdp.published.row_counts import COUNT, released_cells, released_groups
from clusterdp.rows.columns import FOLD, RESPONSE
from clusterdp.rows.labels import Labels

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.published.release import Release

# The number of a row's profile; no column of a user has this name.
PROFILE = "__clusterdp_profile"
_PLACE = "__clusterdp_place"


class Profiling(NamedTuple):
    """What profiles are made of.

    Attributes:
        release: The release that rows are of.
        levels: The breakdowns that sums are published of.
        by_fold: Whether there are folds.
        holdout: The fold whose rows are used alone; None for all rows.
        assigned: The groups that were assigned to arms as a whole, once they are known; None if
            units were.
    """

    release: Release
    levels: tuple[tuple[str, ...], ...]
    by_fold: bool
    holdout: int | None
    assigned: Labels | None = None

    @classmethod
    def for_sums(cls, release: Release, *, use_sums: bool, holdout: int | None) -> Profiling:
        """As fine as the published sums that are used.

        Raises:
            ParameterError: If there is no such fold.
        """
        n_folds = release.layout.folds
        if holdout is not None and n_folds == 1:
            raise ParameterError(
                "the release has no folds to hold out; release with folds=2 (--folds 2), or use "
                'rows alone (use="rows", --rows-only) in a segment of your own'
            )
        if holdout is not None and holdout not in range(n_folds):
            raise ParameterError(f"holdout must be a fold from 0 to {n_folds - 1}, got {holdout!r}")
        statistics = (one for block in release.blocks for one in block.statistics)
        levels = dict.fromkeys(one.level for one in statistics if one.level is not None)
        used = tuple(level for level in levels if level) if use_sums else ()
        return cls(release, used, n_folds > 1, holdout)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a row's profile follows from."""
        fold = (FOLD,) if self.by_fold or self.holdout is not None else ()
        groups = (name for level in self.levels for name in level)
        columns = self.release.columns
        assigned = () if columns.assigned_by is None else (columns.assigned_by,)
        return tuple(dict.fromkeys((*columns.cell, *fold, *groups, *assigned)))

    def of(self, table: pl.DataFrame) -> ProfiledRows:
        """The profiles of counted rows.

        Args:
            table: All rows, counted by `names` and others.
        """
        if self.release.columns.assigned_by is not None and self.assigned is None:
            labels = Labels.of(table[self.release.columns.assigned_by])
            return self._replace(assigned=labels).of(table)
        table = self._held_out(table)
        parts = self._parts(table)
        keys, first, places = np.unique(self._key(parts), return_index=True, return_inverse=True)
        counts = table[COUNT].to_numpy()
        profiles = Profiles(
            cells=parts[0][first],
            sizes=np.bincount(places, counts, len(keys)).astype(np.int64),
            shape=self.release.layout.sizes.shape,
            folds=parts[1][first] if self.by_fold else None,
            groups={
                level: part[first] for level, part in zip(self.levels, parts[2:], strict=False)
            },
            assigned=None if self.assigned is None else parts[-1][first],
        )
        return ProfiledRows(self, profiles, keys, _with_profiles(table, places))

    def find(self, table: pl.DataFrame, keys: IntArray) -> pl.DataFrame:
        """Rows with their profiles, which are among those of some keys."""
        table = self._held_out(table)
        return _with_profiles(table, np.searchsorted(keys, self._key(self._parts(table))))

    def _held_out(self, table: pl.DataFrame) -> pl.DataFrame:
        import polars as pl

        return table if self.holdout is None else table.filter(pl.col(FOLD) == self.holdout)

    def _parts(self, table: pl.DataFrame) -> list[IntArray]:
        """Cell, fold and groups of each row; the fold is 0 where there is one."""
        cells = released_cells(table, self.release.columns, self.release.layout)
        folds = np.zeros_like(cells)
        if self.by_fold and self.holdout is None:
            held = table[FOLD]
            if not held.is_in(list(range(self.release.layout.folds))).all():
                raise DataError("the rows hold folds that the release does not have")
            folds = held.to_numpy().astype(np.int64)
        groups = [released_groups(table, level, self.release.layout) for level in self.levels]
        if self.assigned is not None:
            name = self.release.columns.assigned_by or ""
            groups.append(self.assigned.encode(table[name]).astype(np.int64))
        return [cells, folds, *groups]

    def _key(self, parts: list[IntArray]) -> IntArray:
        """One number per profile, in the order of cells."""
        layout = self.release.layout
        limits = [layout.folds, *(layout.n_groups(level) for level in self.levels)]
        if self.assigned is not None:
            limits.append(len(self.assigned.values))
        key = parts[0]
        for part, limit in zip(parts[1:], limits, strict=True):
            key = key * limit + part
        return key


@dataclass(frozen=True, slots=True, eq=False)
class ProfiledRows:
    """Counted rows with a column `PROFILE`, and what finds the profiles of others."""

    profiling: Profiling
    profiles: Profiles
    keys: IntArray
    table: pl.DataFrame

    def add_profiles(self, table: pl.DataFrame) -> pl.DataFrame:
        """Other counts of the same release with their profiles."""
        return self.profiling.find(table, self.keys)

    def places(self, values: pl.DataFrame) -> IntArray:
        """The profiles of combinations of values; −1 for those of a fold that is not used."""
        found = np.full(len(values), -1)
        held = self.add_profiles(values.with_row_index(_PLACE))
        found[held[_PLACE].to_numpy()] = held[PROFILE].to_numpy()
        return found

    @staticmethod
    def count(table: pl.DataFrame) -> Counted:
        """Counts by profile and response, in their order, from a table with both."""
        import polars as pl

        counts = table.group_by(PROFILE, RESPONSE).agg(pl.col(COUNT).sum())
        counts = counts.sort(PROFILE, RESPONSE)
        return Counted(*(counts[name].to_numpy() for name in (PROFILE, RESPONSE, COUNT)))


def _with_profiles(table: pl.DataFrame, places: IntArray) -> pl.DataFrame:
    import polars as pl

    return table.with_columns(pl.Series(PROFILE, places, dtype=pl.Int64))
