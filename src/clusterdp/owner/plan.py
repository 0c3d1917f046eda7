"""Plan a release before any outcome is read: compare mechanisms, recommend one, write it down."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from clusterdp._tables import aligned, html_lines, html_table
from clusterdp._words import counted
from clusterdp.engines.base import CellOptions
from clusterdp.errors import ParameterError
from clusterdp.experiment.missing import missing_column
from clusterdp.mechanisms.disclosure import disclosure_notes
from clusterdp.owner.keywords import PlanKeywords, takes
from clusterdp.owner.options import DECIDED, Options
from clusterdp.owner.parsing import change_options, parse_options, read_options, write_options
from clusterdp.planning.figure import trade_off_plot
from clusterdp.planning.plan import compare, smallest_epsilon, to_options
from clusterdp.releasing.prepare import named, open_engine, read_cells
from clusterdp.rows.frames import column_names
from clusterdp.statistics.sums import NoisySums

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.figure import Figure

    from clusterdp.engines.base import Engine
    from clusterdp.experiment.layout import Layout
    from clusterdp.planning.choose import Prediction
    from clusterdp.planning.plan import Comparison, Option

# A comparison as people read it.
_LEGEND = (
    "standard errors of the overall effect and in a segment, of the least certain arm; detectable "
    "by a two-sided\n5% test with 80% power. Each mechanism is at its best, noisy sums included; "
    "the noisy-* release no rows."
)


@takes(PlanKeywords)
def plan(source: Any, **options: Unpack[PlanKeywords]) -> Plan:
    """Compare every mechanism and recommend one, before any outcome is read.

    The columns of units and outcomes are not needed to plan; a release needs them. Give epsilon or
    mde. `outcomes={"clicks": "0..5"}` names the outcome as well.

    Args:
        source: A table with one row per unit: a pandas, Polars, PyArrow, DuckDB or Spark frame, or
            the name of a file, a folder, a glob or a query (`duckdb:warehouse.db?select ...`). Only
            its arms and clusters are read.
        **options: Options of the table, the mechanism and the engine.

    Raises:
        ParameterError: If a parameter is wrong.
        DataError: If the table breaks a rule.
    """
    return make_plan(source, parse_options({**options, "input": table_name(source)}))


def table_name(source: Any) -> str | None:
    """The name of a table; None for a frame."""
    name = named(source)
    return name if isinstance(name, str) else None


def make_plan(source: Any, options: Options) -> Plan:
    """The plan that options describe."""
    options.require("arm", "cluster", "outcomes")
    if options.epsilon is None and options.mde is None:
        raise ParameterError(
            "missing: epsilon; give epsilon=..., the budget (--epsilon); or mde=..., the effect to "
            "find (--mde), and the smallest epsilon for it is found"
        )
    if options.epsilon is not None and options.mde is not None:
        raise ParameterError("epsilon and mde exclude each other: leave out mde (--mde)")
    layout, notes = _read_cells(source, options)
    scenario, request = options.scenario(layout), options.request
    if options.mde is not None:
        request = replace(request, epsilon=smallest_epsilon(request, options.mde, scenario))
    comparison = compare(request, scenario)
    decided = dict.fromkeys(DECIDED) | to_options(comparison)
    kept = options.to_dict() | decided | {"out": None, "ledger": None, "population": None}
    if options.size is not None:
        kept["input"] = None  # what is released has other rows
    kept |= {"n_units": layout.n_units, "n_clusters": len(layout.clusters)}
    notes = (*notes, *_outcome_notes(source, options))
    return Plan(options=parse_options(kept), comparison=comparison, notes=notes)


def _outcome_notes(source: Any, options: Options) -> list[str]:
    """A note if a frame has no column of outcomes: it may be planned before there are any."""
    if options.outcome is None or options.size is not None or table_name(source) is not None:
        return []
    names = column_names(source)
    if options.outcome in names:
        return []
    return [f"{missing_column(options.outcome, 'outcome', names)}; a release needs it"]


def _read_cells(source: Any, options: Options) -> tuple[Layout, tuple[str, ...]]:
    asked = CellOptions(options.cluster or "", options.arm or "", options.control, options.size)
    with ExitStack() as stack:
        return read_cells(source, asked, options.min_cell_size, engine_for(source, options, stack))


def engine_for(
    source: Any, options: Options, stack: ExitStack, on_message: Callable[[str], None] | None = None
) -> Engine:
    """What reads a source, as the options ask; `stack` closes what it opens."""
    return open_engine(
        source,
        stack,
        engine=options.engine,
        master=options.master,
        allow_unencrypted=bool(options.allow_unencrypted_spark),
        on_message=on_message,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Plan:
    """What to release and how, decided before any outcome is read.

    Attributes:
        options: Everything that was given or decided, as it is written into a plan file.
        comparison: What was compared; None for a plan that was read from a file.
        notes: What the owner should know about the table.
    """

    options: Options
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """A plan that was saved."""
        if not isinstance(path, str | os.PathLike):
            kind = type(path).__name__
            raise ParameterError(f"plan must be a Plan or the path of a plan file, got {kind}")
        options = read_options(Path(path))
        if options.mechanism is None or options.epsilon is None:
            raise ParameterError(f"{path} is not a plan: it names no mechanism and epsilon")
        return cls(options=options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as TOML, to be reviewed and kept."""
        write_options(self.options, Path(path), self._remarks())

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Standard errors against ε for every mechanism; written to a file if one is given."""
        return trade_off_plot(self._compared(), None if path is None else Path(path))

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        compared = self._compared()
        layout, choice = compared.scenario.layout, compared.choice
        return {
            "epsilon": compared.epsilon,
            "segment_share": compared.segment_share,
            "shown_share": compared.shown_share,
            "n_units": layout.n_units,
            "n_clusters": len(layout.clusters),
            "recommended": compared.chosen,
            "reason": compared.reason,
            "assumed": self.options.assumption(layout),
            "guarantee": choice.mechanism.guarantee(self.options.space).in_short(),
            "notes": list(disclosure_notes(choice.mechanism, self.options.space)),
            "options": [
                {
                    "mechanism": option.name,
                    "parameters": option.mechanism.parameters(self.options.space),
                    "overall": _prediction(option.overall),
                    "segment": None if option.segment is None else _prediction(option.segment),
                }
                for option in compared.options
            ],
        }

    def __repr__(self) -> str:
        if self.comparison is None:
            held = self.options.to_dict().items()
            return "\n".join(["a plan", *(f"  {name}: {value}" for name, value in held)])
        table = "\n".join(aligned(self._table()))
        first, *last = self._around(self.comparison)
        return "\n".join([first, "", table, "", _LEGEND, "", *last])

    def _repr_html_(self) -> str:
        if self.comparison is None:
            return f"<pre>{escape(repr(self))}</pre>"
        header, *rows = self._table()
        first, *last = self._around(self.comparison)
        return html_lines([first]) + html_table(header, rows) + html_lines([_LEGEND, *last])

    def _compared(self) -> Comparison:
        if self.comparison is None:
            raise ParameterError("a plan that was read from a file has no comparison; plan again")
        return self.comparison

    def _table(self) -> list[tuple[str, ...]]:
        compared = self._compared()
        segment = f"{compared.shown_share:.0%} segment"
        return [
            ("", "std error", "sampling", "privacy", "detectable", segment, "detectable"),
            *(_row(option, chosen=option.name == compared.chosen) for option in compared.options),
        ]

    def _around(self, compared: Comparison) -> list[str]:
        """The line above the table, and the lines below it."""
        layout, choice = compared.scenario.layout, compared.choice
        numbers = choice.mechanism.parameters(self.options.space)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        lines = [
            (
                f"{counted(layout.n_units, 'unit')}, {counted(len(layout.clusters), 'cluster')}, "
                f"{counted(len(layout.arms), 'arm')}; epsilon {compared.epsilon:g}; no outcome was "
                "read"
            ),
            f"recommended: {choice.name}" + (f" ({shown})" if shown else ""),
            f"because: {compared.reason}",
            f"assumed: {self.options.assumption(layout)}",
            f"guarantee: {choice.mechanism.guarantee(self.options.space).in_short()}",
        ]
        notes = (*self.notes, *disclosure_notes(choice.mechanism, self.options.space))
        lines += [f"note: {note}" for note in notes]
        if compared.segment_share == 1 and choice.mechanism.find(NoisySums) is not None:
            lines.append(
                "for small segments rather than the overall effect, plan with segment_share "
                "(--segment-share)"
            )
        return lines

    def _remarks(self) -> list[str]:
        compared = self.comparison
        if compared is None:
            return []
        layout, (_, _, overall, segment) = compared.scenario.layout, compared.choice
        table = f"{counted(layout.n_units, 'unit')} in {counted(len(layout.clusters), 'cluster')}"
        remarks = [
            f"A plan for {table}: {compared.reason}.",
            f"Assumed: {self.options.assumption(layout)}.",
            f"Expected standard error of the overall effect: {overall.std_error:.4g}",
        ]
        if segment is not None:
            share = f"{compared.shown_share:.0%}"
            remarks.append(f"and in a segment of {share}: {segment.std_error:.4g}.")
        return remarks


def with_plan(given: Mapping[str, Any], plan: Plan | str | os.PathLike[str] | None) -> Options:
    """The options of a release: those of a plan, with those of the table and the output.

    Raises:
        ParameterError: If an option was given that the plan decides.
    """
    if plan is None:
        return parse_options(given)
    planned = plan if isinstance(plan, Plan) else Plan.load(plan)
    for name in DECIDED:
        if given.get(name) is not None:
            raise ParameterError(f"{name} is decided by the plan; leave out {name}")
    return change_options(planned.options, given)


def _row(option: Option, *, chosen: bool) -> tuple[str, ...]:
    segment = option.segment
    return (
        ("* " if chosen else "") + option.name,
        *(f"{number:.4g}" for number in (*option.overall, option.overall.detectable_effect)),
        "no rows" if segment is None else f"{segment.std_error:.4g}",
        "" if segment is None else f"{segment.detectable_effect:.4g}",
    )


def _prediction(prediction: Prediction) -> dict[str, float]:
    return {**prediction._asdict(), "detectable_effect": prediction.detectable_effect}
