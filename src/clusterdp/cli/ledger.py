"""`clusterdp ledger`: make a budget ledger, look at it, check it, give releases up."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterdp.cli.console import errors_in_one_line, print_json, say

if TYPE_CHECKING:
    from clusterdp.ledger.balance import Account
    from clusterdp.ledger.history import Spending
    from clusterdp.ledger.ledger import Ledger

_BAR_WIDTH = 40
_UNFINISHED = ("reserved", "drawn")

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Budgets that several releases about the same people share.",
)

WHERE = typer.Argument(metavar="LEDGER", help="A file, or postgresql://user@host/database.")
RELEASE = typer.Argument(metavar="ID", help="A release, as `ledger show` names it.")
REASON = typer.Option(help="What to say of it in the ledger, for good.")
AS_JSON = typer.Option("--json", help="Print JSON.")


@app.command()
def init(
    where: Annotated[str, WHERE],
    cap_epsilon: Annotated[float, typer.Option(help="What may be spent on each population.")],
    cap_delta: Annotated[float, typer.Option(help="Failure probability of all of it.")] = 0.0,
    tight: Annotated[
        bool,
        typer.Option(
            "--tight",
            help="Let the tight composition decide, instead of sums. It holds only if parameters "
            "of later releases are not chosen from earlier results. Needs --cap-delta.",
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
            help="Encrypt them with a passphrase: asked for, or CLUSTERDP_LEDGER_PASSPHRASE.",
        ),
    ] = False,
) -> None:
    """Make a new ledger.

    clusterdp ledger init budget.db --cap-epsilon 8 --cap-delta 1e-6
    """
    with errors_in_one_line():
        from clusterdp.cli.budget import chosen_passphrase
        from clusterdp.ledger.balance import budget_in_short
        from clusterdp.ledger.encryption import Vault
        from clusterdp.ledger.ledger import Ledger
        from clusterdp.privacy.accounting import Guarantee

        chosen = chosen_passphrase(wanted=passphrase, has_key_file=key_file is not None)
        vault = Vault.new(passphrase=chosen, key_file=key_file)
        cap = Guarantee(epsilon=cap_epsilon, delta=cap_delta)
        made = Ledger.create(where, cap, vault, tight=tight)
        say(f"made {made}: {budget_in_short(made.cap)} for each population: {made.cap.in_odds()}")
        if made.tight:
            say(
                "note: the tight composition decides. It holds only if the parameters of later "
                "releases are not chosen from earlier results; if they are, make a ledger without "
                "--tight"
            )
        if made.protection == "none":
            say(
                "note: the key of an unfinished release is kept as it is, and whoever reads the "
                "ledger meanwhile can undo that release's noise; --key-file or --passphrase "
                "encrypts it"
            )


@app.command()
def show(
    where: Annotated[str, WHERE],
    population: Annotated[str | None, typer.Option(help="Only this population.")] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Show what was spent, by which releases, and what is left."""
    with errors_in_one_line():
        from clusterdp.errors import LedgerError
        from clusterdp.ledger.balance import plain_name
        from clusterdp.ledger.ledger import Ledger

        ledger = Ledger(where)
        accounts = ledger.accounts()
        if population is not None:
            listed = ", ".join(repr(account.population) for account in accounts) or "none"
            accounts = [one for one in accounts if one.population == plain_name(population)]
            if not accounts:
                raise LedgerError(f"nothing was spent on {population!r}; populations are: {listed}")
        described = [_describe(account) for account in accounts]
        if as_json:
            content = {"head": ledger.head().hash, "decides": _deciding(ledger)}
            print_json({**content, "populations": described})
            return
        _show(ledger, described)


