"""What a Spark session must encrypt, and who can reach a session that was started here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import clusterdp as cdp
from cli_runs import PARTS, assert_refused, run
from clusterdp.engines.spark.session import (
    check_encryption,
    encrypt,
    in_one_process,
    on_this_machine,
)
from clusterdp.ledger.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STORED, SENT = "spark.io.encryption.enabled", "spark.network.crypto.enabled"
AUTHENTICATED, SECRET = "spark.authenticate", "spark.authenticate.secret"
SSL = "spark.ssl.rpc.enabled"


class Conf:
    """Settings, as Spark keeps them."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.settings.get(name, default)

    def setIfMissing(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        self.settings.setdefault(name, value)


def at(master: str, settings: dict[str, str]) -> Any:
    """The context of a session that is not there."""
    return SimpleNamespace(master=master, getConf=lambda: Conf(**settings))


ENCRYPTED = {STORED: "true", AUTHENTICATED: "true", SENT: "true"}


@pytest.mark.parametrize("master", ["yarn", "k8s://x", "spark://x:7077", "local-cluster[2,1,512]"])
@pytest.mark.parametrize("missing", ENCRYPTED)
def test_a_cluster_must_encrypt(master: str, missing: str) -> None:
    check_encryption(at(master, ENCRYPTED))
    check_encryption(at(master, {STORED: "true", SSL: "true"}))
    left = {name: "true" for name in ENCRYPTED if name != missing}
    for settings in (left, left | {missing: "false"}):
        with pytest.raises(cdp.ParameterError, match="must encrypt") as caught:
            check_encryption(at(master, settings))
        assert f"Start it with {missing}=true" in str(caught.value)
        assert master in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,4]"])
def test_one_process_must_encrypt_what_it_stores(master: str) -> None:
    """Its disks are those of everyone on this machine."""
    check_encryption(at(master, {STORED: "true"}))
    for settings in ({}, {STORED: "false"}):
        with pytest.raises(cdp.ParameterError, match=f"Start it with {STORED}=true$"):
            check_encryption(at(master, settings))
    assert in_one_process(master)
    assert on_this_machine(master)


def test_a_cluster_of_processes_is_one() -> None:
    assert not in_one_process("local-cluster[2,1,512]")
    assert on_this_machine("local-cluster[2,1,512]")
    assert not on_this_machine("yarn")
    assert not on_this_machine("localhost:7077")


@pytest.mark.parametrize("master", ["yarn", "k8s://x", "local-cluster[2,1,512]"])
def test_what_settings_leave_open_is_encrypted(master: str) -> None:
    conf: Any = Conf()
    encrypt(conf, master)
    check_encryption(at(master, conf.settings))
    assert (SECRET in conf.settings) == master.startswith("local")


def test_what_settings_say_stays() -> None:
    for master, said in (
        ("yarn", {STORED: "false"}),
        ("yarn", {AUTHENTICATED: "false"}),
        ("yarn", {"spark.submit.deployMode": "cluster"}),
        ("spark://x:7077", {}),  # the cluster would have to know a secret
    ):
        conf: Any = Conf(**said)
        encrypt(conf, master)
        assert conf.settings | said == conf.settings
        with pytest.raises(cdp.ParameterError):
            check_encryption(at(master, conf.settings))
    known: Any = Conf(**{SECRET: "x"})
    encrypt(known, "spark://x:7077")
    check_encryption(at("spark://x:7077", known.settings))
    alone: Any = Conf()
    encrypt(alone, "local[2]")
    assert alone.settings == {STORED: "true"}


