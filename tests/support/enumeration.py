"""Exact distributions of the joint release of one cell, for every value the noise can take."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.statistics.base import Histogram
from clusterdp.statistics.noise import noise_variance
from populations import make_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.finite import OutcomeSpace


@dataclass(frozen=True)
class JointRelease:
    """Log-probabilities of (noisy counts, one unit's row) for a cell of given size.

    The rows of all other units have the same distribution given the noisy counts under both of two
    neighbours, so they add nothing to the loss: this pair decides the guarantee.

    Attributes:
        noisy: Every vector of noisy counts within reach; axes `[point, outcome]`.
        weights: The integer prior each of them leads to, axes `[point, outcome]`; None where the
            channel is designed.
        log_transition: log Q; axes `[point, released, true]`.
        noise_scale: The scale of the noise that is really added.
    """

    noisy: IntArray
    weights: IntArray | None
    log_transition: FloatArray
    noise_scale: float

    def log_prob(self, counts: tuple[int, ...], outcome: int) -> FloatArray:
        """log P(noisy counts, row) for a unit whose true outcome is given; `[point, released]`."""
        return self.log_prob_counts(counts)[:, np.newaxis] + self.log_transition[:, :, outcome]

    def log_prob_counts(self, counts: tuple[int, ...]) -> FloatArray:
        """log P(noisy counts); axes `[point]`."""
        rate = 1 / self.noise_scale
        distance = np.abs(self.noisy - np.array(counts)).sum(axis=1)
        return np.asarray(self.noisy.shape[1] * np.log(np.tanh(rate / 2)) - rate * distance)


def joint_release(
    mechanism: Mechanism, space: OutcomeSpace, size: int, reach: int, noise_scale: float
) -> JointRelease:
    """The release of a cell of `size` units, noise taken up to `reach` around its counts."""
    axis = np.arange(-reach, size + reach + 1)
    noisy = np.array(list(itertools.product(axis, repeat=space.n_categories)))
    histogram = Histogram(
        noisy_counts=noisy[:, np.newaxis, :],
        group_sizes=np.array([size]),
        groups=np.zeros((1, 2), dtype=np.int64),
        noise_variance=noise_variance(noise_scale),
    )
    rows = mechanism.settled_rows(space)
    channel = rows.design(make_layout([[size, size]]), space, histogram)
    if isinstance(channel, OptimalChannel):
        transition, weights = channel.transition()[channel.groups[:, 0, 0]], None
    else:
        transition, weights = channel.transition()[:, 0], channel.weights[:, 0, :]
    with np.errstate(divide="ignore"):  # outputs that a channel does not have
        log_transition = np.log(transition)
    return JointRelease(
        noisy=noisy, weights=weights, log_transition=log_transition, noise_scale=noise_scale
    )


def neighbours(
    size: int, n_outcomes: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, int]]:
    """Every pair of neighbouring counts, with the outcome that was replaced and its replacement."""
    for counts in itertools.product(range(size + 1), repeat=n_outcomes):
        if sum(counts) != size:
            continue
        for old, new in itertools.permutations(range(n_outcomes), 2):
            if counts[old] > 0:
                changed = list(counts)
                changed[old] -= 1
                changed[new] += 1
                yield counts, tuple(changed), old, new


def hockey_stick(log_p: FloatArray, log_q: FloatArray, epsilon: float) -> float:
    """δ(ε) = Σ max(0, P − e^ε Q)."""
    return float(np.maximum(np.exp(log_p) - np.exp(log_q + epsilon), 0.0).sum())


def worst_loss(release: JointRelease, size: int) -> float:
    """The largest privacy loss of (noisy counts, row) over all neighbours and outputs."""
    n_outcomes = release.noisy.shape[1]
    return max(
        float((release.log_prob(before, old) - release.log_prob(after, new)).max())
        for before, after, old, new in neighbours(size, n_outcomes)
    )


def worst_delta(release: JointRelease, size: int, epsilon: float) -> float:
    """The largest δ at ε over all neighbours of one cell."""
    n_outcomes = release.noisy.shape[1]
    return max(
        hockey_stick(release.log_prob(before, old), release.log_prob(after, new), epsilon)
        for before, after, old, new in neighbours(size, n_outcomes)
    )
