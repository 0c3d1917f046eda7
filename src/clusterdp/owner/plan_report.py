"""A comparison of mechanisms as people read it: text, HTML, plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp._tables import aligned, html_lines, html_table
from clusterdp._words import counted
from clusterdp.mechanisms.disclosure import disclosure_notes
from clusterdp.planning.outcomes_alone import predict_outcomes_alone
from clusterdp.statistics.sums import NoisySums

if TYPE_CHECKING:
    from clusterdp.experiment.categories import Categories
    from clusterdp.planning.plan import Comparison, Option
    from clusterdp.planning.predictions import Prediction

_LEGEND = (
    "Standard errors are of the overall effect and in a segment, for the least certain\n"
    "arm. Detectable is what a two-sided 5% test finds with 80% power."
)
_SEVERAL = "\nEach mechanism is at its best, noisy sums included; the noisy-* release no rows."
_ALONE = (
    "\nalone: standard errors of the outcomes if the further metrics were not measured.\n"
    "A metric costs no budget, but the noise is shared out among all."
)


class Table(NamedTuple):
    """A table with the title above it.

    Attributes:
        title: The title.
        rows: The header, then the rows.
    """

    title: str
    rows: list[tuple[str, ...]]

    def as_text(self) -> str:
        """The table as aligned lines."""
        return "\n".join([*([self.title] if self.title else []), *aligned(self.rows)])

    def as_html(self) -> str:
        """The table for notebooks."""
        header, *rows = self.rows
        return html_lines([self.title] if self.title else []) + html_table(header, rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Report:
    """What was compared, and what people are shown of it.

    Attributes:
        comparison: What was compared.
        space: The categories of the outcomes.
        assumed: What outcomes are thought to be like, and why.
        alone: What the recommended mechanism would do for each outcome without further metrics;
            None if there are none.
        notes: What the owner should know about the table and the reference.
    """

    comparison: Comparison
    space: Categories
    assumed: str
    alone: tuple[Prediction, ...] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, comparison: Comparison, space: Categories, assumed: str, notes: tuple[str, ...]
    ) -> Report:
        """The report of a comparison."""
        declared, alone = space.declared, None
        if len(declared.metrics) > len(declared.outcomes):
            mechanism = comparison.choice.mechanism
            alone = predict_outcomes_alone(mechanism, comparison.scenario, space)
        return cls(comparison=comparison, space=space, assumed=assumed, alone=alone, notes=notes)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics, outcomes first."""
        return tuple(map(str, self.space.declared.metrics))

    def as_text(self) -> str:
        """The report for terminals."""
        tables = "\n\n".join(table.as_text() for table in self._tables())
        return "\n".join([self._about(), "", tables, "", self._legend(), "", *self._conclusions()])

    def as_html(self) -> str:
        """The report for notebooks."""
        tables = "".join(table.as_html() for table in self._tables())
        below = html_lines([self._legend(), *self._conclusions()])
        return html_lines([self._about()]) + tables + below

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        compared = self.comparison
        layout, choice = compared.scenario.layout, compared.choice
        content = {
            "epsilon": compared.epsilon,
            "segment_share": compared.segment_share,
            "shown_share": compared.shown_share,
            "n_units": layout.n_units,
            "n_clusters": len(layout.clusters),
            "n_categories": self.space.n_categories,
            "metrics": list(self.metrics),
            "recommended": compared.chosen,
            "reason": compared.reason,
            "assumed": self.assumed,
            "guarantee": choice.mechanism.guarantee(self.space).in_short(),
            "notes": list(disclosure_notes(choice.mechanism, self.space)),
            "options": [self._option(option) for option in compared.options],
        }
        if self.alone is not None:
            content["without_further_metrics"] = self._by_metric(self.alone)
        return content

    def remarks(self) -> list[str]:
        """What a plan file says above its options."""
        compared = self.comparison
        layout, choice = compared.scenario.layout, compared.choice
        table = f"{counted(layout.n_units, 'unit')} in {counted(len(layout.clusters), 'cluster')}"
        overall = self._errors(choice.overall)
        remarks = [
            f"A plan for {table}: {compared.reason}.",
            f"Assumed: {self.assumed}.",
            f"Expected standard error of the overall effect: {overall}",
        ]
        if choice.segment is not None:
            share = f"{compared.shown_share:.0%}"
            remarks.append(f"and in a segment of {share}: {self._errors(choice.segment)}.")
        return remarks

    def _errors(self, predictions: tuple[Prediction, ...]) -> str:
        """Standard errors in a line, with names where there are several."""
        if len(predictions) == 1:
            return f"{predictions[0].std_error:.4g}"
        named = zip(self.metrics, predictions, strict=True)
        return ", ".join(f"{name} {one.std_error:.4g}" for name, one in named)

    def _by_metric(self, predictions: tuple[Prediction, ...]) -> dict[str, dict[str, float]]:
        """Predictions as plain values; the outcomes alone may be fewer than the metrics."""
        named = zip(self.metrics, predictions, strict=False)
        return {
            name: {**one._asdict(), "detectable_effect": one.detectable_effect}
            for name, one in named
        }

    def _option(self, option: Option) -> dict[str, Any]:
        segment = option.segment
        return {
            "mechanism": option.name,
            "parameters": option.mechanism.parameters(self.space),
            "overall": self._by_metric(option.overall),
            "segment": None if segment is None else self._by_metric(segment),
        }

    def _tables(self) -> list[Table]:
        if len(self.metrics) == 1:
            return [Table("", self._one_metric())]
        chosen = Table(f"{self.comparison.chosen}, metric by metric", self._chosen())
        if len(self.comparison.options) == 1:
            return [chosen]
        return [Table("standard error of the overall effect on", self._mechanisms()), chosen]

    def _one_metric(self) -> list[tuple[str, ...]]:
        """One row for each mechanism."""
        compared = self.comparison
        rows = [
            (self._marked(option), *_shown(option.overall[0], (option.segment or (None,))[0]))
            for option in compared.options
        ]
        return [("", *self._header()), *rows]

    def _mechanisms(self) -> list[tuple[str, ...]]:
        """One row for each mechanism, one column for each metric."""
        rows = [
            (self._marked(option), *(f"{one.std_error:.4g}" for one in option.overall))
            for option in self.comparison.options
        ]
        return [("", *self.metrics), *rows]

    def _chosen(self) -> list[tuple[str, ...]]:
        """One row for each metric of the recommended mechanism."""
        choice = self.comparison.choice
        segments = choice.segment or (None,) * len(self.metrics)
        rows = [
            (name, *_shown(overall, segment))
            for name, overall, segment in zip(self.metrics, choice.overall, segments, strict=True)
        ]
        table = [("", *self._header()), *rows]
        if self.alone is None:
            return table
        without = [f"{one.std_error:.4g}" for one in self.alone]
        without += [""] * (len(self.metrics) - len(without))
        return [(*row, cell) for row, cell in zip(table, ["alone", *without], strict=True)]

    def _header(self) -> tuple[str, ...]:
        segment = f"{self.comparison.shown_share:.0%} segment"
        return ("std error", "sampling", "privacy", "detectable", segment, "detectable")

    def _marked(self, option: Option) -> str:
        return ("* " if option.name == self.comparison.chosen else "") + option.name

    def _legend(self) -> str:
        several = _SEVERAL if len(self.comparison.options) > 1 else ""
        return _LEGEND + several + ("" if self.alone is None else _ALONE)

    def _about(self) -> str:
        layout = self.comparison.scenario.layout
        categories = ""
        if len(self.metrics) > 1:
            categories = f"; {self.space.n_categories} categories of outcomes"
        return (
            f"{counted(layout.n_units, 'unit')}, {counted(len(layout.clusters), 'cluster')}, "
            f"{counted(len(layout.arms), 'arm')}{categories}; epsilon {self.comparison.epsilon:g}; "
            "no outcome was read"
        )

    def _conclusions(self) -> list[str]:
        compared, choice = self.comparison, self.comparison.choice
        numbers = choice.mechanism.parameters(self.space)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        lines = [
            f"recommended: {choice.name}" + (f" ({shown})" if shown else ""),
            f"because: {compared.reason}",
            f"assumed: {self.assumed}",
            f"guarantee: {choice.mechanism.guarantee(self.space).in_short()}",
            *(f"note: {note}" for note in self._notes()),
        ]
        if compared.segment_share == 1 and choice.mechanism.find(NoisySums) is not None:
            lines.append(
                "for small segments rather than the overall effect, plan with segment_share "
                "(--segment-share)"
            )
        return lines

    def _notes(self) -> tuple[str, ...]:
        return (*self.notes, *disclosure_notes(self.comparison.choice.mechanism, self.space))


def _shown(overall: Prediction, segment: Prediction | None) -> tuple[str, ...]:
    """The cells of a row."""
    return (
        *(f"{number:.4g}" for number in (*overall, overall.detectable_effect)),
        "no rows" if segment is None else f"{segment.std_error:.4g}",
        "" if segment is None else f"{segment.detectable_effect:.4g}",
    )
