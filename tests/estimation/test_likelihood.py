"""Shares by maximum likelihood: the optimum, limits, and where estimates use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from bench.likelihood_shares import funnel_cases, measure, page, single_cases
from scipy import optimize, stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.means.likelihood import (
    KnownShares,
    ShareLikelihood,
    UnbiasedShares,
    most_likely,
)
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray

N_CATEGORIES = 6
TAILS = np.arange(N_CATEGORIES) >= np.arange(1, N_CATEGORIES)[:, np.newaxis]


def a_channel(rng: np.random.Generator, n_outputs: int = 9) -> FloatArray:
    """Outputs whose probabilities differ by a factor of at most about e²."""
    raw = np.exp(rng.uniform(-1, 1, (n_outputs, N_CATEGORIES)))
    return np.asarray(raw / raw.sum(axis=0))


def skewed(rng: np.random.Generator) -> FloatArray:
    """Few units are above the lowest level."""
    return np.asarray(rng.dirichlet([8, 1, 0.5, 0.2, 0.2, 0.2]))


def inverse(channel: FloatArray, inside: BoolArray) -> FloatArray:
    """What outputs count as in shares: unbiased."""
    return np.asarray(inside @ np.linalg.pinv(channel))


def likelihood(counts: FloatArray, channel: FloatArray) -> ShareLikelihood:
    """That of rows alone."""
    read = inverse(channel, TAILS)
    observed = counts / counts.sum()
    variances = (read**2 @ observed - (read @ observed) ** 2) / counts.sum()
    unbiased = UnbiasedShares(read, read @ observed, variances, np.zeros(len(TAILS)))
    return ShareLikelihood(counts, channel, TAILS, unbiased)


@pytest.mark.parametrize("with_sums", [False, True])
@pytest.mark.parametrize("share", [None, 0.02, 0.6])
def test_no_distribution_is_more_likely(
    share: float | None, with_sums: bool, rng: np.random.Generator
) -> None:
    """Against scipy's optimum over the simplex, with and without a share that is given."""
    for n_units in (50, 3000):
        channel, inside = a_channel(rng), rng.permutation(N_CATEGORIES) < 3
        observed = rng.multinomial(n_units, channel @ skewed(rng)) / n_units
        known = KnownShares.none(N_CATEGORIES)
        if with_sums:
            known = KnownShares(TAILS[1:3].astype(float), np.array([0.3, -0.1]), np.array([2, 0.5]))

        def fall(
            probs: FloatArray,
            channel: FloatArray = channel,
            observed: FloatArray = observed,
            known: KnownShares = known,
        ) -> float:
            off = (known.inside @ probs - known.values) ** 2 @ known.precisions
            return float(off / 2 - observed @ np.log(np.maximum(channel @ probs, 1e-12)))

        conditions = [{"type": "eq", "fun": lambda probs: probs.sum() - 1}]
        given: tuple[BoolArray, FloatArray] | tuple[()] = ()
        if share is not None:
            conditions.append({"type": "eq", "fun": lambda p, of=inside: p[of].sum() - share})
            given = (inside[np.newaxis], np.array([share]))
        found = most_likely(observed[np.newaxis], channel, known, *given)
        oracle = optimize.minimize(
            fall,
            found.probs[0],
            bounds=[(0, 1)] * N_CATEGORIES,
            constraints=conditions,
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        start = optimize.minimize(
            fall,
            np.where(inside, (share or 0.5) / 3, (1 - (share or 0.5)) / 3),
            bounds=[(0, 1)] * N_CATEGORIES,
            constraints=conditions,
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        assert found.probs.min() >= 0
        assert found.probs.sum() == pytest.approx(1, abs=1e-9)
        if share is not None:
            assert found.probs[0, inside].sum() == pytest.approx(share, abs=1e-9)
        assert -found.likelihoods[0] == pytest.approx(fall(found.probs[0]), abs=1e-9)
        assert -found.likelihoods[0] <= min(oracle.fun, start.fun) + 1e-7
        assert -found.likelihoods[0] >= min(oracle.fun, start.fun) - 1e-4


def test_many_problems_are_as_each_by_itself(rng: np.random.Generator) -> None:
    channel = a_channel(rng)
    observed = rng.multinomial([10, 100, 100_000], channel @ skewed(rng)) / [[10], [100], [100_000]]
    known = KnownShares.none(N_CATEGORIES)
    together = most_likely(observed, channel, known)
    for place, one in enumerate(observed):
        alone = most_likely(one[np.newaxis], channel, known)
        assert together.likelihoods[place] == pytest.approx(alone.likelihoods[0], abs=1e-8)


def test_few_responses_have_a_most_likely_distribution(rng: np.random.Generator) -> None:
    """Where outputs show categories alike, equations lost rank by rounding, twice in a thousand."""
    for _ in range(1500):
        n_categories = int(rng.integers(2, 16))
        n_outputs = int(rng.integers(2, 2 * n_categories + 2))
        ratio = np.exp(rng.choice([0.3, 1, 2, 4, 6]))
        channel = np.where(rng.random((n_outputs, n_categories)) < 0.5, ratio, 1.0)
        channel *= rng.random((n_outputs, 1))
        channel /= channel.sum(axis=0)
        probs = rng.dirichlet(np.full(n_categories, rng.choice([0.05, 0.3, 1])))
        n_units = int(rng.choice([3, 20, 200, 5000, 200_000]))
        seen = rng.multinomial(n_units, channel @ probs / (channel @ probs).sum()) / n_units
        sums = (rng.random((int(rng.integers(0, 3)), n_categories)) < 0.5).astype(float)
        values = sums @ probs + rng.normal(0, 0.05, len(sums))
        known = KnownShares(sums, values, 10 ** rng.uniform(-3, 5, len(sums)))
        inside = rng.random((5, n_categories)) < 0.5
        inside[:, 0], inside[:, -1] = True, False
        shares = rng.choice([1e-9, 1e-4, 0.01, 0.3, 0.9, 1 - 1e-6], 5)
        free = most_likely(seen[np.newaxis], channel, known)
        held = most_likely(np.tile(seen, (5, 1)), channel, known, inside, shares)
        for found in (free, held):
            np.testing.assert_allclose(found.probs.sum(axis=1), 1, atol=1e-6)
            assert (found.probs >= 0).all()
        assert (held.likelihoods <= free.likelihoods + 1e-6).all()


def test_limits_are_where_the_ratio_says(rng: np.random.Generator) -> None:
    channel = a_channel(rng)
    found = likelihood(rng.multinomial(800, channel @ skewed(rng)).astype(float), channel)
    for end in (0.0, 1.0):
        ends = np.full(len(TAILS), end)
        limits = found.limits(ends, 1.5)
        distances, at_end = found.distances(limits), found.distances(ends)
        # Of 500 random limits the farthest was off by 0.026.
        np.testing.assert_allclose(distances, np.minimum(at_end, 1.5), atol=0.1)
        assert ((limits - found.shares) * (end - found.shares) >= 0).all()
    shares = np.stack([found.limits(np.full(len(TAILS), one), 1.5) for one in (0.0, 1.0)])
    assert (shares[0] <= found.shares + 1e-9).all()
    assert (found.shares <= shares[1] + 1e-9).all()
    assert (np.diff(found.shares) <= 1e-12).all()


def test_published_sums_count_as_in_calibrated_shares(rng: np.random.Generator) -> None:
    """A share that a sum shows exactly has its value; one that it hardly shows, that of rows."""
    channel = a_channel(rng)
    counts = rng.multinomial(2000, channel @ np.full(N_CATEGORIES, 1 / N_CATEGORIES)).astype(float)
    read, observed = inverse(channel, TAILS), counts / counts.sum()
    variances = (read**2 @ observed - (read @ observed) ** 2) / counts.sum()
    means, saved = read @ observed, np.zeros(len(TAILS))
    alone = ShareLikelihood(counts, channel, TAILS, UnbiasedShares(read, means, variances, saved))
    exact, better = means.copy(), variances.copy()
    exact[2], better[2], saved[2] = 0.44, 1e-12, 0.9
    found = ShareLikelihood(counts, channel, TAILS, UnbiasedShares(read, exact, better, saved))
    assert found.shares[2] == pytest.approx(0.44, abs=1e-4)
    better[2] = variances[2] * 0.9999
    hardly = ShareLikelihood(counts, channel, TAILS, UnbiasedShares(read, means, better, saved))
    np.testing.assert_allclose(hardly.shares, alone.shares, atol=1e-3)
    assert found.distances(np.full(len(TAILS), 0.5))[2] > 1e3


def test_intervals_cover_next_to_an_end(rng: np.random.Generator) -> None:
    """With unbiased shares alone 2% of the 1,500 may miss at each side; with the ratio few more."""
    channel, n_runs, missed = a_channel(rng, 12), 300, 0
    truth = np.array([0.97, 0.02, 0.005, 0.003, 0.001, 0.001])
    read = inverse(channel, TAILS)
    for counts in rng.multinomial(1000, channel @ truth, size=n_runs).astype(float):
        observed = counts / counts.sum()
        errors = 1.96 * np.sqrt((read**2 @ observed - (read @ observed) ** 2) / counts.sum())
        low, high = likelihood(counts, channel).intervals(read @ observed, errors, 0.95)
        shares = TAILS @ truth
        missed += int(((shares < low) | (shares > high)).any())
    # Of five shares that go together at least one is missed in at most 5% each.
    assert missed <= stats.binom.isf(ALPHA, n_runs, 0.25)


def funnel(rng: np.random.Generator, n_units: int = 4000) -> pl.DataFrame:
    """Clusters whose shares of arms and whose outcomes differ."""
    market = rng.integers(0, 2, n_units)
    treated = rng.random(n_units) < np.where(market, 0.8, 0.3)
    visit = rng.random(n_units) < np.where(market, 0.7, 0.1)
    spend = np.where(visit, rng.integers(0, 4, n_units), 0)
    return pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": treated.astype(int),
            "market": market,
            "visit": visit.astype(int),
            "spend": spend,
        }
    )


