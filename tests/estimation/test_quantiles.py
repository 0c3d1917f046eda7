"""Quantiles, distributions and bounds: of exact shares, and of noisy ones."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.effects.intervals import ArmPair
from clusterdp.estimation.metrics._composed import ArmEstimates
from clusterdp.estimation.metrics.levels import ArmBounds, ArmLevels, BoundsEstimator, Levels
from clusterdp.estimation.metrics.parse import parse_metrics
from clusterdp.estimation.metrics.quantiles import ArmQuantile, QuantilePair
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Density, Grid
from clusterdp.outcomes.metric import Threshold

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.estimation.effects.intervals import EffectInterval

NUMBER = cdp.Number(0, 16_000_000)  # its lattice has a unit of one
# Cuts are between steps 39 and 40, and at the upper end.
POINTS = (0, 7, 20, 39, 40, 60, 15_999_999, 16_000_000)


def finite(n_values: int) -> Levels:
    return Levels("y", Categories(declared=declare({"y": list(range(n_values))})))


def number_space() -> Categories:
    grid = Grid(number=NUMBER, points=POINTS)
    return Categories(declared=declare({"y": NUMBER}, metrics=["y>=40"]), grids=(grid,))


def known(means: FloatArray, errors: FloatArray | float = 0.0) -> ArmEstimates:
    means = np.asarray(means, dtype=np.float64)
    return ArmEstimates(
        means=means,
        sampling=np.broadcast_to(np.square(errors), means.shape),
        privacy=np.zeros_like(means),
        degrees=math.inf,
    )


def tails(probs: FloatArray) -> FloatArray:
    """S_1, S_2, … from the probabilities of levels."""
    return np.cumsum(probs[::-1])[::-1][1:]


@given(st.lists(st.integers(0, 20), min_size=3, max_size=9), st.integers(1, 99))
def test_exact_shares_have_the_quantile_of_the_sample(counts: list[int], percent: int) -> None:
    if not sum(counts):
        return
    shares = tails(np.array(counts) / sum(counts))
    found = ArmQuantile(ArmLevels(finite(len(counts)), known(shares)), percent / 100)
    ranks = np.cumsum(counts) * 100  # compared as integers: sums of shares are not exact
    exactly = np.isin(ranks, percent * sum(counts)).any()
    if not exactly:
        assert found.value == np.argmax(ranks >= percent * sum(counts))
        assert found.limits(0.95) == (found.value, found.value)


@given(
    st.dictionaries(st.sampled_from([0, 3, 7, 12, 19, 20, 35, 39, 40, 41, 55, 60, 90]),
                    st.integers(1, 9), min_size=1),
    st.sampled_from([0.1, 0.5, 0.77, 0.9]),
)  # fmt: skip
def test_quantiles_of_numbers_lie_within_their_bounds(atoms: dict[int, int], share: float) -> None:
    """Rounding is known: bounds from exact shares of the grid hold the true quantile."""
    steps = np.array(sorted(atoms))
    probs = np.array([atoms[step] for step in sorted(atoms)]) / sum(atoms.values())
    space = number_space()
    rounded = space.grids[0].rounded(Density(steps=steps, probs=probs))
    below = np.cumsum(probs)
    if np.isclose(below, share).any():
        return
    true = steps[np.argmax(below >= share)]
    arm = ArmLevels(Levels("y", space), known(tails(rounded)))
    low, high = ArmQuantile(arm, share).bounds
    assert low <= true <= high
    shown = arm.distribution("A", (), 0.95)
    for value, least, most in zip(shown.values, shown.low, shown.high, strict=True):
        assert least - 1e-12 <= probs[steps <= value].sum() <= most + 1e-12


def can_be_quantile(value: int, rounded: FloatArray, share: float) -> bool:
    """Whether numbers up to 60 exist that round to given shares and have a quantile: a program."""
    grid, steps = number_space().grids[0], np.arange(61)
    rounding = np.stack(
        [grid.rounded(Density(steps=np.array([step]), probs=np.ones(1))) for step in steps], axis=1
    )
    limits = np.stack([-(steps >= value).astype(float), (steps > value).astype(float)])
    found = optimize.linprog(
        np.zeros(61), A_ub=limits, b_ub=[share - 1, 1 - share], A_eq=rounding, b_eq=rounded
    )
    return bool(found.success)


@pytest.mark.parametrize(
    "atoms",
    [
        {2: 4, 9: 2, 14: 3, 26: 2, 45: 3, 55: 2},
        {0: 1, 6: 3, 8: 1, 19: 1, 22: 1, 30: 3, 38: 1, 41: 2, 59: 4},
        {10: 1, 16: 1},
    ],
    ids=["spread", "many", "one gap"],
)
@pytest.mark.parametrize("share", [0.3, 0.55, 0.87])
def test_bounds_of_numbers_are_as_close_as_rounding_allows(
    atoms: dict[int, int], share: float
) -> None:
    """From exact shares the bounds are those of all numbers that could have been rounded so."""
    probs = np.array(list(atoms.values())) / sum(atoms.values())
    space = number_space()
    rounded = space.grids[0].rounded(Density(steps=np.array(list(atoms)), probs=probs))
    arm = ArmLevels(Levels("y", space), known(tails(rounded)))
    low, high = ArmQuantile(arm, share).bounds
    possible = [value for value in range(61) if can_be_quantile(value, rounded, share)]
    assert low <= possible[0] <= low + 1  # a share of the way is rounded outwards
    assert high - 1 <= possible[-1] <= high


@given(
    st.dictionaries(st.integers(0, 70), st.integers(1, 9), min_size=1),
    st.integers(1, 70),
    st.sampled_from([">=", ">", "<=", "<"]),
)
def test_shares_of_numbers_lie_within_their_bounds(
    atoms: dict[int, int], threshold: int, sign: str
) -> None:
    steps = np.array(sorted(atoms))
    probs = np.array([atoms[step] for step in sorted(atoms)]) / sum(atoms.values())
    space = number_space()
    rounded = space.grids[0].rounded(Density(steps=steps, probs=probs))
    comparison = Threshold(outcome="y", sign=sign, threshold=threshold)
    bounds = BoundsEstimator.from_comparison(comparison, 0, space)
    low, high = (one.values @ rounded for one in bounds.functions)
    holds = {">=": np.greater_equal, ">": np.greater, "<=": np.less_equal, "<": np.less}[sign]
    true = probs[holds(steps, threshold)].sum()
    assert low - 1e-12 <= true <= high + 1e-12


def test_the_share_at_the_next_grid_point_is_no_bound() -> None:
    """The negative control: units between l and c are rounded up to u."""
    rounded = number_space().grids[0].rounded(Density(steps=np.array([18]), probs=np.ones(1)))
    assert rounded[2:].sum() > 0.8  # R ≥ 20, though nobody has 19 or more


def test_values_are_rejected_one_by_one() -> None:
    """Woodruff's interval, found by testing every value."""
    levels, share = finite(8), 0.7
    means = np.array([0.9, 0.62, 0.5, 0.33, 0.21, 0.26, 0.05])
    errors = np.array([0.05, 0.06, 0.03, 0.04, 0.08, 0.02, 0.01])
    found = ArmQuantile(ArmLevels(levels, known(means, errors)), share)
    reach = stats.norm.isf(0.025) * errors
    low, high = np.append(means - reach, 0), np.append(1, means + reach)
    kept = [k for k in range(8) if low[k] <= 1 - share <= high[k]]
    assert found.limits(0.95) == (min(kept), max(kept))
    assert min(kept) <= found.value <= max(kept)
    assert found.value == 4


