"""A pilot, noisy sums or counts, and a row, enumerated together: within the stated ε.

Tables differ in one unit. The machine counts the bins of both. Noisy pilots within reach are
followed, and the loss of what comes after each is enumerated by `joint_enumeration`. The loss of
the pilot itself is largest beyond the counts of both tables, which is within reach.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

import clusterdp as cdp
from categories import questions_of
from clusterdp.mechanisms import settling
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.stages import take_pilots
from clusterdp.statistics import pilot as pilot_bins
from clusterdp.statistics.noise import ALONE
from clusterdp.statistics.pilot import NoisyPilot, pilot_space
from joint_enumeration import joint_release, worst_loss
from neighbour_tables import NOISE_IN_ROWS, NeighbourTables, Row
from runs import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import IntArray
    from clusterdp.mechanisms.draw import Question
    from clusterdp.mechanisms.mechanism import Mechanism

SLACK = 1e-9
EPSILON = 2.0
# How far noisy counts of a pilot are followed beyond what they are without noise.
REACH = 1
FINITE = Categories(declared=declare({"clicks": "0,1,4"}))
_ROUNDS = cdp.Number(0, 1000)
NUMBER = Categories(
    declared=declare({"rounds": _ROUNDS}),
    grids=(Grid(number=_ROUNDS, points=(0, _ROUNDS.n_steps // 2, _ROUNDS.n_steps)),),
)
TOTALS = cdp.SumShares(totals=0.2, noise_in_rows=NOISE_IN_ROWS)
SUMS = cdp.SumShares(totals=0.1, clusters=0.1, noise_in_rows=NOISE_IN_ROWS)


@dataclass(frozen=True)
class Followed:
    """Every noisy pilot within reach of some tables, and the loss of what follows from each.

    Attributes:
        mechanism: What is published.
        space: The declared categories.
        rows: What the unit's outcomes may be; all others have the first.
        every: Whether every pilot within reach is followed; else the farthest of each bin alone,
            where the loss of the pilot is largest.
    """

    mechanism: Mechanism
    space: Categories
    rows: tuple[Row, ...]
    every: bool = True
    _known: dict[Any, float] = field(default_factory=dict)

    @cached_property
    def tables(self) -> NeighbourTables:
        return NeighbourTables(self.space, self.rows[0])

    @cached_property
    def pilot(self) -> NoisyPilot:
        assert self.mechanism.pilot is not None
        return self.mechanism.pilot

    def counts(self, row: Row) -> IntArray:
        """The bins of a table as the machine counts them."""
        found: list[IntArray] = []

        def write_down(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
            found.append(values)
            raise StopIteration(scale)

        with pytest.raises(StopIteration):
            take_pilots(
                state_of(self.tables.with_unit(0, row), [self.mechanism], NoJournal(), write_down)
            )
        return found[0]

    def pilots(self) -> Iterator[IntArray]:
        """Noisy counts, each bin within reach of what some table has there."""
        counted = np.stack([self.counts(row) for row in self.rows])
        ends = [(low - REACH, high + REACH) for low, high in zip(*_ends(counted), strict=True)]
        if self.every:
            empty = (counted.max(axis=0) == 0).tolist()
            axes = [
                (low, high) if none else range(low, high + 1)
                for (low, high), none in zip(ends, empty, strict=True)
            ]
            return map(np.array, itertools.product(*axes))
        return map(np.array, itertools.product(*ends))

    def scale(self) -> float:
        """The noise that is really added to every bin."""
        scales: list[float] = []
        bins = pilot_space(self.space.declared)

        def write_down(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
            scales.extend([scale] * values.size)
            return values

        self.pilot.draw(np.zeros(bins.n_categories, dtype=np.int64), bins, write_down)
        assert len(scales) == bins.n_categories, "a bin has no noise"
        (scale,) = set(scales)
        return scale

    def later_loss(self, noisy: IntArray) -> float:
        """The largest loss of statistics and row, given a noisy pilot."""
        bins = pilot_space(self.space.declared)
        drawn = self.pilot.draw(noisy, bins, lambda values, *_: values)
        layout = self.tables.prepared.layout
        (settled,) = settling.settle(questions_of([self.space], [self.mechanism]), layout, [drawn])
        pair = settled.space, settled.mechanism
        if pair not in self._known:
            self._known[pair] = self._enumerated(settled)
        return self._known[pair]

    def _enumerated(self, settled: Question) -> float:
        mechanism = replace(settled.mechanism, pilot=None)
        number = settled.space.declared.numbers
        high = min((one.high for one in number.values()), default=float("inf"))
        rows = tuple(
            dict.fromkeys(
                tuple(None if y is None else min(y, high) for y in row) for row in self.rows
            )
        )
        tables = NeighbourTables(settled.space, rows[0])
        release = joint_release(mechanism, settled.space, rows, reach=1)
        return worst_loss(mechanism, tables, release)

    def worst(self) -> float:
        """The largest loss of everything, over neighbours and all that comes out."""
        scale = self.scale()
        counted = [self.counts(row) for row in self.rows]
        worst = 0.0
        for noisy in self.pilots():
            later = self.later_loss(noisy)
            distances = [np.abs(noisy - counts).sum() for counts in counted]
            worst = max(worst, (max(distances) - min(distances)) / scale + later)
        return worst


def _ends(counted: IntArray) -> tuple[list[int], list[int]]:
    return counted.min(axis=0).tolist(), counted.max(axis=0).tolist()


# Where every cell has a channel of its own to be designed, and where sums are of many levels,
# pilots at their farthest must do.
FARTHEST = (
    "pilot, sums, totals and rows",
    "pilot, totals and rows",
    "pilot, counts and rows",
    "pilot, counts, sums and rows",
)
CASES = {
    "pilot and rows": (cdp.optimal(epsilon=EPSILON, pilot=0.3), FINITE),
    "pilot, totals and rows": (cdp.optimal(epsilon=EPSILON, pilot=0.3, sums=TOTALS), FINITE),
    "pilot, sums, totals and rows": (cdp.optimal(epsilon=EPSILON, pilot=0.2, sums=SUMS), FINITE),
    "pilot, counts and rows": (cdp.optimal(epsilon=EPSILON, pilot=0.3, noise_scale=4), FINITE),
    "pilot, counts, sums and rows": (
        cdp.optimal(epsilon=EPSILON, pilot=0.3, noise_scale=4, sums=cdp.SumShares(clusters=0.2)),
        FINITE,
    ),
    "pilot of a number, totals and rows": (
        cdp.optimal(
            epsilon=EPSILON, pilot=0.75, sums=cdp.SumShares(totals=0.1, noise_in_rows=NOISE_IN_ROWS)
        ),
        NUMBER,
    ),
}
ROWS: dict[Categories, tuple[Row, ...]] = {
    FINITE: ((0.0,), (1.0,), (4.0,)),
    NUMBER: ((20.0,), (30.0,), (1000.0,)),
}


@pytest.fixture(autouse=True)
def few_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bins of a number from 0, 10, 100 and 1000 on, so that every pilot can be followed."""

    def coarse(number: cdp.Number, *_: Any) -> tuple[int, ...]:
        steps = (int(number.steps_to(edge)) for edge in (0, 10, 100))
        return (*steps, number.n_steps)

    monkeypatch.setattr(pilot_bins, "_edges", coarse)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_everything_together_is_within_the_stated_loss(case: str) -> None:
    mechanism, space = CASES[case]
    followed = Followed(mechanism, space, ROWS[space], every=case not in FARTHEST)
    stated = mechanism.guarantee(space).epsilon
    assert stated <= EPSILON + SLACK
    worst = followed.worst()
    assert worst <= stated + SLACK
    assert worst > 0.8 * stated, "the enumeration sees too little to be a test"


