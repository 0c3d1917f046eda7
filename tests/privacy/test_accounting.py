"""Guarantees against independent oracles, and plan ∘ account = identity."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

import clusterdp as cdp
from clusterdp.channels.resampling import ResampledRows
from clusterdp.privacy import accounting as acc
from clusterdp.statistics.contrasts import NoisyContrasts
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.studies.claims import clustered, stated_epsilon

SPACE = cdp.OutcomeSpace.integers(-5, 6)


def response_pair(keep: float, floor: float) -> tuple[dict[str, float], dict[str, float]]:
    """The two rows of a response that are easiest to tell apart, over {this, other, rest}."""
    low = (1 - keep) * floor
    rest = max(1 - keep - 2 * low, 0.0)
    this = {"this": keep + low, "other": low, "rest": rest}
    other = {"this": low, "other": keep + low, "rest": rest}
    return (
        {name: math.log(prob) for name, prob in this.items() if prob > 0},
        {name: math.log(prob) for name, prob in other.items() if prob > 0},
    )


def response_pld(keep: float, floor: float, interval: float) -> pld.PrivacyLossDistribution:
    upper, lower = response_pair(keep, floor)
    # The pair is symmetric up to renaming, but both directions are asked for all the same.
    return pld.from_two_probability_mass_functions(
        lower, upper, value_discretization_interval=interval, symmetric=False
    )


def test_the_example_of_the_readme() -> None:
    mechanism = cdp.cluster_dp(noise_scale=10, prior_floor=0.02, resample_prob=0.8)
    assert mechanism.guarantee(SPACE).epsilon == pytest.approx(2 / 10 + math.log(13.5))
    assert str(mechanism.guarantee(SPACE)) == (
        "ε = 2.8027, δ = 0, one unit's outcomes (label DP). A reader who knows every other unit's "
        "outcomes and is 50% sure of one unit's outcome can be at most 95% sure after reading the "
        "release."
    )
    assert stated_epsilon(mechanism, SPACE) == pytest.approx(1 / 10 + math.log(13.5))


@pytest.mark.parametrize("n_outcomes", [2, 3, 12, 100])
@pytest.mark.parametrize("resample_prob", [0.2, 0.8, 0.99])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
def test_uniform_prior_against_dp_accounting(
    n_outcomes: int, resample_prob: float, delta: float
) -> None:
    space = cdp.OutcomeSpace.integers(1, n_outcomes)
    mechanism = cdp.uniform_prior_dp(resample_prob=resample_prob, delta=delta)
    interval = 1e-5
    oracle = response_pld(1 - resample_prob, 1 / n_outcomes, interval)
    epsilon = mechanism.guarantee(space).epsilon
    assert epsilon == pytest.approx(oracle.get_epsilon_for_delta(delta), abs=3 * interval)


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("noise_scale", [2.0, 10.0])
@pytest.mark.parametrize("keep", [0.1, 0.4])
def test_joint_release_against_dp_accounting(delta: float, noise_scale: float, keep: float) -> None:
    """Two shifted counts and one row, composed by dp-accounting's privacy loss distributions."""
    floor, interval = 0.05, 1e-5
    counts = pld.from_discrete_laplace_mechanism(
        1 / noise_scale, value_discretization_interval=interval
    ).self_compose(2)
    oracle = counts.compose(response_pld(keep, floor, interval))
    ours = acc.row_epsilon(
        keep_prob=Fraction(keep),
        prior_floor=Fraction(floor),
        delta=delta,
        summary=acc.noisy_counts_loss(noise_scale),
    )
    # dp-accounting rounds losses up to its grid, once for each of the three parts.
    assert ours == pytest.approx(oracle.get_epsilon_for_delta(delta + 1e-15), abs=6 * interval)


@pytest.mark.parametrize("noise_scale", [0.3, 1.0, 10.0, 1234.5])
def test_noisy_counts_against_opendp(noise_scale: float) -> None:
    dp.enable_features("contrib")
    measurement: Any = dp.m.make_laplace(
        dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=noise_scale
    )
    atoms = acc.noisy_counts_loss(noise_scale)
    assert acc.total_epsilon(atoms) == pytest.approx(measurement.map(2), rel=1e-14)
    assert float(sum(atom.prob for atom in atoms)) == pytest.approx(1)


budgets = st.fixed_dictionaries(
    {
        "epsilon": st.floats(0.05, 8),
        "delta": st.one_of(st.just(0.0), st.floats(1e-9, 0.3)),
        "prior_floor": st.floats(1e-5, 1 / 12),
    }
)


