"""What outcomes are thought to be like before any is read. It decides efficiency, nothing else."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.experiment.lists import parse_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.layout import Layout
    from clusterdp.experiment.outcomes import OutcomeSpace

# Clusters are thought to be of this many kinds, where they are thought to differ.
_KINDS = 8
# How well a mean and a spread are met, in units of the spread.
_MOMENTS = 1e-3
# What is assumed where nothing is declared.
UNIFORM = "all outcomes were taken to be equally likely, because no reference was given"
REMEDY = "give reference=... (--reference), what you expect of outcomes"


class Scenario(NamedTuple):
    """All that a plan is made from.

    Attributes:
        layout: Clusters, arms and cell sizes.
        space: The outcome space.
        reference: What outcomes are thought to be like.
    """

    layout: Layout
    space: OutcomeSpace
    reference: Reference

    def moments(self) -> tuple[float, float]:
        """The mean and the standard deviation that are expected of all outcomes together."""
        probs, values = self.reference.overall(self.layout), self.space.as_array()
        mean = float(probs @ values)
        return mean, math.sqrt(float(probs @ (values - mean) ** 2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """A declared distribution of outcomes.

    Attributes:
        kinds: Distributions that clusters have; axes `[kind, arm or 1, outcome]`. Cluster c is of
            kind c modulo their number.
        is_declared: False where nothing is known and outcomes are taken as uniform.
    """

    kinds: FloatArray
    is_declared: bool = True

    @property
    def differs(self) -> bool:
        """Whether clusters are thought to differ: only then can noisy counts be worth it."""
        return bool(np.ptp(self.kinds, axis=(0, 1)).max() > 1e-9)

    def of_clusters(self, clusters: IntArray) -> FloatArray:
        """The distributions of some clusters; axes `[cluster, arm or 1, outcome]`."""
        return self.kinds[clusters % len(self.kinds)]

    def overall(self, layout: Layout) -> FloatArray:
        """The distribution of all units together; axes `[outcome]`."""
        probs = self.of_clusters(np.arange(len(layout.clusters)))
        weights = layout.sizes[..., np.newaxis] / layout.n_units
        return np.asarray((weights * probs).sum(axis=(0, 1)))


def parse_reference(
    given: str | Sequence[float] | None, space: OutcomeSpace, within_share: float | None
) -> Reference:
    """A reference from `0.5,0.3,0.2` (a histogram) or `mean:2,std:1`; None if nothing is known."""
    within = 1.0 if within_share is None else within_share
    if given is None:
        if within_share is None:
            return uniform_reference(space)
        return histogram_reference(space, [1.0] * space.n_outcomes, within)
    found = re.fullmatch(r"mean:([^,]+),std:(.+)", given) if isinstance(given, str) else None
    if found:
        mean, std = parse_numbers(f"{found[1]},{found[2]}")
        return spread_reference(space, mean, std, within)
    return histogram_reference(space, parse_numbers(given), within)


def uniform_reference(space: OutcomeSpace) -> Reference:
    """Nothing is known."""
    probs = np.full((1, 1, space.n_outcomes), 1 / space.n_outcomes)
    return Reference(kinds=probs, is_declared=False)


def histogram_reference(
    space: OutcomeSpace, histogram: Sequence[float], within_share: float = 1.0
) -> Reference:
    """A public histogram, and how alike clusters are.

    Args:
        space: The outcome space.
        histogram: One number per outcome, in any unit.
        within_share: The share of the outcomes' variance that lies within clusters: 1 if clusters
            are alike, near 0 if each has nearly one outcome.
    """
    probs = np.array(histogram, dtype=np.float64)
    sound = np.isfinite(probs).all() and (probs >= 0).all() and probs.sum() > 0
    if len(probs) != space.n_outcomes or not sound:
        raise ParameterError(
            f"reference must be {space.n_outcomes} numbers of at least 0, one per outcome, "
            f"got {len(probs)}"
        )
    probs = probs / probs.sum()
    if not 0 < within_share <= 1:
        raise ParameterError(f"within_share must lie in (0, 1], got {within_share}")
    if within_share == 1:
        return Reference(kinds=probs[np.newaxis, np.newaxis])
    return Reference(kinds=_kinds(space.as_array(), probs, within_share)[:, np.newaxis])


def spread_reference(
    space: OutcomeSpace, mean: float, std: float, within_share: float = 1.0
) -> Reference:
    """The smoothest distribution over the space with this mean and spread: p ∝ exp(ay + by²).

    With two outcomes the mean alone decides it.
    """
    values = space.as_array()
    if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
        raise ParameterError(f"a reference needs a mean and a spread above 0, got {mean}, {std}")
    if not values[0] < mean < values[-1]:
        raise ParameterError(
            f"the mean of a reference must lie between {values[0]:g} and {values[-1]:g}, got {mean}"
        )
    if space.n_outcomes == 2:
        share = (mean - values[0]) / space.span
        return histogram_reference(space, [1 - share, share], within_share)
    if std**2 > (values[-1] - mean) * (mean - values[0]):
        raise ParameterError(f"no outcomes in the space spread by {std:g} about {mean:g}")
    from scipy.optimize import minimize

    scaled = (values - mean) / std
    powers = np.stack([scaled, scaled**2])

    def dual(weights: FloatArray) -> tuple[float, FloatArray]:
        exponents = weights @ powers
        probs = np.exp(exponents - exponents.max())
        total = probs.sum()
        loss = math.log(total) + exponents.max() - weights[1]
        return float(loss), powers @ probs / total - np.array([0.0, 1.0])

    with np.errstate(over="ignore", invalid="ignore"):
        found = minimize(dual, np.array([0.0, -0.5]), jac=True, method="BFGS")
    exponents = found.x @ powers
    probs = np.exp(exponents - exponents.max())
    probs /= probs.sum()
    if np.abs(powers @ probs - [0.0, 1.0]).max() > _MOMENTS:
        raise ParameterError(
            f"no distribution over the outcome space is that smooth with mean {mean:g} and spread "
            f"{std:g}; give a histogram"
        )
    return histogram_reference(space, probs.tolist(), within_share)


def cell_reference(probs: FloatArray) -> Reference:
    """A distribution for every cell; axes `[cluster, arm, outcome]`."""
    return Reference(kinds=probs / probs.sum(axis=-1, keepdims=True))


def _kinds(values: FloatArray, probs: FloatArray, within_share: float) -> FloatArray:
    """Kinds of clusters that average to the whole, with the given share of variance within.

    A kind is the whole mixed with one of its slices between two quantiles. The means of slices
    spread the most that is possible; mixing takes that back to where it is wanted.
    """
    ends = np.concatenate([[0.0], np.cumsum(probs)])
    edges = np.linspace(0, 1, _KINDS + 1)
    overlap = np.minimum(ends[1:], edges[1:, np.newaxis]) - np.maximum(
        ends[:-1], edges[:-1, np.newaxis]
    )
    slices = _KINDS * np.maximum(overlap, 0.0)
    variance = probs @ (values - probs @ values) ** 2
    between = ((slices @ values - probs @ values) ** 2).mean()
    mixed = min(1.0, math.sqrt((1 - within_share) * variance / between)) if between else 0.0
    return np.asarray((1 - mixed) * probs + mixed * slices)
