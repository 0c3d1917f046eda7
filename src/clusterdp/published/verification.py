"""The checks of a published folder that need no secret."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import column, unnamed
from clusterdp._named import columns as columns_of
from clusterdp.cells.layout import AssignedGroups
from clusterdp.channels.base import Check
from clusterdp.errors import ClusterDPError
from clusterdp.mechanisms.catalogue import usual_name
from clusterdp.mechanisms.draw import Settled, histogram_of, settle
from clusterdp.outcomes.categories import together
from clusterdp.privacy.accounting import rounded_up
from clusterdp.published._parquet_bytes import LONG_VALUES, unknown_metadata, writer_here, writer_of
from clusterdp.published.document import write_card, write_readme
from clusterdp.published.folder import read_files, unit_files
from clusterdp.published.manifest import software_name
from clusterdp.published.notes import release_notes
from clusterdp.published.rows import (
    collect_rows,
    count_released,
    read_errors,
    released_cells,
    scan_units,
)
from clusterdp.published.tables import cells_of_questions
from clusterdp.published.visible import what_is_visible
from clusterdp.rows.keys import UnitIds, fold_numbers
from clusterdp.rows.randomizing import debiased_columns
from clusterdp.rows.value_codes import look_for_unplain
from clusterdp.spec.columns import FOLD, QUESTION, RESPONSE, debiased_names
from clusterdp.storage.folder import ERRATA, INDEX, MANIFEST, README, ROWS_PER_PART, UNITS
from clusterdp.storage.parquet import sum_written
from clusterdp.storage.reading import open_files

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import polars as pl

    from clusterdp._arrays import FloatArray
    from clusterdp.published.manifest import Expected, Manifest
    from clusterdp.published.release import Release, ReleasedQuestion
    from clusterdp.statistics.look import DrawnLook
    from clusterdp.storage.reading import Files

    Step = Callable[[Release], str | None]

# Machines may add up a prior in another order.
_SAME_PRIOR = 1e-6
_SEALED = "manifest, checksums and schema"


def verify_folder(path: str | os.PathLike[str]) -> list[Check]:
    """Run every check; the first ones decide whether the others can run at all."""
    try:
        folder = open_files(path)
        release, manifest = read_files(folder)
    except ClusterDPError as error:
        return [Check(_SEALED, str(error))]
    listed = {MANIFEST, *manifest.files}
    if folder.size(ERRATA) is not None and not folder.is_link(ERRATA):
        listed.add(ERRATA)
    foreign = sorted(name for name in folder.names() if name not in listed)
    checks = [
        Check(_SEALED, None),
        Check(
            "nothing else is in the folder",
            f"{foreign[0]} is not part of the release" if foreign else None,
        ),
        # read_release refuses a guarantee that does not follow.
        Check("the guarantee follows from the parameters", None),
        *_check_response(manifest),
        _check_files(folder, release, manifest),
        *_check_pages(folder, release, manifest),
    ]
    if release.units is None or any((one.problem or "").endswith(LONG_VALUES) for one in checks):
        return checks  # such rows may unpack to any size
    checks += _check_look(release, manifest)
    for place in range(len(release.questions)):
        checks += _check_channel(release, place)
    for name, step in _row_steps(folder, manifest):
        try:
            checks.append(Check(name, step(release)))
        except ClusterDPError as error:
            checks.append(Check(name, str(error)))
        if checks[-1].problem is not None and step is _check_rows:
            break  # what follows takes rows for sound
    return checks


def _row_steps(folder: Files, manifest: Manifest) -> list[tuple[str, Step]]:
    """The checks of rows, in their order."""
    steps: list[tuple[str, Step]] = [
        ("rows can be read", _check_readable),
        ("rows fill the cells", _check_rows),
        ("debiased outcomes follow from responses", _check_debiased),
        ("each unit has one row", _check_units),
        ("rows fill the groups of breakdowns", _check_breakdowns),
        ("folds follow from ids", _check_folds),
    ]
    if manifest.asking is not None:
        steps.append(("questions follow from ids", _check_questions))
    if unit_files(manifest) != [UNITS]:
        counted = partial(_check_parts, folder, manifest)
        steps.append(("rows are in as many files as so many rows are", counted))
    if manifest.row_order == "ids":
        parts = {name: folder.scan_parquet([name]) for name in unit_files(manifest)}
        steps.append(("rows stand in the order of ids", lambda one: _check_order(one, parts)))
    return steps


def owners_words(manifest: Manifest) -> list[str]:
    """What a manifest states that nothing else in the folder shows: nobody but its owner knows."""
    known, named = manifest.provenance, manifest.columns
    declared = {
        "software": manifest.software != software_name(),
        "control": True,
        "assigned_by": named.assigned_by is not None,
        "correlation": manifest.assigned is not None,
        "assignment": manifest.assignment is not None,
        "arm_shares": manifest.arm_shares is not None,
        "row_order": manifest.row_order == "table",
        "which file a row is in": len(unit_files(manifest)) > 1 and manifest.row_order == "ids",
        # With a look, it is what the look shows.
        "expected": any(
            one is not None
            for one, before in zip(manifest.expected, manifest.before_look, strict=True)
            if before is None
        ),
        "prior": any(
            one.prior is not None and one.look is None for one in manifest.terms.mechanisms
        ),
        "weights": any(question.outcomes.declared.weights for question in manifest.questions),
        "pooling": manifest.pooling is not None,
        "aggregates": bool(manifest.aggregates),
        "the name of the mechanism": any(
            one.name != usual_name(one) for one in manifest.terms.mechanisms
        ),
        "names of columns": not manifest.terms.releases_rows,
        "numbers of units": not manifest.terms.releases_rows,
        "names, labels and values of outcomes": True,
        "values of kept columns": bool(named.kept),
        # Exact clusters, and clusters that went through a response, look alike.
        "which columns are private": named.cluster is not None,
        "that the noise of counts, sums, totals and the look was drawn as stated": any(
            one.look is not None or one.statistics for one in manifest.terms.mechanisms
        ),
        "that responses were drawn as stated": manifest.terms.releases_rows,
        "how often questions are asked, as far as ids do not show it": manifest.asking is not None,
        "that the salt of questions was drawn at random": manifest.asking is not None,
    }
    said = [name for name, there in declared.items() if there]
    return [*said, *(name for name in known.__struct_fields__ if getattr(known, name) is not None)]


def _check_response(manifest: Manifest) -> list[Check]:
    """What the integers of the response of private clusters cost; nothing where they are public."""
    if manifest.labels is None:
        return []
    # A manifest whose integers are of no response is refused before.
    cost, whole = manifest.labels.guarantee(), manifest.guarantee.epsilon
    name = (
        f"the response of clusters costs epsilon {rounded_up(cost.epsilon)} of {rounded_up(whole)}"
    )
    return [Check(name, None)]


def _check_files(folder: Files, release: Release, manifest: Manifest) -> Check:
    """What a Parquet file holds that no reader shows.

    Written once more by the same software, its columns must give the same bytes. Of other software,
    what pages hold beside values is not known.
    """
    name, here, others = "files hold columns and nothing else", writer_here(), set[str]()
    rows = unit_files(manifest)
    try:
        for file in sorted(set(manifest.files) - {README, INDEX}):
            held = folder.scan_parquet([file])
            # Of other tables, columns were compared with those of such a release.
            known = file in rows
            columns = release.columns.published if known else held.collect_schema().names()
            problem = unknown_metadata(folder, file, columns)
            if problem is not None:
                return Check(name, problem)
            writer = writer_of(folder, file)
            if writer != here:
                others.add(writer.partition(" (build")[0])
                continue
            with read_errors():
                if sum_written(held) != manifest.files[file]:
                    return Check(name, f"{file} is not what {here} writes of its columns")
    except ClusterDPError as error:
        return Check(name, str(error))
    if others:
        name += f" (as far as their pages show, which {' and '.join(sorted(others))} wrote)"
    return Check(name, None)


def _check_parts(folder: Files, manifest: Manifest, release: Release) -> str | None:
    """Whether files that many machines wrote are as many, and as long, as those of a release."""
    import polars as pl

    names, n_units = unit_files(manifest), release.layout.n_units
    if len(names) != -(-n_units // ROWS_PER_PART):
        return "rows are in another number of files than so many rows are"
    if manifest.row_order == "table":
        for name in names[:-1]:
            if collect_rows(folder.scan_parquet([name]).select(pl.len())).item() != ROWS_PER_PART:
                return f"{name} has another number of rows than such a file has"
    return None


def _check_pages(folder: Files, release: Release, manifest: Manifest) -> list[Check]:
    """The texts for people, also where another version is said to have written them.

    Whoever forges them could claim that. So other words are a problem in either case.
    """
    channels = [question.channel for question in release.questions]
    seen = what_is_visible(manifest, release.layout, channels)
    notes = release_notes(manifest, release.layout, channels)
    pages = {
        README: ("the README", write_readme(manifest, unit_files(manifest), seen, notes)),
        INDEX: (INDEX, write_card(manifest, manifest.files, seen, notes)),
    }
    problem = "{} is not what was published"
    if manifest.software != software_name():
        problem = (
            f"{{}} is not what {software_name()} writes, and {MANIFEST} names {manifest.software}: "
            "nothing is known of its words; verify with that version"
        )
    return [
        Check.of(
            f"{called} follows from the manifest",
            problem.format(name),
            holds=folder.read(name, manifest.files[name].bytes) == written.encode(),
        )
        for name, (called, written) in pages.items()
    ]


def _check_look(release: Release, manifest: Manifest) -> list[Check]:
    """Whether clips, grids and prior follow from the look; nothing is to be checked without one."""
    if not any(manifest.before_look):
        return []
    name, questions = "clips, grids and prior follow from the look", release.questions
    declared = [
        Settled(question.space, question.mechanism)
        if before is None
        else Settled(before.outcomes.categories(), question.mechanism.with_prior(before.prior))
        for question, before in zip(questions, manifest.before_look, strict=True)
    ]
    spaces = together([one.space for one in declared])
    mechanisms = [one.mechanism for one in declared]
    try:
        settled = settle(spaces, mechanisms, release.layout, release.looks)
    except ClusterDPError as error:
        return [Check(name, str(error))]
    same = all(
        _is_settled(*one)
        for one in zip(questions, settled, manifest.expected, release.looks, strict=True)
    )
    problem = (
        "the outcomes, the prior or what is expected in manifest.json are not what look.parquet "
        "leads to"
    )
    return [Check.of(name, problem, holds=same)]


def _is_settled(
    question: ReleasedQuestion, settled: Settled, expected: Expected | None, look: DrawnLook | None
) -> bool:
    """Whether a question is what its look leads to; without one, there is nothing to compare."""
    if look is None:
        return True
    priors = [np.array(one.mechanism.prior or ()) for one in (settled, question)]
    same = settled.space.record() == question.space.record() and len(priors[0]) == len(priors[1])
    same = same and bool((np.abs(priors[0] - priors[1]) < _SAME_PRIOR).all())
    shown = question.mechanism.settled_rows(question.space).public_prior(question.space)
    return same and expected == (tuple(shown.tolist()),)


def _check_channel(release: Release, place: int) -> list[Check]:
    """The checks of a question's channel; where there are several, they say which."""
    question = release.questions[place]
    assert question.channel is not None  # noqa: S101 - only called then
    rows = question.mechanism.settled_rows(question.space)
    histogram, arrays = histogram_of(question.statistics), question.channel.arrays()
    cells = _cells_of_questions(release)[place]
    found = rows.checks(arrays, cells, release.layout, question.space, histogram)
    if len(release.questions) == 1:
        return found
    name = release.columns.question_names[place]
    return [one._replace(name=f"question {name}: {one.name}") for one in found]


