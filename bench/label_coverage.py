"""Do 95% intervals cover where clusters are private, of everyone and in true clusters?

    make bench-labels

Each number is of an experiment whose labels, arms and outcomes are drawn anew in every replicate,
released anew and estimated by the code that `estimate` calls. Writes
`docs/studies/label_coverage.md`.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from bench.label_draws import LABELS, PROBS, Clusters, effects_of
from bench.study_page import write_study

if TYPE_CHECKING:
    from clusterdp.estimation.effects.effect import Effect

N_REPLICATES = 2000
LEVEL = 0.95
EPSILONS = (0.5, 1.0, 2.0)
OUTCOME_EPSILON = 2.0
N_UNITS = (5_000, 10_000, 40_000)
LEAST, MOST = 0.935, 0.98


class Rate(NamedTuple):
    """How often intervals hold the truth.

    Attributes:
        covered: Of all replicates.
        unbounded: How often they have no bounds, or there is no effect.
        bias: The mean error of the estimate, in standard deviations of it.
    """

    covered: float
    unbounded: float
    bias: float

    @classmethod
    def of(cls, effects: list[Effect], truth: float) -> Rate:
        """Of intervals in all replicates; where there is no number, nothing is claimed."""
        limits = [
            (-math.inf, math.inf) if math.isnan(one.effect) else one.ci(LEVEL) for one in effects
        ]
        held = sum(low <= truth <= high for low, high in limits)
        unbounded = sum(math.isinf(low) for low, _ in limits)
        values = np.array([one.effect for one in effects])
        spread = np.nanquantile(values, [0.1587, 0.8413])
        bias = (np.nanmedian(values) - truth) / (np.diff(spread)[0] / 2)
        return cls(held / len(effects), unbounded / len(effects), float(bias))

    def __str__(self) -> str:
        without = f" ({100 * self.unbounded:.0f})" if self.unbounded >= 0.005 else ""
        return f"{100 * self.covered:.1f}{without}"


def study(clusters: Clusters, n_replicates: int, rng: np.random.Generator) -> dict[str, Rate]:
    """Coverage of everyone and in every true cluster, by name."""
    mechanism = cdp.optimal(epsilon=OUTCOME_EPSILON, sums=cdp.SumShares(totals=0.1))
    weights, truths = clusters.weights(), clusters.truths
    drawn = [effects_of(clusters.draw(rng), weights, mechanism, rng) for _ in range(n_replicates)]
    by_name = dict(zip(truths, zip(*drawn, strict=True), strict=True))
    return {name: Rate.of(list(effects), truths[name]) for name, effects in by_name.items()}


def main() -> None:
    """Run the study and write the page."""
    rng, rows = np.random.default_rng(), []
    rates: list[Rate] = []
    for n_units, assigned, epsilon in itertools.product(N_UNITS, PROBS, EPSILONS):
        found = study(Clusters.of(n_units, assigned, epsilon), N_REPLICATES, rng)
        rates += found.values()
        cells = (f"{n_units:,}", assigned, f"{epsilon:g}", *map(str, found.values()))
        rows.append(f"| {' | '.join(cells)} |")
    text = page(rows, rates)
    write_study("label_coverage", text)
    print(text)


def page(rows: list[str], rates: list[Rate]) -> str:
    """The page."""
    covered = [one.covered for one in rates]
    error = 100 * math.sqrt(LEVEL * (1 - LEVEL) / N_REPLICATES)
    inside = sum(LEAST <= one <= MOST for one in covered)
    header = ["n", "arms", "ε₁", "everyone", *LABELS]
    parts = [
        "# Do intervals cover where clusters are private?",
        "",
        "Written by `make bench-labels`; not edited by hand. Nominal level 95%. There are",
        f"{N_REPLICATES:,} replicates a number: coverages have an error of {error:.1f} points.",
        "In brackets: the percentage of intervals without bounds, if there are any.",
        "",
        "Outcomes are 0 to 3 in two arms. True clusters have 40, 30, 20 and 10% of the units, and",
        "outcomes and effects of their own. Arms have equal probabilities in all of them, or",
        "unequal ones that were declared: 0.2, 0.5, 0.35 and 0.6 of treatment. Labels go through",
        f"the response at ε₁, outcomes through the optimal channel at ε₂ = {OUTCOME_EPSILON:g}.",
        "",
        f"- {inside} of {len(covered)} coverages lie between 93.5 and 98%.",
        f"- The least is {100 * min(covered):.1f}%, the largest {100 * max(covered):.1f}%.",
        "",
        f"| {' | '.join(header)} |",
        f"|{'---|' * len(header)}",
        *rows,
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