@given(budgets, st.floats(1.05, 50))
def test_planning_then_accounting_returns_to_the_budget(
    budget: dict[str, Any], noise_share: float
) -> None:
    mechanism = cdp.cluster_dp(noise_scale=2 / budget["epsilon"] * noise_share, **budget)
    stated = mechanism.guarantee(SPACE)
    assert stated.epsilon <= budget["epsilon"]
    assert stated.delta == budget["delta"]
    # Rounding the keep probability down to 52 bits is all that is lost.
    keep = 1 - mechanism.parameters(SPACE)["resample_prob"]
    lost = 8 * 2**-52 * (1 / keep + 1 / (budget["prior_floor"] * (1 - keep)))
    if lost < 1e-3:
        assert stated.epsilon == pytest.approx(budget["epsilon"], abs=lost + 1e-14)


@given(budgets, st.floats(1.05, 50))
def test_paper_accounting_inverts_too(budget: dict[str, Any], noise_share: float) -> None:
    noise_scale = noise_share / budget["epsilon"]
    mechanism = clustered("Cluster-DP", noise_scale=noise_scale, accounting="paper", **budget)
    keep = 1 - mechanism.parameters(SPACE)["resample_prob"]
    if budget["delta"] < keep < 1 - 1e-9:
        stated = stated_epsilon(mechanism, SPACE)
        # The floor is rounded up to a multiple of 2^-32.
        rounded = 2**-32 / budget["prior_floor"]
        assert stated == pytest.approx(budget["epsilon"], rel=1e-6, abs=rounded)


@given(st.floats(0.01, 0.99), st.integers(2, 40))
def test_uniform_prior_is_a_floor_of_one_over_k(resample_prob: float, n_outcomes: int) -> None:
    space = cdp.OutcomeSpace.integers(0, n_outcomes - 1)
    uniform = cdp.uniform_prior_dp(resample_prob=resample_prob)
    floored = cdp.cluster_dp(noise_scale=7, prior_floor=1 / n_outcomes, resample_prob=resample_prob)
    assert uniform.settled_rows(space).bound(space) == floored.settled_rows(space).bound(space)
    closed_form = math.log1p((1 - resample_prob) * n_outcomes / resample_prob)
    assert uniform.guarantee(space).epsilon == pytest.approx(closed_form, rel=1e-6)


