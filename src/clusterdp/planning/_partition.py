"""Which outcomes form a question, and how often each question is asked.

A unit is asked one question, by a public hash, and answers with all the ε of rows. Asked of a share
π of n units, a metric has variance (σ² + v)/(nπ), v the noise of the question's channel and of
rounding numbers to its grids. With

    c_q = Σ_{j∈q} w_j (σ_j² + v_j)

over the metrics of a question, each relative to its own variance, all of them add up to Σ c_q/π_q,
which is least for π_q ∝ √c_q, and then (Σ √c_q)². Linked outcomes are one question. Others are
put together where that lowers this sum: at ε ≤ 1 hardly ever, and at higher ε if they are small.

No question is asked less often than half of an even share. The sum is ruled by the noisiest metric:
revenue of few buyers, of which rows show nothing in a segment however often it is asked, would take
nearly everyone, and conversions would be asked of one person in twenty.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels._solver.staircases import k_ary_noise, near_noise
from clusterdp.channels.base import ASKED_TOTAL, LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON
from clusterdp.outcomes.baseline import (
    FEWEST_POINTS,
    QUICK_CATEGORIES,
    FittedOutcomes,
    place_grids,
    usual_points,
    with_points,
)
from clusterdp.outcomes.categories import MOST_CATEGORIES
from clusterdp.outcomes.declaration import declared_of, linked_outcomes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.outcomes.baseline import Margin
    from clusterdp.outcomes.categories import Categories
    from clusterdp.outcomes.declaration import DeclaredOutcomes, Names

# What is assumed where no budget is given yet, and the share of it that rows will have.
_USUAL_EPSILON, _OF_ROWS = 1.0, 0.9
# Unrelated outcomes are put together up to so many combinations: such channels are designed in
# milliseconds. From so large an ε on k-ary response is good enough to judge larger ones.
_PACKED, _LARGE_EPSILON = 16, 4.0
# A question is asked at least so often, as a share of an even one.
_LEAST_OFTEN = 0.5
# Questions are merged where that lowers the sum by more than this share; numbers have rounding.
_GAIN = 0.005


class Partition(NamedTuple):
    """Outcomes in questions.

    Attributes:
        questions: The outcomes of each question.
        asked: Of how many of `ASKED_TOTAL` units each is asked.
        saving: How many times the noise would be larger if outcomes shared ε instead.
    """

    questions: tuple[Names, ...]
    asked: tuple[int, ...]
    saving: float = 1.0


def best_partition(
    declared: DeclaredOutcomes, margins: Mapping[str, Margin], epsilon: float | None
) -> Partition:
    """The questions of least predicted variance.

    Args:
        declared: The declared outcomes.
        margins: What is declared of each outcome, by name.
        epsilon: The budget; None if it is not decided yet.

    Raises:
        ParameterError: If linked outcomes alone have too many categories for a channel.
    """
    groups = linked_outcomes(declared)
    if len(groups) == 1:
        return Partition(groups, (ASKED_TOTAL,))
    budget = _row_epsilon(epsilon)
    parts = [_Part(declared, margins, names) for names in groups]
    way = _merged([(part,) for part in parts], budget)
    costs = [_cost(question, budget) for question in way]
    names = [_names(declared, question) for question in way]
    spread, shares = sum(part.spread for part in parts), _how_often(costs)
    noise = sum(cost / share for cost, share in zip(costs, shares, strict=True)) - spread
    return Partition(
        questions=tuple(names),
        asked=whole_shares(shares),
        saving=(_shared_budget(parts, budget) - spread) / noise,
    )


def asked_shares(
    declared: DeclaredOutcomes,
    margins: Mapping[str, Margin],
    epsilon: float | None,
    questions: Sequence[Names],
) -> tuple[int, ...]:
    """How often questions that were chosen should be asked, of `ASKED_TOTAL`."""
    if len(questions) == 1:
        return (ASKED_TOTAL,)
    parts = [_Part(declared, margins, names) for names in questions]
    return whole_shares(_how_often([part.alone(_row_epsilon(epsilon)) for part in parts]))


def _how_often(costs: Sequence[float]) -> list[float]:
    """π of each question: in the ratio of √c, but for those that would be asked too rarely."""
    roots = np.sqrt(np.array(costs, dtype=np.float64))
    least, rare = _LEAST_OFTEN / len(costs), np.zeros(len(costs), dtype=np.bool_)
    while True:
        left = 1 - least * np.count_nonzero(rare)
        shares = np.where(rare, least, left * roots / roots[~rare].sum())
        if (shares >= least).all():
            return [float(share) for share in shares]
        rare |= shares < least


def whole_shares(weights: Sequence[float]) -> tuple[int, ...]:
    """Integers in the ratio of weights that add up to `ASKED_TOTAL`; each is at least 1."""
    wanted = np.array(weights, dtype=np.float64) / math.fsum(weights) * ASKED_TOTAL
    whole = np.maximum(np.floor(wanted), 1).astype(np.int64)
    while left := ASKED_TOTAL - int(whole.sum()):
        # What is left goes to questions that lack most; what is too much comes from the largest.
        place = np.argmax(wanted - whole if left > 0 else whole)
        whole[place] += np.sign(left)
    return tuple(whole.tolist())


def most_categories(epsilon: float | None) -> int:
    """How many categories a question should have, if its numbers can have fewer points."""
    return MOST_CATEGORIES if _row_epsilon(epsilon) >= _LARGE_EPSILON else QUICK_CATEGORIES


def _row_epsilon(epsilon: float | None) -> float:
    wanted = _OF_ROWS * (epsilon or _USUAL_EPSILON)
    return min(max(wanted, SMALLEST_ROW_EPSILON), LARGEST_ROW_EPSILON)


class _Table(NamedTuple):
    """Categories as far as a channel depends on them.

    Attributes:
        values: Axes `[metric, category]`.
        probs: What categories are thought to be like; axes `[category]`.
        rounding: The variance that rounding to them adds; axes `[metric]`.
    """

    values: FloatArray
    probs: FloatArray
    rounding: FloatArray

    def joined_with(self, other: _Table) -> _Table:
        """Every combination of both."""
        n_ours, n_theirs = len(self.probs), len(other.probs)
        values = [np.repeat(self.values, n_theirs, axis=1), np.tile(other.values, (1, n_ours))]
        rounding = np.concatenate([self.rounding, other.rounding])
        return _Table(np.concatenate(values), np.outer(self.probs, other.probs).ravel(), rounding)


class _Part:
    """Linked outcomes.

    Args:
        declared: All outcomes.
        margins: What is declared of each, by name.
        names: Those that are linked.

    Attributes:
        names: Their names.
        tables: Their categories by the most points that numbers have, most first.
        usual: Their categories if they are a question of their own.
        weights: w of each metric.
        spread: Σ w_j σ_j².
    """

    def __init__(
        self, declared: DeclaredOutcomes, margins: Mapping[str, Margin], names: Names
    ) -> None:
        own = declared_of(declared, names)
        known = {name: margin for name, margin in margins.items() if name in own.margin_spaces}
        fitted = FittedOutcomes(own, known)
        points = range(usual_points(own), FEWEST_POINTS - 1, -1) if own.numbers else [FEWEST_POINTS]
        found = {n_points: with_points(own, fitted.densities, n_points) for n_points in points}
        self.tables = {
            n_points: _table(fitted, one) for n_points, one in found.items() if one is not None
        }
        self.usual = _table(fitted, place_grids(own, fitted.densities))
        # Relative to variances of true outcomes, which are on the fine grid.
        self.weights = fitted.fine.metric_weights(fitted.prior.probs)
        self.names, self.spread = names, float(sum(own.multipliers))

    def alone(self, epsilon: float) -> float:
        """The c of these outcomes as a question."""
        noise = _designed(self.usual, self.weights, epsilon) + self.usual.rounding
        return self.spread + float(self.weights @ noise)

    def table(self, n_points: int) -> _Table | None:
        """The categories if numbers have at most so many points; None if they need more."""
        return next((one for most, one in self.tables.items() if most <= n_points), None)


def _table(fitted: FittedOutcomes, categories: Categories) -> _Table:
    """Some categories of outcomes that were fitted."""
    prior = fitted.prior_of(categories)
    return _Table(categories.metric_values(), prior.probs, prior.rounding)


Question = tuple[_Part, ...]


def _cost(parts: Question, epsilon: float) -> float:
    """The c of a question; infinite if it has too many categories."""
    if len(parts) == 1:
        return parts[0].alone(epsilon)
    weights = np.concatenate([part.weights for part in parts])
    table, spread = _combined(parts, _PACKED), sum(part.spread for part in parts)
    cost = math.inf
    if table is not None:
        noise = _designed(table, weights, epsilon) + table.rounding
        cost = spread + float(weights @ noise)
    if epsilon >= _LARGE_EPSILON and (larger := _combined(parts, MOST_CATEGORIES)) is not None:
        noise = k_ary_noise(larger.values, larger.probs, math.exp(epsilon)) + larger.rounding
        cost = min(cost, spread + float(weights @ noise))
    return cost


def _combined(parts: Question, most: int) -> _Table | None:
    """All combinations with the most points that leave at most so many; None if none do."""
    for n_points in range(
        max(max(part.tables, default=0) for part in parts), FEWEST_POINTS - 1, -1
    ):
        tables = [part.table(n_points) for part in parts]
        if any(table is None for table in tables):
            return None
        if math.prod(len(table.probs) for table in tables if table is not None) <= most:
            whole, *others = (table for table in tables if table is not None)
            for other in others:
                whole = whole.joined_with(other)
            return whole
    return None


def _designed(table: _Table, weights: FloatArray, epsilon: float) -> FloatArray:
    """The noise variance of a unit in each metric, by the best channel; axes `[metric]`."""
    values = tuple(map(tuple, table.values.tolist()))
    return _remembered_noise(values, tuple(table.probs.tolist()), tuple(weights.tolist()), epsilon)


@lru_cache(maxsize=512)
def _remembered_noise(
    values: tuple[tuple[float, ...], ...],
    probs: tuple[float, ...],
    weights: tuple[float, ...],
    epsilon: float,
) -> FloatArray:
    """Outcomes of one kind have the same channels; see `_designed`."""
    every, prior = np.array(values), np.array(probs)
    found = near_noise(every, prior, np.array(weights), ratio=math.exp(epsilon))
    if found is None:
        return k_ary_noise(every, prior, math.exp(epsilon))
    return np.asarray(found @ prior)


def _merged(way: list[Question], epsilon: float) -> list[Question]:
    """Questions that were merged two by two, each time those that gain the most."""
    while True:
        roots = {question: math.sqrt(_cost(question, epsilon)) for question in way}
        whole = sum(roots.values())
        gains = [
            (roots[one] + roots[other] - math.sqrt(_cost(one + other, epsilon)), one, other)
            for one, other in itertools.combinations(way, 2)
        ]
        gain, one, other = max(gains, key=lambda found: round(found[0], 9), default=(0.0, (), ()))
        if gain <= _GAIN * whole:
            return way
        place = way.index(one)
        way = [question for question in way if question is not other]
        way[place] = one + other


def _shared_budget(parts: Sequence[_Part], epsilon: float) -> float:
    """The same sum if every part had a share of ε instead, which is best for noise ∝ 1/ε²."""
    shares = np.cbrt([part.alone(epsilon) - part.spread for part in parts])
    shares = np.maximum(epsilon * shares / shares.sum(), SMALLEST_ROW_EPSILON)
    return sum(part.alone(float(share)) for part, share in zip(parts, shares, strict=True))


def _names(declared: DeclaredOutcomes, parts: Question) -> Names:
    held = {name for part in parts for name in part.names}
    return tuple(name for name in declared.names if name in held)
