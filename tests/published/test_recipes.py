"""The recipes of a folder give what `estimate` gives of rows, however arms were assigned."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from asked_releases import release_questions
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.published._recipes import recipes
from clusterdp.spec.columns import Columns

ARMS = ["a", "b", "c"]
N_UNITS = 3000
DESIGNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clusters": {"cluster": "market"},
    "missing": {"missing": ["score"]},
    "missing in clusters": {"cluster": "market", "missing": ["score"]},
    "assigned groups": {"randomization_unit": "school"},
    "assigned groups in clusters": {"cluster": "market", "randomization_unit": "school"},
    "assigned groups, missing": {"randomization_unit": "school", "missing": ["score"]},
    "noisy labels": {
        "cluster": "market",
        "private_cluster": 1.0,
        "labels": ["north", "south", "west"],
    },
    "noisy labels, probabilities": {
        "cluster": "market",
        "private_cluster": 1.0,
        "labels": ["north", "south", "west"],
        "assignment": "north=a:0.2/c:0.2,south=a:0.4/c:0.4,west=a:0.3/c:0.3",
    },
}


def people(rng: np.random.Generator, *, by_school: bool, with_few: bool) -> pl.DataFrame:
    """Three arms with other shares in each market; scores follow markets and schools, not arms."""
    market = np.arange(N_UNITS) % 3
    school = market + 3 * rng.integers(0, 20, N_UNITS)
    shares = np.array([[0.2, 0.6, 0.2], [0.4, 0.2, 0.4], [0.3, 0.4, 0.3]])
    drawn = school % 60 / 60 if by_school else rng.random(N_UNITS)
    arm = (drawn[:, np.newaxis] > shares.cumsum(axis=1)[market][:, :2]).sum(axis=1)
    chance = 0.15 + 0.3 * market + 0.1 * (school % 2)
    score = rng.binomial(4, chance) + 1
    is_observed = rng.random(N_UNITS) < 0.9 - 0.2 * market
    frame = pl.DataFrame(
        {
            "user": rng.permutation(N_UNITS),
            "my arm": pl.Series(ARMS).gather(arm),
            "market": pl.Series(["north", "south", "west"]).gather(market),
            "school": school,
            "score": score,
            "observed": is_observed,
        }
    )
    if not with_few:
        return frame
    # A market that lacks an arm, and one with a single unit in one.
    few = frame.head(9).with_columns(
        user=pl.int_range(9) + N_UNITS,
        market=pl.Series(["east"] * 4 + ["far"] * 5),
        **{"my arm": pl.Series(["a", "b", "b", "a", "a", "b", "b", "c", "c"])},
    )
    return pl.concat([frame, few])


def published(rng: np.random.Generator, folder: Path, design: dict[str, Any]) -> str:
    table = people(
        rng,
        by_school="randomization_unit" in design,
        with_few="private_cluster" not in design and "randomization_unit" not in design,
    )
    if "missing" in design:
        table = table.with_columns(score=pl.when("observed").then("score"))
    cdp.publish(
        table,
        out=folder,
        unit="user",
        arm="my arm",
        control="b",
        outcomes={"score": "1..5"},
        mechanism=cdp.optimal(epsilon=4),
        **design,
    )
    return (folder / "README.md").read_text()


def code(readme: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    return found[1]


def by_sql(readme: str) -> dict[str, tuple[float, float]]:
    rows = duckdb.execute(code(readme, "sql")).fetchall()
    means = {arm: (mean, error) for arm, mean, error, _ in rows}
    base, base_error = means.pop("b")
    return {arm: (mean - base, np.hypot(error, base_error)) for arm, (mean, error) in means.items()}


def by_pandas(readme: str) -> dict[str, tuple[float, float]]:
    names: dict[str, Any] = {"print": lambda _: None}
    exec(code(readme, "python"), names)  # noqa: S102 - our own page
    rows = names["arms"].drop(index="b")[["effect", "effect_error"]]
    return {arm: tuple(row) for arm, row in zip(rows.index, rows.to_numpy(), strict=True)}


def by_r(readme: str) -> dict[str, tuple[float, float]]:
    """The recipe, with rows from a file that R reads without packages."""
    text = code(readme, "r")
    (source,) = re.findall(r'arrow::read_parquet\("(.*)"\)', text)
    pl.read_parquet(source).write_csv("rows.csv")
    text = text.replace(f'arrow::read_parquet("{source}")', 'read.csv("rows.csv", check.names = F)')
    Path("recipe.R").write_text(f"{text}\nwrite.csv(effects, 'effects.csv')\n")
    subprocess.run(["Rscript", "recipe.R"], check=True, capture_output=True)  # noqa: S607
    rows = pl.read_csv("effects.csv").rows()
    return {arm: (effect, error) for arm, effect, error in rows}


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_every_recipe_gives_the_effects_of_estimate(
    design: dict[str, Any],
    rng: np.random.Generator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "published"
    readme = published(rng, folder, design)
    # Where groups were assigned, no ordinary standard error is right.
    is_ordinary = "randomization_unit" not in design
    spread = f"its spread{', and so any ordinary standard error,' * is_ordinary} includes"
    assert spread in " ".join(readme.split())
    monkeypatch.chdir(folder)
    if "assignment" in design:
        cdp.calibrated_rows(folder).collect().write_parquet(tmp_path / "rows.parquet")
    found = cdp.estimate(folder, use="rows")
    expected = {one.of.arm: one for one in found.effects if str(one.of.metric) == "score"}
    assert list(expected) == ["a", "c"]
    # Without anything special, the recipe for R needs a package that is not everywhere.
    has_r = bool(design) and shutil.which("Rscript") is not None
    recipes = [by_sql, by_pandas, *([by_r] if has_r else [])]
    for recipe in recipes:
        for arm, (effect, error) in recipe(readme).items():
            assert effect == pytest.approx(expected[arm].effect, abs=1e-9), recipe
            assert error == pytest.approx(expected[arm].std_error, rel=0.2), recipe


@pytest.mark.parametrize("design", ["plain", "clusters", "missing in clusters"])
def test_recipes_skip_units_that_were_asked_something_else(
    design: str, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Effects are near those of `estimate`, which weighs clusters by all units, not those asked."""
    given = DESIGNS[design]
    table = people(rng, by_school=False, with_few=False).with_columns(clicks=pl.col("user") % 2)
    if "missing" in given:
        table = table.with_columns(score=pl.when("observed").then("score"))
    columns = Columns(
        unit="user",
        arm="my arm",
        cluster=given.get("cluster"),
        outcomes=("score", "clicks"),
        missing=tuple(given.get("missing", ())),
    )
    spaces = [
        Categories(declared=declare({"score": "1..5"}, missing=columns.missing)),
        Categories(declared=declare({"clicks": "0,1"})),
    ]
    asked = (ASKED_TOTAL * 3 // 4, ASKED_TOTAL // 4)
    mechanisms = [cdp.optimal(epsilon=4)] * 2
    release = release_questions(table, columns, spaces, mechanisms, asked, rng=rng, control="b")
    monkeypatch.chdir(tmp_path)
    release.units.write_parquet("units.parquet")
    manifest: Any = SimpleNamespace(
        columns=columns,
        named_columns=release.columns,
        assignment=None,
        arms=ARMS,
        control="b",
        questions=release.questions,
    )
    made = recipes(manifest, "units.parquet")
    readme = "\n".join(f"```{one.language}\n{one.lines}\n```" for one in made)
    expected = cdp.estimate(release, use="rows", metrics="score")
    has_r = design != "plain" and shutil.which("Rscript") is not None
    for recipe in [by_sql, by_pandas, *([by_r] if has_r else [])]:
        for arm, (effect, error) in recipe(readme).items():
            own = expected["score", arm]
            assert abs(effect - own.effect) < 0.5 * own.std_error, recipe
            assert error == pytest.approx(own.std_error, rel=0.2), recipe
            if design == "plain":
                assert effect == pytest.approx(own.effect, abs=1e-9)