def _cells_of_questions(release: Release) -> list[pl.DataFrame]:
    questions = [(question.mechanism, question.space) for question in release.questions]
    return cells_of_questions(release.cells, release.columns, questions)


def _check_readable(release: Release) -> str | None:
    """Kept columns, too, which no other check reads; and whether texts can be shown."""
    import polars as pl

    rows = scan_units(release)
    collect_rows(rows.select(pl.all().null_count()))
    named = (release.columns.unit, *release.columns.kept)
    for held in collect_rows(look_for_unplain(rows, named)):
        if held.any():
            return f"rows have values of {held.name!r} with control characters"
    return None


def _check_rows(release: Release) -> str | None:
    count_released(release)  # or an error that says what is wrong
    return None


def _check_debiased(release: Release) -> str | None:
    columns, layout = release.columns, release.layout
    several = [QUESTION] if columns.question_names else []
    # Inverses tell -0.0 from 0.0, which are one value otherwise.
    signs = ((1 / column(name)).alias(f"1 / {name}") for name in columns.debiased)
    held = map(column, (*columns.cell, *several, RESPONSE, *columns.debiased))
    distinct = collect_rows(scan_units(release).select(*held, *signs).unique())
    parts = zip(release.questions, _cells_of_questions(release), strict=True)
    for place, (question, of_cells) in enumerate(parts):
        declared, rows = question.space.declared, distinct
        if several:
            rows = distinct.filter(column(QUESTION) == columns.question_names[place])
        names = debiased_names(declared.names, declared.missing)
        if rows.select(columns_of(columns.debiased)).null_count().row(0) != tuple(
            0 if name in names else len(rows) for name in columns.debiased
        ):
            return "rows have debiased outcomes of questions that their units were not asked"
        cells, responses = released_cells(rows, columns, layout), rows[RESPONSE].to_numpy()
        decoded = debiased_columns(_published_decode(question, of_cells), declared)
        for decode, name in zip(decoded, names, strict=True):
            # To the last bit: what is left of a number could carry outcomes.
            found, expected = rows[name].to_numpy(), decode[cells, responses]
            signs_found = np.signbit(rows[f"1 / {name}"].to_numpy())
            same = (found == expected) & (signs_found == np.signbit(expected))
            if not same.all():
                return f"rows have values of {name!r} that their responses do not lead to"
    return None


