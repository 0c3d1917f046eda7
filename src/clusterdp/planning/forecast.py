"""Predicted variances of many splits of ε at once, for each purpose of a release.

What to expect of a mechanism at any budget, interpolated between few channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from clusterdp.cells.layout import stratified_weights
from clusterdp.channels.base import SMALLEST_ROW_EPSILON
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.catalogue import SumShares
from clusterdp.planning.prediction import (
    RowNoise,
    expect,
    expect_with,
    objective_weights,
    public_scenario,
    warner,
    without_sums,
)
from clusterdp.precision.closed_form import (
    LevelNoise,
    arm_cells,
    calibrated_variances,
    level_noise,
)
from clusterdp.precision.prediction import (
    between_variances,
    group_degrees,
    sampling_variances,
    unit_spread,
)
from clusterdp.precision.row_noise import spread_over_asked
from clusterdp.statistics._sum_noise import sum_variances
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.sums import NoisySums, NoisyTotals, noise_in_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.planning.expected import Scenario
    from clusterdp.precision.closed_form import ArmLayout
    from clusterdp.precision.prediction import ExpectedVariance
    from clusterdp.spec.purpose import Purpose


# What rows keep of what counts leave of ε, where their noise is computed; between, interpolated.
_KEPT = (1.0, 0.93, 0.87, 0.81, 0.75, 0.68, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
# At smaller ε of rows, and at less than half of the largest, their noise goes with Warner's. Where
# every cell has a channel of its own, which takes long to design, from half of the largest on.
_AS_WARNER, _HALF = 0.25, 0.5
# Uniform outcomes vary more than most: where nothing is declared, variances of sampling are taken
# to be this share of theirs, as those of outcomes with a standard deviation of a seventh of the
# range. Else noise of privacy would seem to matter little.
_LIKELY_SPREAD = 0.25
# The probability that 95% intervals reach up to.
_REACH = 0.975
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


class Forecast:
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
        self._by_rows = np.array([arm.by_rows for arm in self._cells_of(1.0)])
        self._questions = [
            _Question(build, counts, epsilon, scenario, self._chosen)
            for build, scenario in zip(builds, scenarios, strict=True)
        ]
        self.most = min(one.most for one in self._questions)

    def __call__(self, shares: FloatArray) -> FloatArray:
        """Σ_j w_j·Var_j of the treatment that is known least; axes `[split, purpose]`.

        Args:
            shares: Shares of totals, clusters and breakdowns; axes `[split, 3]`.
        """
        total = np.zeros((len(shares), len(self._purposes), len(self._layout.treatments)))
        for question in self._questions:
            of_metrics = self._noise_of_sums(question.space, shares)
            pairs = zip(of_metrics, question.row_noises(shares.sum(axis=1)), strict=True)
            for metric, (alone, (noise, public)) in enumerate(pairs):
                found = self._of_metric(question, metric, shares, alone, noise, public)
                total += question.weights[metric] * found
        return np.asarray(total.max(axis=-1))

    def _noise_of_sums(self, space: CategorySpace, shares: FloatArray) -> list[LevelNoise]:
        """The noise on the sums of each metric of a question."""
        totals, clusters, breakdowns = (self._epsilon * shares).T
        n_breakdowns = len(self._layout.breakdowns)
        each = breakdowns / max(n_breakdowns, 1)
        heavy = NoisyTotals.largest_weight
        of_totals, of_groups = (sum_variances(space, one, heavy) for one in (totals, each))
        of_cells = sum_variances(space, clusters, NoisySums.largest_weight)
        return [
            LevelNoise(
                cells=of_cells[:, metric, np.newaxis],
                totals=of_totals[:, metric],
                breakdowns=np.repeat(of_groups[:, metric, np.newaxis], n_breakdowns, axis=1),
            )
            for metric in range(of_cells.shape[1])
        ]

    def _of_metric(  # noqa: PLR0913, PLR0917 - what is measured, and the noise on it
        self,
        question: _Question,
        metric: int,
        shares: FloatArray,
        alone: LevelNoise,
        noise: FloatArray,
        public: FloatArray,
    ) -> FloatArray:
        """Variances of one metric; axes `[split, purpose, treatment]`.

        Args:
            question: Its question.
            metric: Which metric.
            shares: As in `__call__`.
            alone: The noise on its sums, without what counts tell of cells.
            noise: Of a unit, if it is asked or not; axes `[split]`.
            public: The same as far as it is public.
        """
        totals, _, breakdowns = (self._epsilon * shares).T
        n_breakdowns = len(self._layout.breakdowns)
        # Splits whose totals have the same weights are looked at together.
        largest = np.maximum(totals, breakdowns / max(n_breakdowns, 1))
        worth = noise_in_rows(largest, self._epsilon * (1 - shares.sum(axis=1)))
        parts, counted = [], question.counted[metric]
        for weighed in np.unique(worth):
            same = worth == weighed
            of_same = LevelNoise(*(part[same] for part in alone))
            parts.append(
                (same, self._privacy(counted, weighed, of_same, noise[same], public[same]))
            )
        privacy = np.empty((len(shares), *parts[0][1].shape[1:]))
        for same, part in parts:
            privacy[same] = part
        sampling, layout = question.sampling[metric], self._layout
        variances = layout.against_control(privacy + sampling)
        by_rows = noise[:, np.newaxis] * self._by_rows
        rows = layout.against_control(by_rows + sampling[0]) - question.between[metric]
        found = np.stack([self._of_purpose(one, variances, rows) for one in self._purposes], axis=1)
        if layout.assigned is None:
            return found
        from scipy.special import stdtrit

        # Groups that were assigned are few, and noise hides how they differ: that makes intervals
        # longer, by so much in squares.
        degrees = group_degrees(layout, sampling[0], privacy, by_rows)
        return np.asarray(found * (stdtrit(degrees, _REACH) ** 2)[:, np.newaxis])

    def _privacy(
        self,
        counted: FloatArray,
        weighed: float,
        alone: LevelNoise,
        noise: FloatArray,
        public: FloatArray,
    ) -> FloatArray:
        """Privacy variances of means; axes `[split, target, arm]`.

        Args:
            counted: 1/variance of cell sums by counts; axes `[cluster]`.
            weighed: The noise in rows that weights follow from.
            alone: The noise on sums, without what counts tell of cells.
            noise: Of a unit's row; axes `[split]`.
            public: The same as far as it is public.
        """
        with np.errstate(divide="ignore"):
            both = alone._replace(cells=1 / (1 / alone.cells + counted))
        arms = self._cells_of(weighed)
        return np.stack([calibrated_variances(arm, both, noise, public) for arm in arms], axis=-1)

    def _cells_of(self, weighed: float) -> list[ArmLayout]:
        """The cells of each arm, with weights by so much noise in rows."""
        if weighed not in self._cells:
            weights = stratified_weights(self._layout, weighed)
            self._cells[weighed] = arm_cells(self._layout, weights, self._chosen, self._copies)
        return self._cells[weighed]

    def _of_purpose(self, purpose: Purpose, variances: FloatArray, rows: FloatArray) -> FloatArray:
        """The variance that a purpose is judged by; axes `[split, treatment]`.

        Of a breakdown it is the average over groups, each counted by its share of the units.

        Args:
            purpose: The purpose.
            variances: Of everyone, then of groups; axes `[split, target, treatment]`.
            rows: What a unit's worth of rows has of sampling and noise; axes `[split, treatment]`.
        """
        if purpose.kind != "breakdowns":
            return np.asarray(variances[:, 0] + (1 / purpose.share - 1) * rows)
        lengths = [len(one.sizes) for one in self._layout.breakdowns]
        first = 1 + sum(lengths[: purpose.place])
        sizes = self._layout.breakdowns[purpose.place].sizes
        present = np.flatnonzero((sizes > 0).all(axis=1))
        shares = sizes[present].sum(axis=1) / sizes[present].sum()
        return np.asarray(np.einsum("g,sgt->st", shares, variances[:, first + present]))


class _Question:
    """What the variances of a question's metrics depend on.

    Attributes:
        space: Its categories.
        most: The most that sums can take of ε; negative if counts leave nothing.
        weights: How much the variance of each metric counts.
        sampling: Variances of means from true outcomes, by metric; axes `[target, arm]`.
        between: What groups that were assigned add to those of effects; axes `[treatment]`.
        counted: 1/variance of cell sums by counts, by metric; axes `[cluster]`.
    """

    def __init__(
        self,
        build: Callable[[Split], Mechanism],
        counts: float,
        epsilon: float,
        scenario: Scenario,
        chosen: IntArray,
    ) -> None:
        layout, space, reference = scenario
        self.space, self._nodes = space, _row_nodes(build, counts, epsilon, space)
        self.most = max((one.sums for one in self._nodes), default=-1.0)
        if not self._nodes:
            return
        like = build(Split(counts))
        self._share = like.asked_share
        self.weights = objective_weights(scenario)
        public = public_scenario(like, scenario)
        enough = _HALF * self._nodes[0].epsilon
        if not (counts and like.designs_rows):
            enough = min(_AS_WARNER, enough)
        self._known = [one.epsilon for one in self._nodes[::-1] if one.epsilon >= enough]
        self._noise = _log_ratios(RowNoise(like, scenario), self._known)
        self._public = _log_ratios(RowNoise(replace(like, statistics=()), public), self._known)
        everywhere = reference.of_clusters(np.arange(len(layout.clusters)))
        likely = 1.0 if reference.is_declared else _LIKELY_SPREAD
        every = space.metric_values()
        self._spreads = [
            likely * float(unit_spread(layout, everywhere, values).mean()) for values in every
        ]
        self.sampling = [
            likely * sampling_variances(layout, everywhere, values) for values in every
        ]
        self.between = [
            likely * layout.against_control(between_variances(layout, everywhere, values))
            for values in every
        ]
        self.counted = [
            1 / level_noise(like, layout, space, metric).cells[chosen]
            for metric in range(len(every))
        ]

    def row_noises(self, sums: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """The noise of a unit in each metric, and as far as it is public; axes `[split]`.

        Args:
            sums: What sums take of ε; axes `[split]`.
        """
        taken, left = zip(*self._nodes, strict=True)
        epsilons = np.interp(sums, taken, left)
        return [
            (
                self._of_everyone(epsilons, self._noise[:, metric], spread),
                self._of_everyone(epsilons, self._public[:, metric], spread),
            )
            for metric, spread in enumerate(self._spreads)
        ]

    def _of_everyone(self, epsilons: FloatArray, logs: FloatArray, spread: float) -> FloatArray:
        """The noise of units, asked or not, from logarithms at the known ε; axes `[split]`."""
        ratios = np.exp(np.interp(np.log(epsilons), np.log(self._known), logs))
        return np.asarray(spread_over_asked(warner(epsilons) * ratios, spread, self._share))


class _Node(NamedTuple):
    """A share of ε for sums, and the ε that it leaves for rows."""

    sums: float
    epsilon: float


def _row_nodes(
    build: Callable[[Split], Mechanism], counts: float, epsilon: float, space: CategorySpace
) -> list[_Node]:
    """Shares for sums that leave enough for rows, smallest first."""
    rest = 1 - counts
    shares = [rest * (1 - kept) for kept in _KEPT] + [rest - _LEAST_ROWS / epsilon]
    nodes = []
    for share in sorted(share for share in shares if 0 <= share < 1):
        try:
            rows = build(Split(counts, totals=share)).row_epsilon(space)
        except ParameterError:
            break
        if rows >= SMALLEST_ROW_EPSILON:
            nodes.append(_Node(share, rows))
    return nodes


def _log_ratios(noise: RowNoise, epsilons: list[float]) -> FloatArray:
    """The noise of rows against Warner's, in logarithms; axes `[epsilon, metric]`."""
    return np.array([np.log(noise(epsilon) / warner(epsilon)) for epsilon in epsilons])