def test_distributions_increase_and_cover_no_less() -> None:
    levels = finite(6)
    means, errors = np.array([0.8, 0.85, 0.3, 0.35, 0.02]), np.full(5, 0.04)
    arm = ArmLevels(levels, known(means, errors))
    shown = arm.distribution("A", (("tier", "gold"),), 0.95)
    for terms in (shown.shares, shown.low, shown.high):
        assert (np.diff(terms) >= 0).all()
    low, high = arm.limits(0.95)
    assert (shown.low <= 1 - high[1:] + 1e-12).all()
    assert (shown.high >= 1 - low[1:] - 1e-12).all()
    assert shown.shares[-1] == 1
    assert len(shown.to_rows()) == 6
    assert {row["segment"] for row in shown.to_rows()} == {"tier=gold"}


def test_bounds_of_two_arms_add_up() -> None:
    """Widths that no number of units makes smaller are not errors that could cancel."""
    control, treated = (ArmBounds(known(np.array(both))) for both in ((0.1, 0.3), (0.2, 0.5)))
    assert ArmPair(treated, control).ci(0.95) == pytest.approx((-0.1, 0.4))
    lift = ArmPair(treated, control).lift(0.95)
    assert lift is not None
    assert lift[1:] == pytest.approx((0.2 / 0.3 - 1, 0.5 / 0.1 - 1))
    swapped = ArmBounds(known(np.array([0.4, 0.38])))
    assert swapped.bounds == pytest.approx((0.39, 0.39))


