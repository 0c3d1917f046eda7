"""What an engine is: passes over a table that it counts and randomizes.

Why a table is rejected, and the message that its owner gets, are worded here for all engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from clusterdp._progress import RowsDone, no_progress
from clusterdp._text import counted
from clusterdp.engines.cells import (
    CellOptions,
    crossed_parts,
    crossed_private,
    possible_parts,
    refuse_missing,
    unplain,
)
from clusterdp.errors import DataError, ParameterError, TableChangedError, errors_about
from clusterdp.rows.column_types import PLAIN, TEXT_KINDS, Notation
from clusterdp.rows.encoding import RowEncoder
from clusterdp.sources.source import ColumnRequest
from clusterdp.spec.columns import COMMON

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.categories import Categories
    from clusterdp.rows.earlier_ids import EarlierIds
    from clusterdp.rows.keys import Fingerprint
    from clusterdp.rows.questions import QuestionRule
    from clusterdp.rows.randomizing import BatchRandomizer
    from clusterdp.rows.tally import CountRequest, QuestionTally, Tally
    from clusterdp.rows.value_codes import CellEncoder
    from clusterdp.spec.columns import Aggregates, Columns
    from clusterdp.storage.folder import Destination, FileSum

# What passes are called where progress is shown.
COUNTING, RANDOMIZING = "counting cells", "randomizing rows"
BOTH_AT_ONCE = "counting cells and randomizing rows"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """One pass over the rows of a table: it counts them, randomizes them, or does both.

    Attributes:
        encoder: Rows as codes.
        layout: The cells.
        keys: The keys of the release (a `KeyRing`), by the names that encoder and randomizer have
            for them. None are needed to count rows whose clusters are public.
        counts: What to count for each question next to rows by category; None to count nothing.
            What is counted is checked: of another pass, rows need not be.
        randomizer: What randomizes rows; None to publish none.
        folder: Where rows are put: a private folder, which becomes public when all is done; or, if
            only Spark reaches the place, the place itself. None to get them as a frame.
        only: The table that rows must be of: of another one, no row is stored that can be read.
            None if that is compared afterwards.
        is_first: Whether this counts the cells of private clusters for the first time: of the sizes
            of the layout, those of arms alone are then compared.
        progress: Is called with rows done.
    """

    encoder: RowEncoder
    layout: Layout
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    counts: Sequence[CountRequest] | None = None
    randomizer: BatchRandomizer | None = None
    folder: str | None = None
    only: Fingerprint | None = None
    is_first: bool = False
    progress: RowsDone = no_progress

    def keys_for(self, workers: Tally | BatchRandomizer) -> dict[str, bytes]:
        """The keys that those need who count or randomize, and no others: they can be sent."""
        return {name: self.keys[name] for name in workers.key_names}


class PassResult(NamedTuple):
    """What a pass found, for the owner's side of the pipeline alone.

    Attributes:
        seen: What was read.
        tally: What was counted; None if nothing was.
        rows: Randomized rows, as a frame of the library that the table came from; None without
            rows, or if they are in files.
        files: The files of rows that it wrote, by their names in the folder.
        notices: Warnings about the table and what is published of it, for the owner alone. They
            never decide anything.
    """

    seen: Fingerprint
    tally: Tally | None = None
    rows: Any = None
    files: Mapping[str, FileSum] = MappingProxyType({})
    notices: tuple[str, ...] = ()

    @property
    def counted(self) -> Tally:
        """What was counted, by a pass that counts."""
        assert self.tally is not None  # noqa: S101 - only passes that count are asked
        return self.tally


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the owner declares about a table.

    Attributes:
        columns: Which column plays which part.
        spaces: The categories of the declared outcomes, question by question.
        clip: Whether outcomes beyond the ends of their values count as the nearest end.
        keep_order: Whether rows are published in the order of the table, which the owner then
            declares public, and not in the order of ids.
        show_row_counts: Whether messages to the owner may count rows by what their outcomes are.
        aggregates: How several rows of a unit become one, by outcome; empty if each unit has one.
        notation: How outcomes that are text have numbers.
        joined: Ids and labels that the table is joined to, as columns of its own; None without.
            Units without a label are "(not asked)".
    """

    columns: Columns
    spaces: tuple[Categories, ...]
    clip: bool = False
    keep_order: bool = False
    show_row_counts: bool = False
    aggregates: Aggregates = field(default_factory=dict)
    notation: Notation = PLAIN
    joined: pl.DataFrame | None = None

    def __post_init__(self) -> None:
        if self.aggregates and self.keep_order:
            raise ParameterError(
                "rows that are aggregated have no order to keep; leave out keep_order "
                "(--keep-order)"
            )
        if self.columns.private_cluster and self.keep_order:
            raise ParameterError(
                "the order of a table may reveal its clusters, which are private; leave out "
                "keep_order (--keep-order)"
            )

    def with_parts(self, names: list[str]) -> TableOptions:
        """The same for a table of these columns: what clusters are crossed from is kept too."""
        columns = self.columns
        parts = crossed_parts(names, columns.cluster, columns.secret)
        if parts and columns.private_cluster:
            raise crossed_private(columns.cluster)
        return replace(self, columns=columns.keeping(part for part in parts if part != columns.arm))

    @property
    def wanted(self) -> ColumnRequest:
        """What a table by name is read for."""
        columns = self.columns
        private = set(columns.secrets) - {*columns.outcomes, *columns.covariates}
        named = {*columns.public, *possible_parts(columns.cluster)}
        return ColumnRequest(
            public=named - private - set(self.labelled),
            outcomes=columns.secrets,
            labelled={*self.labels, *private},
            decimal=self.notation.decimal,
            unit=columns.unit,
        )

    @property
    def labelled(self) -> tuple[str, ...]:
        """The columns of labels that the table is joined to."""
        return () if self.joined is None else tuple(self.joined.columns[1:])

    @property
    def numeric(self) -> tuple[str, ...]:
        """The outcomes that are numbers, and the covariates."""
        every = (*self.columns.outcomes, *self.columns.covariates)
        return tuple(name for name in every if name not in self.labels)

    @property
    def rules(self) -> Aggregates:
        """How several rows of a unit become one, by column: outcomes, and a private cluster."""
        return {**dict.fromkeys(self.columns.secrets, COMMON), **self.aggregates}

    @property
    def labels(self) -> dict[str, tuple[str, str]]:
        """The labels of every outcome that is declared by labels, by its name."""
        return {name: two for one in self.spaces for name, two in one.declared.labels.items()}

    def by_name(self) -> dict[str, Any]:
        """The options by their names."""
        return {one.name: getattr(self, one.name) for one in fields(TableOptions)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineTable(TableOptions, ABC):
    """A table that an engine can read several times.

    Attributes:
        writes_privately: Whether the engine writes rows where nobody else sees them, so that a pass
            may count and randomize at once. Rows are then on disk before all of them were checked.
    """

    writes_privately: ClassVar[bool] = False

    def read_layout(self, control: Any) -> tuple[Layout, CellEncoder]:
        """Clusters, arms, sizes and breakdowns, from public columns alone; how to encode them.

        Raises:
            DataError: If a column has gaps, or texts that cannot be shown everywhere.
        """
        found = self.read_cells(CellOptions(self.columns, control))
        for name in self.unplain_columns():
            raise unplain(name, "passthrough")
        return found

    def encoder(self, cells: CellEncoder, asking: QuestionRule | None = None) -> RowEncoder:
        """What encodes its rows, whose units are asked questions by a rule."""
        return RowEncoder.for_spaces(self.columns, self.spaces, cells, asking, clip=self.clip)

    @abstractmethod
    def read_cells(self, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of the table, and how to encode its rows: no other column is read."""

    @abstractmethod
    def unplain_columns(self) -> list[str]:
        """Which passthrough columns are texts that cannot be shown everywhere; no other is read."""

    def close(self) -> None:
        """Remove what was stored of the table. Nothing is read from it afterwards."""

    def apart_from(
        self,
        earlier: Sequence[EarlierIds],  # noqa: ARG002 - engines that can do it take them
        progress: RowsDone = no_progress,  # noqa: ARG002
    ) -> EngineTable:
        """The same table, which is rejected now and whenever it is counted if it has earlier ids.

        Args:
            earlier: The ids of the batches that it continues.
            progress: Is called with the rows that were read.

        Raises:
            DataError: If it has one of them.
        """
        raise ParameterError(
            "continues (--continues) compares ids on this machine: leave out engine spark "
            "(--engine spark), and give a file or a frame that is not Spark's"
        )

    @abstractmethod
    def run(self, asked: Pass) -> PassResult:
        """Read every row once.

        Raises:
            DataError: If a value is missing or outside the space, or an id is repeated. The message
                shows no value.
            TableChangedError: If the table is not the one of the layout, or of an earlier pass.
        """

    @abstractmethod
    def text_shapes(self) -> dict[str, list[int]]:
        """Of each outcome that is text, how many rows have each kind of text that is no number."""

    @abstractmethod
    def like(self, published: pl.DataFrame) -> Any:
        """Another published table as a frame of the same library."""

    def check(
        self, asked: Pass, tally: Tally, count_repeated: Callable[[], int]
    ) -> tuple[str, ...]:
        """Raise an error, see `run`, unless every row that was counted can be used.

        Args:
            asked: The pass.
            tally: What it counted.
            count_repeated: Counts the rows that repeat the id of another.

        Returns:
            Warnings to the owner that outcomes were clipped.
        """
        if any(question.flaws[:2].any() for question in tally.questions):
            refuse_text(self.text_shapes(), self)
        refuse_unsound(tally, self)
        refuse_repeated(count_repeated(), self.columns.unit, self.aggregates)
        sizes = [asked.layout.sizes, *tally.sizes]
        if asked.is_first:
            sizes = [of_cells.sum(axis=0) for of_cells in sizes]
        if not all(np.array_equal(sizes[0], found) for found in sizes[1:]):
            raise TableChangedError
        return clipping_notices(tally, self)


class Engine(Protocol):
    """What opens tables and places.

    A source is a `NamedSource`, or a frame that the engine can read.
    """

    def place(self, out: str) -> Destination:
        """A folder to publish."""

    def table(self, source: Any, asked: TableOptions, out: str | None) -> EngineTable:
        """A source as a table.

        `out` is where it is going to be published. Without one, only the layout of what has a name
        can be read.
        """

    def read_cells(self, source: Any, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of a source: no other column is read."""


def refuse_text(counts: Mapping[str, Sequence[int]], table: TableOptions) -> None:
    """Raise a DataError if a column of outcomes has text that is no number.

    The message names a kind of text, of a fixed list, and shows no value.

    Args:
        counts: Of each column that is text, how many rows have each kind.
        table: What is declared about the table.
    """
    for name, of_kinds in counts.items():
        for kind, n_rows in zip(TEXT_KINDS, of_kinds, strict=True):
            if n_rows:
                raise DataError(
                    f"column {name!r} (outcome) is text and has {kind.named}"
                    f"{_in_rows(n_rows, table)}; {kind.advice(name, table.notation)}"
                )


def refuse_unsound(tally: Tally, table: TableOptions) -> None:
    """Raise a DataError unless every row can be used.

    The message shows no value. How many rows broke a rule depends on true outcomes, and several
    refusals would add up to a histogram: only an owner who asked for it sees the number.
    """
    n_without_id, n_unplain, n_unlabelled, n_without_covariate = tally.lacking.tolist()
    refuse_missing(table.columns.unit, "unit", n_without_id)
    if n_unplain:
        raise unplain(table.columns.unit, "unit")
    if n_unlabelled:
        several = ", or several labels of one unit" if table.aggregates else ""
        raise DataError(
            f"column {table.columns.cluster!r} (private cluster) has missing values, or labels "
            f"that were not declared{several}{_in_rows(n_unlabelled, table)}; declare every "
            "label (under [private_clusters]), such as 'other' for all that are rare"
        )
    if n_without_covariate:
        listed = ", ".join(map(repr, table.columns.covariates))
        several = ", or several values of one unit" if table.aggregates else ""
        raise DataError(
            f"column {listed} (covariate) has missing values{several}; fill them before, such as "
            "with 0 for new customers"
        )
    for question, space in zip(tally.questions, table.spaces, strict=True):
        _refuse_outcomes(question, space, table)


def _refuse_outcomes(tally: QuestionTally, space: Categories, table: TableOptions) -> None:
    """Raise a DataError unless every row has outcomes of a question that can be used."""
    names = space.declared.names
    listed = ", ".join(map(repr, names))
    # Which of several it is depends on outcomes.
    named, about = f"column {listed} (outcome) has", names
    if len(names) > 1:
        named, about = f"one or more of the outcomes {listed} has", ()
    n_missing, n_outside, n_broken = tally.flaws[:3].tolist()
    if n_missing:
        with errors_about(*about):
            remedy = "declare which outcomes may be missing (missing=[...], --missing NAME)"
            if len(names) == 1:
                given = f"missing={list(names)}, --missing {names[0]}"
                remedy = f"declare that it may be missing ({given})"
            raise DataError(f"{named} missing values{_in_rows(n_missing, table)}; {remedy}")
    if n_outside:
        # Labels are never clipped.
        clips = not table.clip and not space.declared.labels
        remedy = "declare every value that can occur" + (
            ", or clip (clip=True, --clip)" if clips else ""
        )
        with errors_about(*about):
            raise DataError(
                f"{named} values outside the allowed values{_in_rows(n_outside, table)}; {remedy}"
            )
    if n_broken:
        ruled_out = ", ".join(repr(str(one)) for one in space.declared.constraints)
        with errors_about("constraint"):
            raise DataError(
                f"the outcomes {listed} have combinations that the constraints rule out "
                f"({ruled_out}){_in_rows(n_broken, table)}; declare fewer constraints, or correct "
                "the rows"
            )


def clipping_notices(tally: Tally, table: TableOptions) -> tuple[str, ...]:
    """The warnings to the owner that outcomes were clipped, for each outcome with some."""
    return tuple(
        f"some values of {name!r}{_in_rows(n_rows, table)} were outside its allowed values, and "
        "were clipped."
        for question, space in zip(tally.questions, table.spaces, strict=True)
        for name, n_rows in zip(space.declared.names, question.flaws[3:].tolist(), strict=True)
        if n_rows
    )


def _in_rows(n_rows: int, table: TableOptions) -> str:
    return f" in {counted(n_rows, 'row')}" if table.show_row_counts else ""


def refuse_repeated(n_repeated: int, unit: str, aggregates: Aggregates) -> None:
    """Raise a DataError if a unit has more than one row."""
    if not n_repeated:
        return
    rows = counted(n_repeated, "row")
    if aggregates:
        raise DataError(
            f"column {unit!r} (unit) has ids whose public columns differ from row to row, in "
            f"{rows}; each unit must have one arm, and one value of every other public column"
        )
    raise DataError(
        f"column {unit!r} (unit) has duplicate ids in {rows}, and the guarantee is per unit; "
        "combine each unit's rows first (aggregate='sum', --aggregate sum)"
    )