def _published_decode(
    question: ReleasedQuestion, cells: pl.DataFrame
) -> Callable[[int], FloatArray]:
    """What each response counts as in a metric, as it is published; axes `[cell, response]`."""
    channel = question.channel
    assert channel is not None  # noqa: S101 - only called then
    if question.mechanism.designs_rows:
        return lambda metric: channel.decode(metric)[channel.groups.ravel()]
    stated = np.array(cells["decode"].to_list())
    return lambda metric: stated[:, metric]


def _check_order(release: Release, parts: dict[str, pl.LazyFrame]) -> str | None:
    """Within each file: files of many machines hold ids by their hash."""
    unit = column(release.columns.unit)
    for name, part in parts.items():
        if collect_rows(part.select((unit < unit.shift(1)).any())).item():
            return f"{name} is in another order, which may depend on outcomes"
    return None


def _check_breakdowns(release: Release) -> str | None:
    import polars as pl

    arm = release.columns.arm
    arms = release.cells[arm].head(len(release.layout.arms)).cast(pl.String)
    for one in release.layout.breakdowns:
        names = [*one.columns, arm]
        # By position: a column may be called as the number of rows is.
        keys = [column(name).alias(str(place)) for place, name in enumerate(names)]
        counted = collect_rows(scan_units(release).select(keys).group_by(pl.all()).len())
        labels = (*one.labels, tuple(arms))
        codes = np.zeros(len(counted), dtype=np.int64)
        for place, (name, known) in enumerate(zip(names, labels, strict=True)):
            texts = counted[str(place)].cast(pl.String)
            found = texts.cast(pl.Enum(known), strict=False).to_physical()
            if found.null_count():
                return f"rows have a value of {name!r} that no group has"
            codes = codes * len(known) + found.to_numpy()
        sizes = np.zeros(one.sizes.size, dtype=np.int64)
        np.add.at(sizes, codes, counted["len"].to_numpy())
        if not np.array_equal(sizes.reshape(one.sizes.shape), one.sizes):
            return f"the groups by {', '.join(one.columns)} have other sizes than stated"
    return _check_assigned(release, arms)


