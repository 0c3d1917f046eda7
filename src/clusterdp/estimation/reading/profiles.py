"""Profiles: the finest public partition of units that published sums distinguish.

Units of a profile are in the same cell, fold and groups. Estimates read released rows as sums over
profiles, so that fifty million rows become as many numbers as there are profiles.

Which profile released rows belong to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.cells.layout import Layout
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.reading.request import EstimateRequest
from clusterdp.published.release import Release
from clusterdp.published.rows import COUNT, released_cells, released_groups
from clusterdp.rows.value_codes import ValueCodes
from clusterdp.spec.columns import FOLD, RESPONSE

if TYPE_CHECKING:
    import polars as pl
    from scipy.sparse import csr_array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profiles:
    """The cell, fold and groups of each profile; axes of arrays `[profile]`.

    Attributes:
        cells: Places in a flat `[cluster, arm]` array.
        sizes: Numbers of units, all of them released.
        shape: How many clusters and arms there are.
        folds: The fold of each; None where there is one.
        groups: The group of each, for every breakdown that sums are published of.
        assigned: The group that was assigned to an arm as a whole; None if units were.
        folders: The folder of each, where several are estimated together; None where there is one.
        starts: The first cluster of each folder.
        released: The arm of each as released, where arms are merged; None if they are not.
    """

    cells: IntArray
    sizes: IntArray
    shape: tuple[int, int]
    folds: IntArray | None
    groups: Mapping[tuple[str, ...], IntArray]
    assigned: IntArray | None = None
    folders: IntArray | None = None
    starts: tuple[int, ...] = (0,)
    released: IntArray | None = None

    @classmethod
    def from_layout(cls, layout: Layout) -> Profiles:
        """Every cell as a profile: where no sum distinguishes more."""
        cells, sizes = np.arange(layout.sizes.size), layout.sizes.ravel()
        return cls(cells=cells, sizes=sizes, shape=layout.sizes.shape, folds=None, groups={})

    @property
    def arms(self) -> IntArray:
        """The arm of each profile."""
        return np.asarray(self.cells % self.shape[1])

    @property
    def clusters(self) -> IntArray:
        """The cluster of each profile."""
        return np.asarray(self.cells // self.shape[1])

    @property
    def released_arms(self) -> IntArray:
        """The arm of each profile as released, which has its own totals and channels."""
        return self.arms if self.released is None else self.released

    def released_cells(self, n_arms: int) -> IntArray:
        """Places in a flat `[cluster, arm]` array of all released arms."""
        return np.asarray(self.clusters * n_arms + self.released_arms)

    def chosen(self, places: IntArray) -> Profiles:
        """Some of the profiles."""
        return Profiles(
            cells=self.cells[places],
            sizes=self.sizes[places],
            shape=self.shape,
            folds=None if self.folds is None else self.folds[places],
            groups={by: groups[places] for by, groups in self.groups.items()},
            assigned=None if self.assigned is None else self.assigned[places],
            folders=None if self.folders is None else self.folders[places],
            starts=self.starts,
            released=None if self.released is None else self.released[places],
        )

    def of_folder(self, folder: int) -> tuple[IntArray, Profiles]:
        """The places of a folder's profiles, and these with cells as in the folder itself."""
        if self.folders is None:
            return np.arange(len(self.cells)), self
        places = np.flatnonzero(self.folders == folder)
        chosen = self.chosen(places)
        cells = chosen.cells - self.starts[folder] * self.shape[1]
        return places, replace(chosen, cells=cells, folders=None)

    def sum_cells(self, terms: FloatArray | IntArray) -> FloatArray:
        """Sums over the profiles of each cell; from `[..., profile]` to `[..., cluster, arm]`."""
        n_cells = self.shape[0] * self.shape[1]
        if np.array_equal(self.cells, np.arange(n_cells)):
            return np.asarray(terms, np.float64).reshape(*terms.shape[:-1], *self.shape)
        return sums_by(self.cells, terms, n_cells).reshape(*terms.shape[:-1], *self.shape)


