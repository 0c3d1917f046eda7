"""Plan a release before any outcome is read: compare mechanisms, recommend one, write it down."""

from __future__ import annotations

import json
import math
import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from clusterdp._progress import NoProgress, counting_channels
from clusterdp.document.markup import to_html
from clusterdp.document.model import KeyNumbers
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.engines.cells import CellOptions
from clusterdp.errors import (
    FormatError,
    LedgerError,
    OutputError,
    ParameterError,
    missing_column,
)
from clusterdp.estimation.metrics.sample_ratio import arm_share_notes
from clusterdp.ledger.ledger import Ledger
from clusterdp.owner.keywords import PlanKeywords, or_draft, plan_line, release_line, takes
from clusterdp.planning.advice import advise_pilot
from clusterdp.planning.alternatives import cost_notes, smallest_epsilon
from clusterdp.planning.compare import (
    compare,
    mechanism_options,
    n_steps,
    with_pilots,
)
from clusterdp.planning.decide import Draft
from clusterdp.planning.page import plan_page
from clusterdp.planning.report import PlanReport, QuestionReport
from clusterdp.privacy.accounting import ReleaseLoss, any_loss
from clusterdp.published.folder import read_manifest
from clusterdp.published.manifest import checksum_of
from clusterdp.releasing.prepare import open_engine, read_cells
from clusterdp.rows.column_types import check_unread
from clusterdp.rows.frames import column_names
from clusterdp.sources.opening import scan_files
from clusterdp.sources.source import ColumnRequest, NamedSource, named_source
from clusterdp.spec.experiment import (
    LOCK_SUFFIX,
    ExperimentFile,
    is_experiment,
    read_lock,
    write_lock,
)
from clusterdp.spec.fields import DECIDED, DECLARATION, DECLARED, PLACES
from clusterdp.spec.file_terms import in_file_terms
from clusterdp.spec.parse import change_options, parse, parse_options
from clusterdp.spec.request import check_ledger_named
from clusterdp.storage.folder import LocalFolder, has_scheme

# How a plan says that its release cannot be.
WOULD_BE_REJECTED = "A release would be rejected"

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clusterdp._progress import Progress
    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import Engine
    from clusterdp.planning.compare import MechanismComparison
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.spec.fields import Options
    from clusterdp.spec.request import Request


@takes(PlanKeywords)
def plan(source: Any, **options: Unpack[PlanKeywords]) -> Plan:
    """Predict what can be measured, and choose a mechanism. Reads no outcome.

    The columns of units and outcomes need not be in the table; a release needs them. Give epsilon
    or mde.

    Args:
        source: An experiment file (`experiment.toml`), or a table with one row per unit: a pandas,
            Polars, PyArrow, DuckDB or Spark frame, or the name of a file, a folder or a glob, or
            the URL of a database, with a query. Only its arms and clusters are read.
        **options: Options of the table, the mechanism and the engine. They override the experiment
            file.

    Raises:
        ParameterError: If a parameter is wrong.
        DataError: If the table breaks a rule.
    """
    return plan_source(source, options)


def plan_source(source: Any, given: Mapping[str, Any], progress: Progress | None = None) -> Plan:
    """The plan of a table; or of an experiment file, with what is given in place of what it says.

    `progress` is told what is being done.
    """
    if not is_experiment(source):
        name = table_name(source)
        request = parse({**given, "input": name})
        if name is not None:
            request.options.require("arm", "outcomes", otherwise=or_draft(name))
        return make_plan(source, request, progress)
    experiment = ExperimentFile.read(source)
    options = experiment.options
    if given.get("mde") is not None:  # an effect to find takes the place of the budget
        options = msgspec.structs.replace(options, epsilon=None)
    with experiment.locating():
        request = parse(change_options(options, {**given, "input": None}))
        request.options.require("input", *(() if request.options.size else ("unit",)))
        made = make_plan(request.options.input, request, progress)
    return made.made_from(experiment)


