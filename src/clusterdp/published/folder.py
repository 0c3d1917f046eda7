"""The published folder: written once, complete or not at all, and read back with every check.

manifest.json     what this is and what it promises, with checksums of the other files
units.parquet     one row per unit; or units/part-*.parquet
cells.parquet     one row per (cluster, arm)
channels.parquet  the probabilities of optimal channels, where there are any
look.parquet      the noisy histogram that outcomes were clipped by, where there is one
totals.parquet    noisy totals of arms and of groups, where there are any
                  (of several blocks of outcomes, a column `block` tells whose they are)
README.md         how to use it with no software of ours, and what can be seen in it
index.html        the same for a browser, with charts and where the release comes from
errata.md         what turned out to be wrong later, if anything; nothing seals it
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import ClusterDPError, FormatError
from clusterdp.experiment.layout import Layout, find_arm
from clusterdp.experiment.look_bins import look_space
from clusterdp.experiment.pooling import POOLED_LABEL
from clusterdp.mechanisms.draw import histogram_of
from clusterdp.published.block_tables import unstacked
from clusterdp.published.cells import WEIGHT, cells_of_blocks, has_totals, read_labels
from clusterdp.published.errata import read_errata
from clusterdp.published.footers import table_size
from clusterdp.published.manifest import plain, unseal
from clusterdp.published.notes import release_notes
from clusterdp.published.release import Block, Release
from clusterdp.published.totals import read_totals
from clusterdp.rows.column_types import holds_groups, holds_ids, is_publishable
from clusterdp.rows.columns import FOLD
from clusterdp.storage.files import (
    CELLS,
    CHANNELS,
    ERRATA,
    INDEX,
    LOOK,
    MANIFEST,
    MOST_OF_MANIFEST,
    PARTIAL_SUFFIX,
    README,
    TOTALS,
    UNIT_PARTS,
    UNITS,
)
from clusterdp.storage.reading import open_files

if TYPE_CHECKING:
    import os

    import polars as pl

    from clusterdp.experiment.categories import Categories
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.published.manifest import Manifest
    from clusterdp.rows.columns import Columns
    from clusterdp.statistics.look import DrawnLook
    from clusterdp.storage.reading import Files

# What is read as a whole has no more bytes: pages, and tables beside the rows.
_MOST_OF_PAGE, _MOST_OF_TABLE = 2**26, 2**32
# Nor more rows or, at 8 bytes each, values.
_MOST_ROWS, _MOST_VALUES = 10_000_000, _MOST_OF_TABLE // 8


def read_release(path: str | os.PathLike[str]) -> Release:
    """A published release, checked against its checksums.

    `units` is a Polars query over the folder, so that releases larger than memory can be used.

    Args:
        path: A folder on a disk, or in a store (`s3://bucket/folder`).

    Raises:
        FormatError: If the folder is not a release, or was damaged or edited, or a store cannot be
            reached.
    """
    return read_folder(path)[0]


def read_folder(path: str | os.PathLike[str]) -> tuple[Release, Manifest]:
    """As `read_release`, with the manifest."""
    return read_files(open_files(path))


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The manifest of a folder, unsealed."""
    return _unsealed(open_files(path))


def read_files(folder: Files) -> tuple[Release, Manifest]:
    """As `read_folder`, of a folder that is open."""
    manifest = _unsealed(folder)
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


def _unsealed(folder: Files) -> Manifest:
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise FormatError(f"{folder} is what an interrupted run left behind, not a release")
    sealed = folder.read(MANIFEST, MOST_OF_MANIFEST)
    if sealed is None:
        if not folder.exists():
            raise FormatError(f"there is no folder {folder}; check its name")
        raise FormatError(f"{folder} is not a release: it has no {MANIFEST}")
    return unseal(sealed)


