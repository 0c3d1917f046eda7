"""What is in a published folder, in words: outcomes, columns, files, and what can be detected."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._text import shortest_decimal, with_article
from clusterdp.cells.assignment import inflation
from clusterdp.document.charts import Axis, ChartLine, line_chart
from clusterdp.document.model import Chart, code, in_code, strong
from clusterdp.document.scales import Logarithmic
from clusterdp.outcomes.baseline import base_measure
from clusterdp.outcomes.number import Number
from clusterdp.precision.expected import ExpectedOutcomes, Scenario
from clusterdp.precision.forecast import predict
from clusterdp.precision.row_noise import RowNoise
from clusterdp.precision.visible import (
    mde_columns,
    mde_table,
    shown_metrics,
    true_cluster_effects,
    visible_targets,
)
from clusterdp.privacy.statement import rounded_up
from clusterdp.published._recipes import folder_of, row_files
from clusterdp.published.notes import release_notes
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
    from clusterdp.document.model import Table
    from clusterdp.mechanisms.draw import Question
    from clusterdp.outcomes.declaration import Outcome
    from clusterdp.outcomes.finite import OutcomeSpace
    from clusterdp.precision.forecast import ExpectedVariance
    from clusterdp.precision.visible import ShownMetric, VisibleEffect
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.notes import ReleaseNote
    from clusterdp.spec.columns import Columns
    from clusterdp.spec.terms import QuestionTerms
    from clusterdp.storage.folder import FileSum


# Of more values than this, the first and the last are named.
_MOST_VALUES = 8
# For more files of rows than this, only the number is shown.
_MOST_PARTS = 12
_FINGERPRINT = 16
# What is assumed where no outcome was declared to be likelier than another.
_UNIFORM = "No baseline was declared, so all values are assumed equally likely."
# The segment that a table of minimum detectable effects shows first.
SHOWN_SEGMENT = 0.1
# Segments that a chart shows.
_SHARES, _N_POINTS = (0.01, 1.0), 47


def _weighted(manifest: Manifest, layout: Layout) -> str:
    """What is said of private clusters that have probabilities of arms of their own."""
    if manifest.labels is None or manifest.assignment is None:
        return ""
    weights = manifest.labels.inverse(layout.clusters) @ (1 / np.array(manifest.assignment))
    factor = inflation(weights, layout.sizes)
    return (
        f" Arms had different shares in private clusters, which multiplies variances by about "
        f"{factor:.3g}."
    )


def _assumed(manifest: Manifest, scenarios: Sequence[Scenario]) -> str:
    """What was assumed of outcomes, in a line."""
    pairs = list(zip(manifest.terms.spaces, scenarios, strict=True))
    said = [
        f"{metric.name} {metric.level(mean)}"
        for space, one in pairs
        if one.baseline.is_declared
        for metric, (mean, _) in zip(shown_metrics(space), one.moments(), strict=True)
    ]
    unknown = [
        name
        for space, one in pairs
        if not one.baseline.is_declared
        for name in space.declared.names
    ]
    whose = "the pilot's means" if manifest.terms.has_pilot else "the owner's baselines"
    assumed = f"Assumes {whose}: {', '.join(said)}." if said else _UNIFORM
    if said and unknown:
        assumed += f" All values of {', '.join(unknown)} are assumed equally likely."
    assigned = scenarios[0].layout.assigned
    if assigned is not None:
        assumed += (
            f" Arms were assigned by {manifest.columns.randomization_unit}; "
            f"{100 * assigned.correlation:.3g}% of the variance is between its groups."
        )
    return assumed


def release_scenarios(manifest: Manifest, compared: Layout) -> list[Scenario]:
    """What is known of each question, with clusters that have units in every arm."""
    return [
        Scenario(
            compared,
            space,
            ExpectedOutcomes(
                kinds=base_measure(space)[np.newaxis, np.newaxis]
                if expected is None
                else np.array(expected)[:, np.newaxis],
                is_declared=expected is not None,
                rounding=rounding,
            ),
        )
        for space, expected, rounding in zip(
            manifest.terms.spaces, manifest.expected, manifest.rounding, strict=True
        )
    ]


def row_noise(
    channel: Channel | None, question: Question, scenario: Scenario, layout: Layout
) -> RowNoise | None:
    """The noise of published rows; None without. To design their channel again takes long."""
    if channel is None:
        return None
    used: Any = replace(channel, groups=channel.groups[layout.complete])
    return RowNoise.from_channel(used, scenario, question.public_prior)


@dataclass(frozen=True, kw_only=True)
class FolderView:
    """A folder as its document sees it.

    Attributes:
        manifest: Of the release.
        metrics: The metrics.
        precisions: What to expect of effects on each metric, if outcomes are as the owner expected.
        targets: The same for all units, groups and segments.
        assumed: What was assumed of outcomes.
        remarks: What a reader should know.
        files: The names of its files of rows, other files among them or not.
        sums: The checksums of all files but index.html and the manifest, by name; empty before
            they are known.
    """

    manifest: Manifest
    metrics: tuple[ShownMetric, ...]
    precisions: tuple[ExpectedVariance, ...]
    targets: list[VisibleEffect]
    assumed: str
    remarks: Sequence[ReleaseNote]
    files: Collection[str] = ()
    sums: Mapping[str, FileSum] = field(default_factory=dict)

    @classmethod
    def from_parts(
        cls, manifest: Manifest, layout: Layout, channels: Sequence[Channel | None]
    ) -> FolderView:
        """From a manifest, cells and the channels of rows; None where there are no rows."""
        compared, terms = layout.compared(), manifest.terms
        scenarios = release_scenarios(manifest, compared)
        precisions: tuple[ExpectedVariance, ...] = ()
        if manifest.answers is None:
            for question, scenario, channel in zip(terms.pairs, scenarios, channels, strict=True):
                noise = row_noise(channel, question, scenario, layout)
                precisions += predict(question.mechanism, scenario, noise)
        targets = [*visible_targets(precisions, compared)] if precisions else []
        if manifest.labels is not None:
            name = str(manifest.true_cluster)
            targets += true_cluster_effects(name, manifest.labels, precisions, layout)
        return cls(
            manifest=manifest,
            metrics=tuple(metric for space in terms.spaces for metric in shown_metrics(space)),
            precisions=precisions,
            targets=targets,
            assumed=_assumed(manifest, scenarios) + _weighted(manifest, layout),
            remarks=release_notes(manifest, layout, channels),
        )

    @property
    def notes(self) -> list[str]:
        """The texts of its remarks."""
        return [one.text for one in self.remarks]

    def mde(self) -> Table:
        """Minimum detectable effects on every metric: all units, groups and segments."""
        columns = mde_columns(self.targets, SHOWN_SEGMENT)
        epsilon = rounded_up(self.manifest.guarantee.epsilon)
        return mde_table(self.metrics, columns, f"ε = {epsilon}", self.units)

    def visible(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """What to expect of effects as plain values, by target and metric."""
        return {
            one.name: {
                metric.name: found.to_dict()
                for metric, found in zip(self.metrics, one.predictions, strict=True)
            }
            for one in self.targets
        }

    @property
    def units(self) -> str:
        """What units are called."""
        return self.manifest.provenance.units

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
        """What statistics cover, each once: cells (None), everyone, or groups by columns."""
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
    missing = " It may be missing; whether it is missing is protected." * outcome.may_be_missing
    return f"{code(outcome.name)}: {_space_text(outcome.space)}.{missing}"


def _space_text(space: OutcomeSpace | Number) -> str:
    if isinstance(space, Number):
        return (
            f"a number from {shortest_decimal(space.low)} to {shortest_decimal(space.high)}. "
            "Values outside are clipped, and effects are on the clipped value"
        )
    values = _listed(space.values)
    if space.edges is not None:
        return f"bins with edges {_listed(space.edges)}. A value counts as its bin's: {values}"
    return f"one of {values}" if space.names is None else space.in_words


def _listed(values: tuple[float, ...]) -> str:
    texts = list(map(shortest_decimal, values))
    if len(texts) > _MOST_VALUES:
        texts = [*texts[: _MOST_VALUES - 2], "…", texts[-1]]
    return ", ".join(texts)


def missing_texts(columns: Columns, units: str) -> Iterator[str]:
    """How the means of outcomes are taken that may be missing; `units` as they are called."""
    for name, below in zip(columns.missing, columns.debiased[len(columns.outcomes) :], strict=True):
        above = columns.debiased[columns.outcomes.index(name)]
        yield (
            f"The mean of {code(name)} among {units} with an observed value is a ratio of means: "
            f"avg({code(above)}) / avg({code(below)}), with equal weights. Response rates may "
            f"differ between arms: {code('clusterdp estimate .')} tests that, and gives Lee bounds."
        )


def asked_texts(manifest: Manifest) -> list[str]:
    """Each question with the share of units that are asked; nothing where there is one."""
    if len(manifest.questions) == 1 or not manifest.terms.releases_rows:
        return []
    units = manifest.provenance.units
    return [
        f"{code(question_name(one.names))}, asked of {one.mechanism.asked_share:.1%} of {units}"
        for one in manifest.questions
    ]


def column_texts(view: FolderView) -> list[tuple[str, str]]:
    """The columns of rows in their order, and what they hold."""
    manifest, columns, named = view.manifest, view.columns, view.manifest.columns
    unit = manifest.provenance.unit
    texts: dict[str | None, str] = {
        **dict.fromkeys(columns.kept, "a public column"),
        **{name: "a public column to segment by" for by in columns.breakdowns for name in by},
        named.unit: f"the id of {with_article(unit)}",
        named.arm: f"the arm that the {unit} was assigned to",
        named.cluster: f"the cluster of the {unit}, within which arms are compared",
        named.randomization_unit: "the group that was assigned to an arm as a whole",
        FOLD: f"one of {columns.folds} folds, by a hash of the id",
        QUESTION: f"the question that the {unit} was asked, by a hash of the id",
    }
    private = {RESPONSE: "code of the randomized response; not an outcome"}
    if manifest.labels is not None and named.cluster is not None:
        true = code(str(manifest.true_cluster))
        private[named.cluster] = f"the {unit}'s noisy {true}: {manifest.labels.in_words}"
    means = [
        code(name) + ", counted as 0 where it is missing" * (name in columns.missing)
        for name in columns.outcomes
    ]
    means += [f"whether {code(name)} was observed" for name in columns.missing]
    for name, mean in zip(columns.debiased, means, strict=True):
        private[name] = f"debiased: its mean over many {view.units} estimates the mean of {mean}"
    return [
        (code(name), f"{strong('randomized')}, {private[name]}")
        if name in private
        else (code(name), f"exact, {texts[name]}")
        for name in columns.published
    ]


def file_texts(view: FolderView) -> dict[str, str]:
    """What is in each file, by its name; that of the rows first."""
    manifest, questions = view.manifest, view.manifest.terms.pairs
    statistics = [one for question in questions for one in question.mechanism.statistics]
    words = [one.in_words for one in statistics if one.level is None]
    of_rows = [question.rows for question in questions if view.has_rows]
    words += [one.cells_in_words for one in of_rows]
    remarks = in_code(" ".join(dict.fromkeys(one.released_in_words for one in of_rows)))
    levels = [level for level in view.levels if level is not None]
    unit, units = manifest.provenance.unit, view.units
    of = ", ".join(f"of all {units}" if not by else f"by {', '.join(by)}" for by in levels)
    per = "arm" if manifest.columns.cluster is None else "cluster and arm"
    rows = f"one row per {unit}: {', '.join(map(code, view.columns.published))}. {remarks}"
    held = ", ".join(["its size", *map(in_code, dict.fromkeys(words))])
    cells = f"one row per {per}: {held}."
    totals = (
        f"noisy totals {of}; of each group, fold and arm the sum of every metric "
        f"({code('noisy_sum')}), where {with_article(unit)} counts as often as the "
        f"{code('weight')} of its cell says."
    )
    pilot = (
        f"how many {units} have outcomes in each bin, with noise; each bin by the values at its "
        "lower ends. It sets the ranges of numbers and the randomizer."
    )
    channels = (
        f"for each randomizer and response, its debiased value in each metric "
        f"({code('decode')}) and P(response given each outcome combination) × 2^48 "
        f"({code('weights')})."
    )
    has_channels = any(question.mechanism.designs_rows for question in questions)
    texts = [
        (folder_of(view.rows), rows, view.has_rows),
        (CELLS, cells, True),
        (TOTALS, totals, bool(levels)),
        (PILOT, pilot, manifest.terms.has_pilot),
        (CHANNELS, channels, has_channels),
        (README, "what this is, how to use it with any software, and what you can detect.", True),
        (INDEX, "the same for a browser, with charts and checksums.", True),
        (MANIFEST, "all of this for programs, with checksums.", True),
    ]
    return {name: text for name, text, is_there in texts if is_there}


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


def detectable_chart(metric: ShownMetric, precision: ExpectedVariance, units: str) -> list[Chart]:
    """Detectable effects against the share of a segment; nothing where there are no rows."""
    shares = [float(share) for share in np.geomspace(*_SHARES, _N_POINTS)]
    found = [one for share in shares if (one := precision.segment(share)) is not None]
    if not found:
        return []
    # No line goes beyond what is possible.
    unit = 100 if metric.is_share else 1
    ours = [unit * min(one.detectable_effect, one.largest_effect) for one in found]
    true = [unit * min(one.detectable_without_privacy, one.largest_effect) for one in found]
    tenth = precision.segment(SHOWN_SEGMENT)
    told = f"All {units}: {metric.detectable(precision.overall)}."
    cost = "The gap between the lines is the cost of privacy. Log scales."
    if tenth is not None:
        told += f" A 10% segment: {metric.detectable(tenth)}."
        factor = tenth.detectable_effect / tenth.detectable_without_privacy
        cost = f"Privacy costs a factor of {factor:.1f} in a 10% segment. {cost}"
    drawing = line_chart(
        [ChartLine("this release", shares, ours, true), ChartLine("no privacy", shares, true)],
        Axis(f"segment, as a share of all {units}", Logarithmic.over(shares), "{:.0%}".format),
        Axis(
            f"MDE on {metric.name}{', percentage points' * metric.is_share}",
            Logarithmic.over([*ours, *true]),
        ),
        title=f"Minimum detectable effect on {metric.name}, by the size of the segment",
        description=told,
        gap="cost of privacy",
    )
    return [Chart(drawing, cost)]
