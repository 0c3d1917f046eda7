"""What outcomes are thought to be like, before any is read. It decides efficiency, nothing else.

**Margins.** One outcome has a margin such as `0.15` (the share of the larger of two values),
`0.5,0.3,0.2` (a share for each value, or for equal parts of a number's range), `mean:2,std:1` or
`mean:2`. It becomes linear constraints: the mean of some functions of the level is known. For an
outcome that may be missing it is about units with an observed outcome, so that E[f | R] = t is the
constraint E[R·(f − t)] = 0; their share has a margin of its own, `spend_observed=0.9`.

**The prior.** Outcomes are taken as independent but for the constraints. That is the distribution
closest to a base measure (in relative entropy) among those that keep the constraints and have the
declared shares and moments: p(x) ∝ Π_j b_j(x_j) exp(θ_j · f_j(x_j)) over the combinations that
exist, with the base b uniform over the values or over the range of each outcome. For shares alone,
iterative proportional fitting has the same limit. A moment, unlike a whole margin, leaves room for
what constraints say: `spend=mean:1,std:15` and `conversion=0.01` agree with
`spend>0 -> conversion`.

**Grids.** The prior is fitted on fine grids first. The grids of the release are then placed where
each number has its mass, and the prior of the release is that of the rounded numbers. Rounding
keeps means and adds variance, which is part of the noise of rows: how much is known from both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._lists import parse_named, parse_numbers
from clusterdp.errors import ParameterError
from clusterdp.outcomes.categories import MOST_FINE_CATEGORIES, Categories, TooManyCategoriesError
from clusterdp.outcomes.grid import Density, Grid, needed_points, place_grid
from clusterdp.outcomes.metric import OBSERVED, check_declared
from clusterdp.outcomes.number import Number

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.outcomes.number import Space


_MOMENTS = re.compile(r"\s*mean:([^,]+)(?:,\s*std:(.+))?")
# A baseline is published as it is. What a table shows belongs to its units, and costs ε.
_DECLARED = (
    "a baseline must be OUTCOME=MARGIN (visit=0.15), got {!r}; declare numbers, because a baseline "
    "is published and never taken from the table"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueShares:
    """The share of each value of an outcome, or of each of equal parts of a number's range.

    Attributes:
        shares: Shares of at least 0, which sum to 1.
        number: The number; None of an outcome with finitely many values.
    """

    shares: tuple[float, ...]
    number: Number | None = None

    def constraints(self, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Functions of the level and their means; axes `[constraint, level]`, `[constraint]`."""
        parts = np.arange(len(levels))
        if self.number is not None:
            ends = np.linspace(self.number.low, self.number.high, len(self.shares) + 1)
            parts = np.searchsorted(ends[1:-1], levels, side="right")
        return np.eye(len(self.shares))[:, parts], np.array(self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """The mean of an outcome, and how it spreads.

    Attributes:
        mean: The mean.
        std: The standard deviation; None if it is not declared.
    """

    mean: float
    std: float | None = None

    def constraints(self, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Functions of the level and their means; axes `[constraint, level]`, `[constraint]`."""
        scaled = (levels - self.mean) / (self.std or np.ptp(levels))
        if self.std is None or len(levels) == 2:
            return scaled[np.newaxis], np.zeros(1)
        return np.stack([scaled, scaled**2]), np.array([0.0, 1.0])


Margin = ValueShares | Moments


def parse_margin(name: str, given: str | Sequence[float] | float, space: Space) -> Margin:
    """The margin of an outcome as people write it.

    Args:
        name: The outcome, for messages.
        given: Such as `0.15`, `0.5,0.3,0.2`, `mean:2,std:1`; or numbers.
        space: The space of the outcome.
    """
    moments = _MOMENTS.fullmatch(given) if isinstance(given, str) else None
    if moments:
        parts = [part for part in moments.groups() if part is not None]
        return _checked_moments(name, parse_numbers(",".join(parts)), space)
    try:
        numbers = parse_numbers([given] if isinstance(given, int | float) else given)
    except ParameterError:
        raise ParameterError(_DECLARED.format(given)) from None
    if isinstance(space, Number):
        shares = _checked_shares(name, numbers, max(2, len(numbers)))
        return ValueShares(shares=shares, number=space)
    if len(numbers) == 1 and space.n_categories == 2:
        if not 0 <= numbers[0] <= 1:
            raise ParameterError(
                f"the baseline of {name!r} is the share of {space.values[1]:g}, which lies "
                f"between 0 and 1; got {numbers[0]:g}"
            )
        numbers = [1 - numbers[0], numbers[0]]
    return ValueShares(shares=_checked_shares(name, numbers, space.n_categories))


def parse_margins(
    given: Mapping[str, str | Sequence[float] | float] | Iterable[str], spaces: Mapping[str, Space]
) -> dict[str, Margin]:
    """The margins of several outcomes, by name, or as texts such as `visit=0.15`."""
    if not isinstance(given, Mapping):
        given = dict(parse_named(text, _DECLARED) for text in given)
    check_declared("baseline names", given, spaces)
    return {name: parse_margin(name, margin, spaces[name]) for name, margin in given.items()}


def _checked_moments(name: str, numbers: list[float], space: Space) -> Moments:
    mean, std = numbers[0], numbers[1] if len(numbers) > 1 else None
    low, high = space.low, space.high
    if not low < mean < high:
        raise ParameterError(
            f"the mean of {name!r} must lie between {low:g} and {high:g}, got {mean:g}"
        )
    largest = math.sqrt((high - mean) * (mean - low))
    if std is not None and not 0 < std <= largest:
        raise ParameterError(
            f"the std of {name!r} must be above 0 and at most {largest:.6g}, which is the most "
            f"that is possible about its mean, got {std:g}"
        )
    return Moments(mean=mean, std=std)


def _checked_shares(name: str, numbers: list[float], n_wanted: int) -> tuple[float, ...]:
    sound = all(math.isfinite(number) and number >= 0 for number in numbers) and sum(numbers) > 0
    if not sound or len(numbers) != n_wanted:
        raise ParameterError(
            f"the baseline of {name!r} must be {n_wanted} shares of at least 0, got "
            f"{len(numbers)} numbers; give a share for each value, or mean:M,std:S"
        )
    return tuple(number / sum(numbers) for number in numbers)


# Keeps the parameters finite where declared margins contradict the constraints.
_RIDGE = 1e-9
_MOST_ROUNDS = 200
_GRADIENT = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointPrior:
    """A distribution over categories.

    Attributes:
        probs: The probability of each category; axes `[category]`.
        misses: For each declared margin, by outcome, how far it is missed: in shares, or in
            standard deviations. Above 0 where constraints do not allow it.
        rounding: The variance that rounding numbers to their grids adds to each metric; axes
            `[metric]`.
    """

    probs: FloatArray
    misses: dict[str, float]
    rounding: FloatArray


def fit_prior(categories: Categories, margins: Mapping[str, Margin]) -> JointPrior:
    """The prior with the declared margins; as the base measure where nothing is declared."""
    functions, targets, owners = _constraints(categories, margins)
    probs = _closest(np.log(base_measure(categories)), functions, targets)
    errors = np.abs(functions @ probs - targets)
    misses = {
        name: float(max(errors[place] for place, owner in enumerate(owners) if owner == name))
        for name in margins
    }
    nothing = np.zeros(len(categories.declared.metrics))
    return JointPrior(probs=probs, misses=misses, rounding=nothing)


def base_measure(categories: Categories) -> FloatArray:
    """What is assumed where nothing is declared; axes `[category]`.

    Values of an outcome count equally. So do the pieces of a number's range between cuts, each of
    which is uniform: who declares a threshold expects people on both sides. A missing outcome
    counts like one value, or like one piece.
    """
    measure = np.ones(categories.n_categories)
    for outcome, levels in zip(categories.outcomes, categories.levels, strict=True):
        if outcome.grid is not None:
            cuts = categories.declared.cuts(outcome.name)
            measure *= np.append(_number_measure(outcome.grid, cuts), 1.0)[levels]
    return np.asarray(measure / measure.sum())


def _number_measure(grid: Grid, cuts: tuple[int, ...]) -> FloatArray:
    """The base measure of a number; axes `[point]`."""
    points = np.array(grid.points)
    pieces = np.searchsorted(np.array(cuts), points, side="right")
    gaps = np.diff(points) * (np.diff(pieces) == 0) / 2
    widths = np.append(gaps, 0.0) + np.append(0.0, gaps)
    totals = np.bincount(pieces, widths)[pieces]
    # A piece of one point has no width.
    return np.where(totals > 0, widths / np.maximum(totals, 1), 1.0)


def _constraints(
    categories: Categories, margins: Mapping[str, Margin]
) -> tuple[FloatArray, FloatArray, list[str]]:
    """Functions of the category, the means they should have, and whose margin each is from."""
    functions, targets = [np.zeros((0, categories.n_categories))], [np.zeros(0)]
    owners: list[str] = []
    for outcome, levels in zip(categories.outcomes, categories.levels, strict=True):
        known = outcome.numbers()[: outcome.n_known]
        if outcome.name in margins:
            wanted, means = margins[outcome.name].constraints(known)
            missed = wanted - means[:, np.newaxis]
            functions.append(np.column_stack([missed, np.zeros(len(means))])[:, levels])
            targets.append(np.zeros(len(means)))
            owners += [outcome.name] * len(means)
        share = margins.get(outcome.name + OBSERVED) if outcome.may_be_missing else None
        if share is not None:
            wanted, means = share.constraints(np.array([0.0, 1.0]))
            functions.append(wanted[:, (levels < len(known)).astype(np.int64)])
            targets.append(means)
            owners += [outcome.name + OBSERVED] * len(means)
    return np.concatenate(functions), np.concatenate(targets), owners


def _closest(log_base: FloatArray, functions: FloatArray, targets: FloatArray) -> FloatArray:
    """P ∝ b·exp(θ·f) with E f = target: Newton's method on the convex dual, with halved steps.

    The dual is log Σ b·exp(θ·f) − θ·target + ridge·|θ|²/2.

    Args:
        log_base: log b; axes `[category]`.
        functions: f; axes `[constraint, category]`.
        targets: What E f should be; axes `[constraint]`.
    """

    def probs(weights: FloatArray) -> FloatArray:
        exponents = log_base + weights @ functions
        masses = np.exp(exponents - exponents.max())
        return np.asarray(masses / masses.sum())

    def loss(weights: FloatArray) -> float:
        exponents = log_base + weights @ functions
        largest = exponents.max()
        total = np.log(np.exp(exponents - largest).sum()) + largest
        return float(total - weights @ targets + _RIDGE / 2 * weights @ weights)

    weights = np.zeros(len(targets))
    for _ in range(_MOST_ROUNDS):
        likely = probs(weights)
        means = functions @ likely
        gradient = means - targets + _RIDGE * weights
        if np.abs(gradient).max(initial=0.0) < _GRADIENT:
            break
        centred = functions - means[:, np.newaxis]
        curvature = (centred * likely) @ centred.T + _RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        halvings = (weights - step / 2**halving for halving in range(40))
        lower = loss(weights)
        better = next((tried for tried in halvings if loss(tried) < lower), None)
        if better is None:  # as far down as floats can see
            break
        weights = better
    return probs(weights)


def rounded_prior(fine: Categories, probs: FloatArray, coarse: Categories) -> FloatArray:
    """The distribution over coarse categories after numbers on fine grids are rounded.

    Both have the same declared outcomes. Axes `[fine category]` in, `[category]` out.
    """
    positions, masses = np.zeros((1, fine.n_categories), dtype=np.int64), probs[np.newaxis]
    for one, before, levels in zip(coarse.outcomes, fine.outcomes, fine.levels, strict=True):
        if one.grid is None or before.grid is None:
            positions = positions + one.stride * levels
            continue
        missing = levels == before.n_known
        steps = np.append(before.grid.points, 0)[levels]
        lower = one.grid.lower(steps).astype(np.int64)
        up = (steps - np.array(one.grid.points)[lower]) / one.grid.widths[lower]
        # Nothing moves from the last point, so its neighbour above is never looked up.
        above = lower + (up > 0)
        lower, above = (np.where(missing, one.n_known, place) for place in (lower, above))
        positions = np.concatenate([positions + one.stride * place for place in (lower, above)])
        masses = np.concatenate([masses * (1 - up), masses * up])
    probs = np.zeros(coarse.n_categories)
    np.add.at(probs, coarse.table[positions], masses)
    return probs


# Points of a number's grid: more gain less than 1% when the baseline is right, and several
# outcomes multiply. Fewer than so many show little but the mean.
_POINTS, _JOINT_POINTS, FEWEST_POINTS = 16, 12, 4
# Channels for more categories take seconds to design: numbers get fewer points instead.
QUICK_CATEGORIES = 24
_FINE_POINTS = 160
# Squares closer than this, as a share of themselves, are equal but for the errors of floats.
_EXACT = 1e-12
# The finest spacing of fine grids, next to where a number is thought to be: a share of its range.
_FINEST_SPACING = 1e-4


class FittedOutcomes:
    """What is expected of outcomes on fine grids, from which those of a release follow.

    Args:
        declared: The declared outcomes.
        margins: What is declared of each, by name.

    Attributes:
        fine: Categories on fine grids.
        prior: The baseline, fitted there.
        densities: How numbers are thought to be distributed, by name, as far as anything is known.

    Raises:
        TooManyCategoriesError: If they cannot be released even with the smallest grids.
    """

    def __init__(self, declared: DeclaredOutcomes, margins: Mapping[str, Margin]) -> None:
        Categories(declared=declared, grids=_smallest_grids(declared))
        grids = _fine_grids(declared, margins)
        self.fine = Categories(declared=declared, grids=grids, most=MOST_FINE_CATEGORIES)
        self.prior = fit_prior(self.fine, margins)
        self.densities = _densities(self.fine, self.prior.probs) if margins else {}

    def prior_of(self, categories: Categories) -> JointPrior:
        """The prior of categories of the same outcomes, whose numbers are rounded to them."""
        probs = rounded_prior(self.fine, self.prior.probs, categories)
        # Means are kept, so that squares alone show how much rounding adds to a variance.
        squares = categories.metric_values() ** 2 @ probs
        exact = self.fine.metric_values() ** 2 @ self.prior.probs
        added = np.where(squares - exact > _EXACT * squares, squares - exact, 0.0)
        return JointPrior(probs=probs, misses=self.prior.misses, rounding=added)


def choose_categories(
    declared: DeclaredOutcomes, margins: Mapping[str, Margin], most: int = QUICK_CATEGORIES
) -> tuple[Categories, JointPrior]:
    """Categories with well-placed grids, and their prior.

    Args:
        declared: The declared outcomes.
        margins: What is declared of each outcome, by name.
        most: How many categories there should be, if numbers can have fewer points.
    """
    fitted = FittedOutcomes(declared, margins)
    categories = place_grids(declared, fitted.densities, most)
    return categories, fitted.prior_of(categories)


def usual_points(declared: DeclaredOutcomes) -> int:
    """How many points the grid of a number has, if they fit."""
    return _POINTS if len(declared.outcomes) == 1 else _JOINT_POINTS


def place_grids(
    declared: DeclaredOutcomes,
    densities: Mapping[str, Density],
    most: int = QUICK_CATEGORIES,
) -> Categories:
    """Categories with as many points as pay, and fewer where there would be too many categories.

    Args:
        declared: The declared outcomes.
        densities: How numbers are thought to be distributed, by name, as far as anything is known.
        most: How many categories there should be, if numbers can have fewer points.
    """
    for n_points in range(usual_points(declared), FEWEST_POINTS - 1, -1):
        found = with_points(declared, densities, n_points)
        if found is not None and found.n_categories <= most:
            return found
    every = (with_points(declared, densities, one) for one in range(FEWEST_POINTS, 2, -1))
    smallest = Categories(declared=declared, grids=_smallest_grids(declared))
    return next((found for found in every if found is not None), smallest)


def with_points(
    declared: DeclaredOutcomes, densities: Mapping[str, Density], n_points: int
) -> Categories | None:
    """Categories with so many points, or as many as cuts need; None if that is too many."""
    grids = tuple(
        place_grid(
            number,
            n_points=max(n_points, len(needed_points(number, declared.cuts(name)))),
            cuts=declared.cuts(name),
            density=densities.get(name),
        )
        for name, number in declared.numbers.items()
    )
    with suppress(TooManyCategoriesError):
        return Categories(declared=declared, grids=grids)
    return None


def _smallest_grids(declared: DeclaredOutcomes) -> tuple[Grid, ...]:
    return tuple(
        Grid(number=number, points=needed_points(number, declared.cuts(name)))
        for name, number in declared.numbers.items()
    )


def _fine_grids(declared: DeclaredOutcomes, margins: Mapping[str, Margin]) -> tuple[Grid, ...]:
    """Grids on which a baseline is fitted: even over the range, finer about the declared mean."""
    n_finite = math.prod(
        outcome.space.n_categories + outcome.may_be_missing
        for outcome in declared.outcomes
        if not isinstance(outcome.space, Number)
    )
    n_left = MOST_FINE_CATEGORIES / 2 / n_finite
    n_points = int(min(_FINE_POINTS, n_left ** (1 / max(len(declared.numbers), 1))))
    offsets = np.geomspace(_FINEST_SPACING, 1, max(n_points // 4, 1))
    grids = []
    for name, number in declared.numbers.items():
        margin = margins.get(name)
        centre = margin.mean if isinstance(margin, Moments) else number.low
        place = float(number.steps_to(centre))
        wanted = np.concatenate(
            [
                np.linspace(0, number.n_steps, max(n_points // 2, 2)),
                place + number.n_steps * offsets,
                place - number.n_steps * offsets,
            ]
        )
        steps = np.rint(wanted[(wanted >= 0) & (wanted <= number.n_steps)]).astype(int).tolist()
        needed = needed_points(number, declared.cuts(name))
        grids.append(Grid(number=number, points=tuple(sorted({*steps, *needed}))))
    return tuple(grids)


def _densities(fine: Categories, probs: FloatArray) -> dict[str, Density]:
    """How each number is distributed on its own where it is observed, by name."""
    densities = {}
    for one, levels in zip(fine.outcomes, fine.levels, strict=True):
        margin = np.zeros(one.n_known + 1)
        np.add.at(margin, levels, probs)
        share = margin[:-1].sum()
        if one.grid is not None and share > 0:
            steps = np.array(one.grid.points)
            densities[one.name] = Density(steps=steps, probs=margin[:-1] / share)
    return densities
