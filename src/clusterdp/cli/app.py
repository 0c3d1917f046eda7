"""The command `clusterdp`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main

from clusterdp.cli.console import ErrorsInOneShape, PlainHelp, ScreenHelp

# The commands in the order of work: who uses each, and the module that has it.
_COMMANDS = {
    "init": ("Owner", "owner"),
    "plan": ("Owner", "owner"),
    "release": ("Owner", "owner"),
    "answer": ("Owner", "answers"),
    "ledger": ("Owner", "ledger"),
    "sign": ("Owner", "folders"),
    "certificate": ("Owner", "certificate"),
    "inspect": ("Analyst", "folders"),
    "estimate": ("Analyst", "analyst"),
    "ask": ("Analyst", "ask"),
    "power": ("Analyst", "power"),
    "verify": ("Analyst", "folders"),
    "audit": ("Analyst", "audit"),
    "calibrate": ("Analyst", "folders"),
    "app": ("Other", "browser"),
    "demo": ("Other", "demo"),
    "errata": ("Other", "folders"),
    "reproduce": ("Other", "reproduce"),
}
# Their options do not fit one screen.
_LONG = ("plan", "release", "estimate")


@cache
def _load(name: str) -> Any:
    """A command, or the group of commands, of this name."""
    panel, place = _COMMANDS[name]
    module = import_module(f"clusterdp.cli.{place}")
    alone = typer.Typer()
    if group := getattr(module, "app", None):
        alone.add_typer(group, name=name, rich_help_panel=panel)
    else:
        kind = ScreenHelp if name in _LONG else PlainHelp
        command = getattr(module, f"{name}_command")
        alone.command(name, cls=kind, rich_help_panel=panel)(command)
    return typer.main.get_group(alone).commands[name]


class _LazyCommands(Mapping[str, Any]):
    """Commands by name. One is loaded when it is used: an analyst loads nothing of the owner's."""

    def __getitem__(self, name: str) -> Any:
        if name not in _COMMANDS:
            raise KeyError(name)
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Commands(ErrorsInOneShape):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings | {"commands": {}})
        self.commands: Any = _LazyCommands()


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    # A traceback with local variables would show data.
    pretty_exceptions_enable=False,
    help="Publish user-level results of a randomized experiment under label differential privacy, "
    "and measure effects from them.\n\nclusterdp init users.parquet",
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from clusterdp._version import __version__

        typer.echo(f"clusterdp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Options of the program itself."""
