"""`clusterdp audit`: ε from integers of a folder, and folders that state less than they lose."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.auditing.folder import audit
from clusterdp.auditing.outcomes import Combinations
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from forging import rewrite, seal
from frozen_releases import CLICKS, PARTS, RELEASES, experiment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUMBER = {"outcomes": {"rounds": "number:0..10"}, **PARTS}
THREE = {"visit": "0,1", "sale": "0,1", "clicks": "0..3"}
# Kinds of releases that no other test needs: contrasts, sums of cells, noise that metrics share.
MORE: dict[str, dict[str, Any]] = {
    "contrasts": {**CLICKS, "epsilon": 1, "mechanism": "noisy-horvitz-thompson"},
    "sums of cells": {**CLICKS, "epsilon": 1, "mechanism": "optimal", "sums_share": 0.3},
    "counts and delta": {
        **CLICKS,
        "epsilon": 1,
        "delta": 1e-4,
        "mechanism": "cluster-dp",
        "totals_share": 0.2,
    },
    "a randomizer with delta": {**CLICKS, "epsilon": 1, "delta": 1e-4, "mechanism": "optimal"},
    "noise that metrics share": {
        **PARTS,
        "outcomes": THREE,
        "constraint": ["sale -> visit"],
        "metric": ["visit*clicks", "clicks>=2"],
        "question": ["visit,sale,clicks"],
        "mechanism": "optimal",
        "totals_share": 0.2,
        "sums_share": 0.1,
        "epsilon": 4,
    },
    "a number with a threshold": {**NUMBER, "metric": "rounds>=3", "epsilon": 2},
    "a number that may be missing": {**NUMBER, "missing": "rounds", "epsilon": 2},
    "covariates": {
        **PARTS,
        "outcomes": {"visit": "0,1", "sale": "0,1"},
        "question": ["visit", "sale"],
        "covariate": ["sale=before:0..30", "visit=before:0..30 correlation 0.4"],
        "epsilon": 2,
    },
    "bins": {**PARTS, "outcomes": {"clicks": "bins:0,1,2,4 as 0,1,2"}, "epsilon": 2},
}
KINDS = {**{name: one.options for name, one in RELEASES.items()}, **MORE}


def publish(name: str, folder: Path) -> Path:
    table = experiment()
    if name == "bins":
        table = table.with_columns(clicks=pl.col("clicks").cast(pl.Float64))
    if name == "covariates":
        table = table.with_columns(before=3.0 * pl.col("rounds"))
    cdp.publish(table, out=folder, **KINDS[name])
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of each kind, published once."""
    home = tmp_path_factory.mktemp("audited")
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = publish(name, home / str(len(made)))
        return made[name]

    return folder


@pytest.mark.parametrize("name", KINDS)
def test_the_stated_epsilon_is_reached_and_never_exceeded(
    name: str, folders: Callable[[str], Path]
) -> None:
    found = audit(folders(name))
    assert found.holds, str(found)
    assert float(found.found) <= found.stated * (1 + 1e-12)
    # To the last digit that is printed: four, rounded up.
    assert found.loss == f"{float(found.stated):.4g}"
    assert found.found == pytest.approx(sum(found.parts.values()))


def counted_down(**changes: float) -> Callable[[dict[str, Any]], None]:
    """Statistics with parameters as many times as large."""

    def change(manifest: dict[str, Any]) -> None:
        for question in manifest["questions"]:
            for one in question["mechanism"]["statistics"]:
                for name in changes.keys() & one.keys():
                    one[name] *= changes[name]

    return change


def noise_times(factor: float, name: str) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        for question in manifest["questions"]:
            for facts in question["noise"].values():
                facts[name] = [one and one * factor for one in facts[name]]

    return change


