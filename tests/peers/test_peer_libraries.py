"""Libraries of others that the comparison runs, where they are installed (the extra `bench`)."""

from __future__ import annotations

import numpy as np
import pytest
from bench.peers import library_response, private_boosting
from bench.peers.costs import row_variances
from bench.peers.simulated import FewRespond, SimulatedPopulation
from scipy import stats

from assertions import assert_frequencies

NEEDED = {"pure_ldp": "pure_ldp", "multi_freq_ldpy": "multi_freq_ldpy", "opendp": "opendp.prelude"}
N_VALUES, EPSILON = 4, 1.0


def channel() -> np.ndarray:
    """Of k-ary response; axes `[value, answer]`."""
    truth = library_response.truth_prob(N_VALUES, EPSILON)
    other = (1 - truth) / (N_VALUES - 1)
    return np.full((N_VALUES, N_VALUES), other) + np.eye(N_VALUES) * (truth - other)


@pytest.mark.parametrize("name", NEEDED)
def test_a_library_responds_with_the_stated_probabilities(name: str) -> None:
    pytest.importorskip(NEEDED[name], reason=f"{name} is not installed: pip install '.[bench]'")
    respond = getattr(library_response, name)
    for value in (0, N_VALUES - 1):
        answers = respond(np.full(3000, value), N_VALUES, EPSILON)
        assert_frequencies(np.bincount(answers, minlength=N_VALUES), channel()[value])


def test_codes_that_begin_at_one_are_caught() -> None:
    """What pure-ldp assumes if it is not told otherwise: code 0 is then no value at all."""
    oracles = pytest.importorskip(
        "pure_ldp.frequency_oracles.direct_encoding",
        reason="pure-ldp is not installed: pip install '.[bench]'",
    )
    client = oracles.DEClient(EPSILON, N_VALUES)
    answers = np.array([client.privatise(3) for _ in range(3000)])
    with pytest.raises(AssertionError):
        assert_frequencies(np.bincount(answers, minlength=N_VALUES), channel()[3])


def test_the_response_costs_epsilon_as_opendp_tells_it() -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    prob = library_response.truth_prob(N_VALUES, EPSILON)
    measurement = dp.m.make_randomized_response(categories=list(range(N_VALUES)), prob=prob)
    assert measurement.map(1) == pytest.approx(EPSILON)
    assert np.log(channel().max(axis=0) / channel().min(axis=0)).max() == pytest.approx(EPSILON)


def test_debiased_answers_are_unbiased() -> None:
    values = np.array([-2.0, 0.0, 1.0, 5.0])
    debiased = library_response.debias(np.arange(N_VALUES), values, EPSILON)
    assert channel() @ debiased == pytest.approx(values)
    assert channel() @ values != pytest.approx(values)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_variances_of_rows_are_those_of_their_channels(epsilon: float) -> None:
    """Of twelve outcomes; ours are never more."""
    values = np.arange(-5.0, 7.0)
    truth = library_response.truth_prob(12, epsilon)
    other = (1 - truth) / 11
    probs = np.full((12, 12), other) + np.eye(12) * (truth - other)
    debiased = library_response.debias(np.arange(12), values, epsilon)
    variances = probs @ debiased**2 - (probs @ debiased) ** 2
    theirs, ours = row_variances(epsilon).values()
    assert theirs == pytest.approx(variances.mean())
    assert ours < theirs


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_a_model_has_the_noise_that_its_promise_needs(epsilon: float) -> None:
    """Bins and rounds are Gaussian queries, which together are one: δ(ε) in closed form."""
    pytest.importorskip(
        "interpret.privacy", reason="interpret is not installed: pip install '.[bench]'"
    )
    rng = np.random.default_rng()
    sample = SimulatedPopulation(FewRespond(), n_units=4000).draw(rng).sample
    given = private_boosting.release(sample, epsilon, rng)
    for model in (given.treated, given.control):
        n_features = sample.features.shape[1]
        rounds = (
            n_features * model.max_rounds * (model.learning_rate / model.noise_scale_boosting_) ** 2
        )
        bins = n_features / model.noise_scale_binning_**2
        assert delta_of((rounds + bins) ** 0.5, epsilon) <= private_boosting.DELTA
        assert delta_of(2 * (rounds + bins) ** 0.5, epsilon) > private_boosting.DELTA
    assert abs(given.overall().effect - FewRespond().effect(sample.features).mean()) < 0.3
    assert np.isnan(given.overall().low)


def delta_of(mean: float, epsilon: float) -> float:
    """δ at ε of one Gaussian query whose answers are as many standard deviations apart."""
    law = stats.norm
    far = law.cdf(-epsilon / mean - mean / 2)
    return float(law.cdf(-epsilon / mean + mean / 2) - np.exp(epsilon) * far)


def test_another_response_is_caught() -> None:
    """A control for the test of libraries: it fails on answers that do not depend on the value."""
    answers = np.random.default_rng().multinomial(3000, [0.25] * N_VALUES)
    with pytest.raises(AssertionError):
        assert_frequencies(answers, channel()[0])
