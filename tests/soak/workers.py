"""Whole workers of a standalone Spark cluster that die in pass 1 and in pass 2 of a release.

The cluster is real, and small: a master and two workers, each a process of its own, on this machine
and on 127.0.0.1 alone. A worker is killed with all of its executors, and nothing starts it again.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from clusterdp.engines.spark.engine import SparkEngine
from clusterdp.engines.spark.session import started_session
from soak.executors import Disturbed, Fault, disturb
from soak.kills import undisturbed_run
from soak.owner import write_table
from soak.processes import family

if TYPE_CHECKING:
    from collections.abc import Iterator

    from soak.report import Line

_HERE = "127.0.0.1"
_PATIENCE = 300
_SECRET = "spark.authenticate.secret"  # noqa: S105 - where it is, not what it is
_SETTINGS = (
    "--conf spark.ui.enabled=false --conf spark.authenticate=true "
    "--conf spark.network.crypto.enabled=true --conf spark.io.encryption.enabled=true "
    f"--conf spark.driver.host={_HERE} --conf spark.driver.bindAddress={_HERE} "
    "--conf spark.executor.memory=1g --conf spark.executor.cores=1 "
    "--conf spark.sql.files.maxPartitionBytes=1m --conf spark.sql.shuffle.partitions=8 "
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A standalone cluster.

    Attributes:
        master: Where it is, such as `spark://127.0.0.1:7077`.
        secret: What its processes know each other by.
        workers: The processes of its workers.
    """

    master: str
    secret: str
    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self, owner: int) -> int:
        """Kill a worker and all that it started; returns how many processes those were."""
        doomed = family(self.workers[0].pid)
        for process in doomed:  # the worker first, so that it starts nothing anew
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self.workers[0].wait()
        return len(doomed)


def run_worker_kills(
    folder: Path, n_rows: int = 5_000_000, passes: tuple[int, ...] = (1, 2)
) -> list[Line]:
    """Kill a worker in each pass; compare with an undisturbed run of Spark's, byte by byte."""
    found = []
    for number in passes:
        place = folder / f"cluster-{number}"
        place.mkdir()
        source = write_table(place / "table.parquet", n_rows)
        with running_cluster(place) as cluster, mock.patch.dict(os.environ, _environment(place)):
            fault = Fault(
                what="a worker of a standalone cluster, with its executors,",
                where=("--engine", "spark", "--master", cluster.master),
                settings=f"{_SETTINGS} --conf {_SECRET}={cluster.secret} pyspark-shell",
                kill=cluster.kill_worker,
            )
            found.append(disturb(source, number, fault))
    same = f"{n_rows:,} rows, the same bytes as an undisturbed run's"
    with started_session("local[2]") as spark:
        return [one.line(partial(_different_files, SparkEngine(spark)), same) for one in found]


def _different_files(engine: SparkEngine, one: Disturbed) -> list[str]:
    """The files of a release that an undisturbed run publishes otherwise."""
    again = undisturbed_run(one.target, one.source, one.key, one.record, engine)
    names = {
        str(path.relative_to(place)) for place in (one.target, again) for path in _files(place)
    }
    return [
        f"{name} differs"
        for name in sorted(names)
        if not (one.target / name).is_file()
        or not (again / name).is_file()
        or (one.target / name).read_bytes() != (again / name).read_bytes()
    ]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@contextmanager
def running_cluster(folder: Path, n_workers: int = 2) -> Iterator[Cluster]:
    """A cluster on free ports of this machine; all of its processes end with the block."""
    secret, (port, ui, *others) = secrets.token_hex(32), _free_ports(2 + 2 * n_workers)
    started: list[subprocess.Popen[bytes]] = []
    options = (
        f"-Dspark.authenticate=true -D{_SECRET}={secret} "
        "-Dspark.network.crypto.enabled=true -Dspark.io.encryption.enabled=true"
    )
    environment = {**os.environ, **_environment(folder), "SPARK_DAEMON_JAVA_OPTS": options}
    master = f"spark://{_HERE}:{port}"
    try:
        started.append(
            _start(
                folder, environment, "master.Master", "-h", _HERE, "-p", port, "--webui-port", ui
            )
        )
        _wait_for_workers(ui, 0)
        for number in range(n_workers):
            port, ui_port = others[2 * number : 2 * number + 2]
            listening = ("-h", _HERE, "-p", port, "--webui-port", ui_port)
            size = ("-c", 1, "-m", "1g", "-d", folder / f"worker-{number}")
            worker = _start(folder, environment, "worker.Worker", *listening, *size, master)
            started.append(worker)
        _wait_for_workers(ui, n_workers)
        yield Cluster(master, secret, started[1:])
    finally:
        for process in started:
            for one in reversed(family(process.pid)):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait()


def _start(
    folder: Path, environment: dict[str, str], role: str, *arguments: object
) -> subprocess.Popen[bytes]:
    """A process of the cluster, by PySpark's own jars."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(program), f"org.apache.spark.deploy.{role}", *map(str, arguments)]
    with (folder / "cluster.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)  # noqa: S603


def _environment(folder: Path) -> dict[str, str]:
    """What all processes of the cluster and of the owner share."""
    return {
        "SPARK_LOCAL_IP": _HERE,
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_WORKER_OPTS": "",
        "PYSPARK_PYTHON": sys.executable,
        # Workers import what the owner does.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def _free_ports(n_ports: int) -> list[int]:
    with suppress(OSError):
        sockets = [socket.create_server((_HERE, 0)) for _ in range(n_ports)]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        return ports
    raise RuntimeError("no free ports")


def _wait_for_workers(ui: int, n_workers: int) -> None:
    """Wait until the master knows so many workers."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with (
            suppress(URLError, ConnectionError, TimeoutError),
            urlopen(f"http://{_HERE}:{ui}/json/", timeout=5) as answer,
        ):
            # The master says so of itself as well.
            if answer.read().count(b'"ALIVE"') > n_workers:
                return
        time.sleep(0.2)
    raise RuntimeError("the cluster does not start")
