"""The one way to prepare a release: open a table, read its public columns, pool small clusters."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clusterdp.cells.assignment import pooling_notes
from clusterdp.engines.base import Pass, TableOptions
from clusterdp.engines.local.engine import LocalEngine
from clusterdp.errors import ParameterError, notify_owner
from clusterdp.rows.column_types import PLAIN, Notation
from clusterdp.rows.frames import is_spark
from clusterdp.rows.questions import QuestionRule
from clusterdp.rows.randomizing import BatchRandomizer
from clusterdp.rows.tally import CountRequest
from clusterdp.sources.source import NamedSource, named_source
from clusterdp.spec.clusters import PublicClusters
from clusterdp.spec.columns import aggregation_notes
from clusterdp.statistics.covariates import NoisyCovariates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from clusterdp.cells.assignment import Pooling
    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.engines.base import Engine, EngineTable, PassResult
    from clusterdp.engines.cells import CellOptions
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.rows.keys import ReleaseKey
    from clusterdp.rows.value_codes import CellEncoder
    from clusterdp.spec.clusters import Clusters
    from clusterdp.spec.columns import Aggregates, Columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenTable:
    """A table whose public columns have been read: all that a plan may depend on.

    Attributes:
        table: The table.
        layout: Its cells.
        encoder: How its rows are assigned to cells.
        pooling: Which clusters were pooled; None if none were.
        clusters: Whether they are private: cells are then those to be expected, until
            `randomize_clusters` counts them.
        asking: Which question each unit is asked, once the release began; None where there is one
            question, or no rows. It is public.
        told: Warnings that its owner was shown.
    """

    table: EngineTable
    layout: Layout
    encoder: CellEncoder
    pooling: Pooling | None = None
    clusters: Clusters
    asking: QuestionRule | None = None
    told: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is known of its cells and rows before units are given labels, for its owner."""
        of_cells = pooling_notes(self.layout, self.pooling)
        return (*of_cells, *aggregation_notes(self.table.aggregates))

    def telling(self, notices: Sequence[str]) -> OpenTable:
        """Show its owner warnings, each once; the same, with these noted."""
        for notice in dict.fromkeys(notices):
            if notice not in self.told:
                notify_owner(notice)
        return replace(self, told=(*self.told, *notices))

    def asking_by(self, mechanisms: Sequence[Mechanism], key: ReleaseKey) -> OpenTable:
        """The same, with the rule by which its units are asked the questions of its mechanisms.

        Args:
            mechanisms: What is published of each question.
            key: The key of the release, not of an attempt: every attempt asks the same questions.
        """
        if len(mechanisms) == 1 or not mechanisms[0].releases_rows:
            return self
        asked = tuple(mechanism.asked for mechanism in mechanisms)
        return replace(self, asking=QuestionRule(salt=key.question_salt(), asked=asked))

    def randomizer(self, channels: Sequence[Channel]) -> BatchRandomizer:
        """What randomizes its rows, from the channel of each question."""
        encode = self.table.encoder(self.encoder, self.asking)
        return BatchRandomizer.from_channels(encode, channels, self.layout)

    def count(self, counts: Sequence[CountRequest] | None = None) -> PassResult:
        """Check every row of a table whose clusters are public, and count what is asked for."""
        nothing_more = [CountRequest()] * len(self.table.spaces)
        return self.table.run(self.pass_with({}, counts=counts or nothing_more))

    def pass_with(
        self, keys: Mapping[str, bytes], channels: Sequence[Channel] = (), **more: Any
    ) -> Pass:
        """A pass over its rows: what it counts, and more, are fields of `Pass`.

        Args:
            keys: The keys of the release.
            channels: What randomizes rows of each question; none to randomize none.
            **more: Other fields.
        """
        randomizer = self.randomizer(channels) if channels else None
        encode = randomizer.encoder if randomizer else self.table.encoder(self.encoder, self.asking)
        return Pass(encoder=encode, layout=self.layout, keys=keys, randomizer=randomizer, **more)


