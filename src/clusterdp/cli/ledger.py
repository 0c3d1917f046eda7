"""`clusterdp ledger`: make a ledger, show it, check it, give up releases.

The passphrase of a ledger: from the environment, or asked for on the terminal.
"""

from __future__ import annotations

import os
import sys
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterdp._text import counted
from clusterdp.cli.console import (
    REFUSED,
    AsJson,
    ErrorsInOneShape,
    PlainHelp,
    print_failure,
    print_json,
    print_line,
    print_next,
    print_note,
    print_screen,
    print_text,
    reported_errors,
)
from clusterdp.errors import LedgerError
from clusterdp.ledger.balance import budget_in_short
from clusterdp.ledger.ledger import PASSPHRASE, Ledger
from clusterdp.ledger.statement import folder_problem
from clusterdp.published.folder import read_manifest
from clusterdp.published.manifest import checksum_of

if TYPE_CHECKING:
    from clusterdp.ledger.history import ReleaseRecord


def ask_passphrase() -> str | None:
    """The passphrase of a ledger, asked for on the terminal; None if there is no terminal."""
    if not sys.stdin.isatty():
        return None
    return getpass("passphrase of the ledger: ")


def chosen_passphrase(*, wanted: bool, has_key_file: bool) -> str | None:
    """The passphrase for a new ledger, from the environment, or asked for twice; None for none.

    Args:
        wanted: Whether the owner asks for one.
        has_key_file: Whether the owner gives a key file.
    """
    given = os.environ.get(PASSPHRASE)
    if not wanted:
        if given is not None and not has_key_file:
            raise LedgerError(
                f"{PASSPHRASE} is set, but keys would not be encrypted. Fix: add --passphrase."
            )
        return None
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise LedgerError(f"There is no terminal to ask for a passphrase. Fix: set {PASSPHRASE}.")
    given = getpass("passphrase for the new ledger: ")
    if getpass("again: ") != given:
        raise LedgerError("The two passphrases differ. Fix: try again.")
    return given


app = typer.Typer(
    cls=ErrorsInOneShape,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Track the privacy budget of releases about the same units.\n\n"
    "clusterdp ledger init budget.db --cap-epsilon 8",
)

Where = Annotated[
    str, typer.Argument(metavar="LEDGER", help="A file, or postgresql://user@host/database.")
]
ReleaseId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a release. `ledger show` lists them.")
]
Reason = Annotated[str | None, typer.Option(help="One line to keep in the ledger.")]


@app.command("init", cls=PlainHelp)
@reported_errors()
def init_ledger(
    where: Where,
    cap_epsilon: Annotated[
        float, typer.Option(help="The epsilon that may be spent on each population.")
    ],
    cap_delta: Annotated[
        float, typer.Option(help="The delta that may be spent on each population.")
    ] = 0.0,
    tight: Annotated[
        bool,
        typer.Option(
            "--tight",
            help="Use tight composition instead of adding up losses. Valid only if the parameters "
            "of later releases do not depend on earlier results. Needs --cap-delta.",
        ),
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option(help="Encrypt keys of unfinished releases with this file of random bytes."),
    ] = None,
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help="Encrypt them with a passphrase, from a prompt or CLUSTERDP_LEDGER_PASSPHRASE.",
        ),
    ] = False,
) -> None:
    """Create a ledger.

    clusterdp ledger init budget.db --cap-epsilon 8 --cap-delta 1e-6
    """
    chosen = chosen_passphrase(wanted=passphrase, has_key_file=key_file is not None)
    made = Ledger.create(
        where, cap_epsilon, cap_delta, passphrase=chosen, key_file=key_file, tight=tight
    )
    meaning = made.cap.statement().short
    print_line(f"Created {made}. Budget cap of each population: {budget_in_short(made.cap)}.")
    print_line(f"At the cap: {meaning}")
    if made.tight:
        print_note(
            "This ledger uses tight composition. It is valid only if earlier results do not "
            "influence the parameters of later releases. Otherwise create a ledger without --tight."
        )
    if made.protection == "none":
        print_note(
            "Keys of unfinished releases are not encrypted. Anyone who reads one can remove the "
            "row noise of that release. Encrypt them: --key-file or --passphrase."
        )


