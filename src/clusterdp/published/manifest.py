"""The manifest of a published folder: what it says, and how it is read back.

The format is described in `docs/reference/folder.md`. A manifest is parsed once, into typed values.
It is genuine only if these, written down again, give the same bytes.
"""

from __future__ import annotations

import hashlib
import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
import numpy as np
from msgspec import Struct

from clusterdp._text import is_plain
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
from clusterdp.spec.columns import NOISY, Columns, Rule
from clusterdp.spec.provenance import Provenance
from clusterdp.spec.spec import Expected
from clusterdp.spec.terms import QuestionTerms, Terms, known_record
from clusterdp.storage.folder import (
    FileSum,
    RowOrderKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp.cells.layout import Layout
    from clusterdp.spec.columns import Aggregates
    from clusterdp.spec.spec import ReleaseSpec

FORMAT, FORMAT_VERSION = "clusterdp release", 6
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
        breakdowns: What effects are going to be cut by.
        folds: How many folds units are in.
        assigned: The groups that were assigned to arms as a whole; None if units were.
        row_order: How rows are ordered; None without rows.
        questions: What was published of each question.
        asking: How units are asked one of several; None where there is one question, or no rows.
        labels: The response that private clusters went through; None where clusters are public.
        assignment: The declared probabilities of arms by label; None if they are alike, or clusters
            are public.
        before_pilot: What was declared before a pilot, question by question; None where there was
            none.
        expected: What the owner expected outcomes of each question to be like, see `Expected`; None
            where nothing was declared.
        guarantee: What all questions cost together.
        pooling: What was pooled into one cluster; None if nothing was.
        aggregates: How several rows of a unit became one, by outcome; empty if each had one.
        clip: Whether finite outcomes beyond their ends count as the nearest end, as numbers do.
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
    guarantee: Guarantee
    pooling: Pooling | None
    aggregates: dict[str, Rule]
    clip: bool
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
            columns=ColumnNames(
                unit=columns.unit,
                arm=columns.arm,
                cluster=columns.cluster,
                randomization_unit=columns.randomization_unit,
                kept=columns.kept,
            ),
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
        """The private cluster that noisy labels are of; None where clusters are public."""
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
            sound = len(one.labels) == len(one.columns) and all(map(_are_distinct, one.labels))
            sound = sound and sizes.shape == (n_groups, len(self.arms)) and sizes.min() >= 0
            _hold("'breakdowns'", sound=sound)
            found.append(Breakdown(columns=one.columns, labels=one.labels, sizes=sizes))
        return tuple(found)

    def sealed(self, files: dict[str, FileSum]) -> bytes:
        """The bytes of its file, with its files and a checksum of itself."""
        listed = {name: files[name] for name in sorted(files)}
        return _with_checksum(msgspec.structs.replace(self, files=listed))


class _Head(Struct, frozen=True):
    """As much of a manifest as is read to know its format."""

    format: str | None = None
    format_version: int | None = None


def unseal(content: bytes) -> Manifest:
    """The manifest of a file, checked against its own checksum and against itself.

    Raises:
        FormatError: If it is no manifest, of another format, was edited, or states what no release
            states.
    """
    foreign = "manifest.json is not the manifest of a clusterdp release"
    head = _decode(content, _Head, foreign)
    if head.format != FORMAT:
        raise FormatError(foreign)
    if head.format_version != FORMAT_VERSION:
        newer = head.format_version is None or head.format_version > FORMAT_VERSION
        remedy = "upgrade clusterdp" if newer else "read it with the version that wrote it"
        raise FormatError(
            f"the folder has format {head.format_version}, this software reads format "
            f"{FORMAT_VERSION}; {remedy}"
        )
    manifest = _decode(content, Manifest, "manifest.json is inconsistent")
    if _with_checksum(manifest) != content:
        raise FormatError("manifest.json was edited after it was published")
    if not all(is_plain(letter) for text in _texts(manifest) for letter in text):
        raise FormatError("manifest.json has text with control characters")
    manifest.terms.check()
    _check_labels(manifest)
    _check_expected(manifest)
    _check_assignment(manifest)
    names = set(manifest.terms.outcome_names)
    _hold("'aggregates'", sound=not manifest.aggregates or set(manifest.aggregates) == names)
    _check_before_pilot(manifest)
    _check_asking(manifest)
    return manifest


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


def _texts(content: Any) -> Iterator[str]:
    """Every text in a manifest, at any depth."""
    held = msgspec.to_builtins(content) if isinstance(content, Struct) else content
    if isinstance(held, str):
        yield held
    elif isinstance(held, dict | list | tuple):
        for one in (*held, *held.values()) if isinstance(held, dict) else held:
            yield from _texts(one)


def _check_labels(manifest: Manifest) -> None:
    try:
        columns = manifest.named_columns
    except ClusterDPError as error:
        raise FormatError(f"manifest.json describes no release of ours: {error}") from None
    arms, has_order = manifest.arms, manifest.row_order is not None
    _hold("'columns' and 'breakdowns'", sound=columns.kept == manifest.columns.kept)
    _hold("'control'", sound=repr(manifest.control) in map(repr, arms))  # not "0" where 0 is an arm
    is_ordered = has_order == manifest.terms.releases_rows
    _hold("'arms' and 'row_order'", sound=len(arms) >= 2 and is_ordered)


def _hold(keys: str, *, sound: bool) -> None:
    """Raise a FormatError that names some keys unless what they state is sound."""
    if not sound:
        raise FormatError(f"manifest.json is inconsistent: see {keys}")


def _check_assignment(manifest: Manifest) -> None:
    labels, probs, n_arms = manifest.labels, manifest.assignment, len(manifest.arms)
    n_labels = 0 if labels is None else labels.n_labels
    noisy, shares = f"{manifest.true_cluster}{NOISY}", manifest.arm_shares
    groups, by = manifest.assigned, manifest.columns.randomization_unit
    is_assigned = (groups is None) == (by is None)
    _hold("'labels' and 'columns'", sound=labels is None or manifest.columns.cluster == noisy)
    are_probs = probs is None or (n_labels > 0 and are_assignment_probs(probs, n_labels, n_arms))
    _hold("'assignment'", sound=are_probs)
    _hold("'arm_shares'", sound=shares is None or are_arm_shares(shares, n_arms))
    _hold("'assigned'", sound=is_assigned and (groups is None or groups.is_sound(n_arms)))


def _check_asking(manifest: Manifest) -> None:
    terms, rule = manifest.terms, manifest.asking
    is_asked = len(terms.questions) > 1 and terms.releases_rows
    asked = tuple(one.asked for one in terms.mechanisms) if is_asked else None
    _hold("'asking'", sound=(None if rule is None else rule.asked) == asked)


def _check_before_pilot(manifest: Manifest) -> None:
    looked = [mechanism.pilot is not None for mechanism in manifest.terms.mechanisms]
    pairs = zip(manifest.questions, manifest.before_pilot, strict=False)
    sound = [one is not None for one in manifest.before_pilot] == looked and all(
        before is None or before.is_of(question.names) for question, before in pairs
    )
    _hold("'before_pilot'", sound=sound)


def _check_expected(manifest: Manifest) -> None:
    sizes = [space.n_categories for space in manifest.terms.spaces]
    sound = len(sizes) == len(manifest.expected) and all(
        kinds is None or _are_probs(kinds, n_categories)
        for kinds, n_categories in zip(manifest.expected, sizes, strict=True)
    )
    _hold("'expected'", sound=sound)


def _are_probs(kinds: Expected, n_categories: int) -> bool:
    return bool(kinds) and all(
        len(kind) == n_categories and min(kind) >= 0 and math.isclose(math.fsum(kind), 1)
        for kind in kinds
    )


def _are_distinct(labels: tuple[str, ...]) -> bool:
    return len(set(labels)) == len(labels) > 0


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
    return manifest.provenance.title or f"{names}: a private release of a randomized experiment"


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