def _assemble(folder: Files, manifest: Manifest) -> Release:
    columns, terms = manifest.to_columns(), manifest.terms
    cells = _read_table(folder, CELLS, max(manifest.n_clusters, 1) * len(manifest.arms))
    parts = list(zip(terms.mechanisms, terms.spaces, strict=True))
    of_blocks = cells_of_blocks(cells, columns, parts)
    layout = _read_layout(cells, columns, manifest)
    totals = _read_stacked(folder, TOTALS, [has_totals(one) for one in terms.mechanisms])
    channels = _read_stacked(folder, CHANNELS, [one.designs_rows for one in terms.mechanisms])
    tables = map(Tables, of_blocks, totals, channels)
    pairs = zip(parts, tables, strict=True)
    blocks = tuple(_read_block(*part, held, columns, layout) for part, held in pairs)
    notes = release_notes(manifest, layout, [block.channel for block in blocks])
    units = None
    if terms.releases_rows:
        names = unit_files(manifest)
        schemas = [dict(folder.scan_parquet([name]).collect_schema()) for name in names]
        _check_columns(schemas, cells.schema, columns)
        units = folder.scan_parquet(names)
    return Release(
        units=units,
        cells=cells,
        blocks=blocks,
        guarantee=terms.to_guarantee(),
        columns=columns,
        layout=layout,
        notes=(*notes, *(f"{ERRATA}: {line}" for line in read_errata(folder))),
        look=_read_look(folder, manifest),
        response=manifest.labels,
        assignment=manifest.assignment,
        provenance=manifest.provenance,
    )


class Tables(NamedTuple):
    """What is published of a block beside its rows; None where it has no such table."""

    cells: pl.DataFrame
    totals: pl.DataFrame | None
    channels: pl.DataFrame | None


def _read_stacked(folder: Files, name: str, present: list[bool]) -> list[pl.DataFrame | None]:
    """The table of each block from a file; there is none if no block has one."""
    return unstacked(_read_table(folder, name) if any(present) else None, present)


def _read_table(folder: Files, name: str, most_rows: int = _MOST_ROWS) -> pl.DataFrame:
    """A table beside the rows, of at most so many rows."""
    import polars as pl

    content = folder.read(name, _MOST_OF_TABLE) or b""
    size = table_size(name, content)
    if size.rows > most_rows or size.values > _MOST_VALUES:
        raise FormatError(f"{name} has more rows or values than such a release has")
    return pl.read_parquet(io.BytesIO(content))


def _read_block(
    mechanism: Mechanism, space: Categories, tables: Tables, columns: Columns, layout: Layout
) -> Block:
    cells = tables.cells
    if WEIGHT in cells and not np.array_equal(
        cells[WEIGHT].to_numpy(), mechanism.total_weights(layout).ravel()
    ):
        raise FormatError(f"the weights in {CELLS} do not follow from the sizes of cells")
    levels: dict[tuple[str, ...] | None, pl.DataFrame] = {None: cells}
    if tables.totals is not None:
        arms = cells[columns.arm].head(len(layout.arms))
        levels = {**levels, **read_totals(tables.totals, arms, mechanism, layout, space)}
    statistics = tuple(one.read(levels[one.level], layout, space) for one in mechanism.statistics)
    channel = None
    if mechanism.releases_rows:
        rows = mechanism.settled_rows(space)
        channel = rows.read(cells, tables.channels, layout, space, histogram_of(statistics))
    return Block(space=space, mechanism=mechanism, statistics=statistics, channel=channel)


def _read_look(folder: Files, manifest: Manifest) -> DrawnLook | None:
    look, before = manifest.terms.look, manifest.before_look
    if look is None or before is None:
        return None
    bins = look_space(before.outcomes.declared.declared())
    return look.read(_read_table(folder, LOOK), bins)


def _read_layout(cells: pl.DataFrame, columns: Columns, manifest: Manifest) -> Layout:
    clusters, arms = read_labels(cells, columns)
    layout = Layout(
        clusters=clusters,
        arms=arms,
        control=find_arm(arms, manifest.control),
        sizes=cells["size"].to_numpy().reshape(len(clusters), len(arms)),
        breakdowns=manifest.to_breakdowns(),
        folds=manifest.folds,
        arm_shares=manifest.arm_shares,
    )
    layout.check()
    _check_clusters(layout, manifest)
    if (layout.n_units, layout.n_clusters) != (manifest.n_units, manifest.n_clusters):
        raise FormatError(f"{CELLS} and {MANIFEST} disagree on the number of units or clusters")
    by_arm = layout.sizes.sum(axis=0)
    if any(not np.array_equal(one.sizes.sum(axis=0), by_arm) for one in layout.breakdowns):
        raise FormatError(f"{CELLS} and {MANIFEST} disagree on the sizes of breakdowns")
    if repr([plain(arm) for arm in arms]) != repr(list(manifest.arms)):
        raise FormatError(f"{CELLS} and {MANIFEST} disagree on the arms")
    return layout


