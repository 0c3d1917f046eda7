"""The mechanisms, each a small builder over one pipeline; and how much of ε goes to noisy sums."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from clusterdp.channels.optimal import OptimalBudget
from clusterdp.channels.resampling import ResampledRows, ResamplingBudget
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.privacy.accounting import checked_epsilon, noise_scale_for
from clusterdp.statistics.contrasts import NoisyContrasts
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.pilot import NoisyPilot
from clusterdp.statistics.sums import NoisySums, NoisyTotals, noise_in_rows

if TYPE_CHECKING:
    from collections.abc import Sequence


# What a mechanism is called that answers a follow-up.
ANSWER = "Answer"


class SumShares(NamedTuple):
    """Shares of ε for noisy sums; levels are paid for one after another, and rows get the rest.

    Attributes:
        totals: For totals of arms.
        clusters: For sums of every cell.
        breakdowns: For totals of groups, by the columns of the groups.
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


def cluster_dp(  # noqa: PLR0913 - the parameters of the paper's mechanism, or a budget
    *,
    noise_scale: float,
    prior_floor: float,
    resample_prob: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    sums: SumShares = NO_SUMS,
) -> Mechanism:
    """Cluster-DP (alg1): redraw rows from the noisy outcome histogram of their cluster and arm.

    Give either `resample_prob`, or `epsilon`: the budget of the whole release, from which the
    resample probability follows.

    Args:
        noise_scale: σ, the scale of the noise on each count. It costs 2/σ of ε.
        prior_floor: γ in (0, 1/K], the least prior probability of any outcome.
        resample_prob: λ in (0, 1), the probability that a row is redrawn.
        epsilon: ε of the whole release; above 2/σ.
        delta: δ of the whole release.
        sums: The shares of ε that are spent on noisy sums, which estimates then use.
    """
    return Mechanism(
        name="Cluster-DP",
        statistics=(NoisyCounts(noise_scale=noise_scale), *sums.statistics(epsilon)),
        rows=_resampling(resample_prob, epsilon, delta, prior_floor),
    )


def cluster_free_dp(  # noqa: PLR0913 - as `cluster_dp`
    *,
    noise_scale: float,
    prior_floor: float,
    resample_prob: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    sums: SumShares = NO_SUMS,
) -> Mechanism:
    """Cluster-Free-DP: as `cluster_dp`, with one histogram per arm over the whole population."""
    return Mechanism(
        name="Cluster-Free-DP",
        statistics=(
            NoisyCounts(noise_scale=noise_scale, scope="population"),
            *sums.statistics(epsilon),
        ),
        rows=_resampling(resample_prob, epsilon, delta, prior_floor),
    )


def uniform_prior_dp(
    *,
    resample_prob: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    sums: SumShares = NO_SUMS,
) -> Mechanism:
    """Uniform-Prior-DP (alg2): k-ary randomized response, rows redrawn uniformly.

    It needs no summary, so it is also locally private, row by row. For two outcomes it is Warner's
    randomized response, and its estimator that of Kancharla and Kang.

    Args:
        resample_prob: λ in (0, 1), the probability that a row is redrawn.
        epsilon: ε of the release, instead of `resample_prob`.
        delta: δ of the release.
        sums: The shares of ε that are spent on noisy sums, which estimates then use.
    """
    return Mechanism(
        name="Uniform-Prior-DP",
        statistics=sums.statistics(epsilon),
        rows=_resampling(resample_prob, epsilon, delta, None),
    )


