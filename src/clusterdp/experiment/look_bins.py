"""The bins of a look: fixed before any outcome is read, and covering every value there can be.

A finite outcome has a bin for each of its values. A number has bins that widen with the distance
from zero, or from the end of its range that is nearest to zero: their edges are 1, 1.2, 1.5, 2 and
so on times powers of ten, as far as these are lattice points. Both sides of a cut are edges.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING

from clusterdp.experiment.categories import Categories, TooManyCategoriesError
from clusterdp.experiment.decimals import exact
from clusterdp.experiment.grid import Grid, needed_points

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.experiment.number import Number

# More bins have more noise together than they show.
MOST_BINS = 512
# Leading digits of edges, in tenths; fewer where several outcomes would make too many bins.
_LEADING = ((10, 12, 15, 20, 25, 30, 40, 50, 60, 80), (10, 20, 50), (10, 30), (10,), ())


def look_space(declared: DeclaredOutcomes) -> Categories:
    """The bins of a look, jointly over outcomes: a row is in the bin at or below its numbers."""
    for leading in _LEADING[:-1]:
        with suppress(TooManyCategoriesError):
            return _with_bins(declared, leading)
    return _with_bins(declared, _LEADING[-1])


def _with_bins(declared: DeclaredOutcomes, leading: tuple[int, ...]) -> Categories:
    grids = tuple(
        Grid(number=number, points=_edges(number, declared.cuts(name), leading))
        for name, number in declared.numbers.items()
    )
    return Categories(declared=declared, grids=grids, most=MOST_BINS)


def _edges(number: Number, cuts: tuple[int, ...], leading: tuple[int, ...]) -> tuple[int, ...]:
    """Lower edges of bins, as steps above the lower end."""
    low, high = exact(number.low), exact(number.high)
    centre = min(max(Fraction(0), low), high)
    places = (
        (centre + sign * distance - low) / number.unit
        for distance in _distances(number, leading)
        for sign in (-1, 1)
    )
    steps = {
        int(place) for place in places if place.denominator == 1 and 0 <= place <= number.n_steps
    }
    return tuple(sorted({*steps, int((centre - low) / number.unit), *needed_points(number, cuts)}))


def _distances(number: Number, leading: tuple[int, ...]) -> Iterator[Fraction]:
    """Round numbers from one step up to the whole range."""
    power = number.unit / 10
    while power <= number.n_steps * number.unit:
        yield from (digits * power for digits in leading)
        power *= 10
