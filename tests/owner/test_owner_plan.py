"""Plans in Python: what is compared, how it reads, how it is kept, and the command line's plan."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.document.text import to_lines, to_screen
from clusterdp.outcomes.declaration import parse_space
from drafts import draft_of

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC: dict[str, Any] = {"outcomes": {"clicks": "0..3"}, "arm": "treated", "cluster": "market"}


def test_a_plan_says_what_it_compared_and_why(table: pl.DataFrame) -> None:
    plan = cdp.plan(table, **PUBLIC, epsilon=2)
    text, html = repr(plan), plan._repr_html_()
    assert text.startswith("At ε = 2 you can detect a change in clicks of ")
    for said in ("600 units, 5 clusters (market), 2 arms. No outcome was read.", "1% segment"):
        assert said in text
        assert said in html
    assert re.search(r"ε split +\d+% rows \(any segment later\)", text)
    assert plan.report is not None
    review = "\n".join(to_lines(plan.report.review()))
    for said in ("* optimal", "cluster-dp", "Mechanism  optimal", "Why ", "Trade-off  "):
        assert said in review
    assert "larger than in a plan for the overall effect only" in review
    assert "Minimum detectable effect on clicks" in review
    assert "your clusters (5)" in review
    assert "no clusters (1)" in review
    assert '<table class="numeric">' in html


@pytest.mark.slow
def test_every_kind_of_table_gives_the_same_plan(
    table: pl.DataFrame, source: Path, tmp_path: Path
) -> None:
    import duckdb

    arrow = table.to_arrow()
    sizes = table.group_by("market", "treated").len("n")
    tables: list[tuple[Any, dict[str, Any]]] = [
        (table, {}),
        (table.lazy(), {}),
        (table.to_pandas(), {}),
        (arrow, {}),
        (duckdb.from_arrow(arrow), {}),
        (table.drop("clicks", "user"), {}),
        (source, {}),
        (str(source), {}),
        ("duckdb://", {"query": f"select * from '{source}'"}),
        (sizes, {"size": "n"}),
    ]
    plans = [cdp.plan(given, **PUBLIC, epsilon=1, **more).to_dict() for given, more in tables]
    assert all(plan == plans[0] for plan in plans)


def test_the_command_line_gives_the_same_plan(source: Path, tmp_path: Path) -> None:
    by_hand, by_command = tmp_path / "hand.toml", tmp_path / "command.toml"
    plan = cdp.plan(
        source, **PUBLIC, epsilon=2, optimize_for="segments:0.2", baseline="mean:1,std:1"
    )
    plan.save(by_hand)
    names = ("--outcome", "clicks=0..3", "--arm", "treated", "--cluster", "market", "--epsilon", 2)
    more = (
        "--optimize-for",
        "segments:0.2",
        "--baseline",
        "mean:1,std:1",
        "--out",
        by_command,
        "--json",
    )
    ran = run("plan", source, *names, *more)
    assert ran.exit_code == 0, ran.output
    locked = by_command.with_suffix(".lock").read_text()
    assert by_hand.read_text() == re.sub(r'experiment = ".*"\n', "", locked)
    assert json.loads(ran.stdout) == json.loads(json.dumps(plan.to_dict()))


@pytest.mark.parametrize(
    "space",
    [
        "0..3",
        "binary",
        [0, 1, 2.5, 3],
        "bins:0,0.5,4",
        cdp.OutcomeSpace.bins([0, 1, 4], representatives=[0.25, 3]),
        cdp.OutcomeSpace.integers(-2, 3),
        cdp.Number(0, 40),
        "number:-1..2.5",
    ],
)
def test_a_plan_comes_back_from_its_file(space: Any, table: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "plan.lock"
    plan = cdp.plan(
        table,
        outcomes={"clicks": space},
        arm="treated",
        cluster=["market"],
        unit="user",
        epsilon=1,
        mechanism="optimal",
    )
    plan.save(path)
    again = cdp.Plan.load(path)
    assert again.options == plan.options
    assert draft_of(again.options).spaces[0] == draft_of(plan.options).spaces[0]
    assert draft_of(again.options).spaces[0].declared.spaces == {"clicks": parse_space(space)}
    assert "epsilon: 1.0" in repr(again)
    assert "epsilon: 1.0" in again._repr_html_()
    with pytest.raises(cdp.ParameterError, match="plan again"):
        again.to_html()


def test_an_effect_to_find_instead_of_a_budget(table: pl.DataFrame) -> None:
    seen = cdp.plan(table, **PUBLIC, epsilon=1, mechanism="uniform-prior-dp")
    effect = seen.to_dict()["options"][0]["overall"]["clicks"]["detectable_effect"]
    found = cdp.plan(table, **PUBLIC, mde=effect, mechanism="uniform-prior-dp")
    assert found.options.epsilon == pytest.approx(1, rel=0.03)


def test_columns_are_crossed(table: pl.DataFrame) -> None:
    tiers = table.with_columns(tier=pl.col("market") % 2, region=pl.col("market") // 2)
    crossed = cdp.plan(tiers, **{**PUBLIC, "cluster": ["tier", "region"]}, epsilon=1)
    assert crossed.options.cluster == "tier,region"
    assert crossed.to_dict()["n_clusters"] == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": "two"}, "epsilon must be a number; got 'two'"),
        ({"epsilon": None}, "give epsilon"),
        ({"mde": 0.1}, "leave out mde"),
        ({"outcomes": 5}, "outcomes must be outcomes by name, each with its allowed values"),
        ({"outcomes": "0..3"}, "an outcome must be NAME=VALUES"),
        ({"outcomes": {"clicks": None}}, "outcomes must be outcomes by name"),
        ({"outcome": "visits"}, "there is no option 'outcome'. Did you mean outcomes?"),
        ({"arm": 3}, "arm must be the name of a column"),
        ({"cluster": ["market", 3]}, "cluster must be the name of a column, or a list"),
        ({"cluster": "nowhere"}, "no column 'nowhere'"),
        ({"cluster": ["market", "nowhere"]}, "no column 'nowhere' to cross"),
        ({"mechanism": cdp.uniform_prior_dp(epsilon=1)}, "mechanism must be one of optimal"),
        ({"engine": "flink"}, "engine must be local or spark"),
        ({"engine": "spark"}, "engine spark needs the name of a table"),
        ({"size": "clicks"}, "one row per cluster and arm"),
        ({"size": "secret"}, "must hold whole numbers"),
    ],
)
def test_what_a_plan_refuses(change: dict[str, Any], message: str, table: pl.DataFrame) -> None:
    with pytest.raises(cdp.ClusterDPError, match=message.replace("(", r"\(")):
        cdp.plan(table, **{**PUBLIC, "epsilon": 1, **change})


def test_a_table_of_no_kind() -> None:
    with pytest.raises(cdp.ParameterError, match=r"must be a pandas, Polars, .* got list"):
        cdp.plan([1, 2], **PUBLIC, epsilon=1)


def test_what_can_be_seen_is_told_as_numbers_too(table: pl.DataFrame) -> None:
    said = cdp.plan(table, **PUBLIC, epsilon=2).to_dict()
    assert sum(said["budget"].values()) == pytest.approx(1)
    assert set(said["losses"]) == {"the overall effect", "10% segments"}
    assert all(0 <= loss < 1 for loss in said["losses"].values())
    assert [one["n_clusters"] for one in said["clusters"]] == [5, 1]
    seen = said["visible"]
    chosen = said["options"][0]
    assert seen["all units"] == chosen["overall"]
    assert seen["10% segment"] == chosen["segment"]
    for one in seen.values():
        assert one["clicks"]["detectable_effect"] > one["clicks"]["std_error"]


def test_a_purpose_is_planned_for_and_kept(table: pl.DataFrame) -> None:
    errors = {}
    for purpose in (None, "overall", "segments:0.1"):
        plan = cdp.plan(table, **PUBLIC, epsilon=1, optimize_for=purpose, mechanism="optimal")
        assert plan.options.optimize_for == purpose
        (option,) = plan.to_dict()["options"]
        parts = ("overall", "segment")
        errors[purpose] = [option[part]["clicks"]["std_error"] for part in parts]
    assert errors["overall"][0] < errors[None][0] < errors["segments:0.1"][0]
    assert errors["segments:0.1"][1] < errors[None][1] < errors["overall"][1]


def test_one_is_one(rng: np.random.Generator) -> None:
    one = pl.DataFrame({"treated": np.arange(8) % 2, "market": ["here"] * 8})
    text = repr(cdp.plan(one, **PUBLIC, epsilon=1, mechanism="uniform-prior-dp"))
    assert "8 units, 1 cluster (market), 2 arms." in text


def test_a_plan_fits_the_terminal(table: pl.DataFrame) -> None:
    """Lines are broken, tables go on below: nothing is left out."""
    one = cdp.plan(table, **PUBLIC, epsilon=2, optimize_for="segments")
    several = cdp.plan(
        table,
        arm="treated",
        outcomes={"a_long_name_of_a_visit": "0,1", "another_long_name": "0,1", "clicks": "0..3"},
        metric=["clicks>=1", "another_long_name*clicks", "a_long_name_of_a_visit*clicks"],
        mechanism="uniform-prior-dp",
        epsilon=2,
    )
    for plan in (one, several):
        assert plan.report is not None
        wide, narrow = (to_screen(plan.report.parts(), width) for width in (200, 80))
        assert max(map(len, narrow.splitlines())) <= 80
        assert set(wide.split()) == set(narrow.split())
