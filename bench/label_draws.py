"""Experiments with private clusters for `bench/label_coverage.py`, drawn and released as counts.

Units are of four true clusters, each with outcomes and an effect of its own. Labels, arms, outcomes
and noise are drawn anew in every replicate, and effects are those that `estimate` would find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.cells.layout import Layout
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.metrics.base import QuestionRows
from clusterdp.estimation.metrics.mean import mean_effects
from clusterdp.estimation.reading.clusters import ClusterInversion
from clusterdp.estimation.reading.profiles import Profiles, ResponseCounts
from clusterdp.estimation.reading.request import EstimateRequest
from clusterdp.estimation.reading.segments import RowCounts
from clusterdp.mechanisms.draw import Question, release_cells
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.mechanisms.mechanism import Mechanism

COLUMN = "region"
LABELS = ("north", "south", "east", "west")
SPACE = Categories(declared=declare({"spend": "0..3"}))
_VALUES = np.arange(4.0)
_SHARES = np.array([0.4, 0.3, 0.2, 0.1])
# Outcomes of control, by true cluster; those of the treatment are moved up.
_CONTROL = np.array(
    [[0.7, 0.2, 0.07, 0.03], [0.5, 0.25, 0.15, 0.1], [0.3, 0.3, 0.2, 0.2], [0.1, 0.2, 0.3, 0.4]]
)
_MOVED = np.array([0.3, 0.15, 0.0, 0.2])
# Probabilities of treatment by true cluster: alike, and not.
PROBS = {"equal": (0.5, 0.5, 0.5, 0.5), "unequal": (0.2, 0.5, 0.35, 0.6)}


class Clusters(NamedTuple):
    """Units of private clusters.

    Attributes:
        n_units: How many.
        treated: The probability of treatment by true cluster.
        response: What labels go through.
    """

    n_units: int
    treated: tuple[float, ...]
    response: ClusterResponse

    @classmethod
    def of(cls, n_units: int, assigned: str, epsilon: float) -> Clusters:
        """With probabilities of treatment by their name in `PROBS`, and ε₁."""
        return cls(n_units, PROBS[assigned], ClusterResponse.for_epsilon(LABELS, epsilon))

    @property
    def truths(self) -> dict[str, float]:
        """The effect in every cluster, and on everyone."""
        effects = (_outcomes()[:, 1] - _outcomes()[:, 0]) @ _VALUES
        everyone = {"everyone": float(_SHARES @ effects)}
        return everyone | dict(zip(LABELS, effects.tolist(), strict=True))

    @property
    def arm_probs(self) -> FloatArray:
        """Probabilities of both arms; axes `[cluster, arm]`."""
        treated = np.array(self.treated)
        return np.stack([1 - treated, treated], axis=1)

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Units by the label they were given, arm and outcome."""
        joint = _SHARES[:, None, None] * self.arm_probs[..., None] * _outcomes()
        given = np.einsum("cay,cl->lay", joint, self.response.probs())
        return rng.multinomial(self.n_units, given.ravel()).reshape(given.shape)

    def weights(self) -> ClusterInversion:
        """What units count; as declared, if probabilities differ."""
        unequal = len(set(self.treated)) > 1
        return ClusterInversion(
            column=COLUMN,
            groups=LABELS,
            inverse=self.response.inverse(),
            probs=self.arm_probs if unequal else None,
        )


def _outcomes() -> FloatArray:
    """Probabilities of outcomes; axes `[cluster, arm, outcome]`."""
    moved = (1 - _MOVED[:, None]) * _CONTROL
    moved[:, 1:] += _MOVED[:, None] * _CONTROL[:, :-1]
    moved[:, -1] += _MOVED * _CONTROL[:, -1]
    return np.stack([_CONTROL, moved], axis=1)


def effects_of(
    counts: IntArray, weights: ClusterInversion, mechanism: Mechanism, rng: np.random.Generator
) -> list[Effect]:
    """Effects on everyone and in every true cluster, from one release of counted units."""
    layout = Layout(clusters=LABELS, arms=(0, 1), control=0, sizes=counts.sum(axis=-1))
    totals = CellTotals.from_counts(counts, SPACE)
    drawn = release_cells(totals, layout, SPACE, mechanism, simulated_noise(rng))
    question = Question(space=SPACE, mechanism=mechanism).released(*drawn)
    assert question.channel is not None  # noqa: S101 - rows are released
    request = EstimateRequest(layout, inversion=weights)
    rows = _counted_rows(question.channel.simulate(counts, rng), layout)
    (data,) = QuestionRows(question, rows, request).read(
        CategoryFunction.declared("spend", SPACE, 0)
    )
    return mean_effects(data).effects


def _counted_rows(released: IntArray, layout: Layout) -> RowCounts:
    """Released rows by cell and response, with every true cluster as a segment."""
    by_cell = released.reshape(layout.sizes.size, -1)
    cells, responses = np.indices(by_cell.shape)
    whole = ResponseCounts(cells.ravel(), responses.ravel(), by_cell.ravel())
    return RowCounts(
        profiles=Profiles.from_layout(layout),
        whole=whole,
        segments=tuple((((COLUMN, label),), whole) for label in LABELS),
    )
