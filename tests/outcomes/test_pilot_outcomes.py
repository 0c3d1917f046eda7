"""Bins cover every value, and whatever a pilot shows, what follows from it can be released."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from clusterdp.mechanisms.settling import settle_outcomes
from clusterdp.outcomes.declaration import DeclaredOutcomes, declare
from clusterdp.statistics.noise import nearest_distribution, noise_variance
from clusterdp.statistics.pilot import MOST_BINS, pilot_space

WIDE = declare({"rounds": "number:0..1000000"})
DECLARED = {
    "wide": WIDE,
    "both signs": declare({"gain": "number:-500..2000"}),
    "far from zero": declare({"year": "number:1900..2100"}),
    "below zero": declare({"loss": "number:-40..-2"}),
    "cut": declare({"rounds": "number:0..1000000"}, metrics=["rounds>=10"]),
    "joint": declare({"rounds": "number:0..1000000", "kept": "0,1"}),
    "implied": declare(
        {"spend": "number:0..499", "bought": "0,1"}, constraints=["spend>0 -> bought"]
    ),
    "implied and wide": declare(
        {"spend": "number:-1000..1000000", "bought": "0,1"},
        constraints=["spend>0 -> bought"],
        metrics=["spend>0"],
    ),
    "missing": declare({"rounds": "number:0..1000000"}, missing=["rounds"]),
    "missing and implied": declare(
        {"spend": "number:-40..9000", "bought": "0,1"},
        constraints=["spend>0 -> bought"],
        metrics=["spend>0"],
        missing=["spend", "bought"],
    ),
    "three numbers": declare(dict.fromkeys("abc", "number:0..1000")),
    "finite": declare({"clicks": "0..5"}),
}
N_UNITS = 50_000
# Units of a known distribution, without any randomness; noise is stated and not drawn.
RANKS = (np.arange(N_UNITS) + 0.5) / N_UNITS
VARIANCE = noise_variance(20.0)


def counted(declared: DeclaredOutcomes, **columns: np.ndarray) -> np.ndarray:
    """The true counts of a pilot."""
    bins = pilot_space(declared)
    encoder = bins.encoder()
    positions = encoder.encode(columns).positions
    return np.bincount(encoder.table[positions], minlength=bins.n_categories)


@pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)
def test_bins_cover_every_value_and_are_few(declared: DeclaredOutcomes) -> None:
    bins = pilot_space(declared)
    assert bins.n_categories <= MOST_BINS
    for name, grid in zip(declared.numbers, bins.grids, strict=True):
        assert (grid.points[0], grid.points[-1]) == (0, grid.number.n_steps)
        assert grid.holds_cuts(declared.cuts(name))


def test_bins_of_a_number_are_round_and_widen_from_zero() -> None:
    edges = [float(value) for value in pilot_space(DECLARED["both signs"]).grids[0].values]
    assert {-500.0, -200.0, -1.0, 0.0, 1.0, 2.0, 3.0, 500.0, 2000.0} <= set(edges)
    above = [edge for edge in edges if edge >= 1]
    assert max(np.array(above[1:]) / above[:-1]) < 1.34


@pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)
@settings(max_examples=6)
@given(data=st.data())
def test_whatever_a_pilot_shows_can_be_released(
    declared: DeclaredOutcomes, data: st.DataObject
) -> None:
    """Noise may show anything, negative counts and more units than there are among it."""
    bins = pilot_space(declared)
    shown = st.one_of(st.integers(-3, 3), st.integers(-(10**6), 10**6), st.just(-(2**62)))
    few = data.draw(st.dictionaries(st.integers(0, bins.n_categories - 1), shown, max_size=6))
    noisy = np.full(bins.n_categories, data.draw(st.integers(-50, 50)))
    noisy[list(few)] = list(few.values())
    variance = data.draw(st.sampled_from([0.0, 1.0, 1e6, 1e20]))
    n_units = data.draw(st.integers(1, 10**6))
    categories, prior = settle_outcomes(bins, noisy, variance, n_units)
    assert len(prior) == categories.n_categories
    assert min(prior) >= 0
    assert abs(sum(prior) - 1) < 1e-6
    for name, number in categories.declared.numbers.items():
        widest = declared.numbers[name]
        assert widest.low <= number.low < number.high <= widest.high
        cut_at = {float(widest.value(step)) for step in declared.cuts(name)}
        assert all(number.low <= value <= number.high for value in cut_at)
    if declared.constraints:  # rows were checked on this lattice
        number, widest = (one.numbers["spend"] for one in (categories.declared, declared))
        assert (number.low, number.unit) == (widest.low, widest.unit)


def test_a_heavy_tail_is_clipped_where_about_one_in_a_hundred_lies_beyond() -> None:
    rounds = np.floor(np.exp(stats.norm.ppf(RANKS, 3, 1.4)))
    counts = counted(WIDE, rounds=rounds)
    categories, prior = settle_outcomes(pilot_space(WIDE), counts, VARIANCE, N_UNITS)
    number = categories.declared.numbers["rounds"]
    assert number.low == 0
    assert 0.001 < (rounds > number.high).mean() < 0.02
    mean = np.minimum(rounds, number.high).mean()
    assert abs(categories.metric_values()[0] @ prior - mean) < 0.1 * mean


def test_whole_numbers_are_found_and_become_grid_points() -> None:
    counts = counted(WIDE, rounds=stats.poisson.ppf(RANKS, 3))
    categories, _ = settle_outcomes(pilot_space(WIDE), counts, VARIANCE, N_UNITS)
    points = {float(value) for value in categories.grids[0].values}
    assert {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0} <= points


def test_an_end_stays_where_noise_could_hide_what_lies_beyond() -> None:
    """With few units, an empty bin and one with a tenth of them look alike."""
    counts = counted(WIDE, rounds=np.full(200, 5.0))
    scale = 200.0
    categories, _ = settle_outcomes(pilot_space(WIDE), counts, noise_variance(scale), 200)
    assert categories.declared.numbers["rounds"].high == 1_000_000
    categories, _ = settle_outcomes(pilot_space(WIDE), counts, 0.0, 200)
    assert categories.declared.numbers["rounds"].high == 6


def test_both_ends_move_where_all_units_are_far_from_them() -> None:
    counts = counted(WIDE, rounds=stats.norm.ppf(RANKS, 170, 8))
    categories, _ = settle_outcomes(pilot_space(WIDE), counts, VARIANCE, N_UNITS)
    number = categories.declared.numbers["rounds"]
    assert (number.low, number.high) == (150.0, 200.0)


def test_the_prior_of_categories_is_as_they_are_distributed() -> None:
    declared, kept = DECLARED["joint"], RANKS < 0.3
    rounds = np.where(kept, 50.0, 2.0)
    counts = counted(declared, rounds=rounds, kept=kept)
    categories, prior = settle_outcomes(pilot_space(declared), counts, VARIANCE, N_UNITS)
    means = categories.metric_values() @ prior
    assert means[1] == pytest.approx(0.3, abs=0.02)
    assert means[0] == pytest.approx(rounds.mean(), rel=0.1)


def test_what_noise_explains_is_shrunk_to_what_is_assumed_without_a_pilot() -> None:
    noisy = 5 + 100 * np.array([1, -1, 1, 1, -1, -1])
    _, prior = settle_outcomes(pilot_space(DECLARED["finite"]), noisy, 100.0**2, 30)
    assert prior == pytest.approx([1 / 6] * 6, abs=1e-3)


@pytest.mark.parametrize("name", ["implied", "implied and wide"])
def test_a_row_that_broke_no_constraint_breaks_none_after_the_pilot(name: str) -> None:
    """Where a number lies between two lattice points, also exactly, is where it could."""
    declared = DECLARED[name]
    bins, unit = pilot_space(declared), float(declared.numbers["spend"].unit)
    spend = np.arange(-40, 40) * unit / 4
    rows = {"spend": np.tile(spend, 2), "bought": np.repeat([0, 1], len(spend))}
    before = bins.encoder()
    sound = before.table[before.encode(rows).positions] >= 0
    assert 0 < sound.sum() < len(sound)
    counts = np.zeros(bins.n_categories, dtype=np.int64)
    counts[bins.labels().index("spend=0, bought=0")] = N_UNITS
    categories, _ = settle_outcomes(bins, counts, 0.0, N_UNITS)
    assert categories.declared.numbers["spend"].high < 1
    after = categories.encoder()
    assert np.array_equal(after.table[after.encode(rows).positions] >= 0, sound)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_the_nearest_distribution_is_nearer_than_others(listed: list[float]) -> None:
    given_ = np.array(listed)
    found = nearest_distribution(given_)
    assert abs(found.sum() - 1) < 1e-9
    corners = np.eye(len(given_))
    # Optimal: no corner of the simplex lies in the direction of what was given.
    assert ((corners - found) @ (given_ - found)).max() < 1e-6


@pytest.mark.parametrize("buyers", [0.2, 0.5])
def test_a_range_is_found_where_most_spend_nothing(buyers: float) -> None:
    """Counts without noise, of which it is known how noisy they would be."""
    spent = np.where(buyers > RANKS, stats.lognorm(1, scale=20).ppf(RANKS / buyers), 0.0)
    counts, noise = counted(WIDE, rounds=spent), noise_variance(N_UNITS / 500)
    settled = settle_outcomes(pilot_space(WIDE), counts, noise, N_UNITS)
    high = settled[0].declared.numbers["rounds"].high
    assert high <= 1000
    assert (spent > high).mean() <= buyers / 10


@pytest.mark.parametrize(("buyers", "scale"), [(0.009, 60.0), (0.015, 60.0), (0.009, 0.5)])
def test_a_few_who_spend_are_not_clipped_away(buyers: float, scale: float) -> None:
    """Where nearly all spend nothing, a clip is about the others: at most a tenth are moved."""
    spent = np.where(buyers > RANKS, stats.lognorm(1, scale=60).ppf(RANKS / buyers), 0.0)
    declared = declare({"spend": "number:0..500"})
    settled = settle_outcomes(
        pilot_space(declared), counted(declared, spend=spent), noise_variance(scale), N_UNITS
    )
    high = settled[0].declared.numbers["spend"].high
    assert (spent > high).mean() <= buyers / 10