def _check_clusters(layout: Layout, manifest: Manifest) -> None:
    """Raise a FormatError unless what was pooled is, and private clusters were declared."""
    if manifest.pooling is not None and not manifest.pooling.explains(layout):
        raise FormatError(f"{CELLS} has no clusters that were pooled as {MANIFEST} says")
    if manifest.labels is None:
        return
    named = [label for label in layout.clusters if label != POOLED_LABEL]
    declared = [label for label in manifest.labels.labels if label in named]
    n_pooled = manifest.labels.n_labels - len(named)
    stated = 0 if manifest.pooling is None else manifest.pooling.n_clusters
    if named != declared or n_pooled != stated or (n_pooled and manifest.assignment is not None):
        raise FormatError(f"{CELLS} has other clusters than the labels in {MANIFEST}")


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
    wanted |= dict.fromkeys(columns.responses, pl.Int32())
    wanted |= dict.fromkeys(columns.debiased, pl.Float64())
    wrong = [name for name, kind in wanted.items() if given[name] != kind]
    if not holds_ids(given[columns.unit]):
        wrong.append(columns.unit)
    cut_by = (name for names in columns.breakdowns for name in names)
    wrong += [name for name in cut_by if not holds_groups(given[name])]
    wrong += [name for name in columns.kept if not is_publishable(given[name])]
    if wrong:
        raise FormatError(f"column {wrong[0]!r} of the rows is of another type than it should be")


def unit_files(manifest: Manifest) -> list[str]:
    """The files that hold the rows of a release, in order."""
    return sorted(set(manifest.files) - {CELLS, CHANNELS, INDEX, LOOK, TOTALS, README})


def check_sizes(folder: Files, manifest: Manifest) -> None:
    """Raise a FormatError unless every file is there and of the size it was published with."""
    _check_names(manifest)
    most = {INDEX: _MOST_OF_PAGE, README: _MOST_OF_PAGE}
    most |= dict.fromkeys((CELLS, CHANNELS, LOOK, TOTALS), _MOST_OF_TABLE)
    for name, stated in manifest.files.items():
        size = folder.size(name)
        if stated.bytes > most.get(name, stated.bytes):
            raise FormatError(f"{MANIFEST} states more than {most[name]:,} bytes of {name}")
        if size is None:
            raise FormatError(f"{folder} lacks {name}")
        if size != stated.bytes:
            raise FormatError(f"{folder}/{name} is truncated or has grown since it was published")


def _check_names(manifest: Manifest) -> None:
    """Raise a FormatError unless the files are those that such a release has."""
    terms, expected = manifest.terms, {CELLS, INDEX, README}
    if any(one.designs_rows for one in terms.mechanisms):
        expected |= {CHANNELS}
    if any(has_totals(one) for one in terms.mechanisms):
        expected |= {TOTALS}
    if terms.look is not None:
        expected |= {LOOK}
    missing = expected - set(manifest.files)
    if missing:
        raise FormatError(f"{MANIFEST} does not name {min(missing)}")
    rows = set(manifest.files) - expected
    if bool(rows) != terms.releases_rows:
        raise FormatError(f"{MANIFEST} names {'a' if rows else 'no'} file of rows")
    parts = {f"{UNIT_PARTS}/part-{number:05}.parquet" for number in range(len(rows))}
    if rows not in ({UNITS}, parts):
        raise FormatError(f"{MANIFEST} names a file that is not part of a release")


def _check_sums(folder: Files, manifest: Manifest) -> None:
    for name, stated in manifest.files.items():
        if folder.sum(name).sha256 != stated.sha256:
            raise FormatError(f"{folder}/{name} was changed since it was published")
