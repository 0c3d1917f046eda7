"""What every command shares: output for people and machines, progress, errors, and help.

Help fits one screen: `--help` shows the first panel of options, `--help-all` every one.
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import math
import os
import re
import signal
import sys
import warnings
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from clusterdp._text import is_plain, plain_text
from clusterdp.document.text import terminal_width, wrapped
from clusterdp.errors import ClusterDPError, OutputError, OwnerNotice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


# Exit codes that scripts can rely on; anything else that goes wrong is a bug and exits with 1.
REFUSED = 2
_STDERR = 2
INTERRUPTED = 130
# What may begin a line on standard error, and how a command begins.
_KINDS = ("note", "warning")
_COMMAND = "clusterdp "
_ANSWERS = {"y": True, "yes": True, "n": False, "no": False, "": False}
# Where an error goes on to the fix: with one of these verbs, in its first sentence or later.
_VERBS = (
    "add|ask|check|choose|collect|combine|compare|connect|convert|copy|correct|create|declare"
    "|exchange|fill|give|join|leave|make|merge|name|open|plan|publish|put|recode|remove|rename"
    "|restrict|run|say|segment|select|set|shorten|state|try|use|verify|write"
)
_FIX = re.compile(rf"; (?=(?:{_VERBS})\b)")
_ORDER = re.compile(rf"(?:{_VERBS})\b", re.IGNORECASE)
# A message that says itself what was not done.
_UNDONE = re.compile(r"\bnothing was\b|\bNo \w+ was read\b", re.IGNORECASE)
# The first letter of what is wrong, unless it is a name's.
_CAPITAL = re.compile(
    r"(?:\A|(?<=\d: )|(?<=\.toml: ))(?!Spark|Java|Python|Windows|Polars|Parquet)[A-Z](?=[a-z]*\b)"
)
# What is bold, yellow, red and dim on a terminal: the answer, warnings, errors, the next step.
_PLAIN = "\033[0m"
_STYLES = (
    (r"\A.+(?:\n(?! ).+)*", "\033[1m"),
    (r"^warning:", "\033[33m"),
    (r"^error:", "\033[31m"),
    (r"^Next:.*(?:\n  .*)*", "\033[2m"),
)
# How signs are spelled where the encoding of a terminal does not have them.
_SPELLED = str.maketrans(
    {"ε": "epsilon", "δ": "delta", "→": "->", "–": "-", "−": "-", "±": "+-", "∞": "inf", "×": "x"}
    | {"│": "|", "─": "-", "●": "o", "┼": "+", "█": "#", "░": ".", "≥": ">=", "≤": "<=", "…": "..."}
)


def print_line(text: str) -> None:
    """A line for people; it is not broken, so that it can be searched for."""
    print_text(plain_text(text))


def print_text(text: str) -> None:
    """A text for people that is laid out already."""
    _write(sys.stdout, text)


def print_screen(text: str) -> None:
    """A text for people whose first line is the answer."""
    _write(sys.stdout, text, has_answer=True)


def print_sentences(text: str, indent: str = "") -> None:
    """Sentences for people, as lines that fit."""
    print_text("\n".join(wrapped(text, terminal_width(), indent)))


def print_note(text: str) -> None:
    """A note for people."""
    print_text("\n".join(_laid_out("note", text)))


def print_next(text: str) -> None:
    """What to do next."""
    print_sentences(f"Next: {text}", "  ")


def print_aside(text: str) -> None:
    """A line for people that is no result: it does not get into what scripts read."""
    kind, found, rest = text.partition(": ")
    lines = _laid_out(kind, rest) if found and kind in _KINDS else _with_commands(text, "")
    _write(sys.stderr, "\n".join(lines))


def print_failure(text: str) -> None:
    """A check that failed."""
    print_sentences(f"FAIL {text}", "     ")


def _laid_out(kind: str, text: str) -> list[str]:
    """A note or a warning as lines that fit, with commands in lines of their own."""
    return _with_commands(f"{kind}: {text}", " " * (len(kind) + 2))


def _with_commands(text: str, indent: str) -> list[str]:
    """A text as lines that fit; a command at its end is not broken, so that it can be copied."""
    head, found, command = plain_text(text).partition(f": {_COMMAND}")
    if not found or len(text) <= terminal_width():
        return wrapped(text, terminal_width(), indent)
    return [*wrapped(f"{head}:", terminal_width(), indent), f"{indent}{_COMMAND}{command}"]


def confirmed(question: str) -> bool:
    """Whether the owner says yes; asked on standard error, so that output can go elsewhere."""
    while True:
        # Python's `input` writes to the terminal's own standard error, which is muted here.
        sys.stderr.write(f"\n{question} [y/N]: ")
        sys.stderr.flush()
        answer = sys.stdin.readline().strip().casefold()
        if answer in _ANSWERS:
            return _ANSWERS[answer]
        print_aside("Answer y (yes) or n (no).")


def print_error(message: str, undone: Iterable[str] = ()) -> None:
    """An error: what is wrong, then what was not done and the fix, each in a line of its own.

    Messages are sentences. The first one says what is wrong, and may end with the fix.

    Args:
        message: What went wrong, with options as Python and the command line have them.
        undone: What was not done.
    """
    from clusterdp.spec.file_terms import in_command_terms  # only errors need it

    text = in_command_terms(plain_text(message, "\n").strip())
    first, *rest = re.split(r"(?<=[.?!]) +(?=[A-Z])|\n+", text)
    wrong, *fix = re.split(_FIX, first.removesuffix("."), maxsplit=1)
    said = undone if _UNDONE.search(text) is None else ()
    lines = _laid_out("error", re.sub(_CAPITAL, lambda found: found[0].lower(), wrong))
    if not fix and "Fix: " not in text:
        for place in [place for place, one in enumerate(rest) if _ORDER.match(one)][:1]:
            rest[place] = f"Fix: {rest[place][0].lower()}{rest[place][1:]}"
    sentences = " ".join([*rest, *(f"Fix: {one}" for one in fix)])
    paragraphs = [*said, *re.sub(r" (?=Fix: )", "\n", sentences).splitlines()]
    below = [line for one in paragraphs for line in _with_commands(f"  {one}", "  ")]
    _write(sys.stderr, "\n".join([*lines, *([""] if below else []), *below]))


def _write(stream: TextIO, text: str, *, has_answer: bool = False) -> None:
    """Write a text: in color on a terminal, and with the letters that its encoding has."""
    shown = plain_text(text, "\n")
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        shown.encode(encoding)
    except UnicodeEncodeError:
        shown = shown.translate(_SPELLED).encode(encoding, "replace").decode(encoding)
    if stream.isatty() and "NO_COLOR" not in os.environ:
        for pattern, style in _STYLES[0 if has_answer else 1 :]:
            shown = re.sub(pattern, rf"{style}\g<0>{_PLAIN}", shown, flags=re.MULTILINE)
    stream.write(shown + "\n")


def print_json(content: Any) -> None:
    """A result for machines."""
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False, default=str)
    # JSON has an escape for every character, and none of these outside of texts.
    escaped = (one if one == "\n" or is_plain(one) else json.dumps(one)[1:-1] for one in text)
    sys.stdout.write("".join(escaped) + "\n")


def _finite(content: Any) -> Any:
    """The same with null for what is not a number, which JSON has no word for."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


