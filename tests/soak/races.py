"""Many processes that release at once, against one ledger with room for some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clusterdp as cdp
from categories import one_outcome, one_question
from clusterdp.ledger.ledger import Ledger
from soak.owner import Owner, release_options, write_table
from soak.report import Line

if TYPE_CHECKING:
    from pathlib import Path


def run_race(where: str, kind: str, n_processes: int, n_fit: int, folder: Path) -> Line:
    """Let processes race for the last budget.

    Args:
        where: A place for a new ledger.
        kind: What to call it.
        n_processes: How many release at once.
        n_fit: How many the budget is enough for.
        folder: Where to work.
    """
    source = write_table(folder / "table.parquet", 5000)
    ledger = Ledger.create(where, n_fit)
    # The population is known before they race, and nothing is spent on it.
    ledger.reserve(
        "everyone",
        terms=one_question(
            one_outcome("clicks", cdp.OutcomeSpace.integers(0, 5)), cdp.uniform_prior_dp(epsilon=1)
        ),
        about={},
        place=str(folder / "never"),
    ).cancel()
    targets = [folder / f"out-{number}" for number in range(n_processes)]
    owners = [
        Owner(
            *release_options(source, target),
            *("--epsilon", 1, "--mechanism", "uniform-prior-dp"),
            *("--ledger", where, "--population", "everyone"),
        )
        for target in targets
    ]
    for owner in owners:
        owner.begin()
    ended = [owner.wait() for owner in owners]
    published = sum(
        cdp.read_release(target).guarantee.epsilon <= 1 for target in targets if target.exists()
    )
    succeeded = sum(code == 0 for code, _ in ended)
    refused = sum(code == 2 and "not enough budget" in told for code, told in ended)
    balance = ledger.balance("everyone")
    committed = sum(one.status == "committed" for one in balance.spent)
    return Line(
        trial=f"{n_processes} processes at once, room for {n_fit}, {kind}",
        runs=n_processes,
        faults=0,
        lost=abs(n_fit - succeeded)
        + abs(n_processes - n_fit - refused)
        + len(Ledger(where).verify()),
        overspent=abs(n_fit - committed) + (balance.basic.epsilon > n_fit),
        partial=abs(published - succeeded),
        details=f"{succeeded} published, {refused} refused clearly",
    )
