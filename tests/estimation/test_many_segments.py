"""Shrunken effects of many segments: errors, coverage, ranks, and what people read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

import clusterdp as cdp
from clusterdp.estimation.effects.shrinkage import (
    MANY_SEGMENTS,
    _most_missed,
    possible_ranks,
    shrink,
)

if TYPE_CHECKING:
    from collections.abc import Callable

N_SEGMENTS, N_RUNS = 60, 40
SHAPES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "normal": lambda rng: rng.standard_normal(N_SEGMENTS),
    "two values": lambda rng: rng.choice([-1.0, 1.0], N_SEGMENTS),
    "few": lambda rng: rng.choice([-1.0, 1.0], N_SEGMENTS) * (rng.random(N_SEGMENTS) < 0.1) / 0.32,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spread", [0.5, 1.5])
def test_intervals_cover_on_average_and_errors_shrink(
    shape: str, spread: float, rng: np.random.Generator
) -> None:
    """Errors go together. A run has a share covered of SD 0.04, so 0.93 is four SDs below 0.955."""
    covered, shrunken, plain = [], [], []
    for _ in range(N_RUNS):
        errors = np.exp(rng.uniform(-0.4, 0.4, N_SEGMENTS))
        covariances = np.diag(errors**2) + 0.05
        truth = 3 + spread * SHAPES[shape](rng)
        found = truth + np.linalg.cholesky(covariances) @ rng.standard_normal(N_SEGMENTS)
        effects, reaches = shrink(found, covariances, np.full(N_SEGMENTS, np.inf), 0.95)
        covered.append((np.abs(effects - truth) <= reaches).mean())
        shrunken.append(((effects - truth) ** 2).mean())
        plain.append(((found - truth) ** 2).mean())
    assert np.mean(covered) > 0.93
    assert np.mean(shrunken) < {0.5: 0.45, 1.5: 0.9}[spread] * np.mean(plain)


@pytest.mark.parametrize("square", [0.2, 1.0, 9.0])
@pytest.mark.parametrize("kurtosis", [1.5, 4.0, 1e9])
@pytest.mark.parametrize("reach", [2.2, 4.0])
def test_no_bias_misses_more_often(square: float, kurtosis: float, reach: float) -> None:
    """Of all biases with two values, on a fine grid: none is worse, and one is nearly as bad."""
    share, smaller = np.geomspace(1e-4, 1, 400)[:, np.newaxis], np.linspace(0, square, 200)
    larger = (square - (1 - share) * smaller) / share
    possible = (1 - share) * smaller**2 + share * larger**2 <= kurtosis * square**2
    missed = (1 - share) * missing(smaller, reach) + share * missing(larger, reach)
    worst, most = missed[possible].max(), _most_missed(square, kurtosis, reach)
    assert 0.9 * most < worst < most + 0.002


def missing(squares: np.ndarray, reach: float) -> np.ndarray:
    """How often an interval misses, by the square of its bias."""
    biases = np.sqrt(squares)
    return np.asarray(norm.sf(reach - biases) + norm.cdf(-reach - biases))


def test_without_bias_it_is_normal() -> None:
    assert _most_missed(1e-9, 3.0, 1.96) == pytest.approx(0.05, abs=2e-3)


def test_ranks_are_places_that_are_possible() -> None:
    limits = np.array([[0.0, 1.0], [2.0, 3.0], [0.5, 2.5], [4.0, 5.0]])
    assert possible_ranks(limits).tolist() == [[3, 4], [2, 3], [2, 4], [1, 1]]


@pytest.fixture
def table(rng: np.random.Generator) -> pl.DataFrame:
    n_units = 40_000
    region, arm = rng.integers(0, MANY_SEGMENTS, n_units), rng.integers(0, 2, n_units)
    rate = 0.3 + 0.3 * arm * (region < 2)
    return pl.DataFrame(
        {
            "user": np.arange(n_units),
            "treated": arm,
            "visit": (rng.random(n_units) < rate).astype(int),
            "noise": (rng.random(n_units) < 0.5).astype(int),
            "region": region,
        }
    )


def estimate(table: pl.DataFrame, outcome: str) -> cdp.Estimate:
    release = cdp.release(
        table,
        unit="user",
        arm="treated",
        control=0,
        outcomes={outcome: "0,1"},
        epsilon=4,
        passthrough=["region"],
    )
    return cdp.estimate(release, by="region")


def test_what_stands_out_is_named(table: pl.DataFrame) -> None:
    """Two regions have an effect that is 20 standard errors above the others'."""
    found = estimate(table, "visit")
    text = str(found)
    assert "Above the rest: 0 and 1." in text.replace("1 and 0", "0 and 1")
    effects = {one.of.label: one for one in found.effects}
    assert effects["overall"].shrunken is None
    for region in (0, 1):
        shrunken = effects[f"region={region}"].shrunken
        assert shrunken is not None
        assert shrunken.ranks == (1, 2)
        assert shrunken.rest_p_value < 1e-6
    lines = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert set(lines[2:4]) == {"0", "1"}  # the largest first
    assert "shrunken_effect" in found.to_polars().columns
    assert "plain CI is a gray bar" in found.to_html()


def test_noise_is_said_in_one_sentence(table: pl.DataFrame) -> None:
    """One run in twenty finds a difference by chance; all three do once in 8,000 runs."""
    thirds = [table.filter(pl.col("user") % 3 == part) for part in range(3)]
    found = [estimate(third, "noise") for third in thirds]
    quiet = [one for one in found if one.tests[0].p_value >= 0.05]
    assert quiet
    for one in quiet:
        text = " ".join(str(one).split())
        assert "do not differ beyond chance" in text
        assert "shrunken" not in text


def test_few_segments_are_not_shrunken(table: pl.DataFrame) -> None:
    found = estimate(table.filter(pl.col("region") < MANY_SEGMENTS - 1), "visit")
    assert all(one.shrunken is None for one in found.effects)
    assert found.tests == ()
