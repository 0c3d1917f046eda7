"""Adjusted means beside regressions row by row, with a pool and a cluster that lacks an arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from bench.covariate_rows import to_rows

from clusterdp.estimation.means import adjustment
from clusterdp.estimation.means.calibration import CalibratedSums
from clusterdp.estimation.means.responses import ResponseValues
from clusterdp.estimation.means.spread import SpreadEstimate
from clusterdp.estimation.means.weights import CellWeights, weigh_cells
from populations import make_layout

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

# The second cluster lacks an arm; the last two have so few units that they are pooled.
SIZES = np.array([[30, 25, 20], [9, 0, 9], [22, 30, 25], [8, 5, 8], [6, 8, 7]])
N_RESPONSES = 4


class Rows(NamedTuple):
    """Rows; axes `[row]`, and of covariates `[covariate, row]`."""

    clusters: IntArray
    arms: IntArray
    responses: IntArray
    covariates: FloatArray

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Rows:
        cells = np.repeat(np.arange(SIZES.size), SIZES.ravel())
        clusters, arms = np.divmod(cells, SIZES.shape[1])
        covariates = rng.normal(size=(2, len(cells))) + 0.3 * clusters
        return cls(clusters, arms, rng.integers(0, N_RESPONSES, len(cells)), covariates)


class ByHand(NamedTuple):
    """What is expected of one arm: weights of rows, and moments of its clusters."""

    weights: FloatArray
    means: FloatArray
    squares: FloatArray
    noise: FloatArray


def regressed(
    outcomes: FloatArray, rows: Rows, weights: CellWeights, position: int, arm: int
) -> tuple[FloatArray, FloatArray]:
    """Adjusted means of clusters, and residuals of the arm's rows, by least squares."""
    own = (rows.arms == arm) & weights.compared[rows.clusters]
    target = rows.covariates[:, weights.compared[rows.clusters]].mean(axis=1)
    pooled = weights.pooled[rows.clusters, 0]
    units = weights.of_units()[rows.clusters, position]

    def centred(values: FloatArray) -> FloatArray:
        left = values.copy()
        for cluster in np.unique(rows.clusters[own]):
            there = own & (rows.clusters == cluster)
            left[there] -= values[there].mean()
        pool = own & pooled
        left[pool] = values[pool] - np.average(values[pool], weights=units[pool])
        return np.asarray(left[own])

    design = np.stack([centred(one) for one in rows.covariates], axis=1)
    response = centred(outcomes)
    slopes = np.linalg.lstsq(design, response, rcond=None)[0]
    means = np.zeros(len(SIZES))
    for cluster in np.unique(rows.clusters[own]):
        there = own & (rows.clusters == cluster)
        gap = rows.covariates[:, there].mean(axis=1) - target
        means[cluster] = outcomes[there].mean() - gap @ slopes
    return means, response - design @ slopes


def by_hand(
    rows: Rows, weights: CellWeights, position: int, arm: int, outputs: ResponseValues
) -> ByHand:
    """The weight of a row is what the mean becomes if its outcome is one, and all others zero."""
    own = np.flatnonzero((rows.arms == arm) & weights.compared[rows.clusters])
    shares = weights.shares[:, position]
    found = np.zeros(len(rows.arms))
    for row, outcomes in zip(own, np.eye(len(rows.arms))[own], strict=True):
        found[row] = shares @ regressed(outcomes, rows, weights, position, arm)[0]
    means, residuals = regressed(outputs.values[0, rows.responses], rows, weights, position, arm)
    influence = found[own] / weights.of_units()[rows.clusters[own], position]
    pooled = weights.pooled[:, 0]
    n_centres = len(set(rows.clusters[own][~pooled[rows.clusters[own]]])) + 1
    free = len(own) - n_centres
    squares = (residuals * influence) ** 2 * free / (free - len(rows.covariates))
    noise = outputs.noise[0, rows.responses[own]] * influence**2
    distances = np.where(pooled, means - np.average(means, weights=shares * pooled), 0.0)
    return ByHand(
        weights=found,
        means=means,
        squares=np.bincount(rows.clusters[own], squares, len(SIZES))
        - weights.sizes[:, position] * distances**2,
        noise=np.asarray(np.bincount(rows.clusters[own], noise, len(SIZES)), np.float64),
    )


