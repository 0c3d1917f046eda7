"""Answer a follow-up: what is asked is compared with the release, and its groups with the table.

Everything that can reject a follow-up reads public columns, numbers of the ledger and declarations.
The table is read as its release read it, joined to the labels by id.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from clusterdp._text import counted
from clusterdp.document.markup import to_html
from clusterdp.document.model import Facts, Paragraph, as_notes
from clusterdp.document.text import terminal_width, to_screen
from clusterdp.engines.local.table import LocalTable, source_errors
from clusterdp.errors import DataError, LedgerError, ParameterError
from clusterdp.ledger.reservation import absolute
from clusterdp.planning.decide import Draft
from clusterdp.published.asked_groups import (
    AnswerForecast,
    asked_groups,
    check_askable,
    check_followup,
    forecast_in_short,
    has_same_units,
)
from clusterdp.published.folder import read_files
from clusterdp.published.followup import read_followup, read_labels_of
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.frames import is_spark
from clusterdp.spec.answers import Answers, answered_spaces
from clusterdp.spec.clusters import PublicClusters
from clusterdp.spec.columns import question_names
from clusterdp.spec.parse import parse
from clusterdp.spec.spec import QuestionSpec, ReleaseSpec
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    from clusterdp.cells.layout import Layout
    from clusterdp.document.model import Part
    from clusterdp.engines.base import Engine
    from clusterdp.ledger.history import ReleaseRecord
    from clusterdp.ledger.ledger import Ledger
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.published.asked_groups import AskedGroups
    from clusterdp.published.followup import FollowUp
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.release import Release
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.spec.request import Request

# Where an answer's options name what it is about; all others are those of its release.
FOLLOWUP_FOLDER, RELEASE_FOLDER = "followup", "release"


@dataclass(frozen=True, slots=True, repr=False)
class AnswerPreview:
    """What an answer would publish; everything in it is public.

    Attributes:
        content: The same as plain values.
        forecast: What to expect of effects in the groups.
        epsilon: ε of the answer.
    """

    content: dict[str, Any]
    forecast: AnswerForecast
    epsilon: float

    def parts(self) -> list[Part]:
        """What is asked and published, what it costs, and how precise effects become."""
        held = self.content
        lead = (
            f"This publishes noisy totals of {counted(held['n_groups'], 'group')} to {held['out']} "
            "and cannot be undone."
        )
        pairs = [
            ("Asked", f"{', '.join(held['dimensions'])} of {held['n_labeled']:,} {held['units']}"),
            ("Metrics", ", ".join(held["metrics"])),
            ("Public", "names of groups and their sizes by arm; ids and labels only as a checksum"),
            ("Protected", f"{', '.join(held['outcomes'])}: {held['privacy']['budget']}"),
            ("", held["privacy"]["short"]),
            ("Budget", held["budget"]["in_short"]),
            *([("Reason", held["reason"])] if held["reason"] else []),
        ]
        tables = self.forecast.tables([self.epsilon], held["units"])
        return [Paragraph(lead), Facts(pairs), *tables, *as_notes(held["notes"])]

    def details(self) -> list[Part]:
        """Nothing more is to be shown."""
        return []

    def __repr__(self) -> str:
        return to_screen(self.parts(), terminal_width())

    def _repr_html_(self) -> str:
        return to_html(*self.parts())


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTask:
    """A follow-up, the release that it is about, and the request that this release was made by.

    Attributes:
        folder: Where the follow-up is.
        asked: What is asked for.
        release: The release.
        manifest: Its manifest.
        groups: The groups, small ones pooled.
        answers: What binds an answer to both.
        request: What the owner declared of the table.
        release_folder: Where the release is.
    """

    folder: str
    asked: FollowUp
    release: Release
    manifest: Manifest
    groups: AskedGroups = field(repr=False)
    answers: Answers
    request: Request
    release_folder: str

    @classmethod
    def read(cls, folder: str, place: str, options: dict[str, Any]) -> AnswerTask:
        """A follow-up that fits its release.

        Args:
            folder: Where the follow-up is.
            place: Where the release is.
            options: What the owner declared of the table, and where that is now.

        Raises:
            ClusterDPError: If it does not fit.
        """
        asked, checksum = read_followup(folder)
        release, manifest = read_files(open_folder(place))
        if release.manifest_sha256 != asked.release:
            raise DataError(
                f"the follow-up is about another release than {place}. Nothing was spent. Fix: "
                "give the folder of that release (--release)"
            )
        check_askable(release)
        check_followup(asked, release)
        labels = read_labels_of(folder, asked)
        groups = asked_groups(release, asked, labels)
        return cls(
            folder=folder,
            asked=asked,
            release=release,
            manifest=manifest,
            groups=groups,
            answers=Answers(
                release=asked.release,
                followup=checksum,
                labels=asked.checksums(labels),
                metrics=asked.metrics,
                found_in_fold=asked.found_in_fold,
                n_labeled=groups.n_labeled,
                n_pooled=tuple(map(len, groups.pooled)),
            ),
            request=parse(options),
            release_folder=place,
        )

    @property
    def forecast(self) -> AnswerForecast:
        """What to expect of effects in the groups."""
        return AnswerForecast(
            self.release, self.manifest, self.groups.breakdowns, self.asked.metrics
        )

    def check_same(self, record: ReleaseRecord) -> None:
        """Raise a LedgerError unless it is the follow-up that an answer was reserved for."""
        if self.answers.followup != record.followup:
            raise LedgerError(
                f"{self.folder} is not the follow-up that release {record.release_id} answers. "
                "Fix: put that follow-up back in its place"
            )

    def spec(self, mechanism: Mechanism) -> ReleaseSpec:
        """What is going to be published."""
        spaces = [one.space for one in self.release.questions]
        is_whole = self.asked.metrics is None
        questions = [
            QuestionSpec(
                space=space,
                mechanism=mechanism,
                expected=self.manifest.expected[place] if is_whole else None,
                rounding=self.manifest.rounding[place]
                if is_whole
                else (0.0,) * len(space.declared.metrics),
            )
            for place, space in answered_spaces(spaces, self.asked.metrics)
        ]
        known = msgspec.structs.replace(self.manifest.provenance, reason=None)
        return ReleaseSpec.from_questions(questions, PublicClusters(), known, self.answers)

    def open_table(self, source: Any, engine: Engine, out: str, spec: ReleaseSpec) -> OpenTable:
        """The table, joined to the labels, with its public columns read.

        Raises:
            DataError: If it does not have the cells of the release, or the groups of its units.
        """
        if is_spark(source):
            raise ParameterError(
                "answers are made on one machine. Fix: give the table by its name (--table)"
            )
        request, draft = self.request, Draft.from_request(self.request)
        declared = [space.declared for space in spec.spaces]
        columns = replace(
            draft.columns,
            outcomes=tuple(name for one in declared for name in one.names),
            missing=tuple(name for one in declared for name in one.missing),
            kept=(),
            breakdowns=tuple(one.columns for one in self.groups.breakdowns),
            question_names=question_names([one.names for one in declared]),
        )
        aggregates = {
            name: rule for name, rule in request.aggregates.items() if name in columns.outcomes
        }
        opened = prepare(
            source,
            columns=columns,
            spaces=spec.spaces,
            control=request.options.control,
            clusters=request.clusters,
            clip=bool(request.options.clip),
            show_row_counts=bool(request.options.show_row_counts),
            aggregates=aggregates,
            notation=draft.notation,
            labels=self.groups.labels,
            engine=engine,
            out=out,
        )
        opened = replace(opened, layout=draft.with_design(opened.layout))
        self._compare(opened.layout)
        assert isinstance(opened.table, LocalTable)  # noqa: S101 - Spark's are rejected above
        with source_errors():
            same = has_same_units(self.release, opened.table.rows)
        if not same:
            raise DataError(
                f"the table has other ids than the release in {columns.unit!r} (unit), or in other "
                "arms. Nothing was spent. Fix: give the released table (--table)"
            )
        return opened

    def _compare(self, layout: Layout) -> None:
        """Raise a DataError unless cells and groups are those of the release."""
        ours, n_units = self.release.layout, self.release.layout.n_units
        same_cells = (
            [str(one) for one in (*layout.clusters, *layout.arms)]
            == [str(one) for one in (*ours.clusters, *ours.arms)]
            and layout.sizes.shape == ours.sizes.shape
            and np.array_equal(layout.sizes, ours.sizes)
        )
        if not same_cells:
            raise DataError(
                f"the table is not the one that was released: it has "
                f"{counted(layout.n_units, 'unit')}, the release {n_units:,}, or other clusters "
                "and arms. Nothing was spent. Fix: give the released table (--table)"
            )
        for mine, theirs in zip(layout.breakdowns, self.groups.breakdowns, strict=True):
            if mine.labels != theirs.labels or not np.array_equal(mine.sizes, theirs.sizes):
                raise DataError(
                    "the table has other ids or arms than the release: groups by "
                    f"{', '.join(theirs.columns)} differ in size. Nothing was spent. Fix: give "
                    "the released table (--table)"
                )

    def preview(
        self, spec: ReleaseSpec, epsilon: float, out: str, budget: dict[str, Any], notes: list[str]
    ) -> AnswerPreview:
        """What an answer would publish."""
        forecast, groups = self.forecast, self.groups
        guarantee = spec.terms.guarantee
        statement = guarantee.statement(self.manifest.provenance.unit)
        n_pooled = sum(map(len, groups.pooled))
        if n_pooled:
            notes = [*notes, f"{counted(n_pooled, 'small group')} pooled into (not asked)."]
        fold = self.asked.found_in_fold
        if fold is not None:
            notes = [*notes, f"Segments were found in fold {fold}; its units have no labels."]
        content = {
            "out": out,
            "release": self.asked.release,
            "followup": self.answers.followup,
            "dimensions": list(self.asked.names),
            "n_groups": len(forecast.groups),
            "n_labeled": max(groups.n_labeled),
            "units": self.manifest.provenance.units,
            "metrics": [one.name for _, one in forecast.metrics],
            "outcomes": list(spec.terms.outcome_names),
            "reason": self.asked.reason,
            "epsilon": guarantee.epsilon,
            "privacy": {"budget": statement.budget, "short": statement.short},
            "budget": budget,
            "expected": forecast_in_short(forecast, epsilon),
            "notes": [*notes, *budget["notes"], *budget["refusals"]],
        }
        return AnswerPreview(content, forecast, epsilon)

    def options(self, source: str, out: str) -> dict[str, Any]:
        """What a ledger keeps, to resume the answer with."""
        return {
            **self.request.options.to_dict(),
            "input": source,
            "out": out,
            FOLLOWUP_FOLDER: absolute(self.folder),
            RELEASE_FOLDER: absolute(self.release_folder),
        }


def release_of(ledger: Ledger, folder: str) -> ReleaseRecord:
    """The release of a ledger that a follow-up is about.

    Raises:
        LedgerError: If the ledger has no such release.
    """
    asked, _ = read_followup(folder)
    for one in ledger.releases():
        if one.manifest_sha256 == asked.release and one.answers is None:
            if one.is_withdrawn:
                raise LedgerError(
                    f"release {one.release_id}, which the follow-up is about, was withdrawn. "
                    "Nothing was published. Fix: ask the analyst for a follow-up to another release"
                )
            return one
    raise LedgerError(
        f"the ledger has no release with the manifest {asked.release[:16]}…, which the follow-up "
        "is about. Nothing was spent. Fix: give the ledger that it was published with. A release "
        "without a ledger cannot be answered"
    )
