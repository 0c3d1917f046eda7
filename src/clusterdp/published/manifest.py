"""The manifest of a published folder: what it says, and how it is read back.

The format is described in `docs/reference/folder.md`. A manifest is parsed once, into typed values.
It is genuine only if these, written down again, give the same bytes.
"""

from __future__ import annotations

import hashlib
import math
import re
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Struct

from clusterdp._text import held_texts, is_plain
from clusterdp._version import __version__
from clusterdp.cells.assignment import (
    AssignmentProbs,
    Pooling,
    are_arm_shares,
    are_assignment_probs,
)
from clusterdp.cells.layout import AssignedGroups, Breakdown
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.errors import ClusterDPError, FormatError
from clusterdp.outcomes.categories import CategoriesRecord
from clusterdp.privacy.accounting import Guarantee
from clusterdp.rows.questions import QuestionRule
from clusterdp.spec.answers import NOT_ASKED, Answers
from clusterdp.spec.columns import NOISY, Columns, Rule
from clusterdp.spec.provenance import Provenance
from clusterdp.spec.terms import Expected, QuestionTerms, Terms, known_record
from clusterdp.storage.folder import (
    FileSum,
    RowOrderKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.categories import Categories
    from clusterdp.spec.columns import Aggregates
    from clusterdp.spec.spec import ReleaseSpec

FORMAT, FORMAT_VERSION = "clusterdp release", 8
Label = bool | int | float | str
T = TypeVar("T")
# No more than a name and a version: it is shown as it is.
Software = Annotated[str, msgspec.Meta(pattern=r"\Aclusterdp \d{1,4}(\.\d{1,4}){2}\Z")]


class ColumnNames(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The published columns, by the parts they play."""

    unit: str
    arm: str
    cluster: str | None
    randomization_unit: str | None
    kept: tuple[str, ...]


class BreakdownRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A breakdown; see `Breakdown`."""

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[int, ...], ...]


class BeforePilot(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was declared before a pilot, from which a manifest's outcomes and prior follow.

    Attributes:
        outcomes: The declared outcomes, and the grids of numbers.
        prior: The public prior of their categories; None if none was declared.
    """

    outcomes: CategoriesRecord
    prior: tuple[float, ...] | None

    def is_of(self, names: tuple[str, ...]) -> bool:
        """Whether it declares outcomes of these names, and a prior of their categories."""
        try:
            space = self.outcomes.categories
        except ClusterDPError:
            return False
        prior = self.prior or (1.0,) * space.n_categories
        is_prior = len(prior) == space.n_categories and min(prior) >= 0 < math.fsum(prior)
        known = tuple(space.declared.names) == names and space.record() == self.outcomes
        return known and is_prior


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """What a release is, and what it promises.

    Attributes:
        format: Always `FORMAT`.
        format_version: Which version of the format.
        software: What wrote it.
        columns: The published columns.
        arms: Labels of the arms, in order.
        control: The control arm.
        arm_shares: The planned share of each arm; None if none was declared.
        n_units: How many units there are.
        n_clusters: How many clusters; 0 without clusters.
        breakdowns: What analysts will segment by.
        folds: How many folds units are in.
        assigned: The groups that were assigned to arms as a whole; None if units were.
        row_order: How rows are ordered; None without rows.
        questions: What was published of each question.
        asking: How units are asked one of several; None where there is one question, or no rows.
        labels: The response that private clusters went through; None where clusters are public.
        assignment: The declared probabilities of arms by label; None if they are equal, or clusters
            are public.
        before_pilot: What was declared before a pilot, question by question; None where there was
            none.
        expected: What the owner expected outcomes of each question to be like, see `Expected`; None
            where nothing was declared.
        rounding: The variance that rounding numbers to their grids then adds to each metric of each
            question: what is expected is of rounded numbers.
        guarantee: What all questions cost together.
        pooling: What was pooled into one cluster; None if nothing was.
        aggregates: How several rows of a unit became one, by outcome; empty if each had one.
        clip: Whether finite outcomes beyond their ends count as the nearest end, as numbers do.
        answers: The follow-up that it answers; None for a release.
        provenance: Where it comes from.
        files: The other files, with their checksums.
        sha256: A checksum of all of the above.
    """

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    software: Software
    columns: ColumnNames
    arms: tuple[Label, ...]
    control: Label
    arm_shares: tuple[float, ...] | None
    n_units: int
    n_clusters: int
    breakdowns: tuple[BreakdownRecord, ...]
    folds: int
    assigned: AssignedGroups | None
    row_order: RowOrderKind | None
    questions: tuple[QuestionTerms, ...]
    asking: QuestionRule | None
    labels: ClusterResponse | None
    assignment: AssignmentProbs | None
    before_pilot: tuple[BeforePilot | None, ...]
    expected: tuple[Expected | None, ...]
    rounding: tuple[tuple[float, ...], ...]
    guarantee: Guarantee
    pooling: Pooling | None
    aggregates: dict[str, Rule]
    clip: bool
    answers: Answers | None
    provenance: Provenance
    files: dict[str, FileSum] = {}
    sha256: str = ""

    @classmethod
    def from_spec(  # noqa: PLR0913 - what was read of a table, all by name
        cls,
        spec: ReleaseSpec,
        layout: Layout,
        columns: Columns,
        *,
        row_order: RowOrderKind,
        pooling: Pooling | None,
        aggregates: Aggregates,
        clip: bool,
        asking: QuestionRule | None,
    ) -> Manifest:
        """The manifest of a release, but for its files and its checksum."""
        terms = spec.terms
        return cls(
            software=software_name(),
            columns=msgspec.convert(columns, ColumnNames, from_attributes=True),
            arms=tuple(plain(arm) for arm in layout.arms),
            control=plain(layout.arms[layout.control]),
            arm_shares=layout.arm_shares,
            n_units=layout.n_units,
            n_clusters=layout.n_clusters,
            breakdowns=tuple(
                BreakdownRecord(
                    columns=one.columns,
                    labels=one.labels,
                    sizes=tuple(map(tuple, one.sizes.tolist())),
                )
                for one in layout.breakdowns
            ),
            folds=layout.folds,
            assigned=layout.assigned,
            row_order=row_order if terms.releases_rows else None,
            questions=terms.questions,
            asking=asking,
            labels=terms.labels,
            assignment=spec.clusters.probs(layout),
            expected=tuple(one.expected for one in spec.questions),
            rounding=tuple(one.rounding for one in spec.questions),
            before_pilot=tuple(
                None
                if one.declared is None
                else BeforePilot(
                    outcomes=known_record(one.declared.space), prior=one.declared.mechanism.prior
                )
                for one in spec.questions
            ),
            guarantee=terms.guarantee,
            pooling=pooling,
            aggregates={name: cast("Rule", rule) for name, rule in aggregates.items()},
            clip=clip,
            answers=spec.answers,
            provenance=spec.provenance,
        )

    @cached_property
    def terms(self) -> Terms:
        """What is published of the outcomes, and what that costs."""
        return Terms(questions=self.questions, labels=self.labels, guarantee=self.guarantee)

    @cached_property
    def named_columns(self) -> Columns:
        """Which column plays which part."""
        named = self.columns
        return Columns(
            unit=named.unit,
            arm=named.arm,
            cluster=named.cluster,
            outcomes=self.terms.outcome_names,
            missing=self.terms.missing_names,
            kept=named.kept,
            breakdowns=tuple(one.columns for one in self.breakdowns),
            randomization_unit=named.randomization_unit,
            folds=self.folds,
            question_names=self.terms.question_names,
            true_cluster=self.true_cluster,
        )

    @property
    def true_cluster(self) -> str | None:
        """The private cluster behind the noisy labels; None where clusters are public."""
        return None if self.labels is None else (self.columns.cluster or "").removesuffix(NOISY)

    def to_breakdowns(self) -> tuple[Breakdown, ...]:
        """The breakdowns, as values.

        Raises:
            FormatError: If the sizes of one are not of its groups and arms, or do not add up.
        """
        found = []
        for one in self.breakdowns:
            sizes = np.array(one.sizes, dtype=np.int64)
            n_groups = math.prod(map(len, one.labels))
            are_distinct = all(len(set(labels)) == len(labels) > 0 for labels in one.labels)
            sound = len(one.labels) == len(one.columns) and are_distinct
            sound = sound and sizes.shape == (n_groups, len(self.arms)) and sizes.min() >= 0
            _hold("'breakdowns'", sound=sound)
            found.append(Breakdown(columns=one.columns, labels=one.labels, sizes=sizes))
        return tuple(found)

    def sealed(self, files: dict[str, FileSum]) -> bytes:
        """The bytes of its file, with its files and a checksum of itself."""
        listed = {name: files[name] for name in sorted(files)}
        return _with_checksum(msgspec.structs.replace(self, files=listed))


def unseal(content: bytes) -> Manifest:
    """The manifest of a file, checked against its own checksum and against itself.

    Raises:
        FormatError: If it is no manifest, of another format, was edited, or states what no release
            states.
    """
    foreign = "manifest.json is not the manifest of a clusterdp release"
    head = _decode(content, dict[str, Any], foreign)
    version = head.get("format_version")
    if head.get("format") != FORMAT or not isinstance(version, int | None):
        raise FormatError(foreign)
    if version != FORMAT_VERSION:
        newer = version is None or version > FORMAT_VERSION
        remedy = "upgrade clusterdp" if newer else "read it with the version that wrote it"
        raise FormatError(
            f"the folder has format {version}, this software reads format {FORMAT_VERSION}; "
            f"{remedy}"
        )
    manifest = _decode(content, Manifest, "manifest.json is inconsistent")
    if _with_checksum(manifest) != content:
        raise FormatError("manifest.json was edited after it was published")
    if not all(
        is_plain(letter) for text in held_texts(msgspec.to_builtins(manifest)) for letter in text
    ):
        raise FormatError("manifest.json has text with control characters")
    manifest.terms.check()
    try:
        columns = manifest.named_columns
    except ClusterDPError as error:
        raise FormatError(f"manifest.json describes no release of ours: {error}") from None
    for keys, sound in chain(_design_claims(manifest, columns), _question_claims(manifest)):
        _hold(keys, sound=sound)
    return manifest


def checksum_of(manifest: Manifest) -> str:
    """The SHA-256 of its file: how ledgers and other folders name a release."""
    return hashlib.sha256(manifest.sealed(manifest.files)).hexdigest()


def _decode(content: bytes, kind: type[T], otherwise: str) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:  # also where a parameter is out of its range
        raise FormatError(f"{otherwise}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise FormatError("manifest.json is not JSON; the folder is damaged") from None


def _with_checksum(manifest: Manifest) -> bytes:
    """The bytes of a manifest whose checksum is that of the same manifest without one."""
    unsigned = msgspec.json.encode(msgspec.structs.replace(manifest, sha256=""))
    signed = msgspec.structs.replace(manifest, sha256=hashlib.sha256(unsigned).hexdigest())
    return msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n"


def _hold(keys: str, *, sound: bool) -> None:
    """Raise a FormatError that names some keys unless what they state is sound."""
    if not sound:
        raise FormatError(f"manifest.json is inconsistent: see {keys}")


def _design_claims(manifest: Manifest, columns: Columns) -> Iterator[tuple[str, bool]]:
    """What is stated of columns, arms and clusters: its keys, and whether it can be so."""
    arms, named, has_order = manifest.arms, manifest.columns, manifest.row_order is not None
    yield "'columns' and 'breakdowns'", columns.kept == named.kept
    yield "'control'", repr(manifest.control) in map(repr, arms)  # not "0" where 0 is an arm
    is_ordered = has_order == manifest.terms.releases_rows
    yield "'arms' and 'row_order'", len(arms) >= 2 and is_ordered
    # Without ids, nobody can compare it with the folders that it continues.
    yield "'continues' and 'row_order'", has_order or not manifest.provenance.continues
    labels, probs, shares = manifest.labels, manifest.assignment, manifest.arm_shares
    n_labels = 0 if labels is None else labels.n_labels
    is_noisy = named.cluster == f"{manifest.true_cluster}{NOISY}"
    yield "'labels' and 'columns'", labels is None or is_noisy
    are_probs = probs is None or (n_labels > 0 and are_assignment_probs(probs, n_labels, len(arms)))
    yield "'assignment'", are_probs
    yield "'arm_shares'", shares is None or are_arm_shares(shares, len(arms))
    groups, is_assigned = manifest.assigned, named.randomization_unit is not None
    are_sound = groups is None or groups.is_sound(len(arms))
    yield "'assigned'", is_assigned == (groups is not None) and are_sound


def _question_claims(manifest: Manifest) -> Iterator[tuple[str, bool]]:
    """The same of questions."""
    terms, aggregates = manifest.terms, manifest.aggregates
    sizes = [space.n_categories for space in terms.spaces]
    yield (
        "'expected'",
        len(sizes) == len(manifest.expected)
        and all(
            kinds is None or _are_probs(kinds, n_categories)
            for kinds, n_categories in zip(manifest.expected, sizes, strict=True)
        ),
    )
    is_answer = all(one.is_answer for one in terms.mechanisms)
    yield "'answers'", is_answer == (manifest.answers is not None)
    if manifest.answers is not None:
        yield "'answers' and 'breakdowns'", _are_answered(manifest, manifest.answers)
    yield "'aggregates'", not aggregates or set(aggregates) == set(terms.outcome_names)
    before = manifest.before_pilot
    yield (
        "'before_pilot'",
        [one is not None for one in before] == [one.pilot is not None for one in terms.mechanisms]
        and all(
            one is None or one.is_of(question.names)
            for question, one in zip(manifest.questions, before, strict=True)
        ),
    )
    is_asked = len(terms.questions) > 1 and terms.releases_rows
    asked = tuple(one.asked for one in terms.mechanisms) if is_asked else None
    yield "'asking'", asked == (None if manifest.asking is None else manifest.asking.asked)
    yield (
        "'rounding'",
        len(sizes) == len(manifest.rounding)
        and all(map(_are_rounding, manifest.rounding, terms.spaces)),
    )


def _are_answered(manifest: Manifest, answers: Answers) -> bool:
    """Whether an answer has a group for units without a label, and numbers of each dimension."""
    per = (answers.labels, answers.n_labeled, answers.n_pooled)
    checksums = (answers.release, answers.followup, *answers.labels)
    sizes = [dict(zip(one.labels[0], one.sizes, strict=True)) for one in manifest.breakdowns]
    fold = answers.found_in_fold
    return (
        all(len(one) == len(sizes) for one in per)
        and all(re.fullmatch("[0-9a-f]{64}", one) for one in checksums)
        and all(len(one.columns) == 1 for one in manifest.breakdowns)
        and all(set(groups) - {NOT_ASKED} for groups in sizes)
        and all(
            manifest.n_units - sum(groups.get(NOT_ASKED, ())) <= labeled <= manifest.n_units
            for groups, labeled in zip(sizes, answers.n_labeled, strict=True)
        )
        and min(answers.n_pooled) >= 0
        and (fold is None or 0 <= fold < manifest.folds)
    )


def _are_probs(kinds: Expected, n_categories: int) -> bool:
    return bool(kinds) and all(
        len(kind) == n_categories and min(kind) >= 0 and math.isclose(math.fsum(kind), 1)
        for kind in kinds
    )


def _are_rounding(rounding: tuple[float, ...], space: Categories) -> bool:
    """Whether rounding can add such variances to the metrics of a question: it is of numbers."""
    most = np.ptp(space.metric_values(), axis=1) ** 2 / 4 * space.metric_lattice().is_number
    added = np.array(rounding)
    return added.shape == most.shape and bool(((added >= 0) & (added <= most)).all())


def plain(label: Any) -> Label:
    """A label as JSON can hold it."""
    return label if isinstance(label, bool | int | float | str) else str(label)


def arms_in_words(manifest: Manifest) -> list[str]:
    """The arms, each with its planned share if that was declared."""
    arms = [str(arm) for arm in manifest.arms]
    if manifest.arm_shares is None:
        return arms
    pairs = zip(arms, manifest.arm_shares, strict=True)
    return [f"{arm} (planned: {100 * share:.4g}%)" for arm, share in pairs]


def software_name() -> str:
    """What writes releases, as manifests name it."""
    return f"clusterdp {__version__}"


def title_of(manifest: Manifest) -> str:
    """What a release is called: by its owner, or by its outcomes."""
    names = ", ".join(manifest.terms.outcome_names)
    title = manifest.provenance.title
    if manifest.answers is not None:
        return f"{title or names}: an answer to a follow-up"
    return title or f"{names}: a private release of a randomized experiment"


def what_is_public(manifest: Manifest) -> str:
    """What is published as it is, in a sentence; without rows there is no order of rows."""
    public = {
        None: "Arms, clusters and cell sizes",
        "ids": "Ids, arms, clusters, cell sizes and passthrough columns",
        "table": "Ids, arms, clusters, cell sizes, passthrough columns and the original row order",
    }
    listed = public[manifest.row_order]
    if manifest.labels is None:
        return f"{listed} are published as they are."
    exact = listed.replace(", clusters, cell sizes", "").replace(", clusters and cell sizes", "")
    return (
        f"{exact} are published as they are. The cluster `{manifest.true_cluster}` is private: a "
        f"published label (`{manifest.columns.cluster}`) is {manifest.labels.in_words}, and the "
        "sizes of cells count these."
    )
