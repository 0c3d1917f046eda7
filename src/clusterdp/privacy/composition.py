"""What several releases about the same people cost in total.

Basic composition (`privacy/accounting.py: basic_composition`) adds up ε and δ. It holds for any
releases, however they were chosen. If a δ is allowed, the distribution of the joint privacy loss
(PLD, by dp-accounting) shows that many releases cost less than their sum: their losses are rarely
large simultaneously.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from clusterdp.errors import ClusterDPError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from clusterdp.privacy.accounting import LossAtom, ReleaseLoss

# Losses are rounded up to multiples of this, so each release is overstated by at most as much.
_LOSS_GRID = 1e-4
# A larger loss counts as revealing the outcome. A release that reveals it with a larger probability
# than this is treated as one that always does.
_LARGEST_LOSS, _LARGEST_REVEALED_PROB = 64, 1 - 1e-6
# Convolutions of floats may lose this much probability per release; it is added to every δ.
_LOST_MASS = 1e-12


def split_budget(total: float | None, shares: Sequence[float]) -> tuple[float | None, ...]:
    """A budget in parts whose exact sum is at most the whole; None in as many parts if it is None.

    The last part is what the others leave, if its share is.
    """
    if total is None:
        return (None,) * len(shares)
    first = [total * share for share in shares[:-1]]
    left = Fraction(total) - sum(map(Fraction, first), Fraction(0))
    last = min(total * shares[-1], float(left)) if len(shares) > 1 else total
    while Fraction(last) > left:
        last = math.nextafter(last, 0.0)
    return (*first, last)


@dataclass(frozen=True, slots=True)
class ComposedLoss:
    """Several releases together: what they cost, and what they would cost with one more.

    The results hold if no parameter was chosen from the results of earlier releases.

    Attributes:
        n_releases: How many.
        distribution: Their joint privacy loss; None if there are no releases, or if one of them
            reveals the outcome.
        reveals_outcome: Whether one of them reveals the outcome, so that no δ below 1 holds.
    """

    n_releases: int
    distribution: PrivacyLossDistribution | None
    reveals_outcome: bool

    @classmethod
    def from_losses(cls, losses: Sequence[ReleaseLoss]) -> ComposedLoss:
        """Some releases together."""
        total = cls(n_releases=0, distribution=None, reveals_outcome=False)
        for loss, times in Counter(losses).items():
            total = total.and_more(loss, times)
        return total

    def and_more(self, loss: ReleaseLoss, times: int = 1) -> ComposedLoss:
        """These and some more of a kind."""
        n_releases = self.n_releases + times
        if self.reveals_outcome or _revealed_prob(loss) > _LARGEST_REVEALED_PROB:
            return ComposedLoss(n_releases=n_releases, distribution=None, reveals_outcome=True)
        more = to_distribution(*_pair(loss))
        if times > 1:
            more = more.self_compose(times)
        if self.distribution is not None:
            more = self.distribution.compose(more)
        return ComposedLoss(n_releases=n_releases, distribution=more, reveals_outcome=False)

    def delta(self, epsilon: float) -> float:
        """The δ at which all of them are (ε, δ)-label DP, rounded up."""
        if self.distribution is None:
            return float(self.reveals_outcome)
        found = float(self.distribution.get_delta_for_epsilon(epsilon))
        return min(1.0, found + self.n_releases * _LOST_MASS)

    def epsilon(self, delta: float) -> float:
        """The ε at which all of them are (ε, δ)-label DP; infinite if δ is too small."""
        if self.distribution is None:
            return math.inf if self.reveals_outcome else 0.0
        allowed = delta - self.n_releases * _LOST_MASS
        return float(self.distribution.get_epsilon_for_delta(allowed)) if allowed > 0 else math.inf


def to_distribution(
    lower: Mapping[Hashable, float], upper: Mapping[Hashable, float]
) -> PrivacyLossDistribution:
    """The PLD of a pair of distributions, in both directions.

    Left to its default, dp-accounting takes a pair for symmetric and looks at one direction only,
    which understates the loss of pairs that are not.

    Args:
        lower: Log-probabilities of outputs if one outcome is true.
        upper: The same if the other is.
    """
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        raise ClusterDPError(
            "the tight composition needs dp-accounting: pip install '.[ledger]'"
        ) from None
    return pld.from_two_probability_mass_functions(
        lower,
        upper,
        pessimistic_estimate=True,
        value_discretization_interval=_LOSS_GRID,
        symmetric=False,
    )


def _pair(loss: ReleaseLoss) -> tuple[dict[Hashable, float], dict[Hashable, float]]:
    """Two distributions with that loss, as log-probabilities: what a release is no better than."""
    lower: dict[Hashable, float] = {}
    upper: dict[Hashable, float] = {}
    share, revealed_prob = math.log1p(-loss.revealed), _revealed_prob(loss)
    for place, atom in enumerate(_finite(loss)):
        upper[place] = share + float(atom.prob.ln())
        lower[place] = upper[place] - float(atom.loss)
    if revealed_prob:
        upper["reveals one"] = lower["reveals the other"] = math.log(revealed_prob)
    return lower, upper


def _finite(loss: ReleaseLoss) -> list[LossAtom]:
    return [atom for atom in loss.atoms if abs(atom.loss) <= _LARGEST_LOSS]


def _revealed_prob(loss: ReleaseLoss) -> float:
    """The probability that a release counts as revealing the outcome."""
    counted = _finite(loss)
    if len(counted) == len(loss.atoms):
        return loss.revealed
    return 1 - (1 - loss.revealed) * float(sum(atom.prob for atom in counted))
