"""From declared outcomes and a reference to categories and their prior.

The reference is fitted on fine grids first. The grids of the release are then placed where each
number has its mass, and the prior is that of the rounded numbers.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.outcomes.categories import MOST_FINE_CATEGORIES, Categories, TooManyCategoriesError
from clusterdp.outcomes.grid import Density, Grid, needed_points, place_grid
from clusterdp.outcomes.number import Number
from clusterdp.outcomes.reference import JointPrior, Moments, fit_prior, rounded_prior

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp._arrays import FloatArray
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.outcomes.reference import Margin


# Points of a number's grid: more gain less than 1% when the reference is right, and several
# outcomes multiply. Fewer than so many tell little but the mean.
_POINTS, _JOINT_POINTS, FEWEST_POINTS = 16, 12, 4
# Channels for more categories take seconds to design: numbers get fewer points instead.
QUICK_CATEGORIES = 24
_FINE_POINTS = 160
# The finest spacing of fine grids, next to where a number is thought to be: a share of its range.
_FINEST_SPACING = 1e-4


class FittedOutcomes:
    """What is expected of outcomes on fine grids, from which those of a release follow.

    Args:
        declared: The declared outcomes.
        margins: What is declared of each, by name.

    Attributes:
        fine: Categories on fine grids.
        prior: The reference, fitted there.
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

    def with_points(self, n_points: int) -> Categories | None:
        """Categories with so many points, or as many as cuts need; None if that is too many."""
        return _with_points(self.fine.declared, self.densities, n_points)

    def prior_of(self, categories: Categories) -> JointPrior:
        """The prior of categories of the same outcomes."""
        probs = rounded_prior(self.fine, self.prior.probs, categories)
        return JointPrior(probs=probs, misses=self.prior.misses)


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


def reference_prior(categories: Categories, margins: Mapping[str, Margin]) -> JointPrior:
    """The prior of categories whose grids are fixed already; as `choose_categories` fits it."""
    return FittedOutcomes(categories.declared, margins).prior_of(categories)


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
        found = _with_points(declared, densities, n_points)
        if found is not None and found.n_categories <= most:
            return found
    every = (_with_points(declared, densities, one) for one in range(FEWEST_POINTS, 2, -1))
    smallest = Categories(declared=declared, grids=_smallest_grids(declared))
    return next((found for found in every if found is not None), smallest)


def _with_points(
    declared: DeclaredOutcomes, densities: Mapping[str, Density], n_points: int
) -> Categories | None:
    with suppress(TooManyCategoriesError):
        return Categories(declared=declared, grids=_grids(declared, densities, n_points))
    return None


def _grids(
    declared: DeclaredOutcomes, densities: Mapping[str, Density], n_points: int
) -> tuple[Grid, ...]:
    return tuple(
        place_grid(
            number,
            n_points=max(n_points, len(needed_points(number, declared.cuts(name)))),
            cuts=declared.cuts(name),
            density=densities.get(name),
        )
        for name, number in declared.numbers.items()
    )


def _smallest_grids(declared: DeclaredOutcomes) -> tuple[Grid, ...]:
    return tuple(
        Grid(number=number, points=needed_points(number, declared.cuts(name)))
        for name, number in declared.numbers.items()
    )


def _fine_grids(declared: DeclaredOutcomes, margins: Mapping[str, Margin]) -> tuple[Grid, ...]:
    """Grids on which a reference is fitted: even over the range, finer about the declared mean."""
    n_points = _n_fine_points(declared)
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


def _n_fine_points(declared: DeclaredOutcomes) -> int:
    """How many points fine grids can have."""
    n_finite = math.prod(
        outcome.space.n_categories + outcome.may_be_missing
        for outcome in declared.outcomes
        if not isinstance(outcome.space, Number)
    )
    n_left = MOST_FINE_CATEGORIES / 2 / n_finite
    return int(min(_FINE_POINTS, n_left ** (1 / max(len(declared.numbers), 1))))


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
