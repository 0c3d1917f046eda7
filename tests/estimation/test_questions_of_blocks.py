"""What an analyst asks of outcomes in several blocks: each question is of one of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import Unrecorded
from clusterdp.releasing.prepare import prepare
from clusterdp.releasing.to_folder import Silence, write_with
from clusterdp.rows.keys import ReleaseKey
from clusterdp.statistics.noise import ALONE, simulated_noise
from clusterdp.storage.folder import LocalFolder
from two_blocks import COLUMNS, MECHANISMS, SPACES, release_blocks, some_table

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp._arrays import IntArray


@pytest.fixture
def release(rng: np.random.Generator) -> cdp.Release:
    key = ReleaseKey(rng.bytes(32))
    return release_blocks(some_table(4000, rng), key, simulated_noise(rng))


def test_a_question_is_of_the_block_of_its_outcomes(release: cdp.Release) -> None:
    """Rows alone, so that a share is a difference of plain means of the block's own decode."""
    asked = ["sale/visit", "median(rounds)", "rounds", {"bought": [0, 0, 1]}, "visit*sale"]
    found = cdp.estimate(release, metrics=["rounds", "visit"], use="rows")
    every = cdp.estimate(release, use="rows")
    assert [str(one) for one in found.effects] == [str(every["rounds"]), str(every["visit"])]
    # Both blocks have three categories: values by category could be of either.
    with pytest.raises(cdp.ParameterError, match="fit the categories of 2 blocks"):
        cdp.estimate(release, metrics=asked)
    asked[3] = {"bought": {(0, 0): 0, (1, 0): 0, (1, 1): 1}}
    named = [one.of.metric for one in cdp.estimate(release, metrics=asked).effects]
    assert named == ["sale/visit", "median(rounds)", "rounds", "bought", "visit*sale"]


@pytest.mark.parametrize("question", ["rounds/visit", "visit*rounds", "(sale>0)*(rounds>=1)"])
def test_a_question_of_two_blocks_is_refused(question: str, release: cdp.Release) -> None:
    with pytest.raises(cdp.ParameterError, match=r"different blocks.*--block [a-z]+,rounds\)"):
        cdp.estimate(release, metrics=question)


def test_an_unknown_outcome_is_refused_with_those_of_all_blocks(release: cdp.Release) -> None:
    with pytest.raises(cdp.ParameterError, match="outcomes are 'visit', 'sale', 'rounds'"):
        cdp.estimate(release, metrics="dist(clicks)")


@pytest.mark.parametrize("response", ["response_1", "response_2"])
def test_a_column_made_of_any_response_is_refused(response: str, release: cdp.Release) -> None:
    made = release.units.select("user", mine=pl.col(response))
    with pytest.raises(cdp.DataError, match="follows from released responses"):
        cdp.estimate(release, segments=made, by="mine")
    with pytest.raises(cdp.ParameterError, match="response_2"):
        cdp.estimate(release, by="response_2")


@pytest.mark.parametrize("holdout", [None, 1])
def test_calibrated_rows_have_the_means_of_estimates(
    holdout: int | None, release: cdp.Release
) -> None:
    rows = cdp.calibrated_rows(release, holdout=holdout)
    found = cdp.estimate(release, estimator="unstratified", by="tier", holdout=holdout)
    assert {effect.of.metric for effect in found.effects} == {"visit", "sale", "rounds"}
    for effect in found.effects:
        part = rows
        for name, value in effect.of.segment:
            part = part.filter(pl.col(name) == value)
        means = dict(
            part.group_by("treated").agg(pl.col(f"{effect.of.metric}_calibrated").mean()).rows()
        )
        assert means[1] - means[0] == pytest.approx(effect.effect, abs=1e-9)


def test_a_look_is_of_one_block(rng: np.random.Generator) -> None:
    """It is refused before noise is drawn, by options and by mechanisms alike."""

    def refuse_to_draw(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        pytest.fail(f"noise of scale {scale} was drawn for {len(values)} numbers")

    looking = (cdp.optimal(epsilon=1, look=0.1), cdp.optimal(epsilon=1))
    table, said = some_table(400, rng), "a look is of outcomes that share one channel"
    for mechanisms in (looking, looking[::-1]):
        with pytest.raises(cdp.ParameterError, match=said):
            release_blocks(table, ReleaseKey(rng.bytes(32)), refuse_to_draw, mechanisms)
    asked: dict[str, Any] = {
        "unit": "user",
        "arm": "treated",
        "outcomes": {"visit": "0,1", "rounds": "number:0..4"},
        "block": ["visit", "rounds"],
        "epsilon": 2,
    }
    for make in (cdp.release, cdp.plan):
        with pytest.raises(cdp.ParameterError, match=said):
            make(table, look=0.1, **asked)
    assert cdp.plan(table, **asked).options.look is None


def test_outcomes_of_several_blocks_may_be_missing(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    table = some_table(4000, rng).with_columns(
        pl.when(pl.Series(rng.random(4000) < 0.7)).then(pl.col(name)).alias(name)
        for name in ("visit", "rounds")
    )
    asked: dict[str, Any] = {
        "outcomes": {"rounds": "number:0..4", "sale": "0,1", "visit": "0,1"},
        "block": ["visit,sale=0.5", "rounds=0.5"],
        "missing": ["rounds", "visit"],
        "mechanism": "uniform-prior-dp",
    }
    cdp.publish(
        table,
        out=tmp_path / "out",
        **{"unit": "user", "arm": "treated", "cluster": "market", "epsilon": 20, **asked},
    )
    assert not [one.problem for one in verify_folder(tmp_path / "out") if one.problem]
    release = cdp.read_release(tmp_path / "out")
    assert release.columns.debiased == (
        "sale_debiased",
        "visit_times_observed_debiased",
        "rounds_times_observed_debiased",
        "visit_observed_debiased",
        "rounds_observed_debiased",
    )
    parts: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market"}
    outcomes = {name: asked[name] for name in ("outcomes", "missing")}
    true = cdp.estimate_without_privacy(table, **parts, **outcomes)
    # Privacy adds much less than sampling does, which both have: a false alarm has 1e-8.
    for effect in cdp.estimate(release).effects:
        same = true[effect.of.metric]
        assert abs(effect.effect - same.effect) < 6 * effect.std_error
        assert effect.std_error < 2 * same.std_error


def test_queries_on_sums_are_of_one_block(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_with(
        prepare(some_table(400, rng), columns=COLUMNS, spaces=SPACES),
        MECHANISMS,
        LocalFolder(tmp_path / "out"),
        Silence(),
        journal=Unrecorded(ReleaseKey(rng.bytes(32))),
        add_noise=simulated_noise(rng),
    )
    release, text = cdp.read_release(tmp_path / "out"), (tmp_path / "out" / "README.md").read_text()
    monkeypatch.chdir(tmp_path / "out")
    queries = [one for one in re.findall(r"```sql\n(.*?)```", text, re.DOTALL) if "noisy" in one]
    by_level = {one.level: one.sum_readings()[0] for one in release.blocks[0].statistics}
    for query, reading in zip(queries, (by_level[None], by_level[()]), strict=True):
        weighted = (reading.weights * release.layout.sizes).sum(axis=0)
        found = [mean for _, mean in duckdb.execute(query).fetchall()]
        np.testing.assert_allclose(found, reading.value.sum(axis=(0, 1)) / weighted, rtol=1e-12)
