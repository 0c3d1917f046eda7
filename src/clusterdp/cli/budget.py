"""The passphrase of a ledger: from the environment, or asked for on the terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from clusterdp.errors import LedgerError
from clusterdp.ledger.encryption import unencrypted_error
from clusterdp.ledger.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

PASSPHRASE = "CLUSTERDP_LEDGER_PASSPHRASE"  # noqa: S105 - the name of a variable


def open_ledger(where: str, key_file: Path | None) -> Ledger:
    """A ledger, unlocked with a key file, or a passphrase from the environment or the terminal."""
    ledger = Ledger(where)
    if ledger.protection == "none" and PASSPHRASE in os.environ:
        raise unencrypted_error(f"{PASSPHRASE} is set", "passphrase")
    ledger.unlock(
        passphrase=_passphrase() if ledger.protection == "passphrase" else None, key_file=key_file
    )
    return ledger


def _passphrase() -> str | None:
    given = os.environ.get(PASSPHRASE)
    if given is None and sys.stdin.isatty():
        import getpass

        given = getpass.getpass("passphrase of the ledger: ")
    if given is None:
        raise LedgerError(f"the ledger needs its passphrase: set {PASSPHRASE}")
    return given


def chosen_passphrase(*, wanted: bool, has_key_file: bool) -> str | None:
    """The passphrase for a new ledger; None if it has none.

    Args:
        wanted: Whether the owner asks for one.
        has_key_file: Whether the owner gives a key file.
    """
    if wanted:
        return _new_passphrase()
    if PASSPHRASE in os.environ and not has_key_file:
        raise LedgerError(
            f"{PASSPHRASE} is set, but the ledger would keep keys unencrypted: add --passphrase"
        )
    return None


def _new_passphrase() -> str:
    """From the environment, or asked for twice."""
    given = os.environ.get(PASSPHRASE)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise LedgerError(f"there is no terminal to ask for a passphrase: set {PASSPHRASE}")
    import getpass

    given = getpass.getpass("passphrase for the new ledger: ")
    if getpass.getpass("again: ") != given:
        raise LedgerError("the two passphrases differ; try again")
    return given
