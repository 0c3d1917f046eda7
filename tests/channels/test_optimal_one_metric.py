"""The designed channel against independent answers: Warner, a plain linear program, the design."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import clusterdp as cdp
from clusterdp.channels._optimal_channel import (
    MOST_BIAS,
    OptimalBound,
    OptimalChannel,
    design_optimal,
)
from clusterdp.channels.base import TABLE_TOTAL
from clusterdp.channels.priors import learn_priors
from clusterdp.statistics.base import Histogram
from clusterdp.statistics.noise import noise_variance
from populations import make_layout

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism

CLICKS = cdp.OutcomeSpace.integers(-5, 6)


def channel_for(
    space: cdp.OutcomeSpace, epsilon: float, prior: list[float] | None = None, delta: float = 0.0
) -> OptimalChannel:
    mechanism = cdp.optimal(epsilon=epsilon, delta=delta, prior=prior)
    channel = mechanism.settled_rows(space).design(make_layout([[9, 9]]), space, None)
    assert isinstance(channel, OptimalChannel)
    return channel


def optimal_response(mechanism: Mechanism, space: cdp.OutcomeSpace) -> OptimalBound:
    response = mechanism.settled_rows(space).bound(space)
    assert isinstance(response, OptimalBound)
    return response


def plain_program(
    values: FloatArray, prior: FloatArray, epsilon: float, delta: float, outputs: FloatArray
) -> float:
    """The least variance over all channels on some outputs, as the definition says it."""
    n_outcomes, n_outputs = len(values), len(outputs)
    pairs = [(a, b) for a in range(n_outcomes) for b in range(n_outcomes) if a != b]
    n_probs = n_outcomes * n_outputs
    probs = np.eye(n_probs).reshape(n_outcomes, n_outputs, n_probs)
    cost = (prior[:, None] * (outputs - values[:, None]) ** 2).ravel()
    equal = np.vstack([probs.sum(axis=1), (probs * outputs[:, None]).sum(axis=1)])
    right = np.concatenate([np.ones(n_outcomes), values])
    beyond = np.vstack([probs[a] - np.exp(epsilon) * probs[b] for a, b in pairs])
    if not delta:
        found = linprog(cost, A_ub=beyond, b_ub=np.zeros(len(beyond)), A_eq=equal, b_eq=right)
        return float(found.fun)
    # Slack variables: by how much an output exceeds the ratio; they add up to δ for each pair.
    slack = np.eye(len(beyond))
    per_pair = np.repeat(np.eye(len(pairs)), n_outputs, axis=1)
    found = linprog(
        np.concatenate([cost, np.zeros(len(beyond))]),
        A_ub=np.block([[beyond, -slack], [np.zeros((len(pairs), n_probs)), per_pair]]),
        b_ub=np.concatenate([np.zeros(len(beyond)), np.full(len(pairs), delta)]),
        A_eq=np.hstack([equal, np.zeros((len(equal), len(beyond)))]),
        b_eq=right,
    )
    return float(found.fun)


def designed(priors: FloatArray, values: FloatArray, response: OptimalBound) -> OptimalChannel:
    tables, outputs, _ = design_optimal(priors, values[np.newaxis], np.ones(1), response)
    groups = np.zeros((1, 2), np.int64)
    return OptimalChannel(tables=tables, outputs=outputs, groups=groups, values=values[np.newaxis])


@pytest.mark.parametrize("prior", [[0.5, 0.5], [0.98, 0.02]])
@pytest.mark.parametrize("epsilon", [0.1, 1, 5])
def test_two_outcomes_are_warners_response_whatever_the_prior(
    prior: list[float], epsilon: float
) -> None:
    channel = channel_for(cdp.OutcomeSpace.binary(), epsilon, prior)
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))
    np.testing.assert_allclose(
        channel.tables[0] / TABLE_TOTAL, [[truth, 1 - truth], [1 - truth, truth]], rtol=1e-9
    )
    np.testing.assert_allclose(
        channel.noise_variance()[0], truth * (1 - truth) / (2 * truth - 1) ** 2
    )


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(
    "values", [[0.0, 1, 2], [0.0, 1, 2, 3, 4], [-1.0, 0, 0.5, 6]], ids=["3", "5", "uneven"]
)
def test_no_channel_on_a_fine_grid_is_better(values: list[float], epsilon: float) -> None:
    space = cdp.OutcomeSpace.of(values)
    prior = np.arange(1, len(values) + 1) / sum(range(1, len(values) + 1))
    channel = channel_for(space, epsilon, prior.tolist())
    designed_for = 0.97 * prior + 0.03 / len(values)
    ours = float(channel.noise_variance()[0] @ designed_for)
    reach = space.span * (1 + 1 / np.tanh(epsilon / 2))
    grid = np.linspace(values[0] - reach, values[-1] + reach, 120)
    # With our outputs on it the grid's best is at most ours; it must not be much below.
    outputs = np.unique(np.concatenate([grid, channel.outputs[0, 0]]))
    best = plain_program(space.as_array(), designed_for, epsilon, 0.0, outputs)
    assert best * (1 - 1e-6) <= ours <= best * 1.005


@pytest.mark.parametrize(("delta", "loss"), [(1e-4, 0.005), (1e-3, 0.006), (0.03, 0.04)])
def test_delta_is_used_nearly_as_well_as_possible(delta: float, loss: float) -> None:
    """Against all (ε, δ)-DP channels with outputs no farther out than the two points."""
    space, epsilon = cdp.OutcomeSpace.integers(0, 3), 1.0
    channel = channel_for(space, epsilon, delta=delta)
    uniform = np.full(4, 0.25)
    ours = float(channel.noise_variance()[0] @ uniform)
    reach = 1.5 / np.tanh(epsilon / 2)
    grid = np.linspace(1.5 - reach, 1.5 + reach, 60)
    outputs = np.unique(np.concatenate([grid, channel.outputs[0, 0]]))
    best = plain_program(space.as_array(), uniform, epsilon, delta, outputs)
    assert best * (1 - 1e-6) <= ours <= best * (1 + loss)
    assert ours < float(channel_for(space, epsilon).noise_variance()[0] @ uniform)


def test_the_figures_of_the_design() -> None:
    """Design §5, optimal with uniform and with cluster prior, to its digits; ours is no worse."""
    values = CLICKS.as_array()
    near = np.exp(-((values - 1) ** 2) / 1.4)
    near /= near.sum()
    stated = {0.2: (3028, 3019), 1: (116, 104), 2: (19.1, 16.9), 4: (2.35, 1.52), 6: (0.28, 0.20)}
    for epsilon, (uniform, clustered) in stated.items():
        blind = channel_for(CLICKS, epsilon).noise_variance()[0] @ near
        knowing = channel_for(CLICKS, epsilon, near.tolist()).noise_variance()[0] @ near
        assert blind == pytest.approx(uniform, rel=0.02)
        # 3% of the channel's prior insures it against outcomes thought impossible.
        assert clustered * 0.97 <= knowing <= clustered * 1.05


@given(
    st.lists(st.integers(-30, 30), min_size=2, max_size=7, unique=True),
    st.floats(0.02, 10),
    st.sampled_from([0.0, 1e-6, 0.01]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=40, deadline=None)
def test_every_channel_is_exact(
    values: list[int], epsilon: float, delta: float, random: object
) -> None:
    """In integers: rows add up, no ratio exceeds e^ε but for δ, and outputs average to outcomes."""
    space = cdp.OutcomeSpace.of(values)
    prior = [random.random() + 1e-3 for _ in values]  # type: ignore[attr-defined]
    channel = channel_for(space, epsilon, prior, delta)
    table = channel.tables[0].astype(object)
    assert (table.sum(axis=1) == TABLE_TOTAL).all()
    ratio = Fraction(np.exp(epsilon)) * (1 + Fraction(1, 10**12))
    for one in table:
        for other in table:
            beyond = sum(
                max(Fraction(p) - ratio * q, Fraction(0)) for p, q in zip(one, other, strict=True)
            )
            assert beyond <= Fraction(delta) * TABLE_TOTAL
    numbers = [Fraction(float(number)) for number in channel.outputs[0, 0]]
    largest = max(1.0, float(np.abs(channel.outputs[0, 0]).max()))
    for value, row in zip(space.values, table, strict=True):
        mean = sum(Fraction(int(p), TABLE_TOTAL) * s for p, s in zip(row, numbers, strict=True))
        assert abs(float(mean - Fraction(value))) <= MOST_BIAS * largest


def test_a_table_that_leaks_is_refused() -> None:
    mechanism = cdp.optimal(epsilon=1)
    response = optimal_response(mechanism, cdp.OutcomeSpace.integers(0, 2))
    channel = designed(np.full((1, 3), 1 / 3), np.arange(3.0), response)
    tables = channel.tables
    assert response.allows(channel)
    likeliest = int(tables[0].min(axis=0).argmax())
    high = int(tables[0, :, likeliest].argmax())
    moved = tables[0, high, likeliest] // 1000
    other = (likeliest + 1) % tables.shape[-1]
    tables[0, high, likeliest] += moved
    tables[0, high, other] -= moved
    assert not response.allows(channel)


@pytest.mark.slow
def test_cells_share_channels_and_lose_little(rng: np.random.Generator) -> None:
    """2,000 cells of many shapes: within 2% of a channel of their own, for their own outcomes."""
    values, n_cells, size = CLICKS.as_array(), 2000, 300
    centre, spread = rng.normal(0, 2.5, (n_cells, 1)), rng.uniform(0.6, 2.5, (n_cells, 1))
    probs = np.exp(-(((values - centre) / spread) ** 2) / 2)
    counts = rng.multinomial(size, probs / probs.sum(axis=1, keepdims=True))
    noisy = counts + np.rint(rng.laplace(0, 5, counts.shape)).astype(np.int64)
    layout = make_layout(np.full((n_cells // 2, 2), size))
    histogram = Histogram(
        noisy_counts=noisy,
        group_sizes=layout.sizes.ravel(),
        groups=np.arange(n_cells).reshape(-1, 2),
        noise_variance=noise_variance(5),
    )
    mechanism = cdp.optimal(epsilon=3, noise_scale=5)
    shared = mechanism.settled_rows(CLICKS).design(layout, CLICKS, histogram)
    response = optimal_response(mechanism, CLICKS)
    assert isinstance(shared, OptimalChannel)
    assert response.allows(shared)
    chosen = rng.choice(n_cells, 40, replace=False)
    priors = learn_priors(histogram, np.full(len(values), 1 / len(values)))[chosen]
    own = designed(priors, values, response).noise_variance()
    ours = shared.noise_variance()[shared.groups.ravel()[chosen]]
    frequencies = counts[chosen] / size
    assert (ours * frequencies).sum() <= 1.02 * (own * frequencies).sum()


def test_many_outcomes(rng: np.random.Generator) -> None:
    space = cdp.OutcomeSpace.integers(0, 31)
    channel = channel_for(space, 2.0)
    uniform = np.full(32, 1 / 32)
    rows = cdp.uniform_prior_dp(epsilon=2).settled_rows(space)
    redrawn = rows.design(make_layout([[9, 9]]), space, None)
    assert channel.noise_variance()[0] @ uniform < 0.25 * (redrawn.noise_variance()[0] @ uniform)
