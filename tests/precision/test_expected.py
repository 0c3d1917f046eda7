"""What is expected of effects comes true: against simulated releases and tables drawn at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import clusterdp as cdp
from assertions import assert_variance
from clusterdp.cells.layout import Breakdown
from clusterdp.mechanisms.draw import release_cells
from clusterdp.precision.expected import ExpectedOutcomes, Scenario, uniform_baseline
from clusterdp.precision.forecast import predict
from clusterdp.precision.row_noise import RowNoise
from clusterdp.precision.visible import ShownMetric, visible_rows, visible_targets
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from clusterdp.statistics.sums import NoisyMetricSums
from clusterdp.studies.simulation import simulate_releases
from populations import make_layout

SPACE = cdp.OutcomeSpace.integers(0, 3)
PROBS = np.array([0.5, 0.25, 0.15, 0.1])
EXPECTED = ExpectedOutcomes(kinds=PROBS[np.newaxis, np.newaxis])
LAYOUT = make_layout([[60, 40], [150, 90], [30, 80], [12, 7]])


def test_calibrated_to_totals_and_cells_it_comes_true(rng: np.random.Generator) -> None:
    """Releases are simulated and estimated by s'ỹ − b'(X'ỹ − Z), matrices written out."""
    mechanism = cdp.optimal(
        epsilon=2, prior=PROBS.tolist(), sums=cdp.SumShares(totals=0.1, clusters=0.2)
    )
    counts = np.rint(LAYOUT.sizes[..., np.newaxis] * PROBS).astype(np.int64)
    counts[..., 0] += LAYOUT.sizes - counts.sum(axis=-1)
    many = np.broadcast_to(counts, (4000, *counts.shape))
    statistics, channel = release_cells(
        CellTotals.from_counts(many, SPACE), LAYOUT, SPACE, mechanism, simulated_noise(rng)
    )
    assert channel is not None
    outputs = channel.simulate(many, rng)
    rows = (outputs * channel.decode()[channel.groups]).sum(axis=-1)  # [replicate, cluster, arm]
    totals, cells = (one.sum_readings()[0] for one in statistics)
    exact = counts / LAYOUT.sizes[..., np.newaxis]
    scenario = Scenario(LAYOUT, SPACE, ExpectedOutcomes(kinds=exact))
    prior = mechanism.settled_rows(SPACE).public_prior(SPACE)
    noise_of_units = RowNoise.from_channel(channel, scenario, prior)
    assumed = noise_of_units.public[0]
    weights = mechanism.total_weights(LAYOUT)
    effect = np.zeros(len(many))
    for arm, sign in ((0, -1.0), (1, 1.0)):
        sizes = LAYOUT.sizes[:, arm]
        target = LAYOUT.sizes.sum(axis=1) / LAYOUT.n_units / sizes
        # Units of a cell are alike, so sums over them stand for units: one row for each cell.
        sums = np.concatenate([np.eye(len(sizes)), weights[:, [arm]]], axis=1)
        noise = np.array([*np.full(len(sizes), cells.variance), totals.variance])
        gram = sums.T @ (sizes[:, np.newaxis] * sums) + np.diag(noise) / assumed
        factors = np.linalg.solve(gram, sums.T @ (sizes * target))
        published = np.concatenate([cells.value[..., 0, arm], totals.value[..., 0, :, arm]], axis=1)
        effect += sign * (rows[..., arm] @ target - (rows[..., arm] @ sums - published) @ factors)
    (expected,) = predict(mechanism, scenario, noise_of_units)
    assert_variance(effect, expected.overall.privacy_std_error**2, relative_error=0.03)
    # Without totals the same release is less precise, which the assertion must notice.
    fewer = cdp.optimal(epsilon=2, prior=PROBS.tolist(), sums=cdp.SumShares(clusters=0.2))
    (other,) = predict(fewer, scenario, noise_of_units)
    with pytest.raises(AssertionError):
        assert_variance(effect, other.overall.privacy_std_error**2, relative_error=0.03)


def test_groups_and_folds_drawn_at_random_come_near_to_what_is_expected(
    rng: np.random.Generator,
) -> None:
    """Counts are expected ones. Those of real tables differ by chance, here by about 1% (sd)."""
    sizes = np.array([3000, 1200, 450, 4000])
    units = np.repeat(np.arange(4), sizes)
    groups, folds = rng.choice(3, len(units), p=[0.5, 0.3, 0.2]), rng.integers(0, 2, len(units))
    layout = replace(
        make_layout(np.stack([sizes, sizes], axis=1)),
        folds=2,
        breakdowns=(
            Breakdown(
                columns=("tier",),
                labels=(("0", "1", "2"),),
                sizes=np.repeat(np.bincount(groups)[:, np.newaxis], 2, axis=1),
            ),
        ),
    )
    shares = cdp.SumShares(totals=0.05, clusters=0.05, breakdowns=((("tier",), 0.1),))
    mechanism = cdp.optimal(epsilon=2, sums=shares)
    scenario = Scenario(layout, SPACE, uniform_baseline(SPACE))
    noise = RowNoise.designed(mechanism, scenario).public
    (expected,) = predict(mechanism, scenario)
    of_level = {
        one.label: one.noise(SPACE).variance(SPACE, 0)
        for one in mechanism.statistics
        if isinstance(one, NoisyMetricSums)
    }
    weights = mechanism.total_weights(layout)[units, 0]
    columns = [(units == cell).astype(float) for cell in range(4)]
    columns += [weights * (folds == fold) for fold in range(2)]
    columns += [
        weights * (folds == fold) * (groups == one) for fold in range(2) for one in range(3)
    ]
    sums = np.stack(columns, axis=1)
    levels = [*["sums"] * 4, *["totals"] * 2, *["totals by tier"] * 6]
    variances = np.array([of_level[level] for level in levels])
    everyone = (sizes / sizes.sum() / sizes)[units]
    for target in range(4):
        inside = np.ones(len(units)) if target == 0 else groups == target - 1
        cells = np.bincount(units, inside)
        weight = everyone * inside * (sizes / cells)[units]
        factors = np.linalg.solve(sums.T @ sums + np.diag(variances) / noise[0], sums.T @ weight)
        left = weight - sums @ factors
        exact = noise[0] * left @ left + variances @ factors**2
        found = expected.of_target(target).privacy_std_error
        assert found == pytest.approx(np.sqrt(2 * exact), rel=0.05)


def test_estimates_from_contrasts_print_what_is_expected(rng: np.random.Generator) -> None:
    """Contrasts do not tell how outcomes spread, and estimates assume the worst."""
    mechanism = cdp.noisy_horvitz_thompson(epsilon=1)
    counts = np.rint(LAYOUT.sizes[..., np.newaxis] * PROBS).astype(np.int64)
    counts[..., 0] += LAYOUT.sizes - counts.sum(axis=-1)
    drawn = simulate_releases(counts, LAYOUT, SPACE, mechanism, n_replicates=1, rng=rng)
    (expected,) = predict(mechanism, Scenario(LAYOUT, SPACE, EXPECTED))
    assert expected.overall.std_error**2 == pytest.approx(drawn.variances[0, 0])
    assert expected.segment(0.1) is None


def test_what_can_be_seen_fits_a_terminal() -> None:
    names = ("a_column_with_a_long_name", "and_another_one_with_a_name")
    sizes = np.full((30, 2), 10)
    sizes[3] = 0
    crossed = Breakdown(columns=names, labels=(tuple("abcdef"), tuple("vwxyz")), sizes=sizes)
    layout = replace(LAYOUT, breakdowns=(crossed,))
    mechanism = cdp.optimal(epsilon=1, sums=cdp.SumShares(breakdowns=((names, 0.2),)))
    found = visible_targets(predict(mechanism, Scenario(layout, SPACE, EXPECTED)), layout)
    assert len(found) == 1 + 12 + 5
    rows = visible_rows(found, ShownMetric("visit", is_share=False), 0)
    assert sum(max(len(row[column]) for row in rows) + 2 for column in range(4)) <= 80
    errors = [one.predictions[0].std_error for one in found]
    assert errors[0] == min(errors)
    assert errors[-5:] == sorted(errors[-5:])
    assert all(np.isfinite(errors))
