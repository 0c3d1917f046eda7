"""An oracle for optimal channels: the cone program as it is written, over all high sets."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import clarabel  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray


def least_variance(
    values: FloatArray, prior: FloatArray, weights: FloatArray, epsilon: float
) -> float:
    """The least sum over metrics of weight times noise variance; values `[metric, category]`.

    Variables are masses, moved values and their costs t, with t·mass ≥ Σ weight·moved².
    """
    n_metrics, n_categories = values.shape
    # In units in which outputs are of the size of one, the solver is at its best.
    spans = np.sqrt(weights) * np.ptp(values, axis=1)
    unit = float(spans.max() / np.tanh(epsilon / 2))
    centre = values @ prior / prior.sum()
    scaled = (values - centre[:, None]) * np.sqrt(weights)[:, None] / unit
    high = np.array(list(product([False, True], repeat=n_categories)))[1:-1]
    levels = np.where(high, np.exp(epsilon), 1.0)
    levels /= (levels @ prior / prior.sum())[:, None]
    n_sets, size = len(high), n_metrics + 2
    mass, cost = np.eye(size)[0], np.eye(size)[-1]
    equations = [sparse.kron(sparse.csc_matrix(levels.T), mass[None])]
    cone = [-(cost + mass), -(cost - mass)]
    for metric in range(n_metrics):
        moved = np.eye(size)[1 + metric]
        equations.append(sparse.kron(sparse.csc_matrix(levels.T), moved[None]))
        cone.append(-2 * moved)
    cones = sparse.kron(sparse.identity(n_sets), np.array(cone))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    found = clarabel.DefaultSolver(
        sparse.csc_matrix((n_sets * size, n_sets * size)),
        np.tile(cost, n_sets),
        sparse.vstack([*equations, cones], format="csc"),
        np.concatenate([np.ones(n_categories), scaled.ravel(), np.zeros(n_sets * size)]),
        [clarabel.ZeroConeT((1 + n_metrics) * n_categories)]
        + [clarabel.SecondOrderConeT(size)] * n_sets,
        settings,
    ).solve()
    squares = float((scaled**2 @ prior).sum() / prior.sum())
    return (float(found.obj_val) - squares) * unit**2
