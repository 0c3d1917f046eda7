"""Units that the next experiment needs: by a formula, by simulation, and where they are shown."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from cli_runs import run
from clusterdp.cells.layout import Layout
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.studies.simulation import simulate_estimates

pytestmark = pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")

N_UNITS, RATE, N_DRAWS = 8000, 0.3, 2000
# 80% power of a two-sided 5% test.
REACH = stats.norm.isf(0.025) + stats.norm.isf(0.2)


def draw(rng: np.random.Generator, n_units: int = N_UNITS) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": np.arange(n_units) % 2,
            "visit": (rng.random(n_units) < RATE).astype(int),
            "spend": rng.integers(0, 5, n_units),
        }
    )


def released(table: pl.DataFrame, **given: Any) -> cdp.Release:
    options: dict[str, Any] = {"outcomes": {"visit": "0,1"}, "folds": 1, **given}
    return cdp.release(table, unit="user", arm="arm", control=0, **options)


def test_rows_alone_are_as_by_a_formula(rng: np.random.Generator) -> None:
    """The variance of a difference of means of n/2 units: 4(σ² + e^ε/(e^ε − 1)²)/n."""
    release = released(draw(rng), mechanism=cdp.optimal(epsilon=1))
    (found,) = cdp.power(release, effect={"visit": 0.02}, epsilon=[1, 3]).metrics
    spread = cdp.estimate(release)["visit"].sampling_variance * N_UNITS
    for one in found.needed:
        noise = (
            0.0 if math.isinf(one.epsilon) else math.exp(one.epsilon) / math.expm1(one.epsilon) ** 2
        )
        whole = spread + 4 * noise
        assert one.n_units == pytest.approx(REACH**2 * whole / 0.02**2, rel=0.01)
        assert one.detectable == pytest.approx(REACH * math.sqrt(whole / N_UNITS), rel=0.01)
    assert [one.epsilon for one in found.needed] == [math.inf, 1, 3]


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_experiments_of_so_many_units_find_the_effect(
    epsilon: float, rng: np.random.Generator
) -> None:
    """In 80% of them, at another ε than that of the folder; totals take a part of both."""
    effect, sums = 0.03, cdp.SumShares(totals=0.1, noise_in_rows=64)
    release = released(draw(rng), mechanism=cdp.optimal(epsilon=1, sums=sums))
    (found,) = cdp.power(release, effect={"visit": effect}, epsilon=epsilon).metrics
    needed = next(one for one in found.needed if one.epsilon == epsilon)
    sizes = np.full((1, 2), round(needed.n_units / 2))
    layout = Layout(clusters=("everyone",), arms=(0, 1), control=0, sizes=sizes)
    ones = rng.binomial(sizes, [RATE, RATE + effect], (N_DRAWS, 1, 2))
    arrays = simulate_estimates(
        np.stack([sizes - ones, ones], axis=-1),
        layout,
        OutcomeSpace.integers(0, 1),
        cdp.optimal(epsilon=epsilon, sums=sums),
        rng,
        "stratified",
        "everything",
    )
    seen = np.abs(arrays.effects[:, 0]) > stats.norm.isf(0.025) * np.sqrt(arrays.variances[:, 0])
    low, high = stats.binom.ppf([ALPHA, 1 - ALPHA], N_DRAWS, [0.78, 0.82]) / N_DRAWS
    assert low < seen.mean() < high


def test_questions_share_units(rng: np.random.Generator) -> None:
    """Of two questions, each is asked of a part: rows alone need more units."""
    table, both = draw(rng), {"visit": "0,1", "spend": "0..4"}
    mechanism: Any = cdp.optimal(epsilon=1)
    alone = cdp.power(released(table, mechanism=mechanism), effect="visit=0.05")
    options: dict[str, Any] = {"outcomes": both, "mechanism": "optimal", "epsilon": 1}
    options |= {"question": ["visit", "spend"], "totals_share": 0, "sums_share": 0}
    shared = cdp.power(released(table, **options), effect=["spend=0.2", "visit=0.05"])
    assert [one.metric.name for one in shared.metrics] == ["spend", "visit"]
    one, other = (
        next(each.n_units for each in found.needed if each.epsilon == 1)
        for found in (alone.metrics[0], shared.metrics[1])
    )
    assert other > 1.2 * one


def test_on_screens_and_pages(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path("power.html")
    found = run("power", published.name, "--effect", "clicks=0.1", "--html", page, width=80)
    assert "To detect a change in clicks of 0.10" in " ".join(found.stdout.split())
    assert "no privacy" in found.stdout
    assert "Next:" in found.output
    assert all(len(line) <= 80 for line in found.output.splitlines())
    assert "To detect a change" in page.read_text(encoding="utf-8")
    (metric,) = json.loads(
        run("power", published, "--effect", "clicks=0.1", "--epsilon", "1", "--json").stdout
    )["metrics"]
    assert [one["epsilon"] for one in metric["needed"]] == [None, 1.0, 2.0]
    needed = [one["n_units"] for one in metric["needed"]]
    assert needed[0] < needed[2] < needed[1]


@pytest.mark.parametrize(
    ("effect", "message"),
    [
        ("click=0.1", "no metric 'click'. Did you mean 'clicks'"),
        ("clicks", "METRIC=NUMBER"),
        ("clicks=0", "METRIC=NUMBER"),
        ({"clicks": 7}, "No effect on 'clicks' can be as large"),
    ],
)
def test_what_is_refused(published: Path, effect: Any, message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        cdp.power(published, effect=effect)
