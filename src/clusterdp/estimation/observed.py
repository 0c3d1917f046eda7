"""Effects on outcomes that may be missing: of those observed, and what attrition may do to them.

A metric of such an outcome is measured as R·f, R whether it was observed. Its mean among those
observed is the ratio E[R·f]/E[R] of each arm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.estimation.attrition import attrition_bounds
from clusterdp.estimation.measured import CategoryFunction
from clusterdp.estimation.notes import Note, Weight
from clusterdp.estimation.possible import MetricRange
from clusterdp.estimation.ratio import RatioRows
from clusterdp.experiment.expressions import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clusterdp.estimation.asked import Source
    from clusterdp.estimation.metric_effects import Found
    from clusterdp.estimation.results import Effect
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.experiment.expressions import Metric

# The level of the test that arms have the same share observed.
_LEVEL = 0.01


class AskedOfObserved(NamedTuple):
    """The mean of a metric among those with an outcome observed.

    Attributes:
        name: The name of the metric.
        above: The metric, 0 where the outcome is missing.
        below: Whether it was observed.
        outcome: The place of the outcome, if the metric is the outcome itself.
    """

    name: str
    above: CategoryFunction
    below: CategoryFunction
    outcome: int | None

    @classmethod
    def of(cls, metric: Metric, function: CategoryFunction, space: Categories) -> AskedOfObserved:
        """A metric of an outcome that may be missing.

        Args:
            metric: The metric.
            function: The same as a function of the category.
            space: The categories.

        Raises:
            ParameterError: If it uses several such outcomes.
        """
        declared = space.declared
        declared.check_missing(metric)
        (name,) = metric.valued & set(declared.missing)
        place = len(declared.outcomes) + declared.missing.index(name)
        below = CategoryFunction.declared(name + OBSERVED, space, place)
        if metric != declared.metrics[declared.names.index(name)]:
            return cls(str(metric), function, below, None)
        # R·y is R·(y − middle) and middle·R.
        outcome = declared.names.index(name)
        above = function.minus(-declared.outcomes[outcome].middle, below)
        return cls(str(metric), above, below, outcome)

    def estimate(self, source: Source) -> Found:
        """Effects on the mean, with bounds for attrition of an outcome itself."""
        ratio = RatioRows.of(self.above, self.below, source, name=self.name)
        found = ratio.estimate()
        found.notes.extend(source.notes_on(self.name))
        found.shares.extend([self.name] * self.above.is_share(source.block.space))
        values = self.above.values[self.below.values > 0]
        found.ranges.append(MetricRange.of(self.name, values))
        if self.outcome is not None:
            parts = source.block, source.rows, source.wanted
            found.bounds.extend(attrition_bounds(ratio, *parts, self.outcome))
        return found


def missing_notes(declared: DeclaredOutcomes) -> list[str]:
    """What effects on outcomes that may be missing are of."""
    return [f"{name}, of those observed" for name in declared.missing]


def tells_attrition(declared: DeclaredOutcomes, effects: Iterable[Effect]) -> bool:
    """Whether effects on who is observed are among these effects."""
    shares = {name + OBSERVED for name in declared.missing}
    return any(one.of.metric in shares for one in effects)


def attrition_notes(declared: DeclaredOutcomes, effects: Iterable[Effect]) -> list[Note]:
    """Warnings where the share observed differs between arms, overall.

    Args:
        declared: The declared outcomes.
        effects: All effects.
    """
    shares = {name + OBSERVED: name for name in declared.missing}
    return [
        Note(
            f"attrition: {one.of.metric} differs between {one.of.arm} and {one.of.control} (p = "
            f"{one.p_value:.2g}), so the effect on {shares[one.of.metric]} of those observed may "
            "be due to who is observed; its bounds allow for that",
            Weight.WARNING,
        )
        for one in effects
        if one.of.metric in shares and one.of.label == "overall" and one.p_value < _LEVEL
    ]
