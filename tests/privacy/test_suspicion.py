"""How far a suspicion can move, against mechanisms that are enumerated."""

from __future__ import annotations

import math

import pytest

from clusterdp.privacy.accounting import SLACK, Guarantee, belief_shifts

BEFORE = (0.5, 0.1, 0.01)
EPSILONS = (0.1, 1.0, 2.0, 8.0)


def posteriors(before: float, likelihoods: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of each output, its probability if the suspicion is true, and the belief after it."""
    return [
        (true, before * true / (before * true + (1 - before) * false))
        for true, false in likelihoods
        if true or false
    ]


def percent(text: str) -> float:
    return float(text.removesuffix("%")) / 100


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response_reaches_the_bounds(epsilon: float) -> None:
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    for before, told in zip(BEFORE, belief_shifts(Guarantee(epsilon=epsilon)), strict=True):
        assert percent(told[0]) == before
        beliefs = [after for _, after in posteriors(before, [(keep, 1 - keep), (1 - keep, keep)])]
        # Rounded outwards, by one in the last digit at most.
        assert percent(told[1]) <= min(beliefs)
        assert max(beliefs) <= percent(told[2])
        assert percent(told[2]) - max(beliefs) < 0.0101
        assert min(beliefs) - percent(told[1]) < 0.0101


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-6, 0.01])
def test_beliefs_move_further_only_with_twice_delta(epsilon: float, delta: float) -> None:
    """A mechanism that reveals the outcome with probability delta, and one beside it."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    rest = 1 - delta
    outputs = [
        (delta, 0.0),
        (0.0, delta),
        (rest * keep, rest * (1 - keep)),
        (rest * (1 - keep), rest * keep),
    ]
    told = belief_shifts(Guarantee(epsilon=epsilon, delta=delta))
    for before, bound in zip(BEFORE, told, strict=True):
        after = posteriors(before, outputs)
        beyond = [prob for prob, one in after if one > percent(bound[2])]
        beyond += [prob for prob, one in after if one < percent(bound[1])]
        assert sum(beyond) <= SLACK * delta
        assert sum(beyond) > 0  # or the bound would be too wide to be of use


def test_what_is_certain_is_not_rounded_away() -> None:
    (even, _, rare) = belief_shifts(Guarantee(epsilon=12))
    assert even[2] != "100%"
    assert percent(rare[1]) >= 0
