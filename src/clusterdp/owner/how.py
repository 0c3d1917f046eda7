"""How a release is run: whom to tell, and how its ledger is opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from clusterdp.ledger.ledger import Ledger


def _open_ledger(where: str, key_file: Path | None) -> Ledger:
    from clusterdp.ledger.passphrase import open_ledger

    return open_ledger(where, key_file)


def _checked_ledger(given: Any) -> Ledger:
    """A ledger that is open, if it is one."""
    from clusterdp.ledger.ledger import Ledger

    if not isinstance(given, Ledger):
        raise ParameterError(
            f"ledger must be a file, a URL or a Ledger, got {type(given).__name__}"
        )
    return given


class How(NamedTuple):
    """How to run a release.

    Attributes:
        key_file: Key file of the ledger, if it was made with one.
        new_population: Whether the owner says that the population is new to the ledger.
        verbose: Whether messages may count rows by what their outcomes are.
        on_message: Where to tell the owner what happens, if anywhere.
        open_ledger: Opens and unlocks a ledger, by its name and key file.
        resume_hint: How to finish a release, by its id; by default on the command line.
    """

    key_file: Any = None
    new_population: bool = False
    verbose: bool = False
    on_message: Callable[[str], None] | None = None
    open_ledger: Callable[[str, Path | None], Ledger] = _open_ledger
    resume_hint: Callable[[str], str] | None = None

    def report(self, message: str) -> None:
        """Tell the owner, if there is where to."""
        if self.on_message is not None:
            self.on_message(message)


def how_to_run(given: Mapping[str, Any]) -> How:
    """How a call in Python is run. Its ledger may be open already."""
    ledger = given.get("ledger")
    is_named = ledger is None or isinstance(ledger, str | os.PathLike)
    return How(
        given.get("ledger_key_file"),
        new_population=given.get("new_population", False),
        verbose=given.get("verbose", False),
        open_ledger=_open_ledger if is_named else lambda *_: _checked_ledger(ledger),
        resume_hint=lambda release_id: f"clusterdp.resume({release_id!r}, source, ledger=...)",
    )
