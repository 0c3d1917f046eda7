"""The owner's work in Python, without the command line: publish, spend, resume, release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import declare, run
from clusterdp.statistics.sums import NoisyTotals

if TYPE_CHECKING:
    from pathlib import Path

NAMES: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "budget.db"
    made = run("ledger", "init", path, "--cap-epsilon", 4)
    assert made.exit_code == 0, made.output
    return path


def test_plan_publish_with_a_ledger_and_estimate(
    table: pl.DataFrame, ledger: Path, tmp_path: Path
) -> None:
    plan = cdp.plan(table, **NAMES, epsilon=2)
    whose: dict[str, Any] = {"ledger": ledger, "population": "us-users", "new_population": True}
    looked = cdp.preview(table, plan, **whose)
    said = "spends 2 of the 4 remaining"
    assert said in " ".join(repr(looked).split())
    published = cdp.publish(table, plan, out=tmp_path / "out", **whose, passthrough="secret")
    assert published.release_id is not None
    release = published.read()
    assert cdp.estimate(published).effect == cdp.estimate(release).effect
    assert release.columns.public == ("user", "treated", "market", "secret")
    assert release.questions[0].mechanism.find(NoisyTotals) is not None  # as planned
    assert release.guarantee.epsilon <= 2
    truth = cdp.estimate_without_privacy(table, **NAMES)
    estimate = cdp.estimate(release)
    # Six standard errors: a false alarm in 1e8.
    assert abs(estimate.effect - truth.effect) <= 6 * estimate.std_error
    left = cdp.preview(table, plan, ledger=ledger, population="us-users")
    assert left.content["budget"]["spent_epsilon"] == pytest.approx(release.guarantee.epsilon)
    with pytest.raises(cdp.LedgerError):
        cdp.publish(
            table,
            outcomes=NAMES["outcomes"],
            unit="user",
            arm="treated",
            cluster="market",
            epsilon=3,
            out=tmp_path / "more",
            ledger=ledger,
            population="us-users",
        )
    assert not (tmp_path / "more").exists()


def test_the_command_line_carries_out_a_plan_of_python(source: Path, tmp_path: Path) -> None:
    file = declare(tmp_path / "experiment.toml", input=str(source), **NAMES, epsilon=1)
    assert cdp.plan(file).save() == tmp_path / "experiment.lock"
    ran = run("release", file, "--out", tmp_path / "command")
    assert ran.exit_code == 0, ran.output
    cdp.publish(file, out=tmp_path / "python")
    ours, theirs = (cdp.read_release(tmp_path / name) for name in ("python", "command"))
    assert ours.questions[0].mechanism == theirs.questions[0].mechanism
    assert ours.columns == theirs.columns


def test_an_interrupted_release_is_finished(
    table: pl.DataFrame, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    whose: dict[str, Any] = {"ledger": ledger, "population": "us", "new_population": True}
    with monkeypatch.context() as patch:
        patch.setattr("clusterdp.releasing.targets.write_readme", stop)
        with pytest.raises(KeyboardInterrupt):
            cdp.publish(table, out=tmp_path / "out", **NAMES, epsilon=1, **whose)
    assert not (tmp_path / "out").exists()
    (release_id,) = _unfinished(ledger)
    with pytest.raises(cdp.ParameterError, match="the release was of a frame"):
        cdp.resume(release_id, ledger=ledger)
    with pytest.raises(cdp.DataError, match="not the one"):
        cdp.resume(release_id, table.with_columns(clicks=3 - pl.col("clicks")), ledger=ledger)
    finished = cdp.resume(release_id, table, ledger=ledger)
    assert finished.release_id == release_id
    assert finished.folder == str(tmp_path / "out")
    assert finished.read().layout.n_units == len(table)
    assert not _unfinished(ledger)


def _unfinished(ledger: Path) -> list[str]:
    import json

    shown = json.loads(run("ledger", "show", ledger, "--json").stdout)
    releases = [one for population in shown["populations"] for one in population["releases"]]
    done = {"published", "cancelled"}
    return [one["release_id"] for one in releases if one["status"] not in done]


def test_a_release_in_memory_by_name_by_plan_and_by_hand(table: pl.DataFrame) -> None:
    plan = cdp.plan(table, **NAMES, epsilon=2)
    by_plan = cdp.release(table.to_pandas(), plan=plan)
    by_name = cdp.release(table.to_pandas(), **NAMES, mechanism="optimal", epsilon=2)
    by_default = cdp.release(table.to_pandas(), **NAMES, epsilon=2)
    assert (
        by_plan.questions[0].mechanism
        == by_name.questions[0].mechanism
        == by_default.questions[0].mechanism
    )
    assert type(by_plan.units).__module__.startswith("pandas")
    by_hand = cdp.release(
        table, outcomes={"clicks": "0..3"}, unit="user", arm="treated",
        cluster="market", mechanism=cdp.uniform_prior_dp(epsilon=1),
    )  # fmt: skip
    assert by_hand.questions[0].space.declared.spaces == {"clicks": cdp.OutcomeSpace.integers(0, 3)}


def test_clusters_of_a_frame_are_crossed(table: pl.DataFrame) -> None:
    tiers = table.with_columns(tier=pl.col("market") % 2, region=pl.col("market") // 2)
    release = cdp.release(tiers, **{**NAMES, "cluster": ["tier", "region"]}, epsilon=1)
    assert release.columns.cluster == "tier,region"
    assert len(release.layout.clusters) == 5
    with pytest.raises(cdp.DataError, match="cannot be crossed from ids or outcomes"):
        cdp.release(tiers, **{**NAMES, "cluster": ["tier", "clicks"]}, epsilon=1)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no unit": ({"unit": None}, "missing: unit"),
    "epsilon of text": ({"epsilon": "2"}, "epsilon must be a number"),
    "passthrough of numbers": ({"passthrough": [1]}, "passthrough must be names of columns"),
    "clip of text": ({"clip": "yes"}, "clip must be true or false"),
    "a number for a mechanism": ({"mechanism": 3}, "mechanism must be one of"),
    "no such mechanism": ({"mechanism": "magic"}, "must be one of"),
    "two budgets": ({"mechanism": cdp.optimal(epsilon=1)}, "epsilon belongs to a mechanism by"),
    "a number for a plan": ({"plan": 3}, "plan must be a Plan or the path of a lock"),
    "no such plan": ({"plan": "nowhere.toml"}, "there is no file nowhere.toml"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_in_memory_and_into_a_folder(
    case: str, table: pl.DataFrame, tmp_path: Path
) -> None:
    change, message = REFUSED[case]
    given = {**NAMES, "epsilon": 1, **change}
    with pytest.raises(cdp.ParameterError, match=message):
        cdp.release(table, **given)
    with pytest.raises(cdp.ParameterError, match=message):
        cdp.publish(table, out=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_what_belongs_together(table: pl.DataFrame, source: Path, tmp_path: Path) -> None:
    plan = cdp.plan(table, **NAMES, epsilon=1)
    with pytest.raises(cdp.ParameterError, match="epsilon conflicts with the plan"):
        cdp.release(table, plan, epsilon=2)
    with pytest.raises(cdp.ParameterError, match="not both"):
        cdp.release(table, plan, mechanism=cdp.optimal(epsilon=1))
    with pytest.raises(cdp.ParameterError, match="publish takes names"):
        cdp.release(source, plan)
    with pytest.raises(cdp.ParameterError, match="belong to a ledger"):
        cdp.publish(table, plan, out=tmp_path / "out", population="us")
    with pytest.raises(cdp.ParameterError, match="needs a population"):
        cdp.publish(table, plan, out=tmp_path / "out", ledger="none.db")
    with pytest.raises(cdp.OutputError, match="exists already"):
        cdp.publish(table, plan, out=tmp_path)


def test_what_is_clipped_is_planned_and_said_once(
    table: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several outcomes in one note; a plan takes it, as an experiment file does."""
    monkeypatch.chdir(tmp_path)  # a long path would be wrapped
    wide = table.with_columns(visit=pl.col("clicks") * 4, late=pl.col("clicks") * 9)
    outcomes = {"clicks": "0..2", "visit": "0,1", "late": "number:-1..20"}
    names = NAMES | {"outcomes": outcomes}
    plan = cdp.plan(wide, **names, epsilon=2, clip=True)
    assert plan.options.clip is True
    with pytest.warns(cdp.OwnerNotice):
        published = cdp.publish(wide, plan, out="out")
    assert repr(published).startswith("Published to out\n\n")
    assert repr(published).endswith(f"\n\nNext:\n  clusterdp.estimate({published.folder!r})")
    notes = [one for one in cdp.estimate(published).notes if "clipped" in one]
    assert notes == ["Values are clipped: late -1 to 20, clicks 0–2, visit 0–1."]
    shown = " ".join(run("inspect", published.folder).stdout.split())
    assert "note: Values are clipped: clicks 0–2, visit 0–1." in shown


def test_a_preview_names_its_questions(table: pl.DataFrame) -> None:
    several = table.with_columns(visit=pl.col("clicks").clip(0, 1))
    outcomes = {"clicks": "0..3", "visit": "0,1"}
    given = NAMES | {"outcomes": outcomes, "question": ["clicks", "visit"], "epsilon": 2}
    said = "each unit's row answers one, chosen by a public hash of its id: clicks "
    for shown in (cdp.plan(several, **given), cdp.preview(several, **given)):
        assert said in " ".join(repr(shown).split())
        assert "answers one question" not in repr(shown)
    assert "answers one" not in repr(cdp.preview(table, **NAMES, epsilon=2))
