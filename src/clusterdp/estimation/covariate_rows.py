"""Rows with their covariates, cut by segments and arms.

Of a row, a regression reads covariates and its **entry**: the profile and the response that it was
counted by. Whatever else it needs is the same for all rows of an entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from clusterdp.estimation.coded_rows import CodedRows, GroupedRows, parts_of
from clusterdp.estimation.covariates import read_covariates
from clusterdp.estimation.cuts import columns_of
from clusterdp.estimation.response_leak import ColumnCounts
from clusterdp.published.grouped_counts import KeyCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from clusterdp._arrays import CodeArray, FloatArray, IntArray
    from clusterdp.estimation.coded_rows import RowColumns
    from clusterdp.estimation.covariates import Covariates
    from clusterdp.estimation.cuts import Cuts, Segment
    from clusterdp.estimation.profiles import Counted, Profiles
    from clusterdp.estimation.profiling import ProfiledRows, Profiling
    from clusterdp.published.column_codes import ColumnCodes

# Rows that are put in order at once.
_ROWS_IN_ORDER = 2**20
# Rows that are worked on at once. They stay in the processor's cache, and are few enough for NumPy
# to multiply them in one thread: several would wait longer than they work.
_ROWS_TOGETHER = 2**13


class Piece(NamedTuple):
    """Some rows of one arm.

    Attributes:
        entries: The entry of each row, its place among those of the segment; axes `[row]`.
        covariates: The columns of the regression; axes `[covariate, row]`.
    """

    entries: CodeArray
    covariates: FloatArray


class Cut(NamedTuple):
    """Rows in the order of segments and arms, stretch by stretch.

    Attributes:
        order: Where the rows of a segment and an arm stand; axes `[row]`.
        bounds: Where those of each begin and end among these; axes `[stretch, key + 1]`.
        segments: The place of each segment by its values. Its key is that, times the number of
            arms, plus the arm.
    """

    order: CodeArray
    bounds: IntArray
    segments: Mapping[tuple[Any, ...], int]

    @classmethod
    def of(cls, grouped: GroupedRows, arms: CodeArray, n_arms: int) -> Self:
        """Rows by their values, and by their arms; axes of `arms`: `[row]`."""
        n_rows, n_keys = len(arms), n_arms * max(len(grouped.values), 1)
        order = np.empty(n_rows, np.min_scalar_type(n_rows))
        bounds = []
        for start in range(0, n_rows, _ROWS_IN_ORDER):
            rows = slice(start, start + _ROWS_IN_ORDER)
            keys = grouped.groups[rows].astype(np.min_scalar_type(n_keys)) * n_arms + arms[rows]
            order[rows] = start + np.argsort(keys, kind="stable")  # narrow ones: by counting
            sizes = np.bincount(keys, minlength=n_keys)
            bounds.append(start + np.concatenate([[0], np.cumsum(sizes)]))
        every = enumerate(grouped.values.iter_rows())
        segments = {_alike(values): place for place, values in every}
        return cls(order, np.stack(bounds), segments or {(): 0})

    def rows(self, segment: Segment, arm: int) -> Iterator[CodeArray]:
        """The places of the rows of a segment and an arm, a few at a time."""
        n_arms = (self.bounds.shape[1] - 1) // len(self.segments)
        key = self.segments[_alike(tuple(value for _, value in segment))] * n_arms + arm
        for begin, end in self.bounds[:, key : key + 2].tolist():
            for start in range(begin, end, _ROWS_TOGETHER):
                yield self.order[start : min(start + _ROWS_TOGETHER, end)]


def _alike(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values that can be looked up: what is not a number is not even equal to itself."""
    return tuple(math.nan if value != value else value for value in values)  # noqa: PLR0124


class KnownRows(NamedTuple):
    """All rows, with what is known of them before treatment.

    Attributes:
        given: Covariates.
        codes: The columns of dimensions and responses; axes `[row]`.
        columns: What their codes stand for.
        public: The rows by the columns that profiles follow from.
    """

    given: Covariates
    codes: CodedRows
    columns: Mapping[str, ColumnCodes]
    public: GroupedRows

    @classmethod
    def of(cls, rows: CodedRows, columns: RowColumns, cuts: Cuts, profiling: Profiling) -> Self:
        """Rows with the covariates of a cut.

        Raises:
            DataError: If nothing is known of a covariate.
            ParameterError: If a covariate has too many categories.
        """
        names = (*columns_of(cuts.known), *profiling.release.columns.responses)
        return cls(
            given=read_covariates(rows, columns, cuts.covariates),
            codes=CodedRows({name: rows.codes[name] for name in names}, {}),
            columns=columns.codes,
            public=GroupedRows.of(rows, profiling.names, columns.codes),
        )


