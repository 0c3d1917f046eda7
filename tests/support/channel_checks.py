"""The channel of a small release, and what must hold of every channel."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.base import KEEP_TOTAL, PRIOR_TOTAL
from clusterdp.channels.resampling import ResamplingChannel
from clusterdp.mechanisms.draw import release_cells
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import add_exact_noise
from populations import make_layout

if TYPE_CHECKING:
    import clusterdp as cdp
    from clusterdp.mechanisms.mechanism import Mechanism


def released_channel(mechanism: Mechanism, space: cdp.OutcomeSpace) -> ResamplingChannel:
    """The channel of a release of 3 clusters and 2 arms, with noise as in a real one."""
    rng = np.random.default_rng()
    counts = rng.integers(1, 50, size=(3, 2, space.n_categories))
    layout = make_layout(counts.sum(axis=2))
    totals = CellTotals.from_counts(counts, space)
    _, channel = release_cells(totals, layout, space, mechanism, add_exact_noise)
    assert isinstance(channel, ResamplingChannel)
    return channel


def exact_transition(channel: ResamplingChannel, group: int) -> list[list[Fraction]]:
    """Q from the integers alone, as fractions; [released][true]."""
    keep = Fraction(channel.keep_weight, KEEP_TOTAL)
    prior = [Fraction(int(weight), PRIOR_TOTAL) for weight in channel.weights[group]]
    outcomes = range(len(prior))
    return [
        [(1 - keep) * prior[released] + keep * (released == true) for true in outcomes]
        for released in outcomes
    ]


def assert_unbiased(mechanism: Mechanism, space: cdp.OutcomeSpace) -> None:
    """E[debiased | true] = true, from the released integers, for every cell and outcome."""
    channel = released_channel(mechanism, space)
    for group, decode in enumerate(channel.decode()):
        transition = exact_transition(channel, group)
        for true, value in enumerate(space.values):
            expected = sum(
                column[true] * Fraction(float(number))
                for column, number in zip(transition, decode, strict=True)
            )
            assert abs(float(expected - Fraction(value))) < 1e-9
