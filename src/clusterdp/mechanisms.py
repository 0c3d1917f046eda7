"""The mechanisms, each a small builder over one pipeline: a summary, then a response of each row.

    summary (optional, central)  →  prior  →  channel  →  rows (optional)

A mechanism says what it wants, by parameters or by budget; `Mechanism.response` turns that into the
integers the machine uses, and `Mechanism.guarantee` states what those integers cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from clusterdp import accounting as acc
from clusterdp.errors import ParameterError
from clusterdp.recipes import (
    KEEP_TOTAL,
    PRIOR_TOTAL,
    BudgetedResampling,
    FixedResampling,
    NoisyContrasts,
    NoisyCounts,
    Response,
    checked_epsilon,
)

if TYPE_CHECKING:
    from clusterdp.outcomes import OutcomeSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A choice of summary and of row response; make one with the builders below.

    Attributes:
        name: Its name in reports.
        summary: What is published about cells, or None.
        resampling: How strongly rows are randomized, or None when no rows are published.
        prior_floor: γ, or None for the largest possible, 1/K: then the prior is uniform.
    """

    name: str
    summary: NoisyCounts | NoisyContrasts | None = None
    resampling: FixedResampling | BudgetedResampling | None = None
    prior_floor: float | None = None

    def __post_init__(self) -> None:
        if self.summary is None and self.resampling is None:
            raise ParameterError(f"{self.name} would publish neither rows nor a summary")
        if isinstance(self.summary, NoisyContrasts) and self.resampling is not None:
            raise ParameterError("contrasts and rows in one release are not accounted for")
        if self.prior_floor is not None:
            object.__setattr__(self, "prior_floor", _checked_floor(self.prior_floor))

    @property
    def releases_rows(self) -> bool:
        """Whether user-level rows are published, or aggregates alone."""
        return self.resampling is not None

    def response(self, space: OutcomeSpace) -> Response:
        """The integers of the row response over `space`.

        Raises:
            ParameterError: If the floor is above 1/K, or the budget cannot be met.
        """
        if self.resampling is None:
            raise ParameterError(f"{self.name} publishes aggregates alone; it has no row response")
        floor_weight = _floor_weight(self.prior_floor, space.n_outcomes)
        if isinstance(self.resampling, FixedResampling):
            keep_weight = int((1 - Fraction(self.resampling.resample_prob)) * KEEP_TOTAL)
        else:
            floor = Fraction(floor_weight, PRIOR_TOTAL)
            keep_weight = self._affordable_keep_weight(self.resampling, floor)
        if keep_weight == 0:
            raise ParameterError(
                "rows would be kept with probability below 2^-52, so they would say nothing; "
                "lower resample_prob, or raise epsilon or prior_floor"
            )
        return Response(keep_weight=keep_weight, floor_weight=floor_weight)

    def guarantee(
        self, space: OutcomeSpace, *, accounting: acc.Accounting = "valid"
    ) -> acc.Guarantee:
        """What one release over `space` costs, whatever the data and the size of its cells.

        Args:
            space: The outcome space.
            accounting: "paper" for the figures of the paper, which are not a guarantee.
        """
        if self.resampling is None:
            return acc.Guarantee(epsilon=self._summary_epsilon(accounting), accounting=accounting)
        response, delta = self.response(space), self.resampling.delta
        if accounting == "paper":
            epsilon = acc.paper_row_epsilon(
                keep_prob=response.keep_prob,
                prior_floor=response.prior_floor,
                delta=delta,
                noise_scale=self._noise_scale(),
            )
        else:
            epsilon = acc.row_epsilon(
                keep_prob=response.keep_prob,
                prior_floor=response.prior_floor,
                delta=delta,
                summary=self._summary_loss(),
            )
        return acc.Guarantee(epsilon=epsilon, delta=delta, accounting=accounting)

    def _affordable_keep_weight(self, budget: BudgetedResampling, floor: Fraction) -> int:
        if budget.accounting == "paper":
            spent = acc.paper_summary_epsilon(self._noise_scale(), float(floor))
            _check_affordable(budget.epsilon, spent, self._noise_scale(), sensitivity=1)
            keep = Fraction(
                acc.paper_keep_prob(
                    epsilon=budget.epsilon,
                    delta=budget.delta,
                    prior_floor=floor,
                    noise_scale=self._noise_scale(),
                )
            )
        else:
            summary = self._summary_loss()
            spent = float(summary[0].loss)
            _check_affordable(budget.epsilon, spent, self._noise_scale(), sensitivity=2)
            keep = Fraction(
                acc.largest_keep_prob(
                    epsilon=budget.epsilon, delta=budget.delta, prior_floor=floor, summary=summary
                )
            )
        # At least one row in 2^52 is redrawn, so that every output stays possible.
        return min(int(keep * KEEP_TOTAL), KEEP_TOTAL - 1)

    def _summary_loss(self) -> tuple[acc.LossAtom, ...]:
        match self.summary:
            case None:
                return acc.no_summary_loss()
            case NoisyCounts(noise_scale=noise_scale):
                return acc.noisy_counts_loss(noise_scale)
            case NoisyContrasts():
                raise ParameterError("contrasts and rows in one release are not accounted for")

    def _summary_epsilon(self, accounting: acc.Accounting) -> float:
        if isinstance(self.summary, NoisyContrasts):
            return self.summary.epsilon
        if accounting == "paper":
            return 1 / self._noise_scale()
        return acc.noisy_counts_epsilon(self._noise_scale())

    def _noise_scale(self) -> float:
        return self.summary.noise_scale if isinstance(self.summary, NoisyCounts) else math.inf


