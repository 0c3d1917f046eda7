"""The folders of an estimate: opened, asked the same, and read together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.findings import Origin, file_name
from clusterdp.estimation.effects.notes import Note, Weight
from clusterdp.estimation.metrics.base import QuestionRows
from clusterdp.estimation.metrics.sample_ratio import estimate_share_notes
from clusterdp.estimation.reading.clusters import PUBLIC_CLUSTERS, ClusterInversion
from clusterdp.estimation.reading.folders import (
    FOLDER,
    check_folders,
    clip_texts,
    folder_names,
    joined_layout,
    matching_questions,
    read_folders,
)
from clusterdp.estimation.reading.request import (
    EstimateRequest,
    ExposureRequest,
    MergedArms,
    parse_dimensions,
)
from clusterdp.estimation.reading.segments import RowCounts, read_rows
from clusterdp.privacy.accounting import Guarantee
from clusterdp.published.folder import read_release
from clusterdp.published.release import Release


def open_release(release: Any) -> Release:
    """A release as it is, or from the path of its folder."""
    if isinstance(release, str | os.PathLike):
        return read_release(os.fspath(release))
    if not isinstance(release, Release):
        raise ParameterError(
            "release must be a Release or the path of a published folder, "
            f"got {type(release).__name__}"
        )
    return release


class ReadFolders:
    """One folder, or several about different units that are estimated together.

    Attributes:
        names: What folders are called; the title of a release or its file if there is one.
        releases: Their releases.
        requests: What to estimate from each.
        request: What to estimate from all.
    """

    def __init__(self, names: Sequence[str | None], releases: Sequence[Release]) -> None:
        self.names, self.releases = tuple(names), tuple(releases)
        if any(one.answers is not None for one in self.releases):
            raise ParameterError(
                "This folder answers a follow-up. Fix: estimate from the release, and give this "
                "folder with answers=[...] (--answer FOLDER)."
            )
        self.requests: list[EstimateRequest] = []
        self.request: EstimateRequest

    @classmethod
    def open(cls, given: Any) -> ReadFolders:
        """One folder or a list of them.

        Raises:
            ParameterError: If they are not of one experiment.
        """
        if not isinstance(given, list | tuple):
            release = open_release(given)
            return cls([release.provenance.title or file_name(given)], [release])
        if not given:
            raise ParameterError("release lists no folder. Fix: name one, or several.")
        if len(given) == 1:
            return cls.open(given[0])
        names = folder_names(given)
        found = cls(names, [open_release(one) for one in given])
        check_folders(names, found.releases)
        return found

    @property
    def is_one(self) -> bool:
        """Whether there is one folder."""
        return len(self.releases) == 1

    def only(self) -> Release:
        """The release of the one folder that answers are about.

        Raises:
            ParameterError: If there are several.
        """
        if not self.is_one:
            raise ParameterError(
                "Answers are about one release. Fix: estimate its folder alone with its answers."
            )
        return self.releases[0]

    def ask(
        self, request: EstimateRequest, *, by: Any, control: Any, exposure: Any, arms: Any = None
    ) -> None:
        """Take in what to estimate.

        Args:
            request: It, without what follows from releases.
            by: What to segment by.
            control: The arm to compare with; the release's own by default.
            exposure: Treatment received.
            arms: Which arms are compared as one.

        Raises:
            ParameterError: If what is asked for does not go together, or with a release.
        """
        for release in self.releases:
            spaces = [question.space for question in release.questions]
            layout, inversion = release.layout, ClusterInversion.from_release(release)
            merged = MergedArms.parse(arms, layout) if arms else None
            if merged is not None:
                layout = layout.with_merged(merged.labels, merged.places)
                inversion = inversion.with_merged(merged.places, len(merged.labels))
            layout = layout if control is None else layout.with_control(control)
            dimensions = parse_dimensions(by, release)
            one = request._replace(
                layout=layout,
                dimensions=dimensions,
                exposure=None if exposure is None else ExposureRequest.parse(exposure, spaces),
                inversion=inversion,
                merged=merged,
            )
            one.check(release.columns.randomization_unit)
            self.requests.append(one)
        self.request = self.requests[0]
        if self.is_one:
            return
        layouts = [one.layout for one in self.requests]
        if len({one.control for one in layouts}) > 1:
            raise ParameterError(
                "Folders have different control arms. Fix: name the one to compare with, as "
                "control=... (--control)."
            )
        private = {one.inversion.column for one in self.requests}
        cut_by = {name for names in self.request.dimensions for name in names}
        for name in sorted(cut_by & private):
            raise ParameterError(
                f"{name} is private, so its true clusters are estimated in one folder at a "
                f"time. Fix: segment by another column, or by {FOLDER}."
            )
        merged = self.request.merged
        if merged is not None:
            released = joined_layout(self._named, [one.released for one in self.requests])
            merged = merged._replace(released=released)
        self.request = self.request._replace(
            layout=joined_layout(self._named, layouts), inversion=PUBLIC_CLUSTERS, merged=merged
        )
        self.requests = [
            self._own(*pair) for pair in zip(self.releases, self.requests, strict=True)
        ]

    @property
    def _named(self) -> tuple[str, ...]:
        return tuple(map(str, self.names))

    def _own(self, release: Release, request: EstimateRequest) -> EstimateRequest:
        """What to read of a folder: its rows are of one folder, so that this is no column."""
        if FOLDER in release.columns.public:
            return request
        kept = [tuple(name for name in one if name != FOLDER) for one in request.dimensions]
        dimensions = tuple(one for one in dict.fromkeys(kept) if one)
        return request._replace(dimensions=dimensions)

    def read(self) -> tuple[list[list[RowCounts]], list[QuestionRows]]:
        """The rows of each folder, question by question; and the questions of all together."""
        first = self.releases[0]
        if self.is_one:
            (read,) = every = read_rows(self.releases, self.requests)
            pairs = zip(first.questions, read, strict=True)
            return every, [QuestionRows(*pair, self.request) for pair in pairs]
        every, together = read_folders(self._named, self.releases, self.requests, self.request)
        asked = [matching_questions(first, one) for one in self.releases]
        questions = []
        for place, rows in enumerate(together):
            folders = tuple(
                QuestionRows(own[place], rows, request, folder=name)
                for own, request, name in zip(asked, self.requests, self._named, strict=True)
            )
            question = first.questions[place]
            questions.append(QuestionRows(question, rows, self.request, folders))
        return every, questions

    def share_notes(self, shares: dict[Any, float] | None) -> list[Note]:
        """What the check of sample ratios finds in each folder, of arms as released."""
        return self.named(
            [
                estimate_share_notes(
                    request._replace(
                        layout=request.released, inversion=ClusterInversion.from_release(release)
                    ),
                    shares,
                    release.columns.randomization_unit,
                )
                for release, request in zip(self.releases, self.requests, strict=True)
            ]
        )

    def named(self, every: Sequence[Iterable[Note]]) -> list[Note]:
        """Notes on each folder: with its name, unless all folders have them."""
        listed = [list(notes) for notes in every]
        if self.is_one:
            return listed[0]
        shared = set(listed[0]).intersection(*listed[1:])
        found = [note for note in listed[0] if note in shared]
        for name, notes in zip(self._named, listed, strict=True):
            found += [
                note._replace(text=f"{name}: {note.text}") for note in notes if note not in shared
            ]
        return found

    def notes(self, of_release: Callable[[Release], list[Note]]) -> list[Note]:
        """Notes on releases, and on what makes folders differ."""
        found = self.named([of_release(one) for one in self.releases])
        if self.request.merged is not None:
            found = [*(Note(one, Weight.SCOPE) for one in self.request.merged.texts), *found]
        if self.is_one:
            return found
        clips = [Note(text, Weight.SCOPE) for text in clip_texts(self._named, self.releases)]
        epsilons = [one.guarantee.epsilon for one in self.releases]
        how = "the precision of its effect" if self.request.by_precision else "its units"
        texts = [f"{len(self.names)} folders about different units: each counts by {how}."]
        if len(set(epsilons)) > 1:
            texts.append(f"ε is {min(epsilons):g} to {max(epsilons):g} in these folders.")
        return [*clips, *found, *(Note(text) for text in texts)]

    @property
    def guarantee(self) -> Guarantee:
        """What the releases cost: units are different people, so the most of any release."""
        return max(
            (one.guarantee for one in self.releases), key=lambda one: (one.epsilon, one.delta)
        )

    def origin(self, shares: Iterable[str], made_by: str) -> Origin:
        """What an estimate was made from."""
        first = self.releases[0]
        data, cluster = self.names[0], first.columns.true_cluster or first.columns.cluster
        layout = self.request.layout
        if not self.is_one:
            more = self.names[1] if len(self.names) == 2 else f"{len(self.names) - 1} more"
            data = f"{self.names[0]} and {more}"
            cluster = cluster if any(one.columns.cluster for one in self.releases) else None
        found = Origin.from_layout(data, layout, cluster, shares, made_by)
        n_clusters = found.n_clusters if self.is_one or cluster is not None else 0
        return replace(found, unit=first.provenance.unit, n_clusters=n_clusters)
