"""What shares by maximum likelihood gain over unbiased ones, and whether their intervals cover.

    make bench-metrics

Tables are drawn, released and estimated as `estimate` does, and both arms of each count. Whether an
arm has its shares by likelihood follows from its own responses, as in an estimate. Writes
`docs/studies/likelihood_shares.md`.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bench.metric_draws import by_replicate, draw
from bench.study_page import write_study
from clusterdp.estimation.effects.intervals import quantile
from clusterdp.estimation.means.arms import to_means
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.likelihood import (
    ShareLikelihood,
    UnbiasedShares,
)
from clusterdp.estimation.means.responses import ProfileSums
from clusterdp.estimation.means.sums import WeightedSums
from clusterdp.estimation.means.weights import weigh
from clusterdp.estimation.metrics._composed import ArmEstimates
from clusterdp.estimation.metrics.levels import ArmLevels, Levels
from clusterdp.estimation.metrics.quantiles import ArmQuantile, QuantilePair
from clusterdp.estimation.reading.profiles import Profiles, spread_cells
from clusterdp.mechanisms.catalogue import SumShares, optimal, uniform_prior_dp
from clusterdp.mechanisms.draw import release_cells
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

N_REPLICATES = 1000  # tables; each has two arms
N_LENGTHS = 20  # tables whose intervals are measured
N_QUANTILES = 250  # tables whose quantiles are judged
LEVEL, EPSILONS, SIZES = 0.95, (1.0, 2.0), (200, 2000)
_SAME = 1e-12
_RESPONSE = "randomized response"
_HEADER = (
    *("levels", "outcomes", "design", "ε", "units", "used", "MSE", "least", "monotone"),
    *("coverage", "length", "quantiles"),
)
_LEAST_SHARE = 1e-4  # shares nearer to 0 or 1 are not judged by coverage


class Case(NamedTuple):
    """A table and a mechanism.

    Attributes:
        name: What outcomes are like.
        space: Their categories.
        probs: How likely these are in both arms; axes `[category]`.
        mechanism: What is published.
        design: What the channel is designed for.
        epsilon: ε.
        n_units: Units of each arm that are estimated.
        segment: The share of all units that these are.
    """

    name: str
    space: Categories
    probs: np.ndarray
    mechanism: Mechanism
    design: str
    epsilon: float
    n_units: int
    segment: float = 1.0


class Line(NamedTuple):
    """What replicates of a case show.

    Attributes:
        case: The case.
        used: How often the likelihood was used.
        gain: The mean squared error of unbiased shares over that of those shown, all together.
        least: The same of the share that gains least.
        over_monotone: The error of unbiased shares made monotone over that of those shown.
        coverage: The least and the largest coverage of a share.
        length: The length of intervals over that of unbiased shares' intervals.
        quantiles: The least coverage of a median or P90 of an arm, and of a difference.
    """

    case: Case
    used: float
    gain: float
    least: float
    over_monotone: float
    coverage: tuple[float, float]
    length: float
    quantiles: tuple[float, float]


def distributions(n_outcomes: int) -> dict[str, np.ndarray]:
    """How outcomes are distributed."""
    places = np.arange(n_outcomes)
    shapes = {
        "uniform": np.ones(n_outcomes),
        "in the middle": np.exp(-0.5 * ((places - (n_outcomes - 1) / 2) / (n_outcomes / 6)) ** 2),
        "halved level by level": 0.5**places,
        "95% at zero": np.where(places == 0, 0.95, 0.05 / (n_outcomes - 1)),
        "nearly all at zero": np.where(places == 0, 0.998, 0.002 / (n_outcomes - 1)),
    }
    return {name: shape / shape.sum() for name, shape in shapes.items()}


@cache
def _mechanism(design: str, epsilon: float, name: str, n_outcomes: int) -> Mechanism:
    if design == _RESPONSE:
        return uniform_prior_dp(epsilon=epsilon)
    if design == "no baseline":
        return optimal(epsilon=epsilon)
    probs = distributions(n_outcomes)[name] + 0.01
    return optimal(epsilon=epsilon, prior=[float(one) for one in probs / probs.sum()])


def _single(
    n_outcomes: int,
    design: str,
    names: Iterable[str],
    epsilons: Iterable[float],
    sizes: Iterable[int],
) -> Iterator[Case]:
    """One outcome, rows alone."""
    space, every = _levels(n_outcomes), distributions(n_outcomes)
    for epsilon, name, n_units in itertools.product(epsilons, names, sizes):
        mechanism = _mechanism(design, epsilon, name, n_outcomes)
        yield Case(name, space, every[name], mechanism, design, epsilon, n_units)


def _levels(n_outcomes: int) -> Categories:
    return Categories(declared=declare({"spend": list(range(n_outcomes))}))


def single_cases() -> list[Case]:
    """One outcome of 12 levels; and some others."""
    skewed = list(distributions(12))[2:]
    one, two, small = (1.0,), (1.0, 2.0), SIZES[:1]
    return [
        *_single(12, "no baseline", skewed, (0.5,), small),
        *_single(12, "no baseline", ("uniform", *skewed), two, SIZES),
        *_single(12, "the baseline is true", skewed, one, small),
        *_single(12, _RESPONSE, skewed, one, small),
        *_single(4, "no baseline", skewed, one, small),
    ]


def funnel_cases() -> list[Case]:
    """Visits, orders and spend in one question, with declared thresholds and totals."""
    space = Categories(
        declared=declare(
            {"visit": "0,1", "order": "0,1", "spend": list(range(12))},
            constraints=["order -> visit", "spend>0 -> order"],
            metrics=["spend>=1", "spend>=3"],
        )
    )
    visit, order, spend = space.outcome_values()
    bought = (order == 1) * np.where(spend > 0, 0.6 ** (spend - 1), 0.1)
    cases = []
    for visits, orders in ((0.15, 0.3), (0.5, 0.5)):
        only = (visit == 1) & (order == 0)
        probs = (visit == 0) * (1 - visits) + only * visits * (1 - orders)
        probs = probs + visits * orders * bought / bought.sum()
        name, places = f"{visits:.0%} visit", ((200, 0.1), (2000, 0.1), (10_000, 1.0))
        for epsilon, (n_units, segment) in itertools.product(EPSILONS, places):
            mechanism = optimal(epsilon=epsilon, sums=SumShares(totals=0.1))
            cases.append(
                Case(name, space, probs, mechanism, "no baseline", epsilon, n_units, segment)
            )
    return cases


class Estimates(NamedTuple):
    """Estimates of both arms in each replicate, with and without likelihoods."""

    plain: list[tuple[ArmEstimates, ArmEstimates]]
    likely: list[tuple[ArmEstimates, ArmEstimates]]


def estimates(case: Case, levels: Levels, n_tables: int, rng: np.random.Generator) -> Estimates:
    """Estimates of the tail shares of both arms, as `estimate` makes them."""
    experiment = _Experiment(case.space, np.stack([case.probs, case.probs]))
    n_units = round(2 * case.n_units / case.segment)
    drawn = draw(experiment, n_units, case.segment, n_tables, rng)  # type: ignore[arg-type]
    layout, profiles = drawn.layout, Profiles.from_layout(drawn.layout)
    totals = CellTotals.from_counts(drawn.everyone, case.space)
    noise = simulated_noise(rng)
    statistics, channel = release_cells(totals, layout, case.space, case.mechanism, noise)
    assert channel is not None  # noqa: S101 - all mechanisms here release rows
    part = channel.simulate(drawn.inside, rng)
    whole = part + channel.simulate(drawn.everyone - drawn.inside, rng)
    prior = case.mechanism.settled_rows(case.space).public_prior(case.space)[np.newaxis]
    found, origins, read, saved = [], [], [], []
    for function in levels.functions:
        outputs = function.outputs(channel, prior)
        own, rows = (ProfileSums.from_cell_counts(one, outputs) for one in (part, whole))
        public = function.unit_noise(case.mechanism, case.space)
        calibration = Calibration(function.readings(statistics), profiles, rows, public)
        moments = own.cell_moments(profiles)
        weights = weigh(moments.sizes, layout, [0, 1])
        each = spread_cells(weights.of_units(), profiles, [0, 1])
        calibrated = calibration.apply(WeightedSums.from_rows(own, each))
        known = calibration.known_cells([0, 1]) if case.segment == 1 else None
        found.append(to_means(calibrated, moments, weights, known=known))
        origins.append(outputs.middle)
        read.append(outputs.values[0] + outputs.middle)
        saved.append(calibrated.saved_share)
    plain = by_replicate(found, np.array(origins), drawn)
    inside = np.array([one.values > 0.5 for one in levels.functions])
    transition, of_sums = channel.transition()[0], np.stack(saved, axis=-1)
    of_units = weights.of_units()

    def likely(one: ArmEstimates, place: tuple[int, int]) -> ArmEstimates:
        replicate, arm = place
        counts = part[replicate, :, arm]
        each = of_units[replicate, :, arm]
        weighted = each @ counts
        counts = weighted * weighted.sum() / (each**2 @ counts.sum(axis=1))
        unbiased = UnbiasedShares(np.array(read), one.means, one.variances, of_sums[place])
        found = ShareLikelihood(counts, transition, inside, unbiased)
        is_used = found.is_used(is_designed=case.mechanism.designs_rows)
        return one._replace(likelihood=found) if is_used else one

    both = [
        (likely(control, (at, 0)), likely(treated, (at, 1)))
        for at, (control, treated) in enumerate(plain)
    ]
    return Estimates(plain, both)


class _Experiment(NamedTuple):
    space: Categories
    probs: np.ndarray


def measure(case: Case, n_tables: int, rng: np.random.Generator) -> Line:
    """What a case shows."""
    levels = Levels("spend", case.space)
    found = estimates(case, levels, n_tables, rng)
    truth = np.array([case.probs @ one.values for one in levels.functions])
    judged = (truth > _LEAST_SHARE) & (truth < 1 - _LEAST_SHARE)
    plain, likely = (
        [ArmLevels(levels, arm) for both in one for arm in both]
        for one in (found.plain, found.likely)
    )
    unbiased = _errors([one.arm.means for one in plain], truth)
    monotone = _errors([one.tails[1:-1] for one in plain], truth)
    shown = _errors([one.tails[1:-1] for one in likely], truth)
    covered = np.mean([_covers(one, truth) for one in likely], axis=0)[judged]
    shown_length, plain_length = (
        sum(float(np.subtract(*one.limits(LEVEL)[::-1]).sum()) for one in every[: 2 * N_LENGTHS])
        for every in (likely, plain)
    )
    return Line(
        case,
        float(np.mean([one.likelihood is not None for one in likely])),
        unbiased.sum() / shown.sum(),
        float((unbiased / shown).min()),
        monotone.sum() / shown.sum(),
        (float(covered.min()), float(covered.max())),
        shown_length / plain_length,
        _quantile_coverage(levels, found.likely[:N_QUANTILES], case),
    )


def _errors(shares: list[np.ndarray], truth: np.ndarray) -> np.ndarray:
    return np.asarray(((np.array(shares) - truth) ** 2).mean(axis=0))


def _covers(arm: ArmLevels, truth: np.ndarray) -> np.ndarray:
    """Whether intervals hold the true shares: as their limits show, which take longer to find."""
    likelihood, estimates = arm.likelihood, arm.arm
    if likelihood is None:
        low, high = arm.limits(LEVEL)
        return np.asarray((low[1:-1] <= truth + _SAME) & (truth <= high[1:-1] + _SAME))
    errors = (
        likelihood.UNBIASED_REACH
        * quantile(LEVEL, estimates.degrees)
        * np.sqrt(estimates.variances)
    )
    low = np.minimum(np.clip(estimates.means - errors, 0, 1), likelihood.shares)
    high = np.maximum(np.clip(estimates.means + errors, 0, 1), likelihood.shares)
    near = likelihood.distances(truth) <= likelihood.OWN_REACH * quantile(LEVEL)
    return np.asarray((low <= truth + _SAME) & (truth <= high + _SAME) & near)


def _quantile_coverage(
    levels: Levels, arms: list[tuple[ArmEstimates, ArmEstimates]], case: Case
) -> tuple[float, float]:
    """The least coverage of medians and P90, of arms and of their differences."""
    below = 1 - np.append([one.values @ case.probs for one in levels.functions], 0.0)
    of_arms, of_pairs = [], []
    for share in (0.5, 0.9):
        true = levels.values[np.argmax(below >= share - 1e-12)]
        for both in arms:
            control, treated = (ArmQuantile(ArmLevels(levels, one), share) for one in both)
            low, high = treated.reaches().within(np.array([quantile(LEVEL)]))
            of_arms.append((share, bool(low[0] <= true <= high[0])))
            least, most = QuantilePair(treated, control).ci(LEVEL)
            of_pairs.append((share, least <= 0 <= most))
    return (
        min(float(np.mean([held for at, held in of_arms if at == share])) for share in (0.5, 0.9)),
        min(float(np.mean([held for at, held in of_pairs if at == share])) for share in (0.5, 0.9)),
    )


def page(lines: list[Line]) -> str:
    """The study as a page."""
    error = 100 * (LEVEL * (1 - LEVEL) / (2 * N_REPLICATES)) ** 0.5
    used = [one for one in lines if one.used > 0]
    outside = [one for one in lines if not 0.935 <= one.coverage[0] <= one.coverage[1] <= 0.98]
    skewed = [one for one in lines if _is_skewed(one.case) and one.case.design != _RESPONSE]
    rows = [
        f"| {len(one.case.probs)} | {one.case.name} | {one.case.design} | {one.case.epsilon:g} | "
        f"{one.case.n_units:,} | {one.used:.0%} | {one.gain:.2f} | {one.least:.2f} | "
        f"{one.over_monotone:.2f} | {one.coverage[0]:.1%} to {one.coverage[1]:.1%} | "
        f"{one.length:.2f} | {one.quantiles[0]:.1%} / {one.quantiles[1]:.1%} |"
        for one in lines
    ]
    return f"""# Shares by maximum likelihood
