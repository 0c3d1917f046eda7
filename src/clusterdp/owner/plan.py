"""Plan a release before any outcome is read: compare mechanisms, recommend one, write it down."""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from clusterdp._tables import terminal_width
from clusterdp.engines.cells import CellOptions
from clusterdp.engines.named_source import named_source
from clusterdp.errors import ParameterError
from clusterdp.estimation.layout_notes import arm_share_notes
from clusterdp.experiment.missing import missing_column
from clusterdp.owner.block_report import Report
from clusterdp.owner.keywords import PlanKeywords, takes
from clusterdp.owner.label_notes import cost_notes, label_notes
from clusterdp.owner.option_list import DECIDED, DECLARATION, REQUESTED
from clusterdp.owner.parsing import change_options, parse_options, read_options, write_options
from clusterdp.owner.plan_page import plan_page
from clusterdp.owner.plan_report import PlanReport
from clusterdp.planning.assumptions import assumed_of
from clusterdp.planning.figure import trade_off_plot
from clusterdp.planning.look_advice import advise_look
from clusterdp.planning.plan import compare, smallest_epsilon, to_options, with_look
from clusterdp.releasing.prepare import open_engine, read_cells
from clusterdp.releasing.to_folder import Silence
from clusterdp.rows.frames import column_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.figure import Figure

    from clusterdp.engines.base import Engine, Stages
    from clusterdp.experiment.layout import Layout
    from clusterdp.owner.options import Options
    from clusterdp.planning.plan import Comparison


@takes(PlanKeywords)
def plan(source: Any, **options: Unpack[PlanKeywords]) -> Plan:
    """Compare every mechanism and recommend one, before any outcome is read.

    The columns of units and outcomes need not be in the table; a release needs them. Give epsilon
    or mde.

    Args:
        source: A table with one row per unit: a pandas, Polars, PyArrow, DuckDB or Spark frame, or
            the name of a file, a folder or a glob, or the URL of a database, with a query. Only its
            arms and clusters are read.
        **options: Options of the table, the mechanism and the engine.

    Raises:
        ParameterError: If a parameter is wrong.
        DataError: If the table breaks a rule.
    """
    return make_plan(source, parse_options({**options, "input": table_name(source)}))