@app.command()
def verify(
    where: Annotated[str, WHERE],
    head: Annotated[
        str | None, typer.Option(help="A hash that `ledger show` printed earlier.")
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Check that nobody edited history."""
    with errors_in_one_line():
        from clusterdp.cli.console import REFUSED
        from clusterdp.ledger.ledger import verify_books
        from clusterdp.ledger.store import Books

        books = Books(where)
        problems = verify_books(books, head)
        if as_json:
            print_json({"sound": not problems, "problems": problems})
        else:
            for problem in problems:
                say(f"FAIL {problem}")
        if problems:
            raise typer.Exit(REFUSED)
        if not as_json:
            entries = books.entries()
            say(f"{len(entries)} entries, each in its place; the last has the hash")
            say(entries[-1].hash)


@app.command()
def close(
    where: Annotated[str, WHERE],
    release: Annotated[str, RELEASE],
    reason: Annotated[str | None, REASON] = None,
) -> None:
    """Give up a release that cannot be finished: its budget stays spent, its key is wiped.

    clusterdp ledger close budget.db ID --reason "the table is gone"
    """
    with errors_in_one_line():
        from clusterdp.ledger.ledger import Ledger

        ledger = Ledger(where)
        closed = ledger.close(release, reason)
        stays = f"{_cost(closed)} stays spent, and its key is wiped"
        if closed.status == "committed":
            say(f"release {release} is published at {closed.folder}, now recorded: {stays}")
            return
        say(f"closed release {release}: {stays}")
        ended = closed.ended or {}
        if "sealed_sha256" in ended:
            place = ended.get("sealed_for", "a place that is not known")
            say(
                f"note: it was about to be published at {place}; a folder whose manifest.json has "
                f"the SHA-256 {ended['sealed_sha256']} is this release"
            )


@app.command()
def cancel(
    where: Annotated[str, WHERE],
    release: Annotated[str, RELEASE],
    reason: Annotated[str | None, REASON] = None,
) -> None:
    """Give back the budget of a release that drew nothing; its key is wiped.

    clusterdp ledger cancel budget.db ID
    """
    with errors_in_one_line():
        from clusterdp.ledger.ledger import Ledger

        cancelled = Ledger(where).cancel(release, reason)
        say(f"cancelled release {release}: {_cost(cancelled)} is given back")


def _cost(one: Spending) -> str:
    from clusterdp.ledger.balance import budget_in_short

    return f"{budget_in_short(one.guarantee)} of population {one.population!r}"


def _deciding(ledger: Ledger) -> str:
    """Which of the two totals is held against the cap."""
    return "tight" if ledger.tight else "basic"


def _describe(account: Account) -> dict[str, Any]:
    """An account as plain values."""
    return {
        "population": account.population,
        "cap_epsilon": account.cap.epsilon,
        "cap_delta": account.cap.delta,
        "basic_epsilon": account.basic.epsilon,
        "basic_delta": account.basic.delta,
        "tight_epsilon": account.tight_epsilon(),
        "room_epsilon": account.room,
        "releases": [_describe_release(one) for one in account.releases],
    }


def _describe_release(one: Spending) -> dict[str, Any]:
    return {
        "release": one.release,
        "status": one.status,
        "at": one.at,
        "who": one.who,
        "outcome": one.content["outcome"]["name"],
        "mechanism": one.content["mechanism"]["name"],
        "epsilon": one.guarantee.epsilon,
        "delta": one.guarantee.delta,
        "n_units": one.content.get("n_units"),
        "folder": one.folder,
        "manifest_sha256": one.manifest_sha256,
        "ended": one.ended,
    }


def _show(ledger: Ledger, accounts: list[dict[str, Any]]) -> None:
    from clusterdp.ledger.balance import budget_in_short, shown_below
    from clusterdp.privacy.accounting import shown

    say(f"{ledger}: {budget_in_short(ledger.cap)} for each population: {ledger.cap.in_odds()}")
    if not accounts:
        say("nothing was spent yet")
    for account in accounts:
        say("")
        say(f"{account['population']}")
        _show_releases(account["releases"])
        in_sum, together = ("", ": this decides") if ledger.tight else (": this decides", "")
        say(f"  {_bar(account['basic_epsilon'], account['cap_epsilon'])}  in sum{in_sum}")
        if account["tight_epsilon"] is not None:
            bar = _bar(account["tight_epsilon"], account["cap_epsilon"])
            say(f"  {bar}  together, at delta {shown(account['cap_delta'])}{together}")
        say(f"  room for a release of epsilon {shown_below(account['room_epsilon'])}")
        for one in account["releases"]:
            if one["status"] in _UNFINISHED:
                _show_ways_on(one, shlex.quote(str(ledger)))
    say("")
    say(f"last entry {ledger.head().hash}")


def _show_ways_on(one: dict[str, Any], ledger: str) -> None:
    """What can be done about an unfinished release."""
    release = one["release"]
    say(f"  {release} is unfinished: clusterdp release --resume {release} --ledger {ledger}")
    if one["status"] == "reserved":
        say(
            f"    it drew nothing; to get its budget back: clusterdp ledger cancel {ledger} "
            f"{release}"
        )
    say(f"    to give it up, its budget spent: clusterdp ledger close {ledger} {release}")


def _show_releases(releases: list[dict[str, Any]]) -> None:
    from clusterdp.estimation.formatting import aligned
    from clusterdp.privacy.accounting import shown

    head = ("release", "when (UTC)", "who", "outcome", "mechanism", "epsilon", "delta", "status")
    rows = [
        (
            one["release"],
            one["at"][:16].replace("T", " "),
            one["who"],
            one["outcome"],
            one["mechanism"],
            shown(one["epsilon"]),
            shown(one["delta"]),
            "unfinished" if one["status"] in _UNFINISHED else one["status"],
        )
        for one in releases
    ]
    for line in aligned([head, *rows]):
        say(line)


def _bar(spent: float, cap: float) -> str:
    """How much of a cap is spent, to look at."""
    from clusterdp.privacy.accounting import shown

    filled = round(_BAR_WIDTH * min(1.0, spent / cap)) if math.isfinite(spent) else _BAR_WIDTH
    bar = "█" * filled + "░" * (_BAR_WIDTH - filled)
    return f"{bar}  {shown(spent)} of {shown(cap)}"
