"""The owner's pages: a table, what is declared of it, the plan, the check, the release.

Until a release is published, no outcome is read. What was typed stays in memory, and the app writes
`experiment.toml` and `experiment.lock` when it publishes: the release is then made from them, as
`clusterdp release experiment.toml` makes it.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from clusterdp.app.drafts import (
    ABOUT,
    KINDS,
    PLACED,
    ROLES,
    OwnerDraft,
    epsilon_meanings,
    expanded,
    help_of,
)
from clusterdp.app.jobs import Job
from clusterdp.app.pages import Form, Same, go_to, show
from clusterdp.errors import ClusterDPError
from clusterdp.owner.job import ReleaseJob
from clusterdp.owner.keywords import EXPERIMENT
from clusterdp.owner.plan import Plan, make_plan, plan_source, release_request
from clusterdp.owner.publish import Published, readied, run_publish
from clusterdp.planning.page import plan_values
from clusterdp.sources.source import NamedSource
from clusterdp.spec._experiment_text import to_toml
from clusterdp.spec.experiment import ExperimentFile, refuse_existing, write_experiment
from clusterdp.spec.fields import Options
from clusterdp.spec.parse import change_options, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from clusterdp.document.model import Part

# The drafts of this run of the app, by their keys.
_DRAFTS: dict[str, OwnerDraft] = {}


class SeenPlan(NamedTuple):
    """A plan, and what its page shows at every ε."""

    plan: Plan
    values: dict[str, Any]


def publish_page(request: Request) -> Response:
    """Where a table is opened, and drafts are found again."""
    return show(request, "publish.html", drafts=list(_DRAFTS.values()))


async def open_table(request: Request) -> Response:
    """Read names and types of a table's columns."""
    form = await Form.from_body(request)
    return await run_in_threadpool(_open_table, request, form)


def _open_table(request: Request, form: Form) -> Response:
    if form.needs("table", "the path of a table"):
        with form.about("query", "delimiter", otherwise="table"):
            source = NamedSource(
                name=expanded(form.one("table")),
                query=form.one("query") or None,
                delimiter=form.one("delimiter") or None,
            )
            draft = OwnerDraft.open(source)
            _DRAFTS[draft.key] = draft
            return go_to(request, f"/publish/{draft.key}")
    return show(request, "publish.html", form=form, drafts=list(_DRAFTS.values()))


def _draft_of(request: Request) -> OwnerDraft:
    draft = _DRAFTS.get(request.path_params["key"])
    if draft is None:
        raise HTTPException(404)
    return draft


def columns_page(request: Request) -> Response:
    """What each column is."""
    draft = _draft_of(request)
    return _shown_columns(request, draft)


def _shown_columns(request: Request, draft: OwnerDraft) -> Response:
    return show(
        request,
        "columns.html",
        form=draft.form,
        draft=draft,
        roles=ROLES,
        kinds=KINDS,
        meanings=epsilon_meanings(),
        help_of=help_of,
    )


async def declare(request: Request) -> Response:
    """Take in what columns are, and plan."""
    draft = _draft_of(request)
    draft.keep(await Form.from_body(request))
    return await run_in_threadpool(_plan, request, draft)


def _plan(request: Request, draft: OwnerDraft) -> Response:
    declared = draft.request()
    if declared is None:
        return _shown_columns(request, draft)

    def run(job: Job) -> SeenPlan:
        plan = make_plan(draft.source.name, declared, job)
        assert plan.report is not None  # noqa: S101 - it was just made
        values = plan_values(
            plan.report,
            plan.options.epsilon or 0.0,
            job,
            plan_at=lambda at: f"clusterdp plan {EXPERIMENT} --epsilon {at:g}",
            release=f"clusterdp release {EXPERIMENT}",
        )
        return SeenPlan(plan, values)

    draft.planning = Job(run).start()
    # A small plan is there at once.
    draft.planning.wait(0.3)
    return go_to(request, f"/publish/{draft.key}/plan")


def budget_page(request: Request) -> Response:
    """What can be detected at each ε."""
    draft = _draft_of(request)
    job = draft.planning
    if job is None:
        return go_to(request, f"/publish/{draft.key}")
    if not job.is_done:
        return show(request, "working.html", draft=draft, what="plan", job=job)
    if job.error is not None:
        with draft.locating():
            raise job.error
        return _shown_columns(request, draft)
    return _shown_plan(request, draft, job.result)