@contextmanager
def _without_library_output() -> Iterator[None]:
    """Keep what libraries print past Python out of the terminal: where they panicked, and on what.

    They raise an error as well, which is reported. `CLUSTERDP_DEBUG` shows all of it.
    """
    try:
        ours = sys.stderr.fileno() == _STDERR and "CLUSTERDP_DEBUG" not in os.environ
    except (AttributeError, OSError, ValueError):
        ours = False  # standard error is not the terminal's
    if not ours:
        yield
        return
    given = sys.stderr
    given.flush()
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        os.fdopen(os.dup(_STDERR), "w", buffering=1, errors="backslashreplace") as terminal,
    ):
        os.dup2(nowhere.fileno(), _STDERR)
        sys.stderr = terminal
        # A process that a library aborts reports at least that.
        faulthandler.enable(terminal, all_threads=False)
        try:
            yield
        finally:
            faulthandler.disable()
            sys.stderr = given
            os.dup2(terminal.fileno(), _STDERR)


@contextmanager
def reported_errors(undone: str = "") -> Iterator[None]:
    """Turn what a user can act on into a message and exit code 2.

    Args:
        undone: What an interrupted run has not done.
    """
    with _without_library_output(), _reporting(undone):
        yield


@contextmanager
def _reporting(undone: str) -> Iterator[None]:
    import typer

    # Asked to stop, a run cleans up behind itself as if interrupted.
    for asked in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, signal.default_int_handler)
    try:
        yield
    except ClusterDPError as error:
        print_error(str(error), getattr(error, "__notes__", ()))
        raise typer.Exit(REFUSED) from None
    except KeyboardInterrupt:
        print_aside(f"interrupted: {undone}" if undone else "interrupted")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def owner_notices() -> Iterator[None]:
    """Show what the owner alone should know in words that cannot be overlooked.

    It goes to the terminal as it comes up, never into results: it depends on true outcomes.
    """
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if not issubclass(category, OwnerNotice):
            usual(message, category, *where)
        else:
            print_aside(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]  # it takes what it needs
        yield


@contextmanager
def not_done(words: str) -> Iterator[None]:
    """Add to an error what it kept from being done."""
    try:
        yield
    except ClusterDPError as error:
        error.add_note(words)
        raise


def check_place(path: Path) -> None:
    """Raise an OutputError if a file cannot be there, before what is written there is made."""
    if not path.resolve().parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; name a file")


