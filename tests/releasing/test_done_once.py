"""What one release of a table does once: it parses outcomes, chooses them, and builds its terms."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.owner.job import ReleaseJob
from clusterdp.spec.parse import parse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from clusterdp.planning.decide import Draft

# Outcomes are parsed and chosen, private labels are read, a mechanism is decided, terms are built.
ONCE = {
    "clusterdp.outcomes.declaration.declare",
    "clusterdp.planning.decide.choose_outcomes",
    "clusterdp.planning.decide.decide",
    "clusterdp.spec.parse._labels",
    "clusterdp.spec.parse.parse",
    "clusterdp.spec.terms.Terms.from_questions",
    "clusterdp.spec.terms._check_readable",
}
RELEASES: dict[str, dict[str, Any]] = {
    "public clusters": {"pilot": 0},
    "a pilot": {"pilot": 0.02},
    "private clusters": {
        "private_cluster": 1.0,
        "labels": ["north", "south"],
        "assignment": {"north": 0.5, "south": 0.5},
    },
}


def calls_of(release: Callable[[], object]) -> dict[str, int]:
    """How often a release calls each function of the package, in all of its threads."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            module = frame.f_globals.get("__name__", "")
            counts[f"{module}.{frame.f_code.co_qualname}"] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        release()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {name: counts[name] for name in ONCE}


def planned(name: str, folder: Path) -> Callable[[], object]:
    """What publishes a table of 600 rows, from its plan."""
    number = pl.int_range(600)
    table = pl.select(
        user=number,
        treated=number % 2,
        market=pl.when(number % 4 < 2).then(pl.lit("north")).otherwise(pl.lit("south")),
        clicks=number % 3,
        spend=number % 5,
    )
    plan = cdp.plan(
        table,
        epsilon=2,
        outcomes={"clicks": "0..2", "spend": "0..4"},
        unit="user",
        arm="treated",
        cluster="market",
        **RELEASES[name],
    )
    return lambda: cdp.publish(table, plan, out=folder / "out")


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_parses_and_decides_once(name: str, tmp_path: Path) -> None:
    expected = dict.fromkeys(ONCE, 1)
    expected["clusterdp.spec.parse._labels"] = int(name == "private clusters")
    if name == "a pilot":  # what follows from it has terms of its own
        expected |= {one: 2 for one in ONCE if one.startswith("clusterdp.spec.terms")}
    assert calls_of(planned(name, tmp_path)) == expected


def test_a_second_parse_would_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ReleaseJob.decide

    def twice(self: ReleaseJob, draft: Draft, *more: Any) -> Any:
        parse(draft.request.options)
        return honest(self, draft, *more)

    monkeypatch.setattr(ReleaseJob, "decide", twice)
    counts = calls_of(planned("private clusters", tmp_path))
    twice_done = {name for name, count in counts.items() if count != 1}
    assert twice_done == {
        "clusterdp.outcomes.declaration.declare",
        "clusterdp.spec.parse._labels",
        "clusterdp.spec.parse.parse",
    }