def _shown_plan(request: Request, draft: OwnerDraft, seen: SeenPlan) -> Response:
    return show(
        request,
        "choose.html",
        form=draft.form,
        draft=draft,
        is_page=False,
        same=_same(seen.plan),
        sheets=["plan.css"],
        scripts=["plan.js"],
        **{name: value for name, value in seen.values.items() if name != "release"},
    )


def _same(plan: Plan, epsilon: float | None = None, path: str = EXPERIMENT) -> list[Same]:
    """How to do it by the file that declares it."""
    assert plan.report is not None  # noqa: S101 - it was just made
    options = plan.report.request.options
    held = msgspec.structs.replace(options, epsilon=epsilon or plan.options.epsilon)
    place = shlex.quote(path)
    return [
        Same("The same as experiment.toml", to_toml(held).rstrip()),
        Same("The same as commands", f"clusterdp plan {place}\nclusterdp release {place}"),
        Same("The same in Python", f"clusterdp.plan({path!r}).save()\nclusterdp.publish({path!r})"),
    ]


async def choose_budget(request: Request) -> Response:
    """Take in the ε that was chosen, and plan with it."""
    draft = _draft_of(request)
    typed = await Form.from_body(request)
    before = draft.form.one("epsilon")
    draft.keep(typed)
    if draft.form.one("epsilon") == before and draft.planning:
        return go_to(request, f"/publish/{draft.key}/check")
    return await run_in_threadpool(_replan, request, draft)


def _replan(request: Request, draft: OwnerDraft) -> Response:
    job = draft.planning
    answer = _plan(request, draft)
    if "epsilon" in draft.form.wrong and job is not None and job.result is not None:
        return _shown_plan(request, draft, job.result)
    return answer if draft.form.wrong else go_to(request, f"/publish/{draft.key}/check")


def check_page(request: Request) -> Response:
    """What is going to be published, from which budget, and what is said of it."""
    draft = _draft_of(request)
    job = draft.planning
    if job is None or job.error is not None:
        return go_to(request, f"/publish/{draft.key}/plan")
    if not job.is_done:
        return show(request, "working.html", draft=draft, what="check", job=job)
    return _shown_check(request, draft)


def _shown_check(
    request: Request,
    draft: OwnerDraft,
    parts: Sequence[Part] = (),
    same: Sequence[Same] = (),
) -> Response:
    table = Path(draft.source.name)
    folder = table.parent if draft.source.database is None and "://" not in str(table) else Path()
    return show(
        request,
        "check.html",
        form=draft.form,
        draft=draft,
        parts=parts,
        about=ABOUT,
        help_of=help_of,
        suggested=str(folder / EXPERIMENT),
        published=str(folder / "published"),
        same=same,
    )


async def check(request: Request) -> Response:
    """Show what would be published. Nothing is written or spent, and no outcome is read."""
    draft = _draft_of(request)
    draft.keep(await Form.from_body(request))
    return await run_in_threadpool(_check, request, draft)


def _check(request: Request, draft: OwnerDraft, unsure: str = "") -> Response:
    planned, declared = _planned(draft), draft.request(placed=True)
    form = draft.form
    if planned is None:
        return go_to(request, f"/publish/{draft.key}/plan")
    if form.needs("file", "where to keep the declaration, such as experiment.toml"):
        with form.about(otherwise="file"):
            _check_file(expanded(form.one("file")), draft)
    parts: list[Part] = []
    if declared is not None and not form.wrong:
        with form.about(*ABOUT, *PLACED, "new_population"):
            task = _task(draft, planned, declared.options)
            with readied(task, None) as ready:
                parts = ready.preview.parts()
                if ready.budget is not None:
                    ready.budget.check_population()
                    ready.budget.check_allowed(ready.spec.terms)
    if form.wrong or declared is None:
        return _shown_check(request, draft)
    same = _same_release(declared.options, expanded(form.one("file")))
    if unsure:
        form.wrong["sure"] = unsure
    return _shown_check(request, draft, parts, same)


def _planned(draft: OwnerDraft) -> Plan | None:
    job = draft.planning
    return None if job is None or job.result is None else job.result.plan


