"""A plan as a page for a meeting: what can be detected against ε, with a slider over ε.

Everything on it is public or predicted from public numbers: no outcome was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp._text import percent, shortest_decimal
from clusterdp.document.charts import Axis, ChartLine, line_chart, mark_places, sure_chart
from clusterdp.document.markup import render
from clusterdp.document.scales import Logarithmic
from clusterdp.planning.alternatives import other_budgets, round_budgets, targets
from clusterdp.precision.visible import share_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markupsafe import Markup

    from clusterdp._progress import Progress
    from clusterdp.cells.layout import Layout
    from clusterdp.document.charts import Mark
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.alternatives import Budgets
    from clusterdp.planning.report import PlanReport, QuestionReport
    from clusterdp.spec.purpose import Purpose


# Lines that can be distinguished in a drawing.
_MOST_LINES = 4


class DetectablePanel:
    """What can be detected of one metric.

    Args:
        one: The report of its question.
        at: The place of the question, and that of the metric in it.
        budgets: The plan at some budgets.
        chosen: Which of them is the plan's.
        units: What units are called.

    Attributes:
        metric: The metric.
        expected: What its mean is expected to be.
        asked: The share of units that it is asked of; empty where all are.
        targets: Which units effects cover: a key, and words.
        epsilons: The budgets.
        predictions: What to expect at every budget of every target.
    """

    def __init__(
        self, one: QuestionReport, at: tuple[int, int], budgets: Budgets, chosen: int, units: str
    ) -> None:
        question, metric = at
        wanted, layout = targets(one.comparison), one.layout
        self.metric, self.asked, self.chosen = one.metrics[metric], one.asked, chosen
        self.expected = self.metric.level(one.comparison.scenario.moments()[metric][0])
        self.targets = [
            (f"change-{question}-{metric}-{place}", _in_words(target, layout, units))
            for place, target in enumerate(wanted)
        ]
        self.epsilons = tuple(budgets)
        found = [options[question].precisions[metric] for options in budgets.values()]
        self.predictions = [
            [precision.least_certain(each, layout) for each in wanted] for precision in found
        ]

    @property
    def drawing(self) -> Markup:
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
            marked=(self.chosen, {key: texts[key] for key in keys}),
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
            f"{one.detectable_effect / one.detectable_without_privacy:.1f} "
            f"{'among' if key.endswith('-0') else 'in'} {_as_group(words)}"
            for (key, words), one in zip(self.targets, now, strict=True)
            if words in drawn and one.detectable_without_privacy
        ]
        left_out = [words for _, words in self.targets if words not in drawn]
        return (
            f"At the planned ε, privacy costs a factor of {', and of '.join(costs)}. "
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


def _in_words(target: Purpose, layout: Layout, units: str) -> str:
    if target.kind == "breakdowns":
        return f"{', '.join(layout.breakdowns[target.place].columns)} groups"
    return f"all {units}" if target.kind == "overall" else share_name(target.share)


def _sentence(note: str, names: Sequence[str]) -> str:
    """A note of a terminal as a sentence of a page; the name of a column stays as it is."""
    begins = note if note.split(maxsplit=1)[0] in names else note[:1].upper() + note[1:]
    return begins if begins.endswith(".") else f"{begins}."


def _as_group(words: str) -> str:
    """`a 10% segment`, `all users`, `tier groups`."""
    return f"a {words}" if words.endswith("segment") else words


def plan_page(
    report: PlanReport,
    epsilon: float,
    progress: Progress,
    *,
    plan_at: Callable[[float], str],
    release: str,
) -> str:
    """The page of a plan; see `plan_values`."""
    given = plan_values(report, epsilon, progress, plan_at=plan_at, release=release)
    return render("clusterdp.planning", "plan.html", is_page=True, **given)


def plan_values(
    report: PlanReport,
    epsilon: float,
    progress: Progress,
    *,
    plan_at: Callable[[float], str],
    release: str,
) -> dict[str, Any]:
    """What the page of a plan shows, at every ε of its slider.

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
    chosen = list(budgets).index(epsilon)
    panels = [
        DetectablePanel(one, (question, metric), budgets, chosen, report.units)
        for question, one in enumerate(report.questions)
        for metric in range(len(one.metrics))
    ]
    every = [(at, [one.mechanism for one in options]) for at, options in budgets.items()]
    spent = [report.spent(mechanisms, at) for at, mechanisms in every]
    stops = [
        {
            "texts": {
                **_texts(report, at, mechanisms),
                "command": plan_at(at),
                **{f"{key}-share": percent(part) for key, _, part in spent[place]},
                **{key: text for panel in panels for key, text in panel.texts(place).items()},
            },
            "shares": {key: round(100 * part, 2) for key, _, part in spent[place]},
            "marks": [panel.marks[place] for panel in panels],
        }
        for place, (at, mechanisms) in enumerate(every)
    ]
    stated = report.guarantee.statement(report.unit)
    columns = [*report.request.declared.names, str(report.request.options.cluster)]
    return {
        "n_units": f"{report.layout.n_units:,}",
        "now": stops[chosen]["texts"],
        "stops": stops,
        "chosen": chosen,
        "panels": panels,
        "as_group": _as_group,
        "parts": list({key: words for one in spent for key, words, _ in one}.items()),
        "stated": stated,
        "sure": sure_chart(stated.at_most or "100%"),
        "report": report,
        "notes": [_sentence(note, columns) for note in report.every_note()],
        "release": release,
        "unknown": [
            name
            for one in report.questions
            if not one.comparison.scenario.baseline.is_declared
            for name in one.space.declared.names
        ],
    }


def _texts(report: PlanReport, epsilon: float, mechanisms: Sequence[Mechanism]) -> dict[str, str]:
    """What is said at a budget of all metrics, by key."""
    stated = report.cost(mechanisms).statement(report.unit)
    return {
        "epsilon": shortest_decimal(epsilon),
        "privacy": stated.plain,
        "sure": stated.at_most or "100%",
    }
