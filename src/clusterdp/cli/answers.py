"""`clusterdp answer`: what an answer would cost and give; then the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterdp._progress import progress_bars
from clusterdp.cli.console import (
    REFUSED,
    AsJson,
    confirmed,
    owner_notices,
    print_aside,
    print_json,
    print_line,
    print_text,
    reported_errors,
)
from clusterdp.cli.ledger import ask_passphrase
from clusterdp.cli.owner import on_terminal, show_published
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.ledger.ledger import open_ledger
from clusterdp.owner.answers import AnswerJob, run_answer

if TYPE_CHECKING:
    from clusterdp.owner.answering import AnswerPreview


@reported_errors("nothing was published")
def answer_command(
    followup: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The folder that the analyst sent.")
    ],
    epsilon: Annotated[
        float,
        typer.Option(help="What all totals cost together."),
    ],
    ledger: Annotated[
        str,
        typer.Option(help="The ledger that the release was made with."),
    ],
    out: Annotated[str, typer.Option(help="The folder to publish.")],
    table: Annotated[
        str | None,
        typer.Option(help="The table that was released, if it is elsewhere now."),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="The release, if its folder is elsewhere now."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="The query, if the table is in a database.")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="The delimiter, if the table is a text file.")
    ] = None,
    ledger_key_file: Annotated[Path | None, typer.Option(help="Key file of the ledger.")] = None,
    *,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be published; spend nothing."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer an analyst's follow-up to a release with noisy totals.

    clusterdp answer followup/ --epsilon 0.2 --ledger budget.db --out answer
    """
    shown: list[AnswerPreview] = []

    def show(preview: AnswerPreview) -> None:
        shown.append(preview)
        if as_json and dry_run:
            print_json({"plan": preview.content})
        elif not as_json:
            print_text(to_screen(preview.parts(), terminal_width()) + "\n" * (not dry_run))
        asks = not (yes or as_json or dry_run)
        if asks and on_terminal() and not confirmed("Publish?"):
            print_line("Nothing was published.")
            raise typer.Exit(REFUSED)

    job = AnswerJob(
        followup=followup,
        epsilon=epsilon,
        out=out,
        ledger=open_ledger(ledger, ledger_key_file, ask_passphrase),
        source=table,
        query=query,
        delimiter=delimiter,
        release=release,
        notify=print_aside,
    )
    with owner_notices(), progress_bars() as bars:
        published = run_answer(job, show=show, publishes=not dry_run, progress=bars)
    if published is not None:
        show_published(
            published,
            shown[0] if shown else None,
            as_json=as_json,
            then="send it to the analyst: clusterdp estimate RELEASE --answer",
        )
    elif not as_json:
        print_line("Next: the same without --dry-run")
