"""Kancharla and Kang (2021), with people who disobey: they say no, whatever the device tells them.

Two devices with different chances of a forced yes show how many do. A share h of all people obeys,
and among them m is the mean of an arm, so that the share of yes with device j is
h·(yes_j + truth_j·m). Two devices give h and h·m.

Left open by the paper, and chosen in its favour: the second device is the best for rates that are
known in advance, halves of the people get either device, and obedience does not depend on the arm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from bench.peers.forced_response import Device, fair_device, leaning_device
from bench.peers.given import Answer, RowsGiven

if TYPE_CHECKING:
    from bench.peers.trial import Sample
    from clusterdp._arrays import BoolArray, FloatArray, IntArray

_SIGNS = np.array([-1.0, 1.0])  # of arms in an effect
_EXPECTED_MEAN, _EXPECTED_OBEDIENCE = 0.25, 0.9  # what the second device is the best for


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TwoDevices:
    """Answers with two devices. Effects are those on people who obey.

    Attributes:
        answers: 0 or 1; axes `[unit]`.
        places: Which device each unit has, 0 or 1; axes `[unit]`.
        arms: Axes `[unit]`.
        features: Axes `[unit, feature]`.
        weights: Of the devices' shares of yes, in h·m and in h; axes `[what, device]`.
    """

    answers: IntArray
    places: IntArray
    arms: IntArray
    features: FloatArray
    weights: FloatArray

    def overall(self) -> Answer:
        """The effect on everyone who obeys."""
        return self._effect(np.ones(len(self.arms), dtype=np.bool_))

    def segment(self, inside: BoolArray) -> Answer:
        """The effect on those who obey in a segment."""
        return self._effect(inside)

    def uplift(self, features: FloatArray) -> FloatArray:
        """By linear models of unbiased values of h·m, which rank people as m does."""
        values = self.weights[0][self.places] * self.answers * 2
        return RowsGiven(values=values, arms=self.arms, features=self.features).uplift(features)

    def _effect(self, inside: BoolArray) -> Answer:
        """A ratio of two sums over cells of arm and device, its variance linearized."""
        cells = (self.arms * 2 + self.places)[inside]
        sizes = np.bincount(cells, minlength=4).reshape(2, 2)
        yes = np.bincount(cells, self.answers[inside], minlength=4).reshape(2, 2) / sizes
        shares = sizes.sum(axis=1) / sizes.sum()
        return ratio_of_cells(yes, sizes, shares, self.weights)


def ratio_of_cells(
    yes: FloatArray, sizes: IntArray, shares: FloatArray, weights: FloatArray
) -> Answer:
    """The effect from shares of yes and sizes, axes `[arm, device]`, and shares of arms."""
    above = _SIGNS[:, np.newaxis] * weights[0]
    below = shares[:, np.newaxis] * weights[1]
    effect = float((above * yes).sum() / (below * yes).sum())
    slopes = (above - effect * below) / (below * yes).sum()
    return Answer.of(effect, float((slopes**2 * yes * (1 - yes) / (sizes - 1)).sum()))


def weights_of(devices: tuple[Device, Device]) -> FloatArray:
    """What devices' shares of yes count in h·m and in h; axes `[what, device]`."""
    told = np.array([[one.truth_prob, one.yes_prob] for one in devices])
    return np.asarray(np.linalg.inv(told))


@cache
def devices_at(epsilon: float) -> tuple[Device, Device]:
    """The fair device, and the one that goes best with it."""

    def variance(second: Device) -> float:
        devices = (fair_device(epsilon), second)
        told = np.array([one.yes_prob + one.truth_prob * _EXPECTED_MEAN for one in devices])
        yes = np.broadcast_to(_EXPECTED_OBEDIENCE * told, (2, 2))
        sizes = np.full((2, 2), 1000)
        found = ratio_of_cells(yes, sizes, np.array([0.5, 0.5]), weights_of(devices))
        return found.high - found.low

    first = fair_device(epsilon).yes_prob
    leaning = [leaning_device(epsilon, one) for one in np.linspace(first, 1, 200)[1:-1]]
    return fair_device(epsilon), min(leaning, key=variance)


def two_devices(
    sample: Sample, epsilon: float, rng: np.random.Generator, *, disobeying: float = 0.0
) -> TwoDevices:
    """Answers of halves of each arm by two devices."""
    devices = devices_at(epsilon)
    places = rng.permutation(np.arange(sample.n_units) % 2)
    both = [one.answer(sample.outcomes, rng) for one in devices]
    answers = np.where(places == 1, both[1], both[0])
    answers[rng.random(sample.n_units) < disobeying] = 0
    return TwoDevices(
        answers=answers,
        places=places,
        arms=sample.arms,
        features=sample.features,
        weights=weights_of(devices),
    )