def optimal(  # noqa: PLR0913 - a budget, and what it is spent on
    *,
    epsilon: float,
    delta: float = 0.0,
    noise_scale: float | None = None,
    scope: Literal["cluster", "population"] = "cluster",
    prior: Sequence[float] | None = None,
    sums: SumShares = NO_SUMS,
    pilot: float = 0.0,
) -> Mechanism:
    """Rows through the unbiased randomizer of least variance that ε allows.

    A row is released as a debiased number, not as one of the outcomes. The randomizer is optimized
    for a prior over outcomes, which affects variance only: the guarantee and unbiasedness hold for
    any prior. Without `noise_scale` and `prior` it is uniform; without `noise_scale` the mechanism
    is also locally private, row by row. For a binary outcome the randomizer is Warner's randomized
    response, for any prior.

    Args:
        epsilon: ε of the whole release.
        delta: δ of the whole release.
        noise_scale: σ of noisy counts, from which each cell's prior is learned. They cost 2/σ
            of ε.
        scope: What is counted: every cell ("cluster"), or every arm ("population").
        prior: The prior of every cell, one number per outcome, known from outside the experiment;
            with counts, what they are shrunk towards.
        sums: The shares of ε that are spent on noisy sums, which estimates then use.
        pilot: The share of ε for a pilot histogram of all units, drawn first. It sets the range
            and grid of numbers, and the prior.
    """
    if not 0 <= pilot < 1:
        raise ParameterError(
            f"pilot is a share of epsilon, and must be at least 0 and below 1, got {pilot:g}"
        )
    counts = () if noise_scale is None else (NoisyCounts(noise_scale=noise_scale, scope=scope),)
    return Mechanism(
        name="Optimal",
        pilot=NoisyPilot(epsilon=pilot * checked_epsilon(epsilon)) if pilot else None,
        statistics=(*counts, *sums.statistics(epsilon)),
        rows=OptimalBudget(
            epsilon=epsilon, delta=delta, prior=None if prior is None else tuple(prior)
        ),
    )


def noisy_horvitz_thompson(*, epsilon: float) -> Mechanism:
    """Noisy Horvitz–Thompson (algNHT): each cluster's differences in means, with noise. No rows."""
    return Mechanism(name="Noisy Horvitz–Thompson", statistics=(NoisyContrasts(epsilon=epsilon),))


def noisy_histogram(*, epsilon: float | None = None, noise_scale: float | None = None) -> Mechanism:
    """Noisy Histogram (algNH): each cell's outcome counts, with noise. No rows.

    Args:
        epsilon: ε of the release.
        noise_scale: σ, instead of `epsilon`; it costs 2/σ.
    """
    if (epsilon is None) == (noise_scale is None):
        raise ParameterError("give either epsilon or noise_scale, and not both")
    if epsilon is not None:
        noise_scale = noise_scale_for(Fraction(2), checked_epsilon(epsilon))
    assert noise_scale is not None  # noqa: S101 - one of the two was given
    return Mechanism(name="Noisy Histogram", statistics=(NoisyCounts(noise_scale=noise_scale),))


def answering(
    *, epsilon: float, dimensions: Sequence[str], released: Sequence[Mechanism], row_epsilon: float
) -> Mechanism:
    """Totals of the groups of some dimensions, which share ε: the answer to a follow-up. No rows.

    Args:
        epsilon: ε of the answer.
        dimensions: The columns of the labels.
        released: The mechanisms of the release, whose totals decide how weights are capped.
        row_epsilon: ε of its rows, which decides that where it has no totals.
    """
    share = checked_epsilon(epsilon) / len(dimensions)
    totals = released[0].find(NoisyTotals)
    worth = (
        float(noise_in_rows(np.array(share), np.array(row_epsilon)))
        if totals is None
        else totals.noise_in_rows
    )
    made = [NoisyTotals(epsilon=share, by=(name,), noise_in_rows=worth) for name in dimensions]
    return Mechanism(name=ANSWER, statistics=tuple(made))


def usual_name(mechanism: Mechanism) -> str:
    """What the builders above call a mechanism of such statistics and rows."""
    if mechanism.is_answer:
        return ANSWER
    counts = mechanism.find(NoisyCounts)
    if mechanism.rows is None:
        return "Noisy Horvitz–Thompson" if counts is None else "Noisy Histogram"
    if mechanism.designs_rows:
        return "Optimal"
    if counts is None:
        return "Uniform-Prior-DP"
    return "Cluster-DP" if counts.scope == "cluster" else "Cluster-Free-DP"


def _resampling(
    resample_prob: float | None, epsilon: float | None, delta: float, prior_floor: float | None
) -> ResampledRows | ResamplingBudget:
    if resample_prob is not None and epsilon is None:
        return ResampledRows(resample_prob=resample_prob, delta=delta, prior_floor=prior_floor)
    if epsilon is not None and resample_prob is None:
        return ResamplingBudget(epsilon=epsilon, delta=delta, prior_floor=prior_floor)
    raise ParameterError(
        "give either resample_prob (the strength by hand) or epsilon (a budget), and not both"
    )