def next_to_a_jump(values: list[float], upper: bool) -> ArmQuantile:
    """A median that is the least of some values or the largest, estimated to be one of them."""
    levels = Levels("y", Categories(declared=declare({"y": values})))
    shares = np.full(len(values) - 1, 0.505 if upper else 0.495)
    return ArmQuantile(ArmLevels(levels, known(shares, 0.01)), 0.5)


def compared(treated: ArmQuantile, control: ArmQuantile) -> dict[str, EffectInterval]:
    """The interval of a difference: as of normal numbers, and as of quantiles."""
    normal: EffectInterval = ArmPair(treated, control)
    return {"normal": normal, "quantiles": QuantilePair(treated, control)}


@pytest.mark.parametrize(
    "values", [[2.0, 3.0], [2.0, 2.5, 3.0], [2.0, 2.1, 2.3, 2.7, 3.0]], ids=["2", "3", "5"]
)
def test_arms_whose_quantiles_are_next_to_a_jump(values: list[float]) -> None:
    """The median is 3 in treatment and 2 in control, with nearly half of each arm at either.

    Where noise has them the other way round, which it has in a quarter of all draws, limits as of
    normal numbers miss the difference and the lift. All draws are tried.
    """
    covered = {"normal": [0, 0], "quantiles": [0, 0]}
    for draws in itertools.product((True, False), repeat=2):
        treated, control = (next_to_a_jump(values, upper) for upper in draws)
        for name, pair in compared(treated, control).items():
            (low, high), lift = pair.ci(0.95), pair.lift(0.95)
            assert lift is not None
            covered[name][0] += low <= 1 <= high
            covered[name][1] += lift[1] <= 0.5 <= lift[2]
    assert covered == {"normal": [3, 3], "quantiles": [4, 4]}


