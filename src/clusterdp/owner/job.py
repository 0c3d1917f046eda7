"""A release to be made: the table, the options, the mechanism, and who runs it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from clusterdp.errors import ParameterError, notify_owner
from clusterdp.ledger.ledger import Ledger, open_ledger
from clusterdp.ledger.paid_release import PopulationBudget
from clusterdp.ledger.statement import resume_in_python
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.outcomes.baseline import QUICK_CATEGORIES
from clusterdp.owner.plan import (
    by_name,
    engine_for,
    release_request,
    table_name,
)
from clusterdp.planning.decide import decide
from clusterdp.releasing.prepare import prepare
from clusterdp.spec.experiment import ExperimentFile, is_experiment
from clusterdp.spec.fields import DECIDED
from clusterdp.spec.request import check_ledger_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager, ExitStack

    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import Engine
    from clusterdp.owner.plan import Plan
    from clusterdp.planning.decide import Draft
    from clusterdp.published.earlier import EarlierFolder
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.spec.request import Request
    from clusterdp.spec.spec import ReleaseSpec


# The variable of the environment that makes a ledger compulsory, unless it is empty or 0.
REQUIRE_LEDGER = "CLUSTERDP_REQUIRE_LEDGER"
# Rows that are read once more in no time, before anything is spent.
FEW_ROWS = 2**16


def _ignore(message: str) -> None:
    """Drop a message that nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJob:
    """A release to be made.

    Attributes:
        source: The table: a frame, or a name.
        request: What was asked for.
        experiment: The experiment file that asks for it, or None.
        mechanisms: Mechanisms made by hand, one for each question; None if the options choose them.
        ledger: A ledger that is open already; None if the options name it.
        notify: Takes messages for the owner.
        ask: Asks the owner for the passphrase of a ledger; None if there is nobody to ask.
        resume_hint: How to finish a release, given its id; None for the command line.
    """

    source: Any
    request: Request
    experiment: ExperimentFile | None = None
    mechanisms: tuple[Mechanism, ...] | None = None
    ledger: Ledger | None = None
    notify: Callable[[str], None] = _ignore
    ask: Callable[[], str | None] | None = None
    resume_hint: Callable[[str], str] | None = None

    def locating(self) -> AbstractContextManager[None]:
        """Errors name lines of the experiment file, if there is one."""
        return nullcontext() if self.experiment is None else self.experiment.locating()

    def open_engine(self, stack: ExitStack) -> Engine:
        """What reads the table; `stack` closes what it opens."""
        options = self.request.options
        return engine_for(by_name(self.source, options), options, stack, self.notify)

    def open_table(
        self, draft: Draft, engine: Engine, out: str | None, source: Any = None
    ) -> OpenTable:
        """The table, with its public columns read.

        Args:
            draft: The request, with its questions.
            engine: What reads it.
            out: Where it is going to be published; None if it is not.
            source: Read this in place of the task's table.
        """
        request, options = self.request, self.request.options
        options.require("unit")
        for note in request.declared.turned_label_notes:
            notify_owner(note)
        opened = prepare(
            by_name(self.source if source is None else source, options),
            columns=draft.columns,
            spaces=draft.spaces,
            control=options.control,
            clusters=request.clusters,
            clip=bool(options.clip),
            keep_order=bool(options.keep_order),
            show_row_counts=bool(options.show_row_counts),
            aggregates=request.aggregates,
            notation=draft.notation,
            engine=engine,
            out=out,
        )
        return replace(opened, layout=draft.with_design(opened.layout))

    def check_rows(self, opened: OpenTable, budget: PopulationBudget | None = None) -> OpenTable:
        """Check every row before a mechanism is chosen, and show the owner what nets catch.

        Where the table is large, and choosing a mechanism is not slow, rows are checked as they are
        counted. A release that its ledger does not allow is refused without reading an outcome;
        private clusters are checked with their labels.

        Raises:
            DataError: If a row breaks a rule.
        """
        slow = any(space.n_categories > QUICK_CATEGORIES for space in opened.table.spaces)
        asked = self.request.budget
        affordable = budget is None or budget.allows(None if asked.delta else asked.epsilon)
        small = opened.layout.n_units <= FEW_ROWS
        if (slow or small) and affordable and opened.clusters.response is None:
            return opened.telling(opened.count().notices)
        return opened

    def decide(self, draft: Draft, layout: Layout) -> ReleaseSpec:
        """What is published: by mechanisms made by hand, or by the best that the options allow."""
        if self.mechanisms is None:
            return decide(draft, layout)
        n_questions = len(draft.questions)
        if len(self.mechanisms) != n_questions:
            raise ParameterError(
                f"mechanism must be one for each question, got {len(self.mechanisms)} for "
                f"{n_questions}; give a list of {n_questions}, or the name of a mechanism"
            )
        made = [
            msgspec.structs.replace(one, asked=question.asked) if one.releases_rows else one
            for one, question in zip(self.mechanisms, draft.questions, strict=True)
        ]
        return decide(draft, layout, made)

    def open_budget(self, earlier: Sequence[EarlierFolder] = ()) -> PopulationBudget | None:
        """The budget that the release spends; None if it spends from no ledger.

        Args:
            earlier: The folders that it continues.
        """
        options = self.request.options
        if options.ledger is None:
            if earlier:
                raise ParameterError(
                    "continues (--continues) needs the ledger that the earlier batches spent from, "
                    "which knows them all: give ledger=... and population=... (--ledger, "
                    "--population)"
                )
            check_ledger_named(options)
            require_ledger("give ledger=... and population=... (--ledger, --population)")
            return None
        check_ledger_named(options)
        budget = self.budget_of(options.population)
        return replace(budget, continues=tuple(one.checksum for one in earlier))

    def budget_of(self, population: str | None) -> PopulationBudget:
        """The budget of a population; None if the ledger is to name it."""
        options = self.request.options
        key_file = None if options.ledger_key_file is None else Path(options.ledger_key_file)
        return PopulationBudget(
            self.ledger or open_ledger(options.ledger or "", key_file, self.ask),
            population,
            confirmed_new=bool(options.new_population),
            on_message=self.notify,
            resume_hint=self.resume_hint,
        )


