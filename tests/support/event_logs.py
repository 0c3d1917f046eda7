"""Spark's event log, without what differs between any two runs: times, ids, sizes in bytes."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

Event = dict[str, Any]

# Fields of events, by their names: times, ids, sizes in bytes, and memory in use.
_LEFT_OUT = re.compile(
    r"(?i)time|\bids?$|[a-z]Ids?$|bytes|size|memory|scope|Executor Metrics|"
    r"jobTags|spark\.(job\.tags|sql\.execution)"
)
# Memory in use, and what Java's garbage collection found.
_LEFT_OUT_EVENTS = ("SparkListenerStageExecutorMetrics", "SparkListenerUnpersistRDD")
# The same of metrics.
_LEFT_OUT_METRICS = re.compile(r"(?i)time|duration|bytes|size|memory|written output|avg hash")
# Ids within texts; and calls by reflection, which Java makes in another way once they are many.
_IDS = re.compile(
    r"#\d+|plan_id=\d+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|"
    r"(java\.base/)?jdk\.internal\.reflect\.[^\n]*(\n|\\n)?"
)


def read_log(spark: SparkSession) -> list[Event]:
    """The events so far."""
    context: Any = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - the log lags behind
    folder = Path(context.getConf().get("spark.eventLog.dir").removeprefix("file://"))
    files = sorted(path for path in folder.rglob("events_*") if path.is_file())
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def comparable(events: list[Event], *places: Path) -> Counter[str]:
    """The events, as far as two runs of the same job have them in common, in any order.

    Args:
        events: Some events.
        places: Paths that were this run's own.
    """
    names = dict(metric for event in events for metric in _metrics(event))
    found: Counter[str] = Counter()
    for event in events:
        if event["Event"] in _LEFT_OUT_EVENTS:
            continue
        if "accumUpdates" in event:
            updates = [{"Name": names[key], "Value": n} for key, n in event["accumUpdates"]]
            event = event | {"accumUpdates": updates}  # noqa: PLW2901 - the same, by name
        text = _as_text(_plain(event))
        for place in places:
            text = text.replace(str(place), "PLACE")
        found[text] += 1
    return found


def _metrics(value: Any) -> Iterator[tuple[int, str]]:
    """The ids and names of all metrics in a plan."""
    if isinstance(value, dict):
        if "accumulatorId" in value:
            yield value["accumulatorId"], value["name"]
        for item in value.values():
            yield from _metrics(item)
    if isinstance(value, list):
        for item in value:
            yield from _metrics(item)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_plain(item) for item in value if not _is_left_out(item)), key=_as_text)
    if not isinstance(value, dict):
        return value
    if "Update" in value:  # of a task; what is added up so far depends on the order of tasks
        value = {name: item for name, item in value.items() if name != "Value"}
    return {name: _plain(item) for name, item in value.items() if not _LEFT_OUT.search(name)}


def _is_left_out(item: Any) -> bool:
    return isinstance(item, dict) and bool(_LEFT_OUT_METRICS.search(str(item.get("Name", ""))))


def _as_text(value: Any) -> str:
    return _IDS.sub("ID", json.dumps(value, sort_keys=True))
