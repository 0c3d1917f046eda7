"""Spark as the tests run it: one session for all of them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from clusterdp.engines.spark.session import check_java
from clusterdp.errors import ClusterDPError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

# No more than this may come to the driver from a job: rows of a table of some size do not fit.
MAX_RESULT_BYTES = 2**20


def missing_java() -> str | None:
    """Why Spark cannot run here; None where it can."""
    try:
        check_java()
    except ClusterDPError as error:
        return str(error)
    return None


def session(scratch: Path) -> Iterator[SparkSession]:
    """A small, quick session whose tasks may fail three times."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    events = scratch / "events"
    events.mkdir(parents=True)
    spark = (
        SparkSession.builder.master("local[2,4]")
        .appName("clusterdp tests")
        .config("spark.driver.host", "localhost")
        .config("spark.driver.maxResultSize", str(MAX_RESULT_BYTES))
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", f"file://{events}")
        .config("spark.eventLog.compress", "false")
        .config("spark.io.encryption.enabled", "true")
        .config("spark.local.dir", str(scratch))
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    yield spark
    spark.stop()
