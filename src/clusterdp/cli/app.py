"""The command `clusterdp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from clusterdp.cli import analyst, folders, ledger, owner, reproduce

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    # A traceback with local variables would show data.
    pretty_exceptions_enable=False,
    help="Publish user-level results of a randomized experiment under label differential privacy, "
    "and measure effects from them.",
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "release": owner.release_command,
    "plan": owner.plan_command,
    "estimate": analyst.estimate_command,
    "calibrate": analyst.calibrate_command,
    "inspect": folders.inspect_command,
    "verify": folders.verify_command,
    "errata": folders.errata_command,
    "reproduce": reproduce.reproduce_command,
}
for name, command in _COMMANDS.items():
    app.command(name)(command)
app.add_typer(ledger.app, name="ledger")


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
    """Options of no command in particular."""
