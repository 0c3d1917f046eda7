"""What a release costs: exact (ε, δ) of the joint release, and the inverse.

Neighbours are two tables that differ in one unit's outcome, and in its cluster where that is
private. Every figure is computed from the integers that the machine uses, in decimal arithmetic,
and rounded up: a stated ε or δ is never below the true one.
The proofs are in `docs/explanation/privacy.md`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple

from clusterdp.errors import ParameterError
from clusterdp.privacy.statement import PrivacyStatement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Neighbours = Literal["replace-one-outcome", "replace-one-cluster-and-outcome"]
# One unit's outcomes differ, all of them.
OUTCOME: Neighbours = "replace-one-outcome"
# One unit's cluster and outcomes differ, together.
CLUSTER_AND_OUTCOME: Neighbours = "replace-one-cluster-and-outcome"


# What of a unit a relation protects.
PROTECTED: dict[Neighbours, str] = {
    OUTCOME: "outcomes",
    CLUSTER_AND_OUTCOME: "cluster and outcomes",
}


# Beyond, every probability is 0 or 1 as far as a machine can represent: publish the table instead.
LARGEST_EPSILON = 1000.0
# Far more digits than a float holds, so that rounding up happens once, at the very end.
_DIGITS = Context(prec=60)
# Losses that agree in so many digits are one.
_SAME_LOSS = Context(prec=50)
# Each more statistic of another ε would double the losses there are.
_MOST_ATOMS = 2**12


def checked_epsilon(epsilon: float) -> float:
    """ε as a float, or a ParameterError."""
    epsilon = float(epsilon)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ParameterError(f"epsilon must be a finite number above 0, got {epsilon}")
    if epsilon > LARGEST_EPSILON:
        raise ParameterError(f"epsilon must be at most {LARGEST_EPSILON:g}, got {epsilon:g}")
    return epsilon


def checked_delta(delta: float) -> float:
    """δ as a float, or a ParameterError."""
    delta = float(delta)
    if not 0 <= delta < 1:
        raise ParameterError(f"delta must lie in [0, 1), got {delta}")
    return delta


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """(ε, δ)-label differential privacy of everything in a release.

    Attributes:
        epsilon: ε. With δ = 0, the odds an observer gives one outcome against another change by
            at most a factor e^ε.
        delta: δ. With δ > 0, the probability of any set of releases changes by at most a factor
            e^ε, plus δ; the odds given what was released can change by more.
        neighbours: What is replaced between neighboring tables.
    """

    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = OUTCOME

    def statement(self, unit: str = "unit") -> PrivacyStatement:
        """The privacy statement; `unit` is what texts call a unit, in the singular."""
        return PrivacyStatement(
            epsilon=self.epsilon,
            delta=self.delta,
            protected=PROTECTED[self.neighbours],
            unit=unit,
        )

    def __str__(self) -> str:
        return str(self.statement())


class LossAtom(NamedTuple):
    """One value the privacy loss of a noisy summary can take, and its probability."""

    loss: Decimal
    prob: Decimal


class ReleaseLoss(NamedTuple):
    """The largest privacy loss of a whole release, for any two outcomes.

    Attributes:
        atoms: The privacy loss where it is finite. The pair behind it is symmetric: the loss has
            this distribution whichever of the two outcomes is true.
        revealed: The probability that the release reveals the outcome; the atoms share the rest.
    """

    atoms: tuple[LossAtom, ...]
    revealed: float = 0.0


def no_summary_loss() -> tuple[LossAtom, ...]:
    """The loss of a release without a summary: always 0."""
    return (LossAtom(Decimal(0), Decimal(1)),)


def noisy_counts_loss(noise_scale: float) -> tuple[LossAtom, ...]:
    """The exact privacy loss distribution of a noisy histogram, largest loss first.

    Replacing an outcome moves two counts by one each. The loss of one shifted discrete Laplace is
    ±1/σ, and is +1/σ with probability 1/(1 + e^(−1/σ)); two independent ones add. Its maximum is
    2/σ (correction C1), reached with probability 1/(1 + e^(−1/σ))².
    """
    with localcontext(_DIGITS):
        step = 1 / Decimal(noise_scale)
        odds = (-step).exp()
        up, down = 1 / (1 + odds), odds / (1 + odds)
        return (
            LossAtom(2 * step, up * up),
            LossAtom(Decimal(0), 2 * up * down),
            LossAtom(-2 * step, down * down),
        )


def any_loss(epsilon: float) -> tuple[LossAtom, ...]:
    """A loss that bounds that of every ε-DP release: ±ε, and +ε with probability 1/(1 + e^(−ε)).

    Anything ε-DP is a post-processing of randomized response at ε (Kairouz, Oh and Viswanath,
    ICML 2015), so no set of its outputs has a larger hockey-stick divergence.
    """
    with localcontext(_DIGITS):
        loss = Decimal(epsilon)
        odds = (-loss).exp()
        return LossAtom(loss, 1 / (1 + odds)), LossAtom(-loss, odds / (1 + odds))


def resampled_row_loss(keep_prob: Fraction, prior_floor: Fraction) -> tuple[LossAtom, ...]:
    """A loss that bounds that of a row which is kept, or redrawn from a prior above a floor.

    The worst pair of outcomes has the floor as prior of both: one of them is released with
    probability h = keep + λγ if true and l = λγ if the other is, and all else is equally likely.
    Its hockey-stick divergence is the h(x) of `row_epsilon`, which no other prior exceeds.
    """
    with localcontext(_DIGITS):
        keep, floor = _decimal(keep_prob), _decimal(prior_floor)
        low = (1 - keep) * floor
        return _two_sided(keep + low, low)


def joint_loss(*parts: tuple[LossAtom, ...]) -> tuple[LossAtom, ...]:
    """The loss of independent releases of the same outcome: losses add. Largest first.

    Losses that are equal but for rounding are one atom, with the largest of them. Where there would
    still be too many atoms, the parts so far count as any release of their largest loss.
    """
    joint = no_summary_loss()
    with localcontext(_DIGITS):
        for part in parts:
            if len(joint) * len(part) > _MOST_ATOMS:
                joint = any_loss(float_above(max(joint).loss))
            added: dict[Decimal, LossAtom] = {}
            for one, other in itertools.product(joint, part):
                loss, prob = one.loss + other.loss, one.prob * other.prob
                place = _SAME_LOSS.plus(loss)
                known = added.get(place, LossAtom(loss, Decimal(0)))
                added[place] = LossAtom(max(loss, known.loss), known.prob + prob)
            joint = tuple(added.values())
    return tuple(sorted(joint, reverse=True))


def response_loss(own: Fraction, other: Fraction) -> tuple[LossAtom, ...]:
    """The loss of a k-ary response: its own label with one probability, each other with another."""
    with localcontext(_DIGITS):
        return tuple(atom for atom in _two_sided(_decimal(own), _decimal(other)) if atom.prob)


def _two_sided(high: Decimal, low: Decimal) -> tuple[LossAtom, ...]:
    """The loss where one output has these probabilities under two outcomes, another the reverse."""
    loss = (high / low).ln()
    return LossAtom(loss, high), LossAtom(Decimal(0), 1 - high - low), LossAtom(-loss, low)


def total_epsilon(summary: tuple[LossAtom, ...], epsilon: float = 0.0) -> float:
    """The largest loss of a summary, plus ε, rounded up."""
    with localcontext(_DIGITS):
        return float_above(summary[0].loss + Decimal(epsilon))


def remaining_epsilon(epsilon: float, summary: tuple[LossAtom, ...]) -> float:
    """What a summary leaves of ε in the worst case, rounded down; 0 or less if nothing."""
    with localcontext(_DIGITS):
        return -float_above(summary[0].loss - Decimal(epsilon))


def largest_ratio(epsilon: float, denominator: int) -> Fraction:
    """e^ε as a fraction of that denominator, rounded down."""
    with localcontext(_DIGITS):
        return Fraction(int(Decimal(epsilon).exp() * denominator), denominator)


def row_epsilon(
    *, keep_prob: Fraction, prior_floor: Fraction, delta: float, summary: tuple[LossAtom, ...]
) -> float:
    """The smallest ε at which summary and rows together are (ε, δ)-label DP, rounded up.

    With keep = 1−λ the rows alone have, at any x ≥ 0, the hockey-stick divergence
    h(x) = max(0, keep + λγ(1 − e^x)); jointly δ(ε) = Σ P(loss) h(ε − loss). It is piecewise linear
    in e^ε. For δ = 0 it gives ε = 2/σ + log(1 + keep/(λγ)).
    """
    with localcontext(_DIGITS):
        keep, floor = _decimal(keep_prob), _decimal(prior_floor)
        low = (1 - keep) * floor  # P(released | another outcome), at the floor
        high = keep + low  # P(released | this outcome)
        if low == 0:
            raise ParameterError("a prior floor or resample probability of 0 gives no privacy")
        for active, next_loss in _active_sets(summary):
            weight = sum(atom.prob for atom in active)
            damped = sum(atom.prob * (-atom.loss).exp() for atom in active)
            ratio = (high * weight - Decimal(delta)) / (low * damped)
            if next_loss is None or ratio >= high / low * next_loss.exp():
                break
        # The formula for h holds for x ≥ 0 only, so ε is at least the summary's worst loss.
        worst = summary[0].loss
        return float_above(worst if ratio <= worst.exp() else ratio.ln())


def largest_keep_prob(
    *, epsilon: float, delta: float, prior_floor: Fraction, summary: tuple[LossAtom, ...]
) -> Decimal:
    """The largest 1−λ that stays within (ε, δ): the inverse of `row_epsilon`.

    For δ = 0 it is γr/(1+γr) with r = e^(ε − 2/σ) − 1.
    """
    with localcontext(_DIGITS):
        floor = _decimal(prior_floor)
        target = Decimal(epsilon).exp()
        for active, next_loss in _active_sets(summary):
            odds = [(atom.prob, floor * (target * (-atom.loss).exp() - 1)) for atom in active]
            numerator = Decimal(delta) + sum(prob * odd for prob, odd in odds)
            keep = numerator / sum(prob * (1 + odd) for prob, odd in odds)
            if next_loss is None:
                break
            next_odd = floor * (target * (-next_loss).exp() - 1)
            if keep <= next_odd / (1 + next_odd):
                break
        return min(keep, Decimal(1))


def noise_scale_for(sensitivity: Fraction, epsilon: float) -> float:
    """The smallest float scale whose discrete Laplace noise costs at most ε at this sensitivity."""
    with localcontext(_DIGITS):
        return float_above(_decimal(sensitivity) / Decimal(epsilon))


def _active_sets(
    summary: tuple[LossAtom, ...],
) -> Iterator[tuple[tuple[LossAtom, ...], Decimal | None]]:
    """Growing sets of the largest losses, each with the loss that would join next."""
    for count in range(1, len(summary) + 1):
        following = summary[count].loss if count < len(summary) else None
        yield summary[:count], following


def _decimal(fraction: Fraction) -> Decimal:
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def float_above(exact: Decimal | Fraction) -> float:
    """The smallest float that is not below `exact`."""
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def basic_composition(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Σε and Σδ, rounded up, for what all of them are for; one that costs nothing is for all."""
    # A table in which only a unit's outcome differs is a neighbor in either sense. One in which its
    # cluster differs, too, is a neighbor only where clusters are private.
    relations = {one.neighbours for one in guarantees if one.epsilon or one.delta}
    return Guarantee(
        epsilon=_sum_above([one.epsilon for one in guarantees]),
        delta=_sum_above([one.delta for one in guarantees]),
        neighbours=CLUSTER_AND_OUTCOME if relations == {CLUSTER_AND_OUTCOME} else OUTCOME,
    )


def _sum_above(numbers: Sequence[float]) -> float:
    """The smallest float that is not below the exact sum."""
    return float_above(sum(map(Fraction, numbers), Fraction(0)))
