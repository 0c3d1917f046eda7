"""Opening a ledger with what unlocks it: a key file, or a passphrase from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clusterdp.errors import LedgerError
from clusterdp.ledger.encryption import unencrypted_error
from clusterdp.ledger.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PASSPHRASE = "CLUSTERDP_LEDGER_PASSPHRASE"  # noqa: S105 - the name of a variable


def open_ledger(
    where: str, key_file: Path | None, ask: Callable[[], str | None] | None = None
) -> Ledger:
    """A ledger, unlocked.

    Args:
        where: A file, or a PostgreSQL URL.
        key_file: The key file that the ledger was made with, if any.
        ask: Asks the owner for the passphrase, if the environment does not have it.

    Raises:
        LedgerError: If it cannot be unlocked; or if it does not encrypt although a passphrase is in
            the environment, because somebody may have replaced it.
    """
    ledger = Ledger(where)
    if ledger.protection == "none" and PASSPHRASE in os.environ:
        raise unencrypted_error(f"{PASSPHRASE} is set", "passphrase")
    passphrase = None
    if ledger.protection == "passphrase":
        passphrase = os.environ.get(PASSPHRASE)
        if passphrase is None and ask is not None:
            passphrase = ask()
        if passphrase is None:
            raise LedgerError(f"the ledger needs its passphrase: set {PASSPHRASE}")
    ledger.unlock(passphrase=passphrase, key_file=key_file)
    return ledger