def test_pilots_within_reach_lead_to_different_clips() -> None:
    mechanism, space = CASES["pilot of a number, totals and rows"]
    followed = Followed(mechanism, space, ROWS[space])
    bins = pilot_space(space.declared)
    layout = followed.tables.prepared.layout
    ranges = set()
    for noisy in followed.pilots():
        drawn = followed.pilot.draw(noisy, bins, lambda values, *_: values)
        (settled,) = settling.settle(questions_of([space], [mechanism]), layout, [drawn])
        ranges.add(settled.space.declared.numbers["rounds"])
    assert len(ranges) > 1


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    honest = NoisyPilot.draw

    def quieter(self: NoisyPilot, counts: IntArray, bins: Any, add_noise: Any) -> Any:
        return honest(self, counts, bins, lambda values, scale, *_: add_noise(values, scale / 2))

    patch.setattr(NoisyPilot, "draw", quieter)


def no_noise_in_empty_bins(patch: pytest.MonkeyPatch) -> None:
    honest = NoisyPilot.draw

    def some(self: NoisyPilot, counts: IntArray, bins: Any, add_noise: Any) -> Any:
        drawn = honest(self, counts, bins, lambda values, *_: values)
        add_noise(counts[counts > 0], self.noise_scale)
        return drawn

    patch.setattr(NoisyPilot, "draw", some)


@pytest.mark.parametrize("plant", [half_the_noise, no_noise_in_empty_bins])
def test_planted_bugs_are_caught(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        test_everything_together_is_within_the_stated_loss(FARTHEST[0])
