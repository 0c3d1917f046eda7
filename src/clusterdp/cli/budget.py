"""The passphrase of a ledger: from the environment, or asked for on the terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from clusterdp.errors import LedgerError
from clusterdp.ledger import passphrase as unlocking
from clusterdp.ledger.passphrase import PASSPHRASE

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.ledger.ledger import Ledger


def open_ledger(where: str, key_file: Path | None) -> Ledger:
    """A ledger, unlocked with a key file, or a passphrase from the environment or the terminal."""
    return unlocking.open_ledger(where, key_file, _ask)


def _ask() -> str | None:
    if not sys.stdin.isatty():
        return None
    import getpass

    return getpass.getpass("passphrase of the ledger: ")


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
