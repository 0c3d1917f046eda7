"""The unbiased channel of least variance that (ε, δ) allows, as real numbers.

A unit's outcome is a category, which counts as one number per metric. The channel minimises the
sum over metrics of weight times variance, averaged over categories by a prior. It is a mixture of
steps (see `cone_program`). With δ > 0 each category may also spend δ on an output of its own, which
in no metric lies farther out than the outputs of Duchi's two-point mechanism: a rare output far out
would save variance, and no mean of it would be near normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.cone_program import ConeProgram
from clusterdp.channels.generation import find_optimum, find_roughly
from clusterdp.channels.reduction import reduce_mixture

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.channels.reduction import Reduced

# A category thought rarer than this is designed for as if it were this rare; with δ, revealing it
# has a cost in proportion, and the program would be badly scaled.
_RAREST, _RAREST_REVEALED = 1e-9, 1e-6
# Costs nearer than this to their bound have reached it.
_NO_GAP = 1e-11


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staircase:
    """A channel in real numbers: P(step|y) = low, or `ratio` times low, plus what is revealed.

    Attributes:
        high: The categories under which a step is likelier; axes `[step, category]`.
        low: A step's probability under the others; axes `[step]`.
        outputs: What a step counts as; axes `[metric, step]`.
        reveals: What each category's own output counts as; axes `[metric, category]`. It occurs
            with probability δ.
        ratio: e^ε.
        gap: The variance is at most this share above the least possible; infinite if no bound is
            known.
    """

    high: BoolArray
    low: FloatArray
    outputs: FloatArray
    reveals: FloatArray
    ratio: float
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Scaling:
    """How values become those of a program: ordered, centred, and every metric of weight one.

    Attributes:
        order: The categories in the order of the program; axes `[category]`.
        centre: What is subtracted; axes `[metric]`.
        unit: What is divided by; axes `[metric]`.
    """

    order: IntArray
    centre: FloatArray
    unit: FloatArray

    def restored(self, scaled: FloatArray) -> FloatArray:
        """Numbers of the program in units of the metrics; axes `[metric, ...]`."""
        return np.asarray(self.centre[:, np.newaxis] + self.unit[:, np.newaxis] * scaled)


def design_staircase(
    values: FloatArray, prior: FloatArray, weights: FloatArray, *, ratio: float, delta: float = 0.0
) -> Staircase | None:
    """The channel of least expected variance for a prior.

    None if the solver gives up, or if all categories count as the same.

    Args:
        values: What categories count as; axes `[metric, category]`.
        prior: How likely categories are thought to be; axes `[category]`.
        weights: What a metric's variance counts for, above 0; axes `[metric]`.
        ratio: e^ε.
        delta: δ.
    """
    if not np.ptp(values, axis=1).any():
        return None
    program, scaling = _program(values, prior, weights, ratio, delta)
    found = find_optimum(program)
    if found is None:
        return None
    reduced = reduce_mixture(program, found.mixture)
    if reduced is None:
        return None
    back = np.argsort(scaling.order, kind="stable")
    levels = np.where(reduced.high, ratio, 1.0)
    return Staircase(
        high=reduced.high[:, back],
        low=reduced.mass / (levels @ program.prior),
        outputs=scaling.restored(reduced.outputs.T),
        reveals=scaling.restored(reduced.reveals)[:, back],
        ratio=ratio,
        gap=_gap(program, reduced, found.bound),
    )


def rough_noise(
    values: FloatArray, prior: FloatArray, weights: FloatArray, *, ratio: float
) -> FloatArray | None:
    """About the noise variance of that channel, by a short search; axes `[metric, category]`.

    The channel of a short search costs up to 5% more (8 × 8 levels at ε = 3: 3.8%), and takes a
    small part of the time. Arguments as for `design_staircase`.
    """
    program, scaling = _program(values, prior, weights, ratio, 0.0)
    mixture = find_roughly(program)
    if mixture is None:
        return None
    squares = (mixture.moved**2 / mixture.mass[:, np.newaxis]).T @ program.levels(mixture.high)
    noise = (squares - program.values**2) * scaling.unit[:, np.newaxis] ** 2
    return np.asarray(noise[:, np.argsort(scaling.order, kind="stable")])


def _program(
    values: FloatArray, prior: FloatArray, weights: FloatArray, ratio: float, delta: float
) -> tuple[ConeProgram, _Scaling]:
    """The program for some values, in which the cost is of the size of one."""
    # Neighbours in value become neighbours in order: a high set then has few runs.
    order = np.lexsort(values[::-1])
    likely = np.maximum(prior[order] / prior.sum(), _RAREST_REVEALED if delta else _RAREST)
    likely /= likely.sum()
    ordered = values[:, order]
    centre = ordered @ likely
    reach = (ratio + 1) / (ratio - 1)
    half_spans = np.ptp(values, axis=1) / 2
    two_points = float((weights * half_spans**2).sum()) * reach**2
    k_ary = float(weights @ _k_ary_squares(ordered - centre[:, np.newaxis], likely, ratio))
    unit = (np.sqrt(min(two_points, k_ary)) or 1.0) / np.sqrt(weights)
    middle = (values.max(axis=1) + values.min(axis=1)) / 2 - centre
    ends = np.stack([middle - half_spans * reach, middle + half_spans * reach], axis=1)
    program = ConeProgram(
        values=(ordered - centre[:, np.newaxis]) / unit[:, np.newaxis],
        prior=likely,
        ratio=ratio,
        delta=delta,
        ends=ends / unit[:, np.newaxis],
    )
    return program, _Scaling(order=order, centre=centre, unit=unit)


def _k_ary_squares(values: FloatArray, prior: FloatArray, ratio: float) -> FloatArray:
    """E[output²] of k-ary randomized response in each metric; axes `[metric]`."""
    keep_prob = (ratio - 1) / (ratio - 1 + len(prior))
    outputs = (values - (1 - keep_prob) * values.mean(axis=1, keepdims=True)) / keep_prob
    released = keep_prob * prior + (1 - keep_prob) / len(prior)
    return np.asarray(outputs**2 @ released)


def _gap(program: ConeProgram, reduced: Reduced, bound: float) -> float:
    """By how much of the least excess variance a channel may exceed it."""
    spread = program.spread
    if reduced.cost - bound <= _NO_GAP:
        return 0.0
    return (reduced.cost - bound) / (bound - spread) if bound > spread else np.inf