class ResponseCounts(NamedTuple):
    """Rows counted by profile and response; axes `[entry]`.

    A response that the channel does not have, the number of its outputs, means "not asked".
    """

    profiles: IntArray
    responses: IntArray
    counts: IntArray

    def cell_sizes(self, profiles: Profiles, n_outputs: int | None = None) -> IntArray:
        """The units of cells; axes `[cluster, arm]`.

        Args:
            profiles: How profiles are made.
            n_outputs: How many outputs the channel has, to count those alone who were asked.
        """
        asked = True if n_outputs is None else self.responses < n_outputs
        sizes = sums_by(self.profiles, self.counts * asked, len(profiles.cells))
        return profiles.sum_cells(sizes).astype(np.int64)


def sums_by(groups: IntArray, terms: FloatArray | IntArray, n_groups: int) -> FloatArray:
    """Sums over the entries of each group; from `[..., entry]` to `[..., group]`."""
    flat = terms.reshape(math.prod(terms.shape[:-1]), terms.shape[-1])
    sums = [np.bincount(groups, row, n_groups) for row in flat]
    return np.asarray(sums, np.float64).reshape(*terms.shape[:-1], n_groups)


def spread_cells(of_cells: FloatArray, profiles: Profiles, arms: list[int]) -> FloatArray:
    """Numbers of cells of some arms, for every profile: zero in those of other arms.

    From `[..., cluster, arm]` to `[..., arm, profile]`, arms in the order given.
    """
    by_arm = np.moveaxis(of_cells, -1, -2)[..., profiles.clusters]
    return np.where(profiles.arms == np.array(arms)[:, np.newaxis], by_arm, 0.0)


def times(terms: FloatArray, matrix: csr_array) -> FloatArray:
    """A product over the last axis with a sparse matrix, for any axes before it."""
    flat = terms.reshape(math.prod(terms.shape[:-1]), terms.shape[-1])
    return np.asarray(flat @ matrix).reshape(*terms.shape[:-1], matrix.shape[1])


# The number of a row's profile; no column of a user has this name.
PROFILE = "__clusterdp_profile"


