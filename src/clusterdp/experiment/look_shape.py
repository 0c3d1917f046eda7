"""What a look shows of one number: where to clip it, and how it is distributed there.

The noise of bins is known. An end of the range is moved only where the noise leaves no doubt that
little lies beyond it. A wrong shape costs precision and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.experiment.grid import Density
from clusterdp.experiment.number import Number

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.grid import Grid

# The share of units, without those at zero, that a clip may move to an end.
_CLIPPED = 0.01
# The most that noise may hide beyond it: of all units, and of those that are not at zero. Where few
# are not, noise hides a large part of them; but a range that is a thousand times too wide for its
# sake has a million times the variance.
_HIDDEN, _HIDDEN_OF_SPREAD = 0.08, 0.5
# Sums of so many neighbouring bins show units where they are so many deviations above zero. Of a
# thousand looks at 70 bins, noise alone passes in about one: the fewer bins, the longer its tail.
_WINDOWS = {1: 8.0, 2: 7.0, 4: 6.0, 8: 5.5}
# As many show whole numbers, or numbers between them.
_SEEN = 6.0
# How many deviations are allowed for where the share beyond an end is bounded.
_SURE = 2.0
# A clip that shortens the range by less is not worth its bias.
_WORTHWHILE = 0.1
# The units of a bin are taken to be spread over so many points of it.
_ATOMS = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberLook:
    """Noisy counts of a number's bins.

    Attributes:
        bins: The number, and the lower edges of its bins.
        cuts: Steps at which its range is cut.
        counts: Units in each bin, with noise; axes `[bin]`.
        variances: The variance of that noise; axes `[bin]`.
        n_units: How many units have the number, as far as the look shows it.
    """

    bins: Grid
    cuts: tuple[int, ...]
    counts: FloatArray
    variances: FloatArray
    n_units: int

    def clipped(self) -> Number:
        """The range that the number is clipped to: one for all arms, with all cuts inside."""
        points = self.bins.points
        last = len(points) - 1
        high = min(self._n_kept(self.counts, self.variances), last)
        low = len(points) - self._n_kept(self.counts[::-1], self.variances[::-1])
        if self.cuts:
            high = max(high, points.index(self.cuts[-1]))
            low = min(low, points.index(self.cuts[0] - 1))
        if points[last] - points[high] < _WORTHWHILE * points[last]:
            high = last
        low = min(low, high - 1)
        if points[low] < _WORTHWHILE * points[high]:
            low = 0
        number = self.bins.number
        return Number(float(number.value(points[low])), float(number.value(points[high])))

    def _n_kept(self, counts: FloatArray, variances: FloatArray) -> int:
        """How many bins are kept, from the first, so that few units lie beyond them."""
        beyond, doubt = _tails(counts), _SURE * np.sqrt(_tails(variances))
        hidden = min(_HIDDEN * self.n_units, _HIDDEN_OF_SPREAD * self.n_spread)
        # A sum below zero is noise, and shows no more than that there may be nothing.
        n_sure = int(np.argmax(np.maximum(beyond, 0.0) + doubt <= hidden))
        n_seen = _last_seen(counts, variances)
        few = _tails(counts[:n_seen]) + _SURE * np.sqrt(_tails(variances[:n_seen]))
        n_few = int(np.argmax(few <= _CLIPPED * self.n_spread))
        return max(n_sure, n_few, 1)

    @property
    def n_spread(self) -> float:
        """How many units are not at zero, at least.

        Where most people spend nothing, a clip is about the others.
        """
        number, points = self.bins.number, self.bins.points
        zero = [place for place, point in enumerate(points) if number.value(point) == 0]
        at_zero = float(self.counts[zero].sum())
        doubt = _SURE * float(np.sqrt(self.variances[zero].sum()))
        return float(np.clip(self.n_units - at_zero - doubt, 0.0, self.n_units))

    def atoms(self, inside: Number) -> list[Density]:
        """How the units of each bin are spread, on the lattice of the range they are clipped to."""
        number, points = self.bins.number, self.bins.points
        finer = int(number.unit / inside.unit)
        shift = int(inside.steps_to(number.low))
        each = self._whole_steps() or 1
        found = []
        for first, after in zip(points, [*points[1:], points[-1] + 1], strict=True):
            n_atoms = min(_ATOMS, -(-(after - first) // each))
            places = np.linspace(first, after, n_atoms, endpoint=False)
            steps = (np.floor(places / each) * each).astype(np.int64).clip(first)
            moved, copies = np.unique(
                np.clip(steps * finer + shift, 0, inside.n_steps), return_counts=True
            )
            found.append(Density(steps=moved, probs=copies / copies.sum()))
        return found

    def _whole_steps(self) -> int | None:
        """How many steps make one, if the look shows small whole numbers and nothing between."""
        number, points = self.bins.number, np.array(self.bins.points)
        if number.unit > 1 or number.low != 0:
            return None
        one = int(1 / number.unit)
        ends = np.append(points[1:], points[-1] + 1)
        small = (points > 0) & (points < 3 * one)
        between = small & (-(-points // one) * one >= ends)
        whole = small & ~between
        shown, hidden = (self.counts[which].sum() for which in (whole, between))
        doubt, noise = (np.sqrt(self.variances[which].sum()) for which in (whole, between))
        return one if shown > _SEEN * doubt and hidden < min(_SEEN * noise, shown / 10) else None


def _tails(counts: FloatArray) -> FloatArray:
    """The sum from each bin on, and of none; axes `[bin + 1]`."""
    return np.append(np.cumsum(counts[::-1])[::-1], 0.0)


def _last_seen(counts: FloatArray, variances: FloatArray) -> int:
    """The end of the last few neighbouring bins that noise alone does not explain."""
    tails, noise = _tails(counts), _tails(variances)
    last = 0
    for width, n_deviations in _WINDOWS.items():
        sums, of_noise = (sums[:-width] - sums[width:] for sums in (tails, noise))
        seen = np.flatnonzero(sums > n_deviations * np.sqrt(of_noise))
        if len(seen):
            last = max(last, int(seen[-1]) + width)
    return last


def mixed(parts: list[Density], masses: FloatArray) -> Density:
    """The density of units that are in each part with some probability; axes `[part]`."""
    steps: IntArray = np.concatenate([part.steps for part in parts])
    if not masses.any():  # as where nobody has the number
        masses = np.ones(len(parts))
    weights = [mass * part.probs for part, mass in zip(parts, masses, strict=True)]
    found, place = np.unique(steps, return_inverse=True)
    probs = np.bincount(place, np.concatenate(weights))
    return Density(steps=found, probs=probs / probs.sum())
