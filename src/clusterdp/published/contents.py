"""What is in a published folder, in words: its outcomes, the columns of its rows, its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from clusterdp._text import shortest_decimal
from clusterdp.document.model import code, in_code, strong
from clusterdp.outcomes.number import Number
from clusterdp.published._recipes import folder_of, row_files
from clusterdp.published.notes import release_notes
from clusterdp.published.visible import what_is_visible
from clusterdp.spec.columns import FOLD, QUESTION, RESPONSE, question_name
from clusterdp.storage.folder import (
    CELLS,
    CHANNELS,
    INDEX,
    MANIFEST,
    PILOT,
    README,
    TOTALS,
    UNIT_PARTS,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.outcomes.declaration import Outcome
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.visible import Visible
    from clusterdp.spec.columns import Columns
    from clusterdp.spec.terms import QuestionTerms
    from clusterdp.storage.folder import FileSum


# Of more values than this, the first and the last are named.
_MOST_VALUES = 8
# Of more files of rows than this, the number is told.
_MOST_PARTS = 12
_FINGERPRINT = 16


@dataclass(frozen=True, kw_only=True)
class FolderView:
    """A folder as its document sees it.

    Attributes:
        manifest: Of the release.
        seen: What to expect of effects.
        notes: What a reader should know.
        files: The names of its files of rows, other files among them or not.
        sums: The checksums of all files but index.html and the manifest, by name; empty before
            they are known.
    """

    manifest: Manifest
    seen: Visible
    notes: Sequence[str]
    files: Collection[str] = ()
    sums: Mapping[str, FileSum] = field(default_factory=dict)

    @classmethod
    def from_parts(
        cls, manifest: Manifest, layout: Layout, channels: Sequence[Channel | None]
    ) -> FolderView:
        """From a manifest, cells and the channels of rows; None where there are no rows."""
        return cls(
            manifest=manifest,
            seen=what_is_visible(manifest, layout, channels),
            notes=release_notes(manifest, layout, channels),
        )

    @cached_property
    def columns(self) -> Columns:
        """Which column plays which part."""
        return self.manifest.named_columns

    @cached_property
    def rows(self) -> str:
        """The files of rows, as SQL names them."""
        return row_files(self.files)

    @property
    def has_rows(self) -> bool:
        """Whether there are rows, or aggregates alone."""
        return self.manifest.terms.releases_rows

    @cached_property
    def levels(self) -> list[tuple[str, ...] | None]:
        """What statistics are of, each once: cells (None), everyone, or groups by columns."""
        mechanisms = self.manifest.terms.mechanisms
        return list(dict.fromkeys(one.level for each in mechanisms for one in each.statistics))

    @property
    def outcomes(self) -> str:
        """The names of all outcomes."""
        return join_names([code(name) for name in self.manifest.terms.outcome_names])


def question_texts(question: QuestionTerms) -> Iterator[str]:
    """What was measured of each unit in a question: outcomes, combinations, further metrics."""
    declared = question.outcomes.declared
    yield from map(_outcome_text, question.outcomes.categories.declared.outcomes)
    for one in declared.constraints:
        yield f"Constraint: {code(one)}. Where the left side holds, so does the right."
    for one in declared.metrics:
        yield f"Also measured: {code(one)}."


def _outcome_text(outcome: Outcome) -> str:
    space = outcome.space
    if isinstance(space, Number):
        text = (
            f"a number from {shortest_decimal(space.low)} to {shortest_decimal(space.high)}. "
            "Values outside are clipped, and effects are on the clipped value"
        )
    elif space.edges is not None:
        text = (
            f"bins with edges {_listed(space.edges)}. A value counts as its bin's: "
            f"{_listed(space.values)}"
        )
    elif space.names is not None:
        text = space.in_words
    else:
        text = f"one of {_listed(space.values)}"
    missing = " It may be missing; whether it is missing is protected." * outcome.may_be_missing
    return f"{code(outcome.name)}: {text}.{missing}"


def _listed(values: tuple[float, ...]) -> str:
    texts = list(map(shortest_decimal, values))
    if len(texts) > _MOST_VALUES:
        texts = [*texts[: _MOST_VALUES - 2], "…", texts[-1]]
    return ", ".join(texts)


def missing_texts(columns: Columns) -> Iterator[str]:
    """How the means of outcomes are taken that may be missing."""
    for name, below in zip(columns.missing, columns.debiased[len(columns.outcomes) :], strict=True):
        above = columns.debiased[columns.outcomes.index(name)]
        yield (
            f"The mean of {code(name)} among units with an observed value is a ratio of means: "
            f"avg({code(above)}) / avg({code(below)}), with equal weights. Response rates may "
            f"differ between arms: {code('clusterdp estimate .')} tests that, and gives Lee bounds."
        )


def asked_texts(manifest: Manifest) -> list[str]:
    """Each question with the share of units that are asked; nothing where there is one."""
    if len(manifest.questions) == 1 or not manifest.terms.releases_rows:
        return []
    return [
        f"{code(question_name(one.names))}, asked of {one.mechanism.asked_share:.1%} of units"
        for one in manifest.questions
    ]


def column_texts(view: FolderView) -> list[tuple[str, str]]:
    """The columns of rows in their order, and what they hold."""
    manifest, columns, named = view.manifest, view.columns, view.manifest.columns
    texts = dict.fromkeys(columns.kept, "a public column")
    texts |= {name: "a public column to segment by" for by in columns.breakdowns for name in by}
    texts |= {named.unit: "the id of a unit", named.arm: "the arm that the unit was assigned to"}
    if named.cluster is not None:
        texts[named.cluster] = "the cluster of the unit, within which arms are compared"
    if named.randomization_unit is not None:
        texts[named.randomization_unit] = "the group that was assigned to an arm as a whole"
    texts[FOLD] = f"one of {columns.folds} folds, by a hash of the id"
    texts[QUESTION] = "the question that the unit was asked, by a hash of the id"
    private = {RESPONSE: "code of the randomized response; not an outcome"}
    if manifest.labels is not None and named.cluster is not None:
        true = code(str(manifest.true_cluster))
        private[named.cluster] = f"a noisy label of the unit's {true}: {manifest.labels.in_words}"
    means = [
        code(name) + ", counted as 0 where it is missing" * (name in columns.missing)
        for name in columns.outcomes
    ]
    means += [f"whether {code(name)} was observed" for name in columns.missing]
    for name, mean in zip(columns.debiased, means, strict=True):
        private[name] = f"debiased: its mean over many units estimates the mean of {mean}"
    return [
        (code(name), f"{strong('randomized')}, {private[name]}")
        if name in private
        else (code(name), f"exact, {texts[name]}")
        for name in columns.published
    ]


def file_texts(view: FolderView) -> dict[str, str]:
    """What is in each file, by its name; that of the rows first."""
    manifest, found = view.manifest, {}
    questions = manifest.terms.pairs
    statistics = [one for question in questions for one in question.mechanism.statistics]
    words = [one.in_words for one in statistics if one.level is None]
    if view.has_rows:
        of_rows = [question.rows for question in questions]
        words += [one.cells_in_words for one in of_rows]
        published = ", ".join(map(code, view.columns.published))
        remarks = " ".join(dict.fromkeys(one.released_in_words for one in of_rows))
        found[folder_of(view.rows)] = f"one row per unit: {published}. {in_code(remarks)}"
    per = "arm" if manifest.columns.cluster is None else "cluster and arm"
    found[CELLS] = f"one row per {per}: its size, {in_code(', '.join(dict.fromkeys(words)))}."
    levels = [level for level in view.levels if level is not None]
    if levels:
        of = ", ".join("of all units" if not by else f"by {', '.join(by)}" for by in levels)
        found[TOTALS] = (
            f"noisy totals {of}; of each group, fold and arm the sum of every metric "
            f"({code('noisy_sum')}), where a unit counts as often as the {code('weight')} of its "
            "cell says."
        )
    if manifest.terms.has_pilot:
        found[PILOT] = (
            "how many units have outcomes in each bin, with noise; each bin by the values at its "
            "lower ends. It sets the ranges of numbers and the randomizer."
        )
    if any(question.mechanism.designs_rows for question in questions):
        found[CHANNELS] = (
            f"of each randomizer and response, what it counts as in each metric ({code('decode')}) "
            f"and P(response given each category) × 2^48 ({code('weights')})."
        )
    found[README] = "what this is, how to use it with any software, and what you can detect."
    found[INDEX] = "the same for a browser, with charts and checksums."
    return found | {MANIFEST: "all of this for programs, with checksums."}


def file_sums(view: FolderView) -> list[tuple[str, str, str]]:
    """Each file: its name, its size and its checksum; many files of rows in one line."""
    files, found = dict(view.sums), []
    parts = [name for name in files if name.startswith(f"{UNIT_PARTS}/")]
    if len(parts) > _MOST_PARTS:
        size = sum(files.pop(name).bytes for name in parts)
        told = f"those of {len(parts):,} files are in {MANIFEST}"
        found = [(folder_of(view.rows), f"{size:,}", told)]
    found += [(name, f"{one.bytes:,}", one.sha256) for name, one in files.items()]
    return [*found, (INDEX, "", f"in {MANIFEST}"), (MANIFEST, "", "in itself")]


def other_files(files: Mapping[str, FileSum]) -> dict[str, FileSum]:
    """All files but the page itself and the manifest, sorted by their names."""
    return {name: files[name] for name in sorted(files) if name not in (INDEX, MANIFEST)}


def fingerprint(files: Mapping[str, FileSum]) -> str:
    """A checksum of the checksums of all other files, as `sha256sum` lists them."""
    lines = "".join(f"{one.sha256}  {name}\n" for name, one in other_files(files).items())
    return sha256(lines.encode()).hexdigest()[:_FINGERPRINT]


def join_names(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