def table_name(source: Any) -> str | None:
    """The name of a table; None for a frame."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else None


def make_plan(source: Any, request: Request, progress: Progress | None = None) -> Plan:
    """The plan that a request describes; `progress` shows what is being done."""
    stages, options = progress or NoProgress(), request.options
    options.require("arm", "outcomes")
    if options.epsilon is None and options.mde is None:
        raise ParameterError(
            "missing: the budget. Fix: give epsilon=... (--epsilon). Or give mde=... (--mde), the "
            "effect to find: the smallest epsilon for it is found."
        )
    if options.epsilon is not None and options.mde is not None:
        raise ParameterError("epsilon and mde exclude each other: leave out mde (--mde)")
    with counting_channels(stages.stage("randomizers compared", 0)):
        return _compared(source, request, stages)


def _compared(source: Any, request: Request, stages: Progress) -> Plan:
    """The plan of a request that has a budget, or an effect to find."""
    options = request.options
    # Questions and grids stay as they are when the budget is found.
    draft = Draft.from_request(request)
    layout, notes = _read_cells(source, draft)
    unwritten = _outcome_notes(source, request)
    scenarios, epsilon = draft.scenarios(layout), options.epsilon
    if epsilon is None:
        on_tried = stages.stage("budgets tried for the smallest epsilon", 0)
        *target, effect = draft.target()
        at = target[0], target[1]
        least = smallest_epsilon(draft.budgets(), effect, scenarios, at, on_tried)
        whole = least * draft.n_sharing + (options.private_cluster or 0.0)
        epsilon = math.ceil(1000 * whole - 1e-9) / 1000
    budgets = draft.budgets(epsilon)
    on_done = stages.stage("mechanisms", n_steps(budgets))
    comparisons = _with_advice(compare(budgets, scenarios, on_done), draft, epsilon)
    every_note = (
        *notes,
        *arm_share_notes(layout, options.randomization_unit),
        *assignment_notes(request, layout),
        *request.clusters.notes(draft.columns, layout),
        *cost_notes(draft, layout, comparisons[0]),
        *unwritten,
        *request.declared.turned_label_notes,
        *draft.notes,
    )
    response = request.clusters.response
    private = None if response is None else (options.cluster or "", response)
    reports = tuple(
        QuestionReport(comparison=comparison, outcomes=question, private=private)
        for comparison, question in zip(comparisons, draft.questions, strict=True)
    )
    report = PlanReport(request=request, questions=reports, notes=every_note)
    return Plan(options=_decided(draft, layout, comparisons, epsilon), report=report)


def _decided(
    draft: Draft, layout: Layout, comparisons: tuple[MechanismComparison, ...], epsilon: float
) -> Options:
    """The options of a plan: what was given, and what was decided in place of the rest."""
    fixed = draft.to_options()
    decided = dict.fromkeys(DECIDED) | {name: fixed.get(name) for name in ("question", "grids")}
    decided |= mechanism_options(comparisons) | {"epsilon": epsilon}
    kept = fixed | decided | dict.fromkeys(("out", "ledger", "population", "continues"))
    if draft.request.options.size is not None:
        kept["input"] = None  # what is released has other rows
    return parse_options(kept | {"n_units": layout.n_units, "n_clusters": layout.n_clusters})


def _with_advice(
    comparisons: tuple[MechanismComparison, ...], draft: Draft, epsilon: float
) -> tuple[MechanismComparison, ...]:
    """The comparisons with pilots where these pay and none was asked for or declined."""
    request = draft.request
    if request.budget.pilot is not None:
        return comparisons
    advice = [
        advise_pilot(one.choice.mechanism, one.scenario, space, one.epsilon)
        for one, space in zip(comparisons, draft.spaces, strict=True)
    ]
    share = max((one.share for one in advice if one is not None), default=None)
    if share is None:
        return comparisons
    looking = replace(draft, request=replace(request, budget=replace(request.budget, pilot=share)))
    shared = [None if one is None else one._replace(share=share) for one in advice]
    return with_pilots(comparisons, shared, [one.pilot for one in looking.budgets(epsilon)])


def assignment_notes(request: Request, layout: Layout) -> list[str]:
    """What predictions assume where arms are assigned to groups, and what would help."""
    by, groups = request.options.randomization_unit, layout.assigned
    if by is None or groups is None:
        return []
    why = ""
    if request.options.group_correlation is None:
        why = ", because nothing was declared; give group_correlation=... (--group-correlation)"
    share = f"{100 * groups.correlation:.3g}%"
    assumed = (
        f"arms are assigned by {by}: {share} of the variance is assumed to be between its groups"
    )
    totals = (
        f"totals of the groups of {by} can make CIs shorter: compare with a plan that has {by} as "
        "a breakdown, too"
    )
    return [assumed + why, *([] if (by,) in request.breakdowns else [totals])]


def _outcome_notes(source: Any, request: Request) -> list[str]:
    """Notes on columns of outcomes that a table lacks: it may be planned before there are any.

    Raises:
        DataError: If a column is there, and its type cannot hold the outcome.
    """
    import polars as pl

    options, table = request.options, by_name(source, request.options)
    is_named = isinstance(table, NamedSource)
    if options.size is not None or (is_named and (table.database or options.engine == "spark")):
        return []
    files = scan_files(table, ColumnRequest(public=())) if is_named else None
    typed = source if files is None else files
    names = column_names(source) if files is None else files.collect_schema().names()
    if isinstance(typed, pl.DataFrame | pl.LazyFrame):
        check_unread(typed.collect_schema(), request.declared.names, request.declared.labels)
    return [
        f"{missing_column(name, 'outcome', names)} A release needs the column."
        for name in request.declared.names
        if name not in names
    ]


def _read_cells(source: Any, draft: Draft) -> tuple[Layout, tuple[str, ...]]:
    options = draft.request.options
    asked = CellOptions(draft.columns, options.control, options.size)
    if draft.request.aggregates and options.size is None:
        options.require("unit")
        asked = asked._replace(several_rows=True)
    table = by_name(source, options)
    with ExitStack() as stack:
        engine = engine_for(table, options, stack)
        layout, notes = read_cells(table, asked, draft.request.clusters, engine)
    return draft.with_design(layout), notes


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
    """What to release, decided before any outcome is read.

    Attributes:
        options: Everything that was given or decided, as a lock holds it.
        report: The comparison; None for a plan that was read from a lock.
        experiment: The experiment file that it was made from; None if there was none.
    """

    options: Options
    report: PlanReport | None = None
    experiment: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """A plan that was saved."""
        if not isinstance(path, str | os.PathLike):
            kind = type(path).__name__
            raise ParameterError(f"plan must be a Plan or the path of a lock, got {kind}")
        options = read_lock(Path(path))
        if options.mechanism is None or options.epsilon is None:
            raise ParameterError(f"{path} is not a plan: it names no mechanism and epsilon")
        return cls(options=options)

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write it as a lock, to be reviewed and kept.

        Args:
            path: Where; by default next to the experiment file it was made from.

        Returns:
            Where it is.
        """
        if path is None and self.experiment is None:
            raise ParameterError("this plan has no experiment file: say where to save it")
        place = (self.experiment or Path()).with_suffix(LOCK_SUFFIX) if path is None else Path(path)
        write_lock(self.options, place, [] if self.report is None else self.report.remarks())
        return place

    def made_from(self, experiment: ExperimentFile) -> Plan:
        """The same plan, as that of an experiment file."""
        options = msgspec.structs.replace(self.options, experiment=experiment.checksum)
        report = self.report
        if report is not None:
            budget, rejected = _planned_spending(experiment, report.guarantee)
            rejected = rejected or _no_place(experiment)
            report = replace(report, budget=budget, rejected=rejected, for_file=True)
        return replace(self, options=options, report=report, experiment=experiment.path)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the owner should know about the table and the baseline."""
        return () if self.report is None else self.report.notes

    def to_html(self, progress: Progress | None = None) -> str:
        """A page for a browser: the minimum detectable effect against ε, and the split of ε.

        What a plan would be at other budgets is computed first.

        Args:
            progress: Where that reports to.
        """
        report, file = self._reported(), self.experiment
        name = None if file is None else file.name
        return plan_page(
            report,
            self.options.epsilon or 0.0,
            progress or NoProgress(),
            plan_at=partial(plan_line, report.request.options, experiment=name),
            release=release_line(name),
        )

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return self._reported().to_dict()

    def __repr__(self) -> str:
        if self.report is not None:
            return to_screen(self.report.parts(), terminal_width())
        held = self.options.to_dict().items()
        return "\n".join(["a plan", *(f"  {name}: {value}" for name, value in held)])

    def _repr_html_(self) -> str:
        if self.report is None:
            return f"<pre>{escape(repr(self))}</pre>"
        answer, *rest = self.report.parts()
        return to_html(answer, KeyNumbers(self.report.key_numbers()), *rest)

    def _reported(self) -> PlanReport:
        if self.report is None:
            raise ParameterError("a plan that was read from a lock has no comparison; plan again")
        return self.report


def _planned_spending(
    experiment: ExperimentFile, guarantee: Guarantee
) -> tuple[str | None, str | None]:
    """What a release would take from the ledger that a file names, and why it would be rejected.

    A plan spends nothing, so that a ledger that cannot be read is only noted.
    """
    options = experiment.options
    try:
        check_ledger_named(options)
        if options.ledger is None:
            return None, None
        earlier = [checksum_of(read_manifest(folder)) for folder in options.continues or ()]
        balance = Ledger(options.ledger).balance(options.population or "").continuing(earlier)
    except (FormatError, LedgerError, ParameterError) as error:
        of_ledger = None if options.ledger is None else f"of {options.ledger}"
        return of_ledger, in_file_terms(f"{WOULD_BE_REJECTED}: {error}")
    is_pure = not guarantee.delta
    losses = [ReleaseLoss(atoms=any_loss(guarantee.epsilon))] if is_pure else []
    # What a release loses may be less under tight composition than its guarantee says.
    if balance.allows(guarantee, losses) or (balance.tight and not is_pure):
        return balance.spends(guarantee), None
    why, fix = balance.why_not(guarantee), balance.remedy(guarantee)
    problem = f"{WOULD_BE_REJECTED}: {why}. Fix: {fix}."
    return balance.spends(guarantee, is_allowed=False), in_file_terms(problem)


def _no_place(experiment: ExperimentFile) -> str | None:
    """Why nothing can be published where a file says; addresses are not asked."""
    out = experiment.options.out
    if out is None or has_scheme(out):
        return None
    try:
        LocalFolder(Path(out)).check_free()
    except OutputError as error:
        return in_file_terms(f"{WOULD_BE_REJECTED}: {error}")
    return None


def release_request(
    given: Mapping[str, Any],
    plan: Plan | str | os.PathLike[str] | None = None,
    experiment: ExperimentFile | None = None,
    named: Callable[[str], str] = str,
) -> Request:
    """What is asked of a release: the options of a plan, with those of the table and the output.

    Of an experiment file it is exactly its lock.

    Args:
        given: The options of the release.
        plan: Its plan, or the path of a lock; None for none, or for the lock of the experiment.
        experiment: The experiment file that is released; None without a file.
        named: What the owner calls an option: its keyword, or its flag.

    Raises:
        ParameterError: If an experiment was not planned, or changed since, or an option was given
            that the plan decides.
    """
    if experiment is None:
        if plan is None:
            return parse(given)
        planned = _loaded(plan)
        lock = "the plan" if isinstance(plan, Plan) else Path(plan).name
        return _completed(planned, given, lock, named)
    again = f"clusterdp plan {experiment.path}"
    if plan is None and not experiment.lock.exists():
        raise ParameterError(
            f"{experiment.lock} is missing. Nothing was published. Plan first: {again}"
        )
    planned = _loaded(plan or experiment.lock)
    if planned.options.experiment != experiment.checksum:
        raise ParameterError(
            f"{experiment.path} changed after it was planned. Nothing was published. Plan again: "
            f"{again}"
        )
    asked = {name: value for name, value in given.items() if value is not None}
    asked["input"] = experiment.options.input  # what was given is the experiment file
    return _completed(planned, {**experiment.places, **asked}, experiment.lock.name, named)


def _loaded(plan: Plan | str | os.PathLike[str]) -> Plan:
    return plan if isinstance(plan, Plan) else Plan.load(plan)


def _completed(
    plan: Plan, given: Mapping[str, Any], lock: str, named: Callable[[str], str]
) -> Request:
    """A plan with what it leaves open.

    A plan of an experiment file has all that changes the experiment; other plans may lack the ids,
    and what is published unchanged.
    """
    decided = [*DECIDED, *DECLARATION]
    if plan.options.experiment is not None:
        decided = [name for name in DECLARED if name not in PLACES]
    for name in decided:
        if given.get(name) is not None:
            raise ParameterError(
                f"{named(name)} conflicts with {lock} ({_held(plan.options, name)}). Nothing was "
                f"published. Remove {named(name)}, or plan again with it."
            )
    return parse(change_options(plan.options, given))


def _held(options: Options, name: str) -> str:
    """What a plan holds of an option, in words."""
    value = getattr(options, name)
    if name == "epsilon":
        return f"ε = {value:g}"
    return (
        f"without {name}" if value is None else f"{name} = {json.dumps(value, ensure_ascii=False)}"
    )
