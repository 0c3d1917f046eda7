"""Options of the commands: those of the owner's functions, and those that commands share."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from clusterdp.owner.keywords import names_of
from clusterdp.owner.options import DECLARED

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET, OUTPUT = DECLARED["ledger"].panel, DECLARED["out"].panel

Folder = Annotated[Path, typer.Argument(help="A published folder.")]
Spec = Annotated[
    Path | None, typer.Option(help="Options in a TOML file; the command line overrides it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OwnerJson = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)]

_Command = TypeVar("_Command", bound="Callable[..., None]")


def with_options(keywords: type, *more: str) -> Callable[[_Command], _Command]:
    """Give a command the input table, and the options of one of the owner's functions.

    The command takes them as `**given`, each by its name; those that were not given are None.

    Args:
        keywords: The options of the function.
        more: Further options.
    """

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command, eval_str=True)
        kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        options = [_parameter(name) for name in names_of(keywords, "input", *more)]
        command.__signature__ = own.replace(parameters=[*options, *kept])  # type: ignore[attr-defined]  # typer reads it
        return command

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    """The parameter of a command that typer makes an option of."""
    declared = DECLARED[name]
    shown: Any
    if name == "input":
        shown = typer.Argument(metavar="INPUT", help=declared.text)
    else:
        shown = typer.Option(
            f"--{name.replace('_', '-')}",
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
