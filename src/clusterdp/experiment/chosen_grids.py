"""From declared outcomes and a reference to categories and their prior.

The reference is fitted on fine grids first. The grids of the release are then placed where each
number has its mass, and the prior is that of the rounded numbers.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.experiment.categories import (
    MOST_FINE_CATEGORIES,
    Categories,
    TooManyCategoriesError,
)
from clusterdp.experiment.grid import Density, Grid, needed_points
from clusterdp.experiment.grid_placement import place_grid
from clusterdp.experiment.joint_prior import JointPrior, fit_prior, rounded_prior
from clusterdp.experiment.margins import Moments
from clusterdp.experiment.number import Number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.experiment.margins import Margin

# Points of a number's grid: more gain less than 1% when the reference is right, and several
# outcomes multiply.
_POINTS, _JOINT_POINTS = 16, 12
_FINE_POINTS = 160
# The finest spacing of fine grids, next to where a number is thought to be: a share of its range.
_FINEST_SPACING = 1e-4


def choose_categories(
    declared: DeclaredOutcomes, margins: Mapping[str, Margin], n_points: int = _POINTS
) -> tuple[Categories, JointPrior]:
    """Categories with well-placed grids, and their prior.

    Args:
        declared: The declared outcomes.
        margins: What is declared of each outcome, by name.
        n_points: Points of each number's grid. There are fewer where more make too many
            categories, and more where cuts need them.
    """
    # What cannot be released with the smallest grids cannot be released at all.
    Categories(declared=declared, grids=_smallest_grids(declared))
    fine, fitted = _fit(declared, margins)
    densities = _densities(fine, fitted.probs) if margins else dict.fromkeys(declared.numbers)
    categories = place_grids(declared, densities, n_points)
    probs = rounded_prior(fine, fitted.probs, categories)
    return categories, JointPrior(probs=probs, misses=fitted.misses)


def reference_prior(categories: Categories, margins: Mapping[str, Margin]) -> JointPrior:
    """The prior of categories whose grids are fixed already; as `choose_categories` fits it."""
    fine, fitted = _fit(categories.declared, margins)
    probs = rounded_prior(fine, fitted.probs, categories)
    return JointPrior(probs=probs, misses=fitted.misses)


def usual_points(declared: DeclaredOutcomes) -> int:
    """How many points the grid of a number has, if they fit one channel."""
    return _POINTS if len(declared.outcomes) == 1 else _JOINT_POINTS


def _fit(
    declared: DeclaredOutcomes, margins: Mapping[str, Margin]
) -> tuple[Categories, JointPrior]:
    """Categories on fine grids, and the reference fitted there."""
    fine = Categories(
        declared=declared, grids=_fine_grids(declared, margins), most=MOST_FINE_CATEGORIES
    )
    return fine, fit_prior(fine, margins)


def place_grids(
    declared: DeclaredOutcomes,
    densities: Mapping[str, Density | None],
    n_points: int = _POINTS,
) -> Categories:
    """Categories with grids of so many points, or of the most that one channel serves.

    Args:
        declared: The declared outcomes.
        densities: How each number is thought to be distributed, by name; None if nothing is known.
        n_points: Points of each number's grid.
    """
    for n_wanted in range(n_points, 2, -1):
        with suppress(TooManyCategoriesError):
            return Categories(declared=declared, grids=_grids(declared, densities, n_wanted))
    return Categories(declared=declared, grids=_smallest_grids(declared))


def _grids(
    declared: DeclaredOutcomes, densities: Mapping[str, Density | None], n_points: int
) -> tuple[Grid, ...]:
    return tuple(
        place_grid(
            number,
            n_points=max(n_points, len(needed_points(number, declared.cuts(name)))),
            cuts=declared.cuts(name),
            density=densities[name],
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


def _densities(fine: Categories, probs: FloatArray) -> dict[str, Density | None]:
    """How each number is distributed on its own where it is observed, by name."""
    densities: dict[str, Density | None] = {}
    for name, grid in zip(fine.declared.numbers, fine.grids, strict=True):
        margin = np.zeros(len(grid.points) + 1)
        np.add.at(margin, fine.levels[fine.declared.names.index(name)], probs)
        share = margin[:-1].sum()
        steps = np.array(grid.points)
        densities[name] = Density(steps=steps, probs=margin[:-1] / share) if share > 0 else None
    return densities
