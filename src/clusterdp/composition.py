"""What several releases of the same people cost together.

Basic composition adds up ε and δ; it holds whatever the releases are and however they were chosen.
Where a δ is allowed, the distribution of the joint privacy loss (PLD, by dp-accounting) shows that
many releases cost less than their sum: their losses seldom are large all at once.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

from clusterdp.accounting import EXACT, Guarantee, float_above

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from clusterdp.accounting import ReleaseLoss

# Losses are rounded up to multiples of this, so each release is overstated by at most as much.
_LOSS_GRID = 1e-4
# Convolutions of floats may lose this much probability per release; it is added to every δ.
_LOST_MASS = 1e-12
# A release that can tell more than this is taken to tell everything.
_LARGEST_LOSS = 100


def basic_composition(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Σε and Σδ, rounded up."""
    with localcontext(EXACT):
        return Guarantee(
            epsilon=float_above(sum((Decimal(one.epsilon) for one in guarantees), Decimal(0))),
            delta=float_above(sum((Decimal(one.delta) for one in guarantees), Decimal(0))),
        )


def tight_delta(losses: Sequence[ReleaseLoss], epsilon: float) -> float:
    """The δ at which all releases together are (ε, δ)-label DP, rounded up.

    It holds for releases whose parameters were not chosen by what earlier ones showed.
    """
    if not losses:
        return 0.0
    if _tells_all(losses):
        return 1.0
    found = float(_compose(losses).get_delta_for_epsilon(epsilon))
    return min(1.0, found + len(losses) * _LOST_MASS)


def tight_epsilon(losses: Sequence[ReleaseLoss], delta: float) -> float:
    """The ε at which all releases together are (ε, δ)-label DP; infinite if δ is too small."""
    if not losses:
        return 0.0
    allowed = delta - len(losses) * _LOST_MASS
    if allowed <= 0 or _tells_all(losses):
        return math.inf
    return float(_compose(losses).get_epsilon_for_delta(allowed))


def _tells_all(losses: Sequence[ReleaseLoss]) -> bool:
    return any(atom.loss > _LARGEST_LOSS for loss in losses for atom in loss.atoms)


def _compose(losses: Sequence[ReleaseLoss]) -> PrivacyLossDistribution:
    total = None
    for loss in losses:
        one = to_distribution(*_pair(loss))
        total = one if total is None else total.compose(one)
    return total


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
    from dp_accounting.pld import privacy_loss_distribution as pld

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
    share = math.log1p(-loss.revealed)
    for place, atom in enumerate(loss.atoms):
        upper[place] = share + float(atom.prob.ln())
        lower[place] = upper[place] - float(atom.loss)
    if loss.revealed:
        upper["told it is one"] = lower["told it is the other"] = math.log(loss.revealed)
    return lower, upper
