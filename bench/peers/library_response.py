"""k-ary randomized response of each row by libraries of local privacy, debiased by hand.

pure-ldp, multi-freq-ldpy and OpenDP randomize one value at a time. All three say the truth with
probability e^ε/(e^ε + K − 1), and any other value alike, so that they differ in speed alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.peers.given import RowsGiven

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.trial import Sample
    from clusterdp._arrays import FloatArray, IntArray

    # From codes 0…K−1, K and ε to randomized codes.
    Respond = Callable[[IntArray, int, float], IntArray]


def pure_ldp(codes: IntArray, n_values: int, epsilon: float) -> IntArray:
    """Direct encoding of pure-ldp."""
    from pure_ldp.frequency_oracles.direct_encoding import DEClient

    client = DEClient(epsilon, n_values, index_mapper=_as_it_is)
    return np.array([client.privatise(code) for code in codes.tolist()])


def multi_freq_ldpy(codes: IntArray, n_values: int, epsilon: float) -> IntArray:
    """Generalized randomized response of multi-freq-ldpy."""
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client

    return np.array([GRR_Client(code, n_values, epsilon) for code in codes.tolist()])


def opendp(codes: IntArray, n_values: int, epsilon: float) -> IntArray:
    """Randomized response of OpenDP."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    measurement = dp.m.make_randomized_response(
        categories=list(range(n_values)), prob=truth_prob(n_values, epsilon)
    )
    return np.array([measurement(code) for code in codes.tolist()])


def truth_prob(n_values: int, epsilon: float) -> float:
    """The probability of the truth."""
    return float(np.exp(epsilon) / (np.exp(epsilon) + n_values - 1))


def debias(answers: IntArray, values: FloatArray, epsilon: float) -> FloatArray:
    """Numbers whose mean is that of true values: (value − other·Σ values)/(truth − other)."""
    truth = truth_prob(len(values), epsilon)
    other = (1 - truth) / (len(values) - 1)
    return np.asarray((values[answers] - other * values.sum()) / (truth - other))


def release(
    sample: Sample,
    epsilon: float,
    rng: np.random.Generator,  # noqa: ARG001 - libraries have generators of their own
    *,
    respond: Respond,
) -> RowsGiven:
    """Randomize each row and debias it."""
    answers = respond(sample.outcomes, 2, epsilon)
    values = debias(answers, np.array([0.0, 1.0]), epsilon)
    return RowsGiven(values=values, arms=sample.arms, features=sample.features)


def _as_it_is(code: int) -> int:
    """Our codes begin at 0; pure-ldp would take 1 from them."""
    return code