def plain_means(row_noise: float) -> CalibratedSums:
    """The means of two arms without slopes: half of the variance of outcomes, 1, is explained."""
    zeros = np.zeros(2)
    spread = SpreadEstimate(
        shift=zeros,
        noise=zeros,
        slope=zeros,
        most=np.ones(2),
        weights=np.full(2, 0.01),
        unit_noise=row_noise,
        of_units=np.ones(2),
    )
    return CalibratedSums(zeros, zeros, zeros, spread, zeros, zeros)


def test_slopes_count_the_less_the_noisier_rows_are(rng: np.random.Generator) -> None:
    """Between Lin's mean and the plain one, by λ on the way that λ(2 − λ) says."""
    layout, rows = make_layout(3 * SIZES), Rows.drawn(rng)
    outputs = ResponseValues(
        values=rng.normal(size=(1, N_RESPONSES)),
        noise=rng.random((1, N_RESPONSES)),
        groups=np.zeros(SIZES.shape, np.int64),
        middle=0.0,
    )
    cells, pair = rows.clusters * SIZES.shape[1] + rows.arms, [0, 1]
    given = to_rows(cells, rows.responses, rows.covariates, outputs, layout.sizes.shape)
    weights = weigh_cells(given.sizes, layout, pair)
    found = [
        adjustment.adjusted_means(
            given, given.covariate_sums(2), weights, pair, SIZES.size, plain_means(row_noise)
        )
        for row_noise in (0.0, 5.0, 1e6)
    ]
    lin, between, plain = (sums.values for sums, _, _ in found)
    share = 1 - np.sqrt(1 - found[1][2])
    assert ((share > 0) & (share < 1)).all()
    assert found[2][2].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(between, plain + share * (lin - plain))


@pytest.mark.parametrize("arm", [1, 2])
def test_adjusted_means_are_those_of_regressions(arm: int, rng: np.random.Generator) -> None:
    layout, rows = make_layout(3 * SIZES), Rows.drawn(rng)  # they are a segment
    outputs = ResponseValues(
        values=rng.normal(size=(1, N_RESPONSES)),
        noise=rng.random((1, N_RESPONSES)),
        groups=np.zeros(SIZES.shape, np.int64),
        middle=0.0,
    )
    cells, pair = rows.clusters * SIZES.shape[1] + rows.arms, [0, arm]
    given = to_rows(cells, rows.responses, rows.covariates, outputs, layout.sizes.shape)
    weights = weigh_cells(given.sizes, layout, pair)
    assert weights.compared.tolist() == [True, False, True, True, True]
    assert weights.pooled[weights.compared, 0].tolist() == [False, False, True, True]
    found, moments, explained = adjustment.adjusted_means(
        given, given.covariate_sums(2), weights, pair, SIZES.size, plain_means(row_noise=0.0)
    )
    assert explained.tolist() == [1.0, 1.0]
    outcomes, noise = (one[0, rows.responses] for one in (outputs.values, outputs.noise))
    used = weights.sizes.sum(axis=1) > 0
    for position, of_arm in enumerate(pair):
        expected = by_hand(rows, weights, position, of_arm, outputs)
        by_cell = np.bincount(cells, expected.weights, SIZES.size)
        assert found.values[position] == pytest.approx(expected.weights @ outcomes)
        np.testing.assert_allclose(found.weights[position], by_cell, atol=1e-12)
        noisy = np.bincount(cells, expected.weights * noise, SIZES.size)
        np.testing.assert_allclose(found.noise[position], noisy, atol=1e-12)
        assert found.square_weights[position] == pytest.approx((expected.weights**2).sum())
        assert found.square_noise[position] == pytest.approx((expected.weights**2 * noise).sum())
        np.testing.assert_allclose(moments.means[used, position], expected.means[used])
        np.testing.assert_allclose(moments.squares[used, position], expected.squares[used])
        np.testing.assert_allclose(moments.noise[used, position], expected.noise[used])
