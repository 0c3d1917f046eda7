"""A release as a value: everything that is published, in memory or in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._tables import html_lines, html_notes, html_pairs, listed

if TYPE_CHECKING:
    from clusterdp.channels.catalogue import Channel
    from clusterdp.channels.label_response import LabelResponse
    from clusterdp.experiment.assignment import AssignmentProbs
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.draw import Statistics
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.published.provenance import Provenance
    from clusterdp.rows.columns import Columns
    from clusterdp.statistics.look import DrawnLook


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """What is published of outcomes that share a channel.

    Attributes:
        space: The categories of its outcomes.
        mechanism: What was run.
        statistics: The noisy statistics, as arrays.
        channel: The channel of the rows, as arrays; None when there are no rows.
    """

    space: Categories
    mechanism: Mechanism
    statistics: Statistics
    channel: Channel | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Everything that is published, and nothing else: no true outcome, no key.

    Attributes:
        units: One row per unit, in the order of ids: unit, arm, cluster, `response`, and a column
            such as `clicks_debiased` for each outcome. Of several blocks, each has a response:
            `response_1`, `response_2`. A frame of the library that was given, without its index
            or metadata; or None when the mechanism publishes aggregates alone.
        cells: One row per (cluster, arm): size, noisy statistics, and the prior and decode values
            or the number of the channel. Lists follow the order of categories. In a release of
            one histogram per arm (`cluster_free_dp`) the clusters of an arm repeat the arm's
            statistics.
        blocks: What is published of each block of outcomes; most releases have one.
        guarantee: What the whole release costs.
        columns: The names of the published columns.
        layout: Clusters, arms and cell sizes.
        notes: Remarks for whoever uses this release.
        provenance: Where it comes from, as far as the owner says it.
        look: The noisy histogram that outcomes were clipped by, as arrays; None without one.
        response: The response that private clusters went through, so that what is published of them
            are labels that units were given; None where clusters are public.
        assignment: The declared probabilities of arms by label; None if they are alike.
    """

    units: Any
    cells: Any
    blocks: tuple[Block, ...]
    guarantee: Guarantee
    columns: Columns
    layout: Layout
    notes: tuple[str, ...]
    provenance: Provenance
    look: DrawnLook | None = None
    response: LabelResponse | None = None
    assignment: AssignmentProbs | None = None

    @property
    def mechanism_names(self) -> str:
        """The names of its mechanisms, each once."""
        return ", ".join(dict.fromkeys(block.mechanism.name for block in self.blocks))

    def __repr__(self) -> str:
        lines = listed(list(self._facts().items()), self.notes)
        return "\n".join([self._title(), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        facts = html_pairs(self._facts().items())
        return html_lines([self._title()]) + facts + html_notes(self.notes)

    def _title(self) -> str:
        return f"Release of {', '.join(self.columns.outcomes)} by {self.mechanism_names}"

    def _facts(self) -> dict[str, str]:
        """What was released, what it costs and how to use it; shared by text and HTML."""
        layout, columns = self.layout, self.columns
        arms = [
            f"{arm} (control)" if place == layout.control else str(arm)
            for place, arm in enumerate(layout.arms)
        ]
        facts = {
            "guarantee": self.guarantee.in_short(),
            "table": layout.in_words,
            **({} if self.response is None else {"private clusters": self.response.in_words}),
            "arms": ", ".join(arms),
            **{
                f"outcome {outcome.name}": str(outcome)
                for block in self.blocks
                for outcome in block.space.declared.outcomes
            },
            **(self._named_blocks() if len(self.blocks) > 1 else {}),
        }
        if self.units is None:
            facts["rows"] = "none; noisy statistics of cells alone"
        else:
            parts = columns.parts
            named = [
                f"{name} ({parts[name]})" if name in parts else name for name in columns.published
            ]
            facts["columns"] = ", ".join(named)
        return {**facts, "to estimate": "clusterdp.estimate(release)"}

    def _named_blocks(self) -> dict[str, str]:
        """The outcomes of each block, and what it costs."""
        return {
            f"block {place}": f"{', '.join(block.space.declared.names)} "
            f"({block.mechanism.guarantee(block.space).in_short()})"
            for place, block in enumerate(self.blocks, start=1)
        }
