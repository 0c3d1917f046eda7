"""What private clusters cost: against public ones, and against leaving clusters out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clusterdp.cells.layout import EVERYONE
from clusterdp.planning.choose import plan_mechanisms
from clusterdp.planning.forecast import expect_quickly
from clusterdp.spec.clusters import PrivateClusters, PublicClusters

if TYPE_CHECKING:
    from clusterdp.cells.layout import Layout
    from clusterdp.planning.compare import Comparison
    from clusterdp.planning.decide import Draft

_OURS = (
    "the standard error of the overall effect is about {:.4g} with private clusters; at the same "
    "epsilon it would be"
)
_LEAVE_OUT = "Leave clusters out unless effects in true clusters are what is asked for"


def cost_notes(draft: Draft, layout: Layout, planned: Comparison) -> list[str]:
    """What private clusters cost; nothing is said of public ones.

    Args:
        draft: What was asked for.
        layout: The cells to be expected with given labels.
        planned: The comparison of the first question.
    """
    clusters = draft.request.clusters
    if not isinstance(clusters, PrivateClusters):
        return []
    epsilon = planned.epsilon + clusters.epsilon
    public = replace(draft, request=replace(draft.request, clusters=PublicClusters()))
    by_public = _overall_error(public, clusters.unanswered(layout), epsilon)
    if clusters.assignment is not None:
        # Weights that invert the response are of rows alone.
        budget = replace(
            draft.request.budget,
            mechanism=planned.chosen,
            totals_share=0.0,
            sums_share=0.0,
            breakdown_share=0.0,
        )
        rows = replace(draft, request=replace(draft.request, budget=budget))
        ours = clusters.inflation(layout) * _overall_error(rows, layout, epsilon)
        return [f"{_OURS.format(ours)} {by_public:.4g} with public clusters"]
    together = layout.sizes.sum(axis=0, keepdims=True)
    alone = replace(layout, clusters=(EVERYONE,), sizes=together)
    ours, without = planned.choice.overall[0].std_error, _overall_error(public, alone, epsilon)
    text = f"{_OURS.format(ours)} {by_public:.4g} with public clusters, {without:.4g} without any"
    if ours >= without:
        text += f". {_LEAVE_OUT}"
    return [text]


def _overall_error(draft: Draft, layout: Layout, epsilon: float) -> float:
    """The standard error to expect of the first metric's overall effect."""
    scenarios = draft.scenarios(layout)
    made = plan_mechanisms(draft.budgets(epsilon), scenarios).mechanisms[0]
    return expect_quickly(made, scenarios[0])[0].overall.std_error
