"""Public weights of units in sums over clusters: stratified, rounded to integers, and capped.

The stratified mean of an arm weighs a unit by n_c/(n·n_ac). A sum of outcomes with these weights is
that mean but for a factor. Its noise grows with the largest weight, which one tiny cell decides, so
weights are capped. Estimates cover the rest by rows, without bias.

Units of clusters that lack an arm are in no effect, so they have weight zero: in totals, they would
have to be taken out by their rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.layout import Layout

# The largest weight of a unit; it decides how finely weights are rounded, and nothing else.
LARGEST_WEIGHT = 256


def stratified_weights(layout: Layout, noise_in_rows: float) -> IntArray:
    """x_ac in 1…256, proportional to n_c/n_ac up to a cap in each arm; axes `[cluster, arm]`.

    They are zero in clusters that lack an arm. Weights follow from public numbers alone. Those of
    an arm have a scale of their own.

    Args:
        layout: The cells.
        noise_in_rows: N, how many rows have as much noise as a total whose units count once. The
            more, the lower the cap.
    """
    sizes = layout.sizes
    whole = sizes.sum(axis=1, keepdims=True)
    compared = layout.complete[:, np.newaxis]
    inverse = np.where(compared, whole / np.maximum(sizes, 1), 0.0)
    caps = np.array([_cap(*arm, noise_in_rows) for arm in zip(inverse.T, sizes.T, strict=True)])
    shares = np.minimum(inverse / caps, 1.0)
    rounded = np.maximum(np.rint(LARGEST_WEIGHT * shares), 1.0)
    return np.asarray(np.where(compared, rounded, 0.0), dtype=np.int64)


def _cap(inverse: FloatArray, sizes: IntArray, noise_in_rows: float) -> float:
    """The cap κ that minimises N·κ² + Σ n(w − κ)², the sum over the cells with w > κ.

    If the k largest weights exceed it, it is Σ n·w/(N + Σ n) over these. That rises with k as long
    as the next weight exceeds it, so it is the largest over k.
    """
    order = np.argsort(-inverse, kind="stable")
    above = np.cumsum(sizes[order] * inverse[order])
    return float((above / (noise_in_rows + np.cumsum(sizes[order]))).max())
