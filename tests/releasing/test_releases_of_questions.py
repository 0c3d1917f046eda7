"""Outcomes in several questions: published, read, resumed, verified, estimated."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA, assert_mean
from cli_runs import release_declared, run
from clusterdp._progress import NoProgress
from clusterdp.document.text import to_lines
from clusterdp.errors import FormatError, ParameterError
from clusterdp.estimation.cluster_gain import cluster_gains
from clusterdp.published.folder import read_manifest
from clusterdp.published.manifest import unseal
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.keys import ReleaseKey
from clusterdp.statistics.noise import add_exact_noise, simulated_noise
from clusterdp.storage.folder import FileSum, LocalFolder
from edited_cards import edited_card
from released import drawn_of
from runs import write_with
from two_questions import COLUMNS, MECHANISMS, SPACES, release_questions, some_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"visit": "0,1", "sale": "0,1", "rounds": "number:0..4"},
    "constraint": "sale -> visit",
}
# One channel cannot serve them: 5 binary outcomes and 3 numbers.
EIGHT = {f"b{place}": "0,1" for place in range(5)} | {
    "rounds": "number:0..493",
    "spend": "number:0..100",
    "minutes": "number:0..60",
}


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    write_with(
        prepare(some_table(400, rng), columns=COLUMNS, spaces=SPACES),
        MECHANISMS,
        LocalFolder(tmp_path / "out"),
        NoProgress(),
        journal=NoJournal(ReleaseKey(rng.bytes(32))),
        add_noise=simulated_noise(rng),
    )
    return tmp_path / "out"


def problems(folder: Path) -> list[str]:
    return [check.problem for check in verify_folder(folder) if check.problem]


def test_a_folder_holds_every_question(folder: Path) -> None:
    assert problems(folder) == []
    release = cdp.read_release(folder)
    first, second = release.questions
    assert first.space == SPACES[0]
    assert second.space == SPACES[1]
    assert release.columns.published[5:7] == ("question", "response")
    assert {"noisy_sum_1", "weight", "channel_1", "noisy_counts_2", "decode_2"} <= set(
        release.cells.columns
    )
    # Both have totals of everyone; the channel of the second one is in the cells.
    totals = pl.read_parquet(folder / "totals.parquet")
    assert totals.columns[0] == "question"
    found = totals.group_by("question").agg(pl.col("by").unique().sort())
    assert found["by"].to_list() == [["", "tier"]] * 2
    assert pl.read_parquet(folder / "channels.parquet")["question"].n_unique() == 1
    parts = [question.mechanism.guarantee(question.space).epsilon for question in release.questions]
    assert release.guarantee.epsilon == pytest.approx(max(parts))
    readme = (folder / "README.md").read_text()
    assert "Each unit's row answers one question." in readme
    assert "1. `visit+sale`, asked of 37.5% of units" in readme
    shown = run("inspect", folder, "-v")
    assert shown.exit_code == 0, shown.output
    assert "rounds: asked of 62.5% of units" in shown.stdout
    assert len(cluster_gains(release)) == 3 * 2


def _swap_questions(folder: Path) -> None:
    path = folder / "units.parquet"
    pl.read_parquet(path).with_columns(pl.col("question").reverse()).write_parquet(path)


def _swap_totals(folder: Path) -> None:
    path = folder / "totals.parquet"
    names = pl.col("question")
    other = pl.when(names == "rounds").then(pl.lit("visit+sale")).otherwise(pl.lit("rounds"))
    pl.read_parquet(path).with_columns(question=other).write_parquet(path)


def _drop_a_question(folder: Path) -> None:
    path = folder / "totals.parquet"
    pl.read_parquet(path).filter(pl.col("question") == "rounds").write_parquet(path)


def _swap_sums(folder: Path) -> None:
    path = folder / "cells.parquet"
    cells = pl.read_parquet(path)
    one, other = cells["noisy_sum_1"], cells["noisy_sum_2"]
    cells.with_columns(other.alias("noisy_sum_1"), one.alias("noisy_sum_2")).write_parquet(path)


@pytest.mark.parametrize("swap", [_swap_questions, _swap_totals, _drop_a_question, _swap_sums])
def test_swapped_questions_are_found(swap: Callable[[Path], None], folder: Path) -> None:
    """Checksums are made anew, so that the content must show it."""
    manifest = read_manifest(folder)
    swap(folder)
    files = {name: FileSum.from_file(folder / name) for name in manifest.files}
    page = edited_card((folder / "index.html").read_text(), manifest.files, files)
    (folder / "index.html").write_text(page)
    files["index.html"] = FileSum.from_file(folder / "index.html")
    (folder / "manifest.json").write_bytes(manifest.sealed(files))
    assert problems(folder)


def test_a_manifest_with_swapped_questions_is_found(folder: Path) -> None:
    manifest = read_manifest(folder)
    forged = msgspec.structs.replace(
        manifest, questions=manifest.questions[::-1], expected=manifest.expected[::-1]
    )
    (folder / "manifest.json").write_bytes(forged.sealed(manifest.files))
    assert problems(folder)
    cheaper = replace(manifest.guarantee, epsilon=1.1)
    forged = msgspec.structs.replace(manifest, guarantee=cheaper)
    with pytest.raises(FormatError, match=r"does not match the parameters, which cost ε = 1\.2,"):
        unseal(forged.sealed(manifest.files))


@pytest.mark.parametrize("where", ["cells_table", "write_readme"])
def test_a_resumed_release_of_questions_is_the_same_one(
    where: str, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    table, ledger = (
        some_table(200, rng),
        cdp.Ledger.create(tmp_path / "l.db", 8, passphrase="p" * 20),
    )
    given: dict[str, Any] = {
        **NAMES,
        "epsilon": 2,
        "mechanism": "uniform-prior-dp",
        "question": ["visit,sale=2", "rounds=1"],
        "ledger": ledger,
        "population": "us",
        "new_population": True,
    }
    with monkeypatch.context() as patch:
        patch.setattr(f"clusterdp.releasing.targets.{where}", stop)
        with pytest.raises(KeyboardInterrupt):
            cdp.publish(table, out=tmp_path / "out", **given)
    (unfinished,) = ledger.releases()
    assert unfinished.terms.outcome_names == ("visit", "sale", "rounds")
    assert unfinished.guarantee.epsilon == pytest.approx(2)
    kept = ledger.resume(unfinished.release_id).recall("drawn")
    assert kept is not None
    cdp.resume(unfinished.release_id, table, ledger=ledger)
    published = cdp.read_release(tmp_path / "out")
    for question, drawn in zip(
        published.questions, drawn_of(kept, published).questions, strict=True
    ):
        assert question.statistics
        for ours, theirs in zip(question.statistics, drawn.statistics, strict=True):
            for name, array in ours.arrays().items():
                np.testing.assert_array_equal(array, theirs.arrays()[name])
    assert problems(tmp_path / "out") == []


@pytest.mark.slow
def test_effects_are_unbiased_and_covered_in_every_question(rng: np.random.Generator) -> None:
    """Given the table, so that noise of privacy is all there is.

    Each of 6 assertions fails on correct code with probability ALPHA = 1e-6.
    """
    table, n_releases = some_table(1600, rng), 60
    truth = cdp.estimate_without_privacy(
        table, **{name: NAMES[name] for name in ("outcomes", "unit", "arm", "cluster")}
    )
    errors = []
    for _ in range(n_releases):
        release = release_questions(table, ReleaseKey(rng.bytes(32)), add_exact_noise)
        found = cdp.estimate(release)
        pairs = zip(found.effects, truth.effects, strict=True)
        errors.append(
            [(one.effect - true.effect) / one.privacy_variance**0.5 for one, true in pairs]
        )
    scaled = np.array(errors)
    assert [effect.of.metric for effect in found.effects] == ["visit", "sale", "rounds"]
    for metric in scaled.T:
        assert_mean(metric, 0.0, 1.15)
        covered = int((np.abs(metric) < stats.norm.isf(0.025)).sum())
        assert stats.binom.cdf(covered, n_releases, 0.93) > ALPHA


def test_segments_and_covariates_use_the_responses_of_their_question(folder: Path) -> None:
    release = cdp.read_release(folder)
    rows = release.units.collect()
    found = cdp.estimate(release, by="tier", adjust="tier", differences="rest", use="rows")
    for effect in found.effects:
        if effect.of.adjusted or effect.of.segment:
            continue
        name, by_arm = f"{effect.of.metric}_debiased", rows.group_by("market", "treated")
        means = by_arm.agg(pl.col(name).mean(), pl.len()).sort("market", "treated")
        gaps = means[name].to_numpy().reshape(-1, 2) @ [-1, 1]
        weights = means["len"].to_numpy().reshape(-1, 2).sum(axis=1)
        # Cells with few who were asked are not taken by themselves.
        within = float(gaps @ weights / weights.sum())
        assert abs(effect.effect - within) < effect.std_error
    with pytest.raises(ParameterError, match="Cannot adjust for 'response': it is part"):
        cdp.estimate(release, adjust="response")


@pytest.mark.slow
def test_five_binary_outcomes_and_three_numbers(tmp_path: Path, rng: np.random.Generator) -> None:
    """From one command; which outcomes form a question is decided and stated."""
    n_units = 3000
    columns: dict[str, Any] = {
        "user": np.arange(n_units),
        "treated": rng.integers(0, 2, n_units),
        "market": np.arange(n_units) % 3,
    }
    columns |= {f"b{place}": rng.integers(0, 2, n_units) for place in range(5)}
    columns |= {"rounds": rng.gamma(2, 30, n_units), "spend": rng.gamma(1, 20, n_units)}
    columns["minutes"] = rng.uniform(0, 60, n_units)
    source = tmp_path / "t.parquet"
    pl.DataFrame(columns).write_parquet(source)
    asked: dict[str, Any] = {"outcomes": EIGHT, "mechanism": "uniform-prior-dp", "epsilon": 4}
    made = release_declared(source, tmp_path / "out", **asked)
    assert made.exit_code == 0, made.output
    release = cdp.read_release(tmp_path / "out")
    assert len(release.questions) > 2
    assert release.guarantee.epsilon <= 4
    assert release.guarantee.epsilon > 3.99
    found = cdp.estimate(release)
    assert {effect.of.metric for effect in found.effects} == set(EIGHT)
    assert all(np.isfinite(effect.std_error) for effect in found.effects)
    held = json.loads(run("inspect", tmp_path / "out", "--json").stdout)
    assert [
        len(question["outcomes"]["declared"]["outcomes"]) for question in held["questions"]
    ] == [len(question.space.declared.names) for question in release.questions]


def test_a_plan_of_questions_is_carried_out(tmp_path: Path, rng: np.random.Generator) -> None:
    table = some_table(400, rng)
    asked = {
        **NAMES,
        "epsilon": 2.0,
        "mechanism": "uniform-prior-dp",
        "question": ["rounds", "visit,sale"],
    }
    plan = cdp.plan(table, **asked)
    shown = " ".join(repr(plan).split())
    assert re.search(r"each unit's row answers one, .* id: rounds \d+%, visit\+sale \d+% ", shown)
    assert plan.report is not None
    review = "\n".join(to_lines(plan.report.review()))
    assert re.search(r"^rounds, asked of \d+% of units$", review, re.MULTILINE)
    assert re.search(r"^visit, sale, asked of \d+% of units$", review, re.MULTILINE)
    assert len(plan.to_dict()["questions"]) == 2
    plan.save(tmp_path / "plan.lock")
    again = cdp.Plan.load(tmp_path / "plan.lock")
    assert again.options == plan.options
    release = cdp.release(table, again)
    planned = [report.comparison.choice.mechanism for report in plan.report.questions]
    assert [question.mechanism for question in release.questions] == planned
    assert release.guarantee.epsilon == pytest.approx(2)
    preview = cdp.preview(table, again)
    assert [one["outcomes"] for one in preview.content["questions"]] == [
        ["rounds"],
        ["visit", "sale"],
    ]


def test_mechanisms_by_hand_are_one_for_each_question(rng: np.random.Generator) -> None:
    table, asked = some_table(200, rng), {**NAMES, "question": ["visit,sale", "rounds"]}
    release = cdp.release(table, **asked, mechanism=[cdp.uniform_prior_dp(epsilon=0.9)] * 2)
    assert release.guarantee.epsilon == pytest.approx(0.9)
    with pytest.raises(ParameterError, match="one for each question, got 1 for 2"):
        cdp.release(table, **asked, mechanism=MECHANISMS[0])


@pytest.mark.parametrize(
    "more",
    [
        {"breakdown": "tier", "passthrough": "age"},
        {"pilot": 0.2, "folds": 1},
        {"cluster": "market", "private_cluster": 0.8, "labels": ["0", "1", "2", "3"]},
        {"mechanism": "cluster-dp", "cluster": "market"},
        {"mechanism": "noisy-histogram", "missing": None},
        {"delta": 1e-6},
    ],
    ids=["breakdown", "pilot", "private clusters", "counts", "without rows", "delta"],
)
def test_everything_works_with_several_questions(
    more: dict[str, Any], tmp_path: Path, rng: np.random.Generator
) -> None:
    """From the table to the estimate, through what people call."""
    table = some_table(1600, rng).with_columns(
        age=rng.integers(18, 80, 1600), score=pl.Series(rng.integers(0, 11, 1600))
    )
    outcomes = {"visit": "0,1", "rounds": "number:0..4", "score": "0..10"}
    options: dict[str, Any] = {
        "unit": "user",
        "arm": "treated",
        "outcomes": outcomes,
        "missing": "score",
        "epsilon": 3,
    } | more
    if options["missing"]:
        observed = pl.when(pl.col("user") % 3 > 0).then("score")
        table = table.with_columns(score=observed)
    if "labels" in more:
        table = table.with_columns(pl.col("market").cast(pl.String))
    cdp.publish(table, out=tmp_path / "out", **options)
    assert problems(tmp_path / "out") == []
    release = cdp.read_release(tmp_path / "out")
    assert len(release.questions) > 1
    assert release.guarantee.epsilon == pytest.approx(3, abs=0.01)
    asked: dict[str, Any] = {"by": "tier", "adjust": "age"} if "passthrough" in more else {}
    found = cdp.estimate(release, **asked)
    metrics = {effect.of.metric for effect in found.effects}
    assert metrics >= set(outcomes)
    overall = [one for one in found.effects if not one.of.segment and not one.of.adjusted]
    assert all(math.isfinite(one.effect) for one in overall)
    if release.units is not None:
        names = pl.read_parquet(tmp_path / "out" / "units.parquet")["question"].unique()
        assert set(names) == set(release.columns.question_names)


@pytest.mark.parametrize("mechanism", ["optimal", "cluster-free-dp"])
def test_cells_of_one_unit(mechanism: str, tmp_path: Path) -> None:
    """Fewer than one of a cell is asked: sizes of those asked add up all the same."""
    ids = np.arange(200)
    table = pl.DataFrame(
        {"user": ids, "arm": ids % 2, "market": ids // 2, "a": ids % 3, "b": ids // 2 % 2}
    )
    more: dict[str, Any] = {"counts_share": 0.2} if mechanism == "optimal" else {}
    cdp.publish(
        table,
        out=tmp_path / "out",
        unit="user",
        arm="arm",
        cluster="market",
        outcomes={"a": "0..2", "b": "0,1"},
        question=["a=1", "b=3"],
        epsilon=2,
        mechanism=mechanism,
        **more,
    )
    assert problems(tmp_path / "out") == []
