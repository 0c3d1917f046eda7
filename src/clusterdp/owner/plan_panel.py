"""What can be detected of one metric against ε: a drawing, and the numbers at each ε."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp.pages.chart import Axis, Line, Marked, line_chart, mark_places
from clusterdp.pages.scales import Logarithmic
from clusterdp.planning.other_budgets import least_certain, targets
from clusterdp.precision.prediction import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.experiment.layout import Layout
    from clusterdp.pages.chart import Mark
    from clusterdp.pages.svg import Svg
    from clusterdp.planning.assumptions import Scenario
    from clusterdp.planning.other_budgets import Budget
    from clusterdp.planning.plan import Comparison
    from clusterdp.planning.purpose import Purpose
    from clusterdp.precision.prediction import Prediction

# Lines that can be told apart in a drawing.
_MOST_LINES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
    """What can be detected of one metric.

    Attributes:
        name: The metric.
        is_share: Whether its mean is a share, so that a change is in percentage points.
        expected: What its mean is expected to be.
        targets: What effects are of: a key, and words.
        epsilons: The budgets.
        chosen: Which of them is the plan's.
        predictions: What to expect at every budget of every target.
    """

    name: str
    is_share: bool
    expected: str
    targets: tuple[tuple[str, str], ...]
    epsilons: tuple[float, ...]
    chosen: int
    predictions: tuple[tuple[Prediction, ...], ...]

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - which metric, and what is known of it
        cls,
        comparison: Comparison,
        block: int,
        metric: int,
        name: str,
        budgets: Sequence[Budget],
        chosen: int,
    ) -> Panel:
        """The panel of a metric, by its place and its block's."""
        scenario = comparison.scenario
        wanted, is_share = targets(comparison), _is_share(scenario, metric)
        mean, _ = scenario.moments()[metric]
        found = [one.options[block].precisions[metric] for one in budgets]
        return cls(
            name=name,
            is_share=is_share,
            expected=f"{100 * mean:.3g}%" if is_share else f"{mean:.4g}",
            targets=tuple(
                (f"change-{block}-{metric}-{place}", _in_words(one, scenario.layout))
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
    def _lines(self) -> list[Line]:
        """Everyone, the segment, and between them the breakdowns that are least certain."""
        lines = []
        for place, (_, words) in enumerate(self.targets):
            found = [one[place] for one in self.predictions]
            ys = [self._drawn(one.detectable_effect, one.largest_effect) for one in found]
            now = found[self.chosen]
            limit = self._drawn(now.detectable_without_privacy, now.largest_effect)
            lines.append(Line(words, self.epsilons, ys, limit))
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
