"""Answer a follow-up to a release: noisy totals of its groups, paid by the ledger, drawn once."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.errors import LedgerError, ParameterError, errors_about
from clusterdp.ledger.balance import budget_in_short
from clusterdp.ledger.history import AnsweredError, refuse_answered
from clusterdp.ledger.ledger import Ledger, open_ledger
from clusterdp.ledger.paid_release import PopulationBudget
from clusterdp.ledger.statement import resume_in_python
from clusterdp.owner.answering import AnswerTask, release_of
from clusterdp.owner.job import FEW_ROWS, ReleaseJob
from clusterdp.owner.plan import by_name, table_name
from clusterdp.owner.publish import Published, folder_writer, run_resume
from clusterdp.releasing.prepare import open_engine
from clusterdp.sources.source import FRAME
from clusterdp.spec.parse import parse
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._progress import Progress
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.owner.answering import AnswerPreview


def _ignore(message: str) -> None:
    """Drop a message that nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerJob:
    """An answer to be made.

    Attributes:
        followup: Where the follow-up is.
        epsilon: What its totals cost together.
        out: The folder to publish.
        ledger: The ledger that the release was published with, unlocked or not.
        source: The table: a frame, or a name; None for where it was when it was released.
        query: The query, if the table is in a database.
        delimiter: The delimiter, if it is a text file that needs one.
        release: Where the release is; None for where it was published.
        notify: Takes messages for the owner.
        resume_hint: How to finish an interrupted answer, given its id; None for the command line.
    """

    followup: str
    epsilon: float
    out: str
    ledger: Ledger
    source: Any = None
    query: str | None = None
    delimiter: str | None = None
    release: str | None = None
    notify: Callable[[str], None] = _ignore
    resume_hint: Callable[[str], str] | None = None

    def options(self, record: ReleaseRecord) -> dict[str, Any]:
        """What the owner declared of the table when it was released, and where it is now."""
        here = {
            "input": self.source if self.source is None else table_name(self.source) or FRAME,
            "query": self.query,
            "delimiter": self.delimiter,
        }
        told = {name: value for name, value in here.items() if value is not None}
        moved = {"query", "delimiter"} if "input" in told else set()
        kept = {
            name: value
            for name, value in record.content["options"].items()
            if name not in moved | {"out", "engine", "master"}
        }
        return {**kept, **told}


def run_answer(
    job: AnswerJob,
    *,
    show: Callable[[AnswerPreview], None] | None = None,
    publishes: bool = True,
    progress: Progress | None = None,
) -> Published | None:
    """Answer a follow-up; `show` is called before anything is spent.

    A follow-up that is answered already has that answer, at no further cost; an interrupted one is
    finished.

    Args:
        job: What is answered.
        show: Takes what would be published.
        publishes: Whether it is published; else it is shown, and None is returned.
        progress: Where a long run reports to.
    """
    try:
        return _answer(job, show, publishes=publishes, progress=progress)
    except AnsweredError as error:
        record = error.record
        if record.is_withdrawn:
            raise LedgerError(
                f"release {record.release_id} answered this follow-up, and was withdrawn. Nothing "
                "was spent. Fix: ask the analyst for another follow-up"
            ) from None
        if record.is_unfinished and not publishes:
            raise LedgerError(
                f"release {record.release_id}, which answers this follow-up, is unfinished. Fix: "
                "answer without --dry-run, which finishes it at no further cost"
            ) from None
        return _existing(job, record, progress)


