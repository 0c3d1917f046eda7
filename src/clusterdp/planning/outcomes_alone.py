"""The same categories with fewer metrics: what outcomes would cost without further metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp.planning.quick import expect_quickly

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.categories import Categories
    from clusterdp.experiment.category_space import MetricLattice, OfObserved
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario
    from clusterdp.precision.prediction import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomesAlone:
    """Categories in which the outcomes are measured and nothing else. It is a `CategorySpace`.

    Grids and implications stay as they are, so that only the objective differs.

    Attributes:
        categories: The categories with all their metrics.
    """

    categories: Categories

    @property
    def n_metrics(self) -> int:
        """How many metrics are left: of outcomes, and of whether they were observed."""
        declared = self.categories.declared
        return len(declared.outcomes) + len(declared.missing)

    @property
    def n_categories(self) -> int:
        """K, the number of categories."""
        return self.categories.n_categories

    def metric_values(self) -> FloatArray:
        """The outcomes of categories; axes `[metric, category]`."""
        return self.categories.metric_values()[: self.n_metrics]

    def metric_lattice(self) -> MetricLattice:
        """The same as integers."""
        return self.categories.metric_lattice().first(self.n_metrics)

    def metric_weights(self, prior: FloatArray | None) -> FloatArray:
        """The weights that outcomes have anyway; axes `[metric]`."""
        return self.categories.metric_weights(prior)[: self.n_metrics]

    def of_observed(self) -> dict[int, OfObserved]:
        """The outcomes that are of those observed, by their places."""
        every = self.categories.of_observed().items()
        return {place: one for place, one in every if place < self.n_metrics}


def predict_outcomes_alone(
    mechanism: Mechanism, scenario: Scenario, categories: Categories
) -> tuple[Prediction, ...]:
    """What the same mechanism does for each outcome's overall effect without further metrics.

    Args:
        mechanism: The mechanism, with its split.
        scenario: What is known.
        categories: The categories of the scenario.
    """
    alone = OutcomesAlone(categories=categories)
    precisions = expect_quickly(mechanism, scenario._replace(space=alone))
    return tuple(one.overall for one in precisions)
