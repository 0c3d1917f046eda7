"""Options of the commands: those of the owner's functions, and those that commands share."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from clusterdp.errors import ParameterError
from clusterdp.owner.option_list import DECLARED, flag_of
from clusterdp.owner.options import Options
from clusterdp.owner.parsing import change_options, read_options
from clusterdp.owner.plan import with_plan

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET, OUTPUT = DECLARED["ledger"].panel, DECLARED["out"].panel

Folder = Annotated[
    str, typer.Argument(help="A published folder, or its address in a store (s3://...).")
]
Spec = Annotated[
    Path | None, typer.Option(help="Options in a TOML file; the command line overrides it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
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


def options_of(given: dict[str, Any], spec: Path | None, plan: Path | None = None) -> Options:
    """The options of a command: those of a file, overridden by the command line."""
    if spec is not None and plan is not None:
        raise ParameterError("--plan and --spec exclude each other; leave out --spec")
    options = with_plan(given, plan) if spec is None else change_options(read_options(spec), given)
    if options.input is None:
        raise ParameterError("missing: the input table; give it as an argument")
    return options


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