def _check_assigned(release: Release, arms: pl.Series) -> str | None:
    """Whether groups that were assigned as a whole have one arm each, and the stated sizes."""
    import polars as pl

    stated, by = release.layout.assigned, release.columns.assigned_by
    if stated is None or by is None:
        return None
    keys = [column(by).alias("0"), column(release.columns.arm).alias("1")]
    counted = collect_rows(scan_units(release).select(keys).group_by(pl.all()).len())
    if counted["0"].n_unique() < len(counted):
        return f"groups of {by!r} have rows in several arms"
    codes = counted["1"].cast(pl.String).cast(pl.Enum(arms)).to_physical().to_list()
    found = AssignedGroups.from_sizes(codes, counted["len"].to_list())
    if found.concentrations != stated.concentrations:
        return f"the groups of {by!r} have other sizes than stated"
    return None


def _check_folds(release: Release) -> str | None:
    if release.layout.folds == 1:
        return None
    columns, n_folds = release.columns, release.layout.folds
    with read_errors():
        for batch in scan_units(release).select(column(columns.unit), FOLD).collect_batches():
            units = UnitIds(unnamed(batch[columns.unit]))
            if units.ids.null_count():
                return "rows lack an id"
            if not np.array_equal(batch[FOLD], fold_numbers(units, n_folds)):
                return "rows are in other folds than their ids lead to"
    return None


def _check_questions(release: Release) -> str | None:
    if release.asking is None:
        return None
    columns = release.columns
    with read_errors():
        for batch in scan_units(release).select(column(columns.unit), QUESTION).collect_batches():
            if batch[columns.unit].null_count():
                return "rows lack an id"
            held = (batch[columns.unit], batch[QUESTION])
            if not release.asking.asks(*held, columns.question_names):
                return "rows answer other questions than their ids lead to"
    return None


def _check_units(release: Release) -> str | None:
    import polars as pl

    unit = column(release.columns.unit)
    counted = scan_units(release).select(
        units=unit.n_unique(), gaps=unit.null_count(), rows=pl.len()
    )
    n_units, n_gaps, n_rows = collect_rows(counted).row(0)
    if n_gaps:
        return "rows lack an id"
    return None if n_units == n_rows else "rows repeat an id"
