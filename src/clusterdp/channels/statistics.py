"""Stage 1: noisy statistics of cells. The only stage, with the rows, that reads outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.noise import noise_variance
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.parts import NoisyContrasts, NoisyCounts
from clusterdp.privacy.accounting import noise_scale_for

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.channels.noise import NoiseSource
    from clusterdp.experiment.layout import Layout
    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.mechanisms.parts import NoisySums

_LARGEST_INTEGER = 2**62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountSummary:
    """Noisy outcome counts.

    Attributes:
        noisy_counts: Counts plus discrete Laplace noise; axes `[..., group, outcome]`. They may be
            negative, and do not add up to the sizes.
        group_sizes: How many units each group has; axes `[group]`.
        groups: The group of each cell; axes `[cluster, arm]`. One per cell, or one per arm.
        noise_scale: σ.
    """

    noisy_counts: IntArray
    group_sizes: IntArray
    groups: IntArray
    noise_scale: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContrastSummary:
    """Noisy differences in means against control.

    Attributes:
        contrasts: Axes `[..., cluster, treatment]`, treatments in the order of `Layout.treatments`.
        noise_variances: Variance of the noise on each; axes `[cluster, treatment]`.
    """

    contrasts: FloatArray
    noise_variances: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumSummary:
    """Noisy sums of every cell; axes `[..., cluster, arm]`.

    Attributes:
        sums: Sums of outcomes, in the unit of `OutcomeSpace.lattice`.
        squares: Sums of squared distances from the middle of the space, in a quarter of that unit
            squared. None for two outcomes, where they follow from the sums.
    """

    sums: IntArray
    squares: IntArray | None


Summary = CountSummary | ContrastSummary


def draw_summary(
    counts: IntArray,
    layout: Layout,
    recipe: NoisyCounts | NoisyContrasts | None,
    add_noise: NoiseSource,
) -> Summary | None:
    """The noisy summary that `recipe` asks for, if any.

    Args:
        counts: True counts; axes `[..., cluster, arm, outcome]`.
        layout: What is public.
        recipe: What to publish, and with how much noise.
        add_noise: Where noise comes from; `add_exact_noise` for a real release.
    """
    if recipe is None:
        return None
    if isinstance(recipe, NoisyContrasts):
        return _noisy_contrasts(counts, layout, recipe, add_noise)
    groups, group_sizes = summary_groups(layout, recipe)
    if recipe.scope == "population":
        grouped = counts.sum(axis=-3)
    else:
        grouped = counts.reshape(*counts.shape[:-3], -1, counts.shape[-1])
    return CountSummary(
        noisy_counts=add_noise(grouped, recipe.noise_scale),
        group_sizes=group_sizes,
        groups=groups,
        noise_scale=recipe.noise_scale,
    )


def summary_groups(layout: Layout, recipe: NoisyCounts) -> tuple[IntArray, IntArray]:
    """The group of each cell, axes `[cluster, arm]`, and the groups' sizes, axes `[group]`."""
    n_clusters, n_arms = layout.sizes.shape
    if recipe.scope == "population":
        return np.tile(np.arange(n_arms), (n_clusters, 1)), layout.sizes.sum(axis=0)
    return np.arange(n_clusters * n_arms).reshape(n_clusters, n_arms), layout.sizes.ravel()


class SumNoise(NamedTuple):
    """The scales of the noise on a cell's sum, and on its sum of squares if that is published."""

    of_sums: float
    of_squares: float | None


def sum_noise(space: OutcomeSpace, epsilon: float) -> SumNoise:
    """The noise at which sums and squares together cost ε.

    With D the span and a, b ∈ [−D/2, D/2] the distances of two outcomes from the middle, replacing
    one by the other moves the sum by |a − b| and the squares by |a² − b²|. At scales D/ε and D²/ε
    that costs ε·|a−b|/D·(1 + |a+b|/D), which is at most ε: squares come at no further cost.
    """
    _, multiples = space.lattice()
    span = multiples[-1] - multiples[0]
    of_sums = noise_scale_for(Fraction(span), epsilon)
    if space.n_outcomes == 2:
        return SumNoise(of_sums, None)
    # In quarters, since the middle of two integers may be half way between.
    return SumNoise(of_sums, noise_scale_for(Fraction(4 * span**2), epsilon))


def check_statistics(
    layout: Layout, summary: NoisyCounts | NoisyContrasts | None, sums: NoisySums | None
) -> None:
    """Raise a ParameterError if statistics of these cells could not be drawn exactly.

    It is called before anything is drawn; after it, `draw_summary` and `draw_sums` do not fail.
    """
    if isinstance(summary, NoisyContrasts):
        for cluster in range(len(layout.clusters)):
            for arm in layout.treatments:
                contrast_noise(layout, summary.epsilon, cluster, arm)
    if sums is not None:
        _check_sums(layout, sums)


