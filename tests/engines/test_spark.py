"""What is Spark's own: where rows and keys go, what is retried, and what is said when it fails."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import PARTS, assert_refused, run
from clusterdp.engines.spark import _jobs as spark_jobs
from clusterdp.engines.spark import table as spark_engine
from clusterdp.engines.spark._files import HadoopFolder, settle_store, sum_files
from clusterdp.engines.spark._jobs import running, spark_to_polars
from clusterdp.engines.spark._randomizing import RandomizeRows
from clusterdp.engines.spark._sources import spark_texts_as_numbers as spark_texts
from clusterdp.engines.spark.table import SparkTable
from clusterdp.errors import TableChangedError
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import Event, NoJournal
from clusterdp.releasing.prepare import prepare_table
from clusterdp.rows.column_types import PLAIN, Notation
from clusterdp.rows.column_types import texts_as_numbers as local_texts
from clusterdp.rows.keys import KeyRing, response_key
from clusterdp.storage.folder import LocalFolder
from fixed_release import checksums
from forging import forge
from released import drawn_of
from runs import write_release
from spark_releases import KEY, to_table, write
from spark_runs import MAX_RESULT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from clusterdp.engines.base import Pass


pytestmark = pytest.mark.spark

PAID: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "mechanism": cdp.optimal(epsilon=2),
    "engine": "spark",
    "population": "us",
    "new_population": True,
}


def test_text_is_read_as_by_the_local_engine(spark: SparkSession) -> None:
    words = ["", "  ", "NA", "n/a", " null\t", "None", "NaN", "True", " false", "unknown", "?"]
    numbers = ["7", " 7 ", "-.5", "1.", "1e3", "1e999", "inf", "1d", "0x1p3", "1_000", "\u0661"]
    written = ["51,55", "1.234,5", "1,234.5", "1.23,5", "1\u202f234,5", "1 23", "1'234", "5%"]
    texts = pl.DataFrame({"y": [*words, *numbers, *written, None]}, schema={"y": pl.String})
    given = spark.createDataFrame(texts.to_arrow())
    for notation in (PLAIN, Notation(decimal=",", thousands="."), Notation(thousands=" ")):
        ours = spark_to_polars(spark_texts(given, ["y"], notation))["y"].to_list()
        assert ours == local_texts(texts.lazy(), ["y"], notation).collect()["y"].to_list()
        assert any(number is None for number in ours)


def test_rows_never_reach_the_driver(
    spark: SparkSession, rng: np.random.Generator, tmp_path: Path
) -> None:
    n_rows = MAX_RESULT_BYTES // 16
    table = pl.DataFrame(
        {
            "user": rng.permutation(n_rows),
            "treated": np.arange(n_rows) % 2,
            "market": np.arange(n_rows) // 2 % 5,
            "clicks": rng.integers(0, 4, n_rows),
        }
    )
    path = tmp_path / "t.parquet"
    table.write_parquet(path)
    rows = spark.read.parquet(str(path))
    with pytest.raises(cdp.ClusterDPError, match="Spark failed"), running(spark, "collecting"):
        rows.toArrow()  # the bound is one: rows do not fit
    write(to_table(rows), LocalFolder(tmp_path / "out"))
    assert cdp.read_release(tmp_path / "out").layout.n_units == n_rows
    released = cdp.release(
        rows,
        mechanism=cdp.uniform_prior_dp(epsilon=1),
        outcomes={"clicks": "0..3"},
        unit="user",
        arm="treated",
        cluster="market",
    )
    assert cdp.estimate(released).effects


def test_retried_tasks_and_other_partitions_give_the_same_files(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.createDataFrame(table.to_arrow())
    write(to_table(rows.coalesce(1)), LocalFolder(tmp_path / "once"))

    class FailsFirst(RandomizeRows):
        """Publishes a batch, and then breaks down, until it is tried again."""

        def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            context = TaskContext.get()
            for published in RandomizeRows.__call__(self, batches):
                yield published
                if context is not None and context.attemptNumber() == 0:
                    raise RuntimeError

    monkeypatch.setattr(spark_engine, "RandomizeRows", FailsFirst)
    # In the order of outcomes, which the local engine would refuse to publish.
    write(to_table(rows.repartition(5).sort("clicks")), LocalFolder(tmp_path / "retried"))
    assert checksums(tmp_path / "once") == checksums(tmp_path / "retried")


def test_the_key_is_in_no_file(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even in the driver's files of broadcasts, which Spark would encrypt."""
    from pyspark import Broadcast

    secret = KeyRing(KEY)[response_key(("clicks",))]
    dumped: list[bytes] = []
    dump = Broadcast.dump

    def watched(self: Any, value: Any, file: Any) -> None:
        dumped.append(pickle.dumps(value))
        dump(self, value, file)

    monkeypatch.setattr(Broadcast, "dump", watched)
    write(to_table(spark.createDataFrame(table.to_arrow())), LocalFolder(tmp_path / "out"))
    assert dumped
    assert not any(secret in one for one in dumped)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(secret in path.read_bytes() for path in files)
    assert secret.hex() not in str(spark.sparkContext.getConf().getAll())
    spark.sparkContext.broadcast({"key": secret})
    assert secret in dumped[-1]  # were it in a broadcast, it would be


