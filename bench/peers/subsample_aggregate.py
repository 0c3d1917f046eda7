"""Guha and Reiter (2024): subsample and aggregate, with intervals from a posterior.

Outcomes are binary. Units are split at random into M subsets. The trusted collector estimates the
effect and its variance in each, and publishes their means over subsets, each with Laplace noise.
One person is in one subset, so that the means move by at most the range of an estimate over M.
With a flat prior the posterior is: variance around its noisy value, effect around its own, less
sampling error and noise.

Left open by the paper, and chosen in its favour: subsets of 20 units, which have little noise and
still both arms (a subset without two units of an arm counts as 0); nine tenths of ε for the effect;
propensities are those of the experiment, at no cost. The paper samples by Gibbs; a flat prior
allows independent draws from the same posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.peers.given import Answer

if TYPE_CHECKING:
    from bench.peers.trial import Sample
    from clusterdp._arrays import BoolArray, FloatArray, IntArray

UNITS_PER_SUBSET = 20
EFFECT_SHARE = 0.9  # of ε
EFFECT_RANGE = 2.0  # an estimate is in [−1, 1]
VARIANCE_RANGE = 0.5  # two arms' p(1−p)/(n−1), with n ≥ 2: each at most a quarter
_N_DRAWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PosteriorGiven:
    """Draws of the effect from its posterior."""

    draws: FloatArray

    def overall(self) -> Answer:
        """The median and the central 95%."""
        low, middle, high = np.quantile(self.draws, [0.025, 0.5, 0.975])
        return Answer(float(middle), float(low), float(high))

    def segment(self, inside: BoolArray) -> None:
        """One question was asked."""

    def uplift(self, features: FloatArray) -> None:
        """One question was asked."""


def release(sample: Sample, epsilon: float, rng: np.random.Generator) -> PosteriorGiven:
    """Publish the effect and its variance; draw from the posterior."""
    effects, variances = subset_estimates(sample.outcomes, sample.arms, rng)
    n_subsets = len(effects)
    effect_scale = EFFECT_RANGE / n_subsets / (EFFECT_SHARE * epsilon)
    variance_scale = VARIANCE_RANGE / n_subsets / ((1 - EFFECT_SHARE) * epsilon)
    noisy_effect = effects.mean() + rng.laplace(scale=effect_scale)
    noisy_variance = variances.mean() + rng.laplace(scale=variance_scale)
    drawn = draw_between(noisy_variance, variance_scale, VARIANCE_RANGE, _N_DRAWS, rng)
    sampling = rng.normal(size=_N_DRAWS) * np.sqrt(drawn / n_subsets)
    draws = noisy_effect - sampling - rng.laplace(scale=effect_scale, size=_N_DRAWS)
    return PosteriorGiven(draws=np.clip(draws, -1, 1))


def subset_estimates(
    outcomes: IntArray, arms: IntArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Differences in means and their variances in random subsets; axes `[subset]`."""
    n_subsets = len(arms) // UNITS_PER_SUBSET
    places = rng.permutation(np.arange(len(arms)) % n_subsets)
    return estimates_in(places, n_subsets, outcomes, arms)


def estimates_in(
    places: IntArray, n_subsets: int, outcomes: IntArray, arms: IntArray
) -> tuple[FloatArray, FloatArray]:
    """The same for given subsets; axes `[unit]` of arguments."""
    cells = places * 2 + arms
    sizes = np.bincount(cells, minlength=2 * n_subsets).reshape(-1, 2)
    ones = np.bincount(cells, outcomes, minlength=2 * n_subsets).reshape(-1, 2)
    usable = (sizes >= 2).all(axis=1)
    means = ones / np.maximum(sizes, 1)
    noise = means * (1 - means) / np.maximum(sizes - 1, 1)
    effects = np.where(usable, means[:, 1] - means[:, 0], 0.0)
    return effects, np.where(usable, noise.sum(axis=1), 0.0)


def draw_between(
    middle: float, scale: float, top: float, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draws from a Laplace law around a number, given that they are in [0, top], by inversion."""

    def below(value: float) -> float:
        tail = 0.5 * np.exp(-abs(value - middle) / scale)
        return float(tail if value < middle else 1 - tail)

    chance = rng.uniform(below(0.0), below(top), n_draws)
    nearer = np.minimum(chance, 1 - chance)
    reach = -scale * np.log(np.maximum(2 * nearer, np.finfo(float).tiny))
    return np.asarray(np.clip(middle + np.where(chance < 0.5, -reach, reach), 0.0, top))
