"""The command that asks the owner about segments after a release."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from clusterdp.cli.console import (
    AsJson,
    Folder,
    print_json,
    print_next,
    print_screen,
    reported_errors,
)
from clusterdp.estimation.asking import ask
from clusterdp.estimation.reading.rows import open_segments


@reported_errors("no follow-up was written")
def ask_command(
    folder: Folder,
    by: Annotated[
        list[str],
        typer.Option(help="The column of labels; crossed: tier,region. Repeatable."),
    ],
    out: Annotated[str, typer.Option(help="The folder to write.")],
    segments: Annotated[
        str | None, typer.Option(help="Your own table, which has the labels by id.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="Its column of ids; by default the one of the release.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="A declared metric to ask for; all by default. Repeatable."),
    ] = None,
    found_in_fold: Annotated[
        int | None,
        typer.Option(
            metavar="FOLD",
            help="The fold in which you chose these segments by looking at released rows.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, in a line. The owner sees it.")] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """Ask the owner for noisy totals of your segments.

    The owner will see your labels.

    clusterdp ask published/ --segments crm.csv --by tier --out followup
    """
    asked = ask(
        folder,
        by=by,
        out=out,
        segments=None if segments is None else open_segments(segments, on),
        on=on,
        metrics=metric or None,
        found_in_fold=found_in_fold,
        reason=reason,
    )
    if as_json:
        print_json(asked.to_dict())
        return
    print_screen(repr(asked))
    print_next(
        f"send {out} to the owner: clusterdp answer {shlex.quote(out)} --epsilon 0.2 --ledger ... "
        "--out answer"
    )