def test_more_delta_never_costs_more_epsilon() -> None:
    epsilons = [
        cdp.cluster_dp(noise_scale=4, prior_floor=0.03, resample_prob=0.7, delta=delta)
        .guarantee(SPACE)
        .epsilon
        for delta in (0, 1e-9, 1e-6, 1e-3, 0.1, 0.29, 0.31, 0.9)
    ]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[-1] >= 2 / 4  # the formula never claims less than the summary's worst loss


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise_scale": 1, "epsilon": 2}, "cost 2 of epsilon=2, .* give an epsilon above 2"),
        ({"noise_scale": 0.5, "epsilon": 2}, "give an epsilon above 4"),
    ],
)
def test_impossible_budgets_say_what_is_possible(arguments: dict[str, Any], message: str) -> None:
    mechanism = cdp.cluster_dp(prior_floor=0.02, **arguments)
    with pytest.raises(cdp.ParameterError, match=message):
        mechanism.guarantee(SPACE)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cdp.cluster_dp(noise_scale=0, prior_floor=0.1, epsilon=1), "noise_scale"),
        (lambda: cdp.cluster_dp(noise_scale=math.inf, prior_floor=0.1, epsilon=1), "noise_scale"),
        (lambda: cdp.cluster_dp(noise_scale=1e13, prior_floor=0.1, epsilon=1), "noise_scale"),
        (lambda: cdp.cluster_dp(noise_scale=9, prior_floor=0, epsilon=1), "prior_floor"),
        (lambda: cdp.cluster_dp(noise_scale=9, prior_floor=0.6, epsilon=1), "prior_floor"),
        (lambda: cdp.cluster_dp(noise_scale=9, prior_floor=0.1), "resample_prob"),
        (
            lambda: cdp.cluster_dp(noise_scale=9, prior_floor=0.1, resample_prob=0.5, epsilon=1),
            "not both",
        ),
        (lambda: cdp.uniform_prior_dp(resample_prob=1), "resample_prob"),
        (lambda: cdp.uniform_prior_dp(epsilon=-1), "epsilon"),
        (lambda: cdp.uniform_prior_dp(epsilon=1, delta=1), "delta"),
        (lambda: cdp.uniform_prior_dp(epsilon=math.nan), "epsilon"),
        (cdp.noisy_histogram, "epsilon"),
        (lambda: cdp.noisy_horvitz_thompson(epsilon=0), "epsilon"),
        (lambda: NoisyCounts(noise_scale=9, scope="Population"), "scope"),  # type: ignore[arg-type]
        (lambda: cdp.Mechanism(name="nothing"), "neither rows nor statistics"),
        (
            lambda: cdp.Mechanism(
                name="arms", statistics=(NoisyCounts(noise_scale=5, scope="population"),)
            ),
            "publish rows too",
        ),
        (
            lambda: cdp.Mechanism(
                name="both",
                statistics=(NoisyContrasts(epsilon=5),),
                rows=ResampledRows(resample_prob=0.9),
            ),
            "not accounted for",
        ),
    ],
)
def test_parameters_out_of_range(build: object, message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        build()  # type: ignore[operator]


def test_a_floor_above_one_over_k_is_an_error() -> None:
    mechanism = cdp.cluster_dp(noise_scale=9, prior_floor=0.1, epsilon=1)
    with pytest.raises(cdp.ParameterError, match=r"at most 1/K = 0\.0833333 for 12 outcomes"):
        mechanism.guarantee(SPACE)


def test_numpy_numbers_are_numbers() -> None:
    numbers: dict[str, Any] = {
        "noise_scale": np.float32(8),
        "prior_floor": np.float64(0.01),
        "epsilon": np.int64(2),
    }
    mechanism = cdp.cluster_dp(**numbers, delta=1e-4)
    assert str(mechanism.guarantee(SPACE)) == str(
        cdp.cluster_dp(noise_scale=8, prior_floor=0.01, epsilon=2, delta=1e-4).guarantee(SPACE)
    )


@pytest.mark.parametrize("noise_scale", [1e-3, 1e12])
@pytest.mark.parametrize("resample_prob", [1e-15, 1 - 1e-15])
def test_extremes_have_a_guarantee(noise_scale: float, resample_prob: float) -> None:
    mechanism = cdp.cluster_dp(
        noise_scale=noise_scale, prior_floor=1e-12, resample_prob=resample_prob
    )
    assert math.isfinite(mechanism.guarantee(SPACE).epsilon)
    assert "label DP" in str(mechanism.guarantee(SPACE))


def test_guarantees_are_shown_rounded_up() -> None:
    assert "ε = 1.2346," in str(cdp.Guarantee(epsilon=1.23451))
    assert "δ = 1.235e-06," in str(cdp.Guarantee(epsilon=1, delta=1.2341e-6))


def _delta(losses: np.ndarray, probs: np.ndarray, epsilon: float) -> float:
    """The hockey-stick divergence at ε."""
    return float((probs * np.maximum(1 - np.exp(epsilon - losses), 0)).sum())


@pytest.mark.parametrize("same", [True, False])
def test_many_parts_are_composed_exactly_or_bounded(
    rng: np.random.Generator, *, same: bool
) -> None:
    """Next to every combination of the signs of all losses; equal parts are never more atoms."""
    n_parts = 14
    epsilons = np.full(n_parts, rng.random()) if same else rng.random(n_parts)
    joint = acc.joint_loss(*(acc.any_loss(float(one)) for one in epsilons))
    losses, probs = (np.array(list(map(float, column))) for column in zip(*joint, strict=True))
    assert probs.sum() == pytest.approx(1)
    assert sorted(joint, reverse=True) == list(joint)
    signs = 1 - 2 * (np.arange(2**n_parts)[:, np.newaxis] >> np.arange(n_parts) & 1)
    up = 1 / (1 + np.exp(-epsilons))
    every, weights = signs @ epsilons, np.where(signs > 0, up, 1 - up).prod(axis=1)
    total = acc.total_epsilon(joint)
    assert total >= sum(map(Fraction, epsilons.tolist()))
    assert total == pytest.approx(float(epsilons.sum()))
    for epsilon in np.linspace(0, total, 9):
        exact = _delta(every, weights, epsilon)
        assert _delta(losses, probs, epsilon) >= exact - 1e-12
        if same:
            assert _delta(losses, probs, epsilon) == pytest.approx(exact, abs=1e-12)
    assert len(joint) == n_parts + 1 if same else len(joint) <= 2**13


def test_hundreds_of_parts_are_composed_soon() -> None:
    parts = [acc.any_loss(0.3 / 400) for _ in range(400)]
    joint = acc.joint_loss(*parts, *(acc.any_loss(number / 1e4) for number in range(1, 60)))
    total = sum((Fraction(0.3 / 400) * 400, *(Fraction(one / 1e4) for one in range(1, 60))))
    assert total <= acc.total_epsilon(joint) <= float(total) * (1 + 1e-9)
