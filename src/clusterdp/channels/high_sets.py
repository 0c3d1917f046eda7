"""High sets to begin with: what a good channel is likely to be made of."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.channels.cone_program import ConeProgram

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
