"""The unbiased channel of least variance that (ε, δ) allows, as real numbers.

A unit's outcome is a category, which counts as one number per metric. The channel minimizes the
sum over metrics of weight times variance, averaged over categories by a prior. It is a mixture of
steps (see `program.py`). With δ > 0 each category may also spend δ on an output of its own, which
in no metric lies farther out than the outputs of Duchi's two-point mechanism: a rare output far out
would save variance, and no mean of it would be near normal.

**Plain channels** exist for every space of categories and every ε, exact in integers. They serve
where no channel of least variance was found. Both are made of two weights, the least `low` with
high = T − (n − 1)·low ≤ ratio·low, n the number of outputs and T = TABLE_TOTAL:

- k-ary randomized response releases the category itself with weight `high`, and each other one with
  weight `low`. Decoded as m + (y − m)·T/(high − low), m the mean of a metric's values, it is
  unbiased in every metric.
- Duchi's two points, for one metric: the upper one has weight `low` for the lowest value, `high`
  for the largest one, and for others what lies between in proportion, rounded.

Weights of an output lie between `low` and `high`, so no ratio exceeds the largest one allowed. For
ε ≥ 0.01 and at most 2^16 categories high − low > 0, so both can be decoded. Outputs are rounded to
doubles once, which moves a mean by at most 2^-53 of the largest output; rounding the weight of a
point moves it by at most 1/T of that. Both are far below `MOST_BIAS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from clusterdp._progress import channel_done
from clusterdp.channels._solver.generation import find_optimum, near_optimum, reduce_mixture
from clusterdp.channels._solver.program import ConeProgram
from clusterdp.channels.base import TABLE_TOTAL

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.channels._solver.generation import ReducedMixture


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

    def noise(self, values: FloatArray) -> FloatArray:
        """Var(output | category) of each metric, without what is revealed; `[metric, category]`."""
        probs = np.where(self.high, self.ratio, 1.0) * self.low[:, np.newaxis]
        return np.asarray(self.outputs**2 @ probs - values**2)


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
    # Matrices are small: threads that wait for each other take five times as long as one.
    with _linear_algebra().limit(limits=1, user_api="blas"):
        found = find_optimum(program)
        reduced = None if found is None else reduce_mixture(program, found[0])
    channel_done()
    if found is None or reduced is None:
        return None
    levels = np.where(reduced.high, ratio, 1.0)
    return Staircase(
        high=reduced.high[:, scaling.back],
        low=reduced.mass / (levels @ program.prior),
        outputs=scaling.restored(reduced.outputs.T),
        reveals=scaling.restored(reduced.reveals)[:, scaling.back],
        ratio=ratio,
        gap=_gap(program, reduced, found[1]),
    )


def near_noise(
    values: FloatArray, prior: FloatArray, weights: FloatArray, *, ratio: float, delta: float = 0.0
) -> FloatArray | None:
    """The noise variance of a channel that is nearly the best; axes `[metric, category]`.

    Plans compare many ε, and need no channel. Arguments as of `design_staircase`; None where that
    gives None or fails.
    """
    if not np.ptp(values, axis=1).any():
        return None
    program, scaling = _program(values, prior, weights, ratio, delta)
    with _linear_algebra().limit(limits=1, user_api="blas"):
        try:
            found = near_optimum(program)
        except np.linalg.LinAlgError:  # a decomposition that does not converge
            found = None
    channel_done()
    if found is None:
        return None
    used = found.mass > 0
    levels, moved = program.levels(found.high[used]), found.moved[used].T
    squares = (moved**2 / found.mass[used]) @ levels + delta * found.reveals**2
    noise = np.maximum(squares - program.values**2, 0.0)
    return np.asarray((scaling.unit[:, np.newaxis] ** 2 * noise)[:, scaling.back])


class _Scaling(NamedTuple):
    """How the values and categories of a program come from those that were given.

    Attributes:
        order: The categories in the order of the program.
        centre: What 0 stands for; axes `[metric]`.
        unit: What 1 stands for; axes `[metric]`.
    """

    order: IntArray
    centre: FloatArray
    unit: FloatArray

    def restored(self, scaled: FloatArray) -> FloatArray:
        """Values in the units of metrics; axes `[metric, ...]`."""
        return np.asarray(self.centre[:, np.newaxis] + self.unit[:, np.newaxis] * scaled)

    @property
    def back(self) -> IntArray:
        """Where the categories are in the program, in the order that they were given in."""
        return np.argsort(self.order, kind="stable")


@lru_cache(maxsize=1)
def _linear_algebra() -> ThreadpoolController:
    """What can say how many threads NumPy and SciPy use, once both are loaded."""
    import scipy.linalg  # noqa: F401 - it brings a library of its own

    return ThreadpoolController()


def _program(
    values: FloatArray, prior: FloatArray, weights: FloatArray, ratio: float, delta: float
) -> tuple[ConeProgram, _Scaling]:
    """The program for some values, in which the cost is of the size of one.

    Returns:
        The program, in which values are ordered and centred, and every metric has weight one; and
        how to come back from it.
    """
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
    return program, _Scaling(order, centre, unit)


def k_ary_noise(values: FloatArray, prior: FloatArray, ratio: float) -> FloatArray:
    """The noise variance of k-ary randomized response in each metric; axes `[metric]`."""
    return np.asarray(_k_ary_squares(values, prior, ratio) - values**2 @ prior)


def _k_ary_squares(values: FloatArray, prior: FloatArray, ratio: float) -> FloatArray:
    """E[output²] of k-ary randomized response in each metric; axes `[metric]`."""
    keep_prob = (ratio - 1) / (ratio - 1 + len(prior))
    outputs = (values - (1 - keep_prob) * values.mean(axis=1, keepdims=True)) / keep_prob
    released = keep_prob * prior + (1 - keep_prob) / len(prior)
    return np.asarray(outputs**2 @ released)


def _gap(program: ConeProgram, reduced: ReducedMixture, bound: float) -> float:
    """By how much of the least excess variance a channel may exceed it."""
    spread = program.spread
    if reduced.cost - bound <= _NO_GAP:
        return 0.0
    return (reduced.cost - bound) / (bound - spread) if bound > spread else np.inf


# With more categories, two points are better at any ε of use, and the other table is large.
_MOST_K_ARY = 1024


def plain_design(
    prior: FloatArray, values: FloatArray, max_ratio: Fraction
) -> tuple[IntArray, FloatArray]:
    """The better of the two for a prior; it always exists.

    Args:
        prior: How likely categories are thought to be; axes `[category]`.
        values: What categories count as; axes `[metric, category]`.
        max_ratio: No output is likelier than this many times under another category.

    Returns:
        Weights over TABLE_TOTAL, axes `[true, released]`, and outputs `[metric, released]`.
    """
    made = [two_points(values[0], max_ratio)] if len(values) == 1 else []
    if not made or len(prior) <= _MOST_K_ARY:
        made.append(k_ary_response(values, max_ratio))
    return min(made, key=lambda channel: _expected_square(prior, values, *channel))


def two_points(values: FloatArray, max_ratio: Fraction) -> tuple[IntArray, FloatArray]:
    """Duchi's two-point mechanism for one metric; returns as `plain_design`, outputs increasing."""
    exact = [Fraction(value) for value in values.tolist()]
    least, largest = min(exact), max(exact)
    low, high = _weights(2, max_ratio)
    rise = Fraction(high - low) / (largest - least) if largest > least else Fraction(0)
    upper = np.array([low + round((value - least) * rise) for value in exact])
    middle = (least + largest) / 2
    reach = (largest - least) / 2 * Fraction(TABLE_TOTAL, high - low)
    outputs = np.array([[float(middle - reach), float(middle + reach)]])
    return np.stack([TABLE_TOTAL - upper, upper], axis=1), outputs


