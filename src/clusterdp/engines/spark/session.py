"""A Spark session, what it must encrypt, and its frames.

The command line starts a session of its own, with one clear line where Spark cannot start. Spark
sends a task to its workers as a broadcast, the keys of rows inside. Broadcasts get to disks when
memory is short, and shuffled counts always: so what its machines store and send must be encrypted.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.engines.spark._jobs import no_pandas_warnings, running, spark_to_polars
from clusterdp.errors import ClusterDPError, DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import DataFrame, SparkSession


STORED = "spark.io.encryption.enabled"
_AUTHENTICATED = "spark.authenticate"
_SENT = "spark.network.crypto.enabled"
_SENT_BY_SSL = "spark.ssl.rpc.enabled"
# Both sides of a connection must have it; YARN and Kubernetes distribute it themselves.
_SECRET = "spark.authenticate.secret"  # noqa: S105 - where it is, not what it is
_STANDALONE, _LOCAL_CLUSTER = "spark://", "local-cluster"


def in_one_process(master: str) -> bool:
    """Whether a master runs everything in one Java process. A `local-cluster` does not."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def on_this_machine(master: str) -> bool:
    """Whether nothing of a master is on another machine."""
    return in_one_process(master) or master.startswith(_LOCAL_CLUSTER)


def check_encryption(context: SparkContext) -> None:
    """Raise a ParameterError if a session stores or sends anything unencrypted.

    One process sends nothing. It stores as much as a cluster, where everyone on this machine can
    read it.
    """
    conf, master = context.getConf(), str(context.master)
    sent = [_SENT_BY_SSL] if _is_on(conf, _SENT_BY_SSL) else [_AUTHENTICATED, _SENT]
    needed = [STORED] if in_one_process(master) else [STORED, *sent]
    missing = [name for name in needed if not _is_on(conf, name)]
    if missing:
        raise ParameterError(
            f"a Spark session at {master} must encrypt what it stores and sends: the key of the "
            f"release is among it. Start it with {' and '.join(f'{n}=true' for n in missing)}"
        )


def encrypt(conf: SparkConf, master: str) -> None:
    """Add settings that encrypt, unless the user set them or other machines must have them, too.

    A standalone cluster must have the secret; a driver that runs in the cluster was started with
    its settings.
    """
    conf.setIfMissing(STORED, "true")
    if in_one_process(master) or _is_on(conf, _SENT_BY_SSL):
        return
    if master.startswith(_LOCAL_CLUSTER):
        conf.setIfMissing(_SECRET, secrets.token_hex(32))
    alone = master.startswith(_STANDALONE) and conf.get(_SECRET) is None
    if not alone and conf.get("spark.submit.deployMode") != "cluster":
        conf.setIfMissing(_AUTHENTICATED, "true")
        if _is_on(conf, _AUTHENTICATED):
            conf.setIfMissing(_SENT, "true")


def _is_on(conf: SparkConf, name: str) -> bool:
    return str(conf.get(name, "false")).lower() == "true"


_OLDEST_JAVA = 17
_NO_JAVA = (
    f"Spark needs Java {_OLDEST_JAVA} or newer{{}}: install it (such as openjdk-17-jre-headless), "
    "or set JAVA_HOME to where it is"
)
# Where Spark's UI, and all else that listens, can be reached: Java reads it when it starts.
_LISTENS, _LOOPBACK = "SPARK_LOCAL_IP", "127.0.0.1"
_DEFAULT_MASTER = "local[*]"


