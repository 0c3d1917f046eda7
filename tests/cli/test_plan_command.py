"""`clusterdp plan`, and the release of its lock, as an owner would run them."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release_declared, run

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = ["--unit", "user", "--arm", "treated", "--cluster", "market", "--outcome", "clicks=0..5"]

NAMES: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market", "epsilon": 1}


@pytest.fixture
def table(tmp_path: Path, rng: np.random.Generator) -> Path:
    n_users = 4000
    path = tmp_path / "clicks.parquet"
    pl.DataFrame(
        {
            "user": rng.permutation(n_users),
            "treated": np.arange(n_users) % 2,
            "market": rng.integers(0, 8, n_users),
            "clicks": rng.binomial(5, 0.3, n_users),
        }
    ).write_parquet(path)
    return path


@pytest.mark.slow
def test_a_plan_is_carried_out_to_the_letter(table: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "experiment.toml", tmp_path / "out"
    planned = run("plan", table, *PUBLIC, "--epsilon", 2, "--out", file, "--json")
    assert planned.exit_code == 0, planned.output
    said = json.loads(planned.stdout)
    assert said["recommended"] == "optimal"
    names = [option["mechanism"] for option in said["options"]]
    assert names[:2] == ["optimal", "cluster-dp"]
    assert len(names) == 6
    for option in said["options"]:
        overall = option["overall"]["clicks"]
        parts = overall["sampling_std_error"] ** 2 + overall["privacy_std_error"] ** 2
        assert overall["std_error"] ** 2 == pytest.approx(parts)
        assert overall["detectable_effect"] == pytest.approx(
            2.8016 * overall["std_error"], rel=1e-4
        )
        assert (option["segment"] is None) == option["mechanism"].startswith("noisy-")
    decided = tomllib.loads(file.with_suffix(".lock").read_text())
    released = run("release", file, "--out", out)
    assert released.exit_code == 0, released.output
    release = cdp.read_release(out)
    shares = cdp.SumShares(totals=decided["totals_share"], clusters=decided["sums_share"])
    assert shares.totals > 0
    counted = 2 * decided["counts_share"]
    made = cdp.optimal(epsilon=2, noise_scale=2 / counted, scope="population", sums=shares)
    (question,) = release.questions
    assert question.mechanism == made.settled(question.space)
    assert release.guarantee.epsilon <= 2
    verified = run("verify", out)
    assert verified.exit_code == 0, verified.output


def test_a_plan_reads_no_outcome(table: Path, tmp_path: Path) -> None:
    """Without the column, with one that nobody can read, and from cell sizes alone."""
    rows = pl.read_parquet(table)
    told = []
    without = tmp_path / "without.parquet"
    rows.drop("clicks", "user").write_parquet(without)
    # Its bytes are overwritten: whoever touches the column fails.
    unreadable = tmp_path / "unreadable.parquet"
    marker = b"SENSITIVE-OUTCOME-"
    secret = [marker.decode() + str(index) for index in range(len(rows))]
    rows.with_columns(clicks=pl.Series(secret)).write_parquet(
        unreadable, compression="uncompressed", statistics=False
    )
    spoiled = unreadable.read_bytes().replace(marker, b"\xff" * len(marker))
    unreadable.write_bytes(spoiled)
    with pytest.raises(pl.exceptions.PolarsError):
        pl.read_parquet(unreadable, columns=["clicks"])
    sizes = tmp_path / "sizes.csv"
    rows.group_by("market", "treated").len("n").write_csv(sizes)
    for source, more in ((table, ()), (without, ()), (unreadable, ()), (sizes, ("--size", "n"))):
        arguments = ("plan", source, *PUBLIC[2:], "--epsilon", 1, "--json", *more)
        planned = run(*arguments)
        assert planned.exit_code == 0, planned.output
        told.append(planned.stdout)
    assert len(set(told)) == 1


def test_the_smallest_epsilon_for_an_effect(table: Path) -> None:
    def planned(*budget: object) -> dict[str, Any]:
        ran = run("plan", table, *PUBLIC, "--json", *budget)
        assert ran.exit_code == 0, ran.output
        said = json.loads(ran.stdout)
        return {**said["options"][0]["overall"]["clicks"], "epsilon": said["epsilon"]}

    at_one = planned("--epsilon", 1)
    found = planned("--mde", at_one["detectable_effect"])
    assert found["epsilon"] == pytest.approx(1, rel=0.03)
    assert found["detectable_effect"] <= at_one["detectable_effect"] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing: the budget. Fix: give --epsilon."),
        (("--epsilon", 1, "--mde", 1), "leave out mde (--mde)"),
        (("--mde", 1e-6), "even without privacy"),
        (("--epsilon", 1, "--baseline", "1,2"), "6 shares"),
        (("--epsilon", 1, "--optimize-for", "segments:2"), "lies in (0, 1]"),
        (("--epsilon", 1, "--optimize-for", "everything"), "optimize_for must be balanced"),
        (("--epsilon", 1, "--optimize-for", "breakdowns"), "needs breakdowns"),
        (("--epsilon", 1, "--size", "nothing"), "no column 'nothing'"),
        (("--epsilon", 1, "--size", "clicks"), "one row per cluster and arm"),
    ],
)
def test_what_a_plan_refuses(arguments: tuple[object, ...], message: str, table: Path) -> None:
    assert_refused(run("plan", table, *PUBLIC, *arguments), message)


def test_nothing_overrides_a_lock(table: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "experiment.toml", tmp_path / "out"
    run("plan", table, *PUBLIC, "--epsilon", 2, "--out", file)
    ran = run("release", file, "--epsilon", 3, "--out", out)
    assert_refused(ran, "--epsilon conflicts with experiment.lock (ε = 2)")
    assert "Nothing was published.\n  Fix: remove --epsilon, or plan again with it." in ran.stderr
    ran = run("release", file, "--passthrough", "device", "--out", out)
    assert_refused(ran, "--passthrough conflicts with experiment.lock (without passthrough)")
    pl.read_parquet(table).head(2000).write_parquet(table)
    ran = run("release", file, "--out", out, "--dry-run")
    assert "The plan was made for 4,000 units" in ran.stdout
    file.with_suffix(".lock").write_text('arm = "treated"\n')
    assert_refused(run("release", file, "--out", out), "is not a plan")
    assert not out.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "optimal"},
        {"mechanism": "optimal", "sums_share": 0.25},
        {"mechanism": "optimal", "totals_share": 0.1, "sums_share": 0},
        {"mechanism": "optimal", "counts_share": 0.1},
        {"mechanism": "optimal", "prior": [5, 4, 3, 2, 1, 1], "delta": 1e-5},
        {"mechanism": "uniform-prior-dp", "sums_share": 0.3},
        {"mechanism": "cluster-dp", "noise_scale": 9, "sums_share": 0.2},
        {"optimize_for": "segments", "baseline": "mean:1.5,std:1"},
    ],
)
def test_every_combination_comes_back_whole(
    options: dict[str, Any], table: Path, tmp_path: Path
) -> None:
    """Released, read back, verified; rows alone and everything give effects, also in segments."""
    out = tmp_path / "out"
    released = release_declared(table, out, outcomes={"clicks": "0..5"}, **options)
    assert released.exit_code == 0, released.output
    verified = run("verify", out)
    assert verified.exit_code == 0, verified.output
    assert run("inspect", out).exit_code == 0
    release = cdp.read_release(out)
    assert release.guarantee.epsilon <= 2
    truth = cdp.estimate_without_privacy(
        pl.read_parquet(table),
        outcomes={"clicks": cdp.OutcomeSpace.integers(0, 5)},
        unit="user",
        arm="treated",
        cluster="market",
    )
    for use in ("everything", "rows"):
        estimate = cdp.estimate(release, use=use, by="market")
        (overall, *segments) = estimate.effects
        assert len(segments) == 8
        # Six standard errors: a false alarm in 1e8.
        assert abs(overall.effect - truth.effect) <= 6 * overall.std_error
    if release.questions[0].mechanism.designs_rows:
        assert "clicks_debiased" in release.units.collect_schema()


def test_a_channel_that_was_tampered_with_is_noticed(table: Path, tmp_path: Path) -> None:
    """Resealed checksums and all: the ratio of some output is then beyond what the rows cost."""
    from clusterdp.published import manifest
    from clusterdp.storage.folder import FileSum

    out = tmp_path / "out"
    cdp.publish(table, out=out, outcomes={"clicks": "0..5"}, mechanism="optimal", **NAMES)
    channels = pl.read_parquet(out / "channels.parquet")
    weights = np.array(channels["weights"].to_list())
    rows = np.argsort(-weights.min(axis=1))[:2]
    place = int(weights[rows[0]].argmax())
    weights[rows[0], place] += weights[rows[1], place] // 2
    weights[rows[1], place] -= weights[rows[1], place] // 2
    changed = channels.with_columns(weights=pl.Series(weights).arr.to_list())
    (out / "channels.parquet").unlink()
    changed.write_parquet(out / "channels.parquet")
    content = manifest.unseal((out / "manifest.json").read_bytes())
    path = out / "channels.parquet"
    files = {**content.files, "channels.parquet": FileSum.from_file(path)}
    (out / "manifest.json").write_bytes(content.sealed(files))
    verified = run("verify", out)
    assert verified.exit_code == 2
    assert "FAIL randomizers satisfy their stated epsilon" in verified.stdout


def test_one_mechanism_alone(table: Path, tmp_path: Path) -> None:
    for name in ("noisy-histogram", "noisy-horvitz-thompson", "uniform-prior-dp"):
        out = tmp_path / name
        asked: dict[str, Any] = {"outcomes": {"clicks": "0..5"}, "mechanism": name}
        planned = cdp.plan(table, **asked, **NAMES)
        assert planned.to_dict()["recommended"] == name
        assert release_declared(table, out, **asked).exit_code == 0
        rows_only = run("estimate", out, "--rows-only")
        assert rows_only.exit_code == (2 if name.startswith("noisy-") else 0)
