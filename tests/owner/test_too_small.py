"""Experiments and segments too small to show anything are said to be so, wherever it is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.document.text import to_lines
from clusterdp.precision.forecast import UNSEEN

if TYPE_CHECKING:
    from pathlib import Path

ASKED: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"died": "0,1"}}


def patients(n_units: int) -> pl.DataFrame:
    """As many patients, in two arms and four clinics."""
    numbers = pl.int_range(n_units, eager=True)
    columns = {"user": numbers, "treated": numbers % 2, "clinic": numbers // 2 % 4}
    return pl.DataFrame({**columns, "died": numbers // 8 % 2})


def told(plan: cdp.Plan) -> list[str]:
    """All notes of a plan."""
    assert plan.report is not None
    return plan.report.every_note()


def test_two_patients_are_too_few(tmp_path: Path) -> None:
    plan = cdp.plan(patients(2), epsilon=1, **ASKED)
    assert any(note.startswith("No change in died is detectable") for note in told(plan))
    shown = repr(plan)
    assert "no change in died is detectable, even among all units." in " ".join(shown.split())
    (line,) = [line for line in shown.splitlines() if line.strip().startswith("died ")]
    assert line.split()[1::2][0] == UNSEEN
    assert UNSEEN in plan.to_html()
    preview = cdp.preview(patients(2), epsilon=1, **ASKED)
    assert any("No change in died is detectable" in note for note in preview.notes)
    # There are no clusters to merge.
    assert "The smallest arm has 1 unit." in preview.notes
    cdp.publish(patients(2), epsilon=1, out=tmp_path / "out", **ASKED)
    for text in ((tmp_path / "out/README.md").read_text(), run("inspect", tmp_path / "out").stdout):
        assert UNSEEN in text


def test_what_is_seen_is_possible() -> None:
    """No effect that is shown as detectable is larger than the range of the outcome."""
    for n_units in (2, 40, 400, 4000):
        plan = cdp.plan(patients(n_units), epsilon=1, breakdown="clinic", **ASKED)
        seen = plan.to_dict()["visible"]
        assert {one["died"]["largest_effect"] for one in seen.values()} == {1}
        assert plan.report is not None
        review = to_lines(plan.report.review())
        lines = [line for line in review if "% segment  " in line]
        cells = [re.split(r" {2,}", line.strip())[-2:] for line in lines]
        shown = [with_privacy for with_privacy, _ in cells]
        without = [text for _, text in cells]
        written = [one["died"]["detectable_effect"] for one in seen.values()]
        assert len(shown) == 5
        written_out = [text.removesuffix(" pp") for text in (*shown, *without)]
        assert all(text == UNSEEN or float(text) <= 100 for text in written_out)
        assert (UNSEEN in shown) == (max(written) > 1)


def test_giving_up_on_segments_that_cannot_be_seen_has_a_gain() -> None:
    asked = {**ASKED, "baseline": {"died": 0.2}, "epsilon": 1}
    plan = cdp.plan(patients(120), **asked)
    (note,) = [one for one in told(plan) if "--optimize-for overall" in one]
    alone = cdp.plan(patients(120), optimize_for="overall", **asked)
    effect = alone.to_dict()["visible"]["all units"]["died"]["detectable_effect"]
    gained = float(note.partition("has an MDE of ")[2].split()[0])
    assert abs(gained - 100 * effect) < 0.06 * 100 * effect
    for other in (alone, cdp.plan(patients(4000), **asked)):
        assert not any("--optimize-for overall" in one for one in told(other))


def test_a_breakdown_that_gets_nothing_is_said() -> None:
    asked = {**ASKED, "baseline": {"died": 0.2}, "epsilon": 1, "breakdown": "clinic"}
    plan = cdp.plan(patients(120), **asked)
    assert plan.to_dict()["budget"]["totals by clinic"] == 0
    assert "totals by clinic" not in repr(plan)
    assert any("by clinic gets 0% of ε" in one for one in told(plan))
    served = cdp.plan(patients(120), optimize_for="breakdowns", **asked)
    assert served.to_dict()["budget"]["totals by clinic"] > 0
    assert not any("by clinic gets" in one for one in told(served))
    # Next to nothing is nothing.
    alone = cdp.plan(patients(4000), optimize_for="overall", **asked)
    (share,) = (part for name, part in alone.to_dict()["budget"].items() if "by clinic" in name)
    assert 0 < share < 0.02
    assert any("by clinic gets" in one for one in told(alone))


def test_what_is_expected_within_clusters_keeps_the_mean() -> None:
    """Whatever the sizes of clusters, and however many there are."""
    for n_clusters in (2, 5, 30):
        clusters = [min(number, n_clusters - 1) for number in range(60) for _ in range(2 + number)]
        arms = [0, 1] * (len(clusters) // 2)
        table = pl.DataFrame({"user": range(len(arms)), "treated": arms, "clinic": clusters})
        asked: dict[str, Any] = {**ASKED, "epsilon": 1, "mechanism": "optimal"}
        asked |= {"baseline": {"died": 0.07}, "within_share": 0.8}
        plan = cdp.plan(table, cluster="clinic", **asked)
        assert "died 7%" in plan.to_dict()["assumed"]
    with pytest.raises(cdp.ParameterError, match="within_share"):
        cdp.plan(table, **asked)
