"""Errata of a release: what turned out to be wrong after it was sealed.

They stand in `errata.md` beside the manifest. Nothing seals them: whoever can write the folder can
write them, so they are shown as what they are and decide nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from clusterdp._words import is_plain
from clusterdp.errors import FormatError, OutputError
from clusterdp.published.provenance import check_line
from clusterdp.storage.files import ERRATA

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

LONGEST_ERRATUM = 2000
# A larger file is not read.
_MOST_BYTES = 100_000
_HEAD = "# Errata\n\nAdded after the release was sealed; no checksum covers them.\n\n"


def read_errata(folder: Path) -> list[str]:
    """The errata of a folder, a line each, without characters that could change a terminal."""
    path = folder / ERRATA
    if not _is_file(path):
        return []
    try:
        if path.stat().st_size > _MOST_BYTES:
            return [f"{ERRATA} is too large to be shown; open it yourself"]
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return [f"{ERRATA} cannot be read as text"]
    lines = text.removeprefix(_HEAD).splitlines()
    shown = ("".join(letter if is_plain(letter) else " " for letter in line) for line in lines)
    return [line.strip().removeprefix("- ") for line in shown if line.strip()]


def add_erratum(folder: Path, text: str, day: date) -> None:
    """Append a dated entry to the errata of a folder.

    Raises:
        ParameterError: If the text is empty, too long or not one plain line.
        FormatError: If what is there is no file.
        OutputError: If it cannot be written.
    """
    check_line("an erratum", text, LONGEST_ERRATUM)
    path = folder / ERRATA
    begun = os.path.lexists(path)
    if begun and not _is_file(path):
        raise FormatError(f"{path} is not a file of its own; remove it")
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{'' if begun else _HEAD}- {day.isoformat()}: {text.strip()}\n")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


def _is_file(path: Path) -> bool:
    """Whether it is a file, and not a link to one elsewhere."""
    return path.is_file() and not path.is_symlink()
