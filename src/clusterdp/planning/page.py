"""A plan as a page for a meeting: what can be detected against ε, with a slider over ε.

Everything on it is public or predicted from public numbers: no outcome was read.

What can be detected of one metric against ε: a drawing, and the numbers at each ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clusterdp._text import counted, percent, shortest_decimal
from clusterdp.document.charts import Axis, ChartLine, Marked, line_chart, mark_places
from clusterdp.document.markup import render
from clusterdp.document.scales import Logarithmic
from clusterdp.planning.alternatives import least_certain, other_budgets, round_budgets, targets
from clusterdp.planning.compare import budget
from clusterdp.precision.prediction import UNSEEN
from clusterdp.spec.terms import total_guarantee

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._progress import Progress
    from clusterdp.cells.layout import Layout
    from clusterdp.document._svg import Svg
    from clusterdp.document.charts import Mark
    from clusterdp.planning.alternatives import BudgetPoint
    from clusterdp.planning.compare import MechanismComparison
    from clusterdp.planning.expected import Scenario
    from clusterdp.planning.report import PlanReport, QuestionReport
    from clusterdp.precision.prediction import Prediction
    from clusterdp.spec.purpose import Purpose


# Lines that can be told apart in a drawing.
_MOST_LINES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DetectablePanel:
    """What can be detected of one metric.

    Attributes:
        name: The metric.
        is_share: Whether its mean is a share, so that a change is in percentage points.
        expected: What its mean is expected to be.
        asked: The share of units that it is asked of; empty where all are.
        targets: What effects are of: a key, and words.
        epsilons: The budgets.
        chosen: Which of them is the plan's.
        predictions: What to expect at every budget of every target.
    """

    name: str
    is_share: bool
    expected: str
    asked: str
    targets: tuple[tuple[str, str], ...]
    epsilons: tuple[float, ...]
    chosen: int
    predictions: tuple[tuple[Prediction, ...], ...]

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - which metric, and what is known of it
        cls,
        comparison: MechanismComparison,
        question: int,
        metric: int,
        name: str,
        budgets: Sequence[BudgetPoint],
        chosen: int,
    ) -> DetectablePanel:
        """The panel of a metric, by its place and its question's."""
        scenario = comparison.scenario
        wanted, is_share = targets(comparison), _is_share(scenario, metric)
        mean, _ = scenario.moments()[metric]
        share = comparison.choice.mechanism.asked_share
        found = [one.options[question].precisions[metric] for one in budgets]
        return cls(
            name=name,
            is_share=is_share,
            expected=f"{100 * mean:.3g}%" if is_share else f"{mean:.4g}",
            asked=percent(share) if share < 1 else "",
            targets=tuple(
                (f"change-{question}-{metric}-{place}", _in_words(one, scenario.layout))
                for place, one in enumerate(wanted)
            ),
            epsilons=tuple(one.epsilon for one in budgets),
            chosen=chosen,
            predictions=tuple(
                tuple(least_certain(precision, one, scenario.layout) for one in wanted)
                for precision in found
            ),
        )

    @property
    def drawing(self) -> Svg:
        """What can be detected against ε, with the plan's budget marked."""
        lines, (x, y) = self._lines, self._axes
        named, texts = {words: key for key, words in self.targets}, self.texts(self.chosen)
        keys = [named[line.name] for line in lines]
        return line_chart(
            lines,
            x,
            y,
            title=f"Smallest detectable change of {self.name} against ε",
            description=(
                "The larger ε is, the nearer the lines come to those without privacy. The table "
                "below has the numbers."
            ),
            limits="thin: the same without privacy",
            marked=Marked(self.chosen, keys, [texts[key] for key in keys]),
        )

    @property
    def marks(self) -> list[Mark]:
        """Where the mark stands at each budget."""
        return mark_places(self._lines, *self._axes)

    @property
    def left_out(self) -> list[str]:
        """What is in the table and not in the drawing."""
        drawn = {line.name for line in self._lines}
        return [words for _, words in self.targets if words not in drawn]

    def texts(self, place: int) -> dict[str, str]:
        """The numbers at a budget, by key."""
        found = {}
        for (key, _), one in zip(self.targets, self.predictions[place], strict=True):
            detectable, limit = one.detectable_effect, one.detectable_without_privacy
            found[key] = self._written(detectable) if one.is_visible else UNSEEN
            seen = one.is_visible_without_privacy
            found[f"{key}-limit"] = self._written(limit) if seen else UNSEEN
            found[f"{key}-times"] = two_digits(detectable / limit) if limit else "∞"
        return found

    def _written(self, effect: float) -> str:
        return two_digits(100 * effect if self.is_share else effect)

    def _drawn(self, effect: float, largest: float) -> float:
        """An effect in a drawing, which has none that is larger than possible."""
        return min(effect, largest) * (100 if self.is_share else 1)

    @property
    def _lines(self) -> list[ChartLine]:
        """Everyone, the segment, and between them the breakdowns that are least certain."""
        lines = []
        for place, (_, words) in enumerate(self.targets):
            found = [one[place] for one in self.predictions]
            ys = [self._drawn(one.detectable_effect, one.largest_effect) for one in found]
            now = found[self.chosen]
            limit = self._drawn(now.detectable_without_privacy, now.largest_effect)
            lines.append(ChartLine(words, self.epsilons, ys, limit))
        between = sorted(lines[1:-1], key=lambda line: -line.ys[self.chosen])
        return [*lines[:1], *between[: _MOST_LINES - 2], *lines[1:][-1:]]

    @property
    def _axes(self) -> tuple[Axis, Axis]:
        every = [value for line in self._lines for value in (*line.ys, line.limit)]
        title = "detectable change" + (", percentage points" if self.is_share else "")
        low, high = min(self.epsilons), max(self.epsilons)
        x = Logarithmic(low, high) if low < high else Logarithmic.over(self.epsilons)
        return Axis("ε of the whole release", x), Axis(title, Logarithmic.over(every), _tick)


