"""Releases with totals, breakdowns and folds, for adversaries, after crashes, of odd tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome, one_question
from cli_runs import assert_refused, release, run
from clusterdp._progress import NoProgress
from clusterdp.engines.base import RANDOMIZING
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.verification import verify_folder
from clusterdp.releasing import targets
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import ALONE, simulated_noise
from clusterdp.storage.folder import LocalFolder
from fixed_release import blind_noise, checksums
from runs import write_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterdp._arrays import IntArray
    from clusterdp._progress import Progress
    from clusterdp.releasing.journal import Journal
    from clusterdp.statistics.noise import NoiseSource

SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
KEY = ReleaseKey(b"k" * 32)


@pytest.fixture
def grouped(table: pl.DataFrame) -> pl.DataFrame:
    """The small table of all tests, with groups."""
    user = pl.col("user")
    return table.with_columns(tier=pl.format("tier {}", user % 3), new=user % 4 == 0)


def publish(
    table: pl.DataFrame | Path,
    out: Path,
    *by: tuple[str, ...],
    cluster: str | None = "market",
    folds: int = 2,
    journal: Journal | None = None,
    add_noise: NoiseSource | None = None,
    progress: Progress | None = None,
    mechanism: cdp.Mechanism | None = None,
) -> Path:
    """Publish a table with totals, and with totals by some columns."""
    columns = Columns(
        unit="user",
        arm="treated",
        cluster=cluster,
        outcomes=("clicks",),
        breakdowns=by,
        folds=folds,
    )
    write_with(
        prepare(table, columns=columns, spaces=(SPACE,)),
        (mechanism or mechanism_of(*by),),
        LocalFolder(out),
        progress or NoProgress(),
        journal=journal or NoJournal(KEY),
        add_noise=add_noise or simulated_noise(np.random.default_rng(0)),
    )
    return out


def mechanism_of(*by: tuple[str, ...]) -> cdp.Mechanism:
    sums = cdp.SumShares(totals=0.1, breakdowns=tuple((one, 0.1) for one in by))
    return cdp.uniform_prior_dp(epsilon=3, sums=sums)


def problems(folder: Path) -> list[str]:
    return [f"{check.name}: {check.problem}" for check in verify_folder(folder) if check.problem]


# The bytes


def test_all_but_the_rows_is_blind_to_outcomes(grouped: pl.DataFrame, tmp_path: Path) -> None:
    """Where noise comes out alike, so does every byte but those of rows and their checksums."""
    others = grouped.with_columns(clicks=3 - pl.col("clicks"))
    by = (("tier",), ("new", "tier"))
    found = [
        checksums(publish(each, tmp_path / str(place), *by, add_noise=blind_noise))
        for place, each in enumerate([grouped, others])
    ]
    differ = {name for name in found[0] if found[0][name] != found[1][name]}
    assert differ == {"units.parquet", "index.html", "manifest.json"}
    assert {"totals.parquet", "cells.parquet"} <= set(found[0])


def test_the_shape_of_totals_follows_from_public_labels(
    grouped: pl.DataFrame, tmp_path: Path
) -> None:
    """Groups without units have totals, too: noise, as all others have."""
    lacking = grouped.with_columns(
        tier=pl.when(pl.col("new")).then(pl.lit("tier 0")).otherwise("tier")
    )
    folder = publish(lacking, tmp_path / "out", ("tier", "new"))
    totals = pl.read_parquet(folder / "totals.parquet")
    assert len(totals) == 2 * 2 * (1 + 3 * 2)
    empty = totals.filter(pl.col("group") == "tier 1 | true")["noisy_sum"].list.first()
    assert len(empty) == 4
    assert empty.n_unique() > 1
    assert problems(folder) == []


# Resumed releases


def kill(*_: object) -> None:
    raise KeyboardInterrupt


def no_second_draw(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
    raise AssertionError("noise was drawn again")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(str(tmp_path / "budget.db"), 8.0)


def leave_unfinished(
    ledger: Ledger, table: pl.DataFrame, out: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A release by tier that is killed after its noise was drawn."""
    reservation = ledger.reserve(
        "users",
        terms=one_question(SPACE, mechanism_of(("tier",))),
        about={},
        place="x",
        confirmed_new=True,
    )
    with monkeypatch.context() as patch:
        patch.setattr(targets, "totals_table", kill)
        with pytest.raises(KeyboardInterrupt):
            publish(table, out, ("tier",), journal=reservation)
    assert not out.exists()
    return reservation.release_id