def require_ledger(remedy: str) -> None:
    """Raise a ParameterError if the environment makes ledgers compulsory."""
    if os.environ.get(REQUIRE_LEDGER, "") not in {"", "0"}:
        raise ParameterError(
            f"{REQUIRE_LEDGER} is set, so that every release spends from a ledger: {remedy}"
        )


def python_job(
    source: Any, plan: Plan | str | os.PathLike[str] | None, given: Mapping[str, Any]
) -> ReleaseJob:
    """The task of a call in Python, whose ledger and mechanism may be made already."""
    ledger, mechanism = given.get("ledger"), given.get("mechanism")
    if not isinstance(ledger, str | os.PathLike | Ledger | None):
        kind = type(ledger).__name__
        raise ParameterError(f"ledger must be a file, a URL or a Ledger, got {kind}")
    asked = {
        **given,
        "input": table_name(source),
        "ledger": None if ledger is None else str(ledger),
    }
    listed = list(mechanism) if isinstance(mechanism, list | tuple) else [mechanism]
    by_hand = tuple(one for one in listed if isinstance(one, Mechanism))
    if by_hand and len(by_hand) == len(listed):
        del asked["mechanism"]
        _refuse_clash(asked, plan)
    experiment = ExperimentFile.read(source) if is_experiment(source) else None
    request = release_request(asked, plan, experiment)
    if experiment is not None:
        source = request.options.input
    if len(by_hand) == 1 and request.outcomes is not None and not request.outcomes.questions:
        request = request.in_one_question()
    return ReleaseJob(
        source=source,
        request=request,
        experiment=experiment,
        mechanisms=by_hand or None,
        ledger=ledger if isinstance(ledger, Ledger) else None,
        resume_hint=lambda release_id: _resume_hint(release_id, source, str(ledger)),
    )


def _resume_hint(release_id: str, source: Any, ledger: str) -> str:
    """How to finish a release in Python; the ledger knows a table by its name."""
    if source is not None and table_name(source) is None:
        return resume_in_python(release_id, ledger)
    return f"clusterdp.resume({release_id!r}, ledger={ledger!r})"


def _refuse_clash(asked: Mapping[str, Any], plan: Any) -> None:
    """Raise a ParameterError if something else decides what a mechanism made by hand decides."""
    if plan is not None:
        raise ParameterError("give a plan, which decides the mechanism, or a mechanism; not both")
    for name in (*DECIDED, "covariate"):
        if name != "question" and asked.get(name) is not None:
            raise ParameterError(
                f"{name} belongs to a mechanism by name; this one was made with its own: leave out "
                f"{name}"
            )
