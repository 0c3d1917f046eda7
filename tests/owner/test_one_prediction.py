"""A plan, a preview and the card of a published folder expect the same of effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.document.text import to_lines
from clusterdp.published.contents import FolderView
from clusterdp.published.folder import read_files
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = pl.select(user=pl.int_range(6000)).with_columns(
    arm=pl.col("user") % 2,
    city=pl.col("user").hash(1) % 9,
    a=pl.col("user").hash(2) % 2,
    b=pl.col("user").hash(3) % 4,
)
ONE: dict[str, Any] = {"outcomes": {"b": "0..3"}, "baseline": [0.4, 0.3, 0.2, 0.1]}
TWO: dict[str, Any] = {"outcomes": {"a": "0,1", "b": "0..3"}, "question": ["a=1", "b=2"]}
MISSING: dict[str, Any] = {**TWO, "missing": ["b"], "baseline": {"a": "0.5", "b": "mean:1,std:1"}}
NUMBERS: dict[str, Any] = {
    "outcomes": {"a": "number:0..30", "b": "number:-100..300"},
    "question": ["a,b"],
    "baseline": {"a": "mean:1,std:2", "b": "mean:2,std:15"},
}
# Of which nothing is declared.
BLIND: dict[str, Any] = {"outcomes": {"b": "number:0..30"}, "pilot": 0}


@pytest.mark.parametrize(
    "asked",
    [
        ONE,
        {**ONE, "within_share": 0.4, "counts_share": 0.05},
        {**ONE, "mechanism": "uniform-prior-dp"},
        {**ONE, "mechanism": "noisy-histogram"},
        TWO,
        MISSING,
        NUMBERS,
        {**NUMBERS, "question": ["a=1", "b=1"]},
        {**NUMBERS, "mechanism": "cluster-dp", "optimize_for": "overall"},
        BLIND,
    ],
    ids=[
        "designed",
        "counts",
        "redrawn",
        "no rows",
        "two questions",
        "missing",
        "rounded numbers",
        "rounded numbers of two questions",
        "redrawn numbers",
        "nothing declared",
    ],
)
def test_plan_preview_and_card_agree(asked: dict[str, Any], tmp_path: Path) -> None:
    options = {"unit": "user", "arm": "arm", "cluster": "city", "epsilon": 2, **asked}
    plan = cdp.plan(PEOPLE, **options)
    questions = plan.to_dict().get("questions", [plan.to_dict()])
    planned = {
        (metric, kind): one[kind]
        for question in questions
        for metric, one in question["visible"]["all units"].items()
        for kind in ("std_error", "sampling_std_error")
    }
    shown = cdp.preview(PEOPLE, plan).content["expected"]
    cdp.publish(PEOPLE, plan, out=tmp_path / "out")
    release, manifest = read_files(open_folder(tmp_path / "out"))
    channels = [question.channel for question in release.questions]
    card = FolderView.from_parts(manifest, release.layout, channels).visible()["all units"]
    assert planned
    for (metric, kind), expected in planned.items():
        assert shown[metric][kind] == pytest.approx(expected, rel=0.01)
        assert card[metric][kind] == pytest.approx(expected, rel=0.01)


def test_a_number_without_privacy_is_a_detectable_effect_wherever_it_stands(
    tmp_path: Path,
) -> None:
    """Never a standard error: both are in tables of the same folder."""
    plan = cdp.plan(PEOPLE, unit="user", arm="arm", epsilon=2, **ONE)
    cdp.publish(PEOPLE, plan, out=tmp_path / "out")
    lines = (tmp_path / "out/README.md").read_text().splitlines()
    lines += run("inspect", tmp_path / "out", "-v").stdout.splitlines()
    assert plan.report is not None
    lines += [*repr(plan).splitlines(), *to_lines(plan.report.review())]
    found = [place for place, line in enumerate(lines) if "  no privacy" in line]
    for place in found:
        assert any(line.startswith("Minimum detectable") for line in lines[place - 4 : place])
    others = [line for line in lines if "without privacy" in line]
    assert all("MDE without privacy" in line for line in others)
    assert len(found) >= 3
    assert len(others) >= 3
