"""Do 95% intervals of shares, medians, P90 and ratios cover?

    make bench-metrics

Each line is an experiment whose outcomes are drawn anew in every replicate, released anew and
estimated by the code that `estimate` calls. Rows are drawn as counts by cell, so that a replicate
takes a fraction of a millisecond. Beside it stands the same interval from true outcomes. Writes
`docs/metric_coverage.md`.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

import clusterdp as cdp
from bench.metric_draws import (
    AS_NORMAL,
    GRIDS,
    draw,
    jump_questions,
    number_questions,
    questions,
    released_estimates,
    true_estimates,
)
from bench.shortest_sets import shortest_difference

if TYPE_CHECKING:
    from bench.metric_draws import Experiment, Question
    from clusterdp.estimation.composed import ArmEstimates
    from clusterdp.mechanisms.mechanism import Mechanism

N_REPLICATES = 2000
N_OF_NUMBERS = 500
LEVEL = 0.95
DOCS = Path(__file__).parent.parent / "docs"
SEGMENT_SHARE = 0.2
N_OUTCOMES = (2, 6, 12)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
N_UNITS = (2_000, 20_000)
# A line counts if the same interval from true outcomes covers within these, or always covers.
LEAST, MOST = 0.935, 0.98
# Lengths are compared with bounds above this: a difference that is mostly known has length 0.
_LEAST_LENGTH = 0.5


class Rates(NamedTuple):
    """How often intervals hold the truth.

    Attributes:
        arm: Of both arms' own numbers.
        difference: Of their difference.
        bias: How far the mean difference is from the truth, in Monte Carlo standard errors.
        unbounded: How often the interval of the difference has no bounds.
        length: The mean length of bounded intervals of the difference.
        at_end: How often the interval of an arm reaches an end of what values can be.
        least: A bound on the length that any valid set would have; NaN where none is known.
    """

    arm: float
    difference: float
    bias: float
    unbounded: float
    length: float
    at_end: float
    least: float = math.nan

    @property
    def covered(self) -> tuple[float, float]:
        """Of the arms, and of the difference."""
        return self.arm, self.difference


def rates(estimates: list[tuple[ArmEstimates, ArmEstimates]], question: Question) -> Rates:
    """Coverage of what is asked."""
    truths = question.truths
    arms, held, differences, lengths, at_end = [], [], [], [], []
    least, most = question.span
    for both in estimates:
        control, treated = map(question.compose, both)
        pair = question.compare(treated, control)
        for value, truth in zip((control, treated), truths, strict=True):
            low, high = value.limits(LEVEL)
            arms.append(low <= truth <= high)
            at_end.append(low <= least or high >= most)
        low, high = pair.ci(LEVEL)
        held.append(low <= truths[1] - truths[0] <= high)
        differences.append(treated.value - control.value)
        lengths.append(high - low)
    found, length = np.array(differences), np.array(lengths)
    error = found.std(ddof=1) / math.sqrt(len(found))
    off = found.mean() - (truths[1] - truths[0])
    bounded = np.isfinite(length)
    return Rates(
        arm=float(np.mean(arms)),
        difference=float(np.mean(held)),
        bias=float(off / error) if error else 0.0,
        unbounded=float(1 - bounded.mean()),
        length=float(length[bounded].mean()) if bounded.any() else math.nan,
        at_end=float(np.mean(at_end)),
    )


def judged(
    estimates: list[tuple[ArmEstimates, ArmEstimates]], experiment: Experiment, question: Question
) -> Rates:
    """Coverage of what is asked, with a bound on lengths if a quantile is one of a few values."""
    found = rates(estimates, question)
    if question.share is None:
        return found
    tails = np.stack([experiment.probs @ one.values for one in question.functions], axis=-1)
    return found._replace(least=shortest_difference(estimates, tails, question.share))


class Line(NamedTuple):
    """One line of the study.

    Attributes:
        n_levels: K, the levels of the outcome.
        n_units: n.
        where: Overall, or in the segment.
        name: What is asked.
        true: From true outcomes.
        private: From releases, by their name.
    """

    n_levels: int
    n_units: int
    where: str
    name: str
    true: Rates
    private: dict[str, Rates]

    @property
    def counts(self) -> bool:
        """Whether the same interval from true outcomes covers."""
        return min(self.true.arm, self.true.difference) >= LEAST

    @property
    def found(self) -> tuple[Rates, ...]:
        """From true outcomes, and from every release."""
        return self.true, *self.private.values()

    def row(self) -> str:
        """The line as a row of a table."""
        *shown, last = _COLUMNS[self.name in QUANTILES](self.found)
        first = [f"| {self.n_levels}", f"{self.n_units:,}", self.where, self.name]
        covered = [f"{100 * one.arm:.1f} / {100 * one.difference:.1f}" for one in self.found]
        return " | ".join([*first, *covered, *shown, f"{last} |"])


def _biases(found: tuple[Rates, ...]) -> list[str]:
    """What a line shows beside coverages."""
    unbounded = max(one.unbounded for one in found)
    return [*(f"{one.bias:+.1f}" for one in found), f"{100 * unbounded:.0f}%"]


def _lengths(found: tuple[Rates, ...]) -> list[str]:
    """What a line on a quantile shows beside coverages."""
    at_ends = " / ".join(f"{100 * one.at_end:.0f}" for one in found)
    return [*map(_length, found), at_ends]


def _length(one: Rates) -> str:
    """A length, and the least that is possible."""
    return f"{one.length:.2f}" + ("" if math.isnan(one.least) else f" ({one.least:.2f})")


QUANTILES = ("median", "P90", AS_NORMAL)
_COLUMNS = {False: _biases, True: _lengths}


MECHANISMS: dict[str, Mechanism] = {
    f"ε={epsilon:g}": cdp.optimal(epsilon=epsilon, sums=cdp.SumShares(totals=0.1))
    for epsilon in EPSILONS
}
NUMBER_ROWS: dict[str, Mechanism] = {
    f"ε={epsilon:g}": cdp.optimal(epsilon=epsilon) for epsilon in EPSILONS
}
OTHERS: dict[str, Mechanism] = {
    "Cluster-DP": cdp.cluster_dp(noise_scale=4, prior_floor=0.02, epsilon=2),
    "Cluster-free DP": cdp.cluster_free_dp(noise_scale=4, prior_floor=0.02, epsilon=2),
    "uniform prior": cdp.uniform_prior_dp(epsilon=2),
    "optimal with counts": cdp.optimal(epsilon=2, noise_scale=4),
    "optimal with sums": cdp.optimal(epsilon=2, sums=cdp.SumShares(clusters=0.3)),
}


def study(
    asked: list[tuple[Experiment, Question]],
    n_units: int,
    mechanisms: dict[str, Mechanism],
    n_replicates: int,
    rng: np.random.Generator,
) -> list[Line]:
    """Every question, overall and in the segment; those of the same functions share draws."""
    lines = []
    for where, share in (("everyone", 1.0), (f"{SEGMENT_SHARE:.0%} segment", SEGMENT_SHARE)):
        for _, group in itertools.groupby(asked, key=lambda one: id(one[1].functions)):
            alike = list(group)
            experiment, first = alike[0]
            drawn = draw(experiment, n_units, share, n_replicates, rng)
            estimates = {
                name: released_estimates(drawn, first, experiment.space, mechanism, rng)
                for name, mechanism in mechanisms.items()
            }
            true = true_estimates(drawn, first)
            for _, question in alike:
                private = {
                    name: judged(found, experiment, question) for name, found in estimates.items()
                }
                of_true = judged(true, experiment, question)
                n_levels = experiment.space.shape[-1]
                lines.append(Line(n_levels, n_units, where, question.name, of_true, private))
    return lines


def summary(lines: list[Line]) -> list[str]:
    """What the lines say, in words."""
    told = []
    for name in ("share", "ratio"):
        chosen = [line for line in lines if line.name == name and line.counts]
        found = [one for line in chosen for one in line.private.values()]
        covered = [rate for one in found for rate in one.covered]
        inside = sum(LEAST <= rate <= MOST for rate in covered)
        bias = max(abs(one.bias) for one in found)
        told.append(
            f"- {name}: {inside} of {len(covered)} coverages lie between 93.5 and 98%; the least "
            f"is {100 * min(covered):.1f}%, the largest {100 * max(covered):.1f}%. "
            f"{outside_by_chance(len(found), N_REPLICATES):.1f} would lie outside by chance if "
            "every interval covered in 95% of all cases. "
            f"The largest bias is {bias:.1f} Monte Carlo standard errors."
        )
    told += quantile_summary([line for line in lines if line.name in QUANTILES])
    left_out = [line for line in lines if not line.counts]
    told.append(f"- Lines where the interval from true outcomes does not cover: {len(left_out)}.")
    return told


def outside_by_chance(n_pairs: int, n_replicates: int) -> float:
    """How many coverages are expected outside of 93.5 to 98% if intervals cover in 95% of cases.

    Args:
        n_pairs: How many coverages of both arms there are, and as many of a difference.
        n_replicates: How many replicates each has; there are two arms in each.
    """
    inside = [
        stats.binom.cdf(math.floor(MOST * size), size, LEVEL)
        - stats.binom.cdf(math.ceil(LEAST * size) - 1, size, LEVEL)
        for size in (2 * n_replicates, n_replicates)
    ]
    return float(n_pairs * (len(inside) - sum(inside)))


def quantile_summary(lines: list[Line]) -> list[str]:
    """How coverages of quantiles compare with those of the same intervals from true outcomes."""
    # Each coverage beside that from true outcomes, and how often the arms' intervals reach an end.
    pairs = [
        (rate, true, one.at_end)
        for line in lines
        for one in line.private.values()
        for rate, true in zip(one.covered, line.true.covered, strict=True)
    ]
    certain = [pair for pair in pairs if pair[1] > MOST]
    others = [pair for pair in pairs if pair[1] <= MOST]
    told = (
        f"- median and P90: {len(pairs)} coverages, the least {100 * min(pairs)[0]:.1f}%. For "
        f"{len(certain)} of them the same interval from true outcomes covers more than 98%, too: "
        "outcomes are a few values, so that a quantile is mostly known for sure, or known to be "
        "one of two."
    )
    if others:
        inside = sum(LEAST <= rate <= MOST for rate, _, _ in others)
        above = sum(rate > MOST for rate, _, _ in others)
        true, at_end = ([100 * one[place] for one in others] for place in (1, 2))
        told += (
            f" For the other {len(others)} it covers {min(true):.1f} to {max(true):.1f}%. Of ours, "
            f"{inside} lie between 93.5 and 98%, {above} above and "
            f"{len(others) - inside - above} below. There, intervals of arms reach an end of the "
            f"values in {min(at_end):.0f} to {max(at_end):.0f}% of replicates."
        )
    return [told, length_summary(lines)]


def length_summary(lines: list[Line]) -> str:
    """How lengths of differences of quantiles compare with the least that is possible."""

    def times(found: list[Rates]) -> str:
        ratios = sorted(one.length / one.least for one in found if one.least > _LEAST_LENGTH)
        low, middle, high = (ratios[int(place * (len(ratios) - 1))] for place in (0, 0.5, 1))
        return f"{low:.2f} to {high:.2f} times (in the middle {middle:.2f})"

    private = [one for line in lines for one in line.private.values()]
    true = times([line.true for line in lines])
    return (
        "- No set that holds the difference of two quantiles in 95% of cases, whatever outcomes "
        "are like, is shorter on average than a bound. Where the bound is above "
        f"{_LEAST_LENGTH:g}, intervals from true outcomes are {true} as long, ours "
        f"{times(private)}."
    )


def table(lines: list[Line], names: tuple[str, ...]) -> list[str]:
    """Lines on some metrics as a table."""
    chosen = [line for line in lines if line.name in names]
    sources = ["true outcomes", *lines[0].private]
    beside, last = (
        ("length", "at an end, %") if set(names) & set(QUANTILES) else ("bias", "unbounded")
    )
    header = ["K", "n", "where", "metric", *sources, *(f"{beside}, {one}" for one in sources), last]
    aligned = ["---:", "---:", "---", "---", *["---:"] * (2 * len(sources) + 1)]
    rows = [line.row() for line in chosen]
    return [f"| {' | '.join(header)} |", f"|{'|'.join(aligned)}|", *rows]


def tables(lines: list[Line]) -> list[str]:
    """Lines as two tables: of quantiles, and of everything else."""
    means = tuple(dict.fromkeys(line.name for line in lines if line.name not in QUANTILES))
    return [*table(lines, means), "", *table(lines, QUANTILES)]


def main() -> None:
    """Run the study and write the page."""
    rng = np.random.default_rng()
    lines = [
        line
        for n_outcomes, n_units in itertools.product(N_OUTCOMES, N_UNITS)
        for line in study(questions(n_outcomes), n_units, MECHANISMS, N_REPLICATES, rng)
    ]
    others = study(questions(6), 20_000, OTHERS, N_REPLICATES, rng)
    numbers = [
        line
        for points, n_units in itertools.product(GRIDS, N_UNITS)
        for line in study(number_questions(points), n_units, NUMBER_ROWS, N_OF_NUMBERS, rng)
    ]
    jumps = [
        line
        for n_units in N_UNITS
        for line in study(jump_questions(), n_units, MECHANISMS, N_REPLICATES, rng)
    ]
    error = 100 * math.sqrt(LEVEL * (1 - LEVEL) / N_REPLICATES)
    page = [
        "# Do intervals of shares, quantiles and ratios cover?",
        "",
        "Written by `make bench-metrics`; not edited by hand. Nominal level 95%,",
        f"{N_REPLICATES} replicates: coverages have a standard error of {error:.1f} points.",
        "Each entry has the coverage of both arms' own numbers, and that of their difference. The",
        "same intervals from true outcomes stand beside those from releases.",
        "",
        "*Bias* is that of the difference, in Monte Carlo standard errors; an estimated quantile",
        "of a few values jumps between them and has none to speak of. *Unbounded* is how often an",
        "interval has no bounds, at worst. *Length* is the mean length of intervals of",
        "differences; in brackets is a bound that no valid set is shorter than (see",
        "`bench/shortest_sets.py`). *At an end* is how often the interval of an arm reaches the",
        "least or the largest value that there can be, in the order of the columns.",
        "",
        "Outcomes are 0 to K − 1 in two arms and four clusters. The share is of units with K/2 or",
        "more; the ratio is spend per visit. None of them was declared but the two means of the",
        "ratio.",
        "",
        *summary([*lines, *others]),
        "",
        "**Why quantiles cover more often than 95%.** A value v is kept unless P(y > v) is surely",
        "above 1 − q, or P(y ≥ v) surely below it. If y takes v often, both errors are rare at",
        "once, with true outcomes as with private ones. With noise there are two more reasons. The",
        "interval reaches from the least to the largest kept value, also over values that were",
        "rejected by themselves. And it ends where values end.",
        "",
        "**Why differences are not combined as of normal numbers.** That is shorter, and misses",
        "where quantiles jump: see [At a jump](#at-a-jump).",
        "",
        "## By ε",
        "The optimal mechanism, a tenth of ε in totals.",
        "",
        *tables(lines),
        "",
        "## By mechanism",
        "ε = 2.",
        "",
        *tables(others),
        "",
        "## Numbers",
        "A number from 0 to 120 on grids of nine and of 22 points, with one declared threshold;",
        f"rows alone, {N_OF_NUMBERS} replicates.",
        "Shares between grid points, and quantiles, are known up to bounds, which intervals hold:",
        "so they cover more often. `true outcomes` are numbers that were rounded to the grid, and",
        "released as they are. A finer grid has closer bounds, and more noise at a small ε.",
        "",
        *tables(numbers),
        "",
        "## At a jump",
        "Half of each arm has the least of five values and half the largest, as with one star and",
        "five; 1% more of treatment has the largest. Medians are one of them or the other, and",
        "noise decides which. *As of normal numbers*: limits of arms combined by the root of the",
        "sum of squares, as for means.",
        "",
        *table(jumps, QUANTILES),
    ]
    text = "\n".join(page) + "\n"
    (DOCS / "metric_coverage.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