def prepare(  # noqa: PLR0913 - what an owner says of a table, all by name
    source: Any,
    *,
    columns: Columns,
    spaces: tuple[Categories, ...],
    control: Any = None,
    clusters: Clusters | None = None,
    clip: bool = False,
    keep_order: bool = False,
    show_row_counts: bool = False,
    aggregates: Aggregates | None = None,
    notation: Notation = PLAIN,
    labels: pl.DataFrame | None = None,
    engine: Engine | None = None,
    out: str | None = None,
) -> OpenTable:
    """Open a table and read its public columns.

    Args:
        source: A table by its name, or a pandas, Polars, PyArrow, DuckDB or Spark frame.
        columns: Which column plays which part.
        spaces: The categories of the declared outcomes, question by question.
        control: The control arm. Needed unless the arms are 0 and 1.
        clusters: Whether clusters are private, and which are pooled; public ones by default.
        clip: Move outcomes beyond the ends of the space to the nearest end, instead of an error.
        keep_order: Publish rows in the order of the table, which is then public.
        show_row_counts: Say how many rows an error or a notice is about.
        aggregates: How several rows of a unit become one, by outcome; None if each unit has one.
        notation: How outcomes that are text have numbers.
        labels: Ids and labels that the table is joined to; None without.
        engine: What reads the source; by default what the kind of source needs. A query to be
            released needs one, which removes the scratch folder afterwards.
        out: Where it is going to be published. Without, a query can only be prepared.

    Raises:
        DataError: If there is no such table, or it lacks a column.
    """
    asked = TableOptions(
        columns, spaces, clip, keep_order, show_row_counts, aggregates or {}, notation, labels
    )
    engine = engine or open_engine(source, ExitStack())
    table = engine.table(named_source(source), asked, out)
    return prepare_table(table, control, clusters or PublicClusters())


def asked_of(mechanism: Mechanism, layout: Layout) -> CountRequest:
    """What the statistics of a question's mechanism need to be counted, and no more."""
    covariates = mechanism.find(NoisyCovariates)
    return CountRequest(
        sums=any(one.of_cell_sums for one in mechanism.statistics),
        levels=tuple(one.level for one in mechanism.statistics if one.level is not None),
        weights=mechanism.total_weights(layout),
        counts=any(one.of_categories for one in mechanism.statistics),
        rounded=True,
        covariates=() if covariates is None else covariates.covariates,
    )


def prepare_table(
    table: EngineTable, control: Any = None, clusters: Clusters | None = None
) -> OpenTable:
    """Read the public columns of a table that is open; pool small clusters if asked for.

    Private clusters are as expected until `randomize_clusters` counts them.
    """
    clusters = clusters or PublicClusters()
    layout, encoder = table.read_layout(control)
    pooled = clusters.expected(layout, table.columns.cluster)
    if pooled.regroup is not None:
        encoder = replace(encoder, pooled=pooled.regroup)
    return OpenTable(
        table=table,
        layout=pooled.layout,
        encoder=encoder,
        pooling=pooled.pooling,
        clusters=clusters,
    )


def read_cells(
    source: Any, asked: CellOptions, clusters: Clusters, engine: Engine
) -> tuple[Layout, tuple[str, ...]]:
    """The cells of a source, from which a plan is made; and notes about them."""
    pooled = clusters.expected(engine.read_cells(named_source(source), asked)[0], asked.cluster)
    return pooled.layout, pooled.notes


def open_engine(  # noqa: PLR0913 - what may be said of an engine, by name
    source: Any,
    stack: ExitStack,
    *,
    engine: str | None = None,
    master: str | None = None,
    allow_unencrypted: bool = False,
    on_message: Callable[[str], None] | None = None,
) -> Engine:
    """What reads a source.

    Args:
        source: A name or a frame.
        stack: Closes what ends with the release: a Spark session, a scratch folder.
        engine: `local` or `spark`; by default Spark for Spark's frames and local for all else.
        master: Where Spark runs.
        allow_unencrypted: Whether a Spark cluster may store and send the key as it is.
        on_message: Takes messages for the owner, such as where Spark shows its work.
    """
    if engine not in {None, "local", "spark"}:
        raise ParameterError(f"engine must be local or spark, got {engine!r}")
    if is_spark(source):
        from clusterdp.engines.spark.engine import SparkEngine
        from clusterdp.engines.spark.session import checked_frame

        return SparkEngine(checked_frame(source).sparkSession, allow_unencrypted)
    if engine != "spark":
        for name, given in (("master", master), ("allow_unencrypted_spark", allow_unencrypted)):
            if given:
                raise ParameterError(
                    f"{name} applies to Spark only: add engine spark (--engine spark)"
                )
        return LocalEngine(stack)
    if not isinstance(named_source(source), NamedSource):
        raise ParameterError("engine spark needs the name of a table or a Spark frame")
    from clusterdp.engines.spark.engine import SparkEngine
    from clusterdp.engines.spark.session import started_session

    spark = stack.enter_context(started_session(master, allow_unencrypted=allow_unencrypted))
    if on_message is not None and spark.sparkContext.uiWebUrl:
        on_message(f"Spark shows its work at {spark.sparkContext.uiWebUrl}")
    return SparkEngine(spark, allow_unencrypted)
