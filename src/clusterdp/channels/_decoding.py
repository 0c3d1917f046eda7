"""What outputs of a channel must count as, so that their mean is a given function of the category.

A function f can be decoded if it is in the span of the channel: f(y) = Σ_s P(s|y)·g(s) for some g.
Of all such g the one of least variance under a prior is g = D⁻¹Q(Q'D⁻¹Q)⁺f, with Q[s, y] = P(s|y)
and D the probabilities of outputs under that prior. Where f is not in the span, the same formula
gives the nearest function that is, and the residual is the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.base import TABLE_TOTAL

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray


# Singular values below this share of the largest are taken as 0.
_RANK_TOLERANCE = 1e-9
# Each repetition takes away what rounding to doubles left of the residual.
_REPETITIONS = 3


def decode_functions(
    table: IntArray, prior: FloatArray, functions: FloatArray, near: FloatArray | None = None
) -> FloatArray:
    """What outputs count as in functions of the category; axes `[function, released]`.

    It is the decoding of least variance; or, near what outputs should count as, the one that moves
    them least. Impossible outputs count as 0. Where a function is not in the span, `residuals` are
    not 0.

    Args:
        table: P in integers over TABLE_TOTAL; axes `[true, released]`.
        prior: How likely categories are thought to be, above 0; axes `[category]`.
        functions: f; axes `[function, category]`.
        near: What is moved, axes as those of the result; None for nothing.
    """
    inverse = _inverse(table, prior)
    outputs = np.zeros((len(functions), table.shape[1])) if near is None else near
    for _ in range(_REPETITIONS):
        outputs = outputs - residuals(table, outputs, functions) @ inverse.T
    return outputs


def residuals(table: IntArray, outputs: FloatArray, functions: FloatArray) -> FloatArray:
    """E[output | category] − f, in long doubles as they add up; axes `[function, category]`.

    Axes before those of `table`, which must be `[..., true, released]`, are kept in front.
    """
    weights = table.astype(np.longdouble)[..., np.newaxis, :, :]
    means = (weights * outputs[..., :, np.newaxis, :]).sum(axis=-1) / TABLE_TOTAL
    return np.asarray(means - functions, dtype=np.float64)


def _inverse(table: IntArray, prior: FloatArray) -> FloatArray:
    """D⁻¹Q(Q'D⁻¹Q)⁺; axes `[released, category]`."""
    channel = table / TABLE_TOTAL
    scale = np.sqrt(np.maximum(prior, 0.0) @ channel)
    possible = scale > 0
    scaled = channel[:, possible] / scale[possible]
    left, sizes, right = np.linalg.svd(scaled, full_matrices=False)
    spanned = sizes > _RANK_TOLERANCE * sizes[0]
    inverse = np.zeros(table.T.shape)
    inverse[possible] = (right[spanned].T / sizes[spanned]) @ left[:, spanned].T
    inverse[possible] /= scale[possible, np.newaxis]
    return inverse
