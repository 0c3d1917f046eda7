"""The published folder: written once, complete or not at all, and read back with every check.

manifest.json     what this is and what it promises, with checksums of the other files
units.parquet     one row per unit; or units/part-*.parquet
cells.parquet     one row per (cluster, arm)
channels.parquet  the probabilities of optimal channels, where there are any
look.parquet      the noisy histogram that outcomes were clipped by, where there is one
totals.parquet    noisy totals of arms and of groups, where there are any
README.md         how to use it with no software of ours, and what can be seen in it
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ClusterDPError, FormatError
from clusterdp.experiment.layout import Layout, find_arm
from clusterdp.experiment.look_bins import look_space
from clusterdp.mechanisms.draw import histogram_of
from clusterdp.published.cells import WEIGHT, check_cells, has_totals, read_labels
from clusterdp.published.manifest import plain, unseal
from clusterdp.published.release import Release
from clusterdp.published.totals import read_totals
from clusterdp.rows.encoding import FOLD, RESPONSE, holds_groups, holds_ids
from clusterdp.storage.files import (
    CELLS,
    CHANNELS,
    LOOK,
    MANIFEST,
    PARTIAL_SUFFIX,
    README,
    TOTALS,
    UNIT_PARTS,
    UNITS,
    FileSum,
)

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.published.manifest import Manifest
    from clusterdp.rows.encoding import Columns
    from clusterdp.statistics.look import DrawnLook

_PART_NAME = re.compile(rf"{UNIT_PARTS}/\w[\w.-]{{,200}}", re.ASCII)


def read_release(path: str | Path) -> Release:
    """A published release, checked against its checksums.

    `units` is a Polars query over the folder, so that releases larger than memory can be used.

    Raises:
        FormatError: If the folder is not a release, or was damaged or edited.
    """
    return read_folder(Path(path))[0]


def read_folder(folder: Path) -> tuple[Release, Manifest]:
    """As `read_release`, with the manifest."""
    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    _check_sums(folder, manifest)
    import polars as pl

    # Polars panics over some damaged files.
    unreadable = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
    try:
        return _assemble(folder, manifest), manifest
    except FormatError:
        raise
    except ClusterDPError as error:
        raise FormatError(f"{folder} does not hold together: {error}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, *unreadable) as error:
        raise FormatError(f"{folder} does not hold together: {type(error).__name__}") from None


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder, unsealed."""
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise FormatError(f"{folder} is what an interrupted run left behind, not a release")
    try:
        sealed = (folder / MANIFEST).read_bytes()
    except OSError:
        if not os.path.lexists(folder):
            raise FormatError(f"there is no folder {folder}; check its name") from None
        raise FormatError(f"{folder} is not a release: it has no {MANIFEST}") from None
    return unseal(sealed)


def _assemble(folder: Path, manifest: Manifest) -> Release:
    import polars as pl

    columns, mechanism = manifest.to_columns(), manifest.mechanism
    space = manifest.outcomes.categories()
    cells = pl.read_parquet(folder / CELLS, glob=False)
    check_cells(cells, columns, mechanism, space)
    layout = _read_layout(cells, columns, manifest)
    tables: dict[tuple[str, ...] | None, pl.DataFrame] = {None: cells}
    if has_totals(mechanism):
        totals = pl.read_parquet(folder / TOTALS, glob=False)
        arms = cells[columns.arm].head(len(layout.arms))
        tables = {**tables, **read_totals(totals, arms, mechanism, layout, space)}
    statistics = tuple(one.read(tables[one.level], layout, space) for one in mechanism.statistics)
    units = channel = None
    if mechanism.releases_rows:
        rows, channels = mechanism.settled_rows(space), None
        if mechanism.designs_rows:
            channels = pl.read_parquet(folder / CHANNELS, glob=False)
        channel = rows.read(cells, channels, layout, space, histogram_of(statistics))
        parts = [folder / name for name in unit_files(manifest)]
        schemas = [pl.read_parquet_schema(part) for part in parts]
        _check_columns(schemas, cells.schema, columns)
        units = pl.scan_parquet(parts, glob=False)
    return Release(
        units=units,
        cells=cells,
        mechanism=mechanism,
        guarantee=manifest.terms.to_guarantee(),
        columns=columns,
        layout=layout,
        space=space,
        statistics=statistics,
        channel=channel,
        notes=manifest.notes,
        look=_read_look(folder, manifest),
    )