class Profiling:
    """What profiles are made of: as much as the published sums that are used distinguish.

    Attributes:
        release: The release of the rows.
        fold: The fold whose rows are used alone; None for all rows.
        levels: The breakdowns that sums are published of.
        names: The columns that a row's profile follows from.
        merging: Which merged arm each released arm goes into; None if arms are not merged.

    Args:
        release: The release.
        request: Which sums are used, and of which fold.

    Raises:
        ParameterError: If there is no such fold.
    """

    def __init__(self, release: Release, request: EstimateRequest) -> None:
        n_folds, columns, fold = release.layout.folds, release.columns, request.fold
        self.merging = request.merging
        if fold is not None and n_folds == 1:
            raise ParameterError(
                "This release has no folds. Fix: leave out fold (--fold), or ask the owner for a "
                "release with folds=2 (--folds 2)."
            )
        if fold is not None and (type(fold) is not int or fold not in range(n_folds)):
            raise ParameterError(f"fold must be a number from 0 to {n_folds - 1}, got {fold!r}.")
        statistics = (one for question in release.questions for one in question.statistics)
        self.release, self.fold = release, fold
        self.levels = tuple(
            dict.fromkeys(one.level for one in statistics if one.level and request.use_sums)
        )
        own_fold = (FOLD,) if n_folds > 1 else ()
        groups = (name for level in self.levels for name in level)
        assigned = () if columns.randomization_unit is None else (columns.randomization_unit,)
        self.names = tuple(dict.fromkeys((*columns.cell, *own_fold, *groups, *assigned)))

    def held_out(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows that are used, of a table of rows or of counts."""
        import polars as pl

        return table if self.fold is None else table.filter(pl.col(FOLD) == self.fold)


class ProfiledRows:
    """Counted rows with their profiles, and what finds the profiles of others.

    Attributes:
        profiles: The profiles.
        table: The rows, with a column `PROFILE`.

    Args:
        profiling: What profiles are made of.
        table: All rows, counted by `profiling.names` and others.
    """

    def __init__(self, profiling: Profiling, table: pl.DataFrame) -> None:
        self._profiling, release = profiling, profiling.release
        by, n_folds = release.columns.randomization_unit, release.layout.folds
        self._assigned = None if by is None else ValueCodes.from_column(table[by])
        table = self._profiling.held_out(table)
        parts = self._parts(table)
        keys = self._key(parts)
        self._keys, first, places = np.unique(keys, return_index=True, return_inverse=True)
        clusters, arms = np.divmod(parts[0][first], len(release.layout.arms))
        shape, released = release.layout.sizes.shape, None
        if profiling.merging is not None:
            shape, released = (shape[0], max(profiling.merging) + 1), arms
            arms = np.array(profiling.merging)[arms]
        sizes = np.bincount(places, table[COUNT].to_numpy(), len(self._keys))
        levels = zip(profiling.levels, parts[2:], strict=False)
        self.profiles = Profiles(
            cells=clusters * shape[1] + arms,
            sizes=sizes.astype(np.int64),
            shape=shape,
            folds=parts[1][first] if n_folds > 1 else None,
            groups={level: part[first] for level, part in levels},
            assigned=None if self._assigned is None else parts[-1][first],
            released=released,
        )
        self.table = _with_profiles(table, places)
        if profiling.fold is None:
            _check_groups(self.profiles, release.layout)

    def add_profiles(self, table: pl.DataFrame) -> pl.DataFrame:
        """Other counts of the same release with their profiles."""
        table = self._profiling.held_out(table)
        return _with_profiles(table, np.searchsorted(self._keys, self._key(self._parts(table))))

    @staticmethod
    def count(table: pl.DataFrame) -> ResponseCounts:
        """Counts by profile and response, in their order, from a table with both."""
        profiles, responses, counts = (
            table[name].to_numpy().astype(np.int64) for name in (PROFILE, RESPONSE, COUNT)
        )
        n_responses = int(responses.max(initial=0)) + 1
        keys, places = np.unique(profiles * n_responses + responses, return_inverse=True)
        sums = np.bincount(places, counts, len(keys)).astype(np.int64)
        return ResponseCounts(keys // n_responses, keys % n_responses, sums)

    def _parts(self, table: pl.DataFrame) -> list[IntArray]:
        """Cell, fold and groups of each row; the fold is 0 where there is one."""
        release = self._profiling.release
        layout, columns = release.layout, release.columns
        cells = released_cells(table, columns, layout)
        folds = np.zeros_like(cells)
        if layout.folds > 1 and self._profiling.fold is None:
            known = table[FOLD].is_in(list(range(layout.folds)))
            if not known.fill_null(value=False).all():
                raise DataError(
                    "Rows have folds that the release does not have. The folder was edited."
                )
            folds = table[FOLD].to_numpy().astype(np.int64)
        groups = [released_groups(table, level, layout) for level in self._profiling.levels]
        if self._assigned is not None:
            codes = self._assigned.encode(table[columns.randomization_unit or ""])
            groups.append(codes.astype(np.int64))
        return [cells, folds, *groups]

    def _key(self, parts: list[IntArray]) -> IntArray:
        """One number per profile, in the order of cells."""
        layout = self._profiling.release.layout
        n_groups = (layout.n_groups(level) for level in self._profiling.levels)
        n_assigned = () if self._assigned is None else (len(self._assigned.values),)
        limits = (layout.sizes.size, layout.folds, *n_groups, *n_assigned)
        return np.ravel_multi_index(tuple(parts), limits)


def _check_groups(profiles: Profiles, layout: Layout) -> None:
    """Raise a DataError unless groups that sums are of have the stated sizes, arm by arm."""
    n_arms = len(layout.arms)
    for one in layout.breakdowns:
        if one.columns in profiles.groups:
            places = profiles.groups[one.columns] * n_arms + profiles.released_arms
            sizes = np.bincount(places, profiles.sizes, one.sizes.size)
            if not np.array_equal(sizes, one.sizes.ravel()):
                raise DataError(
                    "Groups of rows and groups of totals differ in size. The folder or the answer "
                    "was edited."
                )


def _with_profiles(table: pl.DataFrame, places: IntArray) -> pl.DataFrame:
    import polars as pl

    return table.with_columns(pl.Series(PROFILE, places, dtype=pl.Int64))
