"""Do 95% intervals of complier effects cover?

    make bench-metrics

Each number is of an experiment whose outcomes and exposures are drawn anew in every replicate,
released anew and estimated by the code that `estimate` calls. Rows are drawn as counts by cell.
Next to it is the same interval from true outcomes. Writes `docs/studies/exposure_coverage.md`.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from bench.exposure_draws import (
    CONFOUNDED,
    Units,
    told_by_column,
    told_by_response,
    told_without_privacy,
)
from bench.metric_draws import draw
from bench.study_page import write_study
from clusterdp.estimation.effects.intervals import quantile

if TYPE_CHECKING:
    from clusterdp.estimation.metrics.exposure import ExposedEffect

N_REPLICATES = 2000
LEVEL = 0.95
EXPOSED = (0.05, 0.3, 0.8)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
N_UNITS = (2_000, 20_000)
SEGMENT_SHARE = 0.2
LEAST, MOST = 0.935, 0.98
TOLD = {
    "An outcome of the same question": told_by_response,
    "A public column": told_by_column,
}


class Rates(NamedTuple):
    """How often intervals hold the truth.

    Attributes:
        covered: Anderson and Rubin's.
        unbounded: How often these have no bounds.
        wald: The estimate and so many of its standard errors.
    """

    covered: float
    unbounded: float
    wald: float

    @classmethod
    def of(cls, effects: list[ExposedEffect], truth: float) -> Rates:
        """Of intervals in all replicates."""
        held, unbounded, wald, reach = 0, 0, 0, quantile(LEVEL)
        for one in effects:
            (low, high), gap = one.ci(LEVEL), one.gap(LEVEL)
            held += low <= truth <= high and not (gap is not None and gap[0] < truth < gap[1])
            unbounded += math.isinf(low)
            error = math.sqrt(sum(one.variances))
            wald += abs(one.value - truth) <= reach * error
        return cls(*(count / len(effects) for count in (held, unbounded, wald)))

    def __str__(self) -> str:
        without = f" ({100 * self.unbounded:.0f})" if self.unbounded >= 0.005 else ""
        return f"{100 * self.covered:.1f}{without}"


class Line(NamedTuple):
    """One experiment.

    Attributes:
        labels: What it is.
        true: From true outcomes.
        private: By what tells exposure, and by ε.
    """

    labels: tuple[str, ...]
    true: Rates
    private: dict[str, list[Rates]]

    @property
    def counts(self) -> bool:
        """Whether the same interval from true outcomes covers."""
        return self.true.covered >= LEAST

    def row(self, told: str) -> str:
        """A row of the table for what tells exposure."""
        cells = (*self.labels, str(self.true), *map(str, self.private[told]))
        return f"| {' | '.join(cells)} |"


def study(
    units: Units, n_units: int, share: float, n_replicates: int, rng: np.random.Generator
) -> tuple[Rates, dict[str, list[Rates]]]:
    """Coverage from true outcomes; and by what tells exposure, and ε."""
    private: dict[str, list[Rates]] = {name: [] for name in TOLD}
    drawn = draw(units.experiment(), n_units, share, n_replicates, rng)
    for epsilon in EPSILONS:
        mechanism = cdp.optimal(epsilon=epsilon, sums=cdp.SumShares(totals=0.1))
        for name, told in TOLD.items():
            private[name].append(Rates.of(told(drawn, mechanism, rng), units.truth))
    return Rates.of(told_without_privacy(drawn), units.truth), private


def main() -> None:
    """Run the study and write the page."""
    rng, lines = np.random.default_rng(), []
    wheres = {"everyone": 1.0, f"{SEGMENT_SHARE:.0%} segment": SEGMENT_SHARE}
    for exposed, two_sided, n_units in itertools.product(EXPOSED, (False, True), N_UNITS):
        units = Units.of(exposed, two_sided=two_sided)
        for where, share in wheres.items():
            sides = "two-sided" if two_sided else "one-sided"
            labels = (f"{exposed:.0%}", sides, f"{n_units:,}", where)
            lines.append(Line(labels, *study(units, n_units, share, N_REPLICATES, rng)))
    text = page(lines, study(CONFOUNDED, 2_000, 1.0, N_REPLICATES, rng)[1])
    write_study("exposure_coverage", text)
    print(text)


def page(lines: list[Line], confounded: dict[str, list[Rates]]) -> str:
    """The page."""
    found = [one for line in lines if line.counts for each in line.private.values() for one in each]
    covered = [one.covered for one in found]
    inside = sum(LEAST <= one <= MOST for one in covered)
    left_out = sum(not line.counts for line in lines)
    epsilons = [f"ε={epsilon:g}" for epsilon in EPSILONS]
    header = ["exposed", "non-compliance", "n", "where", "true outcomes", *epsilons]
    parts = [
        "# Do intervals of complier effects cover?",
        "",
        "Written by `make bench-metrics`; not edited by hand. Nominal level 95%,",
        f"{N_REPLICATES:,} replicates a number, so a coverage has a standard error of 0.5 points.",
        "In brackets: the percentage of intervals without bounds, if there are any.",
        "",
        "Outcomes are 0 to 3 in two arms and four clusters. *Exposed* is the share of the arm.",
        "With two-sided non-compliance a quarter of them would be exposed in control, too.",
        "Outcomes depend on exposure, and on who is exposed. The mechanism is the optimal one,",
        "with a tenth of ε in totals.",
        "",
        f"- {inside} of {len(covered)} coverages lie between 93.5 and 98%.",
        f"- The least is {100 * min(covered):.1f}%, the largest {100 * max(covered):.1f}%.",
        f"- Lines where the interval from true outcomes does not cover: {left_out}.",
        "",
    ]
    for name in TOLD:
        parts += [f"## {name}", "", *_table(header, [line.row(name) for line in lines]), ""]
    rows = [
        f"| {name} | {' | '.join(f'{one} / {100 * one.wald:.1f}' for one in each)} |"
        for name, each in confounded.items()
    ]
    parts += [
        "## Weak and confounded",
        "1% of units are compliers, and n = 2,000. Outcomes follow from who is exposed, and",
        "exposure does not change them. Each entry has Anderson and Rubin's interval, then that of",
        "Wald: the estimate and 1.96 standard errors. The more rows show, the worse Wald's is.",
        "",
        *_table(["what tells exposure", *epsilons], rows),
    ]
    return "\n".join(parts) + "\n"


def _table(header: list[str], rows: list[str]) -> list[str]:
    return [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *rows]


if __name__ == "__main__":
    main()
