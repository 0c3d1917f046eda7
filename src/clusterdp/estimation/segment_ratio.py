"""Sample ratios within segments: a segment made after treatment has other shares of the arms.

Arms were assigned at random within clusters. So of the m_c units that a segment has in cluster c,
arm a has a number that is hypergeometric: m_c drawn from n_c units, of which n_ac are of the arm.
The numbers of clusters are independent, and the distribution of their sum is computed exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp._words import counted
from clusterdp.estimation.notes import Note, Weight
from clusterdp.estimation.sample_ratio import for_all_arms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import FloatArray, IntArray

# The probability of a false alarm about any segment of an estimate.
_LEVEL = 1e-3
# Sums closer to their expectation than this many standard deviations raise no alarm, and their
# distribution is not computed.
_NEAR = 3.0
# How far the distribution in a cluster is computed: standard deviations, and units. What is beyond
# has a probability of less than 1e-15.
_REACH, _MORE = 10.0, 40
# Fast convolution is exact up to this; smaller probabilities are taken to be as large.
_LEAST_PROB = 1e-12
# Distributions of fewer numbers are convolved term by term.
_SHORT = 64
_SHOWN = 3


def segment_ratio_notes(segments: Sequence[tuple[str, IntArray]], whole: IntArray) -> list[Note]:
    """Segments whose arms do not have the shares that assignment within clusters gives them.

    Args:
        segments: Names of segments, each with the units of its cells; axes `[cluster, arm]`.
        whole: The cells of everyone; axes the same.
    """
    p_values = {name: segment_p_value(sizes, whole) for name, sizes in segments}
    off = sorted(
        (p_value, name) for name, p_value in p_values.items() if p_value < _LEVEL / len(segments)
    )
    if not off:
        return []
    named = "; ".join(f"{name} (p = {p_value:.2g})" for p_value, name in off[:_SHOWN])
    more = f"; and {len(off) - _SHOWN} more" if len(off) > _SHOWN else ""
    text = (
        f"sample-ratio mismatch in {counted(len(off), 'segment')}: {named}{more}. Arms do not have "
        "their shares there, so the segments were made after treatment, or followed from it; "
        "effects in them are not effects of the treatment. Cut by columns known before treatment"
    )
    return [Note(text, Weight.WARNING)]


def segment_p_value(sizes: IntArray, whole: IntArray) -> float:
    """A two-sided p-value that a segment does not depend on arms; one for all arms (Bonferroni).

    Args:
        sizes: Units of the segment; axes `[cluster, arm]`.
        whole: Units of everyone; axes the same.
    """
    n_arms = whole.shape[1]
    return float(for_all_arms(np.array([_arm_p_value(sizes, whole, arm) for arm in range(n_arms)])))


def _arm_p_value(sizes: IntArray, whole: IntArray, arm: int) -> float:
    """Twice the smaller tail of how many units of the segment an arm has."""
    n_drawn, n_all, n_arm = sizes.sum(axis=1), whole.sum(axis=1), whole[:, arm]
    mixed = (n_drawn > 0) & (n_drawn < n_all) & (n_arm > 0) & (n_arm < n_all)
    if not mixed.any():
        return 1.0
    found = int(sizes[mixed, arm].sum())
    n_drawn, n_all, n_arm = n_drawn[mixed], n_all[mixed], n_arm[mixed]
    means = n_drawn * n_arm / n_all
    variances = means * (1 - n_arm / n_all) * (n_all - n_drawn) / (n_all - 1)
    if abs(found - means.sum()) <= _NEAR * np.sqrt(variances.sum()):
        return 1.0
    low, probs = _sum_of_draws(n_drawn, n_all, n_arm, means, np.sqrt(variances))
    place = found - low
    below = probs[: max(place + 1, 0)].sum()
    above = probs[max(place, 0) :].sum()
    return float(min(2 * max(min(below, above), _LEAST_PROB), 1.0))


def _sum_of_draws(
    n_drawn: IntArray, n_all: IntArray, n_arm: IntArray, means: FloatArray, spreads: FloatArray
) -> tuple[int, FloatArray]:
    """The distribution of a sum of hypergeometric numbers: the least of it, and probabilities."""
    reach = np.ceil(_REACH * spreads).astype(np.int64) + _MORE
    middles = means.astype(np.int64)
    lows = np.maximum(middles - reach, np.maximum(0, n_drawn + n_arm - n_all))
    highs = np.minimum(middles + reach, np.minimum(n_drawn, n_arm))
    lengths = highs - lows + 1
    starts = np.cumsum(lengths) - lengths
    drawn, every, arm = (np.repeat(each, lengths) for each in (n_drawn, n_all, n_arm))
    number = np.arange(lengths.sum()) - np.repeat(starts - lows, lengths)
    logs = _log_choose(arm, number) + _log_choose(every - arm, drawn - number)
    laws = np.split(np.exp(logs - _log_choose(every, drawn)), starts[1:])
    while len(laws) > 1:
        odd = laws[len(laws) // 2 * 2 :]
        pairs = zip(laws[::2], laws[1::2], strict=False)
        laws = [_convolve(one, other) for one, other in pairs] + odd
    return int(lows.sum()), laws[0]


def _log_choose(n_all: IntArray, n_chosen: IntArray) -> FloatArray:
    """The logarithm of how many ways there are to choose some of all."""
    from scipy.special import gammaln

    of_parts = gammaln(n_chosen + 1.0) + gammaln(n_all - n_chosen + 1.0)
    return np.asarray(gammaln(n_all + 1.0) - of_parts, np.float64)


def _convolve(one: FloatArray, other: FloatArray) -> FloatArray:
    """The distribution of a sum of two numbers."""
    if min(len(one), len(other)) < _SHORT:
        return np.asarray(np.convolve(one, other), np.float64)
    length = len(one) + len(other) - 1
    n_points = 1 << (length - 1).bit_length()
    product = np.fft.rfft(one, n_points) * np.fft.rfft(other, n_points)
    return np.maximum(np.fft.irfft(product, n_points)[:length], 0.0)
