"""The checks of a published folder that need no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp._named import column, unnamed
from clusterdp.channels.base import Check
from clusterdp.errors import ClusterDPError
from clusterdp.experiment.published_names import debiased_names
from clusterdp.mechanisms.catalogue import usual_name
from clusterdp.mechanisms.draw import histogram_of
from clusterdp.mechanisms.settling import settle
from clusterdp.privacy.accounting import shown
from clusterdp.published.card import write_card
from clusterdp.published.cells import cells_of_blocks
from clusterdp.published.folder import read_files, unit_files
from clusterdp.published.footers import unknown_metadata
from clusterdp.published.manifest import software_name
from clusterdp.published.notes import release_notes
from clusterdp.published.readme import write_readme
from clusterdp.published.row_counts import (
    collect_rows,
    count_released,
    read_errors,
    released_cells,
    scan_units,
)
from clusterdp.published.sights import what_is_visible
from clusterdp.rows.columns import FOLD
from clusterdp.rows.debiased import debiased_columns
from clusterdp.rows.keys import fold_numbers
from clusterdp.rows.labels import look_for_unplain
from clusterdp.rows.unit_ids import UnitIds
from clusterdp.storage.files import ERRATA, INDEX, MANIFEST, README
from clusterdp.storage.reading import open_files

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import polars as pl

    from clusterdp._arrays import FloatArray
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.release import Block, Release
    from clusterdp.storage.reading import Files

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
        Check("files hold columns and nothing else", _check_metadata(folder, release, manifest)),
        *_check_pages(folder, release, manifest),
    ]
    if release.units is None:
        return checks
    checks += _check_look(release, manifest)
    for place in range(len(release.blocks)):
        checks += _check_channel(release, place)
    steps: list[tuple[str, Callable[[Release], str | None]]] = [
        ("rows can be read", _check_readable),
        ("rows fill the cells", _check_rows),
        ("debiased outcomes follow from responses", _check_debiased),
        ("each unit has one row", _check_units),
        ("rows fill the groups of breakdowns", _check_breakdowns),
        ("folds follow from ids", _check_folds),
    ]
    if manifest.row_order == "ids":
        parts = {name: folder.scan_parquet([name]) for name in unit_files(manifest)}
        steps.append(("rows stand in the order of ids", lambda one: _check_order(one, parts)))
    for name, step in steps:
        try:
            checks.append(Check(name, step(release)))
        except ClusterDPError as error:
            checks.append(Check(name, str(error)))
        if checks[-1].problem is not None and step is _check_rows:
            break  # what follows takes rows for sound
    return checks


def owners_words(manifest: Manifest) -> list[str]:
    """What a manifest states that nothing else in the folder shows: nobody but its owner knows."""
    known, named = manifest.provenance, manifest.columns
    declared = {
        "software": manifest.software != software_name(),
        "control": True,
        "assigned_by": named.assigned_by is not None,
        "assignment": manifest.assignment is not None,
        "arm_shares": manifest.arm_shares is not None,
        "row_order": manifest.row_order == "table",
        "which file a row is in": len(unit_files(manifest)) > 1,
        # With a look, it is what the look shows.
        "expected": manifest.before_look is None and any(manifest.expected),
        "prior": manifest.before_look is None
        and any(one.prior is not None for one in manifest.terms.mechanisms),
        "weights": any(block.outcomes.declared.weights for block in manifest.blocks),
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
    }
    said = [name for name, there in declared.items() if there]
    return [*said, *(name for name in known.__struct_fields__ if getattr(known, name) is not None)]


def _check_response(manifest: Manifest) -> list[Check]:
    """What the integers of the response of private clusters cost; nothing where they are public."""
    if manifest.labels is None:
        return []
    # A manifest whose integers are of no response is refused before.
    cost, whole = manifest.labels.guarantee(), manifest.guarantee.epsilon
    name = f"the response of clusters costs epsilon {shown(cost.epsilon)} of {shown(whole)}"
    return [Check(name, None)]


def _check_metadata(folder: Files, release: Release, manifest: Manifest) -> str | None:
    """What a Parquet file holds that no reader shows; None if there is nothing."""
    rows, pages = unit_files(manifest), (README, INDEX)
    for name in manifest.files:
        if name in pages:
            continue
        # Of other tables, columns were compared with those of such a release.
        columns = (
            release.columns.published
            if name in rows
            else folder.scan_parquet([name]).collect_schema().names()
        )
        problem = unknown_metadata(folder, name, columns)
        if problem is not None:
            return problem
    return None


def _check_pages(folder: Files, release: Release, manifest: Manifest) -> list[Check]:
    """The texts for people, also where another version is said to have written them.

    Whoever forges them could claim that. So other words are a problem in either case.
    """
    channels = [block.channel for block in release.blocks]
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
    look, before = release.look, manifest.before_look
    if look is None or before is None:
        return []
    name, (block,) = "clips, grids and prior follow from the look", release.blocks
    try:
        mechanism = block.mechanism.with_prior(before.prior)
        settled = settle(before.outcomes.categories(), mechanism, release.layout, look)
    except ClusterDPError as error:
        return [Check(name, str(error))]
    priors = [np.array(one.prior or ()) for one in (settled.mechanism, block.mechanism)]
    same = settled.space == block.space and len(priors[0]) == len(priors[1])
    same = same and bool((np.abs(priors[0] - priors[1]) < _SAME_PRIOR).all())
    shown = block.mechanism.settled_rows(block.space).public_prior(block.space)
    same = same and manifest.expected == ((tuple(shown.tolist()),),)
    problem = (
        "the outcomes, the prior or what is expected in manifest.json are not what look.parquet "
        "leads to"
    )
    return [Check.of(name, problem, holds=same)]


def _check_channel(release: Release, place: int) -> list[Check]:
    """The checks of a block's channel; where there are several, they say which."""
    block = release.blocks[place]
    assert block.channel is not None  # noqa: S101 - only called then
    rows = block.mechanism.settled_rows(block.space)
    histogram, arrays = histogram_of(block.statistics), block.channel.arrays()
    cells = _cells_of_blocks(release)[place]
    found = rows.checks(arrays, cells, release.layout, block.space, histogram)
    if len(release.blocks) == 1:
        return found
    return [one._replace(name=f"block {place + 1}: {one.name}") for one in found]


