"""A plan as people read it: one document for terminals, notebooks, pages and plan files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._text import counted, percent, plural
from clusterdp.document.model import Facts, Paragraph, Section, Table, as_notes
from clusterdp.mechanisms.draw import Question, disclosure_notes
from clusterdp.planning.advice import covariate_notes, gap_notes, pilot_range_notes
from clusterdp.planning.compare import budget, spent_on
from clusterdp.planning.decide import asked_in_words, assumed_in_words
from clusterdp.precision.visible import (
    SEGMENTS,
    ShownMetric,
    mde_columns,
    mde_table,
    share_name,
    shown_metrics,
    true_cluster_effects,
    true_cluster_notes,
    unseen_notes,
    visible_rows,
    visible_targets,
)
from clusterdp.privacy.statement import rounded_up
from clusterdp.spec.file_terms import in_file_terms
from clusterdp.spec.provenance import unsaid_pairs
from clusterdp.spec.terms import total_guarantee
from clusterdp.statistics.sums import totals_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.channels.cluster_response import ClusterResponse
    from clusterdp.document.model import Part
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.planning.compare import MechanismComparison
    from clusterdp.planning.decide import QuestionOutcomes
    from clusterdp.precision.forecast import ExpectedVariance, Prediction
    from clusterdp.precision.visible import VisibleEffect
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.spec.request import Request

# What a plan and a release state of a file that names no ledger.
WITHOUT_LEDGER = "no ledger (cannot be added later; see [privacy])"
# A share of ε that serves nobody.
_NEXT_TO_NOTHING = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionReport:
    """What was compared for a question, and what people are shown of it.

    Attributes:
        comparison: What was compared.
        outcomes: Its outcomes, and what was declared of them.
        private: The column of private clusters, and what their labels go through; None where
            clusters are public.
    """

    comparison: MechanismComparison
    outcomes: QuestionOutcomes
    private: tuple[str, ClusterResponse] | None = None

    @property
    def space(self) -> Categories:
        """The categories of the outcomes."""
        return self.outcomes.categories

    @property
    def metrics(self) -> tuple[ShownMetric, ...]:
        """The metrics, outcomes first."""
        return shown_metrics(self.space)

    @property
    def names(self) -> str:
        """The names of its outcomes."""
        return ", ".join(self.space.declared.names)

    @property
    def layout(self) -> Layout:
        """Clusters, arms and cell sizes."""
        return self.comparison.scenario.layout

    @property
    def share(self) -> float:
        """The segment that is shown first."""
        return self.comparison.shown_share

    @property
    def asked(self) -> str:
        """The share of units that are asked; empty where all are."""
        share = self.comparison.choice.mechanism.asked_share
        return percent(share) if share < 1 else ""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        compared, choice = self.comparison, self.comparison.choice
        return {
            "epsilon": compared.epsilon,
            "optimize_for": compared.request.optimize_for,
            "shown_share": compared.shown_share,
            "n_units": self.layout.n_units,
            "n_clusters": self.layout.n_clusters,
            "n_categories": self.space.n_categories,
            "asked": choice.mechanism.asked_share,
            "metrics": [one.name for one in self.metrics],
            "recommended": compared.chosen,
            "reason": compared.reason,
            "pilot": None if compared.advice is None else compared.advice._asdict(),
            "assumed": assumed_in_words([(self.outcomes, compared.scenario)]),
            "guarantee": str(choice.mechanism.guarantee(self.space)),
            "notes": list(self.notes()),
            "budget": budget(choice.mechanism, compared.scenario),
            "losses": self.losses(),
            "clusters": [
                {"clusters": name, "n_clusters": n_clusters, **self._predicted(precisions)}
                for name, n_clusters, precisions in compared.clusterings
            ],
            "visible": {one.name: self._by_metric(one.predictions) for one in self.seen()},
            "options": [
                {
                    "mechanism": option.name,
                    "parameters": option.mechanism.parameters(self.space),
                    **self._predicted(option.precisions),
                }
                for option in compared.options
            ],
        }

    def _predicted(self, precisions: Sequence[ExpectedVariance]) -> dict[str, Any]:
        """What to expect of the overall effect and, where rows are published, of a segment."""
        segment = [found for one in precisions if (found := one.segment(self.share))]
        overall = self._by_metric([one.overall for one in precisions])
        return {"overall": overall, "segment": self._by_metric(segment) or None}

    def _by_metric(self, predictions: Sequence[Prediction]) -> dict[str, Any]:
        """Predictions as plain values; none in segments where no rows are published."""
        named = zip(self.metrics, predictions, strict=False)
        return {metric.name: one.to_dict() for metric, one in named}

    def losses(self) -> dict[str, float]:
        """How much larger standard errors are than in a plan for one purpose only, by purpose."""
        losses = self.comparison.choice.losses
        return {purpose.in_words(self.layout): loss - 1 for purpose, loss in losses.items()}

    def seen(self) -> list[VisibleEffect]:
        """All units, groups and segments, and true clusters where clusters are private."""
        shares = sorted({*SEGMENTS, self.share}, reverse=True)
        found = visible_targets(self.comparison.choice.precisions, self.layout, shares)
        return [*found, *self._true_clusters()]

    def _true_clusters(self) -> list[VisibleEffect]:
        if self.private is None:
            return []
        precisions = self.comparison.choice.precisions
        return true_cluster_effects(*self.private, precisions, self.layout)

    def review(self) -> list[Part]:
        """What reviewers ask for: the mechanism and why, others, and every target."""
        compared, choice = self.comparison, self.comparison.choice
        numbers = choice.mechanism.parameters(self.space)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        facts = [
            ("Mechanism", choice.name + (f" ({shown})" if shown else "")),
            ("Why", compared.reason),
        ]
        lost = [
            f"{percent(loss)} larger than in a plan for {name} only"
            for name, loss in self.losses().items()
        ]
        if lost:
            facts.append(("Trade-off", f"standard errors are {', and '.join(lost)}."))
        seen = self.seen()
        targets = [
            Table(f"Minimum detectable effect on {metric.name}", visible_rows(seen, metric, place))
            for place, metric in enumerate(self.metrics)
        ]
        return [Facts(facts), *self._mechanism_tables(), *self._cluster_tables(), *targets]

    def _mechanism_tables(self) -> list[Part]:
        """Standard errors of all units by mechanism and metric, where several were compared."""
        options = self.comparison.options
        if len(options) == 1:
            return []
        rows = [
            (
                ("* " if option.name == self.comparison.chosen else "") + option.name,
                *(
                    metric.change(one.std_error)
                    for metric, one in zip(self.metrics, option.overall, strict=True)
                ),
            )
            for option in options
        ]
        header = ("", *(metric.name for metric in self.metrics))
        about = (
            "Each mechanism is shown at its best settings. The noisy-* mechanisms publish "
            "aggregates only."
        )
        return [Table("SE among all units, by mechanism", [header, *rows]), Paragraph(about)]

    def _cluster_tables(self) -> list[Part]:
        """What other clusters would give, of the first metric."""
        if not self.comparison.clusterings:
            return []
        first, rows = self.metrics[0], []
        for name, n_clusters, (expected, *_) in self.comparison.clusterings:
            segment = expected.segment(self.share)
            rows.append(
                (
                    f"{name} ({n_clusters:,})",
                    first.change(expected.overall.std_error),
                    "" if segment is None else first.change(segment.std_error),
                )
            )
        header = ("", "all units", share_name(self.share))
        return [Table(f"SE of {first.name} with other clusters", [header, *rows])]

    def notes(self, unit: str = "unit") -> tuple[str, ...]:
        """What the owner should know about the recommended mechanism.

        Args:
            unit: What a unit is called.
        """
        choice = self.comparison.choice
        mechanism = choice.mechanism
        return (
            *unseen_notes(self.metrics, choice.overall, plural(unit)),
            *covariate_notes(mechanism, self.space, self.metrics, choice.precisions),
            *self._given_up(),
            *true_cluster_notes(self.metrics, self._true_clusters()),
            *self._unserved(),
            *self._recommended_pilot(),
            *pilot_range_notes(mechanism, self.space),
            *gap_notes(mechanism, self.space),
            *disclosure_notes(mechanism, self.space, unit=unit),
        )

    def _recommended_pilot(self) -> list[str]:
        """Why there is a pilot that nobody asked for, and how to go without."""
        advice = self.comparison.advice
        if advice is None:
            return []
        return [
            f"{advice.reason} The pilot uses {percent(advice.share)} of ε. --pilot 0 goes without."
        ]

    def _unserved(self) -> list[str]:
        """Which breakdowns get no ε, or hardly any."""
        parts = budget(self.comparison.choice.mechanism, self.comparison.scenario)
        notes = []
        for one in self.layout.breakdowns:
            share = parts.get(totals_label(one.columns))
            if share is None or share >= _NEXT_TO_NOTHING:
                continue
            what = (
                "Effects in its groups come from rows, as in any segment. "
                "--optimize-for breakdowns gives it more."
                if one.compares_arms
                else "Rows show better how its groups differ than such totals would."
            )
            by = ", ".join(one.columns)
            notes.append(f"The breakdown by {by} gets {percent(share)} of ε. {what}")
        return notes

    def _given_up(self) -> list[str]:
        """What it would gain to give up on segments in which no effect is detectable."""
        compared, choice = self.comparison, self.comparison.choice
        segment = choice.segment(self.share) or ()
        regrets = {purpose.kind: loss for purpose, loss in choice.losses.items()}
        purpose = compared.request.optimize_for or "segments"
        seen = any(one.is_visible for one in segment) or not choice.overall[0].is_visible
        if seen or not segment or not purpose.startswith("segments") or "overall" not in regrets:
            return []
        metric, first = self.metrics[0], choice.overall[0]
        best = first._replace(std_error=first.std_error / regrets["overall"])
        note = (
            f"No change is detectable in a {share_name(self.share)}. A plan for the overall "
            f"effect only (--optimize-for overall) has an MDE of "
            f"{metric.change(best.detectable_effect)} in {metric.name} instead of "
            f"{metric.change(first.detectable_effect)}."
        )
        return [note]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanReport:
    """What was compared in every question.

    Attributes:
        request: What was asked for.
        questions: The report of each question.
        notes: What the owner should know about the table, the baseline and the questions.
        budget: What a release would take from the ledger that an experiment file names.
        rejected: Why that ledger would reject it; None if it would not.
        for_file: Whether notes name options as an experiment file has them.
    """

    request: Request
    questions: tuple[QuestionReport, ...]
    notes: tuple[str, ...] = ()
    budget: str | None = None
    rejected: str | None = None
    for_file: bool = False

    @property
    def unit(self) -> str:
        """What a unit is called."""
        return self.request.provenance.unit

    @property
    def units(self) -> str:
        """What units are called."""
        return self.request.provenance.units

    @property
    def mechanisms(self) -> list[Mechanism]:
        """The recommended mechanism of each question."""
        return [one.comparison.choice.mechanism for one in self.questions]

    @property
    def guarantee(self) -> Guarantee:
        """What all questions cost together."""
        return self.cost(self.mechanisms)

    def cost(self, mechanisms: Sequence[Mechanism]) -> Guarantee:
        """What some mechanisms of the questions cost together."""
        pairs = zip(self.questions, mechanisms, strict=True)
        asked = [Question(space=one.space, mechanism=mechanism) for one, mechanism in pairs]
        return total_guarantee(asked, self.request.clusters.response)

    @property
    def epsilon(self) -> float:
        """The budget of outcomes and private clusters together."""
        every = [one.comparison.epsilon for one in self.questions]
        return (max if self.releases_rows else sum)(every) + self.request.clusters.epsilon

    @property
    def releases_rows(self) -> bool:
        """Whether rows are published, so that each unit is asked one question with all of ε."""
        return self.mechanisms[0].releases_rows

    @property
    def layout(self) -> Layout:
        """Clusters, arms and cell sizes."""
        return self.questions[0].layout

    @property
    def assumed(self) -> str:
        """What outcomes are assumed to be like, and why."""
        every = [(one.outcomes, one.comparison.scenario) for one in self.questions]
        return in_file_terms(assumed_in_words(every)) if self.for_file else assumed_in_words(every)

    def parts(self) -> list[Part]:
        """The answer, what is detectable, and what that rests on."""
        facts = self.facts()
        if self.budget:
            facts.append(("Budget", self.budget))
        elif self.for_file and self.rejected is None:
            facts.append(("Budget", WITHOUT_LEDGER))
        if self.for_file:
            facts += unsaid_pairs(self.request.provenance.unsaid)
        notes = [*filter(None, [self.rejected]), *self.every_note()]
        return [Paragraph(self.answer(), "lead"), self.mde(), Facts(facts), *as_notes(notes)]

    def key_numbers(self) -> list[tuple[str, str]]:
        """The size of the experiment, and its budget."""
        return [
            (self.units, f"{self.layout.n_units:,}"),
            ("arms", str(len(self.layout.arms))),
            ("privacy budget", f"ε = {rounded_up(self.epsilon)}"),
        ]

    def review(self) -> list[Part | Section]:
        """What reviewers ask for, question by question."""
        if len(self.questions) == 1:
            return [*self.questions[0].review()]
        return [Section(self._title(one), one.review()) for one in self.questions]

    def _title(self, one: QuestionReport) -> str:
        return f"{one.names}, asked of {one.asked} of {self.units}" if one.asked else one.names

    def answer(self) -> str:
        """What can be detected of the first metric, in a sentence."""
        first = self.questions[0]
        metric, overall = first.metrics[0], first.comparison.choice.overall[0]
        at = f"At ε = {rounded_up(self.epsilon)}"
        if not overall.is_visible:
            return f"{at} no change in {metric.name} is detectable, even among all {self.units}."
        said = (
            f"{at} you can detect a change in {metric.name} of {metric.detectable(overall)} among "
            f"all {self.units}"
        )
        segment = first.comparison.choice.segment(first.share)
        if segment is None:
            return f"{said}."
        found = metric.detectable(segment[0])
        where = f"in a {share_name(first.share)}"
        return f"{said}, and {f'of {found} {where}' if segment[0].is_visible else f'none {where}'}."

    def mde(self) -> Table:
        """Minimum detectable effects on every metric."""
        every = [mde_columns(one.seen(), one.share) for one in self.questions]
        columns = [
            together[0]._replace(predictions=tuple(p for one in together for p in one.predictions))
            for together in zip(*every, strict=True)
        ]
        metrics = [metric for one in self.questions for metric in one.metrics]
        return mde_table(metrics, columns, f"ε = {rounded_up(self.epsilon)}", self.units)

    @property
    def design(self) -> str:
        """How many units, clusters and arms there are."""
        layout, clusters = self.layout, ""
        if layout.n_clusters:
            named = f" ({self.request.options.cluster})" if self.request.options.cluster else ""
            clusters = f", {counted(layout.n_clusters, 'cluster')}{named}"
        return f"{counted(layout.n_units, self.unit)}{clusters}, {counted(len(layout.arms), 'arm')}"

    def facts(self) -> list[tuple[str, str]]:
        """What the answer rests on."""
        several = " With several arms, numbers are for the least precise one."
        read = f"No outcome was read.{several * (len(self.layout.arms) > 2)}"
        facts = [
            ("Privacy", str(self.guarantee.statement(self.unit))),
            ("Design", f"{self.design}. {read}"),
            ("Assumes", self.assumed),
        ]
        if any(one.asked for one in self.questions):
            asked = [(one.outcomes.categories.declared.names, one.asked) for one in self.questions]
            facts.append(("Questions", asked_in_words(self.unit, asked)))
        return [*facts, ("ε split", self.split())]

    def split(self) -> str:
        """Where ε goes."""
        parts = [(percent(part), words) for _, words, part in self.spent() if part]
        return ", ".join(f"{part} {words}" for part, words in parts)

    def spent(
        self, mechanisms: Sequence[Mechanism] | None = None, epsilon: float | None = None
    ) -> list[tuple[str, str, float]]:
        """Where ε goes: a key, what it is spent on, and its share of all.

        A unit is asked one question, with all of ε; without rows it is in all of them.

        Args:
            mechanisms: Those at another budget; by default the plan's.
            epsilon: That budget.
        """
        chosen, whole = mechanisms or self.mechanisms, epsilon or self.epsilon
        labels = self.request.clusters.epsilon
        found = [("0-labels", spent_on("labels"), labels / whole)] if labels else []
        pairs = zip(self.questions, chosen, strict=True)
        every = [budget(made, one.comparison.scenario) for one, made in pairs]
        places = list(range(len(every)))
        if self.releases_rows:
            places = [max(places, key=lambda place: len(every[place]))]
        planned = sum(self.questions[place].comparison.epsilon for place in places)
        for place in places:
            one = self.questions[place]
            own = (1 - labels / whole) * one.comparison.epsilon / planned
            above = f"{one.names}: " if len(places) > 1 else ""
            found += [
                (f"{place}-{label}", above + spent_on(label), own * part)
                for label, part in every[place].items()
            ]
        return found

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values: those of one question, or a list of questions."""
        questions = [one.to_dict() for one in self.questions]
        private = self.request.clusters.response is not None
        together: dict[str, Any] = {
            "epsilon": self.epsilon,
            "guarantee": str(self.guarantee),
            "notes": self.every_note() if private else list(self.notes),
        }
        if private:
            together["label_epsilon"] = self.request.clusters.epsilon
        if len(questions) > 1:
            return {**together, "questions": questions}
        return questions[0] | (together if private else {})

    def remarks(self) -> list[str]:
        """What a plan file says above its options."""
        return [self.answer(), *(f"{name}: {text}" for name, text in self.facts())]

    def every_note(self) -> list[str]:
        """What the owner should know, each once."""
        of_questions = (note for one in self.questions for note in one.notes(self.unit))
        notes = dict.fromkeys((*self.notes, *of_questions))
        return [in_file_terms(one) for one in notes] if self.for_file else list(notes)
