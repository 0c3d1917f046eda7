"""The files of a published folder: what they are called, and their checksums."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from pathlib import Path

# Written last of all: a folder without a manifest is not a release.
MANIFEST = "manifest.json"
CELLS, CHANNELS, TOTALS = "cells.parquet", "channels.parquet", "totals.parquet"
LOOK = "look.parquet"
README, INDEX = "README.md", "index.html"
# What is added after a release was sealed: no checksum covers it.
ERRATA = "errata.md"
# The rows: one file, or a folder of parts that many machines wrote.
UNITS, UNIT_PARTS = "units.parquet", "units"
# What a run owns a place in a store by, while it publishes there.
CLAIM = "_clusterdp.claim"
# Names of folders that are not finished, or are removed with the run.
PARTIAL_SUFFIX, SCRATCH_SUFFIX = ".partial", ".scratch"
# How published rows are ordered: by their ids, or as in the table.
RowOrderKind = Literal["ids", "table"]


class FileSum(Struct, frozen=True, forbid_unknown_fields=True):
    """The size and the checksum of a file, as a manifest lists them."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileSum:
        """The size and checksum of a file."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        return cls(path.stat().st_size, digest.hexdigest())