def table_name(source: Any) -> str | None:
    """The name of a table; None for a frame."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else None


def make_plan(source: Any, options: Options) -> Plan:
    """The plan that options describe."""
    options.require("arm", "outcomes")
    if options.epsilon is None and options.mde is None:
        raise ParameterError(
            "missing: epsilon; give epsilon=..., the budget (--epsilon); or mde=..., the effect to "
            "find (--mde), and the smallest epsilon for it is found"
        )
    if options.epsilon is not None and options.mde is not None:
        raise ParameterError("epsilon and mde exclude each other: leave out mde (--mde)")
    options = options.with_labels()
    layout, notes = _read_cells(source, options)
    given, chosen_notes = options, options.chosen.notes
    # Blocks and grids stay as they are when the budget is found.
    options = options.with_grids()
    chosen, scenarios = options.chosen, options.scenarios(layout)
    epsilon = options.epsilon
    if epsilon is None:
        block, metric, effect = options.target
        least = smallest_epsilon(options.requests()[block], effect, scenarios[block], metric)
        whole = least / chosen.blocks[block].share + (options.private_cluster or 0.0)
        epsilon = math.ceil(1000 * whole - 1e-9) / 1000
    comparisons = tuple(map(compare, options.requests(epsilon), scenarios))
    if len(comparisons) == 1:
        comparisons = (_with_advice(comparisons[0], options),)
    decided = dict.fromkeys(DECIDED) | {"block": options.block, "grids": options.grids}
    decided |= to_options(comparisons[0]) if len(comparisons) == 1 else _given(options)
    decided |= {"epsilon": epsilon}
    kept = options.to_dict() | decided | {"out": None, "ledger": None, "population": None}
    if options.size is not None:
        kept["input"] = None  # what is released has other rows
    kept |= {"n_units": layout.n_units, "n_clusters": layout.n_clusters}
    every_note = (
        *notes,
        *arm_share_notes(layout, options.assigned_by),
        *assignment_notes(options.assigned_by),
        *label_notes(options, layout),
        *cost_notes(options, layout, comparisons[0]),
        *_outcome_notes(source, options),
        *options.declaration.declared.turned_label_notes,
        *_later_notes(options),
        *chosen_notes,
    )
    pairs = zip(comparisons, options.spaces, strict=True)
    labels = options.private_labels
    label_epsilon = 0.0 if labels is None else labels.response.guarantee().epsilon
    reports = tuple(
        Report.of(one, space, assumed_of(space, one.scenario), label_epsilon)
        for one, space in pairs
    )
    report = PlanReport(given=given, blocks=reports, notes=every_note)
    return Plan(options=parse_options(kept), report=report)


def _given(options: Options) -> dict[str, Any]:
    """What a plan of several blocks decides beside the blocks; splits within them are left open.

    A release splits the ε of each block as the plan did, if it has as many units.
    """
    given = {name: getattr(options, name) for name in REQUESTED}
    return {**given, "mechanism": options.requests()[0].mechanism}


def _with_advice(comparison: Comparison, options: Options) -> Comparison:
    """The comparison of one block, with a look where it pays and none was asked for or declined."""
    if options.look is not None:
        return comparison
    (space,) = options.spaces
    advice = advise_look(
        comparison.choice.mechanism, comparison.scenario, space, comparison.epsilon
    )
    return comparison if advice is None else with_look(comparison, advice)


def assignment_notes(assigned_by: str | None) -> list[str]:
    """What predictions leave out where arms are assigned to groups."""
    if assigned_by is None:
        return []
    note = (
        f"arms are assigned by {assigned_by}: standard errors above are of units; those of "
        f"estimates are larger, by as much as the groups of {assigned_by} differ. Totals of these "
        f"groups make intervals shorter: declare {assigned_by} as a breakdown, too"
    )
    return [note]


def _later_notes(options: Options) -> list[str]:
    """A note about what a release publishes or records, and nobody can add to it later."""
    unsaid = [f"--{name}" for name in options.unsaid]
    note = (
        f"what cannot be added after the release: {', '.join([*unsaid, '--ledger'])}; give it to "
        "release, all but the ledger here as well"
    )
    return [note]


def _outcome_notes(source: Any, options: Options) -> list[str]:
    """Notes on columns of outcomes that a frame lacks: it may be planned before there are any."""
    if options.size is not None or table_name(source) is not None:
        return []
    names = column_names(source)
    return [
        f"{missing_column(name, 'outcome', names)}; a release needs it"
        for name in options.declaration.declared.names
        if name not in names
    ]


def _read_cells(source: Any, options: Options) -> tuple[Layout, tuple[str, ...]]:
    asked = CellOptions.of(options.columns, options.control, options.size)
    if options.aggregates and options.size is None:
        options.require("unit")
        asked = asked._replace(unit=options.unit)
    table = by_name(source, options)
    with ExitStack() as stack:
        engine = engine_for(table, options, stack)
        layout, notes = read_cells(
            table, asked, options.min_cell_size, engine, options.private_labels
        )
    return options.with_arm_shares(layout), notes


def by_name(source: Any, options: Options) -> Any:
    """A table that has a name, with what the options say about reading it; a frame as it is."""
    return named_source(source, options.query, options.delimiter)


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
        report: What was compared; None for a plan that was read from a file.
    """

    options: Options
    report: PlanReport | None = None

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
        remarks = [] if self.report is None else self.report.remarks()
        write_options(self.options, Path(path), remarks)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the owner should know about the table and the reference."""
        return () if self.report is None else self.report.notes

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Standard errors against ε for every mechanism; written to a file if one is given."""
        first = self._reported().blocks[0]
        place = None if path is None else Path(path)
        return trade_off_plot(first.comparison, first.metrics[0], place)

    def to_html(self, progress: Stages | None = None) -> str:
        """A page for a browser: what can be detected against ε, and where ε goes.

        What a plan would be at other budgets is computed first, which can take a minute.

        Args:
            progress: Where that reports to.
        """
        return plan_page(self._reported(), self.options.epsilon or 0.0, progress or Silence())

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return self._reported().to_dict()

    def __repr__(self) -> str:
        if self.report is not None:
            return self.report.as_text(terminal_width())
        held = self.options.to_dict().items()
        return "\n".join(["a plan", *(f"  {name}: {value}" for name, value in held)])

    def _repr_html_(self) -> str:
        if self.report is None:
            return f"<pre>{escape(repr(self))}</pre>"
        return self.report.as_html()

    def _reported(self) -> PlanReport:
        if self.report is None:
            raise ParameterError("a plan that was read from a file has no comparison; plan again")
        return self.report


def with_plan(given: Mapping[str, Any], plan: Plan | str | os.PathLike[str] | None) -> Options:
    """The options of a release: those of a plan, with those of the table and the output.

    Raises:
        ParameterError: If an option was given that the plan decides.
    """
    if plan is None:
        return parse_options(given)
    planned = plan if isinstance(plan, Plan) else Plan.load(plan)
    for name in (*DECIDED, *DECLARATION):
        if given.get(name) is not None:
            raise ParameterError(f"{name} is decided by the plan; leave out {name}")
    return change_options(planned.options, given)
