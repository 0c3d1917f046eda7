"""Answers to follow-ups: totals of groups that an analyst asked the owner for after the release.

A release with answers is the release with more breakdowns. Their groups follow from the labels of
follow-ups, which are joined to rows by id.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp._named import column, columns
from clusterdp.cells.layout import Breakdown
from clusterdp.errors import DataError, FormatError, ParameterError
from clusterdp.estimation.effects.effect import Use
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.reading.rows import read_table
from clusterdp.privacy.accounting import basic_composition
from clusterdp.published.folder import read_release
from clusterdp.published.followup import (
    CROSSED,
    FollowUp,
    has_labels,
    read_followup,
    read_labels_of,
    unbound,
)
from clusterdp.published.release import Release
from clusterdp.published.rows import scan_units
from clusterdp.spec.answers import Answers
from clusterdp.statistics.sums import AnsweredSums, DrawnMetricSums
from clusterdp.storage.folder import FOLLOWUP

if TYPE_CHECKING:
    import polars as pl


# The column of an answer's groups; no column of a user has such a name.
_GROUPS = "__clusterdp_answer"
# A label that two follow-ups have.
_AGAIN = "__clusterdp_again"


def with_answers(  # noqa: PLR0913, PLR0917 - what belongs together, and the analyst's own table
    release: Release,
    answers: Any,
    followups: Any,
    table: Any,
    on: str | None,
    used: Sequence[str],
    *,
    use: Use,
) -> tuple[Release, pl.DataFrame, tuple[str, ...], list[Note]]:
    """A release with what was answered later, and the labels that groups follow from.

    Args:
        release: The release.
        answers: The folders of answers.
        followups: The folders of their follow-ups; those next to an answer are found.
        table: The analyst's own table, or None.
        on: Its column of ids.
        used: The columns to segment by and to adjust for.
        use: What is used of a release; answers are no rows.

    Returns:
        The release, with a breakdown for each dimension of each answer; the analyst's table with
        labels and groups, ids named as in the release; the columns of groups; and notes.

    Raises:
        ParameterError: If rows alone are used or lacking, or a follow-up is not at hand.
        FormatError: If a folder is not what it should be.
        DataError: If an answer is about another release, or labels are not those it was given.
    """
    if release.units is None:
        raise ParameterError(
            "This release has no rows, and answers are used with rows. Fix: leave out answers "
            "(--answer)."
        )
    if use == "rows":
        raise ParameterError(
            "Answers are noisy totals, and only rows were asked for. Fix: leave out answers "
            "(--answer) or use (--rows-only)."
        )
    places = folder_paths("answers", answers)
    if not places:
        raise ParameterError(
            "Follow-ups were given without an answer. Fix: give the answers (--answer FOLDER), or "
            "leave out followups (--followup)."
        )
    known = _known_followups(places, followups)
    labels: dict[str, pl.DataFrame] = {}
    layout, questions = release.layout, list(release.questions)
    guarantees, groups, notes = [release.guarantee], list[str](), list[Note]()
    for number, (answer, about, place) in enumerate(_each_once(places, release)):
        if about.followup not in known:
            raise ParameterError(
                f"{place} answers a follow-up that is not at hand: its labels and their key are "
                "needed. Fix: give its folder with followups=[...] (--followup FOLDER)."
            )
        where, asked = known[about.followup]
        if about.followup not in labels:
            labels[about.followup] = _checked_labels(where, asked, about)
            notes += _fold_notes(asked, about)
        names = [f"{_GROUPS}_{number}_{dimension}" for dimension in range(len(asked.names))]
        triples = zip(names, asked.names, answer.layout.breakdowns, strict=True)
        labels[about.followup] = labels[about.followup].with_columns(
            _group_of(dimension, one.labels[0]).alias(name) for name, dimension, one in triples
        )
        breakdowns = tuple(
            Breakdown(columns=(name,), labels=one.labels, sizes=one.sizes)
            for name, one in zip(names, answer.layout.breakdowns, strict=True)
        )
        layout = replace(layout, breakdowns=(*layout.breakdowns, *breakdowns))
        questions = _with_totals(questions, answer, names)
        groups += names
        guarantees.append(answer.guarantee)
    joined = _join_labels(release, list(labels.values()), table, on, used)
    units = scan_units(release)
    own = [name for name in joined.columns[1:] if name in release.columns.kept]
    release = replace(
        release,
        units=units.drop(columns(own)) if own else units,
        layout=layout,
        questions=tuple(questions),
        guarantee=basic_composition(guarantees),
    )
    return release, joined, tuple(groups), notes


def _each_once(places: list[str], release: Release) -> list[tuple[Release, Answers, str]]:
    """Answers about a release with their folders: of copies one, since they share their noise."""
    found: dict[str | None, tuple[Release, Answers, str]] = {}
    for place in places:
        answer, about = _read_answer(place, release)
        found.setdefault(answer.manifest_sha256, (answer, about, place))
    return list(found.values())


def _known_followups(answers: list[str], followups: Any) -> dict[str, tuple[str, FollowUp]]:
    """Follow-ups that were named, or are next to an answer, with their folders, by checksum."""
    known = {}
    for folder in folder_paths("followups", followups):
        asked, checksum = read_followup(folder)
        known[checksum] = folder, asked
    for folder in _next_to(answers):
        with suppress(FormatError):  # it may be of another version, and nobody named it
            asked, checksum = read_followup(folder)
            if checksum not in known or not has_labels(*known[checksum]):
                known[checksum] = folder, asked
    return known


def folder_paths(parameter: str, given: Any) -> list[str]:
    """Folders as a list of their paths."""
    listed = list(given or ()) if isinstance(given, list | tuple | None) else [given]
    if not all(isinstance(one, str | os.PathLike) for one in listed):
        raise ParameterError(f"{parameter} must be folders, got {given!r}")
    return [os.fspath(one) for one in listed]


def _next_to(answers: list[str]) -> list[str]:
    """Follow-ups in the folders that answers are in, and in the working directory."""
    around = dict.fromkeys([*(Path(one).absolute().parent for one in answers), Path.cwd()])
    return [
        str(found.parent)
        for one in around
        if one.is_dir()
        for found in sorted(one.glob(f"*/{FOLLOWUP}"))
    ]


def _read_answer(place: str, release: Release) -> tuple[Release, Answers]:
    """An answer to a follow-up about a release.

    Raises:
        DataError: If it is a release itself, or about another one.
    """
    answer = read_release(place)
    if release.manifest_sha256 is None:
        raise ParameterError(
            "Answers are about a published release. Fix: give the path of its folder, or read it "
            "with read_release."
        )
    problem = unbound(answer, release)
    if problem is not None or answer.answers is None:
        raise DataError(
            f"{place} cannot be used with this release: {problem}. Fix: give the release that was "
            "asked about, and the owner's answer."
        )
    return answer, answer.answers


def _checked_labels(place: str, asked: FollowUp, about: Answers) -> pl.DataFrame:
    """The labels of a follow-up, compared with the keyed checksum in its answer."""
    labels = read_labels_of(place, asked)
    is_same = (asked.metrics, asked.found_in_fold) == (about.metrics, about.found_in_fold)
    if not is_same or asked.checksums(labels) != about.labels:
        raise DataError(
            f"What {place} asks for, or its labels, are not what was answered. Fix: give the "
            "follow-up as it was sent to the owner, and the answer as it was published."
        )
    return labels


def _with_totals(questions: list[Any], answer: Release, names: list[str]) -> list[Any]:
    """Questions with the totals of an answer, whose groups are called by some names."""
    found = []
    for question in questions:
        metrics = list(map(str, question.space.declared.metrics))
        for one in answer.questions:
            own = list(map(str, one.space.declared.metrics))
            if not set(own) <= set(metrics):
                continue
            more = [
                AnsweredSums(
                    sums=sums,
                    by=(name,),
                    places=[metrics.index(metric) for metric in own],
                    metrics=question.space.metric_values(),
                )
                for name, sums in zip(names, one.statistics, strict=True)
                if isinstance(sums, DrawnMetricSums)
            ]
            question = replace(question, statistics=(*question.statistics, *more))  # noqa: PLW2901
        found.append(question)
    return found


def _group_of(dimension: str, groups: tuple[str, ...]) -> pl.Expr:
    """The group of each unit by its label; none where it was pooled, as without a label."""
    import polars as pl

    label = column(dimension)
    return pl.when(label.is_in(list(groups))).then(label)


def _fold_notes(asked: FollowUp, about: Answers) -> list[Note]:
    """Which units segments cover that were found in a fold."""
    if about.found_in_fold is None:
        return []
    by = ", ".join(asked.names)
    return [
        Note(
            f"Segments by {by} were found in fold {about.found_in_fold}. Effects in them are of "
            "units in the other folds only.",
            Weight.SCOPE,
        )
    ]


def _join_labels(
    release: Release, labels: list[pl.DataFrame], table: Any, on: str | None, used: Sequence[str]
) -> pl.DataFrame:
    """One table by id of all labels with the groups of answers, and of the analyst's columns.

    A label that was asked about comes from its follow-up: units of the fold in which it was found
    have none.

    Raises:
        DataError: If two follow-ups have different labels of a name.
    """
    unit = release.columns.unit
    first, *rest = [_split(one.rename({one.columns[0]: unit})) for one in labels]
    for other in rest:
        first = _merged(first, other, unit)
    if table is None:
        return first
    own = read_table(release, table, on, [name for name in used if name not in first.columns])
    kept = [name for name in own.columns if name == unit or name not in first.columns]
    return _merged(first, own.select(columns(kept)).unique(), unit)


def _merged(first: pl.DataFrame, other: pl.DataFrame, unit: str) -> pl.DataFrame:
    """Two tables by id. Of a label that both have, units of one alone have none.

    Raises:
        DataError: If a unit has different labels.
    """
    import polars as pl

    typed = other.with_columns(column(unit).cast(first.schema[unit], strict=False))
    both = [name for name in first.columns if name in other.columns and name != unit]
    again = {name: f"{_AGAIN}{place}" for place, name in enumerate(both)}
    joined = first.join(typed.rename(again), on=unit, how="full", coalesce=True)
    for name, second in again.items():
        if (joined[name] != joined[second]).any():
            raise DataError(
                f"Two follow-ups have different labels {name!r} for a unit. Fix: estimate with "
                "one of them at a time."
            )
    same = [
        pl.when(column(held) == column(name)).then(column(name)).alias(name)
        for name, held in again.items()
    ]
    return joined.with_columns(same).drop(list(again.values()))


def _split(labels: pl.DataFrame) -> pl.DataFrame:
    """Labels of crossed columns as these columns."""
    found: dict[str, pl.Expr] = {}
    for name in labels.columns:
        parts = name.split(",")
        if len(parts) == 1:
            found[name] = column(name)
            continue
        pieces = column(name).str.splitn(CROSSED, len(parts))
        for place, part in enumerate(parts):
            found.setdefault(part, pieces.struct.field(f"field_{place}").alias(part))
    return labels.select(*found.values())
