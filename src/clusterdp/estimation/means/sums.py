"""Sums over units: published ones as one sparse design, and weighted ones over rows.

Every function takes arrays with leading `...` axes for replicates, so that one release and
thousands of simulated ones are estimated by the same code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.estimation.means.responses import ProfileSums
from clusterdp.estimation.reading.profiles import Profiles
from clusterdp.statistics.base import SumReading

if TYPE_CHECKING:
    from scipy.sparse import csr_array


# The least noise that a sum is taken to have, as a share of its weights: without any, exact sums
# that add up to others would be ambiguous.
_LEAST_RIDGE = 1e-10
# Rows with less noise than this share of that of a sum are taken to have as much.
_LEAST_NOISE = 1e-12


class PublishedSums:
    """Noisy sums Z = X'y + noise of variance W.

    A number is added for every unit: the sizes of profiles are public.

    Attributes:
        design: X, the weight of a unit of a profile in each sum; axes `[profile, sum]`.
        values: Z; axes `[..., sum]`.
        variances: W; axes `[sum]`.

    Args:
        readings: The sums.
        profiles: What they distinguish.
        shifts: What is added, of each reading or of all.
    """

    def __init__(
        self, readings: Sequence[SumReading], profiles: Profiles, shifts: float | Sequence[float]
    ) -> None:
        sizes, self.design = n_sums(readings), sum_design(readings, profiles)
        flat = [one.value.reshape(*one.value.shape[:-3], -1) for one in readings]
        joined = np.concatenate(flat, axis=-1) if flat else np.zeros(0)
        added = np.repeat(np.broadcast_to(shifts, len(readings)), sizes)
        self.values: FloatArray = joined + added * (profiles.sizes @ self.design)
        self.variances: FloatArray = np.repeat([one.variance for one in readings], sizes)


def sum_design(readings: Sequence[SumReading], profiles: Profiles) -> csr_array:
    """X: the weight of each profile's cell in the sum that the profile is part of, or zero.

    Each reading has at most one sum that a profile is part of.
    """
    from scipy.sparse import csr_array

    n_profiles, offsets = len(profiles.cells), np.cumsum([0, *n_sums(readings)])
    if not readings:
        return csr_array((n_profiles, 0))
    folders = {one.folder: profiles.of_folder(one.folder) for one in readings}
    own = [folders[one.folder] for one in readings]
    pairs = list(zip(readings, own, strict=True))
    weights = [
        one.weights.ravel()[mine.released_cells(one.weights.shape[-1])] for one, (_, mine) in pairs
    ]
    columns = [_places(one, mine) for one, (_, mine) in pairs]
    placed = [offset + column for offset, column in zip(offsets, columns, strict=False)]
    rows = np.concatenate([places for places, _ in own])
    entries = np.concatenate(weights).astype(np.float64)
    return csr_array((entries, (rows, np.concatenate(placed))), shape=(n_profiles, offsets[-1]))


def of_fold(readings: Sequence[SumReading], fold: int) -> tuple[SumReading, ...]:
    """The sums of one fold alone; those that are not split by fold are left out."""
    chosen = slice(fold, fold + 1)
    return tuple(
        one._replace(
            value=one.value[..., chosen, :],
            squares=None if one.squares is None else one.squares[..., chosen, :],
        )
        for one in readings
        if one.value.shape[-2] > 1
    )


def _places(reading: SumReading, profiles: Profiles) -> IntArray:
    """The sum of a reading that each profile is part of; sums go by group, fold and arm."""
    n_folds, n_arms = reading.value.shape[-2:]
    groups: IntArray | int = 0
    if reading.by is None:
        groups = profiles.clusters
    elif reading.by:
        groups = profiles.groups[reading.by]
    folds = profiles.folds if n_folds > 1 and profiles.folds is not None else 0
    return np.asarray((groups * n_folds + folds) * n_arms + profiles.released_arms)


def n_sums(readings: Sequence[SumReading]) -> list[int]:
    """How many sums each reading has."""
    return [math.prod(one.value.shape[-3:]) for one in readings]


class SumSolver:
    """Solves (X'NX + R)b = X's for many s; N the sizes of profiles, R a diagonal matrix."""

    def __init__(self, design: csr_array, sizes: IntArray, ridge: FloatArray) -> None:
        from scipy.sparse import diags_array
        from scipy.sparse.linalg import splu

        self.design, self.transposed, self._factors = design, design.T.tocsr(), None
        if design.shape[1]:
            gram = self.transposed @ diags_array(sizes.astype(np.float64)) @ design
            # Sums that are known exactly may be sums of others: any share will do, if it is one.
            least = _LEAST_RIDGE * np.maximum(gram.diagonal(), 1.0)
            matrix = (gram + diags_array(np.maximum(ridge, least))).tocsc()
            # The sums of one reading have no units in common. An order that knows the matrix to be
            # symmetric eliminates those first, and what is left is small.
            symmetric = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
            self._factors = splu(matrix, diag_pivot_thresh=0.0, **symmetric)

    def solve(self, right: FloatArray) -> FloatArray:
        """b, given X's; axes `[..., sum]` of both."""
        if self._factors is None:
            return right
        flat = right.reshape(-1, right.shape[-1])
        return np.asarray(self._factors.solve(flat.T).T.reshape(right.shape))


def sum_ridge(variances: FloatArray, unit_noise: float | FloatArray) -> FloatArray:
    """W/v̄, from variances of sums; rows without noise count for next to everything."""
    least = np.maximum(unit_noise, _LEAST_NOISE * variances)
    return np.divide(variances, least, out=np.zeros_like(least), where=least > 0)


def public_ridge(readings: Sequence[SumReading], unit_noise: float | Sequence[float]) -> FloatArray:
    """The same of some sums; v̄ is that of each reading, or of all."""
    sizes = n_sums(readings)
    each = np.broadcast_to(np.asarray(unit_noise, np.float64), len(readings))
    variances = np.array([one.variance for one in readings], np.float64)
    return sum_ridge(np.repeat(variances, sizes), np.repeat(each, sizes))


class WeightedSums(NamedTuple):
    """Weighted sums over rows: Σ s_i·ỹ_i, with public weights s. Axes `[..., functional]`.

    Attributes:
        values: Σ s·ỹ, ỹ as distances from the middle.
        weights: Σ s over the rows of each profile; axes `[..., functional, profile]`.
        sums: Σ s·ỹ, the same; axes as those of weights.
        squares: Σ s·(ỹ² − v̂), v̂ the estimated noise variance of a row; axes as those of weights.
        noise: Σ s·v̂; axes as those of weights.
        square_noise: Σ s²·v̂ over all rows.
        square_weights: Σ s² over all rows.
        places: The profiles that rows are in, along these axes; None for all of them.
    """

    values: FloatArray
    weights: FloatArray
    sums: FloatArray
    squares: FloatArray
    noise: FloatArray
    square_noise: FloatArray
    square_weights: FloatArray
    places: IntArray | None = None

    @classmethod
    def from_rows(
        cls, part: ProfileSums, each: FloatArray, places: IntArray | None = None
    ) -> WeightedSums:
        """Sums over rows whose weights are the same within a profile.

        Args:
            part: The rows.
            each: s; axes `[..., functional, profile]`.
            places: The profiles that rows are in; None for all of them.
        """
        sizes, sums, squares, noise = (
            terms[..., np.newaxis, :] for terms in (part.sizes, part.sums, part.squares, part.noise)
        )
        return cls(
            values=(each * sums).sum(axis=-1),
            weights=each * sizes,
            sums=each * sums,
            squares=each * (squares - noise),
            noise=each * noise,
            square_noise=(each**2 * noise).sum(axis=-1),
            square_weights=(each**2 * sizes).sum(axis=-1),
            places=places,
        )
