"""Which outcomes share a channel, and how blocks share ε: where one channel cannot serve all.

Blocks are compared by the noise of their rows, summed over metrics, each relative to its own
variance. It is predicted by two channels that exist for every block, of which the better one counts
(the optimal channel is at least as good):

- k-ary randomized response, with λ = K/(e^ε + K − 1): λ/(1 − λ) + λ/(1 − λ)²·v/Var of a metric,
  where v is its variance if all categories are equally likely;
- one metric at random, through Warner's response to its two ends:
  coth²(ε/2)·(Σ √w·h)² − Σ w·E(y − m)², where h is half the range and m its middle.

A number that is rounded to g points adds about 2/(g − 1)² of its variance. Blocks compose: shares
of ε are such that a little more of it gains as much in every block. The second channel shows why
few and unequal blocks are best: at small ε a block costs (Σ √w·h)²/ε², which splitting ε makes
worse than it makes better.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.experiment.blocks import declared_of, linked_outcomes
from clusterdp.experiment.categories import MOST_CATEGORIES, TooManyCategoriesError
from clusterdp.experiment.chosen_grids import choose_categories, place_grids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.blocks import Names
    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.experiment.margins import Margin

# With more groups of linked outcomes, blocks are merged one by one; with fewer, all ways are tried.
_MOST_TRIED = 8
# What is assumed where no budget is given yet.
_USUAL_EPSILON = 1.0
# Rounds in which shares are made equal at the margin, and the step of their derivatives.
_ROUNDS, _STEP = 8, 1e-4
# Fewer points of a number are not worth a larger block: they show little but its mean.
_FEWEST_POINTS = 4
_DIGITS = 4
_LEAST_SHARE = 0.005


class Partition(NamedTuple):
    """Outcomes in blocks.

    Attributes:
        blocks: The outcomes of each block.
        shares: The share of ε of each.
        cost: The predicted noise of all rows, relative to the variances of metrics.
        one_block: The same if one channel could serve all outcomes; see `best_partition`.
        separate: The same if every group of linked outcomes had a channel of its own.
    """

    blocks: tuple[Names, ...]
    shares: tuple[float, ...]
    cost: float
    one_block: float
    separate: float


def fits_one_block(declared: DeclaredOutcomes) -> bool:
    """Whether one channel can serve all outcomes."""
    try:
        place_grids(declared, dict.fromkeys(declared.numbers), 2)
    except TooManyCategoriesError:
        return False
    return True


def best_partition(
    declared: DeclaredOutcomes, margins: Mapping[str, Margin], epsilon: float | None, n_points: int
) -> Partition:
    """The blocks of least predicted noise, where one channel cannot serve all outcomes.

    What one block would cost is predicted by the second channel above, which needs no more
    categories than its outcomes have ends.

    Args:
        declared: The declared outcomes.
        margins: What is declared of each outcome, by name.
        epsilon: The budget; None if there is none yet.
        n_points: Points of each number's grid, where they fit.

    Raises:
        ParameterError: If linked outcomes alone have too many categories for a channel.
    """
    budget = epsilon or _USUAL_EPSILON
    groups = linked_outcomes(declared)
    parts = [_Part.of(declared, margins, names, n_points) for names in groups]
    alone: Way = tuple((part,) for part in parts)

    def judged(way: Way) -> tuple[float, tuple[int, ...]]:
        # Of ways that are as good, the one that keeps neighbours together.
        return _in_short(way, budget), _order(way, parts)

    best = min(_ways(parts, budget), key=judged)
    ordered = sorted(best, key=lambda block: parts.index(block[0]))
    names = tuple(_names(declared, block) for block in ordered)
    return Partition(
        blocks=names,
        shares=rounded_shares(best_shares([_block(one) for one in ordered], budget)),
        cost=_cost(best, budget),
        one_block=_one_metric_at_random(parts)(budget),
        separate=_cost(alone, budget),
    )


def shares_of(
    declared: DeclaredOutcomes,
    margins: Mapping[str, Margin],
    epsilon: float | None,
    n_points: int,
    blocks: Sequence[Names],
) -> tuple[float, ...]:
    """The best shares of ε of blocks that were chosen."""
    parts = [_Part.of(declared, margins, names, n_points) for names in blocks]
    costs = [_block((part,)) for part in parts]
    return rounded_shares(best_shares(costs, epsilon or _USUAL_EPSILON))


def best_shares(costs: Sequence[Callable[[float], float]], epsilon: float) -> FloatArray:
    """Shares of ε at which a little more gains as much in every block; axes `[block]`.

    Costs fall about as 1/ε², so that their slopes fall as 1/ε³: one round would do if they did so
    exactly.
    """
    shares = np.full(len(costs), 1 / len(costs))
    for _ in range(_ROUNDS if len(costs) > 1 else 0):
        slopes = [
            cost(share * epsilon * (1 - _STEP)) - cost(share * epsilon * (1 + _STEP))
            for cost, share in zip(costs, shares, strict=True)
        ]
        wanted = shares * np.cbrt(np.maximum(slopes, 1e-300) / shares)
        shares = np.maximum(wanted / wanted.sum(), _LEAST_SHARE)
    return np.asarray(shares / shares.sum())


def rounded_shares(shares: FloatArray) -> tuple[float, ...]:
    """Shares in a few digits that add up to 1; the last one takes the rest."""
    first = [round(float(share), _DIGITS) for share in shares[:-1]]
    return (*first, round(1 - sum(first), _DIGITS))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """Linked outcomes, as far as their noise depends on them; sums are over their metrics.

    Attributes:
        names: Their names.
        sizes: How many categories they have if numbers have at most so many points, by points.
        n_numbers: How many of them are numbers.
        weights: The sum of w·Var, by which metrics count.
        halves: The sum of √w·h.
        squares: The sum of w·E(y − m)².
        uniform: The sum of w·v.
    """

    names: Names
    sizes: dict[int, int]
    n_numbers: int
    weights: float
    halves: float
    squares: float
    uniform: float

    @classmethod
    def of(
        cls,
        declared: DeclaredOutcomes,
        margins: Mapping[str, Margin],
        names: Names,
        n_points: int,
    ) -> _Part:
        own = declared_of(declared, names)
        known = {name: margin for name, margin in margins.items() if name in own.margin_spaces}
        categories, prior = choose_categories(own, known, n_points)
        values = categories.metric_values()
        low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
        weights = categories.metric_weights(prior.probs)
        points = range(2, n_points + 1) if own.numbers else [n_points]
        return cls(
            names=names,
            sizes=_sizes(own, points),
            n_numbers=len(own.numbers),
            weights=sum(own.multipliers),
            halves=float(np.sqrt(weights) @ (high - low)[:, 0] / 2),
            squares=float(weights @ ((values - (low + high) / 2) ** 2 @ prior.probs)),
            uniform=float(weights @ values.var(axis=1)),
        )


Way = tuple[tuple[_Part, ...], ...]


def _sizes(declared: DeclaredOutcomes, points: Sequence[int]) -> dict[int, int]:
    """How many categories outcomes have, by the most points that their numbers may have."""
    densities = dict.fromkeys(declared.numbers)
    return {n: place_grids(declared, densities, n).n_categories for n in points}


def _block(parts: tuple[_Part, ...]) -> Callable[[float], float]:
    """The predicted noise of a block at any ε."""
    n_points, n_categories = _points(parts) or (2, MOST_CATEGORIES)
    weights = sum(part.weights for part in parts)
    uniform = sum(part.uniform for part in parts)
    rounding = 2 * sum(part.n_numbers for part in parts) / (n_points - 1) ** 2
    at_random = _one_metric_at_random(parts)

    def cost(epsilon: float) -> float:
        kept = math.expm1(epsilon) / (math.exp(epsilon) + n_categories - 1)
        redrawn = 1 - kept
        k_ary = weights * redrawn / kept + uniform * redrawn / kept**2
        return min(k_ary, at_random(epsilon)) + rounding

    return cost


def _one_metric_at_random(parts: Sequence[_Part]) -> Callable[[float], float]:
    """The noise at any ε if a unit's row tells of one metric alone, chosen at random."""
    halves, squares = sum(one.halves for one in parts), sum(one.squares for one in parts)
    return lambda epsilon: (halves / math.tanh(epsilon / 2)) ** 2 - squares