Written by `make bench-metrics`; not edited by hand. Tables are drawn, released and estimated as
`estimate` does. {N_REPLICATES:,} tables of two arms: coverages have a Monte Carlo error of
{error:.1f} points, those of quantiles of {N_QUANTILES} tables.

Shares are those of units at or above each level of an outcome with 12 or four levels. Or there are
visits, orders and spend in one question, with two declared thresholds and a tenth of ε in totals;
200 and 2,000 units per arm are a tenth of all there, 10,000 are all. Which arms have shares by
likelihood follows from their own responses, and is part of what is measured.

- **MSE** is the mean squared error of unbiased shares over that of the shares that are shown: of
  all levels together, and of the level that gains least. The next number is that of unbiased
  shares made monotone, over that of those shown.
- **Length** is that of 95% CIs over those of unbiased shares, cut to 0 to 100%.
- **Quantiles** are the median and P90: the least coverage of an arm's, and of a difference.

Found:

- The likelihood was used in {len(used)} of {len(lines)} lines. Of the level that gains least, the
  error is at most {1 / min(one.least for one in lines):.3f} times that of the unbiased share.
- Where shares are skewed, with 200 units and ε = 1, unbiased shares have {_span(skewed)} times the
  error.
- {len(lines) - len(outside)} of {len(lines)} lines have all coverages between 93.5 and 98%. The
  least coverage is {min(one.coverage[0] for one in lines):.1%}. Above 98% are shares near 0 or 1
  with few units, also where no likelihood is used, and some of small segments with sums.
- Where the likelihood is used, CIs are {min(one.length for one in used):.2f} to
  {max(one.length for one in used):.2f} times as long.

**Why not everywhere.** By randomized response, or where the baseline is true, unbiased shares use
all that responses show. The likelihood then gains nothing, and next to 0 it is worse than monotone
shares: the sum of many levels that are nearly empty is too large. **Why not the likelihood ratio
alone.** Next to 0 it is not χ² with one degree of freedom, and its set covers too seldom.

| {" | ".join(_HEADER)} |
|---|---|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def _is_skewed(case: Case) -> bool:
    return case.name != "uniform" and case.epsilon == 1 and case.n_units == SIZES[0]


def _span(lines: list[Line]) -> str:
    gains = sorted(one.gain for one in lines)
    return f"{gains[0]:.1f} to {gains[-1]:.1f}"


def main() -> None:
    """Measure, show and write."""
    rng = np.random.default_rng()
    lines = [measure(case, N_REPLICATES, rng) for case in (*single_cases(), *funnel_cases())]
    write_study("likelihood_shares", page(lines))
    print(page(lines))


if __name__ == "__main__":
    main()
