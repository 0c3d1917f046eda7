"""Which high sets would lower the cost at given prices, and at most by how much.

A high set's excess U_A + |V_A|²/4 is what a unit of its mass would save. If none exceeds c, prices
lowered by c are feasible in the dual, which bounds the cost of every channel from below. Three ways
to find the largest excess: over all 2^K sets; over the cells of an arrangement of spheres, which is
as exact; and by local search, which finds good sets but proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.high_sets import distinct, members
from clusterdp.channels.sphere_cells import corners, disturbed, n_cells, patterns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import BoolArray, FloatArray
    from clusterdp.channels.cone_program import ConeProgram, Mixture, Prices
    from clusterdp.channels.sphere_cells import Corner

# Up to this many categories all sets can be looked at.
MOST_FOR_ALL_SETS = 16
# Up to so many sets pricing is exact in every round, and up to so many at the end.
_MOST_EVERY_ROUND, _MOST_AT_ALL = 2**17, 2**26
# Sets returned at most.
_MOST_RETURNED = 400
# An excess up to this is none.
_NONE = 1e-11
_LOCAL_STEPS, _MORE_STARTS = 8, 5000


class Priced(NamedTuple):
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
    if program.n_categories <= MOST_FOR_ALL_SETS:
        return min(cells, 1 << program.n_categories)
    return cells


def is_exact_every_round(program: ConeProgram) -> bool:
    """Whether exact pricing is fast enough to be done often."""
    return n_sets_to_price(program) <= _MOST_EVERY_ROUND


def can_be_exact(program: ConeProgram) -> bool:
    """Whether exact pricing is possible at all."""
    return n_sets_to_price(program) <= _MOST_AT_ALL


def price(program: ConeProgram, prices: Prices, mixture: Mixture) -> Priced:
    """Sets to add: exactly where that is fast, else by local search around a mixture."""
    if is_exact_every_round(program):
        return price_exactly(program, prices)
    return price_locally(program, prices, mixture)


def price_exactly(program: ConeProgram, prices: Prices) -> Priced:
    """The sets with the largest excess, and a bound on it that holds for every set."""
    if n_sets_to_price(program) == 1 << program.n_categories:
        return price_all_sets(program, prices)
    return price_cells(program, disturbed(prices))


def price_locally(program: ConeProgram, prices: Prices, mixture: Mixture) -> Priced:
    """Sets found by turns: the best set for an output, the best output for a set.

    Turns begin at the outputs of the mixture, at the best one of every set in it, at the centres of
    spheres (see `sphere_cells`), and at random places between these.
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
        high = distinct(cost < prices.total + outputs @ prices.mean)
        high = high[high.any(axis=1) & ~high.all(axis=1)]
        found.append(high)
        outputs = program.levels(high) @ prices.mean.T / 2
    high = distinct(np.vstack(found))
    excess = program.excess(prices, high)
    return Priced(
        _largest(high, excess), float(excess.max(initial=0.0)), is_proved=False, prices=prices
    )


def _spread(points: FloatArray) -> FloatArray:
    """Points, and random ones on lines between pairs of them; axes `[point, metric]`."""
    # The seed is fixed: a channel follows from its prior, and nothing secret is drawn.
    rng = np.random.default_rng(0)
    first, second = points[rng.integers(len(points), size=(2, _MORE_STARTS))]
    share = rng.random((_MORE_STARTS, 1))
    return np.vstack([points, share * first + (1 - share) * second])


def price_all_sets(program: ConeProgram, prices: Prices) -> Priced:
    """Excess of every set, by sums over subsets."""
    sums = np.zeros((1, program.n_metrics + 2))
    features = _features(program, prices)
    for category in features.T:
        sums = np.vstack([sums, sums + category])
    excess, _ = _excess(program, features, sums)
    excess[[0, -1]] = -np.inf
    chosen = np.argsort(-excess, kind="stable")[:_MOST_RETURNED]
    high = members(chosen, program.n_categories)
    return Priced(
        _largest(high, excess[chosen]), float(excess.max()), is_proved=True, prices=prices
    )


def price_cells(program: ConeProgram, prices: Prices) -> Priced:
    """Excess of every set that is best for some output.

    Cells belong to levels of 1 and `ratio`, not to unit mass. Where an excess is found, cells are
    looked at once more at the lowered prices: the two then agree but for what is still found.
    """
    high, most, _ = _scan(program, prices)
    if most > _NONE:
        again, more, bound = _scan(program, prices.lowered(most, program.prior))
        high, most = distinct(np.vstack([high, again])), most + max(more, bound, 0.0)
    return Priced(_largest(high, program.excess(prices, high)), most, is_proved=True, prices=prices)


def _scan(program: ConeProgram, prices: Prices) -> tuple[BoolArray, float, float]:
    """Sets with the largest excess; the largest; and the largest times its set's mass."""
    features = _features(program, prices)
    found = [np.zeros((0, program.n_categories), np.bool_)]
    # Outside of every sphere: the step of one level, whose mass is one.
    most = most_mass = float(_excess(program, features, np.zeros(len(features)))[0])
    for corner in corners(program, prices):
        excess, mass = _corner_excess(program, features, corner)
        if not excess.size:
            continue
        most = max(most, float(excess.max()))
        most_mass = max(most_mass, float((excess * mass).max()))
        found += _worth_adding(corner, excess)
    high = distinct(np.vstack(found))
    high = high[high.any(axis=1) & ~high.all(axis=1)]
    return _largest(high, program.excess(prices, high)), most, most_mass


def _corner_excess(
    program: ConeProgram, features: FloatArray, corner: Corner
) -> tuple[FloatArray, FloatArray]:
    """Excess and mass of the cells around points; axes `[point, pattern]`."""
    others = corner.inside @ features.T
    meeting = features.T[corner.meeting]  # [point, sphere, feature]
    sums = others[:, np.newaxis] + patterns(corner.meeting.shape[1]) @ meeting
    return _excess(program, features, sums)


def _worth_adding(corner: Corner, excess: FloatArray) -> Iterator[BoolArray]:
    """The sets with the largest excess around points, if above 0."""
    flat = excess.ravel()
    chosen = np.flatnonzero(flat > _NONE)
    if len(chosen) > _MOST_RETURNED:
        chosen = chosen[np.argpartition(-flat[chosen], _MOST_RETURNED)[:_MOST_RETURNED]]
    point, pattern = np.divmod(chosen, excess.shape[1])
    high = corner.inside[point]
    is_inside = patterns(corner.meeting.shape[1])[pattern] > 0
    np.put_along_axis(high, corner.meeting[point], is_inside, axis=1)
    yield high


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
