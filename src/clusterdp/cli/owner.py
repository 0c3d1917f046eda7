"""`clusterdp init`: draft an experiment file.

`clusterdp plan`: compare mechanisms before any outcome is read, and write a plan.

`clusterdp release`: what is shown before and after, and progress while it runs.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from clusterdp._progress import progress_bars
from clusterdp.cli.console import (
    FIRST,
    REFUSED,
    Command,
    Flag,
    HelpAll,
    Verbose,
    check_place,
    confirmed,
    not_done,
    owner_notices,
    print_aside,
    print_json,
    print_line,
    print_next,
    print_note,
    print_screen,
    print_sentences,
    print_text,
    reported_errors,
    with_flags,
)
from clusterdp.cli.ledger import ask_passphrase
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.errors import ClusterDPError, OutputError, ParameterError
from clusterdp.owner import plan as owner
from clusterdp.owner.drafting import PublicColumns, draft_experiment
from clusterdp.owner.job import ReleaseJob
from clusterdp.owner.keywords import EXPERIMENT, or_draft, release_line
from clusterdp.owner.publish import NEEDED, publish, readied, run_publish, run_resume
from clusterdp.published.folder import read_manifest
from clusterdp.sources.source import NamedSource
from clusterdp.spec.experiment import (
    ExperimentFile,
    is_experiment,
    refuse_existing,
    write_experiment,
    write_new,
)
from clusterdp.spec.fields import DECLARED, PANELS, flag_of
from clusterdp.storage.folder import has_scheme
from clusterdp.storage.store import is_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp.owner.answering import AnswerPreview
    from clusterdp.owner.plan import Plan
    from clusterdp.owner.preview import Preview
    from clusterdp.owner.publish import PendingRelease, Published


_PLANNING = "Planning"
OwnerJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_PLANNING)]
UNREAD = "No outcome was read, and nothing was written."
UNPUBLISHED = "Nothing was published."


def with_options(function: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command the input table and every option of a function of Python that has a flag."""
    taken = inspect.signature(function).parameters
    flags = {
        name: Flag(
            _command_line_type(DECLARED[name].types),
            panel,
            DECLARED[name].text,
            metavar=DECLARED[name].metavar,
            name=flag_of(name),
        )
        for panel, names in PANELS.items()
        for name in names
        if name in taken
    }
    table = typer.Argument(metavar="EXPERIMENT|TABLE", help=DECLARED["input"].text)
    return with_flags(flags, input=Annotated[str | None, table])


def _command_line_type(types: tuple[Any, ...]) -> Any:
    """What a command line can hold of the types of an option: words, a word, or its only type."""
    return next((kind for kind in (list[str], str) if kind in types), types[0])


@reported_errors()
def init_command(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help=DECLARED["input"].text.partition(", or ")[2])
    ],
    unit: Annotated[str | None, typer.Option(help=DECLARED["unit"].text)] = None,
    arm: Annotated[str | None, typer.Option(help=DECLARED["arm"].text)] = None,
    cluster: Annotated[str | None, typer.Option(help=DECLARED["cluster"].text)] = None,
    query: Annotated[str | None, typer.Option(help=DECLARED["query"].text)] = None,
    delimiter: Annotated[str | None, typer.Option(help=DECLARED["delimiter"].text)] = None,
    out: Annotated[Path, typer.Option(help="The experiment file to write.")] = Path(EXPERIMENT),
) -> None:
    """Draft an experiment file for your table. Reads no outcomes.

    clusterdp init users.parquet --unit user --arm treated

    It reads names and declared types of columns and the number of rows. It reads
    values only of the columns that you name.
    """
    with not_done(UNREAD):
        refuse_existing(out)
        check_place(out)
        source = NamedSource(name=table, query=query, delimiter=delimiter)
        drafted = draft_experiment(source, PublicColumns(unit, arm, cluster), out)
    write_new(out, drafted.text)
    print_sentences(f"Wrote {out}: {', '.join(drafted.found)}. No outcome was read.")
    if unit is None or arm is None:
        columns = f"--unit {_column(unit, drafted.likely.unit, 'ID_COLUMN')} "
        columns += f"--arm {_column(arm, drafted.likely.arm, 'ARM_COLUMN')}"
        print_note(
            f"To have ids, arms and the control arm filled in, remove {out} and run: "
            f"clusterdp init {shlex.quote(table)} {columns}"
        )
    print_next(f'fill in each "?" and each [], then clusterdp plan {out}')


