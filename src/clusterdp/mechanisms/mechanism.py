"""A mechanism: what is published, in integers, and what that costs.

    summary (optional, central)  →  prior  →  channel  →  rows (optional)

A mechanism says what it wants, by parameters or by budget; `Mechanism.response` turns that into the
integers the machine uses, and `Mechanism.guarantee` states what those integers cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from clusterdp.errors import ParameterError
from clusterdp.mechanisms.parts import (
    KEEP_TOTAL,
    LARGEST_ROW_EPSILON,
    PRIOR_TOTAL,
    SMALLEST_ROW_EPSILON,
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
)
from clusterdp.privacy import accounting as acc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.experiment.outcomes import OutcomeSpace

# Ratios of a designed channel are fractions of this denominator.
_RATIO_DENOMINATOR = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A choice of summary and of row response; make one with the functions of `builders`.

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
        by_paper = isinstance(self.rows, BudgetedResampling) and self.rows.accounting == "paper"
        if self.sums is not None and by_paper:
            raise ParameterError("the paper has no accounting of noisy sums")
        if self.prior_floor is not None:
            object.__setattr__(self, "prior_floor", _checked_floor(self.prior_floor))
        if self.public_prior is not None:
            if self.summary is not None:
                raise ParameterError("a channel is designed for noisy counts or a public prior")
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
            if epsilon < SMALLEST_ROW_EPSILON and summary[0].loss:
                raise ParameterError(_nothing_left(self.rows.epsilon, float(summary[0].loss)))
            epsilon = min(epsilon, LARGEST_ROW_EPSILON)
        if not SMALLEST_ROW_EPSILON <= epsilon <= LARGEST_ROW_EPSILON:
            raise ParameterError(
                f"epsilon of the rows must lie between {SMALLEST_ROW_EPSILON:g} and "
                f"{LARGEST_ROW_EPSILON:g}, got {epsilon:.6g}"
            )
        return DesignedResponse(
            epsilon=epsilon,
            delta=self.rows.delta,
            max_ratio=acc.largest_ratio(epsilon, _RATIO_DENOMINATOR),
            reveal_weight=int(Fraction(self.rows.delta) * TABLE_TOTAL),
        )

    def row_epsilon(self, space: OutcomeSpace) -> float:
        """What the rows cost on their own, at δ = 0."""
        if self.designs_rows:
            return self.designed_response().epsilon
        response = self.response(space)
        return acc.row_epsilon(
            keep_prob=response.keep_prob,
            prior_floor=response.prior_floor,
            delta=0.0,
            summary=acc.no_summary_loss(),
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

    def loss(self, space: OutcomeSpace) -> acc.ReleaseLoss:
        """What one release over `space` can tell, for adding up with other releases.

        It says more than the guarantee: not only how large the loss can be, but how often.
        """
        if isinstance(self.summary, NoisyContrasts):
            return acc.ReleaseLoss(atoms=acc.any_loss(self.summary.epsilon))
        parts, revealed = [self._summary_loss()], 0.0
        if isinstance(self.rows, FixedDesign):
            designed = self.designed_response()
            parts.append(acc.any_loss(designed.epsilon))
            revealed = designed.delta
        elif self.rows is not None:
            response = self.response(space)
            parts.append(acc.resampled_row_loss(response.keep_prob, response.prior_floor))
        return acc.ReleaseLoss(atoms=acc.together(*parts), revealed=revealed)

    def _affordable_keep_weight(self, budget: BudgetedResampling, floor: Fraction) -> int:
        if budget.accounting == "paper":
            spent = acc.paper_summary_epsilon(self._noise_scale(), float(floor))
            self._check_affordable(budget.epsilon, spent, sensitivity=1)
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
            self._check_affordable(budget.epsilon, spent, sensitivity=2)
            keep = Fraction(
                acc.largest_keep_prob(
                    epsilon=budget.epsilon, delta=budget.delta, prior_floor=floor, summary=summary
                )
            )
        # At least one row in 2^52 is redrawn, so that every output stays possible.
        return min(int(keep * KEEP_TOTAL), KEEP_TOTAL - 1)

    def _check_affordable(self, epsilon: float, spent: float, sensitivity: int) -> None:
        if epsilon > spent:
            return
        if self.sums is not None:
            raise ParameterError(_nothing_left(epsilon, spent))
        raise ParameterError(
            f"noise_scale={self._noise_scale():g} alone costs {spent:.6g}, which leaves nothing of "
            f"epsilon={epsilon:g} for the rows; give a noise_scale above "
            f"{sensitivity / epsilon:.6g}, or an epsilon above {spent:.6g}"
        )

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
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or not any(numbers):
        raise ParameterError("a prior is made of numbers of at least 0 that are not all 0")
    total = math.fsum(numbers)
    if math.isclose(total, 1.0, rel_tol=1e-12):  # as it is, so that it reads as it was written
        return numbers
    return tuple(number / total for number in numbers)


def _nothing_left(epsilon: float, spent: float) -> str:
    return (
        f"noisy counts and sums cost {spent:.6g} of epsilon={epsilon:g}, which leaves nothing for "
        "the rows; raise noise_scale or epsilon, or lower sums_share"
    )
