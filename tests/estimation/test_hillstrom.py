"""A table of the shape of the MineThatData e-mail experiment: three arms, visits, 57 clusters.

At ε = 1, 2, 4 the intervals hold the effect that the true outcomes give. What separates the two is
privacy noise alone, so the tolerance is that of privacy, at the suite's false-alarm rate. Totals
have Laplace noise, whose tails are longer than a normal number's of the same variance.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW
from typer.testing import CliRunner

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.cli.app import app

ARMS = ["Mens E-Mail", "No E-Mail", "Womens E-Mail"]
CLUSTER = ["history_segment", "zip_code", "channel"]
ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "data" / "hillstrom.csv"


def simulated(rng: np.random.Generator) -> pl.DataFrame:
    n_customers = 20_000
    customers = pl.DataFrame(
        {
            "history_segment": rng.choice(
                7, n_customers, p=[0.36, 0.22, 0.19, 0.1, 0.07, 0.03, 0.03]
            ),
            "zip_code": rng.choice(["Rural", "Surburban", "Urban"], n_customers),
            "channel": rng.choice(
                ["Phone", "Web", "Multichannel"], n_customers, p=[0.44, 0.44, 0.12]
            ),
        }
    )
    # Arms in turn within each cluster, so that none is without units by chance.
    arm = customers.select(pl.int_range(pl.len()).over(CLUSTER) % 3).to_series().to_numpy()
    return customers.with_columns(
        segment=pl.Series(np.array(ARMS)[arm]),
        visit=pl.Series(rng.random(n_customers) < np.array([0.18, 0.1, 0.15])[arm]),
    )


def customers(name: str, rng: np.random.Generator) -> pl.DataFrame:
    if name == "simulated":
        table = simulated(rng)
    elif REAL.exists():
        table = pl.read_csv(REAL, infer_schema_length=None).select(*CLUSTER, "segment", "visit")
    else:
        pytest.skip("the data set is not on this machine")
    return table.with_columns(pl.int_range(pl.len()).alias("customer"), pl.col("visit").cast(int))


@pytest.mark.parametrize("name", ["simulated", "real"])
@pytest.mark.parametrize("epsilon", [1, 2, 4])
def test_intervals_hold_the_effect_without_privacy(
    name: str, epsilon: float, rng: np.random.Generator, tmp_path: Path
) -> None:
    table = customers(name, rng)
    table.write_parquet(tmp_path / "t.parquet")
    options = ["--unit", "customer", "--arm", "segment", "--cluster", ",".join(CLUSTER)]
    options += ["--outcome", "visit=0,1", "--control", "No E-Mail"]
    options += ["--epsilon", str(epsilon), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["release", str(tmp_path / "t.parquet"), *options])
    assert done.exit_code == 0, done.output
    private = cdp.estimate(cdp.read_release(tmp_path / "out"))
    true = cdp.estimate_without_privacy(
        table.with_columns(cluster=pl.concat_str(CLUSTER, separator=" | ")),
        outcomes={"visit": cdp.OutcomeSpace.binary()},
        unit="customer",
        arm="segment",
        cluster="cluster",
        control="No E-Mail",
    )
    for arm in ("Mens E-Mail", "Womens E-Mail"):
        gap = private[arm].effect - true[arm].effect
        privacy_error = np.sqrt(private[arm].privacy_variance)
        assert abs(gap) < stats.laplace.isf(ALPHA / 2, scale=privacy_error / np.sqrt(2))
        assert private[arm].std_error > true[arm].std_error


def with_everything(rng: np.random.Generator) -> pl.DataFrame:
    """A table with all columns that the example reads."""
    table = simulated(rng)
    conversion = pl.col("visit") & pl.Series(rng.random(len(table)) < 0.3)
    return table.with_columns(
        *(pl.Series(name, rng.integers(0, 2, len(table))) for name in ("newbie", "womens")),
        conversion=conversion.cast(int),
        spend=conversion.cast(float)
        * pl.Series(rng.gamma(2, 40, len(table)).round(2).clip(0, 500)),
        visit=pl.col("visit").cast(int),
    )


@pytest.mark.slow
def test_the_example_shows_every_effect_beside_the_true_one(
    rng: np.random.Generator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command of the README, on a table of its shape; true effects are those of statsmodels."""
    table = with_everything(rng)
    table.write_csv(tmp_path / "t.csv")
    monkeypatch.setattr("sys.argv", ["hillstrom.py", str(tmp_path / "t.csv")])
    names = runpy.run_path(str(ROOT / "examples" / "hillstrom.py"))
    names["main"]()
    lines = [line for line in capsys.readouterr().out.splitlines() if "E-Mail" in line]
    assert len(lines) == 2 * (4 + 4)
    assert [line.split()[0] for line in lines[:8:2]] == list(names["METRICS"])
    arms = [table.filter(segment=arm)["spend"].to_numpy() for arm in ("Mens E-Mail", "No E-Mail")]
    compared = CompareMeans(*map(DescrStatsW, arms))
    difference, error = names["true_effect"](table, "spend", "Mens E-Mail")
    assert difference == pytest.approx(arms[0].mean() - arms[1].mean())
    assert error == pytest.approx(compared.std_meandiff_separatevar)
    both = [table.filter(segment=arm).select("spend", "visit").sum().row(0) for arm in ARMS[:2]]
    ratio, _ = names["true_effect"](table, "spend/visit", "Mens E-Mail")
    assert ratio == pytest.approx(both[0][0] / both[0][1] - both[1][0] / both[1][1])
