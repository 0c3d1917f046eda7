"""Statistical assertions with a stated false-alarm rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    import numpy.typing as npt

    from clusterdp._arrays import IntArray

# Every statistical assertion of the suite fails on correct code with at most this probability.
ALPHA = 1e-6


def assert_mean(sample: npt.NDArray[Any], expected: float, std_dev: float) -> None:
    """The mean of independent draws with known expectation and standard deviation."""
    error = sample.mean() - expected
    reach = stats.norm.isf(ALPHA / 2) * std_dev / math.sqrt(len(sample))
    assert abs(error) <= reach, f"mean is off by {error:.3g}, more than {reach:.3g}"


def assert_variance(sample: npt.NDArray[Any], expected: float, relative_error: float) -> None:
    """The variance of roughly normal draws, against a value known up to a relative error."""
    ratio = sample.var(ddof=1) / expected
    degrees = len(sample) - 1
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], degrees) / degrees
    assert low * (1 - relative_error) <= ratio <= high * (1 + relative_error), (
        f"variance is {ratio:.4f} times the expected one, outside [{low:.4f}, {high:.4f}]"
    )


def assert_frequencies(observed: npt.NDArray[Any], probs: npt.NDArray[Any]) -> None:
    """Counts of independent draws against the probabilities of the outcomes (chi-squared)."""
    expected = probs / probs.sum() * observed.sum()
    assert expected.min() > 20, "the chi-squared approximation needs larger expected counts"
    p_value = stats.chisquare(observed, expected).pvalue
    assert p_value > ALPHA, f"frequencies differ from the stated ones (p = {p_value:.2g})"


def assert_discrete_laplace(draws: IntArray, scale: float) -> None:
    """Draws against P(z) ∝ exp(−|z|/scale), with the tails in one class each."""
    edge = max(2, round(scale * 4))
    classes = np.clip(draws, -edge, edge)
    observed = np.bincount(classes + edge, minlength=2 * edge + 1)
    decay = np.exp(-1 / scale)
    probs = decay ** np.abs(np.arange(-edge, edge + 1))
    probs[[0, -1]] /= 1 - decay  # the tails are geometric
    assert_frequencies(observed, probs)
