"""The command `clusterdp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from clusterdp.cli import analyst, folders, ledger, owner, reproduce
from clusterdp.cli.console import ErrorsInOneShape, PlainHelp, ScreenHelp

app = typer.Typer(
    cls=ErrorsInOneShape,
    no_args_is_help=True,
    add_completion=False,
    # A traceback with local variables would show data.
    pretty_exceptions_enable=False,
    help="Publish user-level results of a randomized experiment under label differential privacy, "
    "and measure effects from them.\n\nclusterdp init users.parquet",
)

# In the order of work.
_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Owner": {
        "init": owner.init_command,
        "plan": owner.plan_command,
        "release": owner.release_command,
    },
    "Analyst": {
        "inspect": folders.inspect_command,
        "estimate": analyst.estimate_command,
        "verify": folders.verify_command,
        "calibrate": analyst.calibrate_command,
    },
    "Other": {"errata": folders.errata_command, "reproduce": reproduce.reproduce_command},
}
# Their options do not fit one screen.
_LONG = ("plan", "release", "estimate")
for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        kind = ScreenHelp if name in _LONG else PlainHelp
        app.command(name, cls=kind, rich_help_panel=panel)(command)
app.add_typer(ledger.app, name="ledger", rich_help_panel="Owner")


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
