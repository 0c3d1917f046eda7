"""What releases cost together, against closed forms and against enumeration."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import comb

import clusterdp as cdp
from clusterdp.privacy.accounting import ReleaseLoss, any_loss, basic_composition
from clusterdp.privacy.composition import ComposedLoss, to_distribution

if TYPE_CHECKING:
    from collections.abc import Hashable

SPACE = cdp.OutcomeSpace.integers(0, 3)
# What rounding losses up to a grid may add to the ε of each release, and δ of any.
GRID, LOST = 1e-4, 1e-12
MECHANISMS = {
    "cluster": cdp.cluster_dp(noise_scale=8, prior_floor=0.05, epsilon=1),
    "cluster, delta": cdp.cluster_dp(noise_scale=8, prior_floor=0.05, epsilon=1, delta=1e-3),
    "cluster, sums": cdp.cluster_dp(
        noise_scale=8, prior_floor=0.05, epsilon=1, sums=cdp.SumShares(clusters=0.2)
    ),
    "cluster-free": cdp.cluster_free_dp(noise_scale=8, prior_floor=0.05, epsilon=1),
    "uniform": cdp.uniform_prior_dp(epsilon=1),
    "optimal": cdp.optimal(epsilon=1),
    "optimal, delta": cdp.optimal(epsilon=1, delta=1e-3),
    "optimal, everything": cdp.optimal(epsilon=1, noise_scale=10, sums=cdp.SumShares(clusters=0.2)),
    "histogram": cdp.noisy_histogram(epsilon=1),
    "contrasts": cdp.noisy_horvitz_thompson(epsilon=1),
}


def enumerated_delta(losses: list[ReleaseLoss], epsilon: float) -> float:
    """δ(ε) = P(told) + Σ P(losses) max(0, 1 − e^(ε − Σ losses)), over all combinations."""
    told = 1 - math.prod(1 - loss.revealed for loss in losses)
    total = 0.0
    for atoms in itertools.product(*(loss.atoms for loss in losses)):
        joint = float(sum((atom.loss for atom in atoms), Decimal(0)))
        if joint > epsilon:
            total += math.prod(float(atom.prob) for atom in atoms) * -math.expm1(epsilon - joint)
    return told + (1 - told) * total


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_loss_is_a_distribution_and_within_the_guarantee(name: str) -> None:
    loss, stated = MECHANISMS[name].loss(SPACE), MECHANISMS[name].guarantee(SPACE)
    assert float(sum(atom.prob for atom in loss.atoms)) == pytest.approx(1, abs=1e-15)
    # Seen from the other outcome it is a distribution, too, and the same one.
    swapped = sorted((-atom.loss, atom.prob * (-atom.loss).exp()) for atom in loss.atoms)
    for (one_loss, one_prob), atom in zip(swapped, sorted(loss.atoms), strict=True):
        assert float(one_loss - atom.loss) == pytest.approx(0, abs=1e-15)
        assert float(one_prob) == pytest.approx(float(atom.prob), rel=1e-9)
    assert enumerated_delta([loss], stated.epsilon) <= stated.delta * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("names", [*itertools.combinations(MECHANISMS, 2), tuple(MECHANISMS)[:4]])
def test_releases_together_against_enumeration(names: tuple[str, ...]) -> None:
    losses = [MECHANISMS[name].loss(SPACE) for name in names]
    for epsilon in (0.1, 0.7, 1.3, 1.9):
        exact = enumerated_delta(losses, epsilon)
        found = ComposedLoss.from_losses(losses).delta(epsilon)
        assert exact <= found
        overstated = enumerated_delta(losses, epsilon - len(names) * GRID)
        assert found <= overstated + 10 * len(names) * LOST


@pytest.mark.parametrize(("n_releases", "epsilon"), [(2, 1.0), (16, 0.5), (50, 0.1)])
def test_equal_releases_against_the_closed_form(n_releases: int, epsilon: float) -> None:
    """Kairouz, Oh and Viswanath: the best composition of equal ε-DP releases."""
    losses = [ReleaseLoss(atoms=any_loss(epsilon))] * n_releases
    for share in (0.2, 0.5, 0.9):
        target = share * n_releases * epsilon
        known = (
            sum(
                comb(n_releases, flips)
                * max(
                    0.0,
                    math.exp((n_releases - flips) * epsilon) - math.exp(target + flips * epsilon),
                )
                for flips in range(n_releases + 1)
            )
            / (1 + math.exp(epsilon)) ** n_releases
        )
        assert known <= ComposedLoss.from_losses(losses).delta(target) * (1 + 1e-9)
        assert ComposedLoss.from_losses(losses).delta(target) == pytest.approx(
            known, rel=0.02, abs=1e-9
        )


def test_tight_is_never_worse_than_the_sum_by_more_than_the_grid() -> None:
    pure = [mechanism for name, mechanism in MECHANISMS.items() if "delta" not in name]
    losses = [mechanism.loss(SPACE) for mechanism in pure]
    in_sum = sum(float(loss.atoms[0].loss) for loss in losses)
    assert ComposedLoss.from_losses(losses).epsilon(1e-9) <= in_sum + len(losses) * GRID
    assert ComposedLoss.from_losses(losses).epsilon(1e-3) < 0.8 * in_sum
    assert ComposedLoss.from_losses(losses).epsilon(1e-15) == math.inf
    assert (
        ComposedLoss.from_losses([]).epsilon(1e-6) == ComposedLoss.from_losses([]).delta(1.0) == 0
    )


def test_one_more_is_one_more() -> None:
    losses = [mechanism.loss(SPACE) for mechanism in MECHANISMS.values()] * 2
    *first, last = losses
    together, stepwise = (
        ComposedLoss.from_losses(losses),
        ComposedLoss.from_losses(first).and_more(last),
    )
    assert together.n_releases == stepwise.n_releases == len(losses)
    for epsilon in (1.0, 5.0, 12.0):
        assert together.delta(epsilon) == pytest.approx(stepwise.delta(epsilon), abs=1e-11)


@pytest.mark.parametrize("epsilon", [1e-6, 20.0, 63.0, 65.0, 150.0, 1000.0, 1e6])
def test_losses_of_any_size(epsilon: float) -> None:
    """Beyond what floats can tell apart an outcome counts as told."""
    composed = ComposedLoss.from_losses([ReleaseLoss(atoms=any_loss(epsilon))] * 2)
    assert composed.delta(2 * (epsilon + GRID)) <= (1 if epsilon > 64 else 1e-11)
    assert composed.delta(epsilon / 2) >= enumerated_delta(
        [ReleaseLoss(atoms=any_loss(epsilon))] * 2, epsilon / 2
    ) * (1 - 1e-12)


def test_asymmetric_pairs_are_seen_from_both_sides() -> None:
    """With dp-accounting's default the second direction of this pair would go unnoticed."""
    one: dict[Hashable, float] = {0: math.log(0.999), 1: math.log(0.001)}
    other: dict[Hashable, float] = {0: math.log(0.5), 1: math.log(0.5)}
    for lower, upper in ((one, other), (other, one)):
        pair = to_distribution(lower, upper)
        # P(1) is 0.5 against 0.001: at ε = 1, δ is at least 0.5 − 0.001e.
        assert pair.get_delta_for_epsilon(1.0) >= 0.5 - 0.001 * math.e - 1e-12


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 0.1)), max_size=20))
def test_sums_are_rounded_up(parts: list[tuple[float, float]]) -> None:
    total = basic_composition([cdp.Guarantee(epsilon=e, delta=d) for e, d in parts])
    assert Fraction(total.epsilon) >= sum(Fraction(e) for e, _ in parts)
    assert Fraction(total.delta) >= sum(Fraction(d) for _, d in parts)
    assert total.epsilon == pytest.approx(math.fsum(e for e, _ in parts))
    assert total.delta == pytest.approx(math.fsum(d for _, d in parts))
