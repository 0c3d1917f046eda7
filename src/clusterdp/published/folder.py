"""The published folder: written once, complete or not at all, and read back with every check.

manifest.json     what this is and what it promises, with checksums of the other files
units.parquet     one row per unit; or units/part-*.parquet
cells.parquet     one row per (cluster, arm)
channels.parquet  the probabilities of optimal channels, where there are any
pilot.parquet      the noisy histogram that outcomes were clipped by, where there is one
totals.parquet    noisy totals of arms and of groups, where there are any
                  (of several questions, a column `question` names whose they are)
README.md         how to use it with no software of ours, and what can be seen in it
index.html        the same for a browser, with charts and checksums
errata.md         what turned out to be wrong later, if anything; nothing seals it

Errata of a release: what turned out to be wrong after it was sealed.

They stand in `errata.md` next to the manifest. Nothing seals them: anyone who can write the folder
can write them, so they are shown as what they are and decide nothing.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._text import plain_text
from clusterdp.cells.assignment import POOLED_LABEL
from clusterdp.cells.layout import Layout, find_arm
from clusterdp.errors import ClusterDPError, FormatError
from clusterdp.mechanisms.draw import histogram_of
from clusterdp.published._parquet_bytes import LONG_VALUES, ParquetBytes, most_unpacked
from clusterdp.published.manifest import plain, unseal
from clusterdp.published.notes import ReleaseNote, release_notes
from clusterdp.published.release import Release
from clusterdp.published.tables import (
    WEIGHT,
    cells_of_questions,
    has_totals,
    read_labels,
    read_totals,
    unstacked,
)
from clusterdp.rows.column_types import holds_groups, holds_ids, is_publishable
from clusterdp.spec.columns import FOLD, QUESTION, RESPONSE
from clusterdp.spec.provenance import check_line
from clusterdp.statistics.pilot import pilot_space
from clusterdp.storage.folder import (
    CELLS,
    CHANNELS,
    ERRATA,
    FOLLOWUP,
    INDEX,
    MANIFEST,
    MOST_OF_MANIFEST,
    PARTIAL_SUFFIX,
    PILOT,
    README,
    TOTALS,
    UNIT_PARTS,
    UNITS,
)
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    import os
    from datetime import date

    import polars as pl

    from clusterdp.mechanisms.draw import Question, ReleasedQuestion
    from clusterdp.published.manifest import Manifest
    from clusterdp.spec.columns import Columns
    from clusterdp.storage.reading import Files

    # The tables of a question by what their rows cover: cells (None), everyone, or groups.
    Levels = dict[tuple[str, ...] | None, pl.DataFrame]


LONGEST_ERRATUM = 2000
# A larger file is not read.
_MOST_BYTES = 100_000
_HEAD = "# Errata\n\nAdded after the release was sealed; no checksum covers them.\n\n"


def read_errata(folder: Files) -> list[str]:
    """The errata of a folder, a line each, without characters that could change a terminal."""
    if not _is_file(folder):
        return []
    if (folder.size(ERRATA) or 0) > _MOST_BYTES:
        return [f"{ERRATA} is too large to be shown; open it yourself"]
    try:
        text = (folder.read(ERRATA, _MOST_BYTES) or b"").decode()
    except UnicodeDecodeError:
        return [f"{ERRATA} cannot be read as text"]
    lines = text.removeprefix(_HEAD).splitlines()
    return [plain_text(line.strip().removeprefix("- ")) for line in lines if line.strip()]


def add_erratum(folder: Files, text: str, day: date) -> None:
    """Append a dated entry to the errata of a folder.

    Raises:
        ParameterError: If the text is empty, too long or not one plain line.
        FormatError: If what is there is no file.
        OutputError: If it cannot be written.
    """
    check_line("an erratum", text, LONGEST_ERRATUM)
    begun = _is_file(folder)
    if not begun and folder.is_taken(ERRATA):
        raise FormatError(f"{folder}/{ERRATA} is not a file of its own; remove it")
    folder.append(ERRATA, f"{'' if begun else _HEAD}- {day.isoformat()}: {text.strip()}\n")


def _is_file(folder: Files) -> bool:
    """Whether it is a file, and not a link to one elsewhere."""
    return folder.size(ERRATA) is not None and not folder.is_link(ERRATA)


# What is read as a whole has no more bytes: pages, and tables next to the rows.
_MOST_OF_PAGE, _MOST_OF_TABLE = 2**26, 2**32
# Nor more rows or, at 8 bytes each, values.
_MOST_ROWS, _MOST_VALUES = 10_000_000, _MOST_OF_TABLE // 8


def read_release(path: str | os.PathLike[str]) -> Release:
    """A published release, checked against its checksums.

    `units` is a Polars query over the folder, so that releases larger than memory can be used.

    Args:
        path: A folder on disk or in object storage (`s3://bucket/folder`).

    Raises:
        FormatError: If the folder is not a release, or was damaged or edited, or storage cannot be
            reached.
    """
    return read_files(open_folder(path))[0]


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The manifest of a folder, unsealed."""
    return unseal(_sealed(open_folder(path)))


