"""Folders that a batch continues: what they are, and the ids that no unit of the batch may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp._named import column
from clusterdp._progress import NoProgress
from clusterdp.errors import ParameterError
from clusterdp.published.folder import read_files
from clusterdp.published.manifest import checksum_of
from clusterdp.published.rows import scan_units
from clusterdp.rows.earlier_ids import EarlierIds
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from clusterdp._progress import Progress
    from clusterdp.published.manifest import Manifest


class EarlierFolder(NamedTuple):
    """A published folder that a batch continues.

    Attributes:
        manifest: What it says.
        checksum: The SHA-256 of its manifest's file.
        ids: Its ids.
    """

    manifest: Manifest
    checksum: str
    ids: EarlierIds

    @property
    def name(self) -> str:
        """Where it is."""
        return self.ids.name


def read_earlier(
    places: Sequence[str | os.PathLike[str]], progress: Progress | None = None
) -> tuple[EarlierFolder, ...]:
    """Folders that a batch continues, each checked against its checksums; one given twice is one.

    Args:
        places: Where they are.
        progress: Where a long run reports to.

    Raises:
        FormatError: If one is not a release, or was changed: ids could be missing.
        ParameterError: If one has no rows, and so no ids.
    """
    found: dict[str, EarlierFolder] = {}
    if not places:
        return ()
    on_read = (progress or NoProgress()).stage("reading earlier folders", len(places))
    for place in places:
        release, manifest = read_files(open_folder(place))
        if release.units is None:
            raise ParameterError(
                f"{place} was published without rows, so it has no ids, and a batch cannot "
                "continue it; publish without continues (--continues)"
            )
        checksum = checksum_of(manifest)
        ids = scan_units(release).select(column(release.columns.unit))
        on_read(1)
        found[checksum] = EarlierFolder(manifest, checksum, EarlierIds(str(place), ids))
    return tuple(found.values())
