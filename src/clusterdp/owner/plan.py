"""Plan a release before any outcome is read: compare mechanisms, recommend one, write it down."""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from clusterdp.document.text import terminal_width
from clusterdp.engines.cells import CellOptions
from clusterdp.errors import ParameterError, missing_column
from clusterdp.estimation.metrics.sample_ratio import arm_share_notes
from clusterdp.owner.clusters import cost_notes, label_notes
from clusterdp.owner.fields import DECIDED, DECLARATION
from clusterdp.owner.keywords import PlanKeywords, takes
from clusterdp.owner.parse import change_options, parse_options, read_options, write_options
from clusterdp.owner.plan_page import plan_page
from clusterdp.owner.plan_report import PlanReport
from clusterdp.owner.question_report import Report
from clusterdp.planning.advice import advise_look
from clusterdp.planning.compare import compare, n_steps, smallest_epsilon, to_options, with_looks
from clusterdp.planning.request import assumed_of
from clusterdp.precision.true_clusters import TrueClusters
from clusterdp.releasing.prepare import open_engine, read_cells
from clusterdp.releasing.targets import Silence
from clusterdp.rows.frames import column_names
from clusterdp.sources.source import named_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import Engine, Stages
    from clusterdp.owner.options import Options
    from clusterdp.planning.compare import Comparison


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


def make_plan(source: Any, options: Options, progress: Stages | None = None) -> Plan:
    """The plan that options describe; `progress` is told what is being done."""
    stages = progress or Silence()
    options.require("arm", "outcomes")
    if options.epsilon is None and options.mde is None:
        raise ParameterError(
            "missing: epsilon; give epsilon=..., the budget (--epsilon); or mde=..., the effect to "
            "find (--mde), and the smallest epsilon for it is found"
        )
    if options.epsilon is not None and options.mde is not None:
        raise ParameterError("epsilon and mde exclude each other: leave out mde (--mde)")
    _ = options.provenance  # what is said there is checked
    options = options.with_labels()
    layout, notes = _read_cells(source, options)
    stages.stage("questions and grids", 0)
    given, chosen_notes = options, options.chosen.notes
    # Questions and grids stay as they are when the budget is found.
    options = options.with_grids()
    scenarios, epsilon = options.scenarios(layout), options.epsilon
    if epsilon is None:
        stages.stage("smallest epsilon", 0)
        *target, effect = options.target
        least = smallest_epsilon(options.requests(), effect, scenarios, (target[0], target[1]))
        whole = least * options.n_sharing + (options.private_cluster or 0.0)
        epsilon = math.ceil(1000 * whole - 1e-9) / 1000
    requests = options.requests(epsilon)
    on_done = stages.stage("mechanisms", n_steps(requests))
    comparisons = _with_advice(compare(requests, scenarios, on_done), options, epsilon)
    decided = dict.fromkeys(DECIDED) | {"question": options.question, "grids": options.grids}
    decided |= to_options(comparisons) | {"epsilon": epsilon}
    kept = options.to_dict() | decided | {"out": None, "ledger": None, "population": None}
    if options.size is not None:
        kept["input"] = None  # what is released has other rows
    kept |= {"n_units": layout.n_units, "n_clusters": layout.n_clusters}
    every_note = (
        *notes,
        *arm_share_notes(layout, options.assigned_by),
        *assignment_notes(options, layout),
        *label_notes(options, layout),
        *cost_notes(options, layout, comparisons[0]),
        *_outcome_notes(source, options),
        *options.declaration.declared.turned_label_notes,
        *_later_notes(options),
        *chosen_notes,
    )
    pairs = zip(comparisons, options.spaces, strict=True)
    labels, private = options.private_labels, None
    if labels is not None:
        private = TrueClusters(options.columns.cluster or "", labels.response)
    reports = tuple(
        Report(
            comparison=one,
            space=space,
            assumed=assumed_of(space, one.scenario),
            private=private,
        )
        for one, space in pairs
    )
    report = PlanReport(given=given, questions=reports, notes=every_note)
    return Plan(options=parse_options(kept), report=report)


def _with_advice(
    comparisons: tuple[Comparison, ...], options: Options, epsilon: float
) -> tuple[Comparison, ...]:
    """The comparisons with looks where these pay and none was asked for or declined."""
    if options.look is not None:
        return comparisons
    advice = [
        advise_look(one.choice.mechanism, one.scenario, space, one.epsilon)
        for one, space in zip(comparisons, options.spaces, strict=True)
    ]
    share = max((one.share for one in advice if one is not None), default=None)
    if share is None:
        return comparisons
    looking = msgspec.structs.replace(options, look=share)
    shared = [None if one is None else one._replace(share=share) for one in advice]
    return with_looks(comparisons, shared, [one.look for one in looking.requests(epsilon)])


def assignment_notes(options: Options, layout: Layout) -> list[str]:
    """What predictions assume where arms are assigned to groups, and what would help."""
    by, groups = options.assigned_by, layout.assigned
    if by is None or groups is None:
        return []
    why = ""
    if options.group_correlation is None:
        why = ", because nothing was declared; give group_correlation=... (--group-correlation)"
    share = f"{100 * groups.correlation:.3g}%"
    assumed = (
        f"arms are assigned by {by}: {share} of the variance is taken to be between its groups"
    )
    totals = (
        f"totals of the groups of {by} make intervals shorter: declare {by} as a breakdown, too"
    )
    return [assumed + why, *([] if (by,) in options.breakdowns else [totals])]


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
    return options.with_design(layout), notes


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

    def to_html(self, progress: Stages | None = None) -> str:
        """A page for a browser: what can be detected against ε, and where ε goes.

        What a plan would be at other budgets is computed first.

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
