"""The pages of budgets: what was spent, what is unfinished, questions to answer, corrections."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from clusterdp.app.drafts import expanded
from clusterdp.app.jobs import Job
from clusterdp.app.pages import Form, Same, go_to, show
from clusterdp.ledger.ledger import Ledger, open_ledger
from clusterdp.owner.answers import AnswerJob, run_answer
from clusterdp.owner.job import ReleaseJob
from clusterdp.owner.publish import Published, run_resume
from clusterdp.published.folder import add_erratum, read_manifest
from clusterdp.spec.parse import parse
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from clusterdp.owner.answering import AnswerPreview

# The last run of these pages.
_RUN: list[Job] = []


def ledger_page(request: Request) -> Response:
    """What was spent of a ledger, by which releases."""
    return _shown_ledger(request, Form.from_query(request))


def _shown_ledger(request: Request, form: Form, said: str = "") -> Response:
    statement, unfinished, same = None, [], []
    if form.one("ledger"):
        with form.about(otherwise="ledger"):
            ledger = Ledger(expanded(form.one("ledger")))
            statement = ledger.show()
            unfinished = [one for one in ledger.releases() if one.is_unfinished]
            where = shlex.quote(str(ledger))
            same = [Same("The same as a command", f"clusterdp ledger show {where}")]
    running = [one for one in _RUN if not one.is_done]
    return show(
        request,
        "ledger.html",
        form=form,
        statement=statement,
        unfinished=unfinished,
        running=running,
        said=said,
        same=same,
    )


async def act_on_ledger(request: Request) -> Response:
    """Make a ledger, or end or finish a release of one."""
    form = await Form.from_body(request)
    return await run_in_threadpool(_act_on_ledger, request, form)


def _act_on_ledger(request: Request, form: Form) -> Response:
    verb, said = form.one("verb"), ""
    if not form.needs("ledger", "the path of a ledger, such as budget.db"):
        return _shown_ledger(request, form)
    place, release_id = expanded(form.one("ledger")), form.one("release_id")
    with form.about("cap_epsilon", "cap_delta", "reason", otherwise="ledger"):
        if verb == "create":
            cap, delta = form.number("cap_epsilon"), form.number("cap_delta")
            if form.needs("cap_epsilon", "the ε that may be spent on each population"):
                Ledger.create(place, cap or 0.0, delta or 0.0)
                said = f"Created {place}."
        elif verb == "cancel":
            Ledger(place).cancel(release_id, form.one("reason") or None)
            said = f"Cancelled release {release_id[:8]}: its budget is available again."
        elif verb == "close":
            Ledger(place).close(release_id, form.one("reason") or None)
            said = f"Abandoned release {release_id[:8]}: its budget stays spent."
        elif verb == "resume":
            phrase = form.one("passphrase") or None
            return _started(request, lambda job: _resume(job, place, release_id, phrase))
    return _shown_ledger(request, form, "" if form.wrong else said)


def _resume(job: Job, ledger: str, release_id: str, phrase: str | None) -> Published:
    task = ReleaseJob(
        source=None, request=parse({"ledger": ledger}), notify=job.notify, ask=lambda: phrase
    )
    return run_resume(release_id, task, progress=job)


def _started(request: Request, run: Callable[[Job], Published | None]) -> Response:
    job = Job(run)
    _RUN[:] = [job]
    job.start().wait(0.3)
    return go_to(request, "/ledger/run")


def run_page(request: Request) -> Response:
    """How far a run is, and then where its folder is."""
    if not _RUN:
        return go_to(request, "/ledger")
    (job,) = _RUN
    if not job.is_done:
        return show(request, "working.html", draft=None, what="run", job=job)
    return show(request, "released.html", draft=None, job=job, ledger="", file="")


def run_state(request: Request) -> Response:  # noqa: ARG001 - as routes call it
    """How far a run is, for a page that asks."""
    return JSONResponse(_RUN[0].state if _RUN else {"finished": True})


def answer_page(request: Request) -> Response:
    """The form to answer a question that was asked later."""
    return show(request, "answer.html", form=Form.from_query(request), parts=None)


async def answer(request: Request) -> Response:
    """Show what an answer would give and cost; then answer."""
    form = await Form.from_body(request)
    return await run_in_threadpool(_answer, request, form)


def _answer(request: Request, form: Form) -> Response:
    epsilon = form.number("epsilon")
    form.needs("followup", "the folder that the analyst sent")
    form.needs("epsilon", "what all totals cost together, such as 0.2")
    form.needs("ledger", "the ledger that the release was made with")
    form.needs("out", "the folder to publish, which must not exist yet")
    if form.wrong:
        return show(request, "answer.html", form=form, parts=None)
    places = {name: expanded(form.one(name)) for name in ("followup", "ledger", "out")}
    phrase = form.one("passphrase") or None
    shown: list[AnswerPreview] = []

    def run(job: Job | None) -> Published | None:
        asked = AnswerJob(
            followup=places["followup"],
            epsilon=epsilon or 0.0,
            out=places["out"],
            ledger=open_ledger(places["ledger"], None, lambda: phrase),
            notify=job.notify if job else lambda _: None,
        )
        return run_answer(asked, show=shown.append, publishes=job is not None, progress=job)

    if form.one("sure"):
        return _started(request, run)
    with form.about("followup", "epsilon", "ledger", "out"):
        run(None)
    words = ["clusterdp", "answer", places["followup"], "--epsilon", f"{epsilon:g}"]
    words += ["--ledger", places["ledger"], "--out", places["out"]]
    call = f"epsilon={epsilon!r}, ledger={places['ledger']!r}, out={places['out']!r}"
    same = [
        Same("The same as a command", shlex.join(words)),
        Same("The same in Python", f"clusterdp.answer({places['followup']!r}, {call})"),
    ]
    parts: Any = shown[0].parts() if shown and not form.wrong else None
    return show(request, "answer.html", form=form, parts=parts, same=same if parts else ())


async def add_correction(request: Request) -> Response:
    """Add a dated correction to a folder."""
    form = await Form.from_body(request)
    return await run_in_threadpool(_add_correction, request, form)


def _add_correction(request: Request, form: Form) -> Response:
    said = ""
    form.needs("folder", "the path of a published folder")
    form.needs("text", "the correction, in one line")
    if not form.wrong:
        place = expanded(form.one("folder"))
        with form.about(otherwise="folder"):
            read_manifest(place)
        if not form.wrong:
            with form.about(otherwise="text"):
                add_erratum(open_folder(place), form.one("text"), datetime.now(tz=UTC).date())
                said = f"Added to errata.md in {place}."
    same = []
    if said:
        words = ["clusterdp", "errata", expanded(form.one("folder")), form.one("text")]
        same = [Same("The same as a command", shlex.join(words))]
    return show(request, "errata.html", form=form, said=said, same=same)


def errata_page(request: Request) -> Response:
    """The form of a correction."""
    return show(request, "errata.html", form=Form.from_query(request), said="")


def running_jobs_of_ledgers() -> list[Job]:
    """Runs that are not finished."""
    return [one for one in _RUN if not one.is_done]