def two_digits(number: float) -> str:
    """A number in two digits, written out: `1.0`, `0.036`, `170,000`."""
    rounded = float(f"{number:.2g}")
    if not rounded:
        return "0"
    decimals = max(0, 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def _tick(number: float) -> str:
    """A number at an axis, which has room for seven letters."""
    if number >= 1e6:
        return f"{number / 1e6:,g}M"
    return f"{number:,.0f}" if number >= 1 else f"{number:g}"


def _is_share(scenario: Scenario, metric: int) -> bool:
    values = set(scenario.space.metric_values()[metric].tolist())
    return values <= {0.0, 1.0} and not scenario.space.metric_lattice().is_number[metric]


def _in_words(target: Purpose, layout: Layout) -> str:
    if target.kind == "breakdowns":
        columns = ", ".join(layout.breakdowns[target.place].columns)
        return f"the least certain group of {columns}"
    return "everyone" if target.kind == "overall" else f"a segment of {100 * target.share:.3g}%"


# What ε is spent on, for people who do not know the mechanism.
_SPENT_ON = {
    "rows": "every person’s row, from which an analyst can cut any segment later",
    "totals": "totals of each arm, for the overall effect",
    "sums": "totals of each cluster, for effects across clusters",
    "counts": "counts of outcomes, which the noise in rows is fitted to",
    "contrasts": "the difference between arms in each cluster, and nothing else",
    "look": "a first look at everyone, which finds where outcomes lie",
    "labels": "the noisy label of every person’s cluster",
}
# The key of what private clusters take, which is of no question.
_LABELS = "0-labels"


def plan_page(
    report: PlanReport,
    epsilon: float,
    progress: Progress,
    *,
    plan_at: Callable[[float], str],
    release: str,
) -> str:
    """The page of a plan.

    Args:
        report: What was compared.
        epsilon: The budget of the plan.
        progress: Where the predictions at other budgets report to.
        plan_at: The command that plans the same at some ε.
        release: The command that carries the plan out.
    """
    comparisons = [one.comparison for one in report.questions]
    on_done = progress.stage("other budgets", len(round_budgets(epsilon)))
    budgets = other_budgets(comparisons, epsilon, on_done, fixed=report.request.clusters.epsilon)
    chosen = next(place for place, one in enumerate(budgets) if one.epsilon == epsilon)
    panels = [
        DetectablePanel.of(one.comparison, question, metric, name, budgets, chosen)
        for question, one in enumerate(report.questions)
        for metric, name in enumerate(one.metrics)
    ]
    parts = _parts(report, budgets)
    stops = [
        {
            "texts": {
                **_texts(report, one, parts),
                "command": plan_at(one.epsilon),
                **{key: text for panel in panels for key, text in panel.texts(place).items()},
            },
            "shares": {key: round(100 * part, 2) for key, part in _spent(report, one).items()},
            "marks": [panel.marks[place] for panel in panels],
        }
        for place, one in enumerate(budgets)
    ]
    return render(
        "clusterdp.planning",
        "plan.html",
        about=_about(report),
        now=stops[chosen]["texts"],
        shares=stops[chosen]["shares"],
        stops=stops,
        chosen=chosen,
        panels=panels,
        parts=parts,
        questions=[_question(report, one) for one in report.questions],
        release=release,
        unknown=[
            name
            for one in report.questions
            if not one.comparison.scenario.reference.is_declared
            for name in one.space.declared.names
        ],
        notes=report.every_note(),
    )


def _texts(report: PlanReport, at: BudgetPoint, parts: list[tuple[str, str]]) -> dict[str, str]:
    """What is said at a budget of all metrics, by key."""
    spaces = [one.space for one in report.questions]
    guarantee = total_guarantee(
        spaces, [one.mechanism for one in at.options], report.request.clusters.response
    )
    spent = _spent(report, at)
    return {
        "epsilon": shortest_decimal(at.epsilon),
        "suspicion": guarantee.in_odds(),
        **{f"{key}-share": percent(spent.get(key, 0.0)) for key, _ in parts},
    }


def _spent(report: PlanReport, at: BudgetPoint) -> dict[str, float]:
    """The share of ε that each part takes, by key."""
    whole, found = at.epsilon, {}
    if report.request.clusters.epsilon:
        found[_LABELS] = report.request.clusters.epsilon
    left = whole - report.request.clusters.epsilon
    every = list(zip(report.questions, at.options, strict=True))
    spent = [budget(option.mechanism, one.comparison.scenario) for one, option in every]
    # A unit is asked one question, with all of ε; without rows it is in all of them.
    places = list(range(len(every)))
    if report.releases_rows:
        places = [max(places, key=lambda place: len(spent[place]))]
    planned = sum(every[place][0].comparison.epsilon for place in places)
    for place in places:
        own = left * every[place][0].comparison.epsilon / planned
        found |= {f"{place}-{label}": own * part for label, part in spent[place].items()}
    return {key: part / whole for key, part in found.items()}


def _parts(report: PlanReport, budgets: Sequence[BudgetPoint]) -> list[tuple[str, str]]:
    """Every part that ε goes to at some budget: its key, and what it is."""
    keys = dict.fromkeys(key for one in budgets for key in _spent(report, one))
    found = []
    for key in sorted(keys, key=lambda one: int(one.partition("-")[0])):
        question, _, label = key.partition("-")
        kind, _, columns = label.partition(" by ")
        words = _SPENT_ON.get(kind, kind)
        if columns:
            words = f"totals by {columns}, for effects in its groups"
        names = ", ".join(report.questions[int(question)].space.declared.names)
        alone = len(report.questions) == 1 or report.releases_rows or key == _LABELS
        found.append((key, words if alone else f"{names}: {words}"))
    return found


def _about(report: PlanReport) -> str:
    layout = report.questions[0].comparison.scenario.layout
    arms = ", ".join(str(layout.arms[one]) for one in layout.treatments)
    return (
        f"{layout.in_words}, {counted(len(layout.arms), 'arm')}: {arms}, compared with "
        f"{layout.arms[layout.control]}"
    )


def _question(report: PlanReport, one: QuestionReport) -> dict[str, Any]:
    """What is below the first screen about a question."""
    compared = one.comparison
    content = one.to_dict()
    return {
        "title": ", ".join(one.space.declared.names) if len(report.questions) > 1 else "",
        "asked": one.asked_in_words,
        "assumed": content["assumed"],
        "recommended": content["recommended"],
        "reason": content["reason"],
        "look": content["look"],
        "losses": [(name, f"+{percent(loss)}") for name, loss in content["losses"].items()],
        "tables": one.tables(),
        "clusters": [
            (
                f"{found['clusters']} ({found['n_clusters']:,})",
                f"{found['overall'][one.metrics[0]]['std_error']:.4g}",
                f"{found['segment'][one.metrics[0]]['std_error']:.4g}" if found["segment"] else "",
            )
            for found in content["clusters"]
        ],
        "first": one.metrics[0],
        "segment": f"segment of {100 * compared.shown_share:.3g}%",
    }
