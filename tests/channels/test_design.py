from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clusterdp as cdp
from channel_checks import assert_unbiased, exact_transition, released_channel
from clusterdp.channels.base import KEEP_TOTAL, PRIOR_TOTAL
from clusterdp.channels.resampling import ResamplingBound, ResamplingChannel

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism

SPACES = {
    "binary": cdp.OutcomeSpace.binary(),
    "clicks": cdp.OutcomeSpace.integers(-5, 6),
    "uneven": cdp.OutcomeSpace.of([-3.25, 0, 0.1, 17]),
    "bins": cdp.OutcomeSpace.bins([0, 1, 10, 100, 1000]),
}
MECHANISMS = {
    "cluster": cdp.cluster_dp(noise_scale=10, prior_floor=0.02, resample_prob=0.8),
    "cluster, tight budget": cdp.cluster_dp(noise_scale=30, prior_floor=0.001, epsilon=0.1),
    "cluster, delta": cdp.cluster_dp(noise_scale=10, prior_floor=0.01, epsilon=2, delta=1e-4),
    "cluster-free": cdp.cluster_free_dp(noise_scale=5, prior_floor=0.05, resample_prob=0.5),
    "uniform": cdp.uniform_prior_dp(epsilon=1),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
def test_debiased_outcomes_are_unbiased(mechanism: Mechanism, space: cdp.OutcomeSpace) -> None:
    assert_unbiased(mechanism, space)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
def test_every_released_probability_is_within_the_guarantee(
    mechanism: Mechanism, space: cdp.OutcomeSpace
) -> None:
    """The exact worst ratio of the channel that was made, not of the formula it was made from."""
    channel = released_channel(mechanism, space)
    response = mechanism.settled_rows(space).bound(space)
    assert isinstance(response, ResamplingBound)
    keep, floor = response.keep_prob, response.prior_floor
    bound = ((1 - keep) * floor + keep) / ((1 - keep) * floor)
    for group in range(len(channel.weights)):
        for column in exact_transition(channel, group):
            assert sum(column) > 0
            assert max(column) / min(column) <= bound
        assert [sum(column) for column in zip(*exact_transition(channel, group), strict=True)] == [
            1
        ] * space.n_categories


@given(
    st.lists(st.integers(1, 1000), min_size=2, max_size=8),
    st.floats(0.01, 0.99),
)
def test_noise_variances_are_those_of_the_transition(relative: list[int], keep_prob: float) -> None:
    weights = np.array(relative) * (PRIOR_TOTAL // sum(relative))
    weights[0] += PRIOR_TOTAL - weights.sum()
    channel = ResamplingChannel(
        keep_weight=int(keep_prob * KEEP_TOTAL),
        weights=weights[np.newaxis],
        groups=np.zeros((1, 2), dtype=np.int64),
        space=cdp.OutcomeSpace.of((np.arange(len(weights)) ** 1.5).tolist()),
    )
    transition, decode = channel.transition()[0], channel.decode()[0]
    mean = decode @ transition
    np.testing.assert_allclose(mean, channel.values[0], atol=1e-9)
    variance = decode**2 @ transition - mean**2
    np.testing.assert_allclose(channel.noise_variance()[0], variance, rtol=1e-6)
    np.testing.assert_allclose(
        channel.read_numbers(channel.noise_variance())[0] @ transition,
        channel.noise_variance()[0],
        rtol=1e-6,
    )


def test_two_outcomes_are_kancharla_and_kang() -> None:
    """Their response tells the truth with 1−λ and a fair coin with λ; p̂ = (mean − λ/2)/(1−λ)."""
    resample_prob = 0.4
    channel = released_channel(
        cdp.uniform_prior_dp(resample_prob=resample_prob), cdp.OutcomeSpace.binary()
    )
    np.testing.assert_allclose(channel.transition()[0], [[0.8, 0.2], [0.2, 0.8]], atol=1e-12)
    released = np.array([0, 1, 1, 0, 1])
    theirs = (released.mean() - resample_prob / 2) / (1 - resample_prob)
    assert channel.decode()[0][released].mean() == pytest.approx(theirs)
    # eq:var-rand-binary: the noise does not depend on the outcome.
    half = resample_prob / 2
    np.testing.assert_allclose(
        channel.noise_variance()[0], half * (1 - half) / (1 - resample_prob) ** 2
    )


def test_a_floor_of_one_over_k_is_the_uniform_prior() -> None:
    space = SPACES["clicks"]
    clustered = released_channel(
        cdp.cluster_dp(noise_scale=3, prior_floor=1 / 12, resample_prob=0.7), space
    )
    uniform = released_channel(cdp.uniform_prior_dp(resample_prob=0.7), space)
    # 2^32 is not a multiple of 12: the remainder of 4 goes to other outcomes.
    np.testing.assert_allclose(clustered.weights, np.tile(uniform.weights, (6, 1)), rtol=0, atol=4)
    np.testing.assert_allclose(clustered.decode(), np.tile(uniform.decode(), (6, 1)), rtol=1e-7)
