"""Columns are taken by their names, also where Polars reads a name as a pattern."""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp._progress import NoProgress
from clusterdp.engines.local.engine import LocalEngine
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.keys import ReleaseKey
from clusterdp.sources.source import NamedSource
from clusterdp.spec.columns import Columns, debiased_names
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import LocalFolder
from runs import write_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PLAIN = ("user", "treated", "market", "tier", "zip")
# What the column of each part is called. A pattern would find all columns, or one that is beside.
NAMES: dict[str, dict[str, str]] = {
    "patterns": {name: f"^{name}$" for name in PLAIN},
    "everything as id": {"user": "*", "market": "^.*$"},
    "everything as arm": {"treated": "*", "user": "^.*$"},
    "everything as cluster": {"market": "*", "tier": "^.*$"},
    "everything as breakdown": {"tier": "*", "zip": "^.*$"},
    "everything as kept": {"zip": "*", "treated": "^.*$"},
}
SPACE = Categories(declared=declare({"clicks": "0..3"}), grids=())


@pytest.fixture
def people(rng: np.random.Generator) -> pl.DataFrame:
    n_people = 300
    treated = np.tile([0, 1], n_people // 2)
    return pl.DataFrame(
        {
            "user": rng.permutation(n_people),
            "treated": treated,
            "market": np.arange(n_people) // 2 % 3,
            "tier": np.arange(n_people) // 2 % 5,
            "zip": np.arange(n_people) // 2 % 7,
            "clicks": rng.binomial(3, 0.3 + 0.2 * treated),
        }
    )


def renamed(table: pl.DataFrame, names: Mapping[str, str]) -> pl.DataFrame:
    """The table by other names, with other values in columns of the old ones."""
    beside = table.select(pl.col(list(names)).reverse())
    return pl.concat([table.rename(dict(names)), beside], how="horizontal")


def as_parquet(table: pl.DataFrame, folder: Path) -> Any:
    table.write_parquet(folder / "t.parquet")
    return NamedSource(name=str(folder / "t.parquet"))


def as_csv(table: pl.DataFrame, folder: Path) -> Any:
    table.write_csv(folder / "t.csv")
    return NamedSource(name=str(folder / "t.csv"))


def as_ndjson(table: pl.DataFrame, folder: Path) -> Any:
    lines = (json.dumps(row) + "\n" for row in table.to_dicts())
    (folder / "t.ndjson").write_text("".join(lines))
    return NamedSource(name=str(folder / "t.ndjson"))


def as_sqlite(table: pl.DataFrame, folder: Path) -> Any:
    with sqlite3.connect(folder / "t.db") as connection:
        columns = ", ".join(f'"{name}"' for name in table.columns)
        connection.execute(f"create table t ({columns})")
        marks = ", ".join("?" * table.width)
        connection.executemany(f"insert into t values ({marks})", table.rows())
    return NamedSource(name=f"sqlite:///{folder}/t.db", query="select * from t")


FORMS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "frame": lambda table, _: table,
    "lazy": lambda table, _: table.lazy(),
    "pandas": lambda table, _: table.to_pandas(),
    "parquet": as_parquet,
    "csv": as_csv,
    "ndjson": as_ndjson,
    "sqlite": as_sqlite,
}


def parts(names: Mapping[str, str]) -> dict[str, Any]:
    user, treated, market, tier, kept = (names.get(name, name) for name in PLAIN)
    return {
        "unit": user,
        "arm": treated,
        "cluster": market,
        "breakdowns": ((tier,),),
        "kept": (kept,),
        "outcomes": ("clicks",),
        "folds": 2,
    }


def release(source: Any, names: Mapping[str, str], out: Path) -> cdp.Release:
    """A folder with key and noise fixed."""
    sums = cdp.SumShares(totals=0.1, breakdowns=(((names.get("tier", "tier"),), 0.1),))
    with ExitStack() as stack:
        prepared = prepare(
            source,
            columns=Columns(**parts(names)),
            spaces=(SPACE,),
            engine=LocalEngine(stack),
            out=str(out),
        )
        write_with(
            prepared,
            (cdp.optimal(epsilon=3, sums=sums),),
            LocalFolder(out),
            NoProgress(),
            journal=NoJournal(ReleaseKey(b"k" * 32)),
            add_noise=simulated_noise(np.random.default_rng(0)),
        )
    return cdp.read_release(out)


def estimated(found: cdp.Release, names: Mapping[str, str], segments: pl.DataFrame) -> list[Any]:
    """Effects by columns of the release and of the analyst, and adjusted for one of each."""
    tier, kept = names.get("tier", "tier"), names.get("zip", "zip")
    cut: dict[str, Any] = {"by": [tier, kept], "adjust": [kept, segments.columns[2]]}
    more: dict[str, Any] = {"segments": segments, "on": segments.columns[0]}
    by_segment = cdp.estimate(found, by=segments.columns[1], **more)
    estimates = [cdp.estimate(found), cdp.estimate(found, **cut, **more), by_segment]
    return [
        (one.effect, one.std_error, [value for _, value in one.of.segment])
        for estimate in estimates
        for one in estimate.effects
    ]