def cluster_dp(  # noqa: PLR0913 - the parameters of the paper's mechanism, or a budget
    *,
    noise_scale: float,
    prior_floor: float,
    resample_prob: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    accounting: acc.Accounting = "valid",
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
        accounting: "paper" solves a budget with the paper's figures, for its reproduction alone.
    """
    return Mechanism(
        name="Cluster-DP",
        summary=NoisyCounts(noise_scale=noise_scale),
        resampling=_resampling(resample_prob, epsilon, delta, accounting),
        prior_floor=prior_floor,
    )


def cluster_free_dp(  # noqa: PLR0913 - as `cluster_dp`
    *,
    noise_scale: float,
    prior_floor: float,
    resample_prob: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    accounting: acc.Accounting = "valid",
) -> Mechanism:
    """Cluster-Free-DP: as `cluster_dp`, with one histogram per arm over the whole population."""
    return Mechanism(
        name="Cluster-Free-DP",
        summary=NoisyCounts(noise_scale=noise_scale, scope="population"),
        resampling=_resampling(resample_prob, epsilon, delta, accounting),
        prior_floor=prior_floor,
    )


def uniform_prior_dp(
    *,
    resample_prob: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
) -> Mechanism:
    """Uniform-Prior-DP (alg2): k-ary randomized response, rows redrawn uniformly.

    It needs no summary, so it is also locally private, row by row. For two outcomes it is Warner's
    randomized response, and its estimator that of Kancharla and Kang.

    Args:
        resample_prob: λ in (0, 1), the probability that a row is redrawn.
        epsilon: ε of the release, instead of `resample_prob`.
        delta: δ of the release.
    """
    return Mechanism(
        name="Uniform-Prior-DP",
        resampling=_resampling(resample_prob, epsilon, delta, "valid"),
    )


def noisy_horvitz_thompson(*, epsilon: float) -> Mechanism:
    """Noisy Horvitz–Thompson (algNHT): each cluster's differences in means, with noise. No rows."""
    return Mechanism(name="Noisy Horvitz–Thompson", summary=NoisyContrasts(epsilon=epsilon))


def noisy_histogram(*, epsilon: float | None = None, noise_scale: float | None = None) -> Mechanism:
    """Noisy Histogram (algNH): each cell's outcome counts, with noise. No rows.

    Args:
        epsilon: ε of the release.
        noise_scale: σ, instead of `epsilon`; it costs 2/σ.
    """
    if (epsilon is None) == (noise_scale is None):
        raise ParameterError("give either epsilon or noise_scale, and not both")
    if epsilon is not None:
        noise_scale = acc.noise_scale_for(Fraction(2), checked_epsilon(epsilon))
    assert noise_scale is not None  # noqa: S101 - one of the two was given
    return Mechanism(name="Noisy Histogram", summary=NoisyCounts(noise_scale=noise_scale))


def _resampling(
    resample_prob: float | None, epsilon: float | None, delta: float, accounting: acc.Accounting
) -> FixedResampling | BudgetedResampling:
    if resample_prob is not None and epsilon is None:
        return FixedResampling(resample_prob=resample_prob, delta=delta)
    if epsilon is not None and resample_prob is None:
        return BudgetedResampling(epsilon=epsilon, delta=delta, accounting=accounting)
    raise ParameterError(
        "give either resample_prob (the strength by hand) or epsilon (a budget), and not both"
    )


def _floor_weight(prior_floor: float | None, n_outcomes: int) -> int:
    """The floor in integers: at least γ where that is possible, at most 1/K."""
    highest = PRIOR_TOTAL // n_outcomes
    if prior_floor is None:
        return highest
    if prior_floor > 1 / n_outcomes:
        raise ParameterError(
            f"prior_floor must be at most 1/K = {1 / n_outcomes:.6g} for {n_outcomes} outcomes, "
            f"got {prior_floor}"
        )
    return min(math.ceil(Fraction(prior_floor) * PRIOR_TOTAL), highest)


def _checked_floor(prior_floor: float) -> float:
    prior_floor = float(prior_floor)
    if not 0 < prior_floor <= 0.5:
        raise ParameterError(
            "prior_floor must lie in (0, 1/K], so that every outcome stays possible, "
            f"got {prior_floor}"
        )
    return prior_floor


def _check_affordable(epsilon: float, spent: float, noise_scale: float, sensitivity: int) -> None:
    if epsilon <= spent:
        raise ParameterError(
            f"noise_scale={noise_scale:g} alone costs {spent:.6g}, which leaves nothing of "
            f"epsilon={epsilon:g} for the rows; give a noise_scale above "
            f"{sensitivity / epsilon:.6g}, or an epsilon above {spent:.6g}"
        )