def state(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["guarantee"].update(changes)


def rows_by(**changes: float) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        rows = manifest["questions"][0]["mechanism"]["rows"]
        rows.update({name: rows[name] * factor for name, factor in changes.items()})

    return change


def two_spaces(manifest: dict[str, Any]) -> None:
    """A wider range of values with the noise of the narrow one."""
    outcome = manifest["questions"][0]["outcomes"]["declared"]["outcomes"][0]
    outcome["space"] = "0,1,2,6"


def more_own(manifest: dict[str, Any]) -> None:
    labels = manifest["labels"]
    n_others = len(labels["labels"]) - 1
    labels["other"] //= 2
    labels["own"] = 2**52 - n_others * labels["other"]


def as_one_outcome(manifest: dict[str, Any]) -> None:
    manifest["guarantee"]["neighbours"] = "replace-one-outcome"


def smaller_pilot(manifest: dict[str, Any]) -> None:
    manifest["questions"][0]["mechanism"]["pilot"]["epsilon"] *= 1.5


# What is changed, in which kind of folder; ε, δ and all else stay as stated.
FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "a smaller ε": ("public channel", state(epsilon=0.9)),
    "a smaller ε of an answer to two questions": ("two questions", state(epsilon=1.9)),
    "less noise on counts": ("noisy counts", counted_down(noise_scale=0.8)),
    "less noise on sums": ("public channel", noise_times(0.8, "noise_scale")),
    "less noise on products": ("covariates", noise_times(0.8, "noise_scale")),
    "less noise on squares": ("sums of cells", noise_times(0.5, "squares_noise_scale")),
    "narrower noise that metrics share": (
        "noise that metrics share",
        noise_times(0.5, "noise_scale"),
    ),
    "wider values than noise is for": ("public channel", two_spaces),
    "rows kept more often": ("delta", rows_by(resample_prob=0.9)),
    "a smaller δ": ("a randomizer with delta", state(delta=1e-6)),
    "clusters kept more often": ("private clusters", more_own),
    "clusters that are said to be public": ("private clusters", as_one_outcome),
    "a pilot with less noise": ("pilot", smaller_pilot),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_folder_that_states_too_little_is_caught(
    forgery: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    kind, change = FORGERIES[forgery]
    forged = tmp_path / "forged"
    shutil.copytree(folders(kind), forged)
    content = json.loads((forged / "manifest.json").read_bytes())
    change(content)
    seal(forged, content)
    found = audit(forged)
    assert not found.holds
    result = run("audit", forged)
    assert result.exit_code == 2
    assert "does not hold" in result.output


def test_a_randomizer_that_keeps_more_is_caught(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    """One integer of one output is a thousandth larger, and another as much smaller."""
    forged = tmp_path / "forged"
    shutil.copytree(folders("public channel"), forged)
    table = pl.read_parquet(forged / "channels.parquet")
    weights = np.array(table["weights"].to_list())
    output = int(np.argmax(weights[:, 0] / weights[:, -1]))
    moved = int(weights[output, 0]) // 1000
    weights[output, 0] += moved
    weights[(output + 1) % len(weights), 0] -= moved
    changed = table.with_columns(pl.Series("weights", weights.tolist(), table.schema["weights"]))
    rewrite(changed, forged / "channels.parquet")
    assert not audit(forged).holds


def test_a_weight_that_counts_more_is_caught(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(folders("public channel"), forged)
    cells = pl.read_parquet(forged / "cells.parquet")
    rewrite(cells.with_columns(pl.col("weight") * 2), forged / "cells.parquet")
    assert not audit(forged).holds


def test_a_prior_below_the_floor_is_no_release(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(folders("Cluster-DP"), forged)
    cells = pl.read_parquet(forged / "cells.parquet")
    prior = pl.Series("prior", [[1 - 2**-30, 2**-30, 0.0, 0.0]] * len(cells))
    rewrite(cells.with_columns(prior), forged / "cells.parquet")
    with pytest.raises(cdp.FormatError, match="below the stated floor"):
        audit(forged)


def test_its_combinations_are_those_of_the_release() -> None:
    """Two readers of one declaration, written apart."""
    declared = declare(
        {"visit": "no,yes", "day 7": "0..2", "spend": cdp.Number(0, 40), "score": "1,2.5"},
        constraints=['"day 7">=2 -> visit', "spend>0 -> visit", "score_observed -> visit"],
        metrics=["visit*spend", 'spend*("day 7"!=1)', "score>1", "visit*score_observed"],
        missing=["score", "spend"],
    )
    number = declared.numbers["spend"]
    points = (0, 1, number.n_steps // 2, number.n_steps)
    ours = Categories(declared=declared, grids=(Grid(number=number, points=points),))
    record = ours.record()
    theirs = Combinations(
        {
            "outcomes": [
                {"name": one.name, "space": one.space, "may_be_missing": one.may_be_missing}
                for one in record.declared.outcomes
            ],
            "constraints": record.declared.constraints,
            "metrics": record.declared.metrics,
        },
        record.grids,
    )
    assert len(theirs.every) == ours.n_categories
    assert np.array_equal(np.array(theirs.values, dtype=float), ours.metric_values())


def test_the_screen_has_the_answer_first_and_fits(
    folders: Callable[[str], Path],
) -> None:
    result = run("audit", folders("two questions"), width=80)
    assert result.exit_code == 0
    first, *rest = result.output.splitlines()
    assert first.startswith("ε = 2 holds")
    assert any("visit=0, sale=0" in line for line in rest)
    assert max(map(len, result.output.splitlines())) <= 80
    found = audit(folders("two questions"))
    assert repr(found).splitlines() == result.output.splitlines()[: len(repr(found).splitlines())]
    assert "<table" in found._repr_html_()
    shown = json.loads(run("audit", folders("two questions"), "--json").output)
    assert shown["holds"]
    assert shown["enumerated_epsilon"] == pytest.approx(2, abs=1e-3)


@pytest.mark.parametrize("content", ["{}", "[]", "not JSON", '{"questions": [{}], "labels": 1}'])
def test_what_is_no_release_is_said_to_be_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    result = run("audit", tmp_path)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
