"""`clusterdp plan`: compare mechanisms before any outcome is read, and write a plan.

`clusterdp release`: what is shown before and after, and progress while it runs.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterdp.cli.console import (
    BUDGET,
    OUTPUT,
    OwnerJson,
    Spec,
    errors_in_one_line,
    owner_notices,
    print_aside,
    print_json,
    print_line,
    print_note,
    print_pairs,
    print_text,
    progress_bars,
    request_of,
    with_options,
)
from clusterdp.cli.ledger import ask_passphrase
from clusterdp.errors import OutputError
from clusterdp.owner import plan as owner
from clusterdp.owner.job import Task
from clusterdp.owner.keywords import in_lines, later_options
from clusterdp.owner.publish import publish, readied, run_publish, run_resume
from clusterdp.spec.parse import parse
from clusterdp.storage.store import is_store

if TYPE_CHECKING:
    from clusterdp.owner.plan import Plan
    from clusterdp.owner.preview import Preview
    from clusterdp.owner.publish import Published, Ready
    from clusterdp.spec.request import Request


@errors_in_one_line()
@with_options(owner.plan)
def plan_command(
    *,
    spec: Spec = None,
    out: Annotated[Path, typer.Option(help="The plan to write.", rich_help_panel=OUTPUT)] = Path(
        "plan.toml"
    ),
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write a page for a meeting: what can be detected at each epsilon, where epsilon "
            "goes, and the commands. It opens in any browser.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: OwnerJson = False,
    **given: Any,
) -> None:
    """Choose a mechanism and split its budget, before any outcome is read.

    It compares every mechanism, or the one that you name. Of the table, only
    arms and clusters are read.

    clusterdp plan players.csv --arm version --cluster country
    --outcome retention_1=0,1 --outcome retention_7=0,1
    --outcome rounds=number:0..493 --reference retention_1=0.4
    --metric "rounds>=10" --epsilon 2 --html plan.html
    """
    request = request_of(given, spec)
    options = request.options
    if html is not None and not html.parent.is_dir():
        raise OutputError(f"cannot write {html}: there is no folder {html.parent}; make it first")
    with progress_bars() as progress:
        made = owner.make_plan(options.input, request, progress)
    made.save(out)
    if html is not None:
        _write_page(made, html)
    if as_json:
        print_json(made.to_dict())
        return
    print_text(repr(made))
    missing = ["--unit ..."] if options.unit is None else []
    missing += later_options(request)
    words = ["clusterdp release", *(["TABLE"] if options.size else []), f"--plan {out}"]
    if html is not None:
        print_line(f"wrote {html}; open it in a browser")
    print_line(f"wrote {out}; carry it out with:")
    print_text(textwrap.indent(in_lines([*words, *missing, "--out ..."]), "  "))


def _write_page(plan: Plan, path: Path) -> None:
    with progress_bars() as progress:
        page = plan.to_html(progress)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


NO_LEDGER = (
    "note: no ledger records this release, so repeated releases about the same people are not "
    "added up; keep a ledger: --ledger"
)

# What may be given when a release is resumed; all else was decided when it began.
_RESUMED = ("input", "query", "delimiter", "out", "ledger", "ledger_key_file", "verbose")


@errors_in_one_line()
@with_options(publish)
def release_command(
    *,
    plan: Annotated[
        Path | None, typer.Option(help="Carry out a plan of `clusterdp plan` to the letter.")
    ] = None,
    spec: Spec = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Finish an interrupted release of a --ledger; it spends nothing more. If it "
            "has drawn noise, the table must be the same.",
            rich_help_panel=BUDGET,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what would be released, from public columns; publish nothing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_json: OwnerJson = False,
    **given: Any,
) -> None:
    """Turn a table into a published folder, once.

    clusterdp release players.csv --unit userid --arm version
    --control gate_30 --cluster country --outcome retention_1=0,1
    --outcome retention_7=0,1 --outcome rounds=number:0..493
    --epsilon 2 --out published/

    clusterdp release postgresql://me@warehouse/shop
    --query "select userid, version, visited from players"
    --unit userid --arm version --control gate_30
    --outcome visited=no,yes --epsilon 2 --out published/
    """
    if resume is not None:
        here = {name: given.pop(name) for name in _RESUMED}
        also = {"plan": plan, "spec": spec, "dry_run": dry_run or None}
        with owner_notices(), progress_bars() as bars:
            published = run_resume(resume, _task(parse(here)), given | also, progress=bars)
        _show_published(published, None, as_json=as_json)
        return
    task = _task(request_of(given, spec, plan))
    if not dry_run:
        _publish(task, as_json=as_json)
        return
    with readied(task, None) as ready:
        _show_before(ready.preview, as_json=as_json)
    if as_json:
        print_json({"plan": ready.preview.content})


def _task(request: Request) -> Task:
    """The task of a command: its table has a name, and there is somebody to ask."""
    source = request.options.input
    return Task(source=source, request=request, notify=print_aside, ask=ask_passphrase)


def _publish(task: Task, *, as_json: bool) -> None:
    """Show what is going to be released, then release it."""
    shown: list[Preview] = []

    def show(ready: Ready) -> None:
        shown.append(ready.preview)
        _show_before(ready.preview, as_json=as_json)
        if ready.budget is None:
            print_aside(NO_LEDGER)

    with owner_notices(), progress_bars() as bars:
        published = run_publish(task, show=show, progress=bars)
    _show_published(published, shown[0], as_json=as_json)


def _show_before(preview: Preview, *, as_json: bool) -> None:
    if as_json:
        return
    print_pairs(preview.pairs)
    for note in preview.notes:
        print_note(note)


def _show_published(published: Published, preview: Preview | None, *, as_json: bool) -> None:
    target = published.folder
    if as_json:
        content: dict[str, Any] = {} if preview is None else {"plan": preview.content}
        content["folder"] = target
        if published.release_id is not None:
            content["release_id"] = published.release_id
        if published.found:
            content["found"] = list(published.found)
        print_json(content)
        return
    for found in published.found:
        print_note(found)
    readable = is_store(target) or "://" not in target
    look = f"; look at it with: clusterdp inspect {target}" if readable else ""
    print_line(f"published {target}{look}")