def _check_sums(layout: Layout, recipe: NoisySums) -> None:
    _, multiples = layout.space.lattice()
    noise = sum_noise(layout.space, recipe.epsilon)
    # In Python's integers, which do not wrap around.
    size, scale = int(layout.sizes.max()), noise.of_squares or 0.0
    span = multiples[-1] - multiples[0]  # twice the largest distance from the middle
    largest_square = size * span**2 if scale else 0
    largest_sum = size * max(map(abs, multiples))
    if max(largest_sum + 64 * noise.of_sums, largest_square + 64 * scale) > _LARGEST_INTEGER:
        raise ParameterError(
            "cells and outcome values are too large for exact 64-bit sums; declare outcomes in a "
            "coarser unit, or do not calibrate"
        )


def draw_sums(
    counts: IntArray, layout: Layout, recipe: NoisySums | None, add_noise: NoiseSource
) -> SumSummary | None:
    """Noisy sums of every cell, if asked for; axes of `counts` as in `draw_summary`."""
    if recipe is None:
        return None
    _check_sums(layout, recipe)
    _, multiples = layout.space.lattice()
    noise = sum_noise(layout.space, recipe.epsilon)
    values = np.array(multiples)
    doubled = 2 * values - (values[0] + values[-1])  # twice the distance from the middle
    squares = None
    if noise.of_squares is not None:
        squares = add_noise(_whole(counts @ doubled**2), noise.of_squares)
    return SumSummary(sums=add_noise(_whole(counts @ values), noise.of_sums), squares=squares)


def _whole(sums: IntArray) -> IntArray:
    """Sums as integers, also of the expected counts that predictions are made from."""
    if sums.dtype.kind == "i":
        return sums  # not through floats, which would round them
    return np.asarray(np.rint(sums), dtype=np.int64)


class ContrastNoise(NamedTuple):
    """How one contrast is noised: as `step` times an integer with noise of scale `scale`."""

    step: float
    scale: float

    @property
    def variance(self) -> float:
        """The variance of the noise on the contrast."""
        return self.step**2 * noise_variance(self.scale)


def contrast_noise(layout: Layout, epsilon: float, cluster: int, arm: int) -> ContrastNoise:
    """The noise on a cluster's difference in means between an arm and control.

    The difference is the exact fraction (n₀S₁ − n₁S₀)·unit / (n₀n₁) of an integer. Replacing an
    outcome of arm a moves the integer by at most n₀ times the span, one of control by n_a times
    the span; and a control unit is in the contrasts of all T treatments. So the scale is
    T·max(n₀, n_a)·span/ε. For T = 1 the noise on the difference of means has scale
    (y_max − y_min)/(min(n₀, n₁)ε): correction C4.
    """
    unit, multiples = layout.space.lattice()
    n_control, n_arm = int(layout.sizes[cluster, layout.control]), int(layout.sizes[cluster, arm])
    span = multiples[-1] - multiples[0]
    sensitivity = Fraction(len(layout.treatments) * max(n_control, n_arm) * span)
    scale = noise_scale_for(sensitivity, epsilon)
    if n_control * n_arm * max(map(abs, multiples)) + 64 * scale > _LARGEST_INTEGER:
        raise ParameterError(
            "cells and outcome values are too large for exact 64-bit contrasts; "
            "declare outcomes in a coarser unit"
        )
    return ContrastNoise(step=float(unit / (n_control * n_arm)), scale=scale)


def _noisy_contrasts(
    counts: IntArray, layout: Layout, recipe: NoisyContrasts, add_noise: NoiseSource
) -> ContrastSummary:
    _, multiples = layout.space.lattice()
    sums = counts @ np.array(multiples)
    shape = (*counts.shape[:-3], len(layout.clusters), len(layout.treatments))
    contrasts, variances = np.empty(shape), np.empty(shape[-2:])
    for cluster, sizes in enumerate(layout.sizes):
        control_sums = sums[..., cluster, layout.control]
        for position, arm in enumerate(layout.treatments):
            noise = contrast_noise(layout, recipe.epsilon, cluster, arm)
            exact = sizes[layout.control] * sums[..., cluster, arm] - sizes[arm] * control_sums
            noisy = add_noise(exact, noise.scale)
            contrasts[..., cluster, position] = noise.step * noisy
            variances[cluster, position] = noise.variance
    return ContrastSummary(contrasts=contrasts, noise_variances=variances)