def test_a_users_session_is_left_as_it_was(table: pl.DataFrame, spark: SparkSession) -> None:
    batch, case = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.caseSensitive"
    spark.conf.set(batch, "123")
    before = spark.conf.get(case)
    spark.sparkContext.setJobGroup("mine", "my work")
    try:
        to_table(spark.createDataFrame(table.to_arrow())).read_layout(None)
        assert spark.conf.get(batch) == "123"
        assert spark.conf.get(case) == before
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "my work"
    finally:
        spark.conf.unset(batch)
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_progress_is_told_in_rows(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_jobs, "_SECONDS_BETWEEN_LOOKS", 0.01)
    told: dict[str, list[int]] = {}

    class Listener:
        def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
            told[name] = []
            return told[name].append

    table = pl.concat([table.with_columns(pl.col("user") + 1000 * part) for part in range(4)])
    rows = spark.createDataFrame(table.to_arrow()).repartition(8)
    write(to_table(rows), LocalFolder(tmp_path / "out"), Listener())
    for name in ("counting cells", "randomizing rows"):
        assert sum(told[name]) == len(table)
        assert min(told[name]) >= 0
    assert len(told["counting cells"]) >= 2  # cells, then ids


def test_a_folder_on_a_store_without_renames(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    opened = to_table(spark.createDataFrame(table.to_arrow()))
    target = HadoopFolder(spark, (tmp_path / "a folder").as_uri().replace("%20", " "))
    assert target.manifest() is None
    write(opened, target)
    checks = verify_folder(tmp_path / "a folder")
    assert [check.problem for check in checks] == [None] * len(checks)
    assert target.manifest() == (tmp_path / "a folder" / "manifest.json").read_bytes()
    with pytest.raises(cdp.OutputError, match="never overwritten"):
        target.check_free()
    stated = json.loads((tmp_path / "a folder" / "manifest.json").read_bytes())["files"]
    found = sum_files(spark, f"{target.uri}/units")
    assert {name: stated[f"units/{name}"] for name in found} == {
        name: msgspec.structs.asdict(found[name]) for name in found
    }
    part = tmp_path / "a folder" / "units" / "part-00000.parquet"
    content = part.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    part.write_bytes(content[:start] + b"user 17 clicked" + content[start:])
    forge(tmp_path / "a folder")
    (problem,) = filter(None, (one.problem for one in verify_folder(tmp_path / "a folder")))
    assert "bytes outside its columns" in problem


def test_files_on_a_store_get_plain_names(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "units"
    folder.mkdir()
    for name in ("part-00001-b-c000.parquet", "part-00000-a-c000.parquet", "_SUCCESS"):
        (folder / name).write_text(name)
    settle_store(spark, f"file://{folder}")
    assert {path.name: path.read_text() for path in folder.glob("[!.]*")} == {
        "part-00000.parquet": "part-00000-a-c000.parquet",
        "part-00001.parquet": "part-00001-b-c000.parquet",
    }


def test_what_fails_on_such_a_store_leaves_nothing(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    class Interrupter:
        def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
            if name == "sealing the folder":
                assert (tmp_path / "out" / "units").is_dir()
                raise KeyboardInterrupt
            return lambda _: None

    target = HadoopFolder(spark, f"file://{tmp_path}/out")
    opened = to_table(spark.createDataFrame(table.to_arrow()))
    with pytest.raises(KeyboardInterrupt):
        write(opened, target, Interrupter())
    assert not (tmp_path / "out").exists()
    with target.staged("a claim") as staged:
        with pytest.raises(cdp.OutputError), target.staged("another"):
            pass  # two runs at once
        (staged.files / "manifest.json").write_bytes(b"{}")
    assert os.listdir(tmp_path / "out") == ["manifest.json"]  # noqa: PTH208 - hidden ones, too


def test_rows_are_on_such_a_store_only_after_their_budget_is_on_record(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    """Everyone who can read the store sees them: a release that may be cancelled has none there."""

    class Killed(NoJournal):
        def keep(self, event: Event, drawn: bytes) -> None:
            del event, drawn
            assert not (tmp_path / "out" / "units").exists()
            raise KeyboardInterrupt

    opened = to_table(spark.createDataFrame(table.to_arrow()))
    target = HadoopFolder(spark, f"file://{tmp_path}/out")
    with pytest.raises(KeyboardInterrupt):
        write_release(
            prepare_table(opened), (cdp.uniform_prior_dp(epsilon=1),), target, journal=Killed(KEY)
        )


def test_rows_of_a_table_that_was_replaced_never_leave_spark(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everyone who can read the store would see them, also if the run is killed at once."""
    other = table.with_columns(
        clicks=pl.when(user=7).then(3 - pl.col("clicks")).otherwise("clicks")
    )
    honest = SparkTable.run
    written: list[Path] = []

    def swap(opened: SparkTable, asked: Pass) -> Any:
        if asked.randomizer is None:
            return honest(opened, asked)
        replaced = to_table(spark.createDataFrame(other.to_arrow()).repartition(3))
        try:
            return honest(replaced, asked)
        finally:
            written.extend((tmp_path / "out").rglob("part-*.parquet"))

    monkeypatch.setattr(SparkTable, "run", swap)
    opened = to_table(spark.createDataFrame(table.to_arrow()))
    with pytest.raises(TableChangedError):
        write(opened, HadoopFolder(spark, f"file://{tmp_path}/out"))
    assert not written
    assert not (tmp_path / "out").exists()


class KilledError(BaseException):
    """The end of a process, which cleans up nothing."""


@pytest.fixture
def killed(
    source: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Ledger, str]:
    """A ledger, and the id of a release that was killed when its rows were on a store."""
    ledger = Ledger.create(tmp_path / "budget.db", 2)
    out = f"file://{tmp_path}/out"

    def kill(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("clusterdp.releasing.targets.cells_table", kill)
        patched.setattr(HadoopFolder, "_remove_below", lambda *_: None)
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(KilledError):
            cdp.publish(str(source), out=out, ledger=ledger, **PAID)
    (record,) = ledger.releases()
    assert list((tmp_path / "out" / "units").glob("part-*.parquet"))
    return ledger, record.release_id


@pytest.mark.parametrize("end", ["resume", "resume elsewhere", "close", "close without Spark"])
def test_what_a_killed_run_left_on_such_a_store_is_removed(
    end: str,
    killed: tuple[Ledger, str],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, release_id = killed
    out, name = tmp_path / "out", "elsewhere" if end == "resume elsewhere" else "out"
    before = pl.read_parquet(out / "units")
    with pytest.raises(cdp.OutputError, match="was interrupted there"):
        HadoopFolder(spark, f"file://{out}").check_free("another")
    if end.startswith("resume"):
        cdp.resume(release_id, ledger=ledger, out=f"file://{tmp_path}/{name}")
        # Others may have seen its rows, so that they are the same again.
        assert cdp.read_release(tmp_path / name).units.collect().equals(before)
        checks = verify_folder(tmp_path / name)
        assert [check.problem for check in checks] == [None] * len(checks)
        assert out.exists() == (name == "out")
    elif end == "close":
        assert "left" not in (ledger.close(release_id).ended or {})
        assert not out.exists()
    else:
        monkeypatch.setattr(type(spark), "getActiveSession", lambda: None)
        assert f"{out} may be left there" in (ledger.close(release_id).ended or {})["left"]
    assert not HadoopFolder(spark, f"file://{out}").working.exists()
    assert ledger.verify() == []


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv", "csv.gz"])
def test_the_command(kind: str, table: pl.DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    odd = table.with_columns(
        treated=pl.format('of "{}", it is', "treated"),
        day=pl.lit("2024-01-01"),
        user=pl.col("user").cast(pl.String).str.zfill(4),
        zip=(pl.col("user") % 20).cast(pl.String).str.zfill(2),
    )
    for part, rows in enumerate(odd.iter_slices(250)):
        path = tmp_path / "in" / f"{part}.{kind}"
        if kind == "parquet":
            rows.write_parquet(path)
        elif kind == "csv.gz":
            path.write_bytes(gzip.compress(rows.write_csv(separator=";").encode()))
        else:
            rows.write_csv(path, separator="," if kind == "csv" else "\t")
    parts = [*PARTS]
    parts[5] = "market,day"
    for engine in ("local", "spark"):
        options: tuple[object, ...] = ("--epsilon", 1)
        options += (
            "--passthrough",
            "secret,day,zip",
            "--control",
            'of "0", it is',
            "--engine",
            engine,
        )
        out = tmp_path / engine
        place = out if engine == "local" else f"file://{out}"
        result = run("release", tmp_path / "in", *parts, *options, "--out", place)
        assert result.exit_code == 0, result.output
        assert run("verify", out).exit_code == 0
        assert run("estimate", out, "--by", "day").exit_code == 0
    ours, theirs = (cdp.read_release(tmp_path / name) for name in ("local", "spark"))
    public = list(ours.columns.public)
    assert (
        theirs.units.select(public)
        .collect()
        .equals(ours.units.select(public).collect().sort("user"))
    )
    cells = [ours.columns.cluster, ours.columns.arm, "size"]
    assert theirs.cells.select(cells).equals(ours.cells.select(cells))


REFUSED = {
    "no such file": ("nowhere.parquet", (), "there is no file"),
    "another kind": ("t.arrow", (), "unsupported file type for Spark"),
    "DuckDB": ("duckdb://", ("--query", "select 1"), "read by the local engine"),
    "a broken row": ("broken.csv", (), "rows that differ in type"),
    "no such engine": ("t.arrow", ("--engine", "flink"), "engine must be local or spark"),
    "a master of nothing": ("t.arrow", ("--engine", "local", "--master", "x"), "--engine spark"),
    "a store without Spark": (
        "t.arrow",
        ("--engine", "local", "--out", "s3a://bucket/x"),
        "give --engine spark",
    ),
    "another store": ("t.arrow", ("--out", "nosuch://bucket/x"), "cannot write nosuch://bucket/x"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_of_the_command(
    name: str, table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    source, options, message = REFUSED[name]
    table.write_ipc(tmp_path / "t.arrow")
    text = table.write_csv()
    (tmp_path / "broken.csv").write_text(text + "4321,0,1,2,3,4\n")
    budget = ("--epsilon", 1, "--engine", "spark", "--out", tmp_path / "out")
    place = source if ":" in source else tmp_path / source
    assert_refused(run("release", place, *PARTS, *budget, *options), message)
    assert not (tmp_path / "out").exists()


def test_a_dry_run_reads_public_columns_alone(
    table: pl.DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    table.with_columns(clicks=pl.col("clicks") + 4321).write_parquet(path)
    options = ("--epsilon", 1, "--engine", "spark", "--dry-run", "--json")
    result = run("release", path, *PARTS, *options)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["plan"]["n_units"] == len(table)


def test_errors_of_workers_show_no_value(table: pl.DataFrame, spark: SparkSession) -> None:
    def break_down(batches: Iterator[Any]) -> Iterator[Any]:
        raise ValueError([batch.to_pylist() for batch in batches])

    rows = spark.createDataFrame(table.with_columns(user=4321).to_arrow()).coalesce(1)
    with pytest.raises(cdp.ClusterDPError) as caught, running(spark, "breaking down"):
        rows.mapInArrow(break_down, rows.schema).toArrow()
    assert "while breaking down" in str(caught.value)
    assert "4321" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "message"),
    [("pyspark.sql.connect.dataframe", "Connect"), ("pyspark.pandas.frame", "to_spark()")],
)
def test_frames_that_cannot_be_released(module: str, message: str) -> None:
    frame = type("DataFrame", (), {"__module__": module})()
    with pytest.raises(cdp.DataError, match=message):
        cdp.release(
            frame,
            mechanism=cdp.uniform_prior_dp(epsilon=1),
            outcomes={"clicks": "0..3"},
            unit="user",
            arm="treated",
            cluster="market",
        )


def test_segments_of_rows_in_spark_are_refused(table: pl.DataFrame, spark: SparkSession) -> None:
    released = cdp.release(
        spark.createDataFrame(table.to_arrow()),
        mechanism=cdp.uniform_prior_dp(epsilon=1),
        outcomes={"clicks": "0..3"},
        unit="user",
        arm="treated",
        cluster="market",
    )
    with pytest.raises(cdp.DataError, match="read_release"):
        cdp.estimate(released, by="market")


def test_an_interrupted_release_is_finished(
    source: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, out = tmp_path / "budget.db", tmp_path / "out"
    run("ledger", "init", where, "--cap-epsilon", 2)
    paid = ("--ledger", where, "--population", "us", "--new-population", "--epsilon", 2)
    command = ("release", source, *PARTS, "--engine", "spark", *paid)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SparkTable, "_publish", stop)
        assert run(*command, "--out", out).exit_code == 130
    (unfinished,) = Ledger(str(where)).releases()
    kept = Ledger(str(where)).resume(unfinished.release_id).recall("drawn")
    assert unfinished.status == "drawn"
    resumed = run("release", "--resume", unfinished.release_id, "--ledger", where)
    assert resumed.exit_code == 0, resumed.output
    published = cdp.read_release(out)
    assert kept is not None
    drawn = drawn_of(kept, published)
    (sums,), (kept_sums,) = published.questions[0].statistics, drawn.questions[0].statistics
    assert np.array_equal(sums.arrays()["noisy_sum"], kept_sums.arrays()["noisy_sum"])
    assert (out / "units" / "part-00000.parquet").exists()
    assert [one.status for one in Ledger(str(where)).releases()] == ["committed"]


@pytest.mark.parametrize("home", [None, "/nowhere"])
def test_without_java_one_sentence_says_what_to_install(home: str | None, tmp_path: Path) -> None:
    environment = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(tmp_path)} | ({} if home is None else {"JAVA_HOME": home})
    command = "from clusterdp.cli.app import app; app()"
    arguments = ("release", "t.parquet", *PARTS, "--epsilon", "1")
    result = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", command, *arguments, "--engine", "spark", "--dry-run"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: Spark needs Java 17 or newer")
    message, undone = result.stderr.strip().split("\n\n")
    assert " ".join(message.split()).endswith("or set JAVA_HOME to where it is")
    assert undone.strip() == "Nothing was published."