def released(table: pl.DataFrame, **options: object) -> cdp.Release:
    declared = {"visit": "0,1", "spend": "0,1,2,3"}
    return cdp.release(
        table,
        unit="user",
        arm="arm",
        control=0,
        cluster="market",
        outcomes=declared,
        constraint=["spend>0 -> visit"],
        mechanism="optimal",
        **options,  # type: ignore[arg-type]
    )


def test_shares_are_those_of_all_units(rng: np.random.Generator) -> None:
    """40% of units visit. In treatment 54% do, as more of them are where many visit.

    At ε = 6 an arm's share has a standard error of 0.02; five of them are 0.1.
    """
    table = funnel(rng)
    found = cdp.estimate(released(table, epsilon=6), metrics="dist(spend)").distributions
    assert all(one.is_likelihood for one in found)
    truth = np.array([(table["spend"].to_numpy() <= value).mean() for value in range(4)])
    for one in found:
        np.testing.assert_allclose(one.shares, truth, atol=0.08)
        assert (one.low <= one.shares).all()
        assert (one.shares <= one.high).all()
        assert (np.diff(one.shares) >= 0).all()
        assert 0 <= one.low.min() <= one.high.max() <= 1


def test_an_estimate_says_which_shares_are_most_likely(rng: np.random.Generator) -> None:
    release = released(funnel(rng, 600), epsilon=2)
    estimate = cdp.estimate(release, metrics=["dist(spend)", "median(spend)"], by="market")
    rows = estimate.to_dict()["distributions"]
    assert {row["method"] for row in rows} == {"maximum likelihood"}
    assert "arm = 1, ML" in str(estimate)
    assert any("by maximum likelihood (ML): more precise here" in note for note in estimate.notes)
    assert "arm = 1, ML" in estimate.to_html()
    assert max(map(len, str(estimate).splitlines())) <= 80
    low, high = estimate["median(spend)", "overall"].ci(0.95)
    assert -3 <= low <= estimate["median(spend)", "overall"].effect <= high <= 3


