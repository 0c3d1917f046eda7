"""The report: figures, numbers and a verdict for every claim, as files."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from clusterdp.reproduction.claims import report_texts
from clusterdp.reproduction.figures import draw_figures

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.reproduction.claims import Claim, Findings, Rows
    from clusterdp.reproduction.study import Study

_READINGS = {
    "boundary": "counts once, if exactly one end is inside",
    "pairwise": "counts for every other cluster it reaches",
}


def write_report(findings: list[Findings], study: Study, folder: Path) -> None:
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


def _report(findings: list[Findings], figures: dict[int, list[str]], study: Study) -> str:
    source = (
        "*Improving the Variance of Differentially Private Randomized Experiments through "
        "Clustering*, Javanmard, Mirrokni and Pouget-Abadie, ICML 2025."
    )
    size = (
        f"Written by `clusterdp reproduce`: {study.n_populations} sub-populations, "
        f"{study.n_realizations} realizations each, seed {study.seed}."
    )
    lines = [
        "# The paper, reproduced",
        "",
        f"{source} {size}",
        "",
        (
            "The figures hold the paper's mechanisms. What this package does beyond them, in the "
            "populations of Experiments 1 and 3 and at equal, valid privacy, is in "
            "`docs/frontier.md` (`make bench-variance`)."
        ),
        "",
        "| claim | verdict |",
        "|---|---|",
        *(f"| {claim.name} | **{claim.verdict}** |" for f in findings for claim in f.claims),
        "",
    ]
    for found in findings:
        section = report_texts("sections", "number")[found.number]
        lines += [f"## {section['heading']}", ""]
        lines += [f"![{name}]({name}.svg)" for name in figures[found.number]]
        if "note" in section:
            lines += ["", section["note"]]
        lines.append("")
        for claim in found.claims:
            lines += _claim(claim)
        lines += _readings(found.tables.get("readings", []))
    return "\n".join(lines).rstrip() + "\n"


def _readings(rows: Rows) -> list[str]:
    if not rows:
        return []
    return [
        (
            "| a link to another cluster | largest change of a standardized feature | variance, "
            "Cluster-DP over Cluster-Free-DP, ε = 1, valid |"
        ),
        "|---|---|---|",
        *(
            f"| {_READINGS[row['reading']]} | {row['largest_change_of_a_feature']:.3f} | "
            f"{row['ratio_of_variances']:.2f} |"
            for row in rows
        ),
        "",
    ]


def _claim(claim: Claim) -> list[str]:
    lines = [
        f"**{claim.name}: {claim.verdict}.** {claim.sentence} ({claim.place})",
        "",
        f"- Test: {claim.test}",
        f"- Found: {claim.evidence}",
    ]
    if claim.why:
        lines.append(f"- Why: {claim.why}")
    return [*lines, ""]
