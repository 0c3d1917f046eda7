"""From a pilot, a noisy histogram of all units, to clipped numbers, their grids and a prior.

**Clips.** The noise of bins is known. An end of the range is moved only where the noise leaves no
doubt that little lies beyond it. A wrong shape costs precision and nothing else.

Every part's ε was fixed before the pilot, so that the losses of pilot, statistics and rows add up
for any pilot. Nothing here can refuse a release.

What follows is a pure function of what is published. For any pilot, estimates are unbiased for the
clipped outcomes, so that a poor pilot costs precision alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.mechanisms.draw import Question, check_exact
from clusterdp.outcomes.baseline import base_measure, place_grids
from clusterdp.outcomes.categories import Categories, together
from clusterdp.outcomes.grid import Density, Grid
from clusterdp.outcomes.metric import OutcomeValue
from clusterdp.outcomes.number import Number
from clusterdp.statistics.noise import nearest_distribution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.statistics.pilot import DrawnPilot


def settle(
    declared: Sequence[Question], layout: Layout, pilots: Sequence[DrawnPilot | None]
) -> tuple[Question, ...]:
    """What each question has after pilots; what was declared, where that could not be released.

    Args:
        declared: The questions as they were checked before the pilots.
        layout: The cells.
        pilots: What was drawn of each question; None where it has no pilot.
    """
    before = [
        one
        if pilot is None
        else Question(space=one.space, mechanism=one.mechanism.settled(one.space))
        for one, pilot in zip(declared, pilots, strict=True)
    ]
    after = [_settle(one, layout, pilot) for one, pilot in zip(before, pilots, strict=True)]
    spaces = together([one.space for one in after])
    found = [replace(one, space=space) for one, space in zip(after, spaces, strict=True)]
    try:
        for one in found:
            check_exact(layout, one.space, one.mechanism)
    except ParameterError:
        return tuple(before)
    return tuple(found)


def _settle(before: Question, layout: Layout, pilot: DrawnPilot | None) -> Question:
    """What follows from the pilot of a question, by itself."""
    if pilot is None:
        return before
    try:
        space, prior = settle_outcomes(*_seen(before, layout, pilot))
        mechanism = before.mechanism.with_prior(prior)
        check_exact(layout, space, mechanism)
    except ParameterError:
        return before
    return Question(space=space, mechanism=mechanism)


def _seen(
    question: Question, layout: Layout, pilot: DrawnPilot
) -> tuple[Categories, IntArray, float, int]:
    """What a pilot shows: as many units were in it as are asked, up to chance."""
    n_units = max(1, round(question.mechanism.asked_share * layout.n_units))
    return pilot.bins, pilot.noisy_counts, pilot.variance, n_units


def settled_rounding(after: Question, layout: Layout, pilot: DrawnPilot) -> tuple[float, ...]:
    """The variance that rounding adds to each metric of a question, as its pilot shows it."""
    return pilot_rounding(*_seen(after, layout, pilot), after.space)


# The share of units, without those at zero, that a clip may move to an end.
_CLIPPED = 0.01
# The most that noise may hide beyond it: of all units, and of those that are not at zero. Where few
# are not, noise hides a large part of them; but a range that is a thousand times too wide for its
# sake has a million times the variance.
_HIDDEN, _HIDDEN_OF_SPREAD = 0.08, 0.5
# Sums of so many neighbouring bins show units where they are so many deviations above zero. Of a
# thousand pilots of 70 bins, noise alone passes in about one: the fewer bins, the longer its tail.
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
class NumberPilot:
    """Noisy counts of a number's bins.

    Attributes:
        bins: The number, and the lower edges of its bins.
        cuts: Steps at which its range is cut.
        counts: Units in each bin, with noise; axes `[bin]`.
        variances: The variance of that noise; axes `[bin]`.
        n_units: How many units have the number, as far as the pilot shows it.
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
        """How many steps make one, if the pilot shows small whole numbers and nothing between."""
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


# Digits of a prior: more would depend on the machine that adds them up.
_DIGITS = 9


def settle_outcomes(
    bins: Categories, noisy_counts: IntArray, variance: float, n_units: int
) -> tuple[Categories, tuple[float, ...]]:
    """The categories that rows are released in, and how the pilot shows them distributed.

    Numbers are clipped, and have their grids.

    Args:
        bins: The bins of the pilot, from `pilot_space`.
        noisy_counts: Units in each bin, with noise; axes `[bin]`.
        variance: The variance of the noise.
        n_units: How many units there are.

    Raises:
        ParameterError: If clipped outcomes cannot be released. The declared ones can.
    """
    pilots = _pilots(bins, noisy_counts, variance, n_units)
    inside = {name: _clipped(name, pilot, bins.declared) for name, pilot in pilots.items()}
    outcomes = tuple(
        replace(one, space=inside.get(one.name, one.space)) for one in bins.declared.outcomes
    )
    declared = replace(bins.declared, outcomes=outcomes)
    atoms = {name: pilot.atoms(inside[name]) for name, pilot in pilots.items()}
    table = _table(bins, nearest_distribution(noisy_counts / n_units))
    densities = {
        name: mixed(parts, _margin(table, bins.outcome(name).axis)[: len(parts)])
        for name, parts in atoms.items()
    }
    categories = place_grids(declared, densities)
    learned = _rounded(table, atoms, categories)
    trust = _trust(noisy_counts / n_units, variance / n_units**2)
    prior = trust * learned + (1 - trust) * base_measure(categories)
    return categories, tuple(np.round(prior, _DIGITS).tolist())


