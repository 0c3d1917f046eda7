"""Where a release that spends from a ledger meets the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from clusterdp.ledger.paid_release import Budget
    from clusterdp.ledger.reservation import Reservation
    from clusterdp.owner.how import How
    from clusterdp.owner.options import RunOptions


def open_budget(run: RunOptions, how: How) -> Budget | None:
    """The budget that a release spends; None if it spends from no ledger."""
    if run.ledger is None:
        if run.population is not None or how.key_file is not None or how.new_population:
            raise ParameterError(
                "population, new_population and ledger_key_file (--population, --new-population "
                "and --ledger-key-file) belong to a ledger: give ledger=... (--ledger)"
            )
        return None
    if not run.population:
        raise ParameterError(
            "a ledger needs a population, whose budget it is: give population=... (--population)"
        )
    from clusterdp.ledger.paid_release import Budget

    opened = how.open_ledger(run.ledger, as_path(how.key_file))
    return Budget(
        opened,
        run.population,
        confirmed_new=how.new_population,
        on_message=how.report,
        resume_hint=how.resume_hint,
    )


def reopen_budget(
    release_id: str, given: dict[str, Any], how: How
) -> tuple[Budget, Reservation, dict[str, Any]]:
    """An interrupted release: its budget, what is kept of it, and its options."""
    if given["ledger"] is None:
        raise ParameterError(
            "resuming a release needs the ledger it is written down in: give ledger=... (--ledger)"
        )
    from clusterdp.ledger.paid_release import Budget, resumed_options

    opened = how.open_ledger(str(given["ledger"]), as_path(how.key_file))
    budget = Budget(opened, None, on_message=how.report, resume_hint=how.resume_hint)
    reservation = budget.ledger.resume(release_id)
    return budget, reservation, resumed_options(reservation, given)


def as_path(given: Any) -> Path | None:
    """A path, however it was given."""
    return None if given is None else Path(given)
