"""Intervals cover where a quarter of units are asked: overall, in a segment, in a breakdown.

Experiments are drawn anew, with totals of everyone and of groups. False alarms: ALPHA for a line,
if intervals cover at least 93.5% and at most 98%.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.cells.layout import Layout
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.estimation.means.arms import arm_effects
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import declared_noise
from clusterdp.estimation.means.responses import ProfileSums, ResponseValues, read_answers
from clusterdp.estimation.reading.profiles import Profiles, ResponseCounts
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.statistics.base import SumReading

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

N_REPLICATES = 400
LOWEST, HIGHEST = stats.binom.ppf([ALPHA, 1 - ALPHA], N_REPLICATES, [0.935, 0.98]) / N_REPLICATES
SHARE, EPSILON, N_CELL = 0.25, 1.0, 1000
# Two clusters, arms and groups: units of a profile are of one of each.
CELLS, GROUPS = np.repeat(np.arange(4), 2), np.tile([0, 1], 4)
BINARY = OutcomeSpace(values=(0, 1))
NUMBER = OutcomeSpace(values=(0, 10, 25, 50, 100))
# What outcomes are like in control and in treatment; those of the second group are larger.
PROBS: dict[str, tuple[OutcomeSpace, FloatArray]] = {
    "binary": (BINARY, np.array([[0.7, 0.3], [0.65, 0.35]])),
    "number": (NUMBER, np.array([[0.4, 0.3, 0.2, 0.08, 0.02], [0.35, 0.3, 0.2, 0.1, 0.05]])),
}


class Experiments:
    """Releases of one metric, drawn again and again."""

    def __init__(self, name: str, rng: np.random.Generator) -> None:
        self.space, probs = PROBS[name]
        last = np.eye(probs.shape[1])[-1]
        self.probs = np.stack([probs, 0.8 * probs + 0.2 * last])  # [group, arm, category]
        self.rng, self.values = rng, np.array(self.space.values, dtype=np.float64)
        mechanism = cdp.optimal(epsilon=EPSILON)
        channel = mechanism.settled_rows(self.space).public_channel(self.space)
        self.channel: Any = replace(channel, groups=np.zeros((2, 2), np.int64))
        self.asked = msgspec.structs.replace(mechanism, asked=int(SHARE * ASKED_TOTAL))
        self.outputs = ResponseValues.from_channel(self.channel, self.space)

    def draw(self) -> list[tuple[float, float, float]]:
        """Errors, standard errors and degrees of effects: of everyone, a segment, a group."""
        rng, n_outputs = self.rng, self.channel.possible().shape[-1]
        groups = rng.binomial(N_CELL, 0.5, 4)
        sizes = np.stack([groups, N_CELL - groups], axis=1).ravel()
        probs = self.probs[GROUPS, CELLS % 2]
        parts = [rng.binomial(sizes, 0.1)]
        parts.append(sizes - parts[0])
        true = [rng.multinomial(part, probs) for part in parts]
        told = [self._answers(one, n_outputs) for one in true]
        layout = Layout(clusters=(0, 1), arms=(0, 1), control=0, sizes=np.full((2, 2), N_CELL))
        profiles = Profiles(
            cells=CELLS, sizes=sizes, shape=(2, 2), folds=None, groups={("group",): GROUPS}
        )
        whole = ProfileSums.from_rows(_counted(told[0] + told[1]), profiles, self.outputs)
        readings = self._readings(true[0] + true[1])
        noise = declared_noise(self.asked, self.space)
        calibration = Calibration(readings, profiles, whole, noise)
        group = np.where(GROUPS[:, np.newaxis] == 1, told[0] + told[1], 0)
        means = self.probs @ self.values  # [group, arm]
        found = []
        for rows, of in (
            (None, means.mean(axis=0)),
            (told[0], means.mean(axis=0)),
            (group, means[1]),
        ):
            part = (
                whole
                if rows is None
                else ProfileSums.from_rows(_counted(rows), profiles, self.outputs)
            )
            effects = arm_effects(
                part, layout, "stratified", profiles, calibration, origin=self.outputs.middle
            )
            assert effects.degrees is not None
            error = float(effects.effects[0] - (of[1] - of[0]))
            found.append((error, float(effects.variances[0]) ** 0.5, float(effects.degrees[0])))
        return found

    def _answers(self, true: IntArray, n_outputs: int) -> IntArray:
        """How many units of each profile gave each output, and "not asked"."""
        asked = self.rng.binomial(true, SHARE)
        table = self.channel.transition()[0].T  # [true, released]
        answers = self.rng.multinomial(asked, table).sum(axis=1)
        silent = (true - asked).sum(axis=1, keepdims=True)
        assert answers.shape[1] == n_outputs
        return np.concatenate([answers, silent], axis=1)

    def _readings(self, true: IntArray) -> list[SumReading]:
        """Totals of arms, and of groups in arms, with noise of a few units; squares, too."""
        span, found = np.ptp(self.values), []
        squares = (self.values - self.outputs.middle) ** 2

        def noisy(by: IntArray, terms: FloatArray, scale: float) -> FloatArray:
            sums = np.zeros((int(by.max()) + 1, 1, 2))
            np.add.at(sums, (by, 0 * by, CELLS % 2), true @ terms)
            return np.asarray(sums + self.rng.normal(0, scale, sums.shape))

        for by, groups in (((), 0 * GROUPS), (("group",), GROUPS)):
            found.append(
                SumReading(
                    by=by,
                    weights=np.ones((2, 2), np.int64),
                    value=noisy(groups, self.values, 4 * span),
                    variance=(4 * span) ** 2,
                    squares=noisy(groups, squares, span**2),
                    squares_variance=span**4,
                )
            )
        return found


def _counted(answers: IntArray) -> ResponseCounts:
    """Counts by profile and response, those that are zero left out."""
    places, responses = np.nonzero(answers)
    return ResponseCounts(places, responses, answers[places, responses])


@pytest.mark.parametrize("name", PROBS)
def test_intervals_cover_of_those_asked(name: str, rng: np.random.Generator) -> None:
    """And half as long ones do not: the negative control."""
    experiments = Experiments(name, rng)
    errors, std_errors, degrees = np.array(
        [experiments.draw() for _ in range(N_REPLICATES)]
    ).transpose(2, 0, 1)
    reach = stats.t.isf(0.025, degrees) * std_errors
    covered = (np.abs(errors) <= reach).mean(axis=0)
    assert (covered >= LOWEST).all(), covered
    assert (covered <= HIGHEST).all(), covered
    assert ((np.abs(errors) <= reach / 2).mean(axis=0) < LOWEST).all()


def test_who_was_asked_does_not_choose_strata(rng: np.random.Generator) -> None:
    """Half of the clusters expect 49 answers, one below what makes a stratum.

    If those with 50 of them were strata of their own, the rest would count too little: the sum
    would be off by 1.3% of these units, 50 standard errors of this test. Its false alarms: ALPHA.
    """
    sizes, outcomes = np.repeat([30, 70], 40), np.repeat([0, 1], 40)
    profiles = Profiles(cells=np.arange(80), sizes=sizes, shape=(80, 1), folds=None, groups={})
    outputs = ResponseValues(
        values=np.array([[-0.5, 0.5]]),
        noise=np.zeros((1, 2)),
        groups=np.zeros((80, 1), np.int64),
        middle=0.5,
    )
    errors = []
    for _ in range(400):
        asked = rng.binomial(sizes, 0.7)
        rows = ResponseCounts(
            np.tile(np.arange(80), 2),
            np.concatenate([outcomes, np.full(80, 2)]),
            np.concatenate([asked, sizes - asked]),
        )
        values, *_ = read_answers(rows, profiles, outputs)
        errors.append(rows.counts @ values - sizes @ (outcomes - 0.5))
    reach = stats.norm.isf(ALPHA / 2) * np.std(errors) / np.sqrt(len(errors))
    assert abs(np.mean(errors)) < reach
