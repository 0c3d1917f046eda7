"""Kancharla and Kang (2021): forced response.

A device tells each person to say yes, to say no, or to tell the truth. `disobedience.py` has the
design for people who disobey it. Of all devices at one ε the most truthful one is taken, with
forced yes and forced no alike: Warner's response, and ours for two outcomes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.peers.given import RowsGiven

if TYPE_CHECKING:
    from bench.peers.trial import Sample
    from clusterdp._arrays import FloatArray, IntArray


class Device(NamedTuple):
    """The chances of a forced yes and a forced no; else the truth is told."""

    yes_prob: float
    no_prob: float

    @property
    def truth_prob(self) -> float:
        """The chance of being told to tell the truth."""
        return 1 - self.yes_prob - self.no_prob

    def channel(self) -> FloatArray:
        """Probabilities of answers; axes `[outcome, answer]`."""
        yes = np.array([self.yes_prob, self.yes_prob + self.truth_prob])
        return np.column_stack([1 - yes, yes])

    def answer(self, outcomes: IntArray, rng: np.random.Generator) -> IntArray:
        """What obedient people say; axes `[unit]`."""
        told = rng.random(len(outcomes))
        truthful = np.where(told < self.yes_prob + self.no_prob, 0, outcomes)
        return np.where(told < self.yes_prob, 1, truthful)


def fair_device(epsilon: float) -> Device:
    """The most truthful device at ε: forced yes and no are alike. Warner's response."""
    forced = 1 / (math.exp(epsilon) + 1)
    return Device(forced, forced)


def leaning_device(epsilon: float, yes_prob: float) -> Device:
    """The most truthful device at ε with more forced yes: (1 − yes)/no = e^ε."""
    return Device(yes_prob, (1 - yes_prob) * math.exp(-epsilon))


def one_device(
    sample: Sample, epsilon: float, rng: np.random.Generator, *, disobeying: float = 0.0
) -> RowsGiven:
    """Answers by the fair device, debiased as if all obeyed: (answer − yes)/truth."""
    device = fair_device(epsilon)
    answers = device.answer(sample.outcomes, rng)
    answers[rng.random(sample.n_units) < disobeying] = 0
    values = np.asarray((answers - device.yes_prob) / device.truth_prob)
    return RowsGiven(values=values, arms=sample.arms, features=sample.features)
