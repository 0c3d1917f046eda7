"""A mechanism: what is published, and what that costs.

    pilot (optional)  →  statistics (optional, central)  →  prior  →  channel  →  rows (optional)

A mechanism states what it wants, by parameters or by budget; `Mechanism.settled` turns that into
the numbers the machine uses, and `Mechanism.guarantee` states what those cost.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from clusterdp.channels import RowBudget, RowRule
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.channels.optimal import DesignedRows
from clusterdp.errors import ParameterError
from clusterdp.outcomes.space import CategorySpace
from clusterdp.privacy import accounting as acc
from clusterdp.statistics import Statistic
from clusterdp.statistics.base import NoisyStatistic
from clusterdp.statistics.pilot import NoisyPilot
from clusterdp.statistics.sums import NoisyTotals

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.cells.layout import Layout

S = TypeVar("S", bound=NoisyStatistic)


_NAME = re.compile(r"[^\W\d_](?:[^\W\d_]|[ \-\u2013]){0,39}")


class Mechanism(msgspec.Struct, frozen=True, kw_only=True):
    """A choice of statistics and of how rows are randomized; see the builders of `catalogue`.

    Attributes:
        name: Its name in reports.
        pilot: A pilot histogram, which sets ranges, grids and the prior; None if these are as
            declared.
        statistics: What is published about cells, with noise.
        rows: How rows are randomized, by parameters or by the budget of the whole release; None
            when no rows are published.
        asked: How many of `ASKED_TOTAL` units are asked, by a public hash of their ids. Rows,
            counts and pilots cover the units that are asked; sums cover all units. It is all of
            them where a release has one question, or no rows.
    """

    name: str
    pilot: NoisyPilot | None = None
    statistics: tuple[Statistic, ...] = ()
    rows: RowRule | RowBudget | None = None
    asked: int = ASKED_TOTAL

    def __post_init__(self) -> None:
        if not 0 < self.asked <= ASKED_TOTAL:
            raise ParameterError(
                f"asked must be a whole number from 1 to {ASKED_TOTAL}, got {self.asked}"
            )
        if not _NAME.fullmatch(self.name):
            raise ParameterError(
                "the name of a mechanism is one to 40 letters, spaces and hyphens, since it is "
                f"published as it is; got {len(self.name)} characters"
            )
        if not self.statistics and self.rows is None:
            raise ParameterError(f"{self.name} would publish neither rows nor statistics")
        if self.pilot is not None and not self.designs_rows:
            raise ParameterError(
                f"{self.name} has no randomizer that a pilot could optimize; leave out pilot, or "
                "choose optimal"
            )
        if len({one.label for one in self.statistics}) < len(self.statistics):
            raise ParameterError(f"{self.name} would publish two statistics of one kind; give one")
        totals = [one for one in self.statistics if isinstance(one, NoisyTotals)]
        if len({one.noise_in_rows for one in totals}) > 1:
            raise ParameterError(
                "totals of one release share the weights of units: give all of them the same "
                "noise_in_rows"
            )
        if self.rows is None and not (self.statistics[0].estimates_effects or self.is_answer):
            raise ParameterError(
                f"{self.name} would publish no effects: {type(self.statistics[0]).__name__} does "
                "not estimate any; publish rows too"
            )
        alone = [one for one in self.statistics if not one.beside_rows]
        if alone and self.rows is not None:
            kind = type(alone[0]).__name__
            raise ParameterError(f"{kind} and rows in one release are not accounted for")

    @property
    def releases_rows(self) -> bool:
        """Whether rows are published, or aggregates only."""
        return self.rows is not None

    @property
    def is_answer(self) -> bool:
        """Whether it publishes totals of groups and nothing else: estimates use them with rows."""
        return self.rows is None and all(
            isinstance(one, NoisyTotals) and bool(one.by) for one in self.statistics
        )

    @property
    def designs_rows(self) -> bool:
        """Whether rows go through an optimal randomizer."""
        return self.rows is not None and self.rows.is_designed

    @property
    def asked_share(self) -> float:
        """The share of units that are asked, exactly."""
        return self.asked / ASKED_TOTAL

    @property
    def noisy(self) -> tuple[Statistic | NoisyPilot, ...]:
        """All that is drawn with noise before the rows, the pilot first."""
        return self.statistics if self.pilot is None else (self.pilot, *self.statistics)

    @property
    def sums(self) -> tuple[Statistic, ...]:
        """The statistics of all units, which all questions of a release share."""
        return tuple(one for one in self.statistics if one.of_everyone)

    def find(self, kind: type[S]) -> S | None:
        """Its statistic of some kind, if it has one."""
        return next((one for one in self.statistics if isinstance(one, kind)), None)

    def layout_of(self, statistic: Statistic, layout: Layout) -> Layout:
        """The cells as a statistic of it has them: of all units, or about as many as are asked.

        Sizes are rounded so that those of an arm add up to its own.
        """
        if statistic.of_everyone or self.asked == ASKED_TOTAL:
            return layout
        ends = np.rint(self.asked_share * np.cumsum(layout.sizes, axis=0)).astype(np.int64)
        return replace(layout, sizes=np.diff(ends, axis=0, prepend=0))

    def total_weights(self, layout: Layout) -> IntArray:
        """What a unit of each cell counts in totals, if there are any; axes `[cluster, arm]`."""
        totals = self.find(NoisyTotals)
        return np.ones_like(layout.sizes) if totals is None else totals.weights(layout)

    def statistics_loss(self) -> tuple[acc.LossAtom, ...]:
        """The privacy loss of all that is published next to the rows, largest first."""
        return acc.joint_loss(*(one.loss() for one in self.noisy))

    def settled_rows(self, space: CategorySpace) -> RowRule:
        """How rows are randomized, in the numbers that the machine uses.

        Raises:
            ParameterError: If there are no rows, or the budget cannot be met.
        """
        if self.rows is None:
            raise ParameterError(f"{self.name} publishes no rows")
        return self.rows.settle(space, self.statistics_loss())

    def settled(self, space: CategorySpace) -> Mechanism:
        """The same mechanism by parameters alone, as it is published."""
        if self.rows is None:
            return self
        return msgspec.structs.replace(self, rows=self.settled_rows(space))

    @property
    def prior(self) -> tuple[float, ...] | None:
        """The public prior of its randomizer; None if it is uniform, or without rows."""
        return self.rows.prior if isinstance(self.rows, DesignedRows) else None

    def with_prior(self, prior: tuple[float, ...] | None) -> Mechanism:
        """The same with a randomizer optimized for another prior."""
        if not isinstance(self.rows, DesignedRows):
            raise ParameterError(f"{self.name} has no randomizer that a prior could optimize")
        return msgspec.structs.replace(self, rows=msgspec.structs.replace(self.rows, prior=prior))

    def parameters(self, space: CategorySpace) -> dict[str, float]:
        """All its numbers, by the names that people are shown."""
        numbers: dict[str, float] = {}
        for statistic in self.noisy:
            numbers |= statistic.parameters()
        return numbers if self.rows is None else numbers | self.settled_rows(space).parameters()

    def row_epsilon(self, space: CategorySpace) -> float:
        """ε of the rows, at δ = 0."""
        return self.settled_rows(space).bound(space).total_epsilon(acc.no_summary_loss(), 0.0)

    def guarantee(self, space: CategorySpace) -> acc.Guarantee:
        """What one release over `space` costs, for any data and sizes of cells."""
        spent = self.statistics_loss()
        if self.rows is None:
            return acc.Guarantee(epsilon=acc.total_epsilon(spent))
        bound = self.settled_rows(space).bound(space)
        return acc.Guarantee(epsilon=bound.total_epsilon(spent, bound.delta), delta=bound.delta)

    def loss(self, space: CategorySpace) -> acc.ReleaseLoss:
        """What one release over `space` loses at worst, for adding up with other releases.

        It holds more than the guarantee: not only how large the loss can be, but how often.
        """
        spent = self.statistics_loss()
        if self.rows is None:
            return acc.ReleaseLoss(atoms=spent)
        bound = self.settled_rows(space).bound(space)
        return acc.ReleaseLoss(atoms=acc.joint_loss(spent, bound.loss()), revealed=bound.revealed)
