"""Folders with totals, breakdowns and folds that were edited and sealed anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from cli_runs import assert_refused, run
from soak.attempts import write_folder
from soak.sound_folders import as_parquet, seal, sealed, sound_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from soak.sound_folders import SoundFolder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SoundFolder]:
    made = sound_folders(np.random.default_rng(), tmp_path_factory.mktemp("sound"))
    return {folder.name: folder for folder in made}


def of_tier(**parts: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of the breakdown by tier."""
    return lambda content: content["breakdowns"][0].update(parts)


def to(**parts: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of a manifest at its top."""
    return lambda content: content.update(parts)


def in_columns(**parts: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["columns"].update(parts)


def by_region(content: dict[str, Any]) -> None:
    """Totals, and the noise on them, by a column that is not published."""
    (question,) = content["questions"]
    question["mechanism"]["statistics"][1]["by"] = ["region"]
    question["noise"] = {
        name.replace("tier", "region"): scales for name, scales in question["noise"].items()
    }


NOT_IN_ORDER = "one for every group, fold and arm"
MANIFESTS: dict[str, tuple[str, Callable[[dict[str, Any]], None], str]] = {
    "a larger group": ("Totals", of_tier(sizes=[[17, 8], [8, 16]]), "the sizes of breakdowns"),
    "a group of less than none": ("Totals", of_tier(sizes=[[-1, 8], [25, 16]]), "see 'breakdowns'"),
    "sizes of some arms": ("Totals", of_tier(sizes=[[16], [8, 16]]), "is inconsistent"),
    "sizes of some groups": ("Totals", of_tier(sizes=[[24, 24]]), "see 'breakdowns'"),
    "a group twice": ("Totals", of_tier(labels=[["0", "0"]]), "see 'breakdowns'"),
    "groups in another order": ("Totals", of_tier(labels=[["1", "0"]]), NOT_IN_ORDER),
    "by a column that is not there": ("Totals", of_tier(columns=["region"]), "see 'columns'"),
    "by an outcome": ("Totals", of_tier(columns=["clicks"]), "not by ids, arms or outcomes"),
    "by ids": ("Totals", of_tier(columns=["user"]), "not by ids, arms or outcomes"),
    "by nothing": ("Totals", of_tier(columns=[]), "two breakdowns have the same columns"),
    "no breakdown": ("Totals", to(breakdowns=[]), "there is no breakdown by tier"),
    "totals by a column that is not there": ("Totals", by_region, "no breakdown by region"),
    "a breakdown that is not kept": ("Totals", in_columns(kept=[]), "see 'columns'"),
    "a column kept twice": ("Totals", in_columns(kept=["tier", "tier"]), "see 'columns'"),
    "three folds": ("Totals", to(folds=3), NOT_IN_ORDER),
    "one fold": ("No clusters", to(folds=1), NOT_IN_ORDER),
    "no folds": ("No clusters", to(folds=0), "folds must be 1 to 10"),
    "folds beyond memory": ("Totals", to(folds=10**9), "folds must be 1 to 10"),
    "clusters": ("No clusters", in_columns(cluster="market"), "do not have the columns"),
    "a number of clusters": ("No clusters", to(n_clusters=1), "number of units or clusters"),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_manifests_that_say_what_no_release_says(
    case: str, folders: dict[str, SoundFolder], tmp_path: Path
) -> None:
    name, edit, message = MANIFESTS[case]
    content = folders[name].manifest()
    edit(content)
    write_folder(tmp_path / "folder", {**folders[name].files, "manifest.json": seal(content)})
    assert_refused(run("estimate", tmp_path / "folder"), message)
    assert run("verify", tmp_path / "folder").exit_code == 2
    assert run("inspect", tmp_path / "folder").exit_code in (0, 2)


TOTALS = "totals.parquet"
TABLES: dict[str, tuple[str, Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "another weight": (
        "cells.parquet",
        lambda t: t.with_columns(pl.col("weight") - 1),
        "do not match the sizes of cells",
    ),
    "a column more": (TOTALS, lambda t: t.with_columns(true=1), "unexpected columns"),
    "a column less": (TOTALS, lambda t: t.drop("noisy_squares"), "unexpected columns"),
    "rows exchanged": (TOTALS, lambda t: t[[1, 0, *range(2, len(t))]], NOT_IN_ORDER),
    "a row less": (TOTALS, lambda t: t[:-1], NOT_IN_ORDER),
    "no rows": (TOTALS, lambda t: t.clear(), NOT_IN_ORDER),
    "folds exchanged": (TOTALS, lambda t: t.with_columns(fold=1 - pl.col("fold")), NOT_IN_ORDER),
    "by another column": (TOTALS, lambda t: t.with_columns(by=pl.lit("region")), NOT_IN_ORDER),
    "no totals": (
        TOTALS,
        lambda t: t.with_columns(noisy_sum_in_units=pl.lit(None, pl.List(pl.Int64))),
        "column 'noisy_sum_in_units' of the totals",
    ),
    "totals of two metrics": (
        TOTALS,
        lambda t: t.with_columns(pl.col("noisy_sum").list.concat("noisy_sum")),
        "column 'noisy_sum' of the totals",
    ),
    "fractional totals": (
        TOTALS,
        lambda t: t.with_columns(pl.col("noisy_sum_in_units").cast(pl.List(pl.Float64))),
        "column 'noisy_sum_in_units' of the totals",
    ),
    "totals in another unit": (
        TOTALS,
        lambda t: t.with_columns(pl.col("noisy_sum").list.eval(pl.element() * 2)),
        "does not match 'noisy_sum_in_units'",
    ),
    "groups as lists": (
        "units.parquet",
        lambda t: t.with_columns(pl.concat_list("tier")),
        "column 'tier' of the rows",
    ),
    "groups as bytes": (
        "units.parquet",
        lambda t: t.with_columns(tier=pl.lit(b"\xff\xfe")),
        "column 'tier' of the rows",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_tables_that_no_release_has(
    case: str, folders: dict[str, SoundFolder], tmp_path: Path
) -> None:
    file, edit, message = TABLES[case]
    folder = folders["Totals"]
    files = {**folder.files, file: as_parquet(edit(folder.table(file)))}
    write_folder(tmp_path / "folder", sealed(folder.manifest(), files))
    assert_refused(run("estimate", tmp_path / "folder"), message)
    assert run("verify", tmp_path / "folder").exit_code == 2


ROWS: dict[str, tuple[str, Callable[[pl.DataFrame], pl.DataFrame], str]] = {
    "folds exchanged": (
        "Totals",
        lambda t: t.with_columns(fold=1 - pl.col("fold")),
        "FAIL folds match ids",
    ),
    "a fold for all": (
        "No clusters",
        lambda t: t.with_columns(fold=pl.lit(9, pl.Int32)),
        "FAIL folds match ids",
    ),
    "no folds": (
        "No clusters",
        lambda t: t.with_columns(fold=pl.lit(None, pl.Int32)),
        "FAIL folds match ids",
    ),
    "a missing id": (
        "No clusters",
        lambda t: t.with_columns(pl.when(pl.int_range(pl.len()) > 0).then("user")),
        "rows lack an id",
    ),
    "groups exchanged": (
        "Totals",
        lambda t: t.with_columns(pl.col("tier").reverse()),
        "FAIL row counts match the groups of breakdowns",
    ),
    "another group": (
        "Totals",
        lambda t: t.with_columns(pl.col("tier") + 1),
        "FAIL row counts match the groups of breakdowns",
    ),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_that_verify_notices(
    case: str, folders: dict[str, SoundFolder], tmp_path: Path
) -> None:
    """Ids of the folder without clusters are text."""
    name, edit, message = ROWS[case]
    folder = folders[name]
    files = {**folder.files, "units.parquet": as_parquet(edit(folder.table("units.parquet")))}
    write_folder(tmp_path / "folder", sealed(folder.manifest(), files))
    result = run("verify", tmp_path / "folder")
    assert result.exit_code == 2, result.output
    assert message in result.stdout


def test_exchanged_sizes_of_groups(folders: dict[str, SoundFolder], tmp_path: Path) -> None:
    """They add up to the sizes of arms; rows say that they are wrong."""
    folder = folders["Totals"]
    content = folder.manifest()
    content["breakdowns"][0]["sizes"].reverse()
    write_folder(tmp_path / "folder", {**folder.files, "manifest.json": seal(content)})
    assert (
        "FAIL row counts match the groups of breakdowns"
        in run("verify", tmp_path / "folder").stdout
    )
