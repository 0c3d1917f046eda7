"""Predicted variances of many splits of ε at once, for each purpose of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.cells.layout import stratified_weights
from clusterdp.channels.base import SMALLEST_ROW_EPSILON
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.catalogue import SumShares
from clusterdp.precision.closed_form import arm_cells, counted_precision, level_noise
from clusterdp.precision.forecast import Forecast, purpose_variances
from clusterdp.precision.row_noise import NoiseCurve
from clusterdp.statistics.sums import noise_in_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.precision.closed_form import ArmLayout
    from clusterdp.precision.expected import Scenario
    from clusterdp.precision.prediction import ExpectedVariance
    from clusterdp.spec.purpose import Purpose


# What rows keep of what counts leave of ε, where the ε of rows is computed; between, interpolated.
_KEPT = (1.0, 0.93, 0.87, 0.81, 0.75, 0.68, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
# At smaller ε of rows, and at less than half of the largest, their noise goes with Warner's. Where
# every cell has a channel of its own, which takes long to design, from half of the largest on.
_AS_WARNER, _HALF = 0.25, 0.5
# Uniform outcomes vary more than most: where nothing is declared, variances of sampling are taken
# to be this share of theirs, as those of outcomes with a standard deviation of a seventh of the
# range. Else noise of privacy would seem to matter little.
_LIKELY_SPREAD = 0.25
# Slightly more than the least ε of rows, which rounding must not take away.
_LEAST_ROWS = 1.01 * SMALLEST_ROW_EPSILON
# Clusters that are looked at: the largest, and some of the rest that stand for all of it.
_LARGEST, _OF_THE_REST = 256, 128


class Split(NamedTuple):
    """Shares of ε for counts and for noisy sums; the rest is for the rows.

    Attributes:
        counts: For noisy counts.
        totals: For totals of arms.
        clusters: For sums of every cell.
        breakdowns: For totals of groups, of all breakdowns together. Each gets as much.
    """

    counts: float = 0.0
    totals: float = 0.0
    clusters: float = 0.0
    breakdowns: float = 0.0

    def sum_shares(self, layout: Layout) -> SumShares:
        """What each level of sums gets."""
        each = self.breakdowns / max(len(layout.breakdowns), 1)
        by = ((one.columns, each) for one in layout.breakdowns if each)
        return SumShares(totals=self.totals, clusters=self.clusters, breakdowns=tuple(by))


class SplitForecast:
    """Predicted variances of the splits that give counts the same share, over all questions.

    Attributes:
        most: The most that sums can take of ε; negative if counts leave nothing.
    """

    def __init__(
        self,
        builds: Sequence[Callable[[Split], Mechanism]],
        counts: float,
        epsilon: float,
        scenarios: Sequence[Scenario],
        purposes: tuple[Purpose, ...],
    ) -> None:
        self._layout, self._epsilon = scenarios[0].layout, epsilon
        self._purposes = purposes
        self._chosen, self._copies = _stand_ins(self._layout)
        self._cells: dict[float, list[ArmLayout]] = {}
        self._questions = [
            _Question(build, counts, epsilon, scenario)
            for build, scenario in zip(builds, scenarios, strict=True)
        ]
        self.most = min(one.most for one in self._questions)

    def __call__(self, shares: FloatArray) -> FloatArray:
        """Σ_j w_j·Var_j of the treatment that is known least; axes `[split, purpose]`.

        Args:
            shares: Shares of totals, clusters and breakdowns; axes `[split, 3]`.
        """
        levels, n_breakdowns = self._epsilon * shares, len(self._layout.breakdowns)
        levels[:, 2] /= max(n_breakdowns, 1)
        worth = noise_in_rows(
            levels[:, [0, 2]].max(axis=1), self._epsilon * (1 - shares.sum(axis=1))
        )
        found = np.empty((len(shares), len(self._purposes)))
        # Splits whose totals have the same weights are looked at together.
        for weighed in np.unique(worth):
            same, cells = worth == weighed, self._cells_of(weighed)
            total = sum(
                purpose_variances(
                    one.expected(shares[same], levels[same], n_breakdowns, cells),
                    self._purposes,
                    one.scenario,
                )
                for one in self._questions
            )
            found[same] = np.asarray(total).max(axis=-1)
        return found

    def _cells_of(self, weighed: float) -> list[ArmLayout]:
        """The cells of each arm, with weights by so much noise in rows."""
        if weighed not in self._cells:
            weights = stratified_weights(self._layout, weighed)
            self._cells[weighed] = arm_cells(self._layout, weights, self._chosen, self._copies)
        return self._cells[weighed]


class _Question:
    """What the variances of a question's metrics depend on.

    Attributes:
        scenario: What is known of it.
        most: The most that sums can take of ε; negative if counts leave nothing.
    """

    def __init__(
        self,
        build: Callable[[Split], Mechanism],
        counts: float,
        epsilon: float,
        scenario: Scenario,
    ) -> None:
        self.scenario, space = scenario, scenario.space
        self._taken, self._left = _row_epsilons(build, counts, epsilon, space)
        self.most = max(self._taken, default=-1.0)
        if not self._taken:
            return
        like = build(Split(counts))
        prior = like.settled_rows(space).public_prior(space)
        likely = 1.0 if scenario.baseline.is_declared else _LIKELY_SPREAD
        self._forecast = Forecast(scenario, prior, like.asked_share, likely)
        learned = counts and like.designs_rows
        half = _HALF * self._left[0]
        self._noise = NoiseCurve(like, scenario, half if learned else min(_AS_WARNER, half))
        self._counted = counted_precision(like, space)

    def expected(
        self, shares: FloatArray, levels: FloatArray, n_breakdowns: int, cells: list[ArmLayout]
    ) -> tuple[ExpectedVariance, ...]:
        """What to expect of each metric.

        Args:
            shares: Shares of ε for totals, clusters and breakdowns; axes `[split, 3]`.
            levels: ε of totals, clusters and each breakdown; axes `[split, 3]`.
            n_breakdowns: How many breakdowns there are.
            cells: What is public of each arm.
        """
        totals, clusters, each = levels.T
        breakdowns = np.repeat(each[:, np.newaxis], n_breakdowns, axis=1)
        of_sums = level_noise(self.scenario.space, totals, clusters, breakdowns, self._counted)
        left = np.interp(shares.sum(axis=1), self._taken, self._left)
        return self._forecast(cells, of_sums, self._noise(left))


def _row_epsilons(
    build: Callable[[Split], Mechanism], counts: float, epsilon: float, space: CategorySpace
) -> tuple[list[float], list[float]]:
    """Shares for sums that leave enough for rows, smallest first, and the ε that they leave."""
    rest = 1 - counts
    shares = [rest * (1 - kept) for kept in _KEPT] + [rest - _LEAST_ROWS / epsilon]
    taken, left = [], []
    for share in sorted(share for share in shares if 0 <= share < 1):
        try:
            rows = build(Split(counts, totals=share)).row_epsilon(space)
        except ParameterError:
            break
        if rows >= SMALLEST_ROW_EPSILON:
            taken.append(share)
            left.append(rows)
    return taken, left


def _stand_ins(layout: Layout) -> tuple[IntArray, FloatArray]:
    """Clusters to look at, and how many each stands for: the largest, and some of the rest."""
    order = np.argsort(-layout.sizes.sum(axis=1), kind="stable")
    largest, rest = order[:_LARGEST], order[_LARGEST:]
    n_taken = min(len(rest), _OF_THE_REST)
    places = ((np.arange(n_taken) + 0.5) * len(rest) / max(n_taken, 1)).astype(np.int64)
    copies = np.full(n_taken, len(rest) / max(n_taken, 1))
    return np.concatenate([largest, rest[places]]), np.concatenate([np.ones(len(largest)), copies])
