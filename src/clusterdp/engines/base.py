"""What an engine is: passes over a table that it counts and randomizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from clusterdp.engines.cells import CellOptions, unplain
from clusterdp.engines.crossed_columns import crossed_parts, crossed_private, possible_parts
from clusterdp.engines.refusals import (
    clipping_notices,
    refuse_repeated,
    refuse_text,
    refuse_unsound,
)
from clusterdp.errors import ParameterError, TableChangedError
from clusterdp.outcomes.published_names import COMMON
from clusterdp.rows.column_types import PLAIN, Notation, found_shape
from clusterdp.rows.encoding import RowEncoder
from clusterdp.rows.tally import Asked, RowCounter
from clusterdp.sources.source import Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.published_names import Aggregates
    from clusterdp.rows.keys import Fingerprint
    from clusterdp.rows.questions import QuestionRule
    from clusterdp.rows.randomizing import BatchRandomizer
    from clusterdp.rows.tally import Tally
    from clusterdp.rows.value_codes import CellEncoder
    from clusterdp.spec.columns import Columns
    from clusterdp.statistics.base import CellTotals
    from clusterdp.storage.folder import Destination, FileSum, RowOrderKind

# Takes the number of rows that were read since it was last called.
Progress = Callable[[int], None]
# What passes are called where progress is shown.
COUNTING, RANDOMIZING = "counting cells", "randomizing rows"
BOTH_AT_ONCE = "counting cells and randomizing rows"


def no_progress(n_rows: int) -> None:
    """Ignore progress."""


class Stages(Protocol):
    """Where a long run reports to."""

    def stage(self, name: str, n_rows: int) -> Progress:
        """Start a stage over that many rows; returns what to call with rows done."""
        ...


class Counted(NamedTuple):
    """What pass 1 found, for the owner's side of the pipeline alone.

    Attributes:
        counts: Of each question, rows by category, numbers at the grid point below; axes `[cluster,
            arm, category]`. Safety nets alone use them.
        totals: Of each question, what statistics are drawn from.
        seen: What was read.
        notices: Warnings about the table, for the owner alone. They never decide anything.
    """

    counts: tuple[IntArray, ...]
    totals: tuple[CellTotals, ...]
    seen: Fingerprint
    notices: tuple[str, ...] = ()


class CountedCells(NamedTuple):
    """The units of cells, by the labels that rows are given; and what was read.

    Attributes:
        sizes: Axes `[cluster, arm]`.
        seen: What was read.
    """

    sizes: IntArray
    seen: Fingerprint


class WantedRows(NamedTuple):
    """Rows that are to be written.

    Attributes:
        randomizer: What randomizes them.
        folder: Where they are put: a private folder, which becomes public when all is done; or, if
            only Spark reaches the place, the place itself.
        only: The table that they must be of: of another one, no row is stored that can be read.
            None if that is compared afterwards.
    """

    randomizer: BatchRandomizer
    folder: str
    only: Fingerprint | None = None


class WrittenRows(NamedTuple):
    """What a pass that randomizes read and wrote.

    Attributes:
        seen: What was read.
        files: The files it wrote, by their names in the folder.
        notices: Warnings about what is published with the rows, for the owner alone.
    """

    seen: Fingerprint
    files: dict[str, FileSum]
    notices: tuple[str, ...] = ()


class CollectedRows(NamedTuple):
    """Randomized rows as a frame; what was read, and the warnings, as in `WrittenRows`."""

    rows: Any
    seen: Fingerprint
    notices: tuple[str, ...] = ()


class FirstPass(NamedTuple):
    """What an engine found in pass 1.

    Attributes:
        tally: Counts, and how many rows cannot be used.
        count_repeated: Counts the rows that repeat the id of another.
        notices: The warnings of the safety nets.
    """

    tally: Tally
    count_repeated: Callable[[], int]
    notices: Callable[[], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What the owner declares about a table.

    Attributes:
        columns: Which column plays which part.
        spaces: The categories of the declared outcomes, question by question.
        clip: Whether outcomes beyond the ends of their values count as the nearest end.
        keep_order: Whether rows are published in the order of the table, which the owner then
            declares public, and not in the order of ids.
        verbose: Whether messages to the owner may count rows by what their outcomes are.
        aggregates: How several rows of a unit become one, by outcome; empty if each unit has one.
        notation: How outcomes that are text have numbers.
    """

    columns: Columns
    spaces: tuple[Categories, ...]
    clip: bool = False
    keep_order: bool = False
    verbose: bool = False
    aggregates: Aggregates = field(default_factory=dict)
    notation: Notation = PLAIN

    def __post_init__(self) -> None:
        if self.aggregates and self.keep_order:
            raise ParameterError(
                "rows that are aggregated have no order to keep; leave out keep_order "
                "(--keep-order)"
            )
        if self.columns.private_cluster and self.keep_order:
            raise ParameterError(
                "the order of a table may tell clusters, which are private; leave out keep_order "
                "(--keep-order)"
            )

    def with_parts(self, names: list[str]) -> TableOptions:
        """The same for a table of these columns: what clusters are crossed from is kept too."""
        columns = self.columns
        parts = crossed_parts(names, columns.cluster, columns.secret)
        if parts and columns.private_cluster:
            raise crossed_private(columns.cluster)
        return replace(self, columns=columns.keeping(part for part in parts if part != columns.arm))

    @property
    def wanted(self) -> Wanted:
        """What a table by name is read for."""
        columns = self.columns
        private = set(columns.secrets) - set(columns.outcomes)
        return Wanted(
            public={*columns.public, *possible_parts(columns.cluster)} - private,
            outcomes=columns.secrets,
            labelled={*self.labels, *private},
            decimal=self.notation.decimal,
            unit=columns.unit,
        )

    @property
    def numeric(self) -> tuple[str, ...]:
        """The outcomes that are numbers."""
        return tuple(name for name in self.columns.outcomes if name not in self.labels)

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
class Table(TableOptions, ABC):
    """A table that an engine can read twice.

    Attributes:
        writes_unseen: Whether the engine writes rows where nobody else sees them, so that it can
            also write them while it counts, see `count_and_write`.
    """

    writes_unseen: ClassVar[bool] = False

    @property
    def row_order(self) -> RowOrderKind:
        """In which order its rows are published."""
        return "table" if self.keep_order else "ids"

    def read_layout(self, control: Any) -> tuple[Layout, CellEncoder]:
        """Clusters, arms, sizes and breakdowns, from public columns alone; how to encode them.

        Raises:
            DataError: If a column has gaps, or texts that cannot be shown everywhere.
        """
        found = self.read_cells(CellOptions.of(self.columns, control))
        for name in self.unplain_columns():
            raise unplain(name, "keep")
        return found

    @abstractmethod
    def read_cells(self, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of the table, and how to encode its rows: no other column is read."""

    @abstractmethod
    def unplain_columns(self) -> list[str]:
        """Which kept columns are texts that cannot be shown everywhere; no other is read."""

    def count(
        self,
        layout: Layout,
        encoder: CellEncoder,
        progress: Progress = no_progress,
        asked: Sequence[Asked] | None = None,
        asking: QuestionRule | None = None,
    ) -> Counted:
        """Pass 1: check every row and count outcomes.

        Args:
            layout: The cells.
            encoder: How rows are assigned to cells.
            progress: Is called with rows done.
            asked: What to count of each question beside rows by category; by default nothing.
            asking: Which question each unit is asked; None where there is one.

        Raises:
            DataError: If a value is missing or outside the space, or an id is repeated. The message
                shows no value.
        """
        wanted = [Asked() for _ in self.spaces] if asked is None else asked
        counter = RowCounter.of(row_encoder(self, encoder, asking), layout, wanted)
        with self.first_pass(counter, layout, progress) as found:
            return self.checked(found, layout)

    def count_and_write(
        self,
        layout: Layout,
        asked: Sequence[Asked],
        wanted: WantedRows,
        progress: Progress = no_progress,
    ) -> tuple[Counted, WrittenRows]:
        """Count, and write rows whose channels are public, in one pass.

        Only an engine that writes unseen does it. Rows are then on disk before all of them were
        checked, so they go into a folder that nobody else can read.

        Args:
            layout: The cells.
            asked: What to count of each question, as in `count`.
            wanted: What is written, and where.
            progress: Is called with rows done.
        """
        raise NotImplementedError(f"{type(self).__name__} reads a table in two passes")

    def checked(self, found: FirstPass, layout: Layout) -> Counted:
        """What a pass that counts found.

        Raises:
            DataError: As `count`.
        """
        self._refuse_rows(found)
        counted = _to_counts(found.tally, layout)
        notices = (*clipping_notices(found.tally, self), *found.notices())
        return counted._replace(notices=notices)

    def _refuse_rows(self, found: FirstPass) -> None:
        """Raise a DataError unless every row can be used."""
        if not found.tally.in_space:
            shapes = ((name, found_shape(name, n)) for name, n in self.text_shapes().items())
            refuse_text({name: shape for name, shape in shapes if shape is not None}, self)
        refuse_unsound(found.tally, self)
        refuse_repeated(found.count_repeated(), self.columns.unit, self.aggregates)

    def count_cells(
        self, layout: Layout, encoder: CellEncoder, progress: Progress = no_progress
    ) -> CountedCells:
        """A pass before pass 1: check every row, and count the units of cells.

        For clusters that are private. Arguments and errors are as those of `count`; of the sizes of
        the layout, those of arms alone are compared.
        """
        wanted = [Asked() for _ in self.spaces]
        counter = RowCounter.of(row_encoder(self, encoder), layout, wanted)
        with self.first_pass(counter, layout, progress) as found:
            tally = found.tally
            self._refuse_rows(found)
            sizes = tally.questions[0].table.sum(axis=-1).reshape(layout.sizes.shape)
            if not np.array_equal(sizes.sum(axis=0), layout.sizes.sum(axis=0)):
                raise TableChangedError
            return CountedCells(sizes, tally.seen)

    @abstractmethod
    def first_pass(
        self, counter: RowCounter, layout: Layout, progress: Progress
    ) -> AbstractContextManager[FirstPass]:
        """Read every row once. What was found can be used within the block."""

    @abstractmethod
    def text_shapes(self) -> dict[str, list[int]]:
        """Of each outcome that is text, how many rows have each kind of text that is no number."""

    @abstractmethod
    def write_rows(self, wanted: WantedRows, progress: Progress = no_progress) -> WrittenRows:
        """Pass 2: the published rows into a folder.

        Raises:
            TableChangedError: If they must be of a table that this is not.
        """

    @abstractmethod
    def collect_rows(self, randomizer: BatchRandomizer) -> CollectedRows:
        """Pass 2: the published rows as a frame, evaluated once and for all."""

    @abstractmethod
    def like(self, published: pl.DataFrame) -> Any:
        """Another published table as a frame of the same library."""


class Engine(Protocol):
    """What opens tables and places.

    A source is a `NamedSource`, or a frame that the engine can read.
    """

    def place(self, out: str) -> Destination:
        """A folder to publish."""
        ...

    def table(self, source: Any, asked: TableOptions, out: str | None) -> Table:
        """A source as a table.

        `out` is where it is going to be published. Without one, only the layout of what has a name
        can be read.
        """
        ...

    def read_cells(self, source: Any, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of a source: no other column is read."""
        ...


def row_encoder(table: Table, cells: CellEncoder, asking: QuestionRule | None = None) -> RowEncoder:
    """What encodes the rows of a table, whose units are asked questions by a rule."""
    return RowEncoder.of(table.columns, table.spaces, cells, asking, clip=table.clip)


def _to_counts(tally: Tally, layout: Layout) -> Counted:
    """What pass 1 found, if it adds up to the public sizes."""
    tables = (question.table[:, : question.counter.n_categories] for question in tally.questions)
    counts = tuple(table.reshape(*layout.sizes.shape, -1) for table in tables)
    if not all(np.array_equal(one.sum(axis=-1), layout.sizes) for one in counts):
        raise TableChangedError
    totals = tuple(question.counter.totals(question, layout) for question in tally.questions)
    return Counted(counts=counts, totals=totals, seen=tally.seen)
