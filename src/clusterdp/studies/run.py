"""Run the draws of experiments side by side and judge what they find.

The report: figures, numbers and a verdict for every claim, as files.

The report's tables of numbers: the median over draws, with the range.
"""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.errors import ParameterError
from clusterdp.studies import claims as guarantees
from clusterdp.studies import experiments_1_3, experiments_4_7
from clusterdp.studies import experiments_1_3 as tradeoffs
from clusterdp.studies import experiments_4_7 as validity
from clusterdp.studies.claims import RULE, ExperimentFindings, report_texts
from clusterdp.studies.figures import draw_figures
from clusterdp.studies.study import BAND, by_draw, in_brief, joined, points, select

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterdp.studies.claims import Claim, Rows, Tables
    from clusterdp.studies.study import Study


class Experiment(NamedTuple):
    """One of the paper's experiments.

    Attributes:
        measure: The tables of one draw of its population, by the number of the draw.
        judge: The verdicts, from the tables of all draws.
    """

    measure: Callable[[Study, int], Tables]
    judge: Callable[[Tables], list[Claim]]


EXPERIMENTS = {
    1: Experiment(tradeoffs.measure_tradeoffs, tradeoffs.judge_tradeoffs),
    2: Experiment(experiments_1_3.measure_ratio, experiments_1_3.judge_ratio),
    3: Experiment(experiments_1_3.measure_youtube, experiments_1_3.judge_youtube),
    4: Experiment(validity.measure_errors, validity.judge_errors),
    5: Experiment(validity.measure_bound, validity.judge_bound),
    6: Experiment(experiments_4_7.measure_one_shot, experiments_4_7.judge_one_shot),
    7: Experiment(validity.measure_youtube_errors, validity.judge_youtube_errors),
}


def parse_experiments(names: list[str]) -> list[int]:
    """Which experiments: `all`, or numbers from 1 to 7."""
    if not names or names == ["all"]:
        return sorted(EXPERIMENTS)
    try:
        numbers = sorted({int(name) for name in names})
    except ValueError:
        numbers = [0]
    if not set(numbers) <= set(EXPERIMENTS):
        raise ParameterError(f"experiments are 1 to 7, or all; got {' '.join(names)}")
    return numbers


def run_experiments(
    numbers: list[int], study: Study, report: Callable[[int], None]
) -> list[ExperimentFindings]:
    """The guarantees, and the experiments asked for. A draw does not depend on which others run.

    Args:
        numbers: Which experiments.
        study: How much to compute.
        report: Called with an experiment's number after each of its draws.
    """
    tables = _all_draws(numbers, study, report)
    judged = [
        ExperimentFindings(number=number, tables=found, claims=EXPERIMENTS[number].judge(found))
        for number, found in tables.items()
    ]
    return [guarantees.privacy_claims(), *judged]


def _all_draws(
    numbers: list[int], study: Study, report: Callable[[int], None]
) -> dict[int, Tables]:
    """The tables of every experiment, its draws joined."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=context, max_workers=2) as workers:
        pending = {
            workers.submit(EXPERIMENTS[number].measure, study, draw): number
            for number in numbers
            for draw in range(study.n_draws)
        }
        try:
            for done in as_completed(pending):
                done.result()
                report(pending[done])
        finally:
            workers.shutdown(cancel_futures=True)
    return {
        number: joined([task.result() for task, owner in pending.items() if owner == number])
        for number in numbers
    }


READINGS = {
    "boundary": "counts once, if exactly one end is inside",
    "pairwise": "counts for every other cluster it reaches",
}


class Shown(NamedTuple):
    """What the report shows of a table.

    Attributes:
        table: Its name.
        title: What the numbers are.
        by: The columns that distinguish lines.
        axis: The column along which numbers vary, and its symbol.
        values: The columns of numbers, and what they are called.
    """

    table: str
    title: str
    by: tuple[str, ...]
    axis: tuple[str, str]
    values: dict[str, str]


_VARIANCE = {"variance": ""}
_MECHANISMS = ("accounting", "mechanism")
SHOWN = {
    1: (
        Shown("against_floor", "Variance", _MECHANISMS, ("floor_share", "Kγ"), _VARIANCE),
        Shown("tradeoff", "Variance, optimized", _MECHANISMS, ("epsilon", "ε"), _VARIANCE),
    ),
    2: (Shown("ratio", "Ratio of variances", ("resample_prob",), ("between", "β"), {"ratio": ""}),),
    3: (Shown("tradeoff", "Variance", _MECHANISMS, ("epsilon", "ε"), _VARIANCE),),
    5: (
        Shown(
            "bound",
            "Variance",
            (),
            ("between", "β"),
            {
                "gap": "gap",
                "simulated_gap": "gap, simulated",
                "first_term": "first term of the bound",
                "bound": "bound",
            },
        ),
    ),
    6: (Shown("bias", "Mean \\|bias\\|", _MECHANISMS, ("epsilon", "ε"), {"bias": ""}),),
}
# What a line's values of `by` are called.
_WORDS = {"paper": "paper's accounting", "valid": "valid", 0.5: "λ = 0.5", 0.8: "λ = 0.8"}


def summary_tables(number: int, tables: Tables) -> list[str]:
    """An experiment's tables in Markdown: every line at both ends of the axis and between."""
    lines: list[str] = []
    for shown in SHOWN.get(number, ()):
        lines += [*_table(shown, tables[shown.table]), ""]
    return lines


