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
    TABLE_TOTAL,
    BudgetedDesign,
    BudgetedResampling,
    DesignedResponse,
    FixedDesign,
    FixedResampling,
    NoisyContrasts,
    NoisyCounts,
    NoisySums,
    Response,
    RowRecipe,
    checked_epsilon,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.outcomes import OutcomeSpace

# Ratios of a designed channel are fractions of this denominator.
_RATIO_DENOMINATOR = 2**40
# A channel that could tell outcomes apart no better than this says nothing.
_SMALLEST_ROW_EPSILON = 0.01
# Beyond this a row hides nothing, and probabilities get too small to be exact: it is not spent.
_LARGEST_ROW_EPSILON = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A choice of summary and of row response; make one with the builders below.

    Attributes:
        name: Its name in reports.
        summary: What is published about cells, or None.
        rows: How rows are randomized, or None when no rows are published.
        sums: Noisy sums beside the rows, to calibrate estimates by, or None.
        prior_floor: γ, or None for the largest possible, 1/K: then the prior is uniform.
        public_prior: The distribution a channel is designed for where there are no noisy counts;
            None for uniform. Known from outside the experiment, so it costs nothing.
    """

    name: str
    summary: NoisyCounts | NoisyContrasts | None = None
    rows: RowRecipe | None = None
    sums: NoisySums | None = None
    prior_floor: float | None = None
    public_prior: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.summary is None and self.rows is None:
            raise ParameterError(f"{self.name} would publish neither rows nor a summary")
        if isinstance(self.summary, NoisyContrasts) and self.rows is not None:
            raise ParameterError("contrasts and rows in one release are not accounted for")
        if self.sums is not None and self.rows is None:
            raise ParameterError("sums calibrate rows; a release without rows takes none")
        if self.prior_floor is not None:
            object.__setattr__(self, "prior_floor", _checked_floor(self.prior_floor))
        if self.public_prior is not None:
            object.__setattr__(self, "public_prior", _checked_prior(self.public_prior))

    @property
    def releases_rows(self) -> bool:
        """Whether user-level rows are published, or aggregates alone."""
        return self.rows is not None

    @property
    def designs_rows(self) -> bool:
        """Whether rows go through a designed channel, so that what is released are numbers."""
        return isinstance(self.rows, FixedDesign)

    def response(self, space: OutcomeSpace) -> Response:
        """The integers of the row response over `space`.

        Raises:
            ParameterError: If the floor is above 1/K, or the budget cannot be met.
        """
        if not isinstance(self.rows, FixedResampling | BudgetedResampling):
            raise ParameterError(f"{self.name} does not redraw rows from a prior")
        floor_weight = _floor_weight(self.prior_floor, space.n_outcomes)
        if isinstance(self.rows, FixedResampling):
            keep_weight = int((1 - Fraction(self.rows.resample_prob)) * KEEP_TOTAL)
        else:
            floor = Fraction(floor_weight, PRIOR_TOTAL)
            keep_weight = self._affordable_keep_weight(self.rows, floor)
        if keep_weight == 0:
            raise ParameterError(
                "rows would be kept with probability below 2^-52, so they would say nothing; "
                "lower resample_prob, or raise epsilon or prior_floor"
            )
        return Response(keep_weight=keep_weight, floor_weight=floor_weight)

    def designed_response(self) -> DesignedResponse:
        """What bounds the designed channel, in integers.

        Raises:
            ParameterError: If the budget leaves nothing for the rows.
        """
        if not isinstance(self.rows, FixedDesign):
            raise ParameterError(f"{self.name} does not design the channel of its rows")
        epsilon = self.rows.epsilon
        if isinstance(self.rows, BudgetedDesign):
            summary = self._summary_loss()
            epsilon = acc.remaining_epsilon(self.rows.epsilon, summary)
            if epsilon < _SMALLEST_ROW_EPSILON and not summary[0].loss:
                raise ParameterError(
                    f"epsilon must be at least {_SMALLEST_ROW_EPSILON:g} for rows to say anything, "
                    f"got {self.rows.epsilon:g}"
                )
            if epsilon < _SMALLEST_ROW_EPSILON:
                raise ParameterError(
                    f"noisy counts and sums cost {float(summary[0].loss):.6g} of "
                    f"epsilon={self.rows.epsilon:g}, which leaves nothing for the rows; raise "
                    "noise_scale or epsilon, or lower calibrate"
                )
            epsilon = min(epsilon, _LARGEST_ROW_EPSILON)
        if not _SMALLEST_ROW_EPSILON <= epsilon <= _LARGEST_ROW_EPSILON:
            raise ParameterError(
                f"epsilon of the rows must lie between {_SMALLEST_ROW_EPSILON:g} and "
                f"{_LARGEST_ROW_EPSILON:g}, got {epsilon:.6g}"
            )
        return DesignedResponse(
            epsilon=epsilon,
            delta=self.rows.delta,
            max_ratio=acc.largest_ratio(epsilon, _RATIO_DENOMINATOR),
            reveal_weight=int(Fraction(self.rows.delta) * TABLE_TOTAL),
        )

    def guarantee(
        self, space: OutcomeSpace, *, accounting: acc.Accounting = "valid"
    ) -> acc.Guarantee:
        """What one release over `space` costs, whatever the data and the size of its cells.

        Args:
            space: The outcome space.
            accounting: "paper" for the figures of the paper, which are not a guarantee.
        """
        if self.rows is None:
            return acc.Guarantee(epsilon=self._summary_epsilon(accounting), accounting=accounting)
        if accounting == "paper" and (self.designs_rows or self.sums is not None):
            raise ParameterError(f"the paper has no accounting of {self.name}")
        if isinstance(self.rows, FixedDesign):
            designed = self.designed_response()
            total = acc.total_epsilon(self._summary_loss(), designed.epsilon)
            return acc.Guarantee(epsilon=total, delta=designed.delta)
        response, delta = self.response(space), self.rows.delta
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
        """The loss of all that is published beside the rows, largest first."""
        parts = []
        if isinstance(self.summary, NoisyCounts):
            parts.append(acc.noisy_counts_loss(self.summary.noise_scale))
        if self.sums is not None:
            parts.append(acc.any_loss(self.sums.epsilon))
        return acc.together(*parts)

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
    calibrate: float = 0.0,
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
        calibrate: The share of ε that is spent on noisy cell sums, which estimates then use.
        accounting: "paper" solves a budget with the paper's figures, for its reproduction alone.
    """
    return Mechanism(
        name="Cluster-DP",
        summary=NoisyCounts(noise_scale=noise_scale),
        rows=_resampling(resample_prob, epsilon, delta, accounting),
        sums=_sums(calibrate, epsilon),
        prior_floor=prior_floor,
    )