def _column(given: str | None, likely: str | None, otherwise: str) -> str:
    """The name of a column in a command: as it was given, or as it seems to be."""
    return shlex.quote(given or likely or otherwise)


@reported_errors()
@with_options(owner.plan)
def plan_command(
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what you declared to an experiment file, with its lock.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write a page for a meeting: what can be detected at each epsilon, where epsilon "
            "goes, and the commands. It opens in any browser.",
            rich_help_panel=_PLANNING,
        ),
    ] = None,
    verbose: Verbose = False,
    as_json: OwnerJson = False,
    help_all: HelpAll = False,  # noqa: ARG001 - it prints and exits
    **given: Any,
) -> None:
    """Predict what you can measure at a given ε. Reads no outcomes.

    clusterdp plan experiment.toml
    """
    with not_done(UNREAD), progress_bars() as progress:
        if html is not None:
            check_place(html)
        if out is not None:
            _check_new(out, given)
        made = owner.plan_source(_source(given), given, progress)
    if out is not None:
        made = _with_file(made, out)
    written = [] if made.experiment is None else [made.save()]
    if html is not None:
        _write_page(made, html)
        written.append(html)
    if as_json:
        print_json(made.to_dict())
        return
    print_screen(repr(made))
    if verbose and made.report is not None:
        print_text(f"\n{to_screen(made.report.review(), terminal_width())}")
    print_line("")
    if written:
        files = [*([] if out is None else [out]), *written]
        ideas = {"--html plan.html for a page to share": html is None, "-v for more": not verbose}
        more = ", ".join(idea for idea, fits in ideas.items() if fits)
        wrote = f"Wrote {' and '.join(map(str, files))}"
        print_sentences(f"{wrote}. Add {more}" if more else wrote)
    changed = [f"--{flag_of(name)}" for name, value in given.items() if value is not None]
    if made.experiment is None:
        print_line("Next: add --out experiment.toml to keep this plan for a release")
        return
    if out is None and len(changed) > 1:
        names = ", ".join(changed[1:])
        print_note(f"{names}: in {written[0]}, and not in {made.experiment}")
    is_rejected = made.report is not None and made.report.rejected
    first = "fix what a release would be rejected for, then " if is_rejected else ""
    print_line(f"Next: {first}{release_line(str(made.experiment))}")


def _source(given: dict[str, Any]) -> str:
    """The experiment file or the table of a command."""
    source: str | None = given["input"]
    if source is None:
        raise ParameterError(
            "missing: an experiment file, or a table. Fix: draft an experiment file with "
            "clusterdp init TABLE"
        )
    return source


def _check_new(out: Path, given: dict[str, Any]) -> None:
    """Raise an error if an experiment file cannot be written, before anything is planned."""
    if not is_experiment(out):
        raise ParameterError(f"--out writes an experiment file, got {out.name!r}; name it .toml")
    if given.get("size") is not None:
        raise ParameterError(
            "--size plans from sizes of cells, and a release needs the table of units: leave out "
            "--out"
        )
    refuse_existing(out)
    check_place(out)


def _with_file(made: Plan, out: Path) -> Plan:
    """A plan with an experiment file that says what was planned, at the budget that was found."""
    assert made.report is not None  # noqa: S101 - it was just made
    declared = made.report.request.options
    write_experiment(msgspec.structs.replace(declared, epsilon=made.options.epsilon), out)
    return made.made_from(ExperimentFile.read(out))


def _write_page(plan: Plan, path: Path) -> None:
    with progress_bars() as progress:
        page = plan.to_html(progress)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


NO_LEDGER = (
    "note: No ledger: this release is not counted against any budget. Track repeated releases with "
    "--ledger."
)

# What may be given when a release is resumed; all else was decided when it began.
_RESUMED = (
    *("input", "query", "delimiter", "continues", "out", "ledger"),
    *("ledger_key_file", "show_row_counts"),
)


