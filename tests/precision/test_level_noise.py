"""The closed form of calibrated variances, against the estimator's matrices written out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from clusterdp.precision.closed_form import ArmLayout, LevelNoise, calibrated_variances

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray


class Arm(NamedTuple):
    """Units of one arm, one by one, and the sums that are published of them."""

    cells: ArmLayout
    units: IntArray  # [unit, (cell, fold, group of each breakdown)]
    noise: LevelNoise


def some_arm(rng: np.random.Generator) -> Arm:
    """An arm in which groups and folds have the same shares in every cell; some levels lack."""
    n_cells, n_breakdowns, n_folds = rng.integers(1, 6), rng.integers(0, 3), int(rng.integers(1, 4))
    counts = [rng.integers(1, 4, rng.integers(1, 4)) for _ in range(n_breakdowns)]
    copies = rng.integers(1, 4, n_cells)
    axes = [range(n_folds), *(np.repeat(np.arange(len(one)), one) for one in counts)]
    units = [
        (cell, *places)
        for cell, times in enumerate(copies)
        for places in itertools.product(*axes)
        for _ in range(times)
    ]
    sizes = np.bincount([unit[0] for unit in units])
    cells = ArmLayout(
        sizes=sizes.astype(np.float64),
        weights=rng.integers(1, 65, n_cells).astype(np.float64),
        targets=rng.uniform(0.001, 0.01, n_cells),
        copies=np.ones(n_cells),
        shares=tuple(one / one.sum() for one in counts),
        folds=n_folds,
    )
    lacking = [np.inf if rng.random() < 0.3 else 1.0 for _ in range(2 + n_breakdowns)]
    noise = LevelNoise(
        cells=lacking[0] * rng.uniform(0.1, 100, n_cells),
        totals=np.asarray(lacking[1] * rng.uniform(0.1, 1e5)),
        breakdowns=np.array(lacking[2:]) * rng.uniform(1, 1e5, n_breakdowns),
    )
    return Arm(cells, np.array(units), noise)


def sums_of(arm: Arm) -> tuple[FloatArray, FloatArray]:
    """X, axes `[unit, sum]`, and the variances of the noise on the sums."""
    cells, units, noise = arm
    columns, variances = [], []
    for cell, variance in enumerate(noise.cells):
        columns.append(units[:, 0] == cell)
        variances.append(variance)
    weights = cells.weights[units[:, 0]]
    for fold in range(cells.folds):
        columns.append(weights * (units[:, 1] == fold))
        variances.append(noise.totals)
        for place, shares in enumerate(cells.shares):
            for group in range(len(shares)):
                inside = (units[:, 1] == fold) & (units[:, 2 + place] == group)
                columns.append(weights * inside)
                variances.append(noise.breakdowns[place])
    published = np.isfinite(variances)
    return np.array(columns, dtype=np.float64).T[:, published], np.array(variances)[published]


def variance_of(
    weights: FloatArray, sums: FloatArray, noise: FloatArray, unit_noise: float, assumed: float
) -> float:
    """Σ (s − Xb)²v + b'Wb, with b = (X'X + W/v̄)⁻¹X's."""
    factors = np.linalg.solve(sums.T @ sums + np.diag(noise) / assumed, sums.T @ weights)
    left = weights - sums @ factors
    return float(unit_noise * left @ left + noise @ factors**2)


def targets_of(arm: Arm) -> list[FloatArray]:
    """The weights of units in everyone's mean, then in the means of groups."""
    everyone = arm.cells.targets[arm.units[:, 0]]
    found = [everyone]
    for place, shares in enumerate(arm.cells.shares):
        for group, share in enumerate(shares):
            found.append(everyone * (arm.units[:, 2 + place] == group) / share)
    return found


@pytest.mark.parametrize("attempt", range(20))
def test_variances_are_those_of_the_matrices(attempt: int, rng: np.random.Generator) -> None:
    arm = some_arm(rng)
    unit_noise, assumed = rng.uniform(0.5, 3, 2)
    found = calibrated_variances(arm.cells, arm.noise, np.asarray(unit_noise), np.asarray(assumed))
    sums, noise = sums_of(arm)
    expected = [variance_of(one, sums, noise, unit_noise, assumed) for one in targets_of(arm)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_random_share_of_every_cell_moves_as_everyone_does(rng: np.random.Generator) -> None:
    """Its variance is everyone's and that of the rows that tell the two apart."""
    arm = some_arm(rng)._replace()
    sums, noise = sums_of(arm)
    everyone = targets_of(arm)[0]
    twice = np.concatenate([sums, sums]), np.tile(everyone / 2, 2)
    inside = np.repeat([1.0, 0.0], len(everyone))
    half = variance_of(2 * twice[1] * inside, twice[0], noise, 1.0, 1.0)
    whole = variance_of(twice[1], twice[0], noise, 1.0, 1.0)
    assert half == pytest.approx(whole + float(twice[1] @ twice[1]))


def test_alternatives_are_independent_of_each_other(rng: np.random.Generator) -> None:
    arm = some_arm(rng)
    more = LevelNoise(*(np.stack([part, 3 * part, part / 7]) for part in arm.noise))
    noises = np.array([1.0, 2.0, 0.3])
    together = calibrated_variances(arm.cells, more, noises, noises / 2)
    for place, noise in enumerate(noises):
        alone = LevelNoise(*(part[place] for part in more))
        expected = calibrated_variances(arm.cells, alone, np.asarray(noise), np.asarray(noise / 2))
        np.testing.assert_allclose(together[place], expected, rtol=1e-12)


def test_a_cluster_that_stands_for_several_counts_as_often(rng: np.random.Generator) -> None:
    cells = ArmLayout(
        sizes=np.array([30.0, 8.0]),
        weights=np.array([20.0, 64.0]),
        targets=np.array([0.01, 0.02]),
        copies=np.array([1.0, 3.0]),
        shares=(np.array([0.25, 0.75]),),
        folds=2,
    )
    spread = [0, 1, 1, 1]
    repeated = cells._replace(
        sizes=cells.sizes[spread],
        weights=cells.weights[spread],
        targets=cells.targets[spread],
        copies=np.ones(4),
    )
    noise = LevelNoise(np.array([5.0, 7.0]), np.asarray(900.0), np.array([700.0]))
    known = np.asarray(0.4)
    np.testing.assert_allclose(
        calibrated_variances(cells, noise, known, known),
        calibrated_variances(repeated, noise._replace(cells=noise.cells[spread]), known, known),
    )


def test_a_group_without_units_is_never_known() -> None:
    cells = ArmLayout(
        sizes=np.array([30.0]),
        weights=np.array([64.0]),
        targets=np.array([0.01]),
        copies=np.ones(1),
        shares=(np.array([0.0, 1.0]),),
        folds=1,
    )
    noise = LevelNoise(np.array([np.inf]), np.asarray(np.inf), np.array([50.0]))
    everyone, nobody, all_of_it = calibrated_variances(
        cells, noise, np.asarray(0.3), np.asarray(0.3)
    )
    assert np.isinf(nobody)
    assert all_of_it == pytest.approx(everyone)
