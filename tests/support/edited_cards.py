"""The page of a folder after an edit: it names other checksums, as a forger would make it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.published.contents import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp.storage.folder import FileSum


def edited_card(page: str, before: Mapping[str, FileSum], after: Mapping[str, FileSum]) -> str:
    """A page with the checksums of other files, and otherwise as it was."""
    for name, old in before.items():
        if name in after:
            page = page.replace(_cells(old), _cells(after[name]))
    return page.replace(fingerprint(before), fingerprint(after))


def _cells(one: FileSum) -> str:
    return f"<td>{one.bytes:,}</td><td><code>{one.sha256}</code>"