@app.command("show", cls=PlainHelp)
@reported_errors()
def show_ledger(
    where: Where,
    population: Annotated[str | None, typer.Option(help="Only this population.")] = None,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool,
        typer.Option(
            "--csv", help="Print a row for each release: who approved it, why, and how it ended."
        ),
    ] = False,
) -> None:
    """Show what was spent, by which releases, and what remains."""
    statement = Ledger(where).show(population)
    if as_csv:
        print_text(statement.to_csv().rstrip("\n"))
    elif as_json:
        print_json(statement.to_dict())
    else:
        print_screen(str(statement))
        print_next(f"clusterdp ledger verify {where} (prints the hash to keep elsewhere)")


@app.command("verify", cls=PlainHelp)
@reported_errors()
def verify_ledger(
    where: Where,
    head: Annotated[
        str | None, typer.Option(help="A hash that this command printed earlier.")
    ] = None,
    folder: Annotated[
        list[str] | None,
        typer.Option(help="Check too that this folder is in the ledger, and not withdrawn."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that the history was not edited."""
    ledger = Ledger(where)
    problems = ledger.verify(head)
    for one in folder or ():
        problem = folder_problem(checksum_of(read_manifest(one)), ledger.releases())
        problems += [] if problem is None else [f"{one}: {problem}"]
    if as_json:
        print_json({"sound": not problems, "problems": problems})
    else:
        for problem in problems:
            print_failure(problem)
    if problems:
        raise typer.Exit(REFUSED)
    if not as_json:
        last = ledger.head()
        print_line(f"The history is intact: {counted(last.number + 1, 'entry')}.")
        for one in folder or ():
            print_line(f"{one} is in it, and not withdrawn.")
        print_line(f"Keep this hash elsewhere: {last.hash}")


@app.command("close", cls=PlainHelp)
@reported_errors()
def close_release(where: Where, release_id: ReleaseId, reason: Reason = None) -> None:
    """Abandon a release that cannot be finished. Its budget stays spent, its key is wiped.

    clusterdp ledger close budget.db ID --reason "the table is gone"
    """
    closed = Ledger(where).close(release_id, reason)
    stays = f"{_cost(closed)} stays spent, and its key is wiped"
    if closed.status == "committed":
        print_line(
            f"Release {release_id} is published at {closed.folder}, and now recorded: {stays}."
        )
        return
    print_line(f"Abandoned release {release_id}: {stays}.")
    ended = closed.ended or {}
    _print_left(ended)
    if "sealed_sha256" in ended:
        place = ended.get("sealed_for", "an unknown place")
        print_note(
            f"It was about to be published at {place}. A folder whose manifest.json has the "
            f"SHA-256 {ended['sealed_sha256']} is this release."
        )


@app.command("cancel", cls=PlainHelp)
@reported_errors()
def cancel_release(where: Where, release_id: ReleaseId, reason: Reason = None) -> None:
    """Give back the budget of a release that drew nothing. Its key is wiped.

    clusterdp ledger cancel budget.db ID
    """
    cancelled = Ledger(where).cancel(release_id, reason)
    print_line(f"Cancelled release {release_id}: {_cost(cancelled)} is available again.")
    _print_left(cancelled.ended or {})


@app.command("withdraw")
@reported_errors()
def withdraw_release(where: Where, release_id: ReleaseId, reason: Reason = None) -> None:
    """Record that a published folder is not to be used any more. Its budget stays spent.

    clusterdp ledger withdraw budget.db ID --reason "one user asked to be removed"
    """
    withdrawn = Ledger(where).withdraw(release_id, reason)
    print_line(f"Withdrew release {release_id}: {_cost(withdrawn)} stays spent.")
    print_note(
        "No file was deleted, and copies may exist. Delete the folder where you can, and ask "
        "readers who have it. Keep a copy if another batch is to continue it."
    )
    print_line(f'Next: clusterdp errata {withdrawn.folder} "withdrawn; do not use"')


def _print_left(ended: dict[str, Any]) -> None:
    if "left" in ended:
        print_note(f"{ended['left']}. Remove it there.")
    if "at_work" in ended:
        print_note(
            f"A run is at work at {ended['at_work']}. It removes what it made when it finds this. "
            "If you stop it instead, run this command again."
        )


def _cost(one: ReleaseRecord) -> str:
    return f"{budget_in_short(one.guarantee)} of population {one.population!r}"
