"""The published folder: written once, complete or not at all, and read back with every check.

manifest.json     what this is and what it promises, with checksums of the other files
units.parquet     one row per unit; or units/part-*.parquet
cells.parquet     one row per (cluster, arm)
channels.parquet  the probabilities of designed channels, where there are any
README.md         how to use it with no software of ours
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp import manifest as manifests
from clusterdp.cell_tables import read_channel, read_statistics
from clusterdp.cells import Layout
from clusterdp.encoding import DEBIASED, RELEASED
from clusterdp.engine import UNIT_PARTS, UNITS
from clusterdp.errors import FormatError
from clusterdp.pipeline import Release
from clusterdp.staging import MANIFEST, PARTIAL_SUFFIX, FileSum

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.encoding import Columns

CELLS, CHANNELS, README = "cells.parquet", "channels.parquet", "README.md"
_FILE_NAME = re.compile(rf"({UNIT_PARTS}/)?\w[\w.-]*", re.ASCII)


def read_release(path: str | Path) -> Release:
    """A published release, checked against its checksums.

    `units` is a Polars query over the folder, so that releases larger than memory can be used.

    Raises:
        FormatError: If the folder is not a release, or was damaged or edited.
    """
    folder = Path(path)
    content = read_manifest(folder)
    check_sizes(folder, content)
    _check_sums(folder, content)
    import polars as pl

    try:
        return _assemble(folder, content)
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} does not hold together: {type(error).__name__}") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, unsealed."""
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise FormatError(f"{folder} is what an interrupted run left behind, not a release")
    try:
        sealed = (folder / MANIFEST).read_bytes()
    except OSError:
        raise FormatError(f"{folder} is not a release: it has no {MANIFEST}") from None
    return manifests.unseal(sealed)


def _assemble(folder: Path, content: dict[str, Any]) -> Release:
    import polars as pl

    columns, mechanism = manifests.read_columns(content), manifests.read_mechanism(content)
    guarantee = manifests.read_guarantee(content)
    cells = pl.read_parquet(folder / CELLS)
    layout = _read_layout(cells, columns, content)
    channels = pl.read_parquet(folder / CHANNELS) if mechanism.designs_rows else None
    statistics = read_statistics(cells, layout, mechanism)
    units = None
    if mechanism.releases_rows:
        units = pl.scan_parquet([folder / name for name in unit_files(content)], glob=False)
        expected = [*columns.public, RELEASED, DEBIASED]
        if units.collect_schema().names() != expected:
            raise FormatError(f"the rows do not have the columns {', '.join(expected)}")
    return Release(
        units=units,
        cells=cells,
        mechanism=mechanism,
        guarantee=guarantee,
        columns=columns,
        layout=layout,
        summary=statistics.summary,
        sums=statistics.sums,
        channel=read_channel(cells, channels, layout, mechanism),
        notes=tuple(content["notes"]),
    )


def _read_layout(cells: pl.DataFrame, columns: Columns, content: dict[str, Any]) -> Layout:
    arms = tuple(cells[columns.arm].unique(maintain_order=True))
    clusters = tuple(cells[columns.cluster].unique(maintain_order=True))
    layout = Layout(
        clusters=clusters,
        arms=arms,
        control=manifests.read_control(content, arms),
        sizes=cells["size"].to_numpy().reshape(len(clusters), len(arms)),
        space=manifests.read_space(content),
    )
    if layout.n_units != content["n_units"] or len(clusters) != content["n_clusters"]:
        raise FormatError(f"{CELLS} and {MANIFEST} disagree on the number of units or clusters")
    return layout


def unit_files(content: dict[str, Any]) -> list[str]:
    """The files that hold the rows of a release, in order."""
    parts = f"{UNIT_PARTS}/"
    named = [name for name in content["files"] if name == UNITS or name.startswith(parts)]
    if not named:
        raise FormatError(f"{MANIFEST} names no file of rows")
    return sorted(named)


def check_sizes(folder: Path, content: dict[str, Any]) -> None:
    """Raise a FormatError unless every file is there and of the size it was published with."""
    for name, stated in content["files"].items():
        if not _FILE_NAME.fullmatch(name):
            raise FormatError(f"{MANIFEST} names a file outside the folder")
        path = folder / name
        if not path.is_file():
            raise FormatError(f"{folder} lacks {name}")
        if path.stat().st_size != stated["bytes"]:
            raise FormatError(f"{path} is truncated or has grown since it was published")


def _check_sums(folder: Path, content: dict[str, Any]) -> None:
    for name, stated in content["files"].items():
        if FileSum.of(folder / name).sha256 != stated["sha256"]:
            raise FormatError(f"{folder / name} was changed since it was published")