@reported_errors("nothing was published")
@with_options(publish)
def release_command(
    *,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what would be published, from public columns; publish nothing.",
            rich_help_panel=FIRST,
        ),
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Finish an interrupted release of a --ledger.",
            rich_help_panel=FIRST,
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Publish without asking.", rich_help_panel=FIRST),
    ] = False,
    verbose: Verbose = False,
    as_json: OwnerJson = False,
    help_all: HelpAll = False,  # noqa: ARG001 - it prints and exits
    **given: Any,
) -> None:
    """Publish a private release of your table. Cannot be undone.

    clusterdp release experiment.toml
    """
    if resume is not None:
        here = {name: given.pop(name) for name in _RESUMED}
        if is_experiment(here["input"]):
            here |= {"ledger": ExperimentFile.read(here["input"]).options.ledger, "input": None}
        also = {"dry_run": dry_run or None}
        with owner_notices(), progress_bars() as bars:
            published = run_resume(resume, _release_task(here), given | also, progress=bars)
        show_published(published, None, as_json=as_json)
        return
    with not_done(UNPUBLISHED):
        source = _source(given)
        task = _release_task(given)
        if task.experiment is None:
            _check_complete(task, source, published=not dry_run)
    if not dry_run:
        _publish(task, verbose=verbose, as_json=as_json, asks=not (yes or as_json))
        return
    with not_done(UNPUBLISHED), task.locating(), readied(task, None) as ready:
        if as_json:
            print_json({"plan": ready.preview.content})
        else:
            _show_before(ready.preview, verbose=verbose)


def _check_complete(task: ReleaseJob, source: str, *, published: bool) -> None:
    """Raise an error that names all that a release of a table lacks, and the shorter way."""
    options = task.request.options
    has_budget = options.resample_prob is not None
    budget = () if has_budget else ("epsilon",)
    options.require(
        *NEEDED,
        *budget,
        *(("out",) if published else ()),
        otherwise=or_draft(source),
    )


def _release_task(given: dict[str, Any]) -> ReleaseJob:
    """The task of a command: its table has a name, and a person can be asked."""
    source = given["input"]
    experiment = ExperimentFile.read(source) if is_experiment(source) else None
    request = owner.release_request(
        given, experiment=experiment, named=lambda name: f"--{flag_of(name)}"
    )
    return ReleaseJob(
        source=request.options.input,
        request=request,
        experiment=experiment,
        notify=print_aside,
        ask=ask_passphrase,
    )


def _publish(task: ReleaseJob, *, verbose: bool, as_json: bool, asks: bool) -> None:
    """Show what is going to be published, ask, then publish it."""
    shown: list[Preview] = []

    def show(ready: PendingRelease) -> None:
        shown.append(ready.preview)
        if not as_json:
            _show_before(ready.preview, verbose=verbose)
        if ready.budget is None and task.experiment is None:
            print_aside(NO_LEDGER)
        if asks and on_terminal() and not confirmed("Publish?"):
            print_line("Nothing was published.")
            raise typer.Exit(REFUSED)

    with owner_notices(), progress_bars() as bars:
        try:
            published = run_publish(task, show=show, progress=bars)
        except ClusterDPError as error:
            if not shown:  # later there may be rows already, in object storage
                error.add_note(UNPUBLISHED)
            raise
    show_published(published, shown[0], as_json=as_json)


def on_terminal() -> bool:
    """Whether there is an owner to ask, wherever the output goes."""
    return sys.stdin.isatty()


def _show_before(preview: Preview, *, verbose: bool) -> None:
    details = preview.details() if verbose else []
    print_text(to_screen([*preview.parts(), *details], terminal_width()) + "\n")


def _published_in_short(
    target: str, published: Published, preview: Preview | AnswerPreview | None
) -> list[str]:
    """How much was written, the release's id in the ledger, and what remains of its budget."""
    said = f"Published to {target}"
    if not has_scheme(published.folder):
        sizes = [one.bytes for one in read_manifest(published.folder).files.values()]
        megabytes = max(sum(sizes) / 1e6, 0.1)
        said += f" ({len(sizes) + 1} files, {megabytes:.1f} MB)"  # and the manifest itself
    if published.release_id is None:
        return [said]
    left = None if preview is None else preview.content["budget"]["remaining_after"]
    rest = "" if left is None else f", {left} remaining"
    return [said, f"Release {published.release_id[:8]}{rest}."]


def show_published(
    published: Published,
    preview: Preview | AnswerPreview | None,
    *,
    as_json: bool,
    then: str = "clusterdp inspect",
) -> None:
    """Say where a release is, what it found and cost, and what to do with it then."""
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
    for line in _published_in_short(target, published, preview):
        print_line(line)
    if readable:
        print_next(f"{then} {target}")
