"""docs/studies/peers.md, from what a run found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.peers import costs as costing
from bench.peers import methods
from bench.peers.advice import advice, claims
from bench.peers.figures import FIGURES
from bench.peers.prose import paragraph
from bench.peers.readings import readings
from bench.peers.study import EPSILONS, HILLSTROM, TREATED_SHARE
from bench.peers.summary import (
    FEATURE_ERROR,
    GAIN,
    OVERALL_COVERED,
    OVERALL_ERROR,
    OVERALL_WIDTH,
    OWN_ERROR,
    SEGMENT_COVERED,
    SEGMENT_WIDTH,
    Summary,
)
from bench.peers.tables import cost_table, promise_table, question_table

if TYPE_CHECKING:
    from bench.peers.results import Results

_MANY_RUNS = 50  # with fewer draws the page says that they are few
_ASKED = (
    ("The overall effect: mean squared error, in millionths", OVERALL_ERROR, None),
    ("The overall effect: coverage of 95% intervals", OVERALL_COVERED, OVERALL_WIDTH),
    ("Segments by features, not announced: mean squared error", FEATURE_ERROR, None),
    ("A segment by a column of the analyst's own: mean squared error", OWN_ERROR, None),
    ("All three segments: coverage of 95% intervals", SEGMENT_COVERED, SEGMENT_WIDTH),
    ("Whom to treat: gain over treating as many at random", GAIN, None),
)


def as_markdown(results: Results) -> str:
    """The page."""
    summary = results.summary
    lines = [
        "# Other methods, measured",
        "",
        *claims(summary),
        *_conditions(summary),
        "## Which to use",
        "",
        *advice(summary),
        *_promises(),
        *_figures(),
        *_populations(summary),
        *_costs(results),
        *_libraries(results),
        "## How the papers were read",
        "",
        *readings(),
    ]
    return "\n".join(lines) + "\n"


def _conditions(summary: Summary) -> list[str]:
    lines = paragraph(
        "Written by `make bench-peers`; not edited by hand. Means over",
        f"{summary.n_runs(methods.OURS)} draws of each population at each ε",
        f"({summary.n_runs(methods.BOOSTED)} for OpenDP and DP-EBM, which are slow), all methods",
        "on the same draws; ± is the Monte Carlo standard error. Outcomes are binary. Mean squared",
        "errors are against the true effect, so they include sampling error; they are in",
        "millionths. Targeting trains on what a method gives (linear models of rows, differences",
        f"in bins, the models themselves), treats the {TREATED_SHARE:.0%} with the highest",
        "predicted uplift, and counts the true mean effect on them, less that on everyone. In",
        "Hillstrom's table a draw is a bootstrap of a random half, which is the truth; the other",
        "half shows what rules gain.",
    )
    if summary.n_runs(methods.OURS) < _MANY_RUNS:
        lines += paragraph(
            "**This run had time for few draws: differences of less than two or three ± are noise,",
            "also those in the sentences above.**",
        )
    if HILLSTROM not in summary.populations:
        lines += paragraph(
            "**Hillstrom's table was not there: this run has the simulated populations alone.**"
        )
    return lines


def _promises() -> list[str]:
    return [
        "## What each guarantees",
        "",
        *paragraph(
            "An ε has no meaning without its neighboring tables: what may differ between two",
            "tables that must look equally likely. In all tables, methods are grouped by their",
            "guarantee. Numbers under different guarantees are not a comparison at equal",
            "privacy. Protecting a whole record is stronger than protecting an outcome. Needing",
            "no trusted collector is stronger than needing one.",
        ),
        *promise_table(),
        "",
    ]


def _figures() -> list[str]:
    lines = ["## Figures", ""]
    for one in FIGURES:
        title = one.question.title
        title = title[0].upper() + title[1:]
        lines += [
            f"{title}: {one.axis} against ε. Each kind of line is one guarantee.",
            "",
            f"![{title}: {one.axis} of each method against ε](figures/{one.name})",
            "",
        ]
    return lines


def _populations(summary: Summary) -> list[str]:
    lines = []
    for population in summary.populations:
        lines += [f"## {population[0].upper()}{population[1:]}", ""]
        for title, question, beside in _ASKED:
            lines += [f"### {title}", ""]
            lines += [*question_table(summary, population, question, beside), ""]
    return lines


def _costs(results: Results) -> list[str]:
    return [
        "## Time and memory",
        "",
        *paragraph(
            f"Of one release of {results.n_units:,} units with ten covariates at",
            f"ε = {costing.EPSILON:g} and the overall answer, in a process of its own after a",
            "small release to warm up. Megabytes are by how much the process's peak grew. Ours",
            "include the plan.",
        ),
        *cost_table(results.costs),
        "",
    ]


def _libraries(results: Results) -> list[str]:
    names = list(costing.row_variances(1.0))
    rows = {name: [costing.row_variances(at)[name] for at in EPSILONS] for name in names}
    variances = [
        f"| {name} | " + " | ".join(f"{one:.3g}" for one in row) + " |"
        for name, row in rows.items()
    ]
    return [
        "## Rows with more than two outcomes",
        "",
        *paragraph(
            "With two outcomes, all rows at one ε are Warner's response. With twelve they differ.",
            "The table has the noise variance of one debiased row in closed form, where outcomes",
            "−5…6 are equally likely. Neighboring tables differ in one person's outcome. People",
            "could draw both themselves, because our randomizer's prior is public here. In",
            "clusterdp the collector draws them.",
        ),
        "| rows | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---|" + "---:|" * len(EPSILONS),
        *variances,
        "",
        "| who randomizes twelve outcomes | million rows per second of processor time |",
        "|---|---:|",
        *(f"| {name} | {rate / 1e6:.3g} |" for name, rate in results.rates.items()),
        "",
    ]
