"""Breakdowns, segments, their differences and held-out folds: intervals cover, tests alarm at 5%.

False alarms: ALPHA for each rate, if intervals cover between 93.5 and 98%, and tests of 5, 25 and
50% alarm that often, up to a fifth of it: p-values are uniform. In a family none alarms that often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA, assert_mean
from clusterdp.estimation.effects.findings import VARYING, with_families
from clusterdp.estimation.metrics.mean import compare_segments
from clusterdp.studies.simulation import simulate_experiments
from populations import from_units
from segment_releases import BY, of_group, of_segment, release_segments

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.estimation.metrics.base import SegmentEffect
    from clusterdp.mechanisms.mechanism import Mechanism
    from segment_releases import SegmentRelease

N_RELEASES = 700
BINARY, FIVE = cdp.OutcomeSpace.of([0, 1]), cdp.OutcomeSpace.integers(0, 4)
N_SEGMENTS, N_FOLDS, N_GROUPS, N_CLUSTERS = 4, 2, 3, 10
GAIN = 0.1
MECHANISMS: dict[str, Mechanism] = {
    "totals": cdp.optimal(epsilon=1, sums=cdp.SumShares(totals=0.1)),
    "all levels": cdp.optimal(
        epsilon=2, sums=cdp.SumShares(totals=0.05, clusters=0.1, breakdowns=((BY, 0.15),))
    ),
    "clusters": cdp.optimal(epsilon=1, sums=cdp.SumShares(clusters=0.4)),
}


def draw_counts(space: cdp.OutcomeSpace, rng: np.random.Generator, n_units: int) -> IntArray:
    """Fresh units whose effects are alike everywhere; segments have 10 to 40% of them."""
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    cells = (N_FOLDS, N_GROUPS, N_CLUSTERS, 2)
    probs = np.repeat(shares / np.prod(cells), np.prod(cells))
    sizes = rng.multinomial(n_units, probs).reshape(N_SEGMENTS, *cells)
    top = space.n_categories - 1
    rates = np.linspace(0.1, 0.5, N_CLUSTERS)[:, np.newaxis] + GAIN * np.arange(2)
    outcomes = stats.binom(top, rates[..., np.newaxis]).pmf(np.arange(top + 1))
    return rng.multinomial(sizes, np.broadcast_to(outcomes, (*sizes.shape, top + 1)))


def assert_rate(hits: list[bool], low: float, high: float) -> None:
    """A rate between two limits, up to chance."""
    count, n_draws = sum(hits), len(hits)
    least, most = stats.binom(n_draws, low).ppf(ALPHA), stats.binom(n_draws, high).isf(ALPHA)
    assert least <= count <= most, count / n_draws


def in_family(effect: Effect) -> tuple[float, float]:
    return effect.holm_p_value, effect.bh_p_value


def holds(found: SegmentEffect, truth: float) -> bool:
    error = found.arrays.effects[0] - truth
    return bool(abs(error) <= stats.norm.isf(0.025) * np.sqrt(found.arrays.variances[0]))


@pytest.mark.slow
@pytest.mark.parametrize("space", [BINARY, FIVE], ids=["binary", "five"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_segments_and_their_differences(
    name: str, space: cdp.OutcomeSpace, rng: np.random.Generator
) -> None:
    truth = GAIN * (space.n_categories - 1)
    covered: list[list[bool]] = []
    p_values: list[list[float]] = []
    in_families: list[list[float]] = []
    for _ in range(N_RELEASES):
        release = release_segments(draw_counts(space, rng, 4000), space, MECHANISMS[name], rng)
        segments = [release.effect(one, of_segment(release, one)) for one in range(N_SEGMENTS)]
        groups = [release.effect(one, of_group(release, one)) for one in range(N_GROUPS)]
        every = [release.effect(0), *segments, *groups]
        covered.append([holds(one, truth) for one in every])
        found = []
        for parts in (segments, groups):
            rest = compare_segments(parts, release.calibration, "rest", 0.95)
            found += [one.p_value for one in rest.effects]
            found += [one.p_value for one in rest.tests]
        compared = compare_segments(segments, release.calibration, "pairs", 0.95)
        pairs = with_families(compared.effects, VARYING)
        found += [one.p_value for one in pairs]
        holm, rate = (min(each) for each in zip(*map(in_family, pairs), strict=True))
        in_families.append([holm, rate])
        p_values.append(found)
    for hits in zip(*covered, strict=True):
        assert_rate(list(hits), 0.935, 0.98)
    for level in (0.05, 0.25, 0.5):
        for hits in (np.array(p_values) < level).T:
            assert_rate(list(hits), 0.8 * level, 1.2 * level)
        for hits in (np.array(in_families) < level).T:
            assert_rate(list(hits), 0.0, 1.2 * level)


@pytest.mark.slow
def test_segments_chosen_on_the_other_fold(rng: np.random.Generator) -> None:
    """The best of four segments in fold 0, estimated in fold 1. In all rows it is biased."""
    mechanism = MECHANISMS["totals"]
    held_out, errors, together = [], [], []
    for _ in range(N_RELEASES):
        counts = draw_counts(BINARY, rng, 4000)
        seeds = rng.bit_generator.state
        folds = []
        for fold in (0, 1, None):  # the same release, read three times
            rng.bit_generator.state = seeds
            folds.append(release_segments(counts, BINARY, mechanism, rng, fold))
        chosen_in, estimated_in, whole = folds
        best = max(range(N_SEGMENTS), key=lambda one: effect_in(chosen_in, one))
        found = estimated_in.effect(best, of_segment(estimated_in, best))
        held_out.append(holds(found, GAIN))
        errors.append(found.arrays.effects[0] - GAIN)
        best = max(range(N_SEGMENTS), key=lambda one: effect_in(whole, one))
        together.append(effect_in(whole, best) - GAIN)
    assert_rate(held_out, 0.935, 0.98)
    assert_mean(np.array(errors), 0.0, float(np.std(errors)))
    with pytest.raises(AssertionError, match="mean is off"):
        assert_mean(np.array(together), 0.0, float(np.std(together)))


def effect_in(release: SegmentRelease, segment: int) -> float:
    return float(release.effect(segment, of_segment(release, segment)).arrays.effects[0])


def small_cells(space: cdp.OutcomeSpace, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """1,000 clusters of four to six units, without an effect: cells of two and three."""
    clusters = np.asarray(np.repeat(np.arange(1000), rng.integers(4, 7, 1000)), np.int64)
    rates = rng.uniform(0.2, 0.6, 1000)[clusters]
    return clusters, rng.binomial(space.n_categories - 1, rates)


@pytest.mark.slow
@pytest.mark.parametrize("space", [BINARY, FIVE], ids=["binary", "five"])
@pytest.mark.parametrize(
    "sums",
    [
        cdp.SumShares(),
        cdp.SumShares(totals=0.1),
        cdp.SumShares(clusters=0.5),
    ],
    ids=["rows", "totals", "clusters"],
)
def test_variances_in_cells_of_two_and_three_units(
    sums: cdp.SumShares, space: cdp.OutcomeSpace, rng: np.random.Generator
) -> None:
    """The mean of printed variances is the true one, within 5% and the error of 4,000 draws."""
    clusters, outcomes = small_cells(space, rng)
    population = from_units(clusters, np.stack([outcomes] * 2, axis=1), space, n_arms=2)
    mechanism = cdp.optimal(epsilon=2, sums=sums)
    drawn = simulate_experiments(population, mechanism, n_replicates=4000, rng=rng)
    ratio = drawn.variances.mean() / drawn.effects.var()
    reach = stats.norm.isf(ALPHA / 2) * np.sqrt(2 / 4000)
    assert 0.95 / (1 + reach) <= ratio <= 1.05 / (1 - reach), ratio


@pytest.mark.slow
def test_two_standard_errors_are_not_that_of_a_difference(rng: np.random.Generator) -> None:
    """The negative control: a segment against everyone else, as if their errors were unrelated."""
    alarms = []
    for _ in range(N_RELEASES):
        counts = draw_counts(BINARY, rng, 4000)
        release = release_segments(counts, BINARY, MECHANISMS["clusters"], rng)
        inside = of_segment(release, 3)
        apart = [release.effect(0, mask).arrays for mask in (inside, 1 - inside)]
        error = np.sqrt(sum(one.variances[0] for one in apart))
        alarms.append(bool(abs(apart[0].effects[0] - apart[1].effects[0]) > 1.96 * error))
    with pytest.raises(AssertionError):
        assert_rate(alarms, 0.04, 0.06)