@pytest.mark.parametrize("case", NAMES)
def test_other_names_change_nothing_but_names(
    case: str, people: pl.DataFrame, tmp_path: Path, rng: np.random.Generator
) -> None:
    names = NAMES[case]
    expected = release(people, {}, tmp_path / "plain")
    found = release(as_parquet(renamed(people, names), tmp_path), names, tmp_path / "out")
    units, plain = found.units.collect(), expected.units.collect()
    assert units.columns == [names.get(name, name) for name in plain.columns]
    units.columns = plain.columns
    assert units.equals(plain)
    assert not [check.problem for check in verify_folder(tmp_path / "out") if check.problem]
    segments = pl.DataFrame(
        {
            "who": people["user"],
            "group": rng.integers(0, 2, len(people)),
            "before": rng.normal(size=len(people)),
            "more": 1,
        }
    )
    theirs = {"who": "^more$", "group": "^.*$", "before": "*"}
    if set(theirs.values()) & set(names.values()):
        theirs = {"who": "^more$", "group": "^group$", "before": "^before$"}
    assert estimated(found, names, renamed(segments, theirs)) == estimated(expected, {}, segments)
    rows = cdp.calibrated_rows(found).collect()
    rows.columns = cdp.calibrated_rows(expected).collect_schema().names()
    assert rows.equals(cdp.calibrated_rows(expected).collect())


@pytest.mark.parametrize("form", FORMS)
def test_names_are_names_in_every_source(form: str, people: pl.DataFrame, tmp_path: Path) -> None:
    names = NAMES["patterns"]
    texts = (pl.format(f"{name}_{{}}", name).alias(name) for name in PLAIN if name != "treated")
    people = people.with_columns(texts)
    expected = release(people, {}, tmp_path / "plain").units.collect()
    source = FORMS[form](renamed(people, names), tmp_path)
    units = release(source, names, tmp_path / "out").units.collect()
    units.columns = expected.columns
    assert units.equals(expected)


@pytest.mark.parametrize(
    ("outcome", "form"), [*(("^clicks$", form) for form in FORMS), ("*", "csv"), ("^.*$", "sqlite")]
)
def test_an_outcome_is_taken_by_its_name(
    outcome: str, form: str, people: pl.DataFrame, tmp_path: Path
) -> None:
    """At this ε hardly a row differs from the truth, which another column does not show."""
    table = renamed(people, {"clicks": outcome})
    source = FORMS[form](table, tmp_path)
    query = {}
    if isinstance(source, NamedSource):
        query = {"query": source.query} if source.query else {}
        source = source.name
    asked: Any = {
        "unit": "user",
        "arm": "treated",
        "cluster": "market",
        **query,
        "outcomes": {outcome: "0..3"},
        "epsilon": 25,
        "mechanism": "uniform-prior-dp",
    }
    assert cdp.plan(source, **asked).options.n_units == len(people)
    cdp.publish(source, out=tmp_path / "out", **asked)
    units = cdp.read_release(tmp_path / "out").units.collect()
    (debiased,) = debiased_names((outcome,), ())
    truth = people.sort("user")["clicks"].to_numpy()
    assert np.abs(units[debiased].to_numpy() - truth).max() < 0.01
    (effect,) = cdp.estimate(tmp_path / "out").effects
    assert effect.of.metric.strip('"') == outcome


OPTIONS: dict[str, dict[str, Any]] = {
    "several rows": {"cluster": "market", "aggregate": "max"},
    "crossed": {"cluster": "market,tier"},
    "private": {"cluster": "market", "private_cluster": 0.5, "labels": ["0", "1", "2"]},
    "groups": {"randomization_unit": "group", "breakdown": ["tier"]},
    "labels": {"cluster": "market", "outcomes": {"bought": ["no", "yes"]}, "missing": "bought"},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_names_are_names_in_every_option(case: str, people: pl.DataFrame, tmp_path: Path) -> None:
    """Plans, previews, releases and estimates with an exposure; a plan of the same cells."""
    people = people.with_columns(
        group=pl.col("user") // 30 * 2 + pl.col("treated"),
        bought=pl.when(pl.col("clicks") > 1).then(pl.lit("yes")).otherwise(pl.lit("no")),
        seen=pl.col("treated"),
    )
    plain: dict[str, Any] = {
        "unit": "user",
        "arm": "treated",
        "outcomes": {"clicks": "0..3"},
        "passthrough": "seen",
        "epsilon": 2,
        "mechanism": "uniform-prior-dp",
        **OPTIONS[case],
    }
    asked = {option: _as_patterns(value, people.columns) for option, value in plain.items()}
    table = renamed(people, {name: f"^{name}$" for name in people.columns})
    path = tmp_path / "t.parquet"
    table.write_parquet(path)
    expected = cdp.plan(people, **plain)
    for source in (table.lazy(), path):
        found = cdp.plan(source, **asked)
        assert found.options.n_units == expected.options.n_units
        assert found.options.n_clusters == expected.options.n_clusters
        assert cdp.preview(source, **asked).content["n_units"] == len(people)
    cdp.publish(path, out=tmp_path / "out", **asked)
    assert not [check.problem for check in verify_folder(tmp_path / "out") if check.problem]
    exposure: dict[str, Any] = {} if case == "groups" else {"exposure": "^seen$"}
    assert len(cdp.estimate(tmp_path / "out", **exposure).effects) >= 1


def _as_patterns(value: Any, names: list[str]) -> Any:
    """An option, with patterns in place of names of columns."""
    if isinstance(value, dict):
        return {_as_patterns(name, names): one for name, one in value.items()}
    if isinstance(value, list):
        return [_as_patterns(one, names) for one in value]
    if not isinstance(value, str):
        return value
    return ",".join(f"^{part}$" if part in names else part for part in value.split(","))
