"""How much of ε goes to noisy sums, level by level."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.privacy.accounting import checked_epsilon
from clusterdp.statistics.sums import NoisySums
from clusterdp.statistics.totals import NoisyTotals, noise_in_rows


class SumShares(NamedTuple):
    """Shares of ε for noisy sums; levels are paid for one after another, and rows get the rest.

    Attributes:
        totals: For totals of arms.
        clusters: For sums of every cell.
        breakdowns: For totals of groups, by the columns that the groups are of.
        noise_in_rows: How many rows have as much noise as a total, which caps the weights of units;
            None for what follows from the shares.
    """

    totals: float = 0.0
    clusters: float = 0.0
    breakdowns: tuple[tuple[tuple[str, ...], float], ...] = ()
    noise_in_rows: float | None = None

    @property
    def together(self) -> float:
        """What all levels take of ε."""
        return self.totals + self.clusters + sum(share for _, share in self.breakdowns)

    def statistics(self, epsilon: float | None) -> tuple[NoisyTotals | NoisySums, ...]:
        """The statistics of these shares of a budget."""
        every = (self.totals, self.clusters, *(share for _, share in self.breakdowns))
        if min(every) < 0 or not self.together < 1:
            raise ParameterError(
                "shares of epsilon for sums are at least 0 and together below 1, got "
                + ", ".join(f"{share:g}" for share in every)
            )
        if self.together == 0:
            return ()
        if epsilon is None:
            raise ParameterError("sums have a share of epsilon; give epsilon")
        budget = checked_epsilon(epsilon)
        totals = [(by, share) for by, share in (((), self.totals), *self.breakdowns) if share]
        worth = self.noise_in_rows
        if worth is None:
            largest = max((share for _, share in totals), default=0.0) * budget
            rest = (1 - self.together) * budget
            worth = float(noise_in_rows(np.array(largest), np.array(rest)))
        cells = (NoisySums(epsilon=self.clusters * budget),) if self.clusters else ()
        return (
            *(
                NoisyTotals(epsilon=share * budget, by=by, noise_in_rows=worth)
                for by, share in totals
            ),
            *cells,
        )


NO_SUMS = SumShares()