def _check_file(path: str, draft: OwnerDraft) -> None:
    """Raise an error unless an experiment file can be written there.

    One that this draft wrote for a release that was rejected is written again.
    """
    place = Path(path)
    if place.suffix != ".toml":
        raise ClusterDPError(f"{place.name} must end in .toml.")
    if not place.parent.is_dir():
        raise ClusterDPError(f"There is no folder {place.parent}. Make it first.")
    try:
        if not _is_own(place, draft):
            refuse_existing(place)
    except ClusterDPError:
        raise ClusterDPError(f"{path} exists, and stays as it is. Choose another name.") from None


def _is_own(place: Path, draft: OwnerDraft) -> bool:
    """Whether a file is the one that this draft wrote, and nobody has changed it."""
    return place.exists() and draft.written == (str(place), place.read_text("utf-8"))


def _task(draft: OwnerDraft, plan: Plan, placed: Options) -> ReleaseJob:
    """The release of a plan, with what is only said when it is checked."""
    names = (*ABOUT, *PLACED, "new_population")
    given = {name: getattr(placed, name) for name in names}
    options = change_options(plan.options, {"input": draft.source.name, **given})
    phrase = draft.form.one("passphrase") or None
    return ReleaseJob(source=draft.source.name, request=parse(options), ask=lambda: phrase)


def _same_release(options: Options, path: str) -> list[Same]:
    place, flags, words = shlex.quote(path), "", ""
    if options.new_population:
        flags, words = " --new-population", ", new_population=True"
    if options.ledger_key_file:
        flags += f" --ledger-key-file {shlex.quote(options.ledger_key_file)}"
        words += f", ledger_key_file={options.ledger_key_file!r}"
    commands = f"clusterdp plan {place}\nclusterdp release {place}{flags} --yes"
    call = f"clusterdp.publish({path!r}{words})"
    return [
        Same("The same as experiment.toml", to_toml(_declared_only(options)).rstrip()),
        Same("The same as commands", commands),
        Same("The same in Python", f"clusterdp.plan({path!r}).save()\n{call}"),
    ]


def _declared_only(options: Options) -> Options:
    """What an experiment file holds of options."""
    return msgspec.structs.replace(options, new_population=None, ledger_key_file=None)


async def publish(request: Request) -> Response:
    """Publish what was checked, once."""
    draft = _draft_of(request)
    typed = await Form.from_body(request)
    return await run_in_threadpool(_publish, request, draft, typed)


def _publish(request: Request, draft: OwnerDraft, typed: Form) -> Response:
    again = draft.publishing
    if again is not None and (not again.is_done or again.error is None):
        return go_to(request, f"/publish/{draft.key}/release")
    declared = draft.request(placed=True)
    if declared is None or not typed.one("sure"):
        return _check(request, draft, "Check the box to publish.")
    path, phrase = expanded(draft.form.one("file")), draft.form.one("passphrase") or None
    options = declared.options

    def run(job: Job) -> Published:
        file = Path(path)
        if _is_own(file, draft):
            file.unlink()
        write_experiment(_declared_only(options), file)
        draft.written = (path, file.read_text("utf-8"))
        plan_source(file, {}, job).save()
        experiment = ExperimentFile.read(file)
        given = {"input": path, "new_population": options.new_population}
        given["ledger_key_file"] = options.ledger_key_file
        asked = release_request(given, experiment=experiment)
        task = ReleaseJob(
            source=asked.options.input,
            request=asked,
            experiment=experiment,
            notify=job.notify,
            ask=lambda: phrase,
        )
        return run_publish(task, progress=job)

    draft.publishing = Job(run).start()
    draft.publishing.wait(0.3)
    return go_to(request, f"/publish/{draft.key}/release")


def release_page(request: Request) -> Response:
    """How far the release is, and then where it is."""
    draft = _draft_of(request)
    job = draft.publishing
    if job is None:
        return go_to(request, f"/publish/{draft.key}/check")
    if not job.is_done:
        return show(request, "working.html", draft=draft, what="release", job=job)
    options = draft.request(placed=True)
    path = expanded(draft.form.one("file"))
    return show(
        request,
        "released.html",
        draft=draft,
        job=job,
        ledger=draft.form.one("ledger"),
        file=path,
        same=() if options is None else _same_release(options.options, path),
    )


def draft_state(request: Request) -> Response:
    """How far a run is."""
    draft = _draft_of(request)
    job = draft.publishing if request.path_params["what"] == "release" else draft.planning
    return JSONResponse({"finished": True} if job is None else job.state)


def running_jobs() -> list[Job]:
    """Releases that are being written."""
    every = (one.publishing for one in _DRAFTS.values())
    return [one for one in every if one is not None and not one.is_done]
