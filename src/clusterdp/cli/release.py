"""`clusterdp release`: what is shown before and after, and progress while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.cli.budget import open_ledger
from clusterdp.cli.console import Bars, owner_notices, print_json, print_pairs, say, say_aside
from clusterdp.errors import ParameterError
from clusterdp.owner.how import How
from clusterdp.owner.options import Options
from clusterdp.owner.plan import with_plan
from clusterdp.owner.publish import Wanted, readied, run_publish, run_resume

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.owner.preview import Preview
    from clusterdp.owner.publish import Published, Ready

NO_LEDGER = (
    "note: nothing will remember this release, so repeated releases about the same people are not "
    "added up; keep a ledger: --ledger"
)


def run_release_command(given: dict[str, Any]) -> None:
    """Show what is going to be released, from public columns, and unless it is a dry run, do it."""
    given["input"] = given.pop("table")
    resume, dry_run = given.pop("resume"), given.pop("dry_run")
    as_json = given.pop("as_json")
    how = How(
        key_file=given.pop("ledger_key_file"),
        new_population=given.pop("new_population"),
        verbose=given.pop("verbose"),
        on_message=say_aside,
        open_ledger=open_ledger,
    )
    if resume is not None:
        also = {"dry_run": dry_run or None, "new_population": how.new_population or None}
        with owner_notices(), Bars() as bars:
            published = run_resume(resume, None, given | also, how, progress=bars)
        _show_published(published, None, as_json=as_json)
        return
    options = read_options(given.pop("spec"), given.pop("plan"), given)
    source, wanted = options.table.input, Wanted(options)
    if dry_run:
        with readied(source, wanted, how, None) as ready:
            _show_before(ready.preview, as_json=as_json)
        if as_json:
            print_json({"plan": ready.preview.content})
        return
    shown: list[Preview] = []

    def show(ready: Ready) -> None:
        shown.append(ready.preview)
        _show_before(ready.preview, as_json=as_json)
        if ready.budget is None:
            say_aside(NO_LEDGER)

    with owner_notices(), Bars() as bars:
        published = run_publish(source, wanted, how, show=show, progress=bars)
    _show_published(published, shown[0], as_json=as_json)


def read_options(spec: Path | None, plan: Path | None, given: dict[str, Any]) -> Options:
    """The options of a command: those of a file, overridden by the command line."""
    if spec is not None and plan is not None:
        raise ParameterError("give --plan or --spec, and not both")
    options = with_plan(given, plan) if spec is None else Options.read(spec).changed(given)
    if options.table.input is None:
        raise ParameterError("missing: an input table (as an argument, or in a --spec file)")
    return options


def _show_before(preview: Preview, *, as_json: bool) -> None:
    if as_json:
        return
    print_pairs(preview.pairs)
    for note in preview.notes:
        say(f"note: {note}")


def _show_published(published: Published, preview: Preview | None, *, as_json: bool) -> None:
    target = published.folder
    if as_json:
        content: dict[str, Any] = {} if preview is None else {"plan": preview.content}
        content["folder"] = target
        if published.release_id is not None:
            content["release_id"] = published.release_id
        print_json(content)
        return
    look = "" if "://" in target else f"; look at it with: clusterdp inspect {target}"
    say(f"published {target}{look}")
