"""Draws of populations: what is the same in them, how numbers spread, and what that decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from assertions import assert_mean, assert_variance
from clusterdp.mechanisms import catalogue as builders
from clusterdp.studies import experiments_4_7
from clusterdp.studies import populations as pops
from clusterdp.studies.claims import Tables, decide_over_draws, state_claim, verdict_of
from clusterdp.studies.experiments_1_3 import measure_ratio
from clusterdp.studies.populations import shipped_features
from clusterdp.studies.run import EXPERIMENTS, run_experiments, summary_tables
from clusterdp.studies.study import (
    Spread,
    Study,
    by_draw,
    everywhere,
    exact_variance,
    in_brief,
    joined,
    points,
    simulated_effects,
)

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism

STUDY = Study(n_draws=2, n_realizations=50, n_points=3, features=shipped_features())
TWO_DRAWS: list[Tables] = [
    {"numbers": [{"kind": "a", "x": 1, "y": 10.0}, {"kind": "a", "x": 2, "y": 20.0}]},
    {"numbers": [{"kind": "a", "x": 1, "y": 12.0}, {"kind": "a", "x": 2, "y": 18.0}]},
]


@pytest.mark.parametrize(
    ("n_held", "n_draws", "verdict"),
    [
        (100, 100, "reproduced"),
        (95, 100, "reproduced"),
        (94, 100, "depends on the draw"),
        (6, 100, "depends on the draw"),
        (5, 100, "not reproduced"),
        (0, 100, "not reproduced"),
        (10, 10, "reproduced"),
        (9, 10, "depends on the draw"),
        (0, 10, "not reproduced"),
    ],
)
def test_the_rule_of_verdicts(n_held: int, n_draws: int, verdict: str) -> None:
    assert verdict_of(n_held, n_draws) == verdict


def test_a_claim_says_in_how_many_draws_it_held() -> None:
    name = "the bound is tight up to its second term"
    holds = np.array([True] * 3 + [False] * 97)
    claim = decide_over_draws(name, holds=holds, evidence="")
    assert (claim.verdict, claim.held) == ("not reproduced", "3 of 100 draws")
    assert claim.why
    held = decide_over_draws(name, holds=~holds, evidence="")
    assert (held.verdict, held.why) == ("reproduced", "")
    assert state_claim("the privacy guarantee of Cluster-DP", holds=False, evidence="").held == ""


def test_spread_over_draws() -> None:
    spread = Spread.of(np.arange(101.0)[:, np.newaxis] * [1, 10])
    np.testing.assert_allclose(spread.median, [50, 500])
    np.testing.assert_allclose(spread.low, [10, 100])
    np.testing.assert_allclose(spread.high, [90, 900])
    np.testing.assert_allclose(spread.least, [0, 0])
    np.testing.assert_allclose(spread.greatest, [100, 1000])


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3000.0, 3111.4, 4500.0], "3,111 (3,000 to 4,500)"),
        ([0.12345, 0.2, 99.94], "0.2 (0.123 to 99.9)"),
        ([1.0, 1.0001, 1.0002], "1"),
    ],
)
def test_numbers_in_words(numbers: list[float], words: str) -> None:
    assert in_brief(np.array(numbers)) == words


def test_tables_of_draws_are_joined_and_taken_apart() -> None:
    rows = joined(TWO_DRAWS)["numbers"]
    assert [row["draw"] for row in rows] == [0, 0, 1, 1]
    assert points(rows, "x", kind="a") == [1, 2]
    np.testing.assert_array_equal(by_draw(rows, "y", kind="a"), [[10, 20], [12, 18]])
    np.testing.assert_array_equal(by_draw(rows, "y", x=2), [[20], [18]])
    np.testing.assert_array_equal(everywhere(by_draw(rows, "y") < 19), [False, True])


def test_a_draw_is_the_same_whatever_else_is_drawn() -> None:
    assert measure_ratio(STUDY, 1) == measure_ratio(STUDY, 1)
    assert measure_ratio(STUDY, 1) != measure_ratio(STUDY, 2)
    together = run_experiments([2], STUDY, lambda _: None)[1].tables["ratio"]
    alone = measure_ratio(STUDY, 1)["ratio"]
    assert [row for row in together if row["draw"] == 1] == [{"draw": 1, **row} for row in alone]


def test_the_same_numbers_are_behind_a_draw_as_beta_varies() -> None:
    """At β = v all units of a cluster are alike, where its centre was at other β."""
    alike = pops.sub_population(3, pops.TOTAL_VARIANCE)
    assert ((alike.type_counts > 0).sum(axis=1) == 1).all()
    near = pops.sub_population(3, 0.99 * pops.TOTAL_VARIANCE)
    codes = alike.type_counts.argmax(axis=1)
    assert (np.abs(near.type_counts.argmax(axis=1) - codes) <= 1).all()
    assert not np.array_equal(
        pops.sub_population(4).type_counts, pops.sub_population(3).type_counts
    )
    np.testing.assert_array_equal(alike.layout.sizes.sum(axis=1), pops.SUB_SIZES)


@pytest.mark.parametrize(
    "mechanism",
    [
        builders.cluster_dp(noise_scale=10, prior_floor=0.02, resample_prob=0.8),
        builders.cluster_free_dp(noise_scale=10, prior_floor=0.02, resample_prob=0.5),
        builders.uniform_prior_dp(resample_prob=0.8),
    ],
)
def test_variances_without_simulated_rows_are_those_of_simulated_rows(mechanism: Mechanism) -> None:
    """The average over noise is good to 0.7%; five standard errors of it are allowed for."""
    population, rng = pops.sub_population(0), np.random.default_rng()
    effects = simulated_effects(population, mechanism, 4000, rng)
    variance = exact_variance(population, mechanism, rng)
    assert_variance(effects, variance, relative_error=0.035)
    with pytest.raises(AssertionError):
        assert_variance(effects, 1.4 * variance, relative_error=0.035)


def test_biases_of_rows_have_mean_zero() -> None:
    """Given the noise a bias is left; over draws of noise there is none."""
    whole, rng = pops.whole_population(0), np.random.default_rng()
    mechanism = builders.cluster_dp(noise_scale=10, prior_floor=0.02, resample_prob=0.5)
    biases = np.concatenate([experiments_4_7.row_biases(whole, mechanism, rng) for _ in range(20)])
    assert_mean(biases, 0.0, std_dev=float(biases.std()))
    shifted = biases + 10 * biases.std() / np.sqrt(len(biases))
    with pytest.raises(AssertionError):
        assert_mean(shifted, 0.0, std_dev=float(biases.std()))


def test_tables_of_the_report_have_a_line_for_every_mechanism() -> None:
    tables = joined([EXPERIMENTS[2].measure(STUDY, draw) for draw in range(2)])
    lines = summary_tables(2, tables)
    assert lines[0] == "| Ratio of variances | β = 0.25 | β = 2.5 | β = 4.75 |"
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| λ = 0.5", "| λ = 0.8"]
