"""Do 95% intervals of shares, medians, P90 and ratios cover?

    make bench-metrics

Each line is an experiment whose outcomes are drawn anew in every replicate, released anew and
estimated by the code that `estimate` calls. Rows are drawn as counts by cell, so that a replicate
takes a fraction of a millisecond. Next to it is the same interval from true outcomes. Writes
`docs/studies/metric_coverage.md`.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from bench.metric_draws import (
    GRIDS,
    draw,
    jump_questions,
    number_questions,
    questions,
    released_estimates,
    true_estimates,
)
from bench.metric_lines import LEVEL, QUANTILES, Line, Rates, summary, table, tables
from bench.shortest_sets import shortest_difference
from bench.study_page import write_study

if TYPE_CHECKING:
    from bench.metric_draws import Experiment, Question
    from clusterdp.estimation.metrics._composed import ArmEstimates
    from clusterdp.mechanisms.mechanism import Mechanism

N_REPLICATES = 2000
N_OF_NUMBERS = 500
SEGMENT_SHARE = 0.2
N_OUTCOMES = (2, 6, 12)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
N_UNITS = (2_000, 20_000)


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


class Study(NamedTuple):
    """The lines of the page, by section."""

    lines: list[Line]
    others: list[Line]
    numbers: list[Line]
    jumps: list[Line]

    @classmethod
    def run(cls, rng: np.random.Generator) -> Study:
        """All of it."""
        return cls(by_epsilon(rng), by_mechanism(rng), of_numbers(rng), at_a_jump(rng))


def by_epsilon(rng: np.random.Generator) -> list[Line]:
    """Finite outcomes, with the optimal mechanism."""
    return [
        line
        for n_outcomes, n_units in itertools.product(N_OUTCOMES, N_UNITS)
        for line in study(questions(n_outcomes), n_units, MECHANISMS, N_REPLICATES, rng)
    ]


def by_mechanism(rng: np.random.Generator) -> list[Line]:
    """Six values, with other mechanisms."""
    return study(questions(6), 20_000, OTHERS, N_REPLICATES, rng)


def of_numbers(rng: np.random.Generator) -> list[Line]:
    """A number on two grids."""
    return [
        line
        for points, n_units in itertools.product(GRIDS, N_UNITS)
        for line in study(number_questions(points), n_units, NUMBER_ROWS, N_OF_NUMBERS, rng)
    ]


def at_a_jump(rng: np.random.Generator) -> list[Line]:
    """Medians that are at one end or the other."""
    return [
        line
        for n_units in N_UNITS
        for line in study(jump_questions(), n_units, MECHANISMS, N_REPLICATES, rng)
    ]


def page(found: Study) -> str:
    """The study as a page."""
    lines, others, numbers, jumps = found
    error = 100 * math.sqrt(LEVEL * (1 - LEVEL) / N_REPLICATES)
    text = [
        "# Do intervals of shares, quantiles and ratios cover?",
        "",
        "Written by `make bench-metrics`; not edited by hand. Nominal level 95%,",
        f"{N_REPLICATES} replicates: coverages have a standard error of {error:.1f} points.",
        "Each entry has the coverage of both arms' own numbers, and that of their difference. The",
        "same intervals from true outcomes are next to those from releases.",
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
        *summary([*lines, *others], N_REPLICATES),
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
    return "\n".join(text) + "\n"


def main() -> None:
    """Run the study and write the page."""
    text = page(Study.run(np.random.default_rng()))
    write_study("metric_coverage", text)
    print(text)


if __name__ == "__main__":
    main()