def pilot_rounding(
    bins: Categories, noisy_counts: IntArray, variance: float, n_units: int, categories: Categories
) -> tuple[float, ...]:
    """The variance that rounding adds to each metric that is an outcome; 0 for all others.

    Arguments as of `settle_outcomes`, and the categories that it led to.
    """
    pilots = _pilots(bins, noisy_counts, variance, n_units)
    table = _table(bins, nearest_distribution(noisy_counts / n_units))
    added = {}
    for one in categories.outcomes:
        if one.grid is None:
            continue
        points, number = np.array(one.grid.points, dtype=np.float64), one.grid.number
        parts = pilots[one.name].atoms(number)
        of_bins = [
            one.grid.rounded(part) @ points**2 - part.probs @ part.steps.astype(np.float64) ** 2
            for part in parts
        ]
        masses = _margin(table, bins.outcome(one.name).axis)[: len(parts)]
        added[one.name] = max(float(masses @ of_bins), 0.0) * float(number.unit) ** 2
    return tuple(
        added.get(factor.outcome, 0.0)
        if len(metric.factors) == 1 and isinstance(factor := metric.factors[0], OutcomeValue)
        else 0.0
        for metric in categories.declared.metrics
    )


def _trust(frequencies: FloatArray, variance: float) -> float:
    """The share of the distance from uniform that is not noise: 1 − B·Var/Σ(f − 1/B)²."""
    distance = float(((frequencies - 1 / len(frequencies)) ** 2).sum())
    noise = len(frequencies) * variance
    return max(0.0, 1 - noise / distance) if distance > 0 else 0.0


def _pilots(
    bins: Categories, noisy_counts: IntArray, variance: float, n_units: int
) -> dict[str, NumberPilot]:
    """What is seen of each number on its own, by name."""
    counts, n_bins = (_table(bins, one) for one in (noisy_counts, np.ones(len(noisy_counts))))
    pilots = {}
    for one in bins.outcomes:
        if one.grid is None:
            continue
        missing = _margin(counts, one.axis)[one.n_known :].sum()  # the last level, if there is one
        pilots[one.name] = NumberPilot(
            bins=one.grid,
            cuts=bins.declared.cuts(one.name),
            counts=_margin(counts, one.axis)[: one.n_known],
            variances=variance * _margin(n_bins, one.axis)[: one.n_known],
            n_units=int(np.clip(n_units - missing, 0, n_units)),
        )
    return pilots


def _clipped(name: str, pilot: NumberPilot, declared: DeclaredOutcomes) -> Number:
    """The range of a number.

    Rows were checked against constraints on the lattice of the declared range. A number in one
    keeps that lattice and its lower end, from which steps are counted: then a row that broke no
    constraint cannot break one.
    """
    number, inside = pilot.bins.number, pilot.clipped()
    if any(constraint.cuts(name, number) for constraint in declared.constraints):
        return Number(number.low, inside.high, float(number.unit))
    return inside


def _table(bins: Categories, numbers: FloatArray | IntArray) -> FloatArray:
    """Numbers of bins by the levels of outcomes, 0 where there is no bin; axes `[level, …]`."""
    table = np.zeros(bins.shape)
    table[tuple(bins.levels)] = numbers
    return table


def _margin(table: FloatArray, axis: int) -> FloatArray:
    """The sums of an outcome's levels; axes `[level]`."""
    others = tuple(place for place in range(table.ndim) if place != axis)
    return np.asarray(table.sum(axis=others))


def _rounded(
    table: FloatArray, atoms: dict[str, list[Density]], categories: Categories
) -> FloatArray:
    """The distribution of categories after numbers are clipped and rounded; axes `[category]`."""
    for one in categories.outcomes:
        if one.grid is None:
            continue
        to_points = np.stack([one.grid.rounded(part) for part in atoms[one.name]])  # [bin, point]
        if one.may_be_missing:  # its last level stays what it is
            to_points = np.pad(to_points, (0, 1))
            to_points[-1, -1] = 1.0
        table = np.moveaxis(np.tensordot(table, to_points, axes=(one.axis, 0)), -1, one.axis)
    return np.asarray(table[tuple(categories.levels)])