def _points(parts: Sequence[_Part]) -> tuple[int, int] | None:
    """The most points that numbers can have in a block, and its categories; None if none fit.

    Linked outcomes alone may have as few as they must.
    """
    most = max(max(part.sizes) for part in parts)
    for n_points in range(most, 1 if len(parts) == 1 else _FEWEST_POINTS - 1, -1):
        n_categories = math.prod(
            part.sizes[max((n for n in part.sizes if n <= n_points), default=min(part.sizes))]
            for part in parts
        )
        if n_categories <= MOST_CATEGORIES:
            return n_points, n_categories
    return None


def _in_short(way: Way, epsilon: float) -> float:
    """The cost in a few digits, so that rounding decides nothing."""
    return float(f"{_cost(way, epsilon):.6g}")


def _order(way: Way, parts: list[_Part]) -> tuple[int, ...]:
    """The block of each part, by number, blocks in the order of their first part."""
    ordered = sorted(way, key=lambda block: min(map(parts.index, block)))
    return tuple(
        next(place for place, block in enumerate(ordered) if part in block) for part in parts
    )


def _cost(way: Way, epsilon: float) -> float:
    costs = [_block(parts) for parts in way]
    shares = best_shares(costs, epsilon)
    return sum(cost(share * epsilon) for cost, share in zip(costs, shares, strict=True))


def _ways(parts: list[_Part], epsilon: float) -> Iterator[Way]:
    """Ways to put parts into blocks that a channel can serve."""
    if len(parts) > _MOST_TRIED:
        yield _merged(parts, epsilon)
        return
    for way in _partitions(len(parts)):
        blocks = tuple(tuple(parts[place] for place in block) for block in way)
        if all(_points(block) is not None for block in blocks):
            yield blocks


def _merged(parts: list[_Part], epsilon: float) -> Way:
    """Blocks that were merged two by two, each time those that gain the most."""
    way: Way = tuple((part,) for part in parts)
    while True:
        tried = [
            (*(block for block in way if block not in (one, other)), one + other)
            for one, other in itertools.combinations(way, 2)
            if _points(one + other) is not None
        ]
        best = min(tried, key=lambda blocks: _in_short(blocks, epsilon), default=way)
        if _in_short(best, epsilon) >= _in_short(way, epsilon):
            return way
        way = best


@functools.cache
def _partitions(n_places: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Every way to put the places below a number into blocks."""
    if n_places == 0:
        return ((),)
    found = []
    for way in _partitions(n_places - 1):
        found.append((*way, (n_places - 1,)))
        for place, block in enumerate(way):
            found.append((*way[:place], (*block, n_places - 1), *way[place + 1 :]))
    return tuple(found)


def _names(declared: DeclaredOutcomes, parts: tuple[_Part, ...]) -> Names:
    held = {name for part in parts for name in part.names}
    return tuple(name for name in declared.names if name in held)
