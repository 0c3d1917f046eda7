"""What a plan compared, as people read it, question by question: text, HTML, plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._text import counted, percent
from clusterdp.channels.optimal import OptimalRows
from clusterdp.document.markup import to_html
from clusterdp.document.model import Paragraph, Table
from clusterdp.document.text import to_lines, wrapped
from clusterdp.mechanisms.draw import disclosure_notes
from clusterdp.planning.compare import budget
from clusterdp.precision.visible import (
    detectable_in_words,
    true_cluster_notes,
    unseen_notes,
    visible_rows,
    visible_targets,
)
from clusterdp.spec.terms import total_guarantee
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.sums import totals_label

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.planning.compare import ClusterAlternative, MechanismComparison, MechanismOption
    from clusterdp.precision.prediction import Prediction
    from clusterdp.precision.visible import TrueClusters, VisibleEffect
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.spec.request import Request

# A channel whose noise is at most this share above the least is called optimal.
_NEAR = 0.011
# What a legend is wrapped to where no terminal tells.
_INDENT, _USUAL_WIDTH = "  ", 80
# A share of ε that serves nobody.
_NEXT_TO_NOTHING = 0.02
_LEGEND = (
    "Standard errors are of the overall effect and in a segment, for the least certain arm.",
    "Detectable is what a two-sided 5% test finds with 80% power.",
)
_SEVERAL = "Each mechanism is at its best, noisy sums included; the noisy-* release no rows."


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuestionReport:
    """What was compared for a question, and what people are shown of it.

    Attributes:
        comparison: What was compared.
        space: The categories of the outcomes.
        assumed: What outcomes are thought to be like, and why.
        private: The private clusters; None where clusters are public.
    """

    comparison: MechanismComparison
    space: Categories
    assumed: str
    private: TrueClusters | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics, outcomes first."""
        return tuple(map(str, self.space.declared.metrics))

    @property
    def asked_in_words(self) -> str:
        """Of how many units it is asked; nothing where all are."""
        share = self.comparison.choice.mechanism.asked_share
        return f", asked of {percent(share)} of units" if share < 1 else ""

    def as_text(self, width: int | None, said: Collection[str] = ()) -> str:
        """The report for terminals, in lines that fit; in long ones without a width.

        Args:
            width: Of the terminal.
            said: What was said already.
        """
        about, legend, conclusions = self._unsaid(said)
        parts = [fitting(about, width), *(to_lines([table], width) for table in self.tables())]
        parts += [wrapped(" ".join(legend), width or _USUAL_WIDTH), fitting(conclusions, width)]
        return "\n\n".join("\n".join(part) for part in parts if part and part[0])

    def as_html(self, said: Collection[str] = ()) -> str:
        """The report for notebooks; see `as_text`."""
        about, legend, conclusions = self._unsaid(said)
        below = map(Paragraph, [*legend, *conclusions])
        return to_html(*map(Paragraph, about), *self.tables(), *below)

    def texts(self) -> tuple[list[str], list[str], list[str]]:
        """What is said above tables, of them, and below."""
        legend = (*_LEGEND, _SEVERAL) if len(self.comparison.options) > 1 else _LEGEND
        return [self._about()], [" ".join(legend)], self._conclusions()

    def _unsaid(self, said: Collection[str]) -> list[list[str]]:
        return [[text for text in part if text not in said] for part in self.texts()]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        compared = self.comparison
        layout, choice = compared.scenario.layout, compared.choice
        return {
            "epsilon": compared.epsilon,
            "purpose": compared.request.purpose,
            "shown_share": compared.shown_share,
            "n_units": layout.n_units,
            "n_clusters": layout.n_clusters,
            "n_categories": self.space.n_categories,
            "asked": choice.mechanism.asked_share,
            "metrics": list(self.metrics),
            "recommended": compared.chosen,
            "reason": compared.reason,
            "look": None if compared.advice is None else compared.advice._asdict(),
            "assumed": self.assumed,
            "guarantee": choice.mechanism.guarantee(self.space).in_short(),
            "notes": list(self.notes()),
            "budget": budget(choice.mechanism, compared.scenario),
            "losses": self._losses(),
            "clusters": [self._clustering(one) for one in compared.clusterings],
            "visible": {one.name: self._by_metric(one.predictions) for one in self._seen()},
            "options": [self._option(option) for option in compared.options],
        }

    def remarks(self) -> list[str]:
        """What a plan file says above its options."""
        compared = self.comparison
        layout, choice = compared.scenario.layout, compared.choice
        overall = self._errors(choice.overall)
        remarks = [
            f"A plan for {layout.in_words}: {compared.reason}.",
            *self._look_lines(),
            f"Assumed: {self.assumed}.",
            f"Expected standard error of the overall effect: {overall}",
        ]
        segment = choice.segment(compared.shown_share)
        if segment is not None:
            share = f"{100 * compared.shown_share:.3g}%"
            remarks.append(f"and in a segment of {share}: {self._errors(segment)}.")
        return remarks

    def _errors(self, predictions: tuple[Prediction, ...]) -> str:
        """Standard errors in a line, with names where there are several."""
        if len(predictions) == 1:
            return f"{predictions[0].std_error:.4g}"
        named = zip(self.metrics, predictions, strict=True)
        return ", ".join(f"{name} {one.std_error:.4g}" for name, one in named)

    def _by_metric(self, predictions: tuple[Prediction, ...]) -> dict[str, Any]:
        """Predictions as plain values; none in segments where no rows are published."""
        named = zip(self.metrics, predictions, strict=False)
        return {name: one.to_dict() for name, one in named}

    def _option(self, option: MechanismOption) -> dict[str, Any]:
        segment = option.segment(self.comparison.shown_share)
        return {
            "mechanism": option.name,
            "parameters": option.mechanism.parameters(self.space),
            "overall": self._by_metric(option.overall),
            "segment": None if segment is None else self._by_metric(segment),
        }

    def _clustering(self, one: ClusterAlternative) -> dict[str, Any]:
        share = self.comparison.shown_share
        segment = tuple(found for metric in one.precisions if (found := metric.segment(share)))
        return {
            "clusters": one.name,
            "n_clusters": one.n_clusters,
            "overall": self._by_metric(tuple(metric.overall for metric in one.precisions)),
            "segment": self._by_metric(segment) or None,
        }

    def _losses(self) -> dict[str, float]:
        """What the plan loses for each purpose, by its words; nothing lost is 0."""
        layout = self.comparison.scenario.layout
        losses = self.comparison.choice.losses
        return {one.purpose.in_words(layout): one.regret - 1 for one in losses}

    def tables(self) -> list[Table]:
        """What was compared, and what can be seen."""
        seen = self._visible()
        if len(self.metrics) == 1:
            return [Table("", self._one_metric()), *seen]
        chosen = Table(f"{self.comparison.chosen}, metric by metric", self._chosen())
        if len(self.comparison.options) == 1:
            return [chosen, *seen]
        of_all = Table("standard error of the overall effect on", self._mechanisms())
        return [of_all, chosen, *seen]

    def _visible(self) -> list[Table]:
        """What can be seen of each metric, by the recommended mechanism."""
        seen = self._seen()
        return [
            Table(f"what can be seen of {name}", visible_rows(seen, metric))
            for metric, name in enumerate(self.metrics)
        ]

    def _seen(self) -> list[VisibleEffect]:
        """Everyone, groups and segments, and true clusters where clusters are private."""
        layout = self.comparison.scenario.layout
        return [*visible_targets(self.comparison.choice.precisions, layout), *self._true_clusters()]

    def _true_clusters(self) -> list[VisibleEffect]:
        if self.private is None:
            return []
        compared = self.comparison
        return self.private.effects(compared.choice.precisions, compared.scenario.layout)

    def _one_metric(self) -> list[tuple[str, ...]]:
        """One row for each mechanism."""
        compared = self.comparison
        rows = [
            (self._marked(option), *_shown(option.overall[0], self._segments(option)[0]))
            for option in compared.options
        ]
        return [("", *self._header()), *rows]

    def _mechanisms(self) -> list[tuple[str, ...]]:
        """One row for each mechanism, one column for each metric."""
        rows = [
            (self._marked(option), *(f"{one.std_error:.4g}" for one in option.overall))
            for option in self.comparison.options
        ]
        return [("", *self.metrics), *rows]

    def _chosen(self) -> list[tuple[str, ...]]:
        """One row for each metric of the recommended mechanism."""
        choice = self.comparison.choice
        pairs = zip(self.metrics, choice.overall, self._segments(choice), strict=True)
        rows = [(name, *_shown(overall, segment)) for name, overall, segment in pairs]
        return [("", *self._header()), *rows]

    def _segments(self, option: MechanismOption) -> tuple[Prediction | None, ...]:
        """What to expect in a segment, metric by metric; None without rows."""
        found = option.segment(self.comparison.shown_share)
        return (None,) * len(self.metrics) if found is None else found

    def _header(self) -> tuple[str, ...]:
        share = f"{100 * self.comparison.shown_share:.3g}%"
        segment = (f"{share} segment", f"detectable in {share}")
        return ("std error", "sampling", "privacy", "detectable", *segment)

    def _marked(self, option: MechanismOption) -> str:
        return ("* " if option.name == self.comparison.chosen else "") + option.name

    def _about(self) -> str:
        layout = self.comparison.scenario.layout
        categories = ""
        if len(self.metrics) > 1:
            categories = f"; {self.space.n_categories} categories of outcomes"
        epsilon = f"epsilon {self.comparison.epsilon:g}"
        if self.private is not None:
            epsilon += f" for outcomes and {self.private.epsilon:g} for private clusters"
        return (
            f"{layout.in_words}, {counted(len(layout.arms), 'arm')}{categories}; {epsilon}; "
            "no outcome was read"
        )

    def _conclusions(self) -> list[str]:
        compared, choice = self.comparison, self.comparison.choice
        numbers = choice.mechanism.parameters(self.space)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        return [
            f"recommended: {choice.name}" + (f" ({shown})" if shown else ""),
            f"because: {compared.reason}",
            *self._look_lines(),
            *self._budget_lines(),
            *self._cluster_lines(),
            f"assumed: {self.assumed}",
        ]

    def _look_lines(self) -> list[str]:
        """Why a look is recommended, and how to do without."""
        advice = self.comparison.advice
        if advice is None:
            return []
        share = f"{percent(advice.share)} of epsilon (--look {advice.share:g})"
        return [f"With a look, at {share}: {advice.reason}. --look 0 does without."]

    def _budget_lines(self) -> list[str]:
        """Where ε goes, and what each purpose loses."""
        compared = self.comparison
        parts = budget(compared.choice.mechanism, compared.scenario)
        goes = ", ".join(f"{name} {percent(part)}" for name, part in parts.items())
        lines = [f"epsilon{' of outcomes' if self.private else ''} goes to: {goes}"]
        losses = self._losses()
        if losses:
            lost = ", ".join(f"{name} +{percent(loss)}" for name, loss in losses.items())
            lines.append(f"standard errors against a plan for that alone: {lost}")
        return lines

    def _cluster_lines(self) -> list[str]:
        """What other clusters would give, of the first metric."""
        share, lines = self.comparison.shown_share, []
        for one in self.comparison.clusterings:
            first = one.precisions[0]
            said = f"overall {first.overall.std_error:.4g}"
            segment = first.segment(share)
            if segment is not None:
                said += f", {100 * share:.3g}% segments {segment.std_error:.4g}"
            lines.append(f"with {one.name} ({one.n_clusters:,}): {said}")
        return lines

    def notes(self) -> tuple[str, ...]:
        """What the owner should know about the recommended mechanism."""
        choice = self.comparison.choice
        mechanism = choice.mechanism
        return (
            *unseen_notes(self.metrics, choice.overall),
            *self._given_up(),
            *true_cluster_notes(self.metrics, self._true_clusters()),
            *self._unserved(),
            *_look_notes(mechanism, self.space),
            *_gap_notes(mechanism, self.space),
            *disclosure_notes(mechanism, self.space),
        )

    def _unserved(self) -> list[str]:
        """Which breakdowns get nothing of ε, or next to nothing."""
        scenario = self.comparison.scenario
        parts = budget(self.comparison.choice.mechanism, scenario)
        notes = []
        for one in scenario.layout.breakdowns:
            share = parts.get(totals_label(one.columns))
            if share is None or share >= _NEXT_TO_NOTHING:
                continue
            what = (
                "effects in its groups come from rows, as in any segment; --for breakdowns gives "
                "it more"
                if one.compares_arms
                else "rows show better how its groups differ than such totals would"
            )
            by = ", ".join(one.columns)
            notes.append(f"the breakdown by {by} gets {percent(share)} of epsilon: {what}")
        return notes

    def _given_up(self) -> list[str]:
        """What it would gain to give up on segments in which no effect can be seen."""
        compared, choice = self.comparison, self.comparison.choice
        segment = choice.segment(compared.shown_share) or ()
        regrets = {one.purpose.kind: one.regret for one in choice.losses}
        purpose = compared.request.purpose or "segments"
        seen = any(one.is_visible for one in segment) or not choice.overall[0].is_visible
        if seen or not segment or not purpose.startswith("segments") or "overall" not in regrets:
            return []
        name, first = self.metrics[0], choice.overall[0]
        share = f"{100 * compared.shown_share:.3g}%"
        best = first._replace(std_error=first.std_error / regrets["overall"])
        note = (
            f"no effect can be seen in segments of {share}, however large: if you give up on them "
            f"(--for overall), the overall effect on {name} is detectable from "
            f"{best.detectable_effect:.3g} on, and now from {first.detectable_effect:.3g} on"
        )
        return [note]