Folder = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER", help="A published folder, on disk or in object storage (s3://...)."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


# What the command line itself finds wrong, and what it shows if nothing is asked for.
_UsageError: Any = typer.BadParameter.__bases__[0]
_EXAMPLE = re.compile(r"^clusterdp .*$", re.MULTILINE)


# What help calls the values of options; a switch has none.
_KINDS_OF_VALUES = {
    "<bool>": "",
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<path>": "FILE",
    "<float>": "NUMBER",
    "<int>": "NUMBER",
}


def _name_kinds(parameters: Iterable[Any], context: Any) -> None:
    """Have help call values what people call them; arguments are explained by their names."""
    for one in parameters:
        shown = one.display_type_rich(context) or ""
        kind = _KINDS_OF_VALUES.get(shown, shown) if isinstance(one, TyperOption) else ""
        vars(one)["display_type_rich"] = lambda ctx, kind=kind: kind  # noqa: ARG005 - as typer calls


class PlainHelp(TyperCommand):
    """A command whose help shows no types of Python."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print it."""
        _name_kinds(self.get_params(ctx), ctx)
        super().format_help(ctx, formatter)


class ErrorsInOneShape(TyperGroup):
    """Commands whose errors of usage look like all others."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print help without types of Python."""
        _name_kinds(self.get_params(ctx), ctx)
        super().format_help(ctx, formatter)

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Run a command; what is wrong with its options is told with an example that is right."""
        if not standalone_mode:
            return super().main(*args, **{**more, "standalone_mode": False})
        try:
            sys.exit(super().main(*args, **{**more, "standalone_mode": False}) or 0)
        except _UsageError as error:
            context = error.ctx
            if context is None or type(error).__name__ == "NoArgsIsHelpError":
                error.show()
            else:
                example = re.search(_EXAMPLE, context.command.help or "")
                shown = example[0] if example else f"{context.command_path} --help"
                wrong = _what_is_wrong(error).rstrip(". ").replace("?.", "?")
                end = "" if wrong.endswith("?") else "."
                print_error(f"{wrong}{end} Fix: write it as in: {shown}")
            sys.exit(error.exit_code)
        except typer.Abort:
            print_aside("interrupted")
            sys.exit(INTERRUPTED)


def _what_is_wrong(error: Any) -> str:
    """The message of an error of usage; of an unknown option with the one most like it."""
    if not hasattr(error, "possibilities"):
        return re.sub(_NO_NUMBER, r": it must be \1", str(error.format_message()))
    known = [option for one in error.ctx.command.get_params(error.ctx) for option in one.opts]
    # Dashes make all of them look like each other.
    names = [option.strip("-") for option in known]
    near = get_close_matches(error.option_name.strip("-"), names, n=1, cutoff=0.75)
    return f"{error.message}.{f' Did you mean --{near[0]}?' if near else ''}"


_NO_NUMBER = re.compile(r": Input should be (a valid \w+|a finite \w+).*")


# The options that most people need.
FIRST = "Most people need"
_ALL = "clusterdp.help_all"


class ScreenHelp(PlainHelp):
    """A command whose `--help` fits one screen; it takes `HelpAll`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the first panel, or all of them."""
        later: list[Any] = [
            one
            for one in self.get_params(ctx)
            if isinstance(one, TyperOption) and one.rich_help_panel != FIRST
        ]
        shown = bool(ctx.meta.get(_ALL))
        # Of those, --help itself needs no explanation.
        self.epilog = None if shown else f"--help-all lists {len(later) - 1} more options."
        for one in later:
            one.hidden = not shown
        try:
            super().format_help(ctx, formatter)
        finally:
            for one in later:
                one.hidden = False


def _show_all(context: typer.Context, wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        context.meta[_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        help="Show every option and exit.",
        callback=_show_all,
        is_eager=True,
        expose_value=False,
        rich_help_panel=FIRST,
    ),
]


class Flag(NamedTuple):
    """An option of a command, where a list has them.

    Attributes:
        kind: The type of its value.
        panel: The heading that help lists it under.
        text: Its meaning.
        metavar: What help shows in place of a value; None for the type.
        default: What it is if it is not given.
        name: Its name on the command line, where that is another.
    """

    kind: Any
    panel: str
    text: str
    metavar: str | None = None
    default: Any = None
    name: str | None = None

    def parameter(self, name: str) -> inspect.Parameter:
        """The parameter of a command that typer makes the option of."""
        option = typer.Option(
            f"--{self.name or name.replace('_', '-')}",
            help=self.text,
            rich_help_panel=self.panel,
            metavar=self.metavar,
        )
        kind = self.kind | None if self.default is None else self.kind
        return _parameter(name, Annotated[kind, option], self.default)


Command = TypeVar("Command", bound="Callable[..., None]")


def with_flags(flags: Mapping[str, Flag], **arguments: Any) -> Callable[[Command], Command]:
    """Give a command the options of a list, and arguments by their types.

    The command takes them as `**given`, each by its name. Those that it has itself are left out.
    """

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        listed = [_parameter(name, kind, None) for name, kind in arguments.items()]
        listed += [one.parameter(name) for name, one in flags.items() if name not in own.parameters]
        n_first = sum(one.kind is not one.KEYWORD_ONLY for one in kept)
        every = [*kept[:n_first], *listed, *kept[n_first:]]
        command.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]  # typer reads it
        return command

    return decorate


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