def _stand_ins(layout: Layout) -> tuple[IntArray, FloatArray]:
    """Clusters to look at, and how many each stands for: the largest, and some of the rest."""
    order = np.argsort(-layout.sizes.sum(axis=1), kind="stable")
    largest, rest = order[:_LARGEST], order[_LARGEST:]
    n_taken = min(len(rest), _OF_THE_REST)
    places = ((np.arange(n_taken) + 0.5) * len(rest) / max(n_taken, 1)).astype(np.int64)
    copies = np.full(n_taken, len(rest) / max(n_taken, 1))
    return np.concatenate([largest, rest[places]]), np.concatenate([np.ones(len(largest)), copies])


def expect_quickly(mechanism: Mechanism, scenario: Scenario) -> tuple[ExpectedVariance, ...]:
    """As `expect`; a public channel is not designed for the very ε of its rows."""
    layout, space, _ = scenario
    if not mechanism.designs_rows or mechanism.find(NoisyCounts) is not None:
        return expect(mechanism, scenario)
    like, epsilon = without_sums(mechanism, space), mechanism.row_epsilon(space)
    noise, assumed = (
        RowNoise(like, known)(epsilon) for known in (scenario, public_scenario(like, scenario))
    )
    by_arm = np.repeat(noise[:, np.newaxis], len(layout.arms), axis=1)
    return expect_with(mechanism, scenario, by_arm, assumed)
