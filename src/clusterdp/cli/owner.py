"""`clusterdp plan`: compare mechanisms before any outcome is read, and write a plan.

`clusterdp release`: what is shown before and after, and progress while it runs.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from clusterdp.cli.console import (
    errors_in_one_line,
    owner_notices,
    print_aside,
    print_json,
    print_line,
    print_note,
    print_pairs,
    print_text,
    progress_bars,
)
from clusterdp.cli.ledger import ask_passphrase
from clusterdp.errors import OutputError, ParameterError
from clusterdp.owner import plan as owner
from clusterdp.owner.job import ReleaseJob
from clusterdp.owner.keywords import in_lines, later_options
from clusterdp.owner.publish import publish, readied, run_publish, run_resume
from clusterdp.spec.fields import DECLARED, flag_of
from clusterdp.spec.parse import change_options, parse, read_options
from clusterdp.storage.folder import has_scheme
from clusterdp.storage.store import is_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp.owner.plan import Plan
    from clusterdp.owner.preview import Preview
    from clusterdp.owner.publish import PendingRelease, Published
    from clusterdp.spec.request import Request


BUDGET, OUTPUT = DECLARED["ledger"].panel, DECLARED["out"].panel
Spec = Annotated[
    Path | None, typer.Option(help="Options in a TOML file; the command line overrides it.")
]
OwnerJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)]
_Command = TypeVar("_Command", bound="Callable[..., None]")


def with_options(function: Callable[..., Any]) -> Callable[[_Command], _Command]:
    """Give a command the input table and every option that a function of Python takes.

    The command takes them as `**given`, each by its name; those that were not given are None.
    """
    names = {"input", *inspect.signature(function).parameters}

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command, eval_str=True)
        kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        options = [_parameter(name) for name in DECLARED if name in names]
        command.__signature__ = own.replace(parameters=[*options, *kept])  # type: ignore[attr-defined]  # typer reads it
        return command

    return decorate


def request_of(given: dict[str, Any], spec: Path | None, plan: Path | None = None) -> Request:
    """What a command asks for: the options of a file, overridden by the command line."""
    if spec is not None and plan is not None:
        raise ParameterError("--plan and --spec exclude each other; leave out --spec")
    if spec is None:
        request = owner.with_plan(given, plan)
    else:
        request = parse(change_options(read_options(spec), given))
    if request.options.input is None:
        raise ParameterError("missing: the input table; give it as an argument")
    return request


def _parameter(name: str) -> inspect.Parameter:
    """The parameter of a command that typer makes an option of."""
    declared = DECLARED[name]
    shown: Any
    if name == "input":
        shown = typer.Argument(metavar="INPUT", help=declared.text)
    else:
        shown = typer.Option(
            f"--{flag_of(name)}",
            help=declared.text,
            rich_help_panel=declared.panel,
            metavar=declared.rule.metavar,
        )
    hint: Any = Annotated[_command_line_type(declared.types) | None, shown]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def _command_line_type(types: tuple[Any, ...]) -> Any:
    """What a command line can hold of the types of an option: words, a word, or its only type."""
    for kind in (list[str], str):
        if kind in types:
            return kind
    return types[0]


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


def _task(request: Request) -> ReleaseJob:
    """The task of a command: its table has a name, and there is somebody to ask."""
    source = request.options.input
    return ReleaseJob(source=source, request=request, notify=print_aside, ask=ask_passphrase)


def _publish(task: ReleaseJob, *, as_json: bool) -> None:
    """Show what is going to be released, then release it."""
    shown: list[Preview] = []

    def show(ready: PendingRelease) -> None:
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
    readable = is_store(target) or not has_scheme(target)
    look = f"; look at it with: clusterdp inspect {target}" if readable else ""
    print_line(f"published {target}{look}")
