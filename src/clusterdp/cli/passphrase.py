"""The passphrase of a ledger: from the environment, or asked for on the terminal."""

from __future__ import annotations

import os
import sys
from getpass import getpass

from clusterdp.errors import LedgerError
from clusterdp.ledger.passphrase import PASSPHRASE


def ask_passphrase() -> str | None:
    """The passphrase of a ledger, asked for on the terminal; None if there is no terminal."""
    if not sys.stdin.isatty():
        return None
    return getpass("passphrase of the ledger: ")


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
    given = getpass("passphrase for the new ledger: ")
    if getpass("again: ") != given:
        raise LedgerError("the two passphrases differ; try again")
    return given
