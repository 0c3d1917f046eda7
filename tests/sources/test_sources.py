"""Wherever a table comes from, the same key gives the same release, and the same refusals."""

from __future__ import annotations

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
from clusterdp.outcomes.grid import Grid
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.column_types import PLAIN, Notation
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import LocalFolder
from fixed_release import checksums
from runs import write_with
from source_forms import FORMS, QUERY, in_postgres

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterdp.sources.source import NamedSource

KEY = ReleaseKey(b"k" * 32)
SPEND = cdp.Number(0, 40)
SPACE = Categories(
    declared=declare(
        {"visited": "no,yes", "sale": "0,1", "spend": SPEND},
        constraints=["sale -> visited"],
        missing=["visited", "spend"],
    ),
    grids=(Grid(number=SPEND, points=(0, SPEND.n_steps // 4, SPEND.n_steps)),),
)
COLUMNS = Columns(
    unit="user",
    arm="treated",
    cluster="market",
    outcomes=SPACE.declared.names,
    missing=SPACE.declared.missing,
    kept=("tier", "zip"),
    folds=2,
)
MECHANISM = cdp.cluster_dp(noise_scale=5, prior_floor=0.01, resample_prob=0.5)
EVERYWHERE = [*FORMS, pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture
def people(rng: np.random.Generator) -> pl.DataFrame:
    """Ids and zip codes with leading zeros, labels, and outcomes that may be missing."""
    n_people = 400
    visited = rng.random(n_people) < 0.4
    spend = pl.Series(np.minimum(rng.exponential(8, n_people), 40).round(4))
    table = pl.DataFrame(
        {
            "user": [f"{number:05}" for number in rng.permutation(n_people)],
            "treated": np.tile([0, 1], n_people // 2),
            "market": [f"market {number // 2 % 4}" for number in range(n_people)],
            "zip": [f"{number % 7:03}" for number in range(n_people)],
            "tier": np.arange(n_people) % 3,
            "unused": rng.normal(size=n_people).round(4),
            "visited": np.where(visited, "yes", "no"),
            "sale": (visited & (rng.random(n_people) < 0.5)).astype(np.int64),
            "spend": spend,
        }
    )
    place = pl.int_range(pl.len())
    return table.with_columns(
        visited=pl.when((place % 11 == 0) & (pl.col("sale") == 0)).then(None).otherwise("visited"),
        spend=pl.when(place % 7 == 0).then(None).otherwise("spend"),
    )


def find(
    form: str, table: pl.DataFrame, folder: Path, request: pytest.FixtureRequest
) -> NamedSource:
    folder.mkdir(exist_ok=True)
    if form == "postgresql":
        return in_postgres(table, request.getfixturevalue("postgres"))
    return FORMS[form](table, folder)


def release(source: NamedSource, out: Path, notation: Notation = PLAIN) -> dict[str, str]:
    """The checksums of what is published, with key and noise fixed."""
    with ExitStack() as stack:
        prepared = prepare(
            source,
            columns=COLUMNS,
            spaces=(SPACE,),
            notation=notation,
            engine=LocalEngine(stack),
            out=str(out),
        )
        write_with(
            prepared,
            (MECHANISM,),
            LocalFolder(out),
            NoProgress(),
            journal=NoJournal(KEY),
            add_noise=simulated_noise(np.random.default_rng(0)),
        )
    assert [path.name for path in out.parent.glob(f".{out.name}*")] == []
    return checksums(out)


@pytest.mark.parametrize("form", EVERYWHERE)
def test_the_same_key_gives_the_same_bytes(
    form: str, people: pl.DataFrame, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expected = release(find("parquet", people, tmp_path / "a", request), tmp_path / "expected")
    found = release(find(form, people, tmp_path / "b", request), tmp_path / "found")
    assert found == expected
    units = cdp.read_release(tmp_path / "found").units.collect()
    assert units["user"].equals(people["user"].sort())
    assert set(units["zip"]) == set(people["zip"])


@pytest.mark.parametrize("form", EVERYWHERE)
def test_numbers_as_people_write_them_give_the_same_bytes(
    form: str, people: pl.DataFrame, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expected = release(find("parquet", people, tmp_path / "a", request), tmp_path / "expected")
    words = pl.Series(["NA", "null", "", " NaN "])[pl.int_range(people.height, eager=True) % 4]
    written = pl.col("spend").cast(pl.String).str.replace(".", ",", literal=True)
    texts = people.with_columns(written.fill_null(words).alias("spend"))
    source = find(form, texts, tmp_path / "b", request)
    assert release(source, tmp_path / "found", Notation(decimal=",")) == expected


def put(column: str, value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A table with another value in its last row."""
    last = pl.int_range(pl.len()) == pl.len() - 1
    return lambda table: table.with_columns(
        pl.when(last).then(pl.lit(value)).otherwise(column).alias(column)
    )


REFUSED: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "a third label": (put("visited", "maybe4321"), "has values outside the allowed values"),
    "an outcome outside": (put("sale", 4321), "has values outside the allowed values"),
    "a missing outcome": (put("sale", None), "has missing values; declare"),
    "decimal commas": (
        lambda table: put("spend", "43,21")(table.with_columns(pl.col("spend").cast(pl.String))),
        "column 'spend' (outcome) is text and has decimal commas, as in 0,5; declare them",
    ),
    "other text": (
        lambda table: put("spend", "4321?")(table.with_columns(pl.col("spend").cast(pl.String))),
        "column 'spend' (outcome) is text and has values that are not numbers; leave",
    ),
    "a missing arm": (put("treated", None), "'treated'"),
    "a repeated id": (put("user", "00007"), "has duplicate ids"),
    "a missing id": (put("user", None), "'user'"),
    "no such column": (lambda table: table.drop("market"), "no column 'market'"),
}


@pytest.mark.parametrize("form", EVERYWHERE)
def test_the_same_tables_are_refused_with_the_same_words(
    form: str, people: pl.DataFrame, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for place, (name, (spoil, message)) in enumerate(REFUSED.items()):
        spoiled = spoil(people.filter(pl.col("user") != "00007") if "repeated" in name else people)
        if "repeated" in name:
            spoiled = pl.concat([spoiled, spoiled[-1:]])
        said = {}
        for each in ("parquet", form):
            source = find(each, spoiled, tmp_path / f"{each} {place}", request)
            with pytest.raises(cdp.DataError) as refused:
                release(source, tmp_path / f"out {each}")
            said[each] = str(refused.value)
            assert refused.value.__context__ is None or "4321" not in str(refused.value.__context__)
        assert message in said["parquet"], name
        assert "4321" not in said[form]
        assert said[form] == said["parquet"], name
        assert [path for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_ids_of_text_files_are_numbers_only_if_each_is_written_as_one(
    people: pl.DataFrame, tmp_path: Path
) -> None:
    def ids_of(ids: list[str]) -> pl.Series:
        table = people[: len(ids)].with_columns(user=pl.Series(ids))
        out = tmp_path / f"out {ids[-1]}"
        release(FORMS["csv"](table, tmp_path), out)
        found: pl.Series = cdp.read_release(out).units.collect()["user"]
        return found

    numbers = [str(number) for number in range(200)]
    assert ids_of(numbers).equals(pl.Series("user", range(200)))
    for odd in ("007", "+7", "-0", "7.0", "1e3", "seven", "99999999999999999999", "true"):
        found = ids_of([*numbers[:-1], odd])
        assert found.dtype == pl.String
        assert odd in found


# What cannot be computed of any row.
BROKEN = {
    "sqlite": "abs(-9223372036854775807 - 1 + 0 * tier)",
    "duckdb": "cast('word4321' || tier as int)",
    "postgresql": "cast('word4321' || tier as int)",
}


@pytest.mark.parametrize(
    "form", ["sqlite", "duckdb", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def test_a_plan_fetches_no_outcome(
    form: str, people: pl.DataFrame, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Outcomes that cannot be computed at all stop neither a plan nor a preview."""
    name = find(form, people.drop("sale"), tmp_path, request).name
    asked: Any = {
        "arm": "treated",
        "cluster": "market",
        "outcomes": {"sale": [0, 1]},
        "query": f"select *, {BROKEN[form]} as sale from people",
        "epsilon": 1,
    }
    assert cdp.plan(name, **asked).options.n_units == len(people)
    assert cdp.preview(name, unit="user", **asked).content["n_units"] == len(people)
    with pytest.raises(cdp.DataError, match="could not run the query") as refused:
        cdp.publish(name, unit="user", out=tmp_path / "out", **asked)
    assert "4321" not in str(refused.value)
    assert refused.value.__context__ is None
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_a_query_is_named_in_one_place(people: pl.DataFrame) -> None:
    with pytest.raises(cdp.ParameterError, match="query belongs to a table by name"):
        cdp.plan(people, query=QUERY, outcomes={"sale": "0,1"}, arm="treated", epsilon=1)


def test_an_interrupted_release_of_a_query_is_finished_from_anywhere(
    people: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger keeps URL and query; another table takes the place of both."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    ledger = cdp.Ledger.create(tmp_path / "ledger.db", cap_epsilon=8)
    asked: Any = {
        "unit": "user",
        "arm": "treated",
        "cluster": "market",
        "outcomes": {"sale": "0,1"},
        "epsilon": 1,
        "ledger": ledger,
        "population": "people",
    }
    FORMS["sqlite"](people, tmp_path)
    parquet = FORMS["parquet"](people, tmp_path).name
    monkeypatch.chdir(tmp_path)
    for place, again in enumerate(([], [parquet])):
        with monkeypatch.context() as patch:
            patch.setattr("clusterdp.releasing.targets.write_readme", stop)
            with pytest.raises(KeyboardInterrupt):
                cdp.publish(
                    "sqlite:///people.sqlite",
                    query=QUERY,
                    out=tmp_path / f"out{place}",
                    new_population=not place,
                    **asked,
                )
        (unfinished,) = (one for one in ledger.releases() if one.status != "committed")
        with monkeypatch.context() as patch:
            patch.chdir("/")
            finished = cdp.resume(unfinished.release_id, *again, ledger=ledger)
        assert finished.read().layout.n_units == len(people)
        assert not list(tmp_path.glob(".out*"))
