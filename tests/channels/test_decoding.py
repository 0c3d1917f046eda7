"""Decoding of least variance, against constrained least squares written out."""

from __future__ import annotations

import numpy as np
import pytest

from clusterdp.channels._optimal_channel import decode_functions, residuals
from clusterdp.channels._solver.staircases import k_ary_response
from clusterdp.channels.base import TABLE_TOTAL
from joint_spaces import channel_of, grid_of, response_of


def test_k_ary_response_decodes_everything(rng: np.random.Generator) -> None:
    response = response_of(1.0)
    functions = rng.normal(size=(4, 6))
    table, expected = k_ary_response(functions, response.max_ratio)
    found = decode_functions(table, np.full(6, 1 / 6), functions)
    assert np.abs(residuals(table, found, functions)).max() < 1e-12
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_no_other_decoding_has_less_variance(rng: np.random.Generator) -> None:
    """Lagrange's equations: the second moment is stationary among all unbiased decodings."""
    channel = channel_of(np.full((1, 5), 0.2), np.arange(5.0)[None], response_of(2.0))
    prior, wanted = rng.dirichlet(np.ones(5)), np.arange(5.0) ** 2
    table = channel.tables[0]
    found = decode_functions(table, prior, wanted[None])
    assert np.abs(residuals(table, found, wanted[None])).max() < 1e-9
    probs = table / TABLE_TOTAL
    released = prior @ probs
    n_outputs = len(released)
    system = np.block([[np.diag(released), -probs.T], [probs, np.zeros((5, 5))]])
    right = np.concatenate([np.zeros(n_outputs), wanted])
    expected = np.linalg.lstsq(system, right, rcond=None)[0][:n_outputs]
    np.testing.assert_allclose(found[0], expected, rtol=1e-6, atol=1e-6)


def test_what_a_joint_channel_cannot_decode_has_a_residual() -> None:
    """At ε = 1 a joint channel decodes its metrics, and not every function of the category."""
    values, prior = grid_of(2, 2, 3), np.full(12, 1 / 12)
    table = channel_of(prior[None], values, response_of(1.0)).tables[0]
    functions = np.vstack([values, np.eye(12)[:1]])
    residual = residuals(table, decode_functions(table, prior, functions), functions)
    assert np.linalg.matrix_rank(table / TABLE_TOTAL, tol=1e-9) < 12
    assert np.abs(residual[:3]).max() < 1e-9
    assert np.abs(residual[3]).max() > 0.01


def test_impossible_outputs_count_as_nothing() -> None:
    table, _ = k_ary_response(np.arange(3.0)[None], response_of(1.0).max_ratio)
    padded = np.hstack([table, np.zeros((3, 2), dtype=np.int64)])
    found = decode_functions(padded, np.full(3, 1 / 3), np.arange(3.0)[None])
    assert (found[:, 3:] == 0).all()
    assert np.abs(residuals(padded, found, np.arange(3.0)[None])).max() < 1e-12


def test_bias_is_taken_away_and_little_else() -> None:
    values = np.arange(4.0)[None]
    table, outputs = k_ary_response(values, response_of(1.0).max_ratio)
    off = outputs + 1e-6 * np.array([[1.0, -2, 3, 1]])
    mended = decode_functions(table, np.full(4, 0.25), values, near=off)
    assert np.abs(mended - outputs).max() < 1e-12
    assert np.abs(mended - off).max() == pytest.approx(3e-6, rel=1e-3)
