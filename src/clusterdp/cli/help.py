"""Help that fits one screen: `--help` shows the first panel of options, `--help-all` every one."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

# The options that most people need.
FIRST = "Most people need"
_ALL = "clusterdp.help_all"


class ScreenHelp(TyperCommand):
    """A command whose `--help` fits one screen; it takes `HelpAll`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the first panel, or all of them."""
        later: list[Any] = [one for one in self.get_params(ctx) if _is_later(one)]
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


def _is_later(parameter: Any) -> bool:
    return isinstance(parameter, TyperOption) and parameter.rich_help_panel != FIRST


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
