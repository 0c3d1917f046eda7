"""Outcomes in several blocks: published, read, resumed, verified, estimated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA, assert_mean
from cli_runs import run
from clusterdp.errors import FormatError, ParameterError
from clusterdp.estimation.homogeneity import estimate_homogeneity
from clusterdp.published.folder import read_manifest
from clusterdp.published.manifest import unseal
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import Unrecorded
from clusterdp.releasing.prepare import prepare
from clusterdp.releasing.to_folder import Silence, write_with
from clusterdp.rows.keys import ReleaseKey
from clusterdp.statistics.noise import add_exact_noise, simulated_noise
from clusterdp.storage.files import FileSum
from clusterdp.storage.folder import LocalFolder
from edited_cards import edited_card
from released import drawn_of
from two_blocks import COLUMNS, MECHANISMS, SPACES, release_blocks, some_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"visit": "0,1", "sale": "0,1", "rounds": "number:0..4"},
    "implies": "sale -> visit",
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
        Silence(),
        journal=Unrecorded(ReleaseKey(rng.bytes(32))),
        add_noise=simulated_noise(rng),
    )
    return tmp_path / "out"


def problems(folder: Path) -> list[str]:
    return [check.problem for check in verify_folder(folder) if check.problem]


def test_a_folder_holds_every_block(folder: Path) -> None:
    assert problems(folder) == []
    release = cdp.read_release(folder)
    first, second = release.blocks
    assert first.space == SPACES[0]
    assert second.space == SPACES[1]
    assert release.columns.responses == ("response_1", "response_2")
    assert {"noisy_sum_1", "weight_1", "channel_1", "noisy_counts_2", "decode_2"} <= set(
        release.cells.columns
    )
    # The second block has no totals by tier, and its channel is in the cells.
    totals = pl.read_parquet(folder / "totals.parquet")
    assert totals.columns[0] == "block"
    assert totals.group_by("block").agg(pl.col("by").unique().sort()).sort("block").rows() == [
        (1, ["", "tier"]),
        (2, [""]),
    ]
    assert pl.read_parquet(folder / "channels.parquet")["block"].unique().to_list() == [1]
    parts = [block.mechanism.guarantee(block.space).epsilon for block in release.blocks]
    assert release.guarantee.epsilon == pytest.approx(sum(parts))
    readme = (folder / "README.md").read_text()
    assert "1. `visit`, `sale`: epsilon = 1.2" in readme
    shown = run("inspect", folder)
    assert shown.exit_code == 0, shown.output
    assert "rounds: epsilon 0.9" in shown.stdout
    assert len(estimate_homogeneity(release)) == 3 * 2


def _swap_responses(folder: Path) -> None:
    path = folder / "units.parquet"
    rows = pl.read_parquet(path)
    one, other = rows["response_1"], rows["response_2"]
    rows.with_columns(other.alias("response_1"), one.alias("response_2")).write_parquet(path)


def _swap_totals(folder: Path) -> None:
    path = folder / "totals.parquet"
    totals = pl.read_parquet(path).with_columns(block=3 - pl.col("block")).sort("block")
    totals.write_parquet(path)


def _drop_a_block(folder: Path) -> None:
    path = folder / "totals.parquet"
    pl.read_parquet(path).filter(pl.col("block") == 1).write_parquet(path)


def _swap_sums(folder: Path) -> None:
    path = folder / "cells.parquet"
    cells = pl.read_parquet(path)
    one, other = cells["noisy_sum_1"], cells["noisy_sum_2"]
    cells.with_columns(other.alias("noisy_sum_1"), one.alias("noisy_sum_2")).write_parquet(path)


@pytest.mark.parametrize("swap", [_swap_responses, _swap_totals, _drop_a_block, _swap_sums])
def test_swapped_blocks_are_found(swap: Callable[[Path], None], folder: Path) -> None:
    """Checksums are made anew, so that the content must show it."""
    manifest = read_manifest(folder)
    swap(folder)
    files = {name: FileSum.of(folder / name) for name in manifest.files}
    page = edited_card((folder / "index.html").read_text(), manifest.files, files)
    (folder / "index.html").write_text(page)
    files["index.html"] = FileSum.of(folder / "index.html")
    (folder / "manifest.json").write_bytes(manifest.sealed(files))
    assert problems(folder)


def test_a_manifest_with_swapped_blocks_is_found(folder: Path) -> None:
    manifest = read_manifest(folder)
    forged = msgspec.structs.replace(
        manifest, blocks=manifest.blocks[::-1], expected=manifest.expected[::-1]
    )
    (folder / "manifest.json").write_bytes(forged.sealed(manifest.files))
    assert problems(folder)
    cheaper = msgspec.structs.replace(manifest.guarantee, epsilon=1.2)
    forged = msgspec.structs.replace(manifest, guarantee=cheaper)
    with pytest.raises(FormatError, match="the stated guarantee does not follow"):
        unseal(forged.sealed(manifest.files))


@pytest.mark.parametrize("where", ["cells_table", "write_readme"])
def test_a_resumed_release_of_blocks_is_the_same_one(
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
        "block": ["visit,sale=0.6", "rounds=0.4"],
        "ledger": ledger,
        "population": "us",
        "new_population": True,
    }
    with monkeypatch.context() as patch:
        patch.setattr(f"clusterdp.releasing.to_folder.{where}", stop)
        with pytest.raises(KeyboardInterrupt):
            cdp.publish(table, out=tmp_path / "out", **given)
    (unfinished,) = ledger.releases()
    assert unfinished.outcomes == ("visit", "sale", "rounds")
    assert unfinished.guarantee.epsilon == pytest.approx(2)
    kept = ledger.resume(unfinished.release_id).recall()
    assert kept is not None
    cdp.resume(unfinished.release_id, table, ledger=ledger)
    published = cdp.read_release(tmp_path / "out")
    for block, drawn in zip(published.blocks, drawn_of(kept, published).blocks, strict=True):
        assert block.statistics
        for ours, theirs in zip(block.statistics, drawn.statistics, strict=True):
            for name, array in ours.arrays().items():
                np.testing.assert_array_equal(array, theirs.arrays()[name])
    assert problems(tmp_path / "out") == []


@pytest.mark.slow
def test_effects_are_unbiased_and_covered_in_every_block(rng: np.random.Generator) -> None:
    """Given the table, so that noise of privacy is all there is.

    Each of 6 assertions fails on correct code with probability ALPHA = 1e-6.
    """
    table, n_releases = some_table(1600, rng), 60
    truth = cdp.estimate_without_privacy(
        table, **{name: NAMES[name] for name in ("outcomes", "unit", "arm", "cluster")}
    )
    errors = []
    for _ in range(n_releases):
        release = release_blocks(table, ReleaseKey(rng.bytes(32)), add_exact_noise)
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


def test_segments_and_covariates_use_the_responses_of_their_block(folder: Path) -> None:
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
        assert effect.effect == pytest.approx(float(gaps @ weights / weights.sum()))
    with pytest.raises(ParameterError, match="cannot adjust for 'response_2'"):
        cdp.estimate(release, adjust="response_2")


@pytest.mark.slow
def test_five_binary_outcomes_and_three_numbers(tmp_path: Path, rng: np.random.Generator) -> None:
    """From one command; which outcomes share a channel is decided and stated."""
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
    outcomes = [word for name, text in EIGHT.items() for word in ("--outcome", f"{name}={text}")]
    public = ("--unit", "user", "--arm", "treated", "--cluster", "market", "--epsilon", 4)
    made = run(
        *("release", source, *outcomes, *public),
        *("--mechanism", "uniform-prior-dp", "--out", tmp_path / "out"),
    )
    assert made.exit_code == 0, made.output
    assert "more categories than one channel serves, so they are in blocks" in made.stdout
    release = cdp.read_release(tmp_path / "out")
    assert len(release.blocks) == 2
    assert release.guarantee.epsilon <= 4
    assert release.guarantee.epsilon > 3.99
    found = cdp.estimate(release)
    assert {effect.of.metric for effect in found.effects} == set(EIGHT)
    assert all(np.isfinite(effect.std_error) for effect in found.effects)
    held = json.loads(run("inspect", tmp_path / "out", "--json").stdout)
    assert [len(block["outcomes"]["declared"]["outcomes"]) for block in held["blocks"]] == [
        len(block.space.declared.names) for block in release.blocks
    ]


def test_a_plan_of_blocks_is_carried_out(tmp_path: Path, rng: np.random.Generator) -> None:
    table = some_table(400, rng)
    asked = {
        **NAMES,
        "epsilon": 2.0,
        "mechanism": "uniform-prior-dp",
        "block": ["rounds", "visit,sale"],
    }
    plan = cdp.plan(table, **asked)
    assert "block 1: rounds" in repr(plan)
    assert "block 2: visit, sale" in repr(plan)
    assert len(plan.to_dict()["blocks"]) == 2
    plan.save(tmp_path / "plan.toml")
    again = cdp.Plan.load(tmp_path / "plan.toml")
    assert again.options == plan.options
    release = cdp.release(table, again)
    planned = [report.comparison.choice.mechanism for report in plan.report.blocks]  # type: ignore[union-attr]  # there is one
    assert [block.mechanism for block in release.blocks] == planned
    assert release.guarantee.epsilon == pytest.approx(2)
    preview = cdp.preview(table, again)
    assert [one["outcomes"] for one in preview.content["blocks"]] == [["rounds"], ["visit", "sale"]]


def test_mechanisms_by_hand_are_one_for_each_block(rng: np.random.Generator) -> None:
    table, asked = some_table(200, rng), {**NAMES, "block": ["visit,sale", "rounds"]}
    release = cdp.release(table, **asked, mechanism=[cdp.uniform_prior_dp(epsilon=0.9)] * 2)
    assert release.guarantee.epsilon == pytest.approx(1.8)
    with pytest.raises(ParameterError, match="one for each block, got 1 for 2"):
        cdp.release(table, **asked, mechanism=MECHANISMS[0])
