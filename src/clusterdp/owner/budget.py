"""The budget of a release that spends from a ledger, and who runs the release."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp.errors import ParameterError
from clusterdp.ledger.ledger import Ledger
from clusterdp.ledger.paid_release import Budget, resumed_options
from clusterdp.ledger.passphrase import open_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clusterdp.ledger.reservation import Reservation
    from clusterdp.owner.options import Options


def _ignore(message: str) -> None:
    """Drop a message that nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who runs a release: Python or the command line.

    Attributes:
        notify: Takes messages for the owner.
        ask: Asks the owner for the passphrase of a ledger; None if there is nobody to ask.
        resume_hint: How to finish a release, given its id; None for the command line.
        ledger: A ledger that is open already; None if the options name it.
    """

    notify: Callable[[str], None] = _ignore
    ask: Callable[[], str | None] | None = None
    resume_hint: Callable[[str], str] | None = None
    ledger: Ledger | None = None

    def open_budget(
        self, options: Options, population: str | None, *, confirmed_new: bool = False
    ) -> Budget:
        """The budget of a population in the ledger; None for a release that names it."""
        key = None if options.ledger_key_file is None else Path(options.ledger_key_file)
        return Budget(
            self.ledger or open_ledger(options.ledger or "", key, self.ask),
            population,
            confirmed_new=confirmed_new,
            say=self.notify,
            resume_hint=self.resume_hint,
        )


def python_caller(ledger: Any) -> Caller:
    """Python, with a ledger by its name, or one that is open."""
    if not isinstance(ledger, str | os.PathLike | Ledger | None):
        raise ParameterError(
            f"ledger must be a file, a URL or a Ledger, got {type(ledger).__name__}"
        )
    return Caller(
        resume_hint=lambda release_id: f"clusterdp.resume({release_id!r}, source, ledger=...)",
        ledger=ledger if isinstance(ledger, Ledger) else None,
    )


def open_budget(options: Options, caller: Caller) -> Budget | None:
    """The budget that a release spends; None if it spends from no ledger."""
    if options.ledger is None:
        given = (options.population, options.ledger_key_file, options.new_population or None)
        if any(value is not None for value in given):
            raise ParameterError(
                "population, new_population and ledger_key_file (--population, --new-population "
                "and --ledger-key-file) belong to a ledger: give ledger=... (--ledger)"
            )
        return None
    if not options.population:
        raise ParameterError(
            "a ledger needs a population, whose budget it is: give population=... (--population)"
        )
    return caller.open_budget(
        options, options.population, confirmed_new=bool(options.new_population)
    )


def reopen_budget(
    release_id: str, options: Options, given: Mapping[str, Any], caller: Caller
) -> tuple[Budget, Reservation, dict[str, Any]]:
    """The budget, the reservation and the options of a release that was interrupted.

    Args:
        release_id: Its id in the ledger.
        options: The ledger, and how to unlock it.
        given: What else was given, by name. Only locations may be.
        caller: Who finishes it.
    """
    if options.ledger is None:
        raise ParameterError(
            "resuming a release needs the ledger that recorded it: give ledger=... (--ledger)"
        )
    budget = caller.open_budget(options, None)
    reservation = budget.ledger.resume(release_id)
    return budget, reservation, resumed_options(reservation, dict(given))
