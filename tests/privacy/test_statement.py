"""What a guarantee means: its words, and its numbers against mechanisms that are enumerated."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.privacy.accounting import CLUSTER_AND_OUTCOME, Guarantee
from clusterdp.privacy.statement import SLACK, percent_rounded_up, rounded_up

BEFORE = (0.5, 0.1, 0.01)
EPSILONS = (0.1, 1.0, 2.0, 8.0)


def posteriors(before: float, likelihoods: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of each output, its probability if the statement is true, and the belief after it."""
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
    for before, told in zip(BEFORE, Guarantee(epsilon=epsilon).statement().bounds(), strict=True):
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
    told = Guarantee(epsilon=epsilon, delta=delta).statement().bounds()
    for before, bound in zip(BEFORE, told, strict=True):
        after = posteriors(before, outputs)
        beyond = [prob for prob, one in after if one > percent(bound[2])]
        beyond += [prob for prob, one in after if one < percent(bound[1])]
        assert sum(beyond) <= SLACK * delta
        assert sum(beyond) > 0  # or the bound would be too wide to be of use


def test_what_is_certain_is_not_rounded_away() -> None:
    (even, _, rare) = Guarantee(epsilon=12).statement().bounds()
    assert even[2] != "100%"
    assert percent(rare[1]) >= 0


def percent_of(text: str) -> float:
    """The largest percentage of a text."""
    return max(float(found) for found in re.findall(r"([\d.]+)%", text))


@given(st.floats(0.01, 15), st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.1]))
def test_odds_are_those_of_the_worst_mechanism_rounded_up(epsilon: float, delta: float) -> None:
    """Randomized response, which publishes the outcome itself with probability δ, attains them."""
    truth = 1 / (1 + np.exp(-epsilon))
    right = 100 * (delta + (1 - delta) * truth)
    stated = percent_of(Guarantee(epsilon=epsilon, delta=delta).statement().plain)
    assert right - 1e-9 <= stated < 100
    assert stated - right <= max(1.0, 10 * (100 - right))


def test_the_statements_of_a_release() -> None:
    stated = Guarantee(epsilon=2).statement()
    assert stated.formal == (
        "Everything in this release, taken together, is (ε, δ)-label differentially private with "
        "ε = 2 and δ = 0, with respect to replacing one unit's outcomes by any other allowed ones."
    )
    assert stated.plain == (
        "A reader who knows every other unit's outcomes and is 50% sure of one unit's outcome can "
        "be at most 89% sure after reading the release."
    )
    assert stated.short == "reader who knows all other units' outcomes: 50% sure → at most 89%"
    assert stated.limits == (
        "Not protected: that a unit took part, its public columns, and what other units' outcomes "
        "suggest about it. Privacy losses of several releases about the same units add up."
    )
    assert str(stated) == f"ε = 2, δ = 0, one unit's outcomes (label DP). {stated.plain}"
    assert str(Guarantee(epsilon=2)) == str(stated)


def test_with_delta_odds_are_not_bounded_so_nothing_is_said_of_them() -> None:
    stated = Guarantee(epsilon=2, delta=1e-6).statement()
    assert stated.plain == (
        "A reader who knows every other unit's outcomes, and finds two outcomes of one unit "
        "equally likely, guesses the true one at most 89% of the time."
    )
    assert "sure" not in stated.plain + stated.short
    assert "δ = 1e-06" in stated.formal
    assert "probability at most 2δ" in stated.bounds_lead


def test_private_clusters_and_the_name_of_units_are_in_every_statement() -> None:
    for delta in (0.0, 1e-6):
        guarantee = Guarantee(epsilon=2, delta=delta, neighbours=CLUSTER_AND_OUTCOME)
        stated = guarantee.statement("household")
        for text in (stated.formal, stated.plain, stated.short, stated.limits, stated.bounds_lead):
            assert "cluster and outcome" in text
            assert "household" in text
            assert "unit" not in text
    assert "an account took part" in Guarantee(epsilon=1).statement("account").limits
    assert "companies' outcomes" in Guarantee(epsilon=1).statement("company").short


def test_an_epsilon_that_protects_nothing_says_so() -> None:
    assert "99.99%" in Guarantee(epsilon=9).statement().plain
    stated = Guarantee(epsilon=1000).statement()
    for text in (stated.plain, stated.short):
        assert "no meaningful protection: an undecided reader can become practically" in text


@pytest.mark.parametrize(
    ("number", "shown"),
    [(2.0, "2"), (0.0, "0"), (2.80266, "2.8027"), (1e-6, "1e-06"), (10.0, "10"), (0.5, "0.5")],
)
def test_numbers_of_guarantees_are_rounded_up_without_a_last_zero(
    number: float, shown: str
) -> None:
    assert rounded_up(number) == shown


@pytest.mark.parametrize(
    ("prob", "shown"),
    [(0.5, "50%"), (0.881, "89%"), (0.99, "99%"), (0.9931, "99.4%"), (0.99994, "99.994%")],
)
def test_percentages_are_rounded_up_and_never_full(prob: float, shown: str) -> None:
    assert percent_rounded_up(prob) == shown
    assert percent_rounded_up(1.0) == "over 99.999999%"


# Words that only privacy sentences have.
SENTENCES = re.compile(r"50% sure|differentially private with|undecided reader|reader who knows")


def test_no_other_module_has_a_privacy_sentence() -> None:
    source = Path(__file__).parents[2] / "src" / "clusterdp"
    files = [one for one in source.rglob("*") if one.suffix in {".py", ".html", ".js", ".md"}]
    found = {one.name for one in files if SENTENCES.search(one.read_text(encoding="utf-8"))}
    assert found == {"statement.py"}