def _read_look(folder: Path, manifest: Manifest) -> DrawnLook | None:
    import polars as pl

    look, before = manifest.mechanism.look, manifest.before_look
    if look is None or before is None:
        return None
    bins = look_space(before.outcomes.declared.declared())
    return look.read(pl.read_parquet(folder / LOOK, glob=False), bins)


def _read_layout(cells: pl.DataFrame, columns: Columns, manifest: Manifest) -> Layout:
    clusters, arms = read_labels(cells, columns)
    layout = Layout(
        clusters=clusters,
        arms=arms,
        control=find_arm(arms, manifest.control),
        sizes=cells["size"].to_numpy().reshape(len(clusters), len(arms)),
        breakdowns=manifest.to_breakdowns(),
        folds=manifest.folds,
    )
    layout.check()
    if (layout.n_units, layout.n_clusters) != (manifest.n_units, manifest.n_clusters):
        raise FormatError(f"{CELLS} and {MANIFEST} disagree on the number of units or clusters")
    by_arm = layout.sizes.sum(axis=0)
    if any(not np.array_equal(one.sizes.sum(axis=0), by_arm) for one in layout.breakdowns):
        raise FormatError(f"{CELLS} and {MANIFEST} disagree on the sizes of breakdowns")
    if WEIGHT in cells and not np.array_equal(
        cells[WEIGHT].to_numpy(), manifest.mechanism.total_weights(layout).ravel()
    ):
        raise FormatError(f"the weights in {CELLS} do not follow from the sizes of cells")
    if repr([plain(arm) for arm in arms]) != repr(list(manifest.arms)):
        raise FormatError(f"{CELLS} and {MANIFEST} disagree on the arms")
    return layout


def _check_columns(
    schemas: list[dict[str, pl.DataType]],
    cells: pl.Schema,
    columns: Columns,
) -> None:
    """Raise a FormatError unless rows have the columns of their release, of the right types."""
    import polars as pl

    expected, given = list(columns.published), schemas[0]
    if any(part != given for part in schemas):
        raise FormatError("the files of rows differ in their columns")
    if list(given) != expected:
        raise FormatError(f"the rows do not have the columns {', '.join(expected)}")
    wanted = {name: cells[name] for name in columns.cell}
    wanted |= {FOLD: pl.Int32()} if columns.folds > 1 else {}
    wanted |= {RESPONSE: pl.Int32(), **dict.fromkeys(columns.debiased, pl.Float64())}
    wrong = [name for name, kind in wanted.items() if given[name] != kind]
    if not holds_ids(given[columns.unit]):
        wrong.append(columns.unit)
    cut_by = (name for names in columns.breakdowns for name in names)
    wrong += [name for name in cut_by if not holds_groups(given[name])]
    if wrong:
        raise FormatError(f"column {wrong[0]!r} of the rows is of another type than it should be")


def unit_files(manifest: Manifest) -> list[str]:
    """The files that hold the rows of a release, in order."""
    return sorted(set(manifest.files) - {CELLS, CHANNELS, LOOK, TOTALS, README})


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise a FormatError unless every file is there and of the size it was published with."""
    _check_names(manifest)
    for name, stated in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise FormatError(f"{folder} lacks {name}")
        if path.stat().st_size != stated.bytes:
            raise FormatError(f"{path} is truncated or has grown since it was published")


def _check_names(manifest: Manifest) -> None:
    """Raise a FormatError unless the files are those that such a release has."""
    mechanism, expected = manifest.mechanism, {CELLS, README}
    if mechanism.designs_rows:
        expected |= {CHANNELS}
    if has_totals(mechanism):
        expected |= {TOTALS}
    if mechanism.look is not None:
        expected |= {LOOK}
    missing = expected - set(manifest.files)
    if missing:
        raise FormatError(f"{MANIFEST} does not name {min(missing)}")
    rows = set(manifest.files) - expected
    if bool(rows) != mechanism.releases_rows:
        raise FormatError(f"{MANIFEST} names {'a' if rows else 'no'} file of rows")
    if rows != {UNITS} and not all(_PART_NAME.fullmatch(name) for name in rows):
        raise FormatError(f"{MANIFEST} names a file that is not part of a release")


def _check_sums(folder: Path, manifest: Manifest) -> None:
    for name, stated in manifest.files.items():
        if FileSum.of(folder / name).sha256 != stated.sha256:
            raise FormatError(f"{folder / name} was changed since it was published")
