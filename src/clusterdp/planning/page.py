"""A plan as a page for a meeting: what can be detected against ε, with a slider over ε.

Everything on it is public or predicted from public numbers: no outcome was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp._text import counted, percent, shortest_decimal
from clusterdp.document.charts import Axis, ChartLine, Marked, line_chart, mark_places, sure_chart
from clusterdp.document.markup import render
from clusterdp.document.scales import Logarithmic
from clusterdp.mechanisms.draw import Question
from clusterdp.planning.alternatives import other_budgets, round_budgets, targets
from clusterdp.precision.visible import share_name
from clusterdp.spec.terms import total_guarantee

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._progress import Progress
    from clusterdp.cells.layout import Layout
    from clusterdp.document._svg import Svg
    from clusterdp.document.charts import Mark
    from clusterdp.planning.alternatives import BudgetPoint
    from clusterdp.planning.report import PlanReport, QuestionReport
    from clusterdp.precision.prediction import Prediction
    from clusterdp.precision.visible import ShownMetric
    from clusterdp.spec.purpose import Purpose


# Lines that can be distinguished in a drawing.
_MOST_LINES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DetectablePanel:
    """What can be detected of one metric.

    Attributes:
        metric: The metric.
        expected: What its mean is expected to be.
        asked: The share of units that it is asked of; empty where all are.
        targets: What effects are of: a key, and words.
        epsilons: The budgets.
        chosen: Which of them is the plan's.
        predictions: What to expect at every budget of every target.
    """

    metric: ShownMetric
    expected: str
    asked: str
    targets: tuple[tuple[str, str], ...]
    epsilons: tuple[float, ...]
    chosen: int
    predictions: tuple[tuple[Prediction, ...], ...]

    @classmethod
    def of(
        cls, one: QuestionReport, at: tuple[int, int], budgets: Sequence[BudgetPoint], chosen: int
    ) -> DetectablePanel:
        """The panel of a metric, by the place of its question and its own."""
        question, metric = at
        wanted, layout = targets(one.comparison), one.layout
        mean, _ = one.comparison.scenario.moments()[metric]
        found = [budget.options[question].precisions[metric] for budget in budgets]
        return cls(
            metric=one.metrics[metric],
            expected=one.metrics[metric].level(mean),
            asked=one.asked,
            targets=tuple(
                (f"change-{question}-{metric}-{place}", _in_words(target, layout))
                for place, target in enumerate(wanted)
            ),
            epsilons=tuple(budget.epsilon for budget in budgets),
            chosen=chosen,
            predictions=tuple(
                tuple(precision.least_certain(target, layout) for target in wanted)
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
            title=f"Minimum detectable effect on {self.metric.name} against ε",
            description=(
                "The larger ε is, the nearer the lines come to those without privacy. The table "
                "below has the numbers."
            ),
            gap="cost of privacy",
            marked=Marked(self.chosen, keys, [texts[key] for key in keys]),
        )

    @property
    def marks(self) -> list[Mark]:
        """Where the mark stands at each budget."""
        return mark_places(self._lines, *self._axes)

    @property
    def caption(self) -> str:
        """The finding, and how to read the drawing."""
        now, drawn = self.predictions[self.chosen], {line.name for line in self._lines}
        costs = [
            f"{words} {one.detectable_effect / one.detectable_without_privacy:.1f}"
            for (_, words), one in zip(self.targets, now, strict=True)
            if words in drawn and one.detectable_without_privacy
        ]
        left_out = [words for _, words in self.targets if words not in drawn]
        return (
            f"Privacy multiplies the MDE at the planned ε: {', '.join(costs)}. "
            "Thick lines: with privacy; thin lines: without. Log scales."
        ) + (f" In the table only: {', '.join(left_out)}." if left_out else "")

    def texts(self, place: int) -> dict[str, str]:
        """The numbers at a budget, by key."""
        found = {}
        for (key, _), one in zip(self.targets, self.predictions[place], strict=True):
            found[key] = self.metric.detectable(one)
            found[f"{key}-limit"] = self.metric.detectable_without_privacy(one)
        return found

    def _drawn(self, effect: float, largest: float) -> float:
        """An effect in a drawing, which has none that is larger than possible."""
        return min(effect, largest) * (100 if self.metric.is_share else 1)

    @property
    def _lines(self) -> list[ChartLine]:
        """All units, the segment, and between them the breakdowns that are least precise."""
        lines = []
        for place, (_, words) in enumerate(self.targets):
            found = [one[place] for one in self.predictions]
            ys = [self._drawn(one.detectable_effect, one.largest_effect) for one in found]
            now = found[self.chosen]
            limit = self._drawn(now.detectable_without_privacy, now.largest_effect)
            lines.append(ChartLine(words, self.epsilons, ys, [limit] * len(ys)))
        between = sorted(lines[1:-1], key=lambda line: -line.ys[self.chosen])
        return [*lines[:1], *between[: _MOST_LINES - 2], *lines[1:][-1:]]

    @property
    def _axes(self) -> tuple[Axis, Axis]:
        every = [value for line in self._lines for value in (*line.ys, *line.limits)]
        title = "MDE" + (", percentage points" if self.metric.is_share else "")
        low, high = min(self.epsilons), max(self.epsilons)
        x = Logarithmic(low, high) if low < high else Logarithmic.over(self.epsilons)
        return Axis("ε of the whole release", x), Axis(title, Logarithmic.over(every), _tick)


def _tick(number: float) -> str:
    """A number at an axis, which has room for seven letters."""
    if number >= 1e6:
        return f"{number / 1e6:,g}M"
    return f"{number:,.0f}" if number >= 1 else f"{number:g}"


def _in_words(target: Purpose, layout: Layout) -> str:
    if target.kind == "breakdowns":
        return f"{', '.join(layout.breakdowns[target.place].columns)} groups"
    return "all units" if target.kind == "overall" else share_name(target.share)


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
        release: The command that publishes the plan.
    """
    comparisons = [one.comparison for one in report.questions]
    on_done = progress.stage("other budgets", len(round_budgets(epsilon)))
    budgets = other_budgets(comparisons, epsilon, on_done, fixed=report.request.clusters.epsilon)
    chosen = next(place for place, one in enumerate(budgets) if one.epsilon == epsilon)
    panels = [
        DetectablePanel.of(one, (question, metric), budgets, chosen)
        for question, one in enumerate(report.questions)
        for metric in range(len(one.metrics))
    ]
    spent = [report.spent([one.mechanism for one in at.options], at.epsilon) for at in budgets]
    stops = [
        {
            "texts": {
                **_texts(report, one),
                "command": plan_at(one.epsilon),
                **{f"{key}-share": percent(part) for key, _, part in spent[place]},
                **{key: text for panel in panels for key, text in panel.texts(place).items()},
            },
            "shares": {key: round(100 * part, 2) for key, _, part in spent[place]},
            "marks": [panel.marks[place] for panel in panels],
        }
        for place, one in enumerate(budgets)
    ]
    layout, stated = report.layout, report.guarantee.statement()
    return render(
        "clusterdp.planning",
        "plan.html",
        design=f"{layout.in_words}, {counted(len(layout.arms), 'arm')}",
        n_units=f"{layout.n_units:,}",
        now=stops[chosen]["texts"],
        stops=stops,
        chosen=chosen,
        panels=panels,
        parts=list({key: words for one in spent for key, words, _ in one}.items()),
        stated=stated,
        sure=sure_chart(stated.at_most or "100%"),
        report=report,
        release=release,
        unknown=[
            name
            for one in report.questions
            if not one.comparison.scenario.baseline.is_declared
            for name in one.space.declared.names
        ],
    )


def _texts(report: PlanReport, at: BudgetPoint) -> dict[str, str]:
    """What is said at a budget of all metrics, by key."""
    pairs = zip(report.questions, at.options, strict=True)
    stated = total_guarantee(
        [Question(space=one.space, mechanism=option.mechanism) for one, option in pairs],
        report.request.clusters.response,
    ).statement()
    return {
        "epsilon": shortest_decimal(at.epsilon),
        "privacy": stated.plain,
        "sure": stated.at_most or "100%",
    }