def k_ary_response(values: FloatArray, max_ratio: Fraction) -> tuple[IntArray, FloatArray]:
    """k-ary randomized response for any number of metrics; returns as `plain_design`."""
    n_categories = values.shape[1]
    low, high = _weights(n_categories, max_ratio)
    table = np.full((n_categories, n_categories), low)
    np.fill_diagonal(table, high)
    stretch = Fraction(TABLE_TOTAL, high - low)
    return table, np.array([_stretched(metric, stretch) for metric in values.tolist()])


def _stretched(values: list[float], stretch: Fraction) -> list[float]:
    """Values moved away from their mean, exactly, then rounded once."""
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    return [float(mean + (value - mean) * stretch) for value in exact]


def _weights(n_outputs: int, max_ratio: Fraction) -> tuple[int, int]:
    """The least weight of an output that n − 1 others can share, and what is left for the last."""
    low = -(-TABLE_TOTAL // (max_ratio + n_outputs - 1))
    return low, TABLE_TOTAL - (n_outputs - 1) * low


def _expected_square(
    prior: FloatArray, values: FloatArray, table: IntArray, outputs: FloatArray
) -> float:
    distance = outputs[:, np.newaxis] - values[..., np.newaxis]
    return float(((table * distance**2).sum(axis=-1) @ prior).sum())