def read_files(folder: Files) -> tuple[Release, Manifest]:
    """As `read_release`, of a folder that is open; and its manifest."""
    sealed = _sealed(folder)
    manifest = unseal(sealed)
    check_sizes(folder, manifest)
    for name, stated in manifest.files.items():
        if folder.sum(name).sha256 != stated.sha256:
            raise FormatError(f"{folder}/{name} was changed since it was published")
    import polars as pl

    # Polars panics over some damaged files.
    unreadable = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
    try:
        found = _assemble(folder, manifest)
        return replace(found, manifest_sha256=hashlib.sha256(sealed).hexdigest()), manifest
    except FormatError:
        raise
    except ClusterDPError as error:
        raise FormatError(f"{folder} is inconsistent: {error}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, *unreadable) as error:
        raise FormatError(f"{folder} is inconsistent: {type(error).__name__}") from None


def _sealed(folder: Files) -> bytes:
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise FormatError(
            f"{folder} is an incomplete release from an interrupted run; ask for a complete one"
        )
    sealed = folder.read(MANIFEST, MOST_OF_MANIFEST)
    if sealed is None:
        if not folder.exists():
            raise FormatError(f"there is no folder {folder}; check its name")
        if folder.size(FOLLOWUP) is not None:
            raise FormatError(
                f"{folder} is a follow-up. A release or an answer was expected. Fix: give the "
                "published folder, or answer the follow-up: clusterdp answer."
            )
        raise FormatError(
            f"{folder} is not a release: it has no {MANIFEST}; give the published folder"
        )
    return sealed


def _assemble(folder: Files, manifest: Manifest) -> Release:
    columns, terms = manifest.named_columns, manifest.terms
    cells = held_table(folder, CELLS, max(manifest.n_clusters, 1) * len(manifest.arms))
    of_questions = cells_of_questions(cells, columns, terms.pairs)
    layout = _read_layout(cells, columns, manifest)
    totals, channels, pilots = (
        unstacked(held_table(folder, name) if any(there) else None, there, columns.question_names)
        for name, there in _tables_of(manifest).items()
    )
    arms = cells[columns.arm].head(len(layout.arms))
    questions = []
    for question, of_cells, of_groups, channel in zip(
        terms.pairs, of_questions, totals, channels, strict=True
    ):
        levels: Levels = {None: of_cells}
        if of_groups is not None:
            levels |= read_totals(of_groups, arms, question, layout)
        questions.append(_read_question(question, levels, channel, layout))
    remarks = release_notes(manifest, layout, [question.channel for question in questions])
    units = None
    if terms.releases_rows:
        names = unit_files(manifest)
        schemas = [dict(folder.scan_parquet([name]).collect_schema()) for name in names]
        _check_columns(schemas, cells.schema, columns)
        units = folder.scan_parquet(names)
    return Release(
        units=units,
        cells=cells,
        questions=tuple(questions),
        guarantee=terms.guarantee,
        columns=columns,
        layout=layout,
        remarks=(*remarks, *(ReleaseNote(f"{ERRATA}: {one}") for one in read_errata(folder))),
        pilots=tuple(
            None
            if table is None or mechanism.pilot is None or before is None
            else mechanism.pilot.read(table, pilot_space(before.outcomes.declared.declared()))
            for table, mechanism, before in zip(
                pilots, terms.mechanisms, manifest.before_pilot, strict=True
            )
        ),
        asking=manifest.asking,
        response=manifest.labels,
        assignment=manifest.assignment,
        provenance=manifest.provenance,
        answers=manifest.answers,
    )


def _tables_of(manifest: Manifest) -> dict[str, list[bool]]:
    """The tables that may be next to the cells, and whether each question has one."""
    mechanisms = manifest.terms.mechanisms
    return {
        TOTALS: [has_totals(one) for one in mechanisms],
        CHANNELS: [one.designs_rows for one in mechanisms],
        PILOT: [one.pilot is not None for one in mechanisms],
    }


def held_table(folder: Files, name: str, most_rows: int = _MOST_ROWS) -> pl.DataFrame:
    """A table next to the rows, with at most so many rows.

    Raises:
        FormatError: If it has more, or would unpack to more than its values need.
    """
    import polars as pl

    content = folder.read(name, _MOST_OF_TABLE) or b""
    n_rows, n_values, unpacked = ParquetBytes.in_memory(name, content).table_size()
    if n_rows > most_rows or n_values > _MOST_VALUES:
        raise FormatError(f"{name} has more rows or values than a release can have")
    if unpacked > most_unpacked(n_values):
        raise FormatError(f"{name} {LONG_VALUES}")
    return pl.read_parquet(io.BytesIO(content))


def _read_question(
    question: Question, levels: Levels, channels: pl.DataFrame | None, layout: Layout
) -> ReleasedQuestion:
    """What is published of a question, from its tables of cells and groups and of channels."""
    cells, space, mechanism = levels[None], question.space, question.mechanism
    if WEIGHT in cells and not np.array_equal(
        cells[WEIGHT].to_numpy(), mechanism.total_weights(layout).ravel()
    ):
        raise FormatError(f"the weights in {CELLS} do not match the sizes of cells")
    statistics = tuple(
        one.read(levels[one.level], mechanism.layout_of(one, layout), space)
        for one in mechanism.statistics
    )
    channel = None
    if mechanism.releases_rows:
        channel = question.rows.read(cells, channels, layout, space, histogram_of(statistics))
    return question.released(statistics, channel)


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
        assigned=manifest.assigned,
    )
    layout.check()
    _check_clusters(layout, manifest)
    stated, by_arm = (manifest.n_units, manifest.n_clusters), layout.sizes.sum(axis=0)
    agreed = {
        "the number of units or clusters": (layout.n_units, layout.n_clusters) == stated,
        "the sizes of breakdowns": all(
            np.array_equal(one.sizes.sum(axis=0), by_arm) for one in layout.breakdowns
        ),
        "the arms": repr([plain(arm) for arm in arms]) == repr(list(manifest.arms)),
    }
    for what, agrees in agreed.items():
        if not agrees:
            raise FormatError(f"{CELLS} and {MANIFEST} disagree on {what}")
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
    # Of folds and questions, if there are any: nothing else has their names.
    types = {
        **{name: cells[name] for name in columns.cell},
        FOLD: pl.Int32(),
        QUESTION: pl.String(),
        RESPONSE: pl.Int32(),
        **dict.fromkeys(columns.debiased, pl.Float64()),
    }
    held = [
        (columns.unit, holds_ids),
        *((name, holds_groups) for names in columns.breakdowns for name in names),
        *((name, is_publishable) for name in columns.kept),
    ]
    wrong = [name for name, kind in given.items() if types.get(name, kind) != kind]
    wrong += [name for name, holds in held if not holds(given[name])]
    if wrong:
        raise FormatError(f"column {wrong[0]!r} of the rows has an unexpected type")