def _answer(
    job: AnswerJob,
    show: Callable[[AnswerPreview], None] | None,
    *,
    publishes: bool,
    progress: Progress | None,
) -> Published | None:
    record = release_of(job.ledger, job.followup)
    options = job.options(record)
    place = job.release or record.folder or ""
    if job.release is None and not open_folder(place).exists():
        raise LedgerError(
            f"release {record.release_id}, which the follow-up is about, is not at {place} any "
            "more. Nothing was spent. Fix: give its folder (release=..., --release)"
        )
    task = AnswerTask.read(job.followup, place, options)
    refuse_answered(job.ledger.releases(), task.answers.release, task.answers.followup)
    source = job.source if job.source is not None else options.get("input")
    if source is None or (isinstance(source, str) and source == FRAME):
        raise ParameterError(
            "the release was of a frame, which the ledger does not hold. Fix: give the table "
            "(table=..., --table)"
        )
    budget = PopulationBudget(
        job.ledger,
        record.population,
        on_message=job.notify,
        resume_hint=job.resume_hint,
        answers=task.answers,
    )
    with errors_about("epsilon"):
        spec = task.spec(task.forecast.mechanism(job.epsilon))
    with ExitStack() as stack:
        named = by_name(source, task.request.options)
        engine = open_engine(named, stack, on_message=job.notify)
        target = engine.place(job.out)
        target.check_free()
        opened = task.open_table(named, engine, job.out, spec)
        spec.check(opened.layout)
        cost = budget.describe(spec.terms)
        if publishes:
            budget.check_allowed(spec.terms)
        if show is not None:
            show(task.preview(spec, job.epsilon, job.out, cost, list(opened.notes)))
        if not publishes:
            opened.table.close()
            return None
        if opened.layout.n_units <= FEW_ROWS:
            # Rows are checked, and what nets catch is shown, before anything is spent.
            opened = opened.telling(opened.count().notices)
        kept = task.options(table_name(source) or FRAME, str(target))
        return Published(**budget.release(opened, spec, target, kept, folder_writer(progress)))


def _existing(job: AnswerJob, record: ReleaseRecord, progress: Progress | None) -> Published:
    """The answer that a follow-up has already; it costs nothing more."""
    if not record.is_unfinished:
        job.notify(
            f"note: This follow-up was answered before, at {record.folder}. Nothing more was spent."
        )
        return Published(folder=record.folder or "", release_id=record.release_id)
    spent = budget_in_short(record.guarantee)
    job.notify(f"note: Release {record.release_id} is finished as it began, with {spent}.")
    asked = {
        "query": job.query,
        "delimiter": job.delimiter,
        "input": None if job.source is None else table_name(job.source),
    }
    task = ReleaseJob(
        source=job.source,
        request=parse({**asked, "ledger": str(job.ledger), "out": job.out}),
        ledger=job.ledger,
        notify=job.notify,
        resume_hint=job.resume_hint,
    )
    return run_resume(record.release_id, task, progress=progress)


def answer(  # noqa: PLR0913 - what is answered, and where things are, all by name
    followup: str | os.PathLike[str],
    table: Any = None,
    *,
    epsilon: float,
    ledger: str | os.PathLike[str] | Ledger,
    out: str | os.PathLike[str],
    release: str | os.PathLike[str] | None = None,
    query: str | None = None,
    delimiter: str | None = None,
    ledger_key_file: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Published:
    """Answer a follow-up to a release with noisy totals of its groups. Cannot be undone.

    The ledger pays for it on top of the release. A second call with the same follow-up gives the
    same answer and costs nothing more; an interrupted answer is finished.

    Args:
        followup: The folder that the analyst sent.
        table: The table that was released: a frame or a name. By default where it was then.
        epsilon: What all totals of the answer cost together.
        ledger: The ledger that the release was published with.
        out: The folder to publish, which must not exist.
        release: The folder of the release, if it is not where it was published.
        query: The query, if the table is in a database.
        delimiter: The delimiter, if the table is a text file that needs one.
        ledger_key_file: Key file of the ledger, if it was made with one.
        progress: Where a long run reports to.

    Raises:
        ClusterDPError: If the follow-up does not fit the release, the table is another one, or the
            budget does not suffice. Nothing is published then.
    """
    if not isinstance(ledger, Ledger):
        key_file = None if ledger_key_file is None else Path(ledger_key_file)
        if not isinstance(ledger, str | os.PathLike):
            raise ParameterError(
                f"ledger must be a Ledger or its path, got {type(ledger).__name__}"
            )
        ledger = open_ledger(os.fspath(ledger), key_file)
    where = str(ledger)
    made = run_answer(
        AnswerJob(
            followup=os.fspath(followup),
            epsilon=epsilon,
            out=os.fspath(out),
            ledger=ledger,
            source=os.fspath(table) if isinstance(table, os.PathLike) else table,
            query=query,
            delimiter=delimiter,
            release=None if release is None else os.fspath(release),
            resume_hint=lambda release_id: resume_in_python(release_id, where),
        ),
        progress=progress,
    )
    assert made is not None  # noqa: S101 - it was to be published
    return replace(made, is_answer=True)