@contextmanager
def started_session(
    master: str | None, *, allow_unencrypted: bool = False
) -> Iterator[SparkSession]:
    """The session of this process, or a new one that ends with the block.

    A new one encrypts what it stores and sends where the user's settings leave that open, and its
    UI can be reached from this machine alone.

    Args:
        master: Where to run, such as `local[2]` or `yarn`. By default where `spark-submit` or
            Spark's own settings decide, else on all cores of this machine.
        allow_unencrypted: Leave it to the user's settings whether a cluster encrypts anything.

    Raises:
        ClusterDPError: If PySpark or Java is missing, or Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ClusterDPError("the Spark engine needs PySpark: pip install '.[spark]'") from None
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with no_pandas_warnings():
        spark = _start(master, allow_unencrypted=allow_unencrypted)
    try:
        yield spark
    finally:
        spark.stop()


def _start(master: str | None, *, allow_unencrypted: bool) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        gateway = None
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # else spark-submit has started Java
            check_java()
            gateway = _start_java(master)
        # A SparkConf has the settings of spark-submit and of files only once Java runs.
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - there is no other way
        conf = _configure(SparkConf(), master, allow_unencrypted=allow_unencrypted)
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError) as error:
        where = f" with master {master}" if master else ""
        raise ClusterDPError(f"Spark did not start{where} ({type(error).__name__})") from None


def _start_java(master: str | None) -> JavaGateway:
    """Java, listening on this machine alone if Spark is to run here.

    Without a master, Spark's settings decide where it runs, and only Java can read them. If it runs
    elsewhere, Java starts a second time, because other machines must reach it.
    """
    from pyspark import SparkConf

    if master is not None and not on_this_machine(master):
        return _launch(None)
    gateway = _launch(_LOOPBACK)
    found = SparkConf(_jvm=gateway.jvm).get("spark.master", _DEFAULT_MASTER)
    if master is not None or on_this_machine(str(found)):
        return gateway
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()  # Java ends with it
    process.wait()
    return _launch(None)


def _launch(address: str | None) -> Any:
    from pyspark.java_gateway import launch_gateway

    before = os.environ.get(_LISTENS)
    try:
        if address is not None:
            os.environ[_LISTENS] = address  # which Java inherits
        # Spark logs errors at length, with values; the user sees one line without them. To see the
        # log, run spark-submit. What it stores is encrypted, but everyone could see the sizes.
        private = {"stderr": subprocess.DEVNULL, "umask": 0o077}
        return launch_gateway(popen_kwargs=private)  # type: ignore[no-untyped-call]
    finally:
        if before is not None:
            os.environ[_LISTENS] = before
        else:
            os.environ.pop(_LISTENS, None)


def _configure(conf: SparkConf, master: str | None, *, allow_unencrypted: bool) -> SparkConf:
    """What a user's own settings leave open."""
    from pyspark import SparkContext

    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", _DEFAULT_MASTER)
    conf.setIfMissing("spark.app.name", "clusterdp")
    conf.set("spark.ui.showConsoleProgress", "false")  # we have bars of our own
    where = str(conf.get("spark.master"))
    if in_one_process(where) or not allow_unencrypted:
        encrypt(conf, where)
    java: Any = SparkContext._jvm  # noqa: SLF001 - Java's own environment decides
    if java.System.getenv(_LISTENS) == _LOOPBACK:
        conf.setIfMissing("spark.driver.host", _LOOPBACK)
        conf.setIfMissing("spark.driver.bindAddress", _LOOPBACK)
    else:  # the UI would listen to every network that this machine is in
        conf.setIfMissing("spark.ui.enabled", "false")
    if on_this_machine(where):
        # Spark's own 200 are for clusters: here, to start that many tasks takes longer than their
        # work.
        conf.setIfMissing("spark.sql.shuffle.partitions", "16")
        # PySpark takes another Python for its workers than the one that runs.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return conf


def check_java() -> None:
    """Raise a ClusterDPError unless there is a Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        raise ClusterDPError(_NO_JAVA.format(", and JAVA_HOME has none" if home else ""))
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own
    version = re.search(r'version "(\d+)', printed.stderr)
    if version is not None and int(version[1]) < _OLDEST_JAVA:
        raise ClusterDPError(_NO_JAVA.format(f", and {java} is older"))


def checked_frame(frame: Any) -> DataFrame:
    """A Spark frame, if it is of a kind that can be released."""
    module = type(frame).__module__
    if module.startswith("pyspark.sql.connect"):
        raise DataError(
            "a Spark Connect frame cannot be released: it has no way to share a key with "
            "workers. Use a classic session (SparkSession.builder.master(...)), or write the "
            "table and run clusterdp release --engine spark"
        )
    if not module.startswith("pyspark.sql"):
        raise DataError(f"frame must be a Spark DataFrame, got {module}; call its to_spark()")
    checked: DataFrame = frame
    return checked


def select_columns(rows: DataFrame, *names: str) -> DataFrame:
    """Some columns, named by their position: Spark reads more than names into names."""
    positions = [rows.columns.index(name) for name in names]
    numbered = rows.toDF(*(f"c{place}" for place in range(len(rows.columns))))
    return numbered.select(*(f"c{place}" for place in positions))


def column_types(rows: DataFrame, names: Sequence[str]) -> dict[str, pl.DataType]:
    """The types that columns have in the batches that workers get; no row is read."""
    if not names:
        return {}
    with running(rows.sparkSession, "reading the types of columns"):
        empty = spark_to_polars(select_columns(rows, *names).limit(0))
    return dict(zip(names, empty.dtypes, strict=True))


def count_groups(rows: DataFrame, by: list[str], count: str) -> pl.DataFrame:
    """How many rows there are of each combination of some columns: counted by Spark."""
    selected = select_columns(rows, *by)
    with running(rows.sparkSession, "counting released outcomes"):
        groups = spark_to_polars(selected.groupBy(*selected.columns).count())
    groups.columns = [*by, count]
    return groups
