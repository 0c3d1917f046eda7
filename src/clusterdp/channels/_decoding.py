"""What outputs of a channel must count as, so that their mean is a given function of the category.

A function f can be decoded if it is in the span of the channel: f(y) = Σ_s P(s|y)·g(s) for some g.
Of all such g the one of least variance under a prior is g = D⁻¹Q(Q'D⁻¹Q)⁺f, with Q[s, y] = P(s|y)
and D the probabilities of outputs under that prior. Where f is not in the span, the same formula
gives the nearest function that is, and the residual is the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.base import TABLE_TOTAL

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray


# Singular values below this share of the largest are taken as 0.
_RANK_TOLERANCE = 1e-9
# Each repetition takes away what rounding to doubles left of the residual.
_REPETITIONS = 3


class Decoded(NamedTuple):
    """What outputs count as.

    Attributes:
        outputs: g; axes `[function, released]`. Impossible outputs count as 0.
        residual: E[g | category] − f, see `residuals`; axes `[function, category]`.
        rank: The dimension of the span of the channel.
    """

    outputs: FloatArray
    residual: FloatArray
    rank: int


def decode_functions(table: IntArray, prior: FloatArray, functions: FloatArray) -> Decoded:
    """The decoding of least variance for functions of the category.

    Args:
        table: P in integers over TABLE_TOTAL; axes `[true, released]`.
        prior: How likely categories are thought to be, above 0; axes `[category]`.
        functions: f; axes `[function, category]`.
    """
    inverse, rank = _inverse(table, prior)
    outputs = np.zeros((len(functions), table.shape[1]))
    for _ in range(_REPETITIONS):
        outputs = outputs - residuals(table, outputs, functions) @ inverse.T
    return Decoded(outputs, residuals(table, outputs, functions), rank)


def without_bias(
    table: IntArray, prior: FloatArray, outputs: FloatArray, values: FloatArray
) -> FloatArray:
    """Outputs moved as little as makes them unbiased, as far as the channel allows.

    Args:
        table: P in integers over TABLE_TOTAL; axes `[true, released]`.
        prior: How likely categories are thought to be, above 0; axes `[category]`.
        outputs: What outputs count as; axes `[metric, released]`.
        values: What they should have as their means; axes `[metric, category]`.
    """
    inverse, _ = _inverse(table, prior)
    for _ in range(_REPETITIONS):
        outputs = outputs - residuals(table, outputs, values) @ inverse.T
    return outputs


def residuals(table: IntArray, outputs: FloatArray, functions: FloatArray) -> FloatArray:
    """E[output | category] − f, in long doubles as they add up; axes `[function, category]`.

    Axes before those of `table`, which must be `[..., true, released]`, are kept in front.
    """
    weights = table.astype(np.longdouble)[..., np.newaxis, :, :]
    means = (weights * outputs[..., :, np.newaxis, :]).sum(axis=-1) / TABLE_TOTAL
    return np.asarray(means - functions, dtype=np.float64)


def _inverse(table: IntArray, prior: FloatArray) -> tuple[FloatArray, int]:
    """D⁻¹Q(Q'D⁻¹Q)⁺, axes `[released, category]`, and the rank of the channel."""
    channel = table / TABLE_TOTAL
    scale = np.sqrt(np.maximum(prior, 0.0) @ channel)
    possible = scale > 0
    scaled = channel[:, possible] / scale[possible]
    left, sizes, right = np.linalg.svd(scaled, full_matrices=False)
    spanned = sizes > _RANK_TOLERANCE * sizes[0]
    inverse = np.zeros(table.T.shape)
    inverse[possible] = (right[spanned].T / sizes[spanned]) @ left[:, spanned].T
    inverse[possible] /= scale[possible, np.newaxis]
    return inverse, int(spanned.sum())