def _look_notes(mechanism: Mechanism, space: Categories) -> tuple[str, ...]:
    """What predictions leave out where a look is going to clip numbers."""
    numbers = ", ".join(space.declared.numbers)
    if mechanism.look is None or not numbers:
        return ()
    return (
        (
            f"standard errors of {numbers} are of the declared range; the look may narrow it, and "
            "they shrink with it"
        ),
    )


def _gap_notes(mechanism: Mechanism, space: Categories) -> tuple[str, ...]:
    """How far a channel may be from the best there is, if that is more than a percent."""
    if not mechanism.designs_rows or mechanism.find(NoisyCounts) is not None:
        return ()
    rows = mechanism.settled_rows(space)
    gap = rows.design_gap(space) if isinstance(rows, OptimalRows) else 0.0
    if gap <= _NEAR:
        return ()
    far = f"at most {percent(gap)} more noise than" if gap < 1 else "an unknown distance to"
    names = ", ".join(space.declared.names)
    return (f"{names}: {space.n_categories} categories take long; the channel has {far} the best",)


def fitting(texts: list[str], width: int | None) -> list[str]:
    """Texts as lines that fit."""
    return [line for text in texts for line in wrapped(text, width, _INDENT)]


def _shown(overall: Prediction, segment: Prediction | None) -> tuple[str, ...]:
    """The cells of a row."""
    return (
        *(f"{number:.4g}" for number in overall[:3]),
        detectable_in_words(overall),
        "no rows" if segment is None else f"{segment.std_error:.4g}",
        "" if segment is None else detectable_in_words(segment),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanReport:
    """What was compared in every question.

    Attributes:
        request: What was asked for.
        questions: The report of each question.
        notes: What the owner should know about the table, the reference and the questions.
    """

    request: Request
    questions: tuple[QuestionReport, ...]
    notes: tuple[str, ...] = ()

    @property
    def guarantee(self) -> Guarantee:
        """What all questions cost together."""
        return total_guarantee(
            [one.space for one in self.questions], self._mechanisms, self.request.clusters.response
        )

    @property
    def epsilon(self) -> float:
        """The budget of outcomes and private clusters together."""
        every = [one.comparison.epsilon for one in self.questions]
        return (max if self.releases_rows else sum)(every) + self.request.clusters.epsilon

    @property
    def releases_rows(self) -> bool:
        """Whether rows are published, so that each unit is asked one question with all of ε."""
        return self._mechanisms[0].releases_rows

    @property
    def _mechanisms(self) -> list[Mechanism]:
        return [one.comparison.choice.mechanism for one in self.questions]

    def as_text(self, width: int | None) -> str:
        """The report for terminals, in lines that fit; in long ones without a width."""
        parts = [f"{title}\n{one.as_text(width, said)}" for title, one, said in self._titled()]
        below = fitting(self._conclusions(), width)
        return "\n".join(["\n\n".join(parts).lstrip("\n"), *below])

    def as_html(self) -> str:
        """The report for notebooks."""
        parts = [
            to_html(*[Paragraph(title)] if title else []) + one.as_html(said)
            for title, one, said in self._titled()
        ]
        return "".join(parts) + to_html(*map(Paragraph, self._conclusions()))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values: those of one question, or a list of questions."""
        questions = [one.to_dict() for one in self.questions]
        if len(questions) == 1:
            return {**questions[0], **self._of_labels()}
        return {
            "epsilon": self.epsilon,
            "guarantee": self.guarantee.in_short(),
            "notes": list(self.notes),
            "questions": questions,
            **self._of_labels(),
        }

    def _of_labels(self) -> dict[str, Any]:
        """What is said of private clusters; nothing where clusters are public."""
        if self.request.clusters.response is None:
            return {}
        return {
            "epsilon": self.epsilon,
            "label_epsilon": self.request.clusters.epsilon,
            "guarantee": self.guarantee.in_short(),
            "notes": self.every_note(),
        }

    def remarks(self) -> list[str]:
        """What a plan file says above its options."""
        return [
            remark
            for title, one, _ in self._titled()
            for remark in ([title] if title else []) + one.remarks()
        ]

    def every_note(self) -> list[str]:
        """What the owner should know, each once."""
        of_questions = (note for one in self.questions for note in one.notes())
        return list(dict.fromkeys((*self.notes, *of_questions)))

    def _titled(self) -> Iterator[tuple[str, QuestionReport, set[str]]]:
        """Each question with a title, which one alone does not need, and what was said before."""
        said: set[str] = set()
        for place, one in enumerate(self.questions, start=1):
            names = ", ".join(one.space.declared.names)
            title = f"question {place}: {names}{one.asked_in_words}"
            yield title if len(self.questions) > 1 else "", one, set(said)
            said.update(*one.texts())

    def _conclusions(self) -> list[str]:
        notes = [f"note: {note}" for note in self.every_note()]
        return [f"guarantee: {self.guarantee.in_short()}", *notes]
