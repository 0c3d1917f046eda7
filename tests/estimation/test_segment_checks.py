"""Segments that may not be: made after treatment, or of released outcomes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.channels.resampling import ResamplingChannel
from clusterdp.estimation.metrics.sample_ratio import segment_p_value, segment_ratio_notes
from clusterdp.estimation.reading._leaks import ColumnCounts, leak_surprises

PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"clicks": "0..3"},
}
WHOLE = np.array([[30, 20], [8, 12], [25, 25]])


def people(rng: np.random.Generator, n_users: int = 3000) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "user": np.arange(n_users),
            "treated": rng.permutation(n_users) % 2,
            "market": rng.integers(0, 5, n_users),
            "clicks": rng.binomial(3, 0.4, n_users),
        }
    )


def test_sample_ratios_of_segments_are_exact(rng: np.random.Generator) -> None:
    """Against the whole distribution, added up cluster by cluster; near its middle none is told."""
    for _ in range(200):
        drawn = rng.integers(0, WHOLE.sum(axis=1) + 1)
        law = np.ones(1)
        for n_all, n_arm, n_drawn in zip(WHOLE.sum(axis=1), WHOLE[:, 1], drawn, strict=True):
            law = np.convolve(law, stats.hypergeom(n_all, n_arm, n_drawn).pmf(np.arange(n_all + 1)))
        treated = np.array(
            [
                rng.integers(max(0, d - w[0]), min(d, w[1]) + 1)
                for d, w in zip(drawn, WHOLE, strict=True)
            ]
        )
        found = treated.sum()
        exact = min(2 * min(law[: found + 1].sum(), law[found:].sum()), 1.0)
        told = segment_p_value(np.stack([drawn - treated, treated], axis=1), WHOLE)
        assert told == pytest.approx(max(exact, 2e-12), rel=1e-6, abs=1e-14) or (
            told == 1.0 and exact > 2e-4
        )


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.1, 0.3, 0.6]], ids=str)
def test_sound_segments_raise_no_alarm(shares: list[float], rng: np.random.Generator) -> None:
    """0.1% of estimates may; clusters have different sizes, some of one unit."""
    n_tables, n_segments, alarms = 500, 20, 0
    for _ in range(n_tables):
        n_units = 600
        arms = rng.choice(len(shares), n_units, p=shares)
        cells = rng.geometric(0.1, n_units) * len(shares) + arms
        segment = rng.integers(0, n_segments, n_units)
        n_cells = cells.max() + len(shares)
        n_cells -= n_cells % len(shares)
        counts = np.bincount(segment * n_cells + cells, minlength=n_segments * n_cells)
        sizes = counts.reshape(n_segments, -1, len(shares))
        named = [(str(place), one) for place, one in enumerate(sizes)]
        alarms += bool(segment_ratio_notes(named, sizes.sum(axis=0)))
    assert alarms <= stats.binom(n_tables, 1e-3).isf(ALPHA)


def test_a_segment_made_after_treatment_is_found(rng: np.random.Generator) -> None:
    """The treatment makes people active. Units that a table lacks can be such a segment, too."""
    table = people(rng)
    release = cdp.release(table, mechanism=cdp.optimal(epsilon=2), **PARTS)
    active = rng.random(len(table)) < 0.3 + 0.2 * table["treated"].to_numpy()
    made = table.select("user", active=pl.Series(active))
    found = cdp.estimate(release, segments=made, by="active")
    assert any(one.startswith("SRM in 2 segments") for one in found.warnings)
    assert "warning: SRM in 2 segments: active=" in str(found)
    lacking = cdp.estimate(release, segments=made.filter("active"), by="active")
    assert any("no active (p < 0.0001)" in one for one in lacking.warnings)
    visits = made.select("user", visits=pl.when("active").then(1.5))
    adjusted = cdp.estimate(release, segments=visits, adjust="visits")
    assert any(
        "who lacks visits differs between arms (p < 0.0001)" in one for one in adjusted.warnings
    )


MADE = {
    "the response": pl.col("response"),
    "its parity": pl.col("response") % 2,
    "a threshold": pl.col("clicks_debiased") > pl.col("clicks_debiased").mean(),
}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(
    "mechanism",
    [cdp.optimal(epsilon=2), cdp.cluster_dp(noise_scale=5, prior_floor=0.05, epsilon=2)],
    ids=lambda mechanism: mechanism.name,
)
def test_segments_made_of_released_outcomes_are_refused(
    mechanism: cdp.Mechanism, made: str, rng: np.random.Generator
) -> None:
    table = people(rng)
    release = cdp.release(table, mechanism=mechanism, **PARTS)
    theirs = release.units.select("user", mine=MADE[made])
    with pytest.raises(cdp.DataError, match="Column 'mine' appears to be derived"):
        cdp.estimate(release, segments=theirs, by="mine")
    both = theirs.with_columns(tier=pl.col("user") % 3)
    with pytest.raises(cdp.DataError, match="'mine'"):  # beside others, and crossed
        cdp.estimate(release, segments=both, by=["tier", "tier,mine"])
    with pytest.raises(cdp.DataError, match="'mine'"):
        cdp.estimate(release, segments=theirs, adjust="mine")


def test_true_outcomes_are_no_released_ones(rng: np.random.Generator) -> None:
    """A column that tells as much as outcomes themselves do. False alarms: ALPHA."""
    table = people(rng)
    for epsilon in (0.5, 4):
        release = cdp.release(table, mechanism=cdp.optimal(epsilon=epsilon), **PARTS)
        cdp.estimate(release, segments=table.select("user", known="clicks"), by="known")


@pytest.mark.parametrize("truth", [0, 1])
def test_surprises_are_bounds_of_probabilities(truth: int) -> None:
    """Every count of 80 units that all have one outcome: none is told to be rarer than it is."""
    release = cdp.release(
        pl.DataFrame({"user": range(8), "treated": [0, 1] * 4, "market": 0, "clicks": [0, 1] * 4}),
        mechanism=cdp.optimal(epsilon=1),
        **{**PARTS, "outcomes": {"clicks": "0,1"}},
    )
    channel = release.questions[0].channel
    assert isinstance(channel, OptimalChannel | ResamplingChannel)
    n_rows, prob = 80, channel.transition()[0, 1, truth]
    told = []
    for count in range(n_rows + 1):
        column = ColumnCounts(
            name="mine",
            values=np.array([0, 0, 1, 1]),
            groups=np.zeros(4, np.int64),
            responses=np.array([0, 1, 0, 1]),
            counts=np.array([n_rows - count, count, 5000, 5000]),
        )
        told.append(leak_surprises(column, channel, 1)[0])
    probs = stats.binom(n_rows, prob).pmf(np.arange(n_rows + 1))
    for surprise in (1.0, 5.0, 10.0, 14.0):
        assert probs[np.array(told) > surprise].sum() <= math.exp(-surprise)
    assert max(told) > 14