def unit_files(manifest: Manifest) -> list[str]:
    """The files that hold the rows of a release, in order."""
    return sorted(set(manifest.files) - {CELLS, CHANNELS, INDEX, PILOT, TOTALS, README})


def check_sizes(folder: Files, manifest: Manifest) -> None:
    """Raise a FormatError unless every file is there and of the size it was published with."""
    _check_names(manifest)
    most = {INDEX: _MOST_OF_PAGE, README: _MOST_OF_PAGE}
    most |= dict.fromkeys((CELLS, CHANNELS, PILOT, TOTALS), _MOST_OF_TABLE)
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
    more = {name for name, there in _tables_of(manifest).items() if any(there)}
    expected = {CELLS, INDEX, README} | more
    missing = expected - set(manifest.files)
    if missing:
        raise FormatError(f"{MANIFEST} does not name {min(missing)}")
    rows = set(manifest.files) - expected
    if bool(rows) != manifest.terms.releases_rows:
        raise FormatError(f"{MANIFEST} names {'a' if rows else 'no'} file of rows")
    parts = {f"{UNIT_PARTS}/part-{number:05}.parquet" for number in range(len(rows))}
    if rows not in ({UNITS}, parts):
        raise FormatError(f"{MANIFEST} names a file that is not part of a release")
