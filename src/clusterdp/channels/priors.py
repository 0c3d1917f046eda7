"""Stage 2: from noisy counts to a prior over outcomes. Post-processing: it costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.integers import PRIOR_TOTAL

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

# The share of the uniform prior that is mixed in, for outcomes that noisy counts show too seldom.
_UNIFORM_PART = 0.03


def estimate_prior(noisy_counts: IntArray, sizes: IntArray, prior_floor: float) -> FloatArray:
    """Algorithm 1 of the paper: clip noisy frequencies to [γ, 1], then renormalise.

    If they add up to more than 1, each is lowered in proportion to its height above the floor. If
    they add up to less, each is raised in proportion to its distance from 1. None falls below γ.

    Args:
        noisy_counts: Axes `[..., outcome]`.
        sizes: The number of units behind each histogram; axes `[...]`, broadcast.
        prior_floor: γ, at most 1/K.

    Returns:
        The prior q̃; axes `[..., outcome]`, at least γ each, adding up to one.
    """
    clipped = np.clip(noisy_counts / sizes[..., np.newaxis], prior_floor, 1.0)
    total = clipped.sum(axis=-1, keepdims=True)
    room = np.where(total > 1, clipped - prior_floor, 1 - clipped)
    room_total = room.sum(axis=-1, keepdims=True)
    # No room at all means every frequency stands at a floor of 1/K: nothing is left to move.
    share = np.divide(room, room_total, out=np.zeros_like(room), where=room_total > 0)
    prior: FloatArray = np.maximum(clipped + share * (1 - total), prior_floor)
    return prior


def project_prior(noisy_counts: IntArray, sizes: IntArray) -> FloatArray:
    """The distribution nearest to noisy frequencies, with a little of every outcome.

    It serves to design a channel, where a small part of every outcome costs little and an outcome
    thought impossible would cost much. Euclidean projection onto the simplex, which takes noise
    away from outcomes that hardly occur.

    Args:
        noisy_counts: Axes `[..., outcome]`.
        sizes: The number of units behind each histogram; axes `[...]`, broadcast.
    """
    frequencies = noisy_counts / sizes[..., np.newaxis]
    n_outcomes = frequencies.shape[-1]
    falling = -np.sort(-frequencies, axis=-1)
    above = (np.cumsum(falling, axis=-1) - 1) / np.arange(1, n_outcomes + 1)
    n_kept = (falling > above).sum(axis=-1, keepdims=True)
    taken = np.take_along_axis(above, n_kept - 1, axis=-1)
    return with_every_outcome(np.maximum(frequencies - taken, 0.0))


def with_every_outcome(prior: FloatArray) -> FloatArray:
    """A prior mixed with a small part of the uniform one; axes `[..., outcome]`."""
    return np.asarray((1 - _UNIFORM_PART) * prior + _UNIFORM_PART / prior.shape[-1])


def to_weights(prior: FloatArray, floor_weight: int) -> IntArray:
    """The prior in integers: each at least `floor_weight`, adding up to exactly PRIOR_TOTAL.

    What lies above the floor is shared out by largest remainders.
    """
    n_outcomes = prior.shape[-1]
    to_share = PRIOR_TOTAL - n_outcomes * floor_weight
    above = np.maximum(prior - floor_weight / PRIOR_TOTAL, 0.0)
    above_total = above.sum(axis=-1, keepdims=True)
    flat = np.full_like(above, 1 / n_outcomes)
    shares = to_share * np.divide(above, above_total, out=flat, where=above_total > 0)
    weights = np.floor(shares).astype(np.int64)
    missing = to_share - weights.sum(axis=-1, keepdims=True)
    by_remainder = np.argsort(weights - shares, axis=-1, kind="stable")
    rank = np.argsort(by_remainder, axis=-1, kind="stable")
    shared: IntArray = weights + (rank < missing)
    return floor_weight + shared