def _table(shown: Shown, rows: Rows) -> list[str]:
    axis, symbol = shown.axis
    places = sorted({row[axis] for row in rows})
    places = [places[0], places[len(places) // 2], places[-1]]
    heads = " | ".join(f"{symbol} = {place:.3g}" for place in places)
    groups = dict.fromkeys(tuple(row[name] for name in shown.by) for row in rows)
    body = []
    for group in groups:
        line = select(rows, **dict(zip(shown.by, group, strict=True)))
        for value, called in shown.values.items():
            words = [*(_WORDS.get(word, str(word)) for word in group), called]
            cells = (in_brief(by_draw(line, value, **{axis: at})[:, 0]) for at in places)
            body.append(f"| {', '.join(filter(None, words))} | {' | '.join(cells)} |")
    return [f"| {shown.title} | {heads} |", "|---|" + "---:|" * len(places), *body]


def readings_table(rows: Rows) -> list[str]:
    """What the two readings of YouTube's links change, in Markdown."""
    head = (
        "| a link to another cluster | largest change of a standardized feature | variance, "
        "Cluster-DP over Cluster-Free-DP, ε = 1, valid |"
    )
    body = (
        f"| {words} | {points(rows, 'largest_change_of_a_feature', reading=reading)[0]:.3f} | "
        f"{in_brief(by_draw(rows, 'ratio_of_variances', reading=reading)[:, 0])} |"
        for reading, words in READINGS.items()
    )
    return [head, "|---|---|---|", *body, ""]


def write_report(findings: list[ExperimentFindings], study: Study, folder: Path) -> None:
    """Write CSV files, figures, verdicts.json and REPORT.md."""
    import polars as pl

    findings = sorted(findings, key=lambda found: found.number)
    figures = {}
    for found in findings:
        for name, rows in found.tables.items():
            path = folder / f"experiment-{found.number}-{name.replace('_', '-')}.csv"
            pl.DataFrame(rows, infer_schema_length=None).write_csv(path)
        figures[found.number] = draw_figures(found, folder)
    claims = [asdict(claim) for found in findings for claim in found.claims]
    (folder / "verdicts.json").write_text(
        json.dumps(claims, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (folder / "REPORT.md").write_text(_report(findings, figures, study), encoding="utf-8")


def _report(findings: list[ExperimentFindings], figures: dict[int, list[str]], study: Study) -> str:
    source = (
        "*Improving the Variance of Differentially Private Randomized Experiments through "
        "Clustering*, Javanmard, Mirrokni and Pouget-Abadie, ICML 2025."
    )
    size = (
        f"Written by `clusterdp reproduce`: {study.n_draws} draws of every population, with seeds "
        f"0 to {study.n_draws - 1}."
    )
    low, high = BAND
    draws = (
        "The paper draws the centres of clusters and the outcomes of units at random, once. Here a "
        "draw is a new population: new centres, new units and a new sub-population of them, or on "
        f"YouTube new outcomes. {RULE} Numbers are the median over draws, with the range in "
        f"brackets. Figures show the median, and in a band the draws from {low:.0%} to {high:.0%}. "
        "Variances come from exact formulas, averaged over assignments and noise; estimates are "
        f"simulated {study.n_realizations} times in each draw where their distribution matters. "
        "The CSV files hold the numbers of every draw."
    )
    lines = [
        "# The paper, reproduced",
        "",
        f"{source} {size}",
        "",
        draws,
        "",
        (
            "The figures hold the paper's mechanisms. What this package does beyond them, in the "
            "populations of Experiments 1 and 3 and at equal, valid privacy, is in "
            "`docs/studies/frontier.md` (`make bench-variance`)."
        ),
        "",
        "| claim | verdict | held in |",
        "|---|---|---|",
        *(
            f"| {claim.name} | **{claim.verdict}** | {claim.held or 'computed exactly'} |"
            for found in findings
            for claim in found.claims
        ),
        "",
    ]
    for found in findings:
        section = report_texts("sections", "number")[found.number]
        lines += [f"## {section['heading']}", ""]
        lines += [f"![{name}]({name}.svg)" for name in figures[found.number]]
        if "note" in section:
            lines += ["", section["note"]]
        lines.append("")
        lines += summary_tables(found.number, found.tables)
        for claim in found.claims:
            lines += _claim(claim)
        if "readings" in found.tables:
            lines += readings_table(found.tables["readings"])
    return "\n".join(lines).rstrip() + "\n"


def _claim(claim: Claim) -> list[str]:
    lines = [
        f"**{claim.name}: {claim.verdict}.** {claim.sentence} ({claim.place})",
        "",
        f"- Test: {claim.test}",
        f"- Found: {claim.evidence}" + (f" It held in {claim.held}." if claim.held else ""),
    ]
    if claim.why:
        lines.append(f"- Why: {claim.why}")
    return [*lines, ""]
