"""How much of ε goes to noisy counts, to each level of noisy sums, and to rows.

A plan serves its purposes alike: it keeps the largest regret small, which is the predicted standard
error for a purpose over that of the best plan for that purpose alone.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from clusterdp.errors import ParameterError
from clusterdp.planning.forecast import Split, SplitForecast
from clusterdp.spec.fields import SUM_SHARES
from clusterdp.spec.purpose import parse_purpose
from clusterdp.statistics.sums import NoisySums, NoisyTotals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.precision.expected import Scenario
    from clusterdp.spec.purpose import Purpose
    from clusterdp.spec.request import BudgetRequest


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
# What sums take at most of what counts leave of ε. Rows tell what no sum does: segments, and what
# covariates explain. A plan that were judged by the length of intervals would give them less where
# squares are published, and gain little: in `bench/release_coverage.py` intervals of the overall
# effect are 0.5% shorter with 2% for rows than with a tenth (79 unequal schools: 3% at ε = 1, 2% at
# 2), and adjusted ones 1, 7 and 20% longer at ε = 1, 2 and 4. Only where groups were assigned as a
# whole do variances need their share: see `ExpectedVariance.of_purpose`.
_MOST_FOR_SUMS = 0.9


class PurposeRegret(NamedTuple):
    """What a plan loses for a purpose: its standard error over that of a plan for it alone."""

    purpose: Purpose
    regret: float


# What a split loses for every purpose.
Losses = tuple[PurposeRegret, ...]


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
        request: The budget, shares that are fixed, and what it is for; alike for all questions.
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
        return Split(counts[0], *map(float, fixed)), ()  # type: ignore[arg-type]  # none is None
    forecasts = [
        (share, SplitForecast(builds, share, epsilon, scenarios, wanted + others))
        for share in counts
    ]
    searches = [
        _Search(share, forecast, fixed)
        for share, forecast in forecasts
        if forecast.most >= sum(one or 0.0 for one in fixed)
    ]
    if not searches:
        known = Split(counts[0], *(one or 0.0 for one in fixed))
        for build, scenario in zip(builds, scenarios, strict=True):
            build(known).guarantee(scenario.space)  # raises what is wrong
    return _least_regret(searches, wanted + others, len(wanted))


def _fixed(
    request: BudgetRequest, scenarios: Sequence[Scenario], epsilon: float
) -> tuple[float | None, ...]:
    """What is not searched: what was given, and levels that would add nothing or do not fit."""
    layout = scenarios[0].layout
    totals, clusters, breakdowns = (getattr(request, name) for name in SUM_SHARES)
    fits = _fit(NoisyTotals(epsilon=epsilon), scenarios)
    if totals is None and not fits:
        totals = 0.0
    # With one cluster, totals are of the same units.
    one = len(layout.clusters) == 1
    if clusters is None and (one or not _fit(NoisySums(epsilon=epsilon), scenarios)):
        clusters = 0.0
    if breakdowns is None and not (layout.breakdowns and fits):
        breakdowns = 0.0
    return totals, clusters, breakdowns


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
    found = zip(purposes, np.sqrt(variances / least), strict=True)
    return split, tuple(PurposeRegret(purpose, float(one)) for purpose, one in found)


class _Search:
    """All splits that were looked at which give counts the same share.

    Attributes:
        shares: Shares of totals, clusters and breakdowns; axes `[split, 3]`.
        variances: Predicted variances; axes `[split, purpose]`.
    """

    def __init__(
        self, counts: float, forecast: SplitForecast, fixed: tuple[float | None, ...]
    ) -> None:
        self._counts, self._forecast, self._fixed = counts, forecast, fixed
        first: tuple[float, ...] = _FIRST_OF_THREE if fixed.count(None) == 3 else _FIRST
        self.shares = self._fitted(_grid([first if one is None else (one,) for one in fixed]))
        self.variances = forecast(self.shares)

    def refine(self, *objectives: Callable[[FloatArray], FloatArray]) -> None:
        """Look around the splits that are best for each objective, nearer and nearer.

        The first bit of ε for a level gains nothing, so that leaving a level out is always good
        near by. The best splits that leave out some levels are looked around one by one.
        """
        starts = [start for one in objectives for start in self._starts(one)]
        for factor in _FACTORS:
            grids = [_grid(self._around(start.centre, factor)) for start in starts]
            shares = self._fitted(np.concatenate(grids))
            variances = self._forecast(shares)
            ends = np.cumsum([len(grid) for grid in grids])[:-1]
            parts = zip(np.split(shares, ends), np.split(variances, ends), strict=True)
            starts = [start.moved(*part) for start, part in zip(starts, parts, strict=True)]
            self.shares = np.concatenate([self.shares, shares])
            self.variances = np.concatenate([self.variances, variances])

    def split(self, objective: Callable[[FloatArray], FloatArray]) -> tuple[Split, FloatArray]:
        """The best split, in a few digits, and its variances."""
        centre = self.shares[int(np.argmin(objective(self.variances)))]
        shares = [
            _rounded(share) if given is None else share
            for share, given in zip(centre.tolist(), self._fixed, strict=True)
        ]
        return Split(self._counts, *shares), self._forecast(np.array([shares]))[0]

    def _starts(self, objective: Callable[[FloatArray], FloatArray]) -> Iterator[_Start]:
        """The best splits so far among those that leave out the same levels."""
        most = _HOPELESS * objective(self.variances).min()
        for levels in np.unique(self.shares > 0, axis=0):
            alike = ((self.shares > 0) == levels).all(axis=1)
            if objective(self.variances[alike]).min() <= most:
                start = _Start(objective, np.empty(0))
                yield start.moved(self.shares[alike], self.variances[alike])

    def _around(self, centre: FloatArray, factor: float) -> list[tuple[float, ...]]:
        """Shares to try near those that were good; a level that was left out stays so."""
        return [
            (share / factor, share, share * factor) if given is None and share else (share,)
            for share, given in zip(centre.tolist(), self._fixed, strict=True)
        ]

    def _fitted(self, grid: FloatArray) -> FloatArray:
        """Shares that leave rows too little are scaled down, but for those that are fixed."""
        free = np.array([one is None for one in self._fixed])
        most = min(self._forecast.most, _MOST_FOR_SUMS * (1 - self._counts))
        room = np.maximum(most - grid[:, ~free].sum(axis=1), 0.0)
        taken = np.maximum(grid[:, free].sum(axis=1), _NOTHING)
        return np.where(free, grid * np.minimum(1, room / taken)[:, np.newaxis], grid)


class _Start(NamedTuple):
    """Where the search for the least of an objective stands."""

    objective: Callable[[FloatArray], FloatArray]
    centre: FloatArray

    def moved(self, shares: FloatArray, variances: FloatArray) -> _Start:
        """The same at the best of some splits."""
        return self._replace(centre=shares[int(np.argmin(self.objective(variances)))])


def _grid(axes: list[tuple[float, ...]]) -> FloatArray:
    """All combinations of shares; axes `[split, 3]`."""
    return np.array(list(itertools.product(*axes)), dtype=np.float64)


def _rounded(share: float) -> float:
    """A share in a few digits, and not more than it was: rows must keep enough."""
    if share == 0:
        return 0.0
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(share)))
    return math.floor(share * scale) / scale
