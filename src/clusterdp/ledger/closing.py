"""Giving up a release: the content of its last entry, and whether its secrets are intact."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from clusterdp.errors import LedgerError, OutputError, ParameterError
from clusterdp.storage.access import is_store
from clusterdp.storage.folder import LocalFolder, is_being_written
from clusterdp.storage.store_folder import StoreFolder

if TYPE_CHECKING:
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.ledger.store import Secrets

_LONGEST_REASON = 500


def secrets_problem(record: ReleaseRecord, kept: Secrets | None) -> str | None:
    """Why an unfinished release cannot be finished with the secrets that are stored."""
    if kept is None:
        return "its secrets are lost"
    stored = (kept.labelled, kept.looked, kept.drawn)
    found = [None if one is None else sha256(one).hexdigest() for one in stored]
    if found != [record.labelled_sha256, record.looked_sha256, record.drawn_sha256]:
        return "what it drew was changed or is lost"
    return None


def describe_closing(record: ReleaseRecord, kept: Secrets | None) -> tuple[str, dict[str, str]]:
    """The event that closes a release, and the content of its entry.

    A sealed release may be published, or about to be. A run that publishes to a local folder locks
    a folder beside it from before the sealing until after the rename. So the lock is checked first,
    and then the folder.

    Raises:
        LedgerError: If a run is about to publish the release.
    """
    if kept is None or not isinstance(kept.sealed, str):
        return "closed", {}
    sealed, place = kept.sealed, kept.place
    # An edited database may hold bytes in place of text.
    if not isinstance(place, str) or "\0" in place:
        return "closed", {"sealed_sha256": sealed}
    if "://" not in place and is_being_written(Path(place)):
        raise LedgerError(
            f"a run is about to publish release {record.release_id} at {place}; end that run, "
            "and then close the release"
        )
    manifest = _manifest_at(place)
    published = manifest is not None and sha256(manifest).hexdigest() == sealed
    if published and record.status == "drawn":
        return "committed", {"manifest_sha256": sealed, "folder": place}
    return "closed", {"sealed_sha256": sealed, "sealed_for": place}


def _manifest_at(place: str) -> bytes | None:
    """The manifest at a place; None if there is none, or it cannot be seen from here."""
    if is_store(place):
        try:
            return StoreFolder.at(place).manifest()
        except OutputError:
            return None
    return None if "://" in place else LocalFolder(Path(place)).manifest()


def describe_reason(reason: str | None) -> dict[str, str]:
    """A reason as an entry holds it."""
    if reason is None:
        return {}
    if not reason.isprintable() or len(reason) > _LONGEST_REASON:
        raise ParameterError(
            f"reason must be one line of at most {_LONGEST_REASON} characters, got "
            f"{len(reason)}; shorten it"
        )
    return {"reason": reason}