def _cells_of_blocks(release: Release) -> list[pl.DataFrame]:
    blocks = [(block.mechanism, block.space) for block in release.blocks]
    return cells_of_blocks(release.cells, release.columns, blocks)


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
    blocks = zip(release.blocks, columns.responses, _cells_of_blocks(release), strict=True)
    for block, response, of_cells in blocks:
        declared = block.space.declared
        names = debiased_names(declared.names, declared.missing)
        # Inverses tell -0.0 from 0.0, which are one value otherwise.
        signs = ((1 / column(name)).alias(f"1 / {name}") for name in names)
        held = map(column, (*columns.cell, response, *names))
        published = scan_units(release).select(*held, *signs)
        distinct = collect_rows(published.unique())
        cells, responses = released_cells(distinct, columns, layout), distinct[response].to_numpy()
        decoded = debiased_columns(_published_decode(block, of_cells), declared)
        for decode, name in zip(decoded, names, strict=True):
            # To the last bit: what is left of a number could carry outcomes.
            found, expected = distinct[name].to_numpy(), decode[cells, responses]
            signs_found = np.signbit(distinct[f"1 / {name}"].to_numpy())
            same = (found == expected) & (signs_found == np.signbit(expected))
            if not same.all():
                return f"rows have values of {name!r} that their responses do not lead to"
    return None


def _published_decode(block: Block, cells: pl.DataFrame) -> Callable[[int], FloatArray]:
    """What each response counts as in a metric, as it is published; axes `[cell, response]`."""
    channel = block.channel
    assert channel is not None  # noqa: S101 - only called then
    if block.mechanism.designs_rows:
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
