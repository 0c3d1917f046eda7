"""How much of ε goes to noisy counts, to each level of noisy sums, and to rows.

A plan balances its purposes: it keeps the largest regret small, which is the predicted standard
error for a purpose over that of the best plan for that purpose alone. Variances of many splits are
predicted at once.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from clusterdp.cells.layout import stratified_weights
from clusterdp.channels.base import SMALLEST_ROW_EPSILON
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.catalogue import SumShares
from clusterdp.precision.closed_form import arm_cells, counted_precision, level_noise
from clusterdp.precision.forecast import Forecast, purpose_variances
from clusterdp.precision.row_noise import NoiseCurve
from clusterdp.spec.fields import SUM_SHARES
from clusterdp.spec.purpose import parse_purpose
from clusterdp.statistics.covariates import NoisyCovariates
from clusterdp.statistics.sums import NoisySums, NoisyTotals, noise_in_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.precision.closed_form import ArmLayout
    from clusterdp.precision.expected import Scenario
    from clusterdp.precision.forecast import ExpectedVariance
    from clusterdp.spec.purpose import Purpose
    from clusterdp.spec.request import BudgetRequest

    # What a split loses for each purpose: its standard error over that of a plan for it alone.
    Losses = dict[Purpose, float]


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
        counts: That share.
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
        self._layout, self.counts, self._epsilon = scenarios[0].layout, counts, epsilon
        self._purposes = purposes
        self._chosen, self._copies = _stand_ins(self._layout)
        self._weights: dict[float, IntArray] = {}
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
        cells = arm_cells(self._layout, self._weights_by(worth), self._chosen, self._copies)
        total = sum(
            purpose_variances(
                one.expected(shares, levels, n_breakdowns, cells), self._purposes, one.scenario
            )
            for one in self._questions
        )
        return np.asarray(np.asarray(total).max(axis=-1))

    def _weights_by(self, worth: FloatArray) -> IntArray:
        """Weights in totals, by how much noise rows have; axes `[split, cluster, arm]`."""
        every, index = np.unique(worth, return_inverse=True)
        for weighed in every.tolist():
            if weighed not in self._weights:
                self._weights[weighed] = stratified_weights(self._layout, weighed)
        return np.stack([self._weights[weighed] for weighed in every.tolist()])[index]


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
        covariates = like.find(NoisyCovariates)
        self._forecast = Forecast(scenario, prior, like.asked_share, likely, covariates)
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


# How near the largest regret must be to the least there is: of one purpose, and of several. Within
# it, splits are judged by all purposes.
_INDIFFERENT, _TOLERATED = 0.0002, 0.03
# Shares that a search begins with, where two levels are searched and where three are.
_FIRST = (0.0, 0.002, 0.005, 0.01, 0.02, 0.035, 0.06, 0.1, 0.15, 0.22, 0.32, 0.45, 0.6, 0.8, 1.0)
_FIRST_OF_THREE = (0.0, 0.004, 0.015, 0.04, 0.09, 0.18, 0.35, 0.6, 1.0)
# By how much shares are changed, round after round.
_FACTORS = (1.6, 1.35, 1.2, 1.12, 1.07, 1.04, 1.02, 1.01)
# Levels whose best split is so much worse at first are not looked at again.
_HOPELESS = 1.3
_NOTHING = 1e-12
_DIGITS = 3
# What sums take at most of what counts leave of ε. Rows show what no sum does: segments, and what
# covariates explain. A plan that were judged by the length of intervals would give them less where
# squares are published, and gain little: in `bench/release_coverage.py` intervals of the overall
# effect are 0.5% shorter with 2% for rows than with a tenth (79 unequal schools: 3% at ε = 1, 2% at
# 2), and adjusted ones 1, 7 and 20% longer at ε = 1, 2 and 4. Only where groups were assigned as a
# whole do variances need their share: see `ExpectedVariance.of_purpose`.
_MOST_FOR_SUMS = 0.9


def best_split(
    builds: Sequence[Callable[[Split], Mechanism]],
    scenarios: Sequence[Scenario],
    request: BudgetRequest,
    counts: tuple[float, ...],
) -> tuple[Split, Losses]:
    """The split of about the least largest regret over what is asked for, common to all questions.

    Of those that are about as good, it is the one that serves all purposes most.

    Args:
        builds: The mechanism of a split, question by question.
        scenarios: What is known of each question.
        request: The budget, shares that are fixed, and what it is for; the same for all questions.
        counts: Shares for counts to choose from.

    Returns:
        The split, and what it loses; nothing where there was nothing to search.
    """
    layout, epsilon = scenarios[0].layout, request.epsilon or 0.0
    wanted = parse_purpose(request.optimize_for, layout)
    kinds = {one.kind for one in wanted}
    others = tuple(one for one in parse_purpose(None, layout) if one.kind not in kinds)
    fixed = _fixed(request, scenarios, epsilon)
    if len(counts) == 1 and None not in fixed:
        return Split(counts[0], *map(float, fixed)), {}  # type: ignore[arg-type]  # none is None
    known = [one or 0.0 for one in fixed]
    forecasts = (
        SplitForecast(builds, share, epsilon, scenarios, wanted + others) for share in counts
    )
    searches = [_Search(one, fixed) for one in forecasts if one.most >= sum(known)]
    if not searches:
        for build, scenario in zip(builds, scenarios, strict=True):
            build(Split(counts[0], *known)).guarantee(scenario.space)  # raises what is wrong
    return _least_regret(searches, wanted + others, len(wanted))


def _fixed(
    request: BudgetRequest, scenarios: Sequence[Scenario], epsilon: float
) -> tuple[float | None, ...]:
    """What is not searched: what was given, and levels that would add nothing or do not fit."""
    layout = scenarios[0].layout
    fits = _fit(NoisyTotals(epsilon=epsilon), scenarios)
    # With one cluster, totals are of the same units.
    of_cells = len(layout.clusters) > 1 and _fit(NoisySums(epsilon=epsilon), scenarios)
    useful = (fits, of_cells, fits and bool(layout.breakdowns))
    given = (getattr(request, name) for name in SUM_SHARES)
    return tuple(
        0.0 if share is None and not pays else share
        for share, pays in zip(given, useful, strict=True)
    )


def _fit(sums: NoisyTotals | NoisySums, scenarios: Sequence[Scenario]) -> bool:
    """Whether sums fit 64 bits, at a thousandth of their budget too."""
    least = replace(sums, epsilon=sums.epsilon / 1000)
    try:
        for one in scenarios:
            least.check(one.layout, one.space)
    except ParameterError:
        return False
    return True


def _least_regret(
    searches: list[_Search], purposes: tuple[Purpose, ...], n_wanted: int
) -> tuple[Split, Losses]:
    """The best of all searches; the first purposes are wanted.

    It is the one whose largest regret times the geometric mean of all regrets is least, among those
    near the least largest regret. So the worst purpose loses a percent only where all together gain
    more, as where leaving out a level serves the others.
    """
    for search in searches:
        search.refine(*(partial(np.take, indices=one, axis=1) for one in range(len(purposes))))
    least = np.min([search.variances.min(axis=0) for search in searches], axis=0)

    def regret(variances: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(variances[:, :n_wanted] / least[:n_wanted]).max(axis=1))

    if n_wanted > 1:
        for search in searches:
            search.refine(regret)
    tolerance = _TOLERATED if n_wanted > 1 else _INDIFFERENT
    most = (1 + tolerance) * min(regret(search.variances).min() for search in searches)

    def objective(variances: FloatArray) -> FloatArray:
        wanted, average = regret(variances), np.exp(np.log(variances / least).mean(axis=1) / 2)
        return np.where(wanted <= most, wanted * average, 1e6 * wanted)

    for search in searches:
        search.refine(objective)
    best = min(searches, key=lambda search: float(objective(search.variances).min()))
    split, variances = best.split(objective)
    return split, dict(zip(purposes, np.sqrt(variances / least).tolist(), strict=True))


class _Search:
    """All splits that were looked at which give counts the same share.

    Attributes:
        shares: Shares of totals, clusters and breakdowns; axes `[split, 3]`.
        variances: Predicted variances; axes `[split, purpose]`.
    """

    def __init__(self, forecast: SplitForecast, fixed: tuple[float | None, ...]) -> None:
        self._forecast, self._fixed = forecast, fixed
        first: tuple[float, ...] = _FIRST_OF_THREE if fixed.count(None) == 3 else _FIRST
        self.shares = self._fitted(_grid([first if one is None else (one,) for one in fixed]))
        self.variances = forecast(self.shares)

    def refine(self, *objectives: Callable[[FloatArray], FloatArray]) -> None:
        """Look around the splits that are best for each objective, nearer and nearer.

        The first bit of ε for a level gains nothing, so that leaving a level out is always good
        near by. The best splits that leave out some levels are looked around one by one.
        """
        starts = [(one, centre) for one in objectives for centre in self._starts(one)]
        for factor in _FACTORS:
            grids = [_grid(self._around(centre, factor)) for _, centre in starts]
            shares = self._fitted(np.concatenate(grids))
            variances = self._forecast(shares)
            ends = np.cumsum([len(grid) for grid in grids])[:-1]
            parts = zip(np.split(shares, ends), np.split(variances, ends), strict=True)
            starts = [
                (one, _best(one, *part)) for (one, _), part in zip(starts, parts, strict=True)
            ]
            self.shares = np.concatenate([self.shares, shares])
            self.variances = np.concatenate([self.variances, variances])

    def split(self, objective: Callable[[FloatArray], FloatArray]) -> tuple[Split, FloatArray]:
        """The best split, in a few digits, and its variances."""
        centre = _best(objective, self.shares, self.variances)
        shares = [
            _rounded(share) if given is None else share
            for share, given in zip(centre.tolist(), self._fixed, strict=True)
        ]
        return Split(self._forecast.counts, *shares), self._forecast(np.array([shares]))[0]

    def _starts(self, objective: Callable[[FloatArray], FloatArray]) -> Iterator[FloatArray]:
        """The best splits so far among those that leave out the same levels."""
        most = _HOPELESS * objective(self.variances).min()
        for levels in np.unique(self.shares > 0, axis=0):
            same = ((self.shares > 0) == levels).all(axis=1)
            if objective(self.variances[same]).min() <= most:
                yield _best(objective, self.shares[same], self.variances[same])

    def _around(self, centre: FloatArray, factor: float) -> list[tuple[float, ...]]:
        """Shares to try near those that were good; a level that was left out stays so."""
        return [
            (share / factor, share, share * factor) if given is None and share else (share,)
            for share, given in zip(centre.tolist(), self._fixed, strict=True)
        ]

    def _fitted(self, grid: FloatArray) -> FloatArray:
        """Shares that leave rows too little are scaled down, but for those that are fixed."""
        free = np.array([one is None for one in self._fixed])
        most = min(self._forecast.most, _MOST_FOR_SUMS * (1 - self._forecast.counts))
        room = np.maximum(most - grid[:, ~free].sum(axis=1), 0.0)
        taken = np.maximum(grid[:, free].sum(axis=1), _NOTHING)
        return np.where(free, grid * np.minimum(1, room / taken)[:, np.newaxis], grid)


def _best(
    objective: Callable[[FloatArray], FloatArray], shares: FloatArray, variances: FloatArray
) -> FloatArray:
    """The best of some splits for an objective."""
    return np.asarray(shares[int(np.argmin(objective(variances)))])


def _grid(axes: list[tuple[float, ...]]) -> FloatArray:
    """All combinations of shares; axes `[split, 3]`."""
    return np.array(list(itertools.product(*axes)), dtype=np.float64)


def _rounded(share: float) -> float:
    """A share in a few digits, and not more than it was: rows must keep enough."""
    if share == 0:
        return 0.0
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(share)))
    return math.floor(share * scale) / scale
