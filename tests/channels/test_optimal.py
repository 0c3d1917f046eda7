"""Optimal channels of several metrics, in integers: exact, and never missing."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from all_sets import least_variance
from clusterdp.channels._optimal_channel import (
    MOST_BIAS,
    OptimalChannel,
    design_one,
    design_optimal,
)
from clusterdp.channels.base import LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON, TABLE_TOTAL
from clusterdp.errors import OwnerNotice
from joint_spaces import channel_of, grid_of, response_of

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

# Visit, conversion and spend: no conversion without a visit, no spending without a conversion.
FUNNEL = np.array([[0.0, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 20, 80, 300]])
FUNNEL_PRIOR = np.array([0.85, 0.14, 0.005, 0.003, 0.002])


def worst_beyond(table: IntArray, ratio: Fraction) -> Fraction:
    """The largest Σ_s max(P(s|y) − ratio·P(s|y′), 0), as fractions of one."""
    rows = [[int(weight) for weight in row] for row in table]
    return max(
        sum((max(p - ratio * q, Fraction(0)) for p, q in zip(one, other, strict=True)), Fraction(0))
        for one in rows
        for other in rows
    ) / Fraction(TABLE_TOTAL)


def exact_bias(table: IntArray, outputs: FloatArray, values: FloatArray) -> float:
    """The largest |E[output | category] − value| of one metric, relative to its largest output."""
    numbers = [Fraction(number) for number in outputs.tolist()]
    largest = max(1.0, float(np.abs(outputs).max()))
    means = [
        sum((int(p) * s for p, s in zip(row, numbers, strict=True)), Fraction(0)) / TABLE_TOTAL
        for row in table
    ]
    worst = max(abs(mean - Fraction(y)) for mean, y in zip(means, values.tolist(), strict=True))
    return float(worst) / largest


@given(
    st.integers(1, 3),
    st.integers(2, 6),
    st.floats(np.log(SMALLEST_ROW_EPSILON), np.log(LARGEST_ROW_EPSILON)),
    st.sampled_from([0.0, 1e-6, 0.01]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_every_channel_is_exact(
    n_metrics: int, n_categories: int, log_epsilon: float, delta: float, random: object
) -> None:
    """In integers: rows add up, no ratio exceeds e^ε but for δ, every metric is unbiased."""
    number = random.random  # type: ignore[attr-defined]
    values = np.array(
        [[round(50 * number()) for _ in range(n_categories)] for _ in range(n_metrics)]
    )
    values = values.astype(np.float64)
    prior = np.array([number() ** 8 for _ in range(n_categories)]) + 1e-12
    epsilon = float(np.exp(log_epsilon))
    table, decoded, _ = design_one(
        prior / prior.sum(), values, np.ones(n_metrics), response_of(epsilon, delta)
    )
    assert (table.sum(axis=1) == TABLE_TOTAL).all()
    assert table.min() >= 0
    ratio = Fraction(np.exp(epsilon)) * (1 + Fraction(1, 10**12))
    assert worst_beyond(table, ratio) <= Fraction(delta)
    for outputs, wanted in zip(decoded, values, strict=True):
        assert exact_bias(table, outputs, wanted) <= MOST_BIAS


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1, 2, 4, 12])
def test_a_funnel_in_integers_is_as_good_as_the_oracle(epsilon: float) -> None:
    weights = 1 / ((FUNNEL**2) @ FUNNEL_PRIOR - (FUNNEL @ FUNNEL_PRIOR) ** 2)
    tables, outputs, _ = design_optimal(FUNNEL_PRIOR[None], FUNNEL, weights, response_of(epsilon))
    channel = OptimalChannel(
        tables=tables, outputs=outputs, groups=np.zeros((1, 1), np.int64), values=FUNNEL
    )
    noise = np.array([channel.noise_variance(metric)[0] for metric in range(len(weights))])
    ours = float(weights @ noise @ FUNNEL_PRIOR)
    best = least_variance(FUNNEL, FUNNEL_PRIOR, weights, epsilon)
    assert ours <= best * 1.001 + 1e-6 * len(weights)


@pytest.mark.parametrize("prior", [[1, 0, 0, 0, 0], [1, 1e-9, 1e-9, 1, 0]])
@pytest.mark.parametrize("epsilon", [SMALLEST_ROW_EPSILON, 1.0, LARGEST_ROW_EPSILON])
def test_extreme_priors_have_exact_channels(prior: list[float], epsilon: float) -> None:
    response = response_of(epsilon)
    channel = channel_of(np.array([prior]) / np.sum(prior), FUNNEL, response)
    assert response.allows(channel)
    assert channel.is_unbiased()


def test_a_decode_column_swapped_is_caught() -> None:
    response = response_of(1.0)
    channel = channel_of(FUNNEL_PRIOR[None], FUNNEL, response)
    assert channel.is_unbiased()
    distinct = np.flatnonzero(channel.outputs[0, 1] != channel.outputs[0, 1, 0])[0]
    swapped = channel.outputs.copy()
    swapped[0, 1, [0, distinct]] = swapped[0, 1, [distinct, 0]]
    planted = OptimalChannel(
        tables=channel.tables, outputs=swapped, groups=channel.groups, values=channel.values
    )
    assert not planted.is_unbiased()
    assert np.abs(planted.bias()[0, [0, 2]]).max() < 1e-9 < np.abs(planted.bias()[0, 1]).max()


def test_a_level_above_the_ratio_is_caught() -> None:
    response = response_of(1.0)
    channel = channel_of(FUNNEL_PRIOR[None], FUNNEL, response)
    tables = channel.tables.copy()
    output = int(tables[0].min(axis=0).argmax())
    high = int(tables[0, :, output].argmax())
    moved = tables[0, high, output] // 1000
    tables[0, high, output] += moved
    tables[0, high, (output + 1) % tables.shape[-1]] -= moved
    planted = OptimalChannel(
        tables=tables, outputs=channel.outputs, groups=channel.groups, values=channel.values
    )
    assert response.allows(channel)
    assert not response.allows(planted)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_without_a_solver_every_metric_has_a_channel(
    delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterdp.channels._solver.generation.solve_cones", lambda *_: None)
    response = response_of(0.7, delta)
    with pytest.warns(OwnerNotice, match="A plain one is used there"):
        channel = channel_of(np.vstack([FUNNEL_PRIOR, np.full(5, 0.2)]), FUNNEL, response)
    assert response.allows(channel)
    assert channel.is_unbiased()


def test_outputs_are_few_ordered_and_the_same_every_time() -> None:
    values = grid_of(2, 6)
    priors, response = np.full((1, 12), 1 / 12), response_of(1.0)
    first, second = (channel_of(priors, values, response) for _ in range(2))
    np.testing.assert_array_equal(first.tables, second.tables)
    np.testing.assert_array_equal(first.outputs, second.outputs)
    assert first.tables.shape[-1] <= 3 * 12
    assert (np.diff(first.outputs[0, 0]) >= 0).all()


def test_delta_lowers_the_variance_of_several_metrics() -> None:
    values, prior = grid_of(2, 3), np.full((1, 6), 1 / 6)
    without, with_delta = (
        channel_of(prior, values, response_of(1.0, delta)).noise_variance()[0].mean()
        for delta in (0.0, 0.01)
    )
    assert with_delta < without


def test_arrays_of_the_wrong_shape_are_refused() -> None:
    groups = np.zeros((1, 1), dtype=np.int64)
    tables, outputs = np.full((1, 2, 2), TABLE_TOTAL // 2), np.zeros((1, 1, 2))
    with pytest.raises(ValueError, match="values must have axes"):
        OptimalChannel(tables=tables, outputs=outputs, groups=groups, values=np.zeros(2))
    with pytest.raises(ValueError, match="outputs must have shape"):
        OptimalChannel(tables=tables, outputs=outputs[0], groups=groups, values=np.zeros((1, 2)))
