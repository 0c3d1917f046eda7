"""Drawn rows with covariates, as adjustment reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.estimation.means.adjustment import CovariateRows
from clusterdp.estimation.reading.covariates import Piece
from clusterdp.estimation.reading.profiles import Profiles, ResponseCounts

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.means.responses import ResponseValues


def to_rows(
    cells: IntArray,
    responses: IntArray,
    covariates: FloatArray,
    outputs: ResponseValues,
    shape: tuple[int, int],
) -> CovariateRows:
    """Rows with covariates, from their cells and responses.

    Args:
        cells: The cell of each row; axes `[row]`.
        responses: Its response; axes `[row]`.
        covariates: Axes `[covariate, row]`.
        outputs: What responses tell, the same in all cells.
        shape: How many clusters and arms there are.
    """
    n_responses = outputs.values.shape[-1]
    keys, entries, counts = np.unique(
        cells * n_responses + responses, return_inverse=True, return_counts=True
    )

    def pieces(arm: int) -> list[Piece]:
        chosen = cells % shape[1] == arm
        return [(entries[chosen], covariates[:, chosen])]

    every = np.arange(shape[0] * shape[1])
    sizes = np.bincount(cells, minlength=len(every))
    profiles = Profiles(cells=every, sizes=sizes, shape=shape, folds=None, groups={})
    counted = ResponseCounts(keys // n_responses, keys % n_responses, counts)
    return CovariateRows(counted, profiles, outputs, pieces)
