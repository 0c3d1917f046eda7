"""Running Spark: settings for the while, jobs by name in its UI, progress, errors in one line."""

from __future__ import annotations

import pickle
import re
import threading
import uuid
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from clusterdp._progress import no_progress
from clusterdp.engines.spark._parcels import RECORDS_PER_BATCH
from clusterdp.errors import ClusterDPError, DataError, OutputError, TableChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl
    from pyspark import Broadcast, SparkContext
    from pyspark.sql import DataFrame, SparkSession


# What a release depends on, in any session.
_SETTINGS = {
    # Few rows, for a row can be a parcel, and no limit in bytes: to compare with one, Spark would
    # add up what a batch holds at every row, which takes longer than all else that it does.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(RECORDS_PER_BATCH),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.caseSensitive": "true",
    # How many tasks there are must not follow from sizes in bytes, which depend on outcomes.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_SECONDS_BETWEEN_LOOKS = 0.5


@contextmanager
def running(
    spark: SparkSession,
    what: str,
    progress: Callable[[int], None] = no_progress,
    n_rows: int = 0,
    n_stages: int = 1,
) -> Iterator[None]:
    """Run Spark's actions inside.

    Args:
        spark: The session; it may be the user's, and is left as it was.
        what: What is being done, for the UI and for errors.
        progress: Where to report to.
        n_rows: How many rows count as all of it.
        n_stages: How many stages Spark needs for it.

    Raises:
        ClusterDPError: If Spark fails. The message names the kind of failure, and shows no value.
    """
    context, group = spark.sparkContext, f"clusterdp-{uuid.uuid4()}"
    with ExitStack() as stack:
        stack.enter_context(_settings(spark))
        stack.enter_context(_job_group(context, group, f"clusterdp: {what}"))
        stack.enter_context(_errors(what, context.uiWebUrl))
        if n_rows:
            stack.enter_context(_watched(context, group, progress, n_rows, n_stages))
        stack.enter_context(no_pandas_warnings())
        yield


@contextmanager
def no_pandas_warnings() -> Iterator[None]:
    """PySpark warns of new versions of pandas, which is not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    try:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


@contextmanager
def _job_group(context: SparkContext, group: str, description: str) -> Iterator[None]:
    """Jobs that are shown together, and stopped when their owner interrupts them."""
    before = {name: context.getLocalProperty(name) for name in _GROUP_PROPERTIES}
    context.setJobGroup(group, description)
    try:
        yield
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None removes it


@contextmanager
def shared(context: SparkContext, value: Any) -> Iterator[Broadcast[bytes]]:
    """A value on every worker, while it is needed.

    It is pickled here, and read back by `pickle`: in an encrypting session PySpark cannot.
    """
    broadcast = context.broadcast(pickle.dumps(value))
    try:
        yield broadcast
    finally:
        broadcast.destroy()


def spark_to_polars(rows: DataFrame) -> pl.DataFrame:
    """Everything in a Spark table, in this process: for aggregates, never for rows of units."""
    import polars as pl

    return pl.DataFrame(rows.toArrow())


@contextmanager
def _watched(
    context: SparkContext,
    group: str,
    progress: Callable[[int], None],
    n_rows: int,
    n_stages: int,
) -> Iterator[None]:
    """Report tasks that were done as rows, from a thread of its own."""
    n_reported, done = 0, threading.Event()

    def look() -> None:
        nonlocal n_reported
        while not done.wait(_SECONDS_BETWEEN_LOOKS):
            now = int(n_rows * _share_done(context, group, n_stages))
            if now > n_reported:
                progress(now - n_reported)
                n_reported = now

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    progress(n_rows - n_reported)


def _share_done(context: SparkContext, group: str, n_stages: int) -> float:
    """Which share of the tasks of a group of jobs is done, every stage counting equally."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    infos = [info for info in map(tracker.getStageInfo, stages) if info is not None]
    done = sum(info.numCompletedTasks / max(1, info.numTasks) for info in infos)
    return min(1.0, done / max(n_stages, len(infos)))


@contextmanager
def _errors(what: str, ui: str | None) -> Iterator[None]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _in_one_line(error, what, ui) from None


def _in_one_line(error: Exception, what: str, ui: str | None) -> ClusterDPError:
    """What went wrong. Spark quotes values, paths and code; this shows none of them."""
    text = str(error)
    own = re.search(r"clusterdp\.errors\.\w+: (.+)", text)
    if own:
        changed = TableChangedError()
        return changed if own[1].strip() == str(changed) else DataError(own[1].strip())
    if "FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
        return TableChangedError()
    if "MALFORMED" in text or "FAILED_READ_FILE" in text:
        return DataError(
            "the table has rows that differ in type from its first ones; a file may be damaged, or "
            "hold values of different types in one column"
        )
    if "No space left" in text:
        return OutputError(f"cannot finish {what}: No space left on device")
    lacking = re.search(r"No module named '([\w.]+)'", text)
    if lacking:
        return ClusterDPError(
            f"Spark's workers have no {lacking[1]}: install 'clusterdp[spark]' where they run "
            "Python, or set PYSPARK_PYTHON to one that has it"
        )
    more = f"; its log and {ui} show more" if ui else "; its log shows more"
    kind = getattr(error, "getCondition", lambda: None)() or type(error).__name__
    return ClusterDPError(f"Spark failed while {what} ({kind}){more}")
