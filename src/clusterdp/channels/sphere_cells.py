"""Every high set that can be best for some output, at given prices.

At output s the best high set holds the categories whose g_y(s) = p(y)·|s|² − u(y) − s·v(y) is
negative: those whose sphere {g_y = 0} has s inside. So the sets that matter are the cells of an
arrangement of K spheres in as many dimensions as there are metrics: O(K^m) sets, not 2^K. On the
border of every cell there is a point where j ≤ m spheres meet (for j < m any such point will do if
no other sphere cuts them there). The cells beside that point agree on the other categories and take
every combination of the j. For one metric this is a sweep over the roots of K parabolas.

A tiny disturbance of prices brings spheres into general position, where no more than m meet.
"""

from __future__ import annotations

from itertools import combinations, islice, product
from math import comb
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.cone_program import Prices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.channels.cone_program import ConeProgram

# Subsets of spheres looked at together.
_CHUNK = 16_384
# The disturbance, relative to the largest price.
_DISTURBANCE = 1e-11


class Corner(NamedTuple):
    """Points where spheres meet, many at once.

    Attributes:
        inside: The other categories whose spheres hold the point; axes `[point, category]`.
        meeting: The categories whose spheres meet there; axes `[point, sphere]`.
    """

    inside: BoolArray
    meeting: IntArray


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


def corners(program: ConeProgram, prices: Prices) -> Iterator[Corner]:
    """Points on the border of every cell."""
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
                yield Corner(inside, meeting[valid])


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
