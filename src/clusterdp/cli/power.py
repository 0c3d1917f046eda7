"""`clusterdp power`: how many units the next experiment needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterdp._lists import parse_numbers
from clusterdp.cli.console import (
    AsJson,
    Folder,
    check_place,
    print_json,
    print_line,
    print_next,
    print_screen,
    reported_errors,
)
from clusterdp.errors import OutputError
from clusterdp.estimation.power import power


@reported_errors()
def power_command(
    folder: Folder,
    effect: Annotated[
        list[str],
        typer.Option(
            metavar="METRIC=NUMBER",
            help="The smallest overall effect to detect: visit=0.005. Repeatable.",
        ),
    ],
    epsilon: Annotated[
        str | None,
        typer.Option(metavar="NUMBER,...", help="The ε to compare; by default 0.5, 1, 2 and 4."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to share.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Units that the next experiment needs to detect an effect.

    clusterdp power published/ --effect visit=0.005
    """
    if html is not None:
        check_place(html)
        if html.resolve().is_relative_to(Path(folder).resolve()):
            raise OutputError(f"{html} is an input. Nothing was written. Fix: choose another path.")
    found = power(folder, effect=effect, epsilon=parse_numbers(epsilon or ()))
    if html is not None:
        html.write_text(found.to_html(), encoding="utf-8")
    if as_json:
        print_json(found.to_dict())
        return
    print_screen(repr(found))
    if html is not None:
        print_line(f"Wrote {html}")
    print_next("the owner plans the experiment with these numbers: clusterdp plan")
