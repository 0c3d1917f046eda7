"""A plan as a page for a meeting: what can be detected against ε, with a slider over ε.

Everything on it is public or predicted from public numbers: no outcome was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp._words import counted, percent
from clusterdp.experiment.decimals import shown
from clusterdp.owner.plan_command import plan_command, release_command
from clusterdp.owner.plan_panel import Panel
from clusterdp.pages.document import render
from clusterdp.planning.other_budgets import other_budgets, round_budgets
from clusterdp.planning.plan import budget
from clusterdp.published.terms import total_guarantee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.engines.base import Stages
    from clusterdp.owner.block_report import Report
    from clusterdp.owner.plan_report import PlanReport
    from clusterdp.planning.other_budgets import Budget

# What ε is spent on, for people who do not know the mechanism.
_SPENT_ON = {
    "rows": "every person’s row, from which an analyst can cut any segment later",
    "totals": "totals of each arm, for the overall effect",
    "sums": "totals of each cluster, for effects across clusters",
    "counts": "counts of outcomes, which the noise in rows is fitted to",
    "contrasts": "the difference between arms in each cluster, and nothing else",
    "look": "a first look at everyone, which finds where outcomes lie",
    "labels": "the noisy label of every person’s cluster",
}
# The key of what private clusters take, which is of no block.
_LABELS = "0-labels"


def plan_page(report: PlanReport, epsilon: float, progress: Stages) -> str:
    """The page of a plan.

    Args:
        report: What was compared.
        epsilon: The budget of the plan.
        progress: Where the predictions at other budgets report to.
    """
    comparisons = [one.comparison for one in report.blocks]
    on_done = progress.stage("other budgets", len(round_budgets(epsilon)))
    budgets = other_budgets(comparisons, epsilon, on_done, fixed=report.label_epsilon)
    chosen = next(place for place, one in enumerate(budgets) if one.epsilon == epsilon)
    panels = [
        Panel.of(one.comparison, block, metric, name, budgets, chosen)
        for block, one in enumerate(report.blocks)
        for metric, name in enumerate(one.metrics)
    ]
    parts = _parts(report, budgets)
    stops = [
        {
            "texts": {
                **_texts(report, one, parts),
                **{key: text for panel in panels for key, text in panel.texts(place).items()},
            },
            "shares": {key: round(100 * part, 2) for key, part in _spent(report, one).items()},
            "marks": [panel.marks[place] for panel in panels],
        }
        for place, one in enumerate(budgets)
    ]
    return render(
        "clusterdp.owner",
        "plan.html",
        about=_about(report),
        now=stops[chosen]["texts"],
        shares=stops[chosen]["shares"],
        stops=stops,
        chosen=chosen,
        panels=panels,
        parts=parts,
        blocks=[_block(report, one) for one in report.blocks],
        release=release_command(report.given),
        unknown=[
            name
            for one in report.blocks
            if not one.comparison.scenario.reference.is_declared
            for name in one.space.declared.names
        ],
        notes=report.every_note(),
    )


def _texts(report: PlanReport, at: Budget, parts: list[tuple[str, str]]) -> dict[str, str]:
    """What is said at a budget of all metrics, by key."""
    spaces = [one.space for one in report.blocks]
    guarantee = total_guarantee(spaces, [one.mechanism for one in at.options], report.response)
    spent = _spent(report, at)
    return {
        "epsilon": shown(at.epsilon),
        "suspicion": guarantee.in_odds(),
        "command": plan_command(report.given, at.epsilon),
        **{f"{key}-share": percent(spent.get(key, 0.0)) for key, _ in parts},
    }


def _spent(report: PlanReport, at: Budget) -> dict[str, float]:
    """The share of ε that each part takes, by key."""
    whole, found = at.epsilon, {}
    if report.label_epsilon:
        found[_LABELS] = report.label_epsilon
    left = whole - report.label_epsilon
    planned = sum(one.comparison.epsilon for one in report.blocks)
    for place, (one, option) in enumerate(zip(report.blocks, at.options, strict=True)):
        own = left * one.comparison.epsilon / planned
        for label, part in budget(option.mechanism, one.comparison.scenario).items():
            found[f"{place}-{label}"] = own * part
    return {key: part / whole for key, part in found.items()}


def _parts(report: PlanReport, budgets: Sequence[Budget]) -> list[tuple[str, str]]:
    """Every part that ε goes to at some budget: its key, and what it is."""
    keys = dict.fromkeys(key for one in budgets for key in _spent(report, one))
    found = []
    for key in sorted(keys, key=lambda one: int(one.partition("-")[0])):
        block, _, label = key.partition("-")
        kind, _, columns = label.partition(" by ")
        words = _SPENT_ON.get(kind, kind)
        if columns:
            words = f"totals by {columns}, for effects in its groups"
        names = ", ".join(report.blocks[int(block)].space.declared.names)
        alone = len(report.blocks) == 1 or key == _LABELS
        found.append((key, words if alone else f"{names}: {words}"))
    return found


def _about(report: PlanReport) -> str:
    layout = report.blocks[0].comparison.scenario.layout
    arms = ", ".join(str(layout.arms[one]) for one in layout.treatments)
    return (
        f"{layout.in_words}, {counted(len(layout.arms), 'arm')}: {arms}, compared with "
        f"{layout.arms[layout.control]}"
    )


def _block(report: PlanReport, one: Report) -> dict[str, Any]:
    """What is below the first screen about a block."""
    compared = one.comparison
    content = one.to_dict()
    return {
        "title": ", ".join(one.space.declared.names) if len(report.blocks) > 1 else "",
        "assumed": content["assumed"],
        "recommended": content["recommended"],
        "reason": content["reason"],
        "look": content["look"],
        "losses": [(name, f"+{percent(loss)}") for name, loss in content["losses"].items()],
        "tables": one.tables(),
        "clusters": [
            (
                f"{found['clusters']} ({found['n_clusters']:,})",
                f"{found['overall'][one.metrics[0]]['std_error']:.4g}",
                f"{found['segment'][one.metrics[0]]['std_error']:.4g}" if found["segment"] else "",
            )
            for found in content["clusters"]
        ],
        "first": one.metrics[0],
        "segment": f"segment of {100 * compared.shown_share:.3g}%",
    }
