"""High sets: those to begin with, and those that would lower the cost at given prices.

**Which sets can be best.** At output s the best high set holds the categories whose g_y(s) =
p(y)·|s|² − u(y) − s·v(y) is negative: those whose sphere {g_y = 0} has s inside. So the sets that
matter are the cells of an arrangement of K spheres in as many dimensions as there are metrics:
O(K^m) sets, not 2^K. On the border of every cell there is a point where j ≤ m spheres meet (for j <
m any such point will do if no other sphere cuts them there). The cells next to that point agree on
the other categories and take every combination of the j. For one metric this is a sweep over the
roots of K parabolas.

A tiny disturbance of prices brings spheres into general position, where no more than m meet.

**What they save.** A high set's excess U_A + |V_A|²/4 is what a unit of its mass would save. If
none exceeds c, prices lowered by c are feasible in the dual, which bounds the cost of every channel
from below. Three ways to find the largest excess: over all 2^K sets; over the cells of an
arrangement of spheres, which is as exact; and by local search, which finds good sets but proves
nothing.
"""

from __future__ import annotations

from itertools import combinations, islice, product
from math import comb
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels._solver.program import Prices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.channels._solver.program import ConeProgram, StepMixture


# Up to this many categories every set is a candidate from the start.
MOST_FOR_ALL_SETS = 10
# Up to this many, one metric begins with all intervals; beyond, with those between so many cuts.
_MOST_FOR_ALL_INTERVALS, _CUTS = 128, 96
# Up to this many metrics, half-spaces lie in all directions of −1, 0 and 1.
_MOST_FOR_ALL_DIRECTIONS = 5
# Distances closer than this are the same.
_SAME = 1e-9


def first_sets(program: ConeProgram) -> BoolArray:
    """High sets to begin with; axes `[set, category]`. With them every program has a solution."""
    n_categories = program.n_categories
    if program.n_metrics == 1:
        return _proper(_intervals(program.values[0]))
    if n_categories <= MOST_FOR_ALL_SETS:
        return all_sets(n_categories)
    spans = np.ptp(program.values, axis=1, keepdims=True)
    points = program.values / np.where(spans > 0, spans, 1.0)
    singles = np.eye(n_categories, dtype=np.bool_)
    return _proper(np.vstack([singles, *_half_spaces(points), *_balls_and_boxes(points)]))


def all_sets(n_categories: int) -> BoolArray:
    """Every set but the empty and the full one; axes `[set, category]`."""
    return members(np.arange(1, 2**n_categories - 1), n_categories)


def members(codes: IntArray, n_categories: int) -> BoolArray:
    """The sets that binary codes stand for, category 0 in the lowest bit."""
    return np.asarray((codes[:, np.newaxis] >> np.arange(n_categories)) & 1, dtype=np.bool_)


def distinct(high: BoolArray) -> BoolArray:
    """Each set once, in the order in which sets first appear."""
    _, first = np.unique(np.packbits(high, axis=1), axis=0, return_index=True)
    return high[np.sort(first)]


def _proper(high: BoolArray) -> BoolArray:
    """Distinct sets without the empty and the full one."""
    return distinct(high[high.any(axis=1) & ~high.all(axis=1)])


def _intervals(values: FloatArray) -> BoolArray:
    """Sets of neighbouring outcomes: all, or single ones and those between evenly spread cuts."""
    rank = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    n_categories = len(values)
    cuts = np.arange(n_categories + 1)
    if n_categories > _MOST_FOR_ALL_INTERVALS:
        cuts = np.unique(np.linspace(0, n_categories, _CUTS + 1).astype(np.int64))
    begin, end = np.triu_indices(len(cuts), 1)
    between = (rank >= cuts[begin, np.newaxis]) & (rank < cuts[end, np.newaxis])
    thresholds = rank >= np.arange(1, n_categories)[:, np.newaxis]
    singles = np.eye(n_categories, dtype=np.bool_)
    return np.vstack([between, singles, thresholds, ~thresholds])


def _half_spaces(points: FloatArray) -> list[BoolArray]:
    """Categories beyond a threshold, in each metric and in sums and differences of them."""
    n_metrics = len(points)
    if n_metrics <= _MOST_FOR_ALL_DIRECTIONS:
        directions = np.array([d for d in product((-1, 0, 1), repeat=n_metrics) if any(d)])
    else:
        axes, ones = np.eye(n_metrics), np.ones((1, n_metrics))
        directions = np.vstack([axes, -axes, ones, -ones])
    return [_within(-(direction @ points)) for direction in directions]