def test_a_killed_release_is_finished_with_the_same_bytes(
    grouped: pl.DataFrame, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = leave_unfinished(ledger, grouped, tmp_path / "out", monkeypatch)
    again = ledger.resume(unfinished)
    resumed = publish(grouped, tmp_path / "out", ("tier",), journal=again, add_noise=no_second_draw)
    whole = publish(grouped, tmp_path / "whole", ("tier",), journal=NoJournal(again.row_key))
    assert checksums(resumed) == checksums(whole)
    assert problems(resumed) == []


@pytest.mark.parametrize("change", [("--breakdown", "new"), ("--folds", 1)])
def test_what_was_decided_is_not_changed(
    change: tuple[object, ...],
    grouped: pl.DataFrame,
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, budget = tmp_path / "t.parquet", ("--ledger", ledger)
    grouped.write_parquet(source)
    asked = ("--breakdown", "tier", *budget, "--population", "users", "--new-population")
    with monkeypatch.context() as patch:
        patch.setattr(targets, "cells_table", kill)
        assert release(source, tmp_path / "out", *asked).exit_code == 130
    (unfinished,) = ledger.releases()
    resume = ("release", "--resume", unfinished.release_id, *budget)
    assert_refused(run(*resume, *change), "was decided when the release began")
    assert run(*resume).exit_code == 0
    published = cdp.read_release(tmp_path / "out")
    assert (published.columns.breakdowns, published.layout.folds) == ((("tier",),), 2)


def test_groups_that_changed_are_another_table(
    grouped: pl.DataFrame, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals were drawn of the groups that units were in; rows must be in the same."""
    unfinished = leave_unfinished(ledger, grouped, tmp_path / "out", monkeypatch)
    swapped = {"tier 0": "tier 1", "tier 1": "tier 0"}
    for changes in (swapped, {"tier 0": "tier 1"}):
        moved = grouped.with_columns(pl.col("tier").replace(changes))
        with pytest.raises(cdp.DataError, match="not the one that the release began with"):
            publish(moved, tmp_path / "out", ("tier",), journal=ledger.resume(unfinished))


def test_groups_that_change_between_the_passes(grouped: pl.DataFrame, tmp_path: Path) -> None:
    source = tmp_path / "t.parquet"
    grouped.write_parquet(source)
    swapped = {"tier 0": "tier 1", "tier 1": "tier 0"}
    sums = cdp.SumShares(totals=0.1, breakdowns=((("tier",), 0.1),))
    counted = cdp.cluster_dp(noise_scale=10, prior_floor=0.02, epsilon=3, sums=sums)

    class Meddler:
        def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
            del n_rows
            if name == RANDOMIZING:
                grouped.with_columns(pl.col("tier").replace(swapped)).write_parquet(source)
            return lambda _: None

    with pytest.raises(cdp.DataError, match="the table changed while it was being read"):
        publish(source, tmp_path / "out", ("tier",), progress=Meddler(), mechanism=counted)
    assert not (tmp_path / "out").exists()


# Odd tables


@pytest.mark.parametrize(
    "name",
    ["size", "n_rows", "len", "weight", "by", "group", "n", "everyone", 'a.b "c"', "0", "c0"],
)
def test_columns_that_are_called_as_ours_are(
    name: str, grouped: pl.DataFrame, tmp_path: Path
) -> None:
    folder = publish(grouped.rename({"tier": name}), tmp_path / "out", (name,), ("new", name))
    assert problems(folder) == []
    assert cdp.read_release(folder).layout.group_names((name,)) == ["tier 0", "tier 1", "tier 2"]


@pytest.mark.parametrize("name", ["fold", "response", "clicks_debiased"])
def test_names_that_rows_need(name: str, grouped: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(cdp.DataError, match="has a name that the release gives"):
        publish(grouped.rename({"tier": name}), tmp_path / "out", (name,))


@pytest.mark.parametrize(
    "ids",
    [
        pl.format("né {}", pl.col("user") ** 5),
        pl.col("user").cast(pl.UInt64) + 2**63,
        pl.col("user").cast(pl.Int16),
        pl.format("u{}", "user").cast(pl.Categorical),
    ],
    ids=["text", "unsigned", "small", "categories"],
)
@pytest.mark.parametrize("arms", [pl.Int8, pl.Boolean])
def test_ids_and_arms_of_every_type(
    ids: pl.Expr, arms: type[pl.DataType], grouped: pl.DataFrame, tmp_path: Path
) -> None:
    changed = grouped.with_columns(user=ids, treated=pl.col("treated").cast(arms))
    folder = publish(changed, tmp_path / "out", ("tier",), ("market", "new"))
    assert problems(folder) == []
    folds = pl.read_parquet(folder / "units.parquet")["fold"]
    assert set(folds) == {0, 1}


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ((("clicks",),), "not by ids, arms or outcomes"),
        ((("tier", "user"),), "not by ids, arms or outcomes"),
        ((("treated",),), "not by ids, arms or outcomes"),
        ((("tier",), ("tier",)), "two breakdowns have the same columns"),
        ((("tier", "tier"),), "names a column twice"),
        (((),), "two breakdowns have the same columns"),
    ],
)
def test_breakdowns_that_cannot_be(
    by: tuple[tuple[str, ...], ...], message: str, grouped: pl.DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(cdp.DataError, match=message):
        publish(grouped, tmp_path / "out", *by)


@pytest.mark.parametrize("cluster", ["market,clicks", "user,market", "clicks"])
def test_clusters_are_not_made_of_outcomes_or_ids(
    cluster: str, grouped: pl.DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(cdp.DataError, match=r"cannot be crossed|must all differ"):
        publish(grouped, tmp_path / "out", ("tier",), cluster=cluster)


def test_what_is_refused_of_groups_does_not_depend_on_outcomes(
    grouped: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before any outcome is read."""
    monkeypatch.setattr("clusterdp.engines.local.table.Tally", kill)
    gap = grouped.with_columns(tier=pl.when(pl.col("user") > 2).then("tier"))
    with pytest.raises(cdp.DataError, match=r"'tier' \(breakdown\) has 3 missing values"):
        publish(gap, tmp_path / "out", ("tier",))
    many = grouped.with_columns(page=pl.col("user"), place=pl.col("user") // 2)
    with pytest.raises(cdp.DataError, match="at most 10,000 are possible"):
        publish(many, tmp_path / "out", ("page", "place"))
    with pytest.raises(KeyboardInterrupt):
        publish(grouped, tmp_path / "out", ("tier",))


@pytest.mark.parametrize(
    "parts",
    [
        {"cluster": "clicks"},
        {"cluster": "market,clicks"},
        {"breakdown": ["clicks"]},
        {"breakdown": ["tier,clicks"]},
        {"breakdown": ["user"], "unit": "user"},
    ],
    ids=str,
)
def test_a_plan_reads_no_outcome_either(parts: dict[str, Any], grouped: pl.DataFrame) -> None:
    given: dict[str, Any] = {"outcomes": {"clicks": "0..3"}, "arm": "treated", "cluster": "market"}
    with pytest.raises(cdp.DataError, match=r"cannot be crossed|must all differ|not by ids"):
        cdp.plan(grouped, **{**given, **parts}, epsilon=2)
