"""A Spark session for the command line; and one clear line where Spark cannot start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.errors import ClusterDPError
from clusterdp.spark_jobs import no_pandas_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_OLDEST_JAVA = 17
_NO_JAVA = (
    f"Spark needs Java {_OLDEST_JAVA} or newer{{}}: install it (such as openjdk-17-jre-headless), "
    "or set JAVA_HOME to where it is"
)
_NO_PYSPARK = "the Spark engine needs PySpark: pip install 'clusterdp[spark]'"


@contextmanager
def started_session(master: str | None) -> Iterator[SparkSession]:
    """The session of this process, or a new one that ends with the block.

    Args:
        master: Where to run, such as `local[2]` or `yarn`. By default where `spark-submit` or
            Spark's own settings say, else on all cores of this machine.

    Raises:
        ClusterDPError: If PySpark or Java is missing, or Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ClusterDPError(_NO_PYSPARK) from None
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with no_pandas_warnings():
        spark = _start(master)
    try:
        yield spark
    finally:
        spark.stop()


def _start(master: str | None) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    try:
        gateway = None
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started Java
            check_java()
            # Spark logs at length, values too, what is then told in one line. Who wants its log
            # runs spark-submit.
            quiet = {"stderr": subprocess.DEVNULL}
            gateway = launch_gateway(popen_kwargs=quiet)  # type: ignore[no-untyped-call]
        # Only once Java runs does a SparkConf know the settings of spark-submit and of files.
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - there is no other way
        conf = _configure(SparkConf(), master)
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError) as error:
        where = f" with master {master}" if master else ""
        raise ClusterDPError(f"Spark did not start{where} ({type(error).__name__})") from None


def _configure(conf: SparkConf, master: str | None) -> SparkConf:
    """What a user's own settings leave open."""
    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", "local[*]")
    conf.setIfMissing("spark.app.name", "clusterdp")
    conf.set("spark.ui.showConsoleProgress", "false")  # we have bars of our own
    if str(conf.get("spark.master")).startswith("local"):
        # What Spark puts on this machine's disks meanwhile is of no use to others.
        conf.setIfMissing("spark.io.encryption.enabled", "true")
        # PySpark takes another Python for its workers than the one that runs.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return conf


def check_java() -> None:
    """Raise a ClusterDPError unless there is a Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        raise ClusterDPError(_NO_JAVA.format(", and JAVA_HOME has none" if home else ""))
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own
    version = re.search(r'version "(\d+)', told.stderr)
    if version is not None and int(version[1]) < _OLDEST_JAVA:
        raise ClusterDPError(_NO_JAVA.format(f", and {java} is older"))