@pytest.mark.parametrize("n_values", [2, 5])
def test_differences_of_quantiles_at_jumps_cover(n_values: int, rng: np.random.Generator) -> None:
    """One star or five: the worst that can happen to a pair of medians.

    False alarms: ALPHA, if intervals cover 95%. The negative control combines limits as of normal
    numbers, and covers three quarters.
    """
    levels, error, n_draws = finite(n_values), 0.1, 800
    covered = {"normal": 0, "quantiles": 0}
    noise = rng.normal(0, error, (n_draws, 2, 1))
    # Treatment is above the jump and control below it, by next to nothing.
    shares = 0.5 + np.array([[1e-9], [-1e-9]]) + noise
    for both in shares * np.ones(n_values - 1):
        treated, control = (ArmQuantile(ArmLevels(levels, known(one, error)), 0.5) for one in both)
        for name, pair in compared(treated, control).items():
            low, high = pair.ci(0.95)
            covered[name] += low <= n_values - 1 <= high
    fewest = stats.binom.ppf(ALPHA, n_draws, 0.95)
    assert covered["quantiles"] >= fewest > covered["normal"]


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=7),
    st.floats(0.01, 0.3),
    st.sampled_from([0.2, 0.5, 0.9]),
    st.sampled_from([0.5, 0.9, 0.99]),
    st.sampled_from([math.inf, 8.0]),
)
def test_values_are_held_from_their_reach_on(
    means: list[float], error: float, share: float, level: float, degrees: float
) -> None:
    """Reaches and limits of an arm say the same, with Student's t as with normal numbers."""
    estimates = known(np.array(means), error)._replace(degrees=degrees)
    found = ArmQuantile(ArmLevels(finite(len(means) + 1), estimates), share)
    low, high = found.reaches().within(np.array([stats.norm.isf((1 - level) / 2)]))
    assert (low[0], high[0]) == found.limits(level)


@given(
    st.lists(st.integers(1, 20), min_size=8, max_size=8),
    st.floats(0.001, 0.2),
    st.sampled_from([0.3, 0.5, 0.9]),
    st.sampled_from([0.6, 0.95]),
)
def test_values_of_numbers_are_held_from_their_reach_on(
    counts: list[int], error: float, share: float, level: float
) -> None:
    """Points between two levels stand for all values there: limits differ by a step of them."""
    levels = Levels("y", number_space())
    estimates = known(tails(np.array(counts) / sum(counts)), error)
    found = ArmQuantile(ArmLevels(levels, estimates), share)
    low, high = found.limits(level)
    least, most = found.reaches().within(np.array([stats.norm.isf((1 - level) / 2)]))
    gaps = np.diff(levels.values) / 16
    for inner, outer in ((least[0], low), (most[0], high)):
        assert low - 1 <= inner <= high + 1
        place = int(np.clip(np.searchsorted(levels.values, outer) - 1, 0, len(gaps) - 1))
        assert abs(inner - outer) <= gaps[place : place + 2].max() + 2


def test_p_values_agree_with_intervals() -> None:
    """Zero is at the end of the interval at one minus the p-value."""
    levels = finite(5)
    first, second = np.array([0.95, 0.9, 0.8, 0.7]), np.array([0.7, 0.6, 0.35, 0.1])
    pair = QuantilePair(
        *(ArmQuantile(ArmLevels(levels, known(one, 0.08)), 0.5) for one in (first, second))
    )
    assert 1e-4 < pair.p_value < 0.5
    assert pair.ci(1 - pair.p_value - 1e-9)[0] > 0 >= pair.ci(1 - pair.p_value + 1e-9)[0]
    same = QuantilePair(*[ArmQuantile(ArmLevels(levels, known(first, 0.08)), 0.5)] * 2)
    assert same.p_value == 1


def test_far_from_jumps_differences_are_as_of_normal_numbers() -> None:
    """Of values much closer than errors; the radius is larger by the jumps that there might be."""
    n_values = 64
    shares = 1 - np.arange(1, n_values) / n_values
    levels = Levels("y", Categories(declared=declare({"y": list(range(n_values))})))
    arm = ArmQuantile(ArmLevels(levels, known(shares, 0.1)), 0.5)
    low, high = QuantilePair(arm, arm).ci(0.95)
    expected = math.sqrt(4.23) * math.sqrt(2) * 0.1 * n_values
    assert (low, high) == pytest.approx((-expected, expected), abs=1.5)


def test_outcomes_are_named() -> None:
    with pytest.raises(cdp.ParameterError, match="there is no outcome 'z'"):
        parse_metrics("dist(z)", [number_space()])
