"""The page of other tools runs as it is printed, on two and on three arms."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from sitepages.pages import DOCS, Page

if TYPE_CHECKING:
    import numpy as np

PAGE = Page.read(DOCS / "analyst" / "other_tools.md")


@pytest.fixture(params=[2, 3], ids=["two arms", "three arms"])
def folder(
    request: pytest.FixtureRequest,
    rng: np.random.Generator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A published folder beside an analyst's table, where the guides are run."""
    n_users = 3000
    market = rng.integers(0, 4, n_users)
    arm = (rng.random(n_users) ** (1 + market / 4) * request.param).astype(int)
    age = rng.integers(18, 80, n_users)
    users = pl.DataFrame(
        {
            "user": rng.permutation(n_users),
            "arm": pl.Series(["control", "mail", "call"]).gather(arm),
            "market": market,
            "age": age,
            "before": rng.normal(size=n_users),
            "clicks": rng.binomial(3, 0.2 + 0.1 * arm + 0.1 * market / 4),
        }
    )
    cdp.publish(
        users,
        out=tmp_path / "mailing",
        unit="user",
        arm="arm",
        control="control",
        cluster="market",
        outcomes={"clicks": "0..3"},
        passthrough=["age", "before"],
        folds=2,
        epsilon=2,
    )
    tiers = pl.Series(["gold", "basic"]).gather(age % 2)
    users.select("user", tier=tiers).write_parquet(tmp_path / "crm.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mailing"


def run_section(name: str) -> tuple[dict[str, Any], list[list[tuple[Any, ...]]], list[str]]:
    """Run a section: what Python's names stand for, what queries gave, and what R printed."""
    begin = PAGE.text.index(f"\n## {name}\n")
    end = PAGE.text.find("\n## ", begin + 1)
    names: dict[str, Any] = {"cdp": cdp}
    rows, printed = [], []
    for block in Page(path=PAGE.path, text=PAGE.text[begin:end]).blocks:
        if block.language == "python":
            exec(block.code, names)  # noqa: S102 - our own documents
        elif block.language == "sql":
            rows.append(duckdb.execute(block.code).fetchall())
        elif block.language == "r":
            printed.append(run_r(block.code))
        else:
            for line in block.code.splitlines():
                program, *arguments = shlex.split(line)
                done = run(*arguments)
                assert (program, done.exit_code) == ("clusterdp", 0), done.output
    return names, rows, printed


def run_r(text: str) -> str:
    rscript = shutil.which("Rscript")
    if rscript is None:
        pytest.skip("R is not on this machine")
    Path("snippet.R").write_text(text)
    done = subprocess.run([rscript, "snippet.R"], capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout


def effects_of(folder: Path) -> dict[str, float]:
    return {one.of.arm: one.effect for one in cdp.estimate(folder).effects}


# Libraries of the guides warn about their own dependencies.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", ["tea-tasting", "pyfixest", "statsmodels"])
def test_the_effects_of_a_library_are_those_of_estimate(page: str, folder: Path) -> None:
    names, _, _ = run_section(page)
    assert names["effects"] == pytest.approx(effects_of(folder), abs=1e-9)


@pytest.mark.filterwarnings("default")
def test_tea_tasting_reports_the_intervals_of_estimate(folder: Path) -> None:
    names, _, _ = run_section("tea-tasting")
    for effect in cdp.estimate(folder).effects:
        (report,) = names["reports"][effect.of.arm].values()
        assert report.effect_size == pytest.approx(effect.effect, abs=1e-9)
        low, high = effect.ci(0.95)
        # Student's t, with as many degrees of freedom as there are units.
        assert report.effect_size_ci_lower == pytest.approx(low, abs=0.01 * (high - low))
        assert report.effect_size_ci_upper == pytest.approx(high, abs=0.01 * (high - low))


# Libraries of the guides warn about their own dependencies.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", ["scikit-learn", "EconML"])
def test_uplift_is_measured_on_the_fold_that_was_held_out(page: str, folder: Path) -> None:
    names, _, _ = run_section(page)
    assert list(names["effects"]) == sorted(effects_of(folder))
    held = cdp.calibrated_rows(folder, fold=1).collect()
    for arm, effect in names["effects"].items():
        target = held.join(names["chosen"][arm], on="user").filter("target")
        sizes = dict(target.group_by("arm").len().iter_rows())
        assert (effect.n_treated, effect.n_control) == (sizes[arm], sizes["control"])


def test_queries_give_the_means_of_estimate(folder: Path) -> None:
    run_section("Calibrated rows")
    _, (means, effects, segments), _ = run_section("DuckDB")
    by_arm = {arm: mean for arm, mean, _ in means}
    control_mean = cdp.estimate(folder).effects[0].control_mean
    assert by_arm["control"] == pytest.approx(control_mean, abs=1e-9)
    assert dict(effects) == pytest.approx(effects_of(folder), abs=1e-9)
    crm = pl.read_parquet("crm.parquet")
    cut = cdp.estimate(folder, segments=crm, by=["tier"])
    found = {(tier, arm): mean for tier, arm, mean, _ in segments}
    for tier in ("gold", "basic"):
        effect, within = found[tier, "mail"] - found[tier, "control"], cut["mail", f"tier={tier}"]
        # Weights are of everyone: a bias of order 1/n is left in a segment.
        assert effect == pytest.approx(within.effect, abs=0.5 * within.std_error)


def test_r_fits_the_effects_of_estimate(folder: Path) -> None:
    _, _, (printed,) = run_section("R")
    names, values = printed.strip().split("\n")[-2:]
    fitted = zip(names.split(), map(float, values.split()), strict=True)
    found = {name.removeprefix("arm"): value for name, value in fitted}
    assert found == pytest.approx(effects_of(folder), abs=1e-9)
