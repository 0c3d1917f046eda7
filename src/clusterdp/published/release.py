"""A release as a value: everything that is published, in memory or in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._tables import html_lines, html_notes, html_pairs, listed

if TYPE_CHECKING:
    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.draw import Statistics
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.rows.encoding import Columns
    from clusterdp.statistics.look import DrawnLook


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """Everything that is published, and nothing else: no true outcome, no key.

    Attributes:
        units: One row per unit, in the order of ids: unit, arm, cluster, `response`, and a column
            such as `clicks_debiased` for each outcome. A frame of the library that was given,
            without its index or metadata; or None when the mechanism publishes aggregates alone.
        cells: One row per (cluster, arm): size, noisy statistics, and the prior and decode values
            or the number of the channel. Lists follow the order of categories. In a release of
            one histogram per arm (`cluster_free_dp`) the clusters of an arm repeat the arm's
            statistics.
        mechanism: What was run.
        guarantee: What the whole release costs.
        columns: The names of the published columns.
        layout: Clusters, arms and cell sizes.
        space: The categories of the declared outcomes.
        statistics: The noisy statistics, as arrays.
        channel: The channel of the rows, as arrays.
        notes: Remarks for whoever uses this release.
        look: The noisy histogram that outcomes were clipped by, as arrays; None without one.
    """

    units: Any
    cells: Any
    mechanism: Mechanism
    guarantee: Guarantee
    columns: Columns
    layout: Layout
    space: Categories
    statistics: Statistics
    channel: Channel | None
    notes: tuple[str, ...]
    look: DrawnLook | None = None

    def __repr__(self) -> str:
        lines = listed(list(self._facts().items()), self.notes)
        return "\n".join([self._title(), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        facts = html_pairs(self._facts().items())
        return html_lines([self._title()]) + facts + html_notes(self.notes)

    def _title(self) -> str:
        return f"Release of {', '.join(self.columns.outcomes)} by {self.mechanism.name}"

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
            "arms": ", ".join(arms),
            **{f"outcome {outcome.name}": str(outcome) for outcome in self.space.declared.outcomes},
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
