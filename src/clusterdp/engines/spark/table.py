"""The Spark engine: the two passes on a cluster. Rows never come to the driver.

Pass 1 counts cells; pass 2 randomizes rows. Workers run the same functions as the local engine, on
Arrow batches; Spark adds up what they counted and puts rows in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp._text import NOT_PLAIN
from clusterdp.engines.base import (
    COUNTING,
    RANDOMIZING,
    EngineTable,
    PassResult,
)
from clusterdp.engines.cells import to_layout
from clusterdp.engines.spark._counting import (
    CountRows,
    Parts,
    all_pairs,
    count_kinds,
    count_repeated,
    counted_columns,
    counted_schema,
    put_together,
    text_kinds_schema,
)
from clusterdp.engines.spark._files import (
    LOCAL_SCHEME,
    local_path,
    settle_files,
    settle_store,
    sum_files,
)
from clusterdp.engines.spark._jobs import running, shared, spark_to_polars
from clusterdp.engines.spark._parcels import parcel_schema, send
from clusterdp.engines.spark._randomizing import (
    NUMBER,
    RandomizeRows,
    RowPlaces,
    SameTable,
    SeenParts,
    first_rows,
    n_parts,
    order_rows,
    total_seen,
)
from clusterdp.engines.spark._sources import FILE, ROW, spark_text_columns
from clusterdp.engines.spark.session import check_encryption, column_types, select_columns
from clusterdp.errors import DataError, TableChangedError
from clusterdp.rows.column_types import check_types
from clusterdp.rows.tally import Tally
from clusterdp.spec.columns import FOLD, QUESTION, RESPONSE
from clusterdp.storage.folder import UNIT_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import Pass
    from clusterdp.engines.cells import CellOptions
    from clusterdp.rows.keys import Fingerprint
    from clusterdp.rows.randomizing import BatchRandomizer
    from clusterdp.rows.value_codes import CellEncoder

_ORDER_NOT_CHECKED = (
    "the original row order is published (keep_order); Spark does not check whether it reveals "
    "outcomes, the local engine does"
)
_REPEATED = "rows bigint, repeated bigint"
# The bytes of a file must follow from its rows alone, wherever and whenever it is written.
_WRITING = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",  # as the local engine
    # Row groups by rows: Parquet measures them in memory, and has less for each file the more of
    # them are written at a time.
    "parquet.block.row.count.limit": str(2**18),
    # One encoding for each column: of several, Parquet lists the names in the order of addresses in
    # Java's memory. Version 1 always has several, and so has a dictionary.
    "parquet.writer.version": "PARQUET_2_0",
    "parquet.enable.dictionary": "false",
    # No file _SUCCESS: a release is what has a manifest.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparkTable(EngineTable):
    """A Spark table that can be read twice.

    Rows are released in the order of their ids, or in that of the table if its files have one.
    Whether outcomes follow that order is not checked.

    Attributes:
        rows: The table; it must give the same rows each time.
        allow_unencrypted: Whether machines of a cluster may store and send the key, and counts of
            outcomes, as they are.
        texts: The same rows as they came, before text was read as numbers.
    """

    rows: DataFrame
    allow_unencrypted: bool = False
    texts: DataFrame | None = None

    def __post_init__(self) -> None:
        if not self.allow_unencrypted:
            check_encryption(self.spark.sparkContext)
        names = self.rows.columns
        twice = [name for name in self.columns.parts if names.count(name) > 1]
        if twice:
            raise DataError(f"the table has several columns {twice[0]!r}; rename or drop them")
        check_types(self._polars_types(), self.columns)

    @property
    def spark(self) -> SparkSession:
        """The session it belongs to."""
        return self.rows.sparkSession

    def read_cells(self, asked: CellOptions) -> tuple[Layout, CellEncoder]:
        """The cells of the table, and how to encode its rows: no other column is read."""
        return spark_layout(self.rows, asked)

    def unplain_columns(self) -> list[str]:
        """Which passthrough columns are texts that cannot be shown everywhere; no other is read."""
        return unplain_columns(self.rows, self.columns.kept)

    def run(self, asked: Pass) -> PassResult:
        """Read every row once, on all workers; to count or to randomize, never both."""
        return self._count(asked) if asked.randomizer is None else self._publish(asked)

    def _count(self, asked: Pass) -> PassResult:
        """Count rows, and compare their ids."""
        n_units, encoder = asked.layout.n_units, asked.encoder
        plan = encoder, asked.layout, tuple(asked.counts or ())
        tally = Tally(*plan)
        kept = all_pairs(column_types(self.rows, self.columns.kept), encoder, n_units)
        # Parts of numbers that are public: Spark would choose them by their sizes in bytes.
        n_places = sum(one.table.size + one.groups.size for one in tally.questions)
        parts = Parts(n_parts(n_units), n_places, kept)
        keys = asked.keys_for(tally)
        with (
            shared(self.spark.sparkContext, plan) as stored,
            running(self.spark, COUNTING, asked.progress, n_units, 2),
        ):
            task = CountRows(plan=stored, keys=keys, parts=parts)
            parcels = select_columns(self.rows, *counted_columns(encoder)).mapInArrow(
                task, parcel_schema()
            )
            added = send(parcels, parts.n_all).mapInArrow(parts.add_up, counted_schema())
            n_doubtful, reveals = put_together(spark_to_polars(added), tally, parts)
        clipped = self.check(
            asked, tally, lambda: self._count_repeated(n_units) if n_doubtful else 0
        )
        order = (_ORDER_NOT_CHECKED,) if self.keep_order else ()
        leaks = (one for pair, found in reveals.items() for one in pair.notices(encoder, found))
        return PassResult(seen=tally.seen, tally=tally, notices=(*clipped, *order, *leaks))

    def text_shapes(self) -> dict[str, list[int]]:
        """Of each outcome that is text, how many rows have each kind of text that is no number."""
        names = [] if self.texts is None else spark_text_columns(self.texts, self.numeric)
        if self.texts is None or not names:
            return {}
        with running(self.spark, "looking for text that is no number"):
            counted = select_columns(self.texts, *names).mapInArrow(
                partial(count_kinds, names, self.notation), text_kinds_schema(len(names))
            )
            counts = spark_to_polars(counted)
        added = counts.group_by("kind").sum().sort("kind")
        return {name: added[f"c{place}"].to_list() for place, name in enumerate(names)}

    def randomize(
        self, asked: Pass, randomizer: BatchRandomizer, stored: Broadcast[bytes]
    ) -> tuple[DataFrame, Callable[[], Fingerprint]]:
        """The published rows, and what gives their fingerprint once they are evaluated.

        They go into files by their ids, or by their places in the table: how it is split may follow
        from outcomes. What is shuffled for that are randomized rows.

        Args:
            asked: The pass.
            randomizer: What randomizes a batch.
            stored: The same on every worker.
        """
        nothing: dict[int, Fingerprint | None] = {}
        seen = self.spark.sparkContext.accumulator(nothing, SeenParts())  # type: ignore[arg-type]  # it is one by its methods
        files = first_rows(self.spark, self.rows.inputFiles()) if self.keep_order else None
        places = RowPlaces.for_units(randomizer.n_units, files)
        in_table = (FILE, ROW) if self.keep_order else ()
        read = select_columns(self.rows, *self.columns.public, *self.columns.outcomes, *in_table)
        same = None if asked.only is None else SameTable(asked.only)
        keys = asked.keys_for(randomizer)
        task = RandomizeRows(randomizer=stored, keys=keys, places=places, seen=seen, same=same)
        schema, names = self._published_schema(randomizer)
        by = NUMBER if places.firsts is not None else schema.names[0]
        parcels = places.with_number(read).mapInArrow(task, parcel_schema())
        order = partial(order_rows, by, tuple(schema.names), same)
        rows = send(parcels, places.n_parts).mapInArrow(order, schema).toDF(*names)
        return rows, lambda: total_seen(seen.value)

    def _publish(self, asked: Pass) -> PassResult:
        """Randomize rows: into files `units/part-*.parquet`, or stored by Spark as a frame.

        A frame is evaluated once and cut off from the table: evaluated again, after it changed, it
        would randomize other rows with the same key. Rows lost with their machine are an error.
        """
        randomizer = asked.randomizer
        assert randomizer is not None  # noqa: S101 - see `run`
        n_units, folder = randomizer.n_units, asked.folder
        there = None if folder is None else folder.rstrip("/") + "/" + UNIT_PARTS
        path = None if there is None else local_path(there)
        place = there if path is None else f"{LOCAL_SCHEME}//{path}"
        with (
            shared(self.spark.sparkContext, randomizer) as stored,
            running(self.spark, RANDOMIZING, asked.progress, n_units, 2),
        ):
            rows, fingerprint = self.randomize(asked, randomizer, stored)
            if place is None:
                return PassResult(rows=rows.localCheckpoint(eager=True), seen=fingerprint())
            rows.write.options(**_WRITING).parquet(place)
            seen = fingerprint()
        if seen.n_rows != n_units:
            raise TableChangedError
        if path is not None:
            files = settle_files(Path(path), n_units)
        else:
            with running(self.spark, "checking what was written"):
                settle_store(self.spark, place)
                files = sum_files(self.spark, place)
        return PassResult(seen=seen, files={f"{UNIT_PARTS}/{name}": files[name] for name in files})

    def like(self, published: pl.DataFrame) -> DataFrame:
        """Another published table as a Spark DataFrame."""
        with running(self.spark, "taking in cells"):
            return self.spark.createDataFrame(published.to_arrow())

    def _count_repeated(self, n_units: int) -> int:
        """How many rows repeat the id of another: exact, and of ids alone.

        Rows of one id meet in one partition. Spark's own count of distinct values takes many times
        as long where almost all of them are.
        """
        ids = select_columns(self.rows, self.columns.unit)
        met = ids.repartition(n_parts(n_units), *ids.columns)
        with running(self.spark, "looking for repeated ids"):
            counted = spark_to_polars(met.mapInArrow(count_repeated, _REPEATED))
        if counted["rows"].sum() != n_units:
            raise TableChangedError
        return int(counted["repeated"].sum())

    def _published_schema(self, randomizer: BatchRandomizer) -> tuple[StructType, list[str]]:
        """The types of published rows as they leave the workers, and the names of the columns."""
        from pyspark.sql.types import DoubleType, IntegerType, StringType, StructType

        kinds: dict[str, Any] = {
            name: self.rows.schema[name].dataType for name in self.columns.public
        }
        if randomizer.relabelled is not None and self.columns.cluster is not None:
            kinds[self.columns.cluster] = StringType()
        schema = StructType()
        kinds |= {FOLD: IntegerType(), QUESTION: StringType(), RESPONSE: IntegerType()}
        kinds |= dict.fromkeys(self.columns.debiased, DoubleType())
        for place, name in enumerate(self.columns.published):
            schema = schema.add(f"c{place}", kinds[name])
        return schema, list(self.columns.as_published().published)

    def _polars_types(self) -> dict[str, pl.DataType]:
        """The types of the columns that are used; of others, their names."""
        import polars as pl

        used = [name for name in self.columns.parts if name in self.rows.columns]
        types: dict[str, pl.DataType] = dict.fromkeys(self.rows.columns, pl.Null())
        return types | column_types(self.rows, used)


def unplain_columns(rows: DataFrame, names: Sequence[str]) -> list[str]:
    """Which of some columns are texts that cannot be shown everywhere; no other is read."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType

    kinds = {one.name: one.dataType for one in rows.schema.fields}
    texts = [name for name in names if isinstance(kinds[name], StringType)]
    if not texts:
        return []
    kept = select_columns(rows, *texts)
    held = [sf.max(sf.col(name).rlike(NOT_PLAIN)) for name in kept.columns]
    with running(rows.sparkSession, "reading passthrough columns"):
        found = kept.agg(*held).collect()[0]
    return [name for name, is_there in zip(texts, found, strict=True) if is_there]


def spark_layout(rows: DataFrame, asked: CellOptions) -> tuple[Layout, CellEncoder]:
    """What is public of a table: no other column is read."""
    from pyspark.sql import functions as sf

    with running(rows.sparkSession, "reading clusters and arms"):
        cells = select_columns(rows, *asked.parts)
        cells = cells.distinct() if asked.several_rows else cells
        names = cells.columns[: len(asked.groups)]
        n_units = sf.count("*") if asked.size is None else sf.sum(cells.columns[-1])
        counts = (n_units.alias("size"), sf.count("*").alias("n_rows"))
        sizes = spark_to_polars(cells.groupBy(*names).agg(*counts))
    return to_layout(sizes, asked)
