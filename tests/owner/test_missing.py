"""Missing outcomes from a table to a folder and back: options, formats, refusals, what is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.published.verification import verify_folder
from clusterdp.spec.experiment import ExperimentFile
from clusterdp.spec.parse import parse_options
from drafts import draft_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

N_UNITS = 2000
PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "cluster": "market",
    "control": "A",
    "outcomes": {"visit": "0,1", "spend": "number:0..40"},
}
# A tenth of the rows are NaN and a fifth are null; few are released as others at ε = 20.
CLOSE = 0.02
MECHANISM = cdp.optimal(epsilon=2, sums=cdp.SumShares(totals=0.1))


@pytest.fixture
def shop(rng: np.random.Generator) -> pl.DataFrame:
    """A visit of everyone, and spend of 80%, 10% of which is NaN instead of null."""
    spend = pl.Series("spend", rng.exponential(8, N_UNITS).round(2))
    lot = pl.Series("lot", rng.random(N_UNITS))
    table = pl.DataFrame(
        {
            "user": np.arange(N_UNITS),
            "arm": rng.permutation(np.repeat(["A", "B"], N_UNITS // 2)),
            "market": np.arange(N_UNITS) % 3,
            "visit": rng.integers(0, 2, N_UNITS),
        }
    )
    return table.with_columns(
        spend=pl.when(lot < 0.2).then(None).when(lot < 0.3).then(float("nan")).otherwise(spend)
    )


WAYS: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "null": lambda table: table.with_columns(pl.col("spend").fill_nan(None)),
    "NaN": lambda table: table.with_columns(pl.col("spend").fill_null(float("nan"))),
    "both": lambda table: table,
}
WRITERS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "parquet": lambda table, path: table.write_parquet(path),
    "arrow": lambda table, path: table.write_ipc(path),
    "csv": lambda table, path: table.write_csv(path),
}


def share_observed(table: pl.DataFrame) -> float:
    """The share of rows with spend."""
    return 1 - table["spend"].fill_nan(None).null_count() / len(table)


def test_null_and_nan_are_alike_in_every_format(shop: pl.DataFrame, tmp_path: Path) -> None:
    """Counted next to exactly: with so large a budget rows stay as they are."""
    parts = {**PARTS, "mechanism": cdp.optimal(epsilon=20), "missing": ["spend"]}
    truth = share_observed(shop)
    for (way, change), (ending, write) in [
        (one, other) for one in WAYS.items() for other in WRITERS.items()
    ]:
        path = tmp_path / f"{way}.{ending}"
        write(change(shop), path)
        out = tmp_path / f"{way}-{ending}"
        cdp.publish(path, out=out, **parts)
        rows = pl.read_parquet(out / "units.parquet")
        assert rows["spend_observed_debiased"].mean() == pytest.approx(truth, abs=CLOSE), (
            way,
            ending,
        )
    frame = change(shop).to_pandas()
    rows = pl.from_pandas(cdp.release(frame, **parts).units)
    assert rows["spend_observed_debiased"].mean() == pytest.approx(truth, abs=CLOSE)


def test_without_the_option_a_table_is_refused_with_it_as_remedy(shop: pl.DataFrame) -> None:
    with pytest.raises(
        cdp.DataError, match=r"missing values.*\(missing=\[\.\.\.\], --missing NAME\)"
    ):
        cdp.release(shop, mechanism=MECHANISM, **PARTS)
    partly = pl.when(pl.col("user") > 0).then(pl.col("visit"))
    with pytest.raises(cdp.DataError, match="missing values"):
        cdp.release(shop.with_columns(visit=partly), mechanism=MECHANISM, missing="spend", **PARTS)


def test_a_folder_tells_that_outcomes_may_be_missing(shop: pl.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cdp.publish(shop, out=out, mechanism=MECHANISM, missing=["spend"], **PARTS)
    assert all(check.problem is None for check in verify_folder(out))
    readme = " ".join((out / "README.md").read_text().split())
    assert "Values outside are clipped" in readme
    assert "It may be missing; whether it is missing is protected." in readme
    assert "`spend_times_observed_debiased`" in readme
    assert "spend: number:0..40, or missing" in run("inspect", out, "-v").output
    release = cdp.read_release(out)
    assert "number:0..40, or missing" in repr(release)
    estimate = cdp.estimate(release)
    assert estimate.metrics == ("visit", "spend", "spend_observed")
    assert "spend: mean over units with an observed outcome." in estimate.notes
    assert estimate.to_dict()["lee_bounds"][0]["metric"] == "spend"
    rows = pl.read_parquet(out / "units.parquet")
    names = ["visit_debiased", "spend_times_observed_debiased", "spend_observed_debiased"]
    assert rows.columns[-3:] == names


def test_options_are_the_same_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('[outcomes]\nspend = { type = "count", max = 5, missing = true }\n')
    by_file = ExperimentFile.read(path).options
    assert by_file == parse_options({"outcomes": {"spend": "0..5"}, "missing": "spend"})
    assert "--missing" in run("release", "--help-all").output


def test_what_is_refused(shop: pl.DataFrame) -> None:
    with pytest.raises(cdp.ParameterError, match="missing names 'spent'"):
        cdp.release(shop, missing="spent", epsilon=2, **PARTS)
    with pytest.raises(cdp.ParameterError, match="choose a mechanism that releases rows"):
        cdp.release(shop, missing="spend", mechanism="noisy-histogram", epsilon=2, **PARTS)
    with pytest.raises(cdp.ParameterError, match="one outcome that may be missing"):
        cdp.release(shop, missing=["visit", "spend"], metric="visit*spend", epsilon=2, **PARTS)


@pytest.mark.parametrize(
    ("baseline", "share"),
    [
        ({"spend": "mean:8,std:7"}, 0.9),
        ({"visit": "0.3"}, 0.9),
        ({"spend": "mean:8,std:7", "spend_observed": "0.6"}, 0.6),
    ],
    ids=str,
)
def test_most_are_taken_to_be_observed_and_that_is_said(
    baseline: dict[str, str], share: float
) -> None:
    chosen = draft_of({**PARTS, "missing": "spend", "baseline": baseline})
    _, question = chosen.questions
    observed = float(question.categories.metric_values()[1] @ question.probs)
    assert observed == pytest.approx(share, abs=0.01)
    said = "No baseline says how often spend is observed, so 90% is assumed."
    assert any(said in note for note in chosen.notes) == ("spend_observed" not in baseline)
