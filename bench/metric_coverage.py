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

import clusterdp as cdp
from bench.metric_draws import (
    draw,
    number_questions,
    questions,
    released_estimates,
    true_estimates,
)
from clusterdp.estimation.intervals import ArmPair

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


class Rates(NamedTuple):
    """How often intervals hold the truth.

    Attributes:
        arm: Of both arms' own numbers.
        difference: Of their difference.
        bias: How far the mean difference is from the truth, in Monte Carlo standard errors.
        unbounded: How often the interval of the difference has no bounds.
        length: The mean length of bounded intervals of the difference.
    """

    arm: float
    difference: float
    bias: float
    unbounded: float
    length: float


def rates(estimates: list[tuple[ArmEstimates, ArmEstimates]], question: Question) -> Rates:
    """Coverage of what is asked."""
    truths = question.truths
    arms, held, differences, lengths = [], [], [], []
    for both in estimates:
        control, treated = map(question.compose, both)
        pair = ArmPair(treated, control)
        for value, truth in zip((control, treated), truths, strict=True):
            low, high = value.limits(LEVEL)
            arms.append(low <= truth <= high)
        low, high = pair.ci(LEVEL)
        held.append(low <= truths[1] - truths[0] <= high)
        differences.append(pair.difference)
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
    )


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

    def row(self) -> str:
        """The line as a row of a table."""
        found = (self.true, *self.private.values())
        return " | ".join(
            [
                f"| {self.n_levels}",
                f"{self.n_units:,}",
                self.where,
                self.name,
                *(f"{100 * one.arm:.1f} / {100 * one.difference:.1f}" for one in found),
                *(f"{one.bias:+.1f}" for one in found),
                f"{100 * max(one.unbounded for one in found):.0f}% |",
            ]
        )


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
    """Every question, overall and in the segment."""
    lines = []
    for where, share in (("everyone", 1.0), (f"{SEGMENT_SHARE:.0%} segment", SEGMENT_SHARE)):
        for experiment, question in asked:
            drawn = draw(experiment, n_units, share, n_replicates, rng)
            private = {
                name: rates(
                    released_estimates(drawn, question, experiment.space, mechanism, rng), question
                )
                for name, mechanism in mechanisms.items()
            }
            true = rates(true_estimates(drawn, question), question)
            n_levels = experiment.space.shape[-1]
            lines.append(Line(n_levels, n_units, where, question.name, true, private))
    return lines


def summary(lines: list[Line]) -> list[str]:
    """What the lines say, in words."""
    told, quantiles = [], ("median", "P90")
    for names in (("share",), ("ratio",), quantiles):
        chosen = [line for line in lines if line.name in names and line.counts]
        found = [one for line in chosen for one in line.private.values()]
        covered = [rate for one in found for rate in (one.arm, one.difference)]
        inside = sum(LEAST <= rate <= MOST for rate in covered)
        said = (
            f"- {' and '.join(names)}: {inside} of {len(covered)} coverages lie between 93.5 and "
            f"98%; the least is {100 * min(covered):.1f}%, the largest {100 * max(covered):.1f}%."
        )
        if names == quantiles:
            said += (
                " Outcomes are a few values, so that a quantile is mostly known for sure, or "
                "known to be one of two: the same intervals from true outcomes cover "
                f"{100 * min(line.true.arm for line in chosen):.1f}% or more."
            )
        else:
            bias = max(abs(one.bias) for one in found)
            said += f" The largest bias is {bias:.1f} Monte Carlo standard errors."
        told.append(said)
    left_out = [line for line in lines if not line.counts]
    told.append(f"- Lines where the interval from true outcomes does not cover: {len(left_out)}.")
    return told


def table(lines: list[Line]) -> list[str]:
    """Lines as a table."""
    names = ["true outcomes", *lines[0].private]
    header = [
        "K",
        "n",
        "where",
        "metric",
        *names,
        *(f"bias, {name}" for name in names),
        "unbounded",
    ]
    aligned = ["---:", "---:", "---", "---", *["---:"] * (2 * len(names) + 1)]
    return [f"| {' | '.join(header)} |", f"|{'|'.join(aligned)}|", *(line.row() for line in lines)]


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
        for n_units in N_UNITS
        for line in study(number_questions(), n_units, NUMBER_ROWS, N_OF_NUMBERS, rng)
    ]
    page = [
        "# Do intervals of shares, quantiles and ratios cover?",
        "",
        "Written by `make bench-metrics`; not edited by hand. Nominal level 95%,",
        f"{N_REPLICATES:,} replicates a number, so a coverage has a standard error of 0.5 points.",
        "Each entry has the coverage of both arms' own numbers, and that of their difference.",
        "*Bias* is that of the difference, in Monte Carlo standard errors. *Unbounded* is how",
        "often an interval has no bounds, at worst.",
        "",
        "Outcomes are 0 to K − 1 in two arms and four clusters. The share is of units with K/2 or",
        "more; the ratio is spend per visit. None of them was declared but the two means of the",
        "ratio. An estimated quantile of a few values jumps between them, so it has no bias to",
        "speak of: that from true outcomes stands beside it.",
        "",
        *summary([*lines, *others]),
        "",
        "## By ε",
        "The optimal mechanism, a tenth of ε in totals.",
        "",
        *table(lines),
        "",
        "## By mechanism",
        "ε = 2.",
        "",
        *table(others),
        "",
        "## Numbers",
        "A number from 0 to 120 on a grid of nine points, with one declared threshold; rows alone,",
        f"{N_OF_NUMBERS} replicates.",
        "Shares between grid points, and quantiles, are known up to bounds, which intervals hold:",
        "so they cover more often. `true outcomes` are numbers that were rounded to the grid, and",
        "released as they are.",
        "",
        *table(numbers),
    ]
    text = "\n".join(page) + "\n"
    (DOCS / "metric_coverage.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
