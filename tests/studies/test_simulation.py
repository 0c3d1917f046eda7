from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

import clusterdp as cdp
from assertions import assert_mean, assert_variance
from categories import one_outcome
from clusterdp.engines.local.table import LocalTable
from clusterdp.releasing.prepare import prepare_table
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import simulated_noise
from clusterdp.studies import formulas as theory
from clusterdp.studies.simulation import simulate_releases
from populations import from_units, make_layout, three_arms
from runs import run_release

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.mechanisms.mechanism import Mechanism

COLUMNS = Columns(unit="user", arm="treated", cluster="market", outcomes=("clicks",))
SPACE = cdp.OutcomeSpace.integers(0, 3)
CLICKS = one_outcome("clicks", SPACE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        cdp.cluster_dp(noise_scale=3, prior_floor=0.05, resample_prob=0.5),
        cdp.cluster_free_dp(noise_scale=3, prior_floor=0.05, resample_prob=0.5),
        cdp.uniform_prior_dp(epsilon=1.5),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_simulated_counts_agree_with_released_rows(
    mechanism: Mechanism, table: pl.DataFrame, rng: np.random.Generator
) -> None:
    """Effects and standard errors of row releases, against those drawn from counts alone."""
    n_releases = 600
    estimates = []
    for _ in range(n_releases):
        release = run_release(
            table,
            mechanism=mechanism,
            space=CLICKS,
            columns=COLUMNS,
            control=None,
            clip=False,
            key=ReleaseKey(rng.bytes(32)),
            add_noise=simulated_noise(rng),
        )
        estimates.append(cdp.estimate(release, use="rows"))
    rows = LocalTable(rows=table.lazy(), columns=COLUMNS, spaces=(CLICKS,), clip=False)
    prepared = prepare_table(rows)
    layout = prepared.layout
    counts = prepared.count().counted.questions[0].counts
    simulated = simulate_releases(
        counts, layout, SPACE, mechanism, n_replicates=20_000, rng=rng, use="rows"
    )
    variance = theory.excess_variance(counts, layout, SPACE, mechanism, rng=rng, n_draws=400).value[
        0
    ]
    truth = cdp.estimate_without_privacy(
        table, outcomes={"clicks": SPACE}, unit="user", arm="treated", cluster="market"
    ).effect
    effects = np.array([estimate.effect for estimate in estimates])
    for drawn in (effects, simulated.effects[:, 0]):
        assert_mean(drawn, truth, math.sqrt(variance * 1.02))
        assert_variance(drawn, variance, relative_error=0.03)
    squared_errors = np.array([estimate.std_error**2 for estimate in estimates])
    assert_mean(squared_errors, simulated.variances.mean(), 1.05 * float(simulated.variances.std()))


def test_assignment_is_without_replacement(rng: np.random.Generator) -> None:
    population = three_arms(rng)
    counts = population.assign(4000, rng)
    np.testing.assert_array_equal(
        counts.sum(axis=-1), np.tile(population.layout.sizes, (4000, 1, 1))
    )
    expected = population.potential_counts() / population.layout.sizes.sum(axis=1)[:, None, None]
    for arm in range(3):
        size = population.layout.sizes[0, arm]
        sample = counts[:, 0, arm, 0] / size
        share = expected[0, arm, 0]
        total = population.layout.sizes[0].sum()
        # The hypergeometric's standard deviation: without replacement, hence the correction.
        correction = (total - size) / (total - 1)
        assert_mean(sample, share, math.sqrt(share * (1 - share) / size * correction))
        assert_variance(sample, share * (1 - share) / size * correction, relative_error=0.03)


def test_chunks_do_not_change_the_shape(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterdp.studies.simulation._CHUNK_ELEMENTS", 100)
    counts = rng.integers(5, 20, size=(4, 2, 4))
    layout = make_layout(counts.sum(axis=2))
    drawn = simulate_releases(
        counts, layout, SPACE, cdp.uniform_prior_dp(epsilon=1), n_replicates=10, rng=rng
    )
    assert drawn.effects.shape == (10, 1)
    assert len(np.unique(drawn.effects)) == 10


def test_a_population_must_fill_its_layout() -> None:
    population = from_units(np.array([0, 0]), np.array([[0, 1], [1, 1]]), SPACE, n_arms=2)
    with pytest.raises(cdp.ParameterError, match="agree on the size"):
        type(population)(
            type_outcomes=population.type_outcomes,
            type_counts=population.type_counts * 2,
            layout=population.layout,
            space=SPACE,
        )
