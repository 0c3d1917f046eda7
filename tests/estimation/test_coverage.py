"""Nominal 95% intervals cover the true effect as often as they should.

False alarms: a mechanism whose true coverage is 95% falls below 93.5% in 8,000 replicates with
probability below 1e-8; the study has fifteen such comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from coverage_rates import HIGHEST, LOWEST, coverage
from populations import (
    experiment_one,
    from_units,
    many_small_clusters,
    rare_binary,
    three_arms,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.studies.simulation import Population

POPULATIONS = [experiment_one, many_small_clusters, rare_binary, three_arms]


def cluster(space: CategorySpace) -> Mechanism:
    return cdp.cluster_dp(noise_scale=10, prior_floor=0.24 / space.n_categories, resample_prob=0.8)


def cluster_free(space: CategorySpace) -> Mechanism:
    return cdp.cluster_free_dp(noise_scale=10, prior_floor=0.24 / space.n_categories, epsilon=1.5)


def uniform(space: CategorySpace) -> Mechanism:
    return cdp.uniform_prior_dp(epsilon=3)


@pytest.mark.slow
@pytest.mark.parametrize("build", POPULATIONS, ids=lambda build: build.__name__)
@pytest.mark.parametrize("mechanism", [cluster, cluster_free, uniform], ids=lambda f: f.__name__)
def test_intervals_cover(
    build: Callable[[np.random.Generator], Population],
    mechanism: Callable[[CategorySpace], Mechanism],
    rng: np.random.Generator,
) -> None:
    population = build(rng)
    rates = coverage(population, mechanism(population.space), rng)
    assert (rates >= LOWEST).all(), rates
    assert (rates <= HIGHEST).all(), rates


def matched_pairs(rng: np.random.Generator) -> Population:
    """400 clusters of two units that are alike in their effect and differ in their outcome."""
    clusters = np.repeat(np.arange(400), 2)
    control = np.tile([0, 1], 400)
    outcomes = np.stack([control, control + 1], axis=1)
    return from_units(clusters, outcomes, cdp.OutcomeSpace.integers(0, 2), n_arms=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [cdp.uniform_prior_dp(epsilon=6), cdp.noisy_histogram(epsilon=8)],
    ids=lambda mechanism: mechanism.name,
)
def test_intervals_cover_with_one_unit_a_cell(
    mechanism: Mechanism, rng: np.random.Generator
) -> None:
    """A lone unit's variance comes from the rest of its arm, which must not understate it."""
    (rate,) = coverage(matched_pairs(rng), mechanism, rng)
    assert LOWEST <= rate <= 1


def test_intervals_that_forget_privacy_noise_do_not(rng: np.random.Generator) -> None:
    """The negative control: intervals too short by a fifth are noticed."""
    population = experiment_one(rng)
    rates = coverage(population, cluster(population.space), rng, shrink=0.8)
    assert (rates < LOWEST).all()


N_TABLES = 100


@pytest.mark.slow
def test_segments_of_real_releases_are_covered(rng: np.random.Generator) -> None:
    """Shares of arms from 6 to 94% that go with the level of outcomes; segments of 1, 5 and 10%.

    False alarms: ALPHA for each segment, if intervals cover 93%. Comparing raw means of arms in
    small clusters, they covered 28, 16 and 68%.
    """
    n_clusters, size = 40, 250
    markets = np.repeat(np.arange(n_clusters), size)
    control = rng.binomial(3, np.linspace(0.1, 0.8, n_clusters)[markets])
    treated = control + (rng.random(len(markets)) < 0.3)
    n_treated = np.rint(np.linspace(0.06, 0.94, n_clusters) * size)
    nth = np.tile(np.arange(size), n_clusters)
    shares = {"one": 0.01, "five": 0.05, "ten": 0.1}
    inside = {
        name: rng.permutation(len(markets)) < share * len(markets) for name, share in shares.items()
    }
    segments = pl.DataFrame({"user": np.arange(len(markets)), **inside})
    n_covered = dict.fromkeys(shares, 0)
    for _ in range(N_TABLES):
        order = np.lexsort((rng.random(len(markets)), markets))
        arms = np.zeros(len(markets), dtype=np.int64)
        arms[order] = nth < n_treated[markets]
        table = segments.select(
            "user", treated=arms, market=markets, clicks=np.where(arms == 1, treated, control)
        )
        release = cdp.release(
            table,
            mechanism=cdp.optimal(epsilon=4),
            unit="user",
            arm="treated",
            cluster="market",
            outcomes={"clicks": cdp.OutcomeSpace.integers(0, 4)},
        )
        for effect in cdp.estimate(release, segments=segments, by=list(shares)).effects[1:]:
            ((name, is_inside),) = effect.of.segment
            if is_inside:
                low, high = effect.ci()
                n_covered[name] += low <= (treated - control)[inside[name]].mean() <= high
    for name, count in n_covered.items():
        assert count >= stats.binom(N_TABLES, 0.93).ppf(ALPHA), (name, count)