def cluster_free_dp(  # noqa: PLR0913 - as `cluster_dp`
    *,
    noise_scale: float,
    prior_floor: float,
    resample_prob: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    calibrate: float = 0.0,
    accounting: acc.Accounting = "valid",
) -> Mechanism:
    """Cluster-Free-DP: as `cluster_dp`, with one histogram per arm over the whole population."""
    return Mechanism(
        name="Cluster-Free-DP",
        summary=NoisyCounts(noise_scale=noise_scale, scope="population"),
        rows=_resampling(resample_prob, epsilon, delta, accounting),
        sums=_sums(calibrate, epsilon),
        prior_floor=prior_floor,
    )


def uniform_prior_dp(
    *,
    resample_prob: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    calibrate: float = 0.0,
) -> Mechanism:
    """Uniform-Prior-DP (alg2): k-ary randomized response, rows redrawn uniformly.

    It needs no summary, so it is also locally private, row by row. For two outcomes it is Warner's
    randomized response, and its estimator that of Kancharla and Kang.

    Args:
        resample_prob: λ in (0, 1), the probability that a row is redrawn.
        epsilon: ε of the release, instead of `resample_prob`.
        delta: δ of the release.
        calibrate: The share of ε that is spent on noisy cell sums, which estimates then use.
    """
    return Mechanism(
        name="Uniform-Prior-DP",
        rows=_resampling(resample_prob, epsilon, delta, "valid"),
        sums=_sums(calibrate, epsilon),
    )


def optimal(
    *,
    epsilon: float,
    delta: float = 0.0,
    noise_scale: float | None = None,
    prior: Sequence[float] | None = None,
    calibrate: float = 0.0,
) -> Mechanism:
    """Rows through the unbiased channel of least variance that ε allows.

    What is released of a row is a number, not one of the outcomes: the debiased outcome itself. The
    channel is designed for a prior over outcomes, which buys variance and nothing else: the
    guarantee and unbiasedness hold whatever it is. Without `noise_scale` and `prior` it is uniform;
    without `noise_scale` the mechanism is also locally private, row by row. With two outcomes the
    channel is Warner's randomized response, whatever the prior.

    Args:
        epsilon: ε of the whole release.
        delta: δ of the whole release.
        noise_scale: σ of noisy counts of every cell, from which each cell's prior is taken. They
            cost 2/σ of ε.
        prior: The prior of every cell, one number per outcome, known from outside the experiment.
        calibrate: The share of ε that is spent on noisy cell sums, which estimates then use.
    """
    if noise_scale is not None and prior is not None:
        raise ParameterError("give a prior or a noise_scale to learn one with, and not both")
    return Mechanism(
        name="Optimal",
        summary=None if noise_scale is None else NoisyCounts(noise_scale=noise_scale),
        rows=BudgetedDesign(epsilon=epsilon, delta=delta),
        sums=_sums(calibrate, epsilon),
        public_prior=None if prior is None else tuple(prior),
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


def _sums(calibrate: float, epsilon: float | None) -> NoisySums | None:
    if not 0 <= calibrate < 1:
        raise ParameterError(f"calibrate is a share of epsilon in [0, 1), got {calibrate}")
    if calibrate == 0:
        return None
    if epsilon is None:
        raise ParameterError("calibrate is a share of epsilon; give epsilon")
    return NoisySums(epsilon=calibrate * checked_epsilon(epsilon))


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


def _checked_prior(prior: Sequence[float]) -> tuple[float, ...]:
    numbers = tuple(float(number) for number in prior)
    total = math.fsum(numbers)
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or total <= 0:
        raise ParameterError("a prior is made of numbers of at least 0 that are not all 0")
    return tuple(number / total for number in numbers)


def _check_affordable(epsilon: float, spent: float, noise_scale: float, sensitivity: int) -> None:
    if epsilon <= spent:
        raise ParameterError(
            f"noise_scale={noise_scale:g} alone costs {spent:.6g}, which leaves nothing of "
            f"epsilon={epsilon:g} for the rows; give a noise_scale above "
            f"{sensitivity / epsilon:.6g}, or an epsilon above {spent:.6g}"
        )
