"""From the noisy counts of a look to clipped numbers, their grids, and the prior of categories.

A pure function of what is published. Whatever it returns, estimates are unbiased for the clipped
outcomes, so that a poor look costs precision alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.experiment.chosen_grids import place_grids, usual_points
from clusterdp.experiment.joint_prior import base_measure
from clusterdp.experiment.look_shape import NumberLook, mixed
from clusterdp.experiment.number import Number
from clusterdp.experiment.simplex import nearest_distribution

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.experiment.grid import Density

# Digits of a prior: more would depend on the machine that adds them up.
_DIGITS = 9


class SettledOutcomes(NamedTuple):
    """The categories that rows are released in, and how the look shows them distributed.

    Attributes:
        categories: With clipped numbers and their grids.
        prior: The probability of each category.
    """

    categories: Categories
    prior: tuple[float, ...]


def settle_outcomes(
    bins: Categories, noisy_counts: IntArray, variance: float, n_units: int
) -> SettledOutcomes:
    """What follows from a look for outcomes.

    Args:
        bins: The bins of the look, from `look_space`.
        noisy_counts: Units in each bin, with noise; axes `[bin]`.
        variance: The variance of the noise.
        n_units: How many units there are.

    Raises:
        ParameterError: If clipped outcomes cannot be released. The declared ones can.
    """
    looks = _looks(bins, noisy_counts, variance, n_units)
    inside = {name: _clipped(name, look, bins.declared) for name, look in looks.items()}
    declared = _with_ranges(bins.declared, inside)
    atoms = {name: look.atoms(inside[name]) for name, look in looks.items()}
    frequencies = nearest_distribution(noisy_counts / n_units)
    table = _table(bins, frequencies)
    densities: dict[str, Density | None] = {
        name: mixed(parts, _margin(table, bins.declared.names.index(name))[: len(parts)])
        for name, parts in atoms.items()
    }
    categories = place_grids(declared, densities, usual_points(declared))
    learned = _rounded(table, atoms, categories)
    trust = _trust(noisy_counts / n_units, variance / n_units**2)
    prior = trust * learned + (1 - trust) * base_measure(categories)
    return SettledOutcomes(categories, tuple(np.round(prior, _DIGITS).tolist()))


def _trust(frequencies: FloatArray, variance: float) -> float:
    """The share of the distance from uniform that is not noise: 1 − B·Var/Σ(f − 1/B)²."""
    distance = float(((frequencies - 1 / len(frequencies)) ** 2).sum())
    noise = len(frequencies) * variance
    return max(0.0, 1 - noise / distance) if distance > 0 else 0.0


def _looks(
    bins: Categories, noisy_counts: IntArray, variance: float, n_units: int
) -> dict[str, NumberLook]:
    """What is seen of each number on its own, by name."""
    counts, n_bins = (_table(bins, one) for one in (noisy_counts, np.ones(len(noisy_counts))))
    looks = {}
    for name, grid in zip(bins.declared.numbers, bins.grids, strict=True):
        axis, observed = bins.declared.names.index(name), slice(len(grid.points))
        missing = _margin(counts, axis)[observed.stop :].sum()  # the last level, if there is one
        looks[name] = NumberLook(
            bins=grid,
            cuts=bins.declared.cuts(name),
            counts=_margin(counts, axis)[observed],
            variances=variance * _margin(n_bins, axis)[observed],
            n_units=int(np.clip(n_units - missing, 0, n_units)),
        )
    return looks


def _clipped(name: str, look: NumberLook, declared: DeclaredOutcomes) -> Number:
    """The range of a number.

    Rows were checked against implications on the lattice of the declared range. A number in one
    keeps that lattice and its lower end, from which steps are counted: then a row that broke no
    implication cannot break one.
    """
    number, inside = look.bins.number, look.clipped()
    if any(implication.cuts(name, number) for implication in declared.implications):
        return Number(number.low, inside.high, float(number.unit))
    return inside


def _with_ranges(declared: DeclaredOutcomes, inside: dict[str, Number]) -> DeclaredOutcomes:
    outcomes = tuple(
        replace(one, space=inside.get(one.name, one.space)) for one in declared.outcomes
    )
    return replace(declared, outcomes=outcomes)


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
    for name, grid in zip(categories.declared.numbers, categories.grids, strict=True):
        axis = categories.declared.names.index(name)
        to_points = np.stack([grid.rounded(part) for part in atoms[name]])  # [bin, point]
        if name in categories.declared.missing:  # its last level stays what it is
            to_points = np.pad(to_points, (0, 1))
            to_points[-1, -1] = 1.0
        table = np.moveaxis(np.tensordot(table, to_points, axes=(axis, 0)), -1, axis)
    return np.asarray(table[tuple(categories.levels)])
