"""What every engine does to a batch of rows first: encode it, for others to count and randomize.

These are pure functions of a batch and can be sent to other processes; an engine only brings
batches to them and takes away what they return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp.outcomes.encoding import OutcomeEncoder
from clusterdp.rows.column_types import outcome_array
from clusterdp.rows.keys import (
    CLUSTERS_KEY,
    UnitIds,
    fold_numbers,
    id_hashes,
    rounding_key,
    row_words,
    unit_words,
)
from clusterdp.rows.value_codes import CellEncoder, n_unplain, plain_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray, IntArray, WordArray
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.encoding import OutcomeCodes
    from clusterdp.rows.questions import QuestionRule
    from clusterdp.spec.columns import Columns
    from clusterdp.statistics.covariates import Covariate


class RowCodes(NamedTuple):
    """A batch as codes; every array has axes `[row]`.

    Where ids or outcomes are missing or outside the space, their codes are arbitrary.

    Attributes:
        ids: Ids.
        hashes: Hashes of ids.
        cells: Codes of cells.
        questions: The outcomes of each question.
        question_codes: Which question each row is asked; None where there is one question.
        groups: The group of each row in every breakdown.
        places: The place of each row among the totals of every level that is counted.
        folds: The fold of each row, if its place depends on it; else None.
        lacking: Rows without an id; rows whose id is text that cannot be shown everywhere; rows
            without a declared label, where clusters are private; rows that lack a covariate.
        covariates: The steps of each covariate that is counted.
    """

    ids: UnitIds
    hashes: WordArray
    cells: IntArray
    questions: tuple[OutcomeCodes, ...]
    question_codes: CodeArray | None
    groups: tuple[IntArray, ...]
    places: Mapping[tuple[str, ...], IntArray]
    folds: CodeArray | None
    lacking: tuple[int, int, int, int]
    covariates: Mapping[Covariate, IntArray]

    @property
    def units(self) -> pl.Series:
        """Ids as a column."""
        return self.ids.ids

    @property
    def sound(self) -> bool:
        """Whether every row has a plain id, a cluster, and outcomes that break no constraint."""
        return not any(self.lacking) and all(question.sound for question in self.questions)

    def asked(self, number: int) -> AskedRows:
        """The rows that are asked a question; all of them where there is one."""
        outcomes = self.questions[number]
        if self.question_codes is None:
            return AskedRows(slice(None), self.ids, self.cells, outcomes)
        places = np.flatnonzero(self.question_codes == number)
        return AskedRows(places, self.ids.part(places), self.cells[places], outcomes.part(places))

    def words(self) -> WordArray:
        """A checksum word per row, for fingerprints; never published."""
        categories = (question.categories for question in self.questions)
        steps = (number for question in self.questions for number in question.steps)
        return row_words(self.hashes, self.cells, *categories, *self.groups, *steps)


class AskedRows(NamedTuple):
    """The rows of a batch that are asked a question; every array has axes `[row]`.

    Attributes:
        places: Where they stand in the batch.
        ids: Ids.
        cells: Codes of cells.
        outcomes: The outcomes of the question.
    """

    places: IntArray | slice
    ids: UnitIds
    cells: IntArray
    outcomes: OutcomeCodes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionEncoder:
    """The outcomes of a question as codes.

    Attributes:
        space: The categories.
        outcomes: How outcomes are encoded.
    """

    space: Categories
    outcomes: OutcomeEncoder

    @classmethod
    def for_space(cls, space: Categories, *, clip: bool) -> QuestionEncoder:
        """The encoder of a question; `clip` moves outcomes beyond the ends of a space to them."""
        clipped = space.declared.names if clip else ()
        return cls(space=space, outcomes=space.encoder(clipped))

    def __call__(self, batch: pl.DataFrame) -> OutcomeCodes:
        """The outcomes of a batch, and their categories before numbers are rounded."""
        read = {name: outcome_array(batch[name]) for name in self.space.declared.names}
        return self.outcomes.encode(read)

    def round(self, rows: AskedRows, names: Sequence[str], keys: Mapping[str, bytes]) -> CodeArray:
        """The categories of sound rows, their numbers rounded at random.

        Args:
            rows: The rows.
            names: The name of each number's key; none to take each at the grid point below it.
            keys: The keys.
        """
        if not names:
            return rows.outcomes.categories
        words = np.stack([unit_words(rows.ids, keys[name])[:, 0] for name in names], axis=1)
        return self.outcomes.round(rows.outcomes, words)

    def rounding_keys(self, purpose: Literal["rows", "counts"]) -> tuple[str, ...]:
        """The name of each number's key, for rows or for counts."""
        return tuple(rounding_key(name, purpose) for name in self.space.declared.numbers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowEncoder:
    """Rows of a table as codes.

    Attributes:
        columns: Which column plays which part.
        questions: How the outcomes of each question are encoded.
        cells: How rows are assigned to cells.
        asking: Which question each unit is asked; None where there is one question.
        levels: The columns of each breakdown that rows are assigned to groups of; none for totals.
        covariates: The covariates that are counted.
    """

    columns: Columns
    questions: tuple[QuestionEncoder, ...]
    cells: CellEncoder
    asking: QuestionRule | None = None
    levels: tuple[tuple[str, ...], ...] = ()
    covariates: tuple[Covariate, ...] = ()

    @classmethod
    def for_spaces(
        cls,
        columns: Columns,
        spaces: tuple[Categories, ...],
        cells: CellEncoder,
        asking: QuestionRule | None = None,
        *,
        clip: bool,
    ) -> RowEncoder:
        """The encoder of a table; `clip` moves outcomes beyond the ends of a space to them."""
        questions = tuple(QuestionEncoder.for_space(space, clip=clip) for space in spaces)
        return cls(columns=columns, questions=questions, cells=cells, asking=asking)

    def __call__(self, batch: pl.DataFrame, keys: Mapping[str, bytes]) -> RowCodes:
        """Encode a batch."""
        units = plain_column(unnamed(batch[self.columns.unit]))
        ids = UnitIds(units)
        cells, n_unlabelled = self.cells.encode_rows(batch, self.columns, ids, keys)
        groups = {by: self.cells.groups(batch, by) for by in self.columns.breakdowns}
        # Batches with a row without an id are refused.
        has_ids = not units.null_count()
        is_folded = has_ids and self.columns.folds > 1 and bool(self.levels)
        folds = fold_numbers(ids, self.columns.folds) if is_folded else None
        covariates, n_without = self._covariates(batch)
        return RowCodes(
            ids=ids,
            hashes=id_hashes(units),
            cells=cells,
            questions=tuple(question(batch) for question in self.questions),
            question_codes=self.asking.numbers(ids) if self.asking and has_ids else None,
            groups=tuple(groups.values()),
            places=self._places(cells, folds, groups) if self.levels else {},
            folds=folds,
            lacking=(units.null_count(), n_unplain(units), n_unlabelled, n_without),
            covariates=covariates,
        )

    def _covariates(self, batch: pl.DataFrame) -> tuple[dict[Covariate, IntArray], int]:
        """The steps of the covariates, and how many rows lack one."""
        found, lacking = {}, np.zeros(len(batch), dtype=np.bool_)
        for one in self.covariates:
            values = outcome_array(batch[one.column]).astype(np.float64)
            is_known = np.isfinite(values)
            lacking |= ~is_known
            found[one] = one.steps(np.where(is_known, values, one.low))
        return found, int(np.count_nonzero(lacking))

    @property
    def secret_columns(self) -> tuple[tuple[str, ...], ...]:
        """What no public column may reveal: outcomes by question, and after them private clusters.

        The codes of these secrets are those of `secrets`; how many each has is `secret_sizes`.
        """
        cluster, is_private = self.columns.cluster, self.cells.response is not None
        private = ((cluster,),) if is_private and cluster is not None else ()
        return (*(question.space.declared.names for question in self.questions), *private)

    @property
    def secret_sizes(self) -> tuple[int, ...]:
        """How many codes each secret has."""
        response = self.cells.response
        sizes = tuple(question.space.n_categories for question in self.questions)
        return sizes if response is None else (*sizes, response.n_labels)

    def secrets(self, batch: pl.DataFrame, rows: RowCodes) -> list[CodeArray]:
        """The codes of each secret of a sound batch, for safety nets alone; axes `[row]`."""
        codes: list[CodeArray] = [question.categories for question in rows.questions]
        for (cluster,) in self.secret_columns[len(self.questions) :]:
            codes.append(self.cells.own_clusters(batch[cluster])[0])
        return codes

    @property
    def key_names(self) -> tuple[str, ...]:
        """The keys that rows are encoded with: that of private clusters."""
        return () if self.cells.response is None else (CLUSTERS_KEY,)

    def _places(
        self,
        cells: IntArray,
        folds: CodeArray | None,
        groups: Mapping[tuple[str, ...], IntArray],
    ) -> dict[tuple[str, ...], IntArray]:
        """The place of each row in flat `[group, fold, arm]` arrays, by level."""
        n_folds, n_arms = self.columns.folds, len(self.cells.arms.values)
        place = cells % n_arms
        if folds is not None:
            place += n_arms * folds
        return {
            level: place + n_folds * n_arms * groups[level] if level else place
            for level in self.levels
        }
