"""Where a release that spends from a ledger meets the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from clusterdp.cli.budget import Budget
    from clusterdp.ledger.reservation import Reservation
    from clusterdp.owner.options import RunOptions


def open_budget(
    run: RunOptions, key_file: Any = None, *, new_population: bool = False
) -> Budget | None:
    """The budget that a release spends; None if it spends from no ledger."""
    if run.ledger is None:
        if run.population is not None or key_file is not None or new_population:
            raise ParameterError(
                "population, new_population and ledger_key_file (--population, --new-population "
                "and --ledger-key-file) belong to a ledger: give ledger=... (--ledger)"
            )
        return None
    if not run.population:
        raise ParameterError(
            "a ledger needs a population, whose budget it is: give population=... (--population)"
        )
    from clusterdp.cli.budget import Budget

    return Budget(run.ledger, run.population, as_path(key_file), confirmed_new=new_population)


def reopen_budget(
    release_id: str, given: dict[str, Any], key_file: Any
) -> tuple[Budget, Reservation, dict[str, Any]]:
    """An interrupted release: its budget, what is kept of it, and its options."""
    if given["ledger"] is None:
        raise ParameterError(
            "resuming a release needs the ledger it is written down in: give ledger=... (--ledger)"
        )
    from clusterdp.cli.budget import Budget, resumed_options

    budget = Budget(str(given["ledger"]), None, as_path(key_file))
    reservation = budget.ledger.resume(release_id)
    return budget, reservation, resumed_options(reservation, given)


def as_path(given: Any) -> Path | None:
    """A path, however it was given."""
    return None if given is None else Path(given)