def _balls_and_boxes(points: FloatArray) -> list[BoolArray]:
    """Categories within a distance of each category, by squares and by the largest difference."""
    found = []
    for centre in points.T:
        apart = np.abs(points - centre[:, np.newaxis])
        found += [_within((apart**2).sum(axis=0)), _within(apart.max(axis=0))]
    return found


def _within(distances: FloatArray) -> BoolArray:
    """The categories within each distance that occurs; axes `[set, category]`."""
    radii = np.unique(np.round(distances / _SAME)) * _SAME
    return np.asarray(distances <= radii[:, np.newaxis] + 2 * _SAME)


# Subsets of spheres looked at together.
_CHUNK = 16_384
# The disturbance, relative to the largest price.
_DISTURBANCE = 1e-11


def n_cells(n_metrics: int, n_categories: int) -> int:
    """An upper bound on how many sets `corners` leads to."""
    return sum(comb(n_categories, j) * 2 ** (j + 1) for j in range(1, n_metrics + 1))


def disturbed(prices: Prices) -> Prices:
    """Prices so little apart that no bound suffers, whose spheres are in general position."""
    # The seed is fixed: a channel follows from its prior, and nothing secret is drawn.
    rng = np.random.default_rng(0)
    total, mean = prices
    return Prices(
        total + _DISTURBANCE * np.abs(total).max() * rng.standard_normal(total.shape),
        mean + _DISTURBANCE * np.abs(mean).max() * rng.standard_normal(mean.shape),
    )


def patterns(n_spheres: int) -> FloatArray:
    """Every way to be inside or outside of the meeting spheres; axes `[pattern, sphere]`."""
    return np.array(list(product((0.0, 1.0), repeat=n_spheres)))


def corners(program: ConeProgram, prices: Prices) -> Iterator[tuple[BoolArray, IntArray]]:
    """Points on the border of every cell, where spheres meet, many at once.

    Yields:
        The other categories whose spheres hold a point, axes `[point, category]`; and the
        categories whose spheres meet there, axes `[point, sphere]`.
    """
    origin = _origin(program, prices)
    # In coordinates around the origin, g_y(x) = p·|x|² − total − x·mean.
    total = prices.total + prices.mean.T @ origin - program.prior * (origin @ origin)
    mean = prices.mean.T - 2 * program.prior[:, np.newaxis] * origin
    for n_spheres in range(1, program.n_metrics + 1):
        for meeting in _subsets(program.n_categories, n_spheres):
            spheres = (program.prior[meeting], total[meeting], mean[meeting])
            for points, valid in _meeting_points(*spheres):
                squares = (points**2).sum(axis=1)
                inside = np.outer(squares, program.prior) < total + points @ mean.T
                np.put_along_axis(inside, meeting[valid], values=False, axis=1)
                yield inside, meeting[valid]


def _origin(program: ConeProgram, prices: Prices) -> FloatArray:
    """A point that is in no plane through centres of spheres, near them."""
    reach = np.abs(prices.mean / (2 * program.prior)).max(axis=1)
    return np.asarray(np.random.default_rng(1).uniform(0.05, 0.15, len(reach)) * reach)


def _subsets(n_categories: int, size: int) -> Iterator[IntArray]:
    """All subsets of a size, in chunks; axes `[subset, sphere]`."""
    every = combinations(range(n_categories), size)
    while chunk := list(islice(every, _CHUNK)):
        yield np.array(chunk, dtype=np.int64)


# Spheres of equal centres divide by 0: their points are not finite, and left out.
@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _meeting_points(
    prior: FloatArray, total: FloatArray, mean: FloatArray
) -> list[tuple[FloatArray, BoolArray]]:
    """Points where spheres meet, axes `[point, metric]`, and which of the subsets have them.

    With t = |x|² the equations mean·x = prior·t − total are linear: x = slope·t + base (+ a free
    direction, if the spheres are fewer than the dimensions). Then t = |x|² is quadratic in t.
    """
    n_spheres, n_metrics = mean.shape[1:]
    right = np.stack([prior, -total], axis=-1)
    solved = _shortest(mean, right) if n_spheres < n_metrics else _solved(mean, right)
    slope, base = solved[..., 0], solved[..., 1]
    second, first = (slope**2).sum(axis=1), 2 * (slope * base).sum(axis=1) - 1
    if n_spheres < n_metrics:
        middle = -first / (2 * second)
        point = slope * middle[:, np.newaxis] + base
        room = middle - (point**2).sum(axis=1)
        return [_finite(point + np.sqrt(room)[:, np.newaxis] * _free_direction(mean))]
    base_squares = (base**2).sum(axis=1)
    # The larger root of t in magnitude, then the other one by their product: neither cancels.
    larger = (np.sqrt(first**2 - 4 * second * base_squares) - first) / (2 * second)
    smaller = base_squares / (second * larger)
    return [_finite(slope * t[:, np.newaxis] + base) for t in (larger, smaller)]