@pytest.fixture
def elsewhere(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkContext:
    """The session, as if it were on a cluster that encrypts nothing."""
    context = spark.sparkContext
    monkeypatch.setattr(context, "master", "yarn")
    return context


def release(rows: Any, **options: Any) -> cdp.Release:
    return cdp.release(
        rows,
        mechanism=cdp.uniform_prior_dp(epsilon=1),
        outcomes={"clicks": "0..3"},
        unit="user",
        arm="treated",
        cluster="market",
        **options,
    )


@pytest.mark.usefixtures("elsewhere")
def test_a_users_frame_is_refused_before_anything_is_read(
    table: pl.DataFrame, spark: SparkSession
) -> None:
    rows = spark.createDataFrame(table.to_arrow())
    with pytest.raises(cdp.ParameterError, match="must encrypt what it stores and sends"):
        release(rows)
    assert release(rows, allow_unencrypted_spark=True).units.count() == len(table)


@pytest.mark.usefixtures("elsewhere")
def test_the_command_refuses_before_anything_is_reserved(source: Path, tmp_path: Path) -> None:
    where, out = tmp_path / "budget.db", tmp_path / "out"
    run("ledger", "init", where, "--cap-epsilon", 2)
    paid = (
        "--ledger",
        where,
        "--population",
        "us",
        "--new-population",
        "--epsilon",
        2,
        "--engine",
        "spark",
    )
    command = ("release", source, *PARTS, *paid, "--out", out)
    assert_refused(run(*command), "must encrypt what it stores and sends")
    assert not Ledger(str(where)).releases()
    assert not out.exists()
    assert run(*command, "--allow-unencrypted-spark").exit_code == 0
    assert cdp.read_release(out).layout.n_units


def test_the_option_is_about_spark(source: Path, tmp_path: Path) -> None:
    options = ("--epsilon", 1, "--out", tmp_path / "out")
    result = run("release", source, *PARTS, *options, "--allow-unencrypted-spark")
    assert_refused(result, "--engine spark")


# In a process of its own: a session starts Java, which reads its environment.
_SESSION = """
import json, os, sys
from pathlib import Path
from clusterdp.engines.spark.session import started_session
from listening import listening_addresses

def add(batches):
    yield from batches

with started_session(*json.loads(sys.argv[1])) as spark:
    rows = spark.range(100, numPartitions=2)
    assert len(rows.mapInArrow(add, "id long").collect()) == 100
    context = spark.sparkContext
    place = context.getConf().get("spark.local.dir", "none")
    print(json.dumps({
        "listening": sorted(map(str, listening_addresses(os.getpid()))),
        "stored": [oct(path.stat().st_mode)[-2:] for path in Path(place).rglob("*")],
        "ui": context.uiWebUrl,
        "master": context.master,
        "settings": {k: v for k, v in context.getConf().getAll() if "secret" not in k},
    }))
"""


# Spark's settings name a cluster, which only Java can tell.
_JAVA = """
import json
import psutil
from clusterdp.engines.spark.session import _start_java

gateway = _start_java(None)
names = [one.name() for one in psutil.Process().children(recursive=True)]
print(json.dumps({
    "address": gateway.jvm.System.getenv("SPARK_LOCAL_IP"),
    "n_java": names.count("java"),
}))
"""


def start(master: str | None, settings: str = "", script: str = _SESSION) -> dict[str, Any]:
    """Start a session and let it work; what it then is like."""
    kept = ("SPARK_LOCAL_IP", "PYSPARK_SUBMIT_ARGS")
    environment = {name: text for name, text in os.environ.items() if name not in kept}
    environment["PYSPARK_SUBMIT_ARGS"] = f"{settings} pyspark-shell"
    told = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", script, json.dumps([master])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def test_a_session_here_is_for_its_owner_on_this_machine_alone(tmp_path: Path) -> None:
    found = start(None, f"--conf spark.local.dir={tmp_path}")
    assert set(found["stored"]) == {"00"}
    assert found["ui"] is not None
    assert set(found["listening"]) == {"127.0.0.1"}
    assert found["settings"][STORED] == "true"


def test_a_cluster_of_processes_is_encrypted_and_listens_to_this_machine_alone() -> None:
    found = start(None, "--master local-cluster[1,1,1024]")
    assert found["master"].startswith("local-cluster")
    assert set(found["listening"]) == {"127.0.0.1"}
    assert {name: found["settings"][name] for name in ENCRYPTED} == ENCRYPTED


def test_java_starts_again_where_a_cluster_must_reach_it() -> None:
    found = start(None, "--master spark://nowhere:7077", _JAVA)
    assert found == {"address": None, "n_java": 1}


def test_without_loopback_there_is_no_ui_unless_settings_ask_for_it(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """As where spark-submit has started Java, or Spark runs elsewhere."""
    from clusterdp.engines.spark import session as spark_session

    for said, ui in (({}, "false"), ({"spark.ui.enabled": "true"}, "true")):
        conf: Any = Conf(**{"spark.master": "yarn", **said})
        monkeypatch.setattr(conf, "set", conf.settings.__setitem__, raising=False)
        spark_session._configure(conf, None, allow_unencrypted=False)  # noqa: SLF001 - Java is not asked
        assert conf.settings["spark.ui.enabled"] == ui
        assert "spark.driver.host" not in conf.settings
