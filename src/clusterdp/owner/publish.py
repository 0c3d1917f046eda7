"""Publish a table as a folder, once; finish an interrupted release; preview a release.

Release a frame in memory.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from clusterdp._progress import NoProgress, no_progress
from clusterdp.document.markup import to_html
from clusterdp.document.model import Code, Facts, Paragraph
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.errors import ParameterError, errors_about
from clusterdp.ledger.paid_release import resumed_options
from clusterdp.ledger.reservation import absolute
from clusterdp.ledger.statement import resume_in_python
from clusterdp.owner.answering import FOLLOWUP_FOLDER, RELEASE_FOLDER, AnswerTask, release_of
from clusterdp.owner.batch import as_batch, check_declaration, check_rows_released
from clusterdp.owner.job import ReleaseJob, python_job, require_ledger
from clusterdp.owner.keywords import PublishKeywords, ReleaseKeywords, takes
from clusterdp.owner.plan import by_name, table_name
from clusterdp.owner.preview import describe_release
from clusterdp.planning.decide import Draft, decide
from clusterdp.published.earlier import read_earlier
from clusterdp.published.folder import read_release
from clusterdp.releasing.stages import run
from clusterdp.releasing.targets import FolderTarget, MemoryTarget
from clusterdp.rows.frames import without_secrets
from clusterdp.sources.source import FRAME
from clusterdp.spec.parse import parse
from clusterdp.storage.folder import INDEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from clusterdp._progress import Progress, RowsDone
    from clusterdp.document.model import Part
    from clusterdp.ledger.ledger import Ledger
    from clusterdp.ledger.paid_release import PopulationBudget
    from clusterdp.owner.plan import Plan
    from clusterdp.owner.preview import Preview
    from clusterdp.published.earlier import EarlierFolder
    from clusterdp.published.release import Release
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.spec.spec import ReleaseSpec
    from clusterdp.storage.folder import Destination


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Published:
    """A published folder. It can be used as a path.

    Attributes:
        folder: Where it is.
        release_id: Its id in the ledger; None without one.
        found: What its pilot histogram found, in sentences; empty without one.
        is_answer: Whether it answers a follow-up to another release.
    """

    folder: str
    release_id: str | None = None
    found: tuple[str, ...] = ()
    is_answer: bool = False

    def __fspath__(self) -> str:
        return self.folder

    def __repr__(self) -> str:
        return to_screen(self._parts(), terminal_width())

    def _repr_html_(self) -> str:
        return to_html(*self._parts())

    def _parts(self) -> list[Part]:
        """Where it is, what its pilot found, and what to do with it."""
        found = [("Found", one) for one in self.found]
        recorded = [] if self.release_id is None else [("Release", self.release_id)]
        used = f"release, answers={self.folder!r}" if self.is_answer else repr(self.folder)
        estimate = Code("Next", f"clusterdp.estimate({used})")
        lead = Paragraph(f"Published to {self.folder}", "lead")
        page = ("To share", f"the whole folder; {INDEX} describes it")
        return [lead, Facts([*found, *recorded, page]), estimate]

    def read(self) -> Release:
        """The release, with its rows as a query over the folder."""
        return read_release(self.folder)


@takes(PublishKeywords)
def publish(
    source: Any,
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[PublishKeywords],
) -> Published:
    """Publish a private release of a table as a new folder. Cannot be undone.

    Each call spends the stated guarantee again. A ledger adds up releases about the same
    units, and rejects one that would exceed the cap before any outcome is read.

    The mechanism is a name, or made by a builder such as `cluster_dp`. What a name leaves open is
    chosen as `plan` does.

    Args:
        source: An experiment file, whose lock says what is published; or a table with one row per
            unit: a frame, or the name of a file, a folder, a glob or a query, as in `plan`.
        plan: A `Plan`, or the path of a lock. Its options need not be given again.
        out: The folder to publish, on a disk or in a store (`s3://bucket/folder`). It must not
            exist. An experiment file may name it.
        progress: Where a long run reports to.
        **options: Options of the table, the mechanism, the ledger and the engine.

    Raises:
        ClusterDPError: If the table, a parameter, the place or the budget is wrong. There is then
            no folder.
    """
    return run_publish(python_job(source, plan, {**options, "out": out}), progress=progress)


@takes(PublishKeywords)
def preview(
    source: Any,
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    **options: Unpack[PublishKeywords],
) -> Preview:
    """What `publish` would do, from public columns only. Nothing is published or spent.

    Args:
        source: The table, as in `publish`.
        plan: The plan, as in `publish`.
        out: The folder to publish, as in `publish`. It is checked that the place is free.
        **options: Options of the table, the mechanism, the ledger and the engine.

    Raises:
        ClusterDPError: If the table, a parameter or the place is wrong. A budget that does not
            allow the release is not an error: the preview's notes say so.
    """
    task = python_job(source, plan, {**options, "out": out})
    with task.locating(), readied(task, None) as ready:
        return ready.preview


def resume(  # noqa: PLR0913 - where things are, all by name
    release_id: str,
    source: Any = None,
    *,
    query: str | None = None,
    delimiter: str | None = None,
    ledger: str | os.PathLike[str] | Ledger | None = None,
    out: str | os.PathLike[str] | None = None,
    continues: Sequence[str | os.PathLike[str]] | None = None,
    ledger_key_file: str | os.PathLike[str] | None = None,
    show_row_counts: bool = False,
    progress: Progress | None = None,
) -> Published:
    """Finish a release that was interrupted. It spends nothing more.

    Args:
        release_id: Its id in the ledger.
        source: The table, if it was a frame or has another name now. If the release has drawn
            noise, it must be the same table; before, one with as many units and clusters.
        query: The query, if the source is a database.
        delimiter: The delimiter, if the source is a text file that needs one.
        ledger: The ledger that recorded it. Required.
        out: The folder to publish, if it differs from the recorded one.
        continues: The folders that it continues, if they are elsewhere now.
        ledger_key_file: Key file of the ledger, if it was made with one.
        show_row_counts: As in `publish`.
        progress: As in `publish`.

    Raises:
        ParameterError: If no ledger is given.
        LedgerError: If there is no such release, or it is finished.
        DataError: If noise was drawn and the table changed.
    """
    given = {
        "query": query,
        "delimiter": delimiter,
        "ledger": ledger,
        "ledger_key_file": ledger_key_file,
        "out": out,
        "continues": continues,
        "show_row_counts": show_row_counts,
    }
    return run_resume(release_id, python_job(source, None, given), progress=progress)


# What every release needs, next to a budget and a place.
NEEDED = ("unit", "arm", "outcomes")


class PendingRelease(NamedTuple):
    """A release that only has to be written.

    Attributes:
        opened: The table.
        spec: What to publish of it.
        preview: What to show the owner before.
        budget: What it spends; None without a ledger.
        target: Where it goes; None if no place was given.
        options: What was asked for, with the grids of numbers, as a ledger holds it.
    """

    opened: OpenTable
    spec: ReleaseSpec
    preview: Preview
    budget: PopulationBudget | None
    target: Destination | None
    options: dict[str, Any]


@contextmanager
def readied(
    task: ReleaseJob, out: str | None, progress: Progress | None = None
) -> Iterator[PendingRelease]:
    """Open everything and choose the mechanism. Nothing is spent.

    No outcome is read, but for rows that are checked first where choosing is slow.

    Args:
        task: The release.
        out: Where it is going to be published; None if it is only previewed.
        progress: Where a long run reports to.
    """
    draft = Draft.from_request(task.request)
    options, source = task.request.options, task.source
    with errors_about("continues"):
        earlier = read_earlier(options.continues or (), progress)
    with ExitStack() as stack:
        engine = task.open_engine(stack)
        target = None if options.out is None else engine.place(options.out)
        if target is not None:
            with errors_about("out"):
                target.check_free()
        with errors_about("ledger"):
            budget = task.open_budget(earlier)
        if budget is not None and earlier:
            budget.balance()
        if budget is not None and out is not None:
            budget.check_population()
        if out is None:
            source = without_secrets(source, draft.columns.secrets)
        opened = task.open_table(draft, engine, out, source)
        check_declaration(opened, earlier)
        if out is not None:
            opened = as_batch(opened, earlier, _comparing(earlier, progress))
            opened = task.check_rows(opened, budget)
        spec = task.decide(draft, opened.layout)
        if earlier:
            check_rows_released(spec)
        spec.check(opened.layout)
        if budget is not None and out is not None:
            budget.check_allowed(spec.terms)
        cost = None if budget is None else budget.describe(spec.terms)
        shown = describe_release(opened, spec, draft, cost)
        yield PendingRelease(opened, spec, shown, budget, target, draft.to_options())


def _comparing(earlier: Sequence[EarlierFolder], progress: Progress | None) -> RowsDone:
    """Shows how many ids of earlier folders were compared."""
    n_units = sum(one.manifest.n_units for one in earlier)
    return (progress or NoProgress()).stage("comparing ids", n_units) if earlier else no_progress


def run_publish(
    task: ReleaseJob,
    *,
    show: Callable[[PendingRelease], None] | None = None,
    progress: Progress | None = None,
) -> Published:
    """Publish what a task describes; `show` is called before anything is spent."""
    options = task.request.options
    with task.locating():
        options.require(*NEEDED, "out")
    with task.locating(), readied(task, options.out, progress) as ready:
        if show is not None:
            show(ready)
        opened, spec, _, budget, target, kept = ready
        assert target is not None  # noqa: S101 - there is a place
        write = folder_writer(progress)
        if budget is None:
            today = datetime.now(tz=UTC).date()
            return Published(**write(opened, spec.begun(today), target))
        recorded = {**kept, "input": table_name(task.source) or FRAME}
        return Published(**budget.release(opened, spec, target, recorded, write))


def run_resume(
    release_id: str,
    task: ReleaseJob,
    given: Mapping[str, Any] | None = None,
    *,
    progress: Progress | None = None,
) -> Published:
    """Finish an interrupted release.

    Args:
        release_id: Its id in the ledger.
        task: The ledger, and the locations that are to be others now.
        given: What else was given. The release began with its own, so that this is refused.
        progress: Where a long run reports to.
    """
    asked = task.request.options
    if asked.ledger is None:
        raise ParameterError(
            "resuming a release needs the ledger that recorded it: give ledger=... (--ledger)"
        )
    budget = task.budget_of(None)
    reservation = budget.ledger.resume(release_id)
    moved = ("input", "query", "delimiter", "continues", "out")
    here = {name: getattr(asked, name) for name in moved}
    kept = resumed_options(reservation, {**(given or {}), **here})
    followup, released = kept.pop(FOLLOWUP_FOLDER, None), kept.pop(RELEASE_FOLDER, None)
    request = parse({**kept, "show_row_counts": asked.show_row_counts})
    options = request.options
    source = options.input if task.source is None else task.source
    if isinstance(source, str) and source == FRAME:
        raise ParameterError(
            "the release was of a frame, which the ledger does not hold: finish it in Python with "
            f"{resume_in_python(release_id, str(budget.ledger))}"
        )
    task = replace(task, source=source, request=request)
    with ExitStack() as stack:
        engine = task.open_engine(stack)
        target = engine.place(options.out or "")
        finished = budget.finish_published(reservation, target)
        if finished is None:
            target.check_free(reservation.key.claim())
            reservation.begin_at(absolute(str(target)))
            if followup is None:
                draft = Draft.from_request(request)
                opened = task.open_table(draft, engine, options.out or "")
                earlier = read_earlier(options.continues or (), progress)
                budget.check_continued(reservation, [one.checksum for one in earlier])
                opened = as_batch(opened, earlier, _comparing(earlier, progress))
                spec = decide(draft, opened.layout, reservation.mechanisms)
            else:
                answer = AnswerTask.read(followup, released, options.to_dict())
                answer.check_same(reservation.record)
                release_of(budget.ledger, followup)
                spec = answer.spec(reservation.mechanisms[0])
                named = by_name(source, options)
                opened = answer.open_table(named, engine, options.out or "", spec)
            finished = budget.finish(reservation, opened, spec, target, folder_writer(progress))
    return Published(**finished)


def folder_writer(progress: Progress | None) -> Callable[..., dict[str, Any]]:
    """What writes a release into a folder, and returns what to show."""

    def write(
        opened: OpenTable, spec: ReleaseSpec, target: Destination, journal: Journal | None = None
    ) -> dict[str, Any]:
        found = run(opened, spec, FolderTarget(target), journal=journal, progress=progress)
        return {"folder": str(target), "found": found}

    return write


@takes(ReleaseKeywords)
def release(
    source: Any,
    plan: Plan | str | os.PathLike[str] | None = None,
    **options: Unpack[ReleaseKeywords],
) -> Release:
    """Make a private release of a frame, in memory.

    Each call spends the stated guarantee again. Two releases about the same units add up, and no
    ledger tracks them. `publish` writes a folder and can spend from a ledger.

    The mechanism is a name, or made by a builder such as `cluster_dp`. What a name leaves open is
    chosen as `plan` does.

    Args:
        source: A pandas, Polars, PyArrow, DuckDB or Spark frame with one row per unit. A Spark
            frame is evaluated several times and must give the same rows each time; if it does not,
            checkpoint it.
        plan: A `Plan`, or the path of a lock. Its options need not be given again.
        **options: Options of the table and the mechanism.

    Raises:
        DataError: If the table breaks a rule.
        ParameterError: If a parameter is wrong.
    """
    if isinstance(source, str | os.PathLike):
        raise ParameterError("release takes a frame, got the name of a table; publish takes names")
    require_ledger("a release in memory spends from none; use clusterdp.publish(..., ledger=...)")
    task = python_job(source, plan, options)
    draft = Draft.from_request(task.request)
    with ExitStack() as stack:
        opened = task.open_table(draft, task.open_engine(stack), None)
        opened = task.check_rows(opened)
        return run(opened, task.decide(draft, opened.layout), MemoryTarget())
