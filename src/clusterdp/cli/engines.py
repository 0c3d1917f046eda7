"""Which engine reads a table, and where it can publish."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from clusterdp.cli.console import say_aside
from clusterdp.engines.base import NO_ORDER_TO_KEEP
from clusterdp.engines.local.sources import cross_columns, open_source, open_unstored
from clusterdp.engines.local.table import LocalTable
from clusterdp.engines.source_names import possible_parts
from clusterdp.engines.spark.files import has_scheme
from clusterdp.errors import ParameterError
from clusterdp.storage.folder import LocalFolder, scratch_folder

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pyspark.sql import SparkSession

    from clusterdp.engines.base import Table
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.rows.encoding import Columns
    from clusterdp.storage.folder import Destination


class TableOptions(NamedTuple):
    """What the owner says of a table.

    Attributes:
        columns: Which column plays which part.
        space: The declared outcome space.
        clip: Whether outcomes beyond the ends of the space count as the nearest end.
        keep_order: Whether rows are published in the order of the table.
        verbose: Whether messages may count rows by what their outcomes are.
    """

    columns: Columns
    space: OutcomeSpace
    clip: bool
    keep_order: bool
    verbose: bool


class Engine(Protocol):
    """What opens tables and places by their names."""

    def place(self, out: str) -> Destination:
        """A folder to publish."""
        ...

    def table(self, source: str, asked: TableOptions, out: str | None) -> Table:
        """A source as a table.

        `out` is where it is going to be published. Without one, only its layout can be read.
        """
        ...


def open_engine(spec: dict[str, Any], stack: ExitStack) -> Engine:
    """The engine that a spec asks for.

    Args:
        spec: The options of a release.
        stack: What ends with the command: a Spark session, a scratch folder.
    """
    engine, master = spec.get("engine") or "local", spec.get("master")
    if engine not in {"local", "spark"}:
        raise ParameterError(f"engine is local or spark, got {engine!r}")
    unencrypted = bool(spec.get("allow_unencrypted_spark"))
    if engine == "local":
        if master is not None:
            raise ParameterError("--master says where Spark runs: add --engine spark")
        if unencrypted:
            raise ParameterError("--allow-unencrypted-spark is about Spark: add --engine spark")
        return LocalEngine(stack)
    from clusterdp.engines.spark.session import started_session

    spark = stack.enter_context(started_session(master, allow_unencrypted=unencrypted))
    if spark.sparkContext.uiWebUrl:
        say_aside(f"Spark shows its work at {spark.sparkContext.uiWebUrl}")
    return SparkEngine(spark, unencrypted)


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """This process, and this machine's disks.

    Attributes:
        stack: Scratch folders that end with the command.
    """

    stack: ExitStack

    def place(self, out: str) -> LocalFolder:
        """A folder to publish."""
        if "://" in out:
            raise ParameterError(f"{out} is on a store that needs --engine spark")
        return LocalFolder(Path(out))

    def table(self, source: str, asked: TableOptions, out: str | None) -> LocalTable:
        """A source as a table."""
        columns = asked.columns
        if out is None:
            # What will not be published is not stored either, outcomes least of all.
            secret = {columns.unit, columns.outcome}
            public = {columns.arm, columns.cluster, *possible_parts(columns.cluster)}
            rows = open_unstored(
                source, read=public - secret, typed=columns.parts, outcome=columns.outcome
            )
        else:
            scratch = scratch_folder(Path(out))
            rows = open_source(source, lambda: self.stack.enter_context(scratch), columns.outcome)
        rows = cross_columns(rows, columns.cluster, (columns.unit, columns.outcome))
        return LocalTable(rows=rows, **asked._asdict())


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """A Spark session, and every store that it reaches.

    Attributes:
        spark: The session.
        allow_unencrypted: Whether a cluster may store and send the key as it is.
    """

    spark: SparkSession
    allow_unencrypted: bool = False

    def place(self, out: str) -> Destination:
        """A folder to publish: a path is on this machine's disks, a URI wherever it says."""
        from clusterdp.engines.spark.store import HadoopFolder

        return HadoopFolder(self.spark, out) if has_scheme(out) else LocalFolder(Path(out))

    def table(
        self,
        source: str,
        asked: TableOptions,
        out: str | None,  # noqa: ARG002 - it needs no scratch
    ) -> Table:
        """A source as a table."""
        from clusterdp.engines.spark.sources import cross_spark_columns, open_spark_source
        from clusterdp.engines.spark.table import SparkTable

        if asked.keep_order:
            raise ParameterError(NO_ORDER_TO_KEEP)
        columns = asked.columns
        rows = open_spark_source(self.spark, source, columns.outcome)
        rows = cross_spark_columns(rows, columns.cluster, (columns.unit, columns.outcome))
        return SparkTable(
            rows=rows,
            columns=columns,
            space=asked.space,
            clip=asked.clip,
            verbose=asked.verbose,
            allow_unencrypted=self.allow_unencrypted,
        )