@dataclass(slots=True, kw_only=True, eq=False)
class RowsBySegment:
    """Rows of a block with the columns of a regression, cut by one dimension at a time.

    Segments of a dimension are asked for one after another, so its cut is kept until the next.

    Attributes:
        given: What is known of the rows.
        codes: The columns of dimensions; axes `[row]`.
        columns: What their codes stand for.
        profiles: What profiles are of.
        n_responses: How many responses there can be.
        entries: The entry of each row, among all that there can be: its profile times the number of
            responses, plus its response; axes `[row]`.
    """

    given: Covariates
    codes: CodedRows
    columns: Mapping[str, ColumnCodes]
    profiles: Profiles
    n_responses: int
    entries: CodeArray
    _cuts: dict[tuple[str, ...], Cut] = field(default_factory=dict)

    @classmethod
    def of(cls, known: KnownRows, found: ProfiledRows, response: str, n_responses: int) -> Self:
        """The rows of a block, whose responses are in a column; of one fold if it is held out."""
        profiles = found.places(known.public.values)
        given, codes, groups = known.given, known.codes, known.public.groups
        if (profiles < 0).any():
            chosen = (profiles >= 0)[groups]
            given, codes, groups = given.chosen(chosen), codes.chosen(chosen), groups[chosen]
        responses = known.columns[response].values.fill_null(0).to_numpy()
        n_entries = len(found.profiles.cells) * n_responses
        entries = np.empty(len(groups), np.min_scalar_type(n_entries))
        for rows in parts_of(len(groups)):
            entries[rows] = profiles[groups[rows]] * n_responses
            entries[rows] += responses[codes.codes[response][rows]].astype(entries.dtype)
        return cls(
            given=given,
            codes=codes,
            columns=known.columns,
            profiles=found.profiles,
            n_responses=n_responses,
            entries=entries,
        )

    def pieces(self, segment: Segment, counted: Counted) -> Callable[[int], Iterator[Piece]]:
        """What gives the rows of a segment and an arm, piece by piece.

        Args:
            segment: The segment; nothing for all rows.
            counted: Its entries.
        """
        cut = self._cut_by(tuple(name for name, _ in segment))
        found = np.zeros(len(self.profiles.cells) * self.n_responses, np.int32)
        found[counted.profiles * self.n_responses + counted.responses] = range(len(counted.counts))

        def of_arm(arm: int) -> Iterator[Piece]:
            for rows in cut.rows(segment, arm):
                columns = np.stack([one[rows] for one in self.given.regressors])
                yield Piece(found[self.entries[rows]], columns.astype(np.float64, copy=False))

        return of_arm

    def _cut_by(self, dimension: tuple[str, ...]) -> Cut:
        if dimension not in self._cuts:
            self._cuts.clear()
            grouped = GroupedRows.of(self.codes, dimension, self.columns)
            n_arms = self.profiles.shape[1]
            of_entries = np.repeat(self.profiles.arms, self.n_responses)
            arms = of_entries.astype(np.min_scalar_type(n_arms))[self.entries]
            self._cuts[dimension] = Cut.of(grouped, arms, n_arms)
        return self._cuts[dimension]

    def class_counts(self, groups: IntArray) -> list[ColumnCounts]:
        """Rows counted by the classes of each covariate.

        Args:
            groups: The group of cells, which share a channel, of each profile.
        """
        n_keys = (int(groups.max()) + 1) * self.n_responses
        starts = np.repeat(groups * self.n_responses, self.n_responses)
        keys = starts + np.tile(np.arange(self.n_responses), len(groups))
        found = []
        for name, classes in self.given.classes.items():
            counts = KeyCounts(n_keys * (int(classes.max(initial=0)) + 1))
            for rows in parts_of(len(classes)):
                counts.add(classes[rows] * np.int64(n_keys) + keys[self.entries[rows]])
            combined, n_rows = counts.entries()
            values, rest = np.divmod(combined, n_keys)
            found.append(ColumnCounts(name, values, *np.divmod(rest, self.n_responses), n_rows))
        return found