def test_one_outcome_by_randomized_response_has_monotone_shares(rng: np.random.Generator) -> None:
    """There the likelihood is no more precise, and next to an end less."""
    table = funnel(rng, 800)
    release = cdp.release(
        table,
        unit="user",
        arm="arm",
        control=0,
        outcomes={"spend": "0,1,2,3"},
        mechanism="uniform-prior-dp",
        epsilon=1,
    )
    estimate = cdp.estimate(release, metrics="dist(spend)")
    rows = estimate.to_dict()["distributions"]
    assert {row["method"] for row in rows} == {"unbiased, made monotone"}
    assert not any("likelihood" in note for note in estimate.notes)


def test_a_channel_for_another_outcome_gains_by_the_likelihood(rng: np.random.Generator) -> None:
    """Units are nearly all at zero, where the channel was designed for all levels alike."""
    space = Categories(declared=declare({"y": list(range(N_CATEGORIES))}))
    mechanism = cdp.optimal(epsilon=2)
    channel = mechanism.settled_rows(space).public_channel(space).transition()[0]
    truth = np.array([0.98, 0.01, 0.004, 0.003, 0.002, 0.001])
    gains = {}
    for name, probs in (("zero", truth), ("uniform", np.full(N_CATEGORIES, 1 / N_CATEGORIES))):
        counts = rng.multinomial(100_000, channel @ probs).astype(float)
        observed = counts / counts.sum()
        weights = 1 / (channel @ np.full(N_CATEGORIES, 1 / N_CATEGORIES))
        read = np.asarray(
            TAILS @ np.linalg.solve(channel.T * weights @ channel, channel.T * weights), np.float64
        )
        variances = (read**2 @ observed - (read @ observed) ** 2) / counts.sum()
        unbiased = UnbiasedShares(read, read @ observed, variances, np.zeros(len(TAILS)))
        gains[name] = ShareLikelihood(counts, channel, TAILS, unbiased).gain
    assert gains["uniform"] == pytest.approx(1, abs=0.02)
    assert gains["zero"] > 1.4


def test_the_study_is_of_what_estimates_show(rng: np.random.Generator) -> None:
    """A few tables of two cases. Errors of unbiased shares are several times as large."""
    response = next(one for one in single_cases() if one.design == "randomized response")
    lines = [measure(case, 20, rng) for case in (response, funnel_cases()[0])]
    assert [one.used for one in lines] == [0, 1]
    assert lines[1].gain > 1.5
    assert "| 15% visit |" in page(lines)