def _finite(points: FloatArray) -> tuple[FloatArray, BoolArray]:
    """The points that exist, and which of all they are."""
    valid = np.asarray(np.isfinite(points).all(axis=1))
    return points[valid], valid


def _solved(square: FloatArray, right: FloatArray) -> FloatArray:
    """Solutions of small linear systems; spheres whose systems are singular meet nowhere."""
    try:
        return np.asarray(np.linalg.solve(square, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(square) @ right)


def _shortest(mean: FloatArray, right: FloatArray) -> FloatArray:
    """The shortest solutions of systems with fewer equations than unknowns."""
    across = mean.swapaxes(1, 2)
    return np.asarray(across @ _solved(mean @ across, right))


def _free_direction(mean: FloatArray) -> FloatArray:
    """A unit vector across all of the given ones; axes `[point, metric]`."""
    start = np.random.default_rng(2).standard_normal(mean.shape[-1])
    free = start - _shortest(mean, (mean @ start)[..., np.newaxis])[..., 0]
    return np.asarray(free / np.sqrt((free**2).sum(axis=1, keepdims=True)))


# Up to this many categories all sets can be looked at.
MOST_FOR_EXACT_PRICING = 16
# Up to so many sets pricing is exact in every round, and up to so many at the end.
_MOST_EVERY_ROUND, MOST_AT_ALL = 2**17, 2**26
# Sets returned at most.
_MOST_RETURNED = 400
# An excess up to this counts as zero.
_NONE = 1e-11
_LOCAL_STEPS, _MORE_STARTS = 8, 5000


class PricedSets(NamedTuple):
    """High sets worth adding.

    Attributes:
        high: Those with the largest excess, largest first; axes `[set, category]`.
        most: The largest excess found.
        is_proved: Whether no set has a larger excess than that.
        prices: The prices that were used: those asked for, or some very near.
    """

    high: BoolArray
    most: float
    is_proved: bool
    prices: Prices


def n_sets_to_price(program: ConeProgram) -> int:
    """How many sets exact pricing has to look at."""
    cells = n_cells(program.n_metrics, program.n_categories)
    if program.n_categories <= MOST_FOR_EXACT_PRICING:
        return min(cells, 1 << program.n_categories)
    return cells


def price(program: ConeProgram, prices: Prices, mixture: StepMixture) -> PricedSets:
    """Sets to add: exactly where that is fast, else by local search around a mixture."""
    if n_sets_to_price(program) <= _MOST_EVERY_ROUND:
        return price_exactly(program, prices)
    return price_locally(program, prices, mixture)


def price_exactly(program: ConeProgram, prices: Prices) -> PricedSets:
    """The sets with the largest excess, and a bound on it that holds for every set."""
    if n_sets_to_price(program) == 1 << program.n_categories:
        return price_all_sets(program, prices)
    return price_cells(program, disturbed(prices))


def price_locally(program: ConeProgram, prices: Prices, mixture: StepMixture) -> PricedSets:
    """Sets found by turns: the best set for an output, the best output for a set.

    Turns begin at the outputs of the mixture, at the best one of every set in it, at the centres of
    spheres (see `corners`), and at random places between these.
    """
    used = mixture.mass > _NONE
    outputs = _spread(
        np.vstack(
            [
                mixture.moved[used] / mixture.mass[used, np.newaxis],
                program.levels(mixture.high) @ prices.mean.T / 2,
                prices.mean.T / (2 * program.prior[:, np.newaxis]),
            ]
        )
    )
    found = []
    for _ in range(_LOCAL_STEPS):
        cost = np.outer((outputs**2).sum(axis=1), program.prior)
        high = _proper(cost < prices.total + outputs @ prices.mean)
        found.append(high)
        outputs = program.levels(high) @ prices.mean.T / 2
    high = distinct(np.vstack(found))
    excess = program.excess(prices, high)
    return PricedSets(
        _largest(high, excess), float(excess.max(initial=0.0)), is_proved=False, prices=prices
    )


def _spread(points: FloatArray) -> FloatArray:
    """Points, and random ones on lines between pairs of them; axes `[point, metric]`."""
    # The seed is fixed: a channel follows from its prior, and nothing secret is drawn.
    rng = np.random.default_rng(0)
    first, second = points[rng.integers(len(points), size=(2, _MORE_STARTS))]
    share = rng.random((_MORE_STARTS, 1))
    return np.vstack([points, share * first + (1 - share) * second])


def price_all_sets(program: ConeProgram, prices: Prices) -> PricedSets:
    """Excess of every set, by sums over subsets."""
    sums = np.zeros((1, program.n_metrics + 2))
    features = _features(program, prices)
    for category in features.T:
        sums = np.vstack([sums, sums + category])
    excess, _ = _excess(program, features, sums)
    excess[[0, -1]] = -np.inf
    chosen = np.argsort(-excess, kind="stable")[:_MOST_RETURNED]
    high = members(chosen, program.n_categories)
    return PricedSets(
        _largest(high, excess[chosen]), float(excess.max()), is_proved=True, prices=prices
    )


def price_cells(program: ConeProgram, prices: Prices) -> PricedSets:
    """Excess of every set that is best for some output.

    Cells belong to levels of 1 and `ratio`, not to unit mass. Where an excess is found, cells are
    looked at once more at the lowered prices: the two then agree but for what is still found.
    """
    high, most, _ = _scan(program, prices)
    if most > _NONE:
        again, more, bound = _scan(program, prices.lowered(most, program.prior))
        high, most = distinct(np.vstack([high, again])), most + max(more, bound, 0.0)
    return PricedSets(
        _largest(high, program.excess(prices, high)), most, is_proved=True, prices=prices
    )


def _scan(program: ConeProgram, prices: Prices) -> tuple[BoolArray, float, float]:
    """Sets with the largest excess; the largest; and the largest times its set's mass."""
    features = _features(program, prices)
    found = [np.zeros((0, program.n_categories), np.bool_)]
    # Outside of every sphere: the step of one level, whose mass is one.
    most = most_mass = float(_excess(program, features, np.zeros(len(features)))[0])
    for inside, meeting in corners(program, prices):
        # The cells around a point; axes `[point, pattern]`.
        spheres = features.T[meeting]  # [point, sphere, feature]
        sums = (inside @ features.T)[:, np.newaxis] + patterns(meeting.shape[1]) @ spheres
        excess, mass = _excess(program, features, sums)
        if not excess.size:
            continue
        most = max(most, float(excess.max()))
        most_mass = max(most_mass, float((excess * mass).max()))
        found.append(_worth_adding(inside, meeting, excess))
    high = _proper(np.vstack(found))
    return _largest(high, program.excess(prices, high)), most, most_mass


def _worth_adding(inside: BoolArray, meeting: IntArray, excess: FloatArray) -> BoolArray:
    """The sets with the largest excess around points, if above 0."""
    flat = excess.ravel()
    chosen = np.flatnonzero(flat > _NONE)
    if len(chosen) > _MOST_RETURNED:
        chosen = chosen[np.argpartition(-flat[chosen], _MOST_RETURNED)[:_MOST_RETURNED]]
    point, pattern = np.divmod(chosen, excess.shape[1])
    high = inside[point]
    is_inside = patterns(meeting.shape[1])[pattern] > 0
    np.put_along_axis(high, meeting[point], is_inside, axis=1)
    return high


def _features(program: ConeProgram, prices: Prices) -> FloatArray:
    """What adds up over a set: prices and prior; axes `[feature, category]`."""
    return np.vstack([prices.total, prices.mean, program.prior])


def _excess(
    program: ConeProgram, features: FloatArray, sums: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Excess of sets, and their mass Σ p·L at levels of 1 and `ratio`, from sums over them."""
    weighted = features.sum(axis=1) + (program.ratio - 1) * sums
    mass = weighted[..., -1]
    means = weighted[..., 1:-1]
    return weighted[..., 0] / mass + (means**2).sum(axis=-1) / (4 * mass**2), mass


def _largest(high: BoolArray, excess: FloatArray) -> BoolArray:
    """The sets of the largest excess above 0, largest first."""
    order = np.argsort(-excess, kind="stable")[:_MOST_RETURNED]
    return high[order[excess[order] > _NONE]]
