"""Several folders as one table: the units of each are other people, and clusters stay apart.

Every cluster of a folder is a stratum of its own. So effects of folders add as those of independent
strata do, a folder counts by its units, and what estimates one folder estimates all of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._arrays import IntArray
from clusterdp._named import column, columns
from clusterdp._text import counted
from clusterdp.cells.layout import Layout
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.effects.effect import Segment
from clusterdp.estimation.reading.covariates import RowsBySegment
from clusterdp.estimation.reading.profiles import Profiles, ResponseCounts
from clusterdp.estimation.reading.request import EstimateRequest
from clusterdp.estimation.reading.rows import open_segments, read_table
from clusterdp.estimation.reading.segments import CrossedCounts, RowCounts, read_rows
from clusterdp.outcomes.number import Number
from clusterdp.published.release import Release
from clusterdp.published.rows import n_outputs, released_row_errors, scan_units
from clusterdp.rows.frames import column_names

if TYPE_CHECKING:
    import polars as pl


# What to segment by folder with, where no column has the name.
FOLDER = "folder"
# No column of a user has these names.
_ID, _PLACE = "__clusterdp_id", "__clusterdp_folder"


def folder_names(sources: Sequence[Any]) -> tuple[str, ...]:
    """Short names that distinguish folders: the ends of their paths, or their places."""
    paths = [
        Path(one).resolve().parts if isinstance(one, str | os.PathLike) else (f"folder {place}",)
        for place, one in enumerate(sources, start=1)
    ]
    for n_last in range(1, max(map(len, paths)) + 1):
        names = tuple("/".join(parts[-n_last:]) for parts in paths)
        if len(set(names)) == len(names):
            return names
    twice = next(name for name in names if names.count(name) > 1)
    name = paths[names.index(twice)][-1]
    raise ParameterError(f"Folder {name} is given twice. Fix: name it once.")


def check_folders(names: Sequence[str], releases: Sequence[Release]) -> None:
    """Raise a ParameterError unless folders are of one experiment, or a DataError if units repeat.

    Their ranges, their grids and their ε may differ, and their clusters.
    """
    first = releases[0]
    for name, one in zip(names, releases, strict=True):
        if reason := _misfit(first, one):
            raise ParameterError(
                f"{name} and {names[0]} cannot be estimated together: {reason} Nothing was "
                f"estimated. Fix: estimate {name} by itself."
            )


def _misfit(first: Release, other: Release) -> str | None:
    """Why two releases are not of the same experiment; None if they are."""
    ours, theirs = (
        {frozenset(one.space.declared.names): one.space.declared for one in release.questions}
        for release in (first, other)
    )
    only = ", ".join(sorted(frozenset().union(*ours) ^ frozenset().union(*theirs)))
    arms = [", ".join(map(str, one.layout.arms)) for one in (other, first)]
    both = first, other
    whole = {one.columns.randomization_unit is not None for one in both}
    reasons = (
        (
            any(one.units is None for one in both),
            "without rows nobody can check that units are different people.",
        ),
        (
            first.layout.arms != other.layout.arms,
            f"arms are {arms[0]} in one, and {arms[1]} in the other.",
        ),
        (
            any(one.assignment is not None for one in both),
            "arms have probabilities of their own in private clusters.",
        ),
        (len(whole) > 1, "one randomized whole groups, and the other units."),
        (bool(only), f"only one has {only}."),
        (set(ours) != set(theirs), "they put outcomes in different questions (--question)."),
    )
    for is_so, reason in reasons:
        if is_so:
            return reason
    outcomes = ((name, held, theirs[key]) for key, held in ours.items() for name in held.names)
    return next(filter(None, (_other_outcome(*one) for one in outcomes)), None)


def _other_outcome(name: str, mine: Any, other: Any) -> str | None:
    """Why an outcome does not mean the same in two releases; None if it does."""
    one, another = mine.spaces[name], other.spaces[name]
    if (name in mine.missing) != (name in other.missing):
        return f"{name} may be missing in one."
    if isinstance(one, Number) and isinstance(another, Number):
        if name in mine.missing and (one.low, one.high) != (another.low, another.high):
            return f"{name} may be missing, and its clips differ ({another} and {one})."
        return None
    return None if one == another else f"{name} is {another} in one and {one} in the other."


def clip_texts(names: Sequence[str], releases: Sequence[Release]) -> list[str]:
    """What to say of numbers that folders clip to different ranges."""
    found = []
    spaces = [{} for _ in releases]  # type: list[dict[str, Any]]
    for held, release in zip(spaces, releases, strict=True):
        for question in release.questions:
            held.update(question.space.declared.numbers)
    for name in spaces[0]:
        ranges: dict[str, list[str]] = {}
        for folder, held in zip(names, spaces, strict=True):
            ranges.setdefault(f"{held[name].low:g}–{held[name].high:g}", []).append(folder)
        if len(ranges) > 1:
            text = ", ".join(f"{one} in {_listed(which)}" for one, which in ranges.items())
            found.append(f"{name} is clipped differently: to {text}. Its mean is of these values.")
    return found


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} folders"


def joined_layout(names: Sequence[str], layouts: Sequence[Layout]) -> Layout:
    """The cells of all folders; a cluster is named with its folder."""
    first, folds = layouts[0], {one.folds for one in layouts}
    planned = {one.arm_shares for one in layouts}
    return replace(
        first,
        clusters=tuple(
            (name, cluster)
            for name, one in zip(names, layouts, strict=True)
            for cluster in one.clusters
        ),
        sizes=np.concatenate([one.sizes for one in layouts]),
        breakdowns=(),
        folds=first.folds if len(folds) == 1 else 1,
        arm_shares=first.arm_shares if len(planned) == 1 else None,
        assigned=None,
    )


def read_folders(
    names: Sequence[str],
    releases: Sequence[Release],
    requests: Sequence[EstimateRequest],
    whole: EstimateRequest,
) -> tuple[list[list[RowCounts]], list[RowCounts]]:
    """Rows of several folders: folder by folder, and of all folders together.

    Args:
        names: What folders are called.
        releases: Their releases, which fit each other.
        requests: What to segment each of them by.
        whole: The same of all folders; it may segment by `FOLDER`.

    Raises:
        DataError: If a unit is in several folders, or as of `read_rows`.
    """
    ids = _ids(names, releases)
    if whole.table is not None:
        requests = _with_own_tables(ids, releases, requests, whole)
    del ids
    every = read_rows(releases, requests)
    places = [_question_places(releases[0], one) for one in releases]
    together = []
    for question in range(len(releases[0].questions)):
        rows = [held[place[question]] for held, place in zip(every, places, strict=True)]
        outputs = [
            n_outputs(release.questions[place[question]])
            for release, place in zip(releases, places, strict=True)
        ]
        together.append(_joined_rows(names, rows, outputs, whole))
    return every, together


def _question_places(first: Release, other: Release) -> list[int]:
    """The place of each question of a release among those of another one."""
    there = [frozenset(one.space.declared.names) for one in other.questions]
    return [there.index(frozenset(one.space.declared.names)) for one in first.questions]


def matching_questions(first: Release, other: Release) -> list[Any]:
    """The questions of another release, in the order of those of the first."""
    return [other.questions[place] for place in _question_places(first, other)]


def _ids(names: Sequence[str], releases: Sequence[Release]) -> pl.DataFrame:
    """Every id with the place of its folder.

    Raises:
        DataError: If folders share an id.
    """
    import polars as pl

    scans = [scan_units(one).select(column(one.columns.unit).alias(_ID)) for one in releases]
    with released_row_errors():
        held = pl.collect_all(scans)
    kinds = [one.schema[_ID] for one in held]
    for name, kind in zip(names, kinds, strict=True):
        if (kind == pl.String) != (kinds[0] == pl.String):
            raise DataError(
                f"Ids are {kind} in {name} and {kinds[0]} in {names[0]}, so nobody can check that "
                "units are different people. Nothing was estimated. Fix: publish ids of one type."
            )
    placed = [one.with_columns(pl.lit(place).alias(_PLACE)) for place, one in enumerate(held)]
    ids = pl.concat(placed, how="vertical_relaxed")
    if ids[_ID].n_unique() < len(ids):
        repeated = ids.filter(pl.col(_ID).is_duplicated())
        of_two = repeated.filter(pl.col(_ID) == repeated[_ID][0])[_PLACE].to_list()
        first, second = (names[place] for place in of_two[:2])
        n_shared = repeated[_ID].n_unique()
        raise DataError(
            f"{first} and {second} share units: {counted(n_shared, 'id')} "
            f"{'is' if n_shared == 1 else 'are'} in more than one folder. Nothing was estimated. "
            "Fix: leave one of them out."
        )
    return ids


def _with_own_tables(
    ids: pl.DataFrame,
    releases: Sequence[Release],
    requests: Sequence[EstimateRequest],
    whole: EstimateRequest,
) -> list[EstimateRequest]:
    """The requests, each with the rows of the analyst's table that are of its units.

    Ids without a folder go to the first one, which counts them as such.
    """
    import polars as pl

    first, unit = releases[0], releases[0].columns.unit
    mine = whole.table
    if isinstance(mine, str | os.PathLike):
        mine = open_segments(os.fspath(mine), whole.on or unit)
    by_folder = any(FOLDER in one for one in whole.dimensions)
    if by_folder and FOLDER in column_names(mine, "segments"):
        raise DataError(
            f"The segments table has a column {FOLDER!r}, which is what several folders are "
            "segmented by. Fix: rename it."
        )
    table = read_table(first, mine, whole.on, requests[0].used)
    ids = ids.rename({_ID: unit})
    if table.schema[unit] != ids.schema[unit] and table.schema[unit].is_integer():
        ids = ids.with_columns(column(unit).cast(table.schema[unit], strict=False))
    if (table.schema[unit] == pl.String) == (ids.schema[unit] == pl.String):
        placed = table.join(ids, on=unit, how="left", maintain_order="left")
        placed = placed.with_columns(pl.col(_PLACE).fill_null(0))
        parts = placed.partition_by(_PLACE, as_dict=True, include_key=False)
    else:  # the first folder refuses it
        parts = {(0,): table}
    return [
        request._replace(
            table=parts.get((place,), table.clear()).rename({unit: release.columns.unit}), on=None
        )
        for place, (release, request) in enumerate(zip(releases, requests, strict=True))
    ]


def _joined_rows(
    names: Sequence[str],
    every: Sequence[RowCounts],
    outputs: Sequence[int],
    whole: EstimateRequest,
) -> RowCounts:
    """The rows of a question in all folders.

    Args:
        names: What folders are called.
        every: The rows, folder by folder.
        outputs: How many outputs each channel has.
        whole: What to segment by.
    """
    offsets = np.cumsum([0, *(len(one.profiles.cells) for one in every)])[:-1].tolist()
    most = max(outputs)

    def moved(place: int, counts: ResponseCounts) -> ResponseCounts:
        """Counts of a folder, with the profiles and the responses of all."""
        told = np.where(counts.responses < outputs[place], counts.responses, most)
        return ResponseCounts(counts.profiles + offsets[place], told, counts.counts)

    def joined(parts: Sequence[tuple[int, ResponseCounts]]) -> ResponseCounts:
        each = [moved(*one) for one in parts]
        return ResponseCounts(*(np.concatenate(terms) for terms in zip(*each, strict=True)))

    def crossed_of(parts: Sequence[tuple[int, int]]) -> CrossedCounts:
        """Crossed counts of some segments, given by folder and place."""
        pairs = [(place, every[place].crossed[index]) for place, index in parts]
        by_response = joined([(place, pair[0]) for place, pair in pairs])
        exposed = [
            pair[1]._replace(profiles=pair[1].profiles + offsets[place]) for place, pair in pairs
        ]
        return by_response, ResponseCounts(
            *(np.concatenate(terms) for terms in zip(*exposed, strict=True))
        )

    of_all = [(place, 0) for place in range(len(every))]
    segments = [
        (segment, where)
        for dimension in whole.dimensions
        for segment, where in _segments(names, every, dimension).items()
    ]
    parts = [one.parts for one in every]
    counts = [
        (segment, joined([(place, parts[place][index][1]) for place, index in where]))
        for segment, where in segments
    ]
    without = [
        (
            dimension,
            joined([(place, dict(one.without)[dimension]) for place, one in enumerate(every)]),
        )
        for dimension in dict(every[0].without)
    ]
    has_crossed = bool(every[0].crossed)
    covariates = [one.covariates for one in every if one.covariates is not None]
    profiles = _joined_profiles([one.profiles for one in every])
    return RowCounts(
        profiles=profiles,
        whole=joined([(place, one.whole) for place, one in enumerate(every)]),
        segments=tuple(counts),
        without=tuple(without),
        joined=every[0].joined,
        covariates=_joined_covariates(names, covariates, profiles, offsets, outputs),
        crossed=tuple(crossed_of(where) for where in [of_all, *(one for _, one in segments)])
        if has_crossed
        else (),
    )


def _segments(
    names: Sequence[str], every: Sequence[RowCounts], dimension: tuple[str, ...]
) -> dict[Segment, list[tuple[int, int]]]:
    """The segments of a dimension, each with its folders and its place among their parts."""
    there = {tuple(name for name, _ in segment) for segment, _ in every[0].segments}
    of_rows = dimension  # a column may have the name
    if dimension not in there:
        of_rows = tuple(name for name in dimension if name != FOLDER)
    orders, found = [], dict[Segment, list[tuple[int, int]]]()
    for place, rows in enumerate(every):
        orders.append(list[Segment]())
        for index, (segment, _) in enumerate(rows.parts):
            if tuple(name for name, _ in segment) == of_rows:
                values = {FOLDER: names[place], **dict(segment)}
                named = tuple((name, values[name]) for name in dimension)
                orders[-1].append(named)
                found.setdefault(named, []).append((place, index))
    return {segment: found[segment] for segment in _merged(orders)}


def _merged(orders: Sequence[Sequence[Segment]]) -> list[Segment]:
    """All segments once, in an order that keeps that of every folder as far as possible."""
    found: list[Segment] = []
    for order in orders:
        there = set(found)
        if there.issuperset(order):
            continue
        place = 0 if there & set(order) else len(found)
        for segment in order:
            if segment in there:
                place = max(place, found.index(segment) + 1)
            else:
                found.insert(place, segment)
                place += 1
    return found


def _joined_profiles(every: Sequence[Profiles]) -> Profiles:
    """The profiles of all folders, one folder after the other."""
    shapes = [one.shape for one in every]
    starts = np.cumsum([0, *(shape[0] for shape in shapes)]).tolist()
    sizes = [len(one.cells) for one in every]

    def stacked(parts: Sequence[IntArray | None]) -> IntArray:
        """Numbers of profiles; zero in folders without."""
        pairs = zip(parts, sizes, strict=True)
        return np.concatenate([np.zeros(n, np.int64) if one is None else one for one, n in pairs])

    levels = dict.fromkeys(level for one in every for level in one.groups)
    assigned: list[IntArray | None] = []
    for one in every:
        held = one.assigned
        before = max((int(part.max()) + 1 for part in assigned if part is not None), default=0)
        assigned.append(None if held is None else held + before)
    return Profiles(
        cells=stacked(
            [one.cells + start * one.shape[1] for one, start in zip(every, starts, strict=False)]
        ),
        sizes=stacked([one.sizes for one in every]),
        shape=(starts[-1], shapes[0][1]),
        folds=None if every[0].folds is None else stacked([one.folds for one in every]),
        groups={level: stacked([one.groups.get(level) for one in every]) for level in levels},
        assigned=None if every[0].assigned is None else stacked(assigned),
        folders=np.repeat(np.arange(len(every)), sizes),
        starts=tuple(starts[:-1]),
        released=None if every[0].released is None else stacked([one.released for one in every]),
    )


def _joined_covariates(
    names: Sequence[str],
    every: Sequence[RowsBySegment],
    profiles: Profiles,
    offsets: Sequence[int],
    outputs: Sequence[int],
) -> RowsBySegment | None:
    """The rows of all folders with their covariates; None if nothing is adjusted for."""
    import polars as pl

    if not every:
        return None
    most = max(outputs)
    entries = []
    for one, offset, n_own in zip(every, offsets, outputs, strict=True):
        places, responses = np.divmod(one.entries.astype(np.int64), one.n_responses)
        told = np.where(responses < n_own, responses, most)
        entries.append((places + offset) * (most + 1) + told)
    shown = [name for name in every[0].rows.columns if name != FOLDER]
    rows = [
        one.rows.select(columns(shown))
        .with_columns(pl.selectors.categorical().cast(pl.String))
        .with_columns(pl.lit(name).alias(FOLDER))
        for name, one in zip(names, every, strict=True)
    ]
    return RowsBySegment(
        regressors=tuple(
            np.concatenate(parts) for parts in zip(*(one.regressors for one in every), strict=True)
        ),
        classes={
            name: np.concatenate([one.classes[name] for one in every]) for name in every[0].classes
        },
        numbers=every[0].numbers,
        rows=pl.concat(rows, how="vertical_relaxed"),
        profiles=profiles,
        n_responses=most + 1,
        entries=np.concatenate(entries),
    )
