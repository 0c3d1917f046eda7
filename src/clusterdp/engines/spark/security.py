"""What Spark's machines store and send must be encrypted: the key of a release is among it.

Spark sends a task to its workers as a broadcast, the key of the rows inside. Broadcasts get to
disks when memory is short, and shuffled counts always.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

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
    if in_one_process(master):
        sent = []
    missing = [name for name in (STORED, *sent) if not _is_on(conf, name)]
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
