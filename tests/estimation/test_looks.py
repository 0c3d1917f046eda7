"""Looking more than once: boundaries, false alarms over all looks, and what people see of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.effects.looks import (
    AnytimeLook,
    PlannedLook,
    parse_look,
    spending_boundaries,
    spent_alpha,
)

ARMS: dict[str, Any] = {"unit": "user", "arm": "treated"}


@pytest.mark.parametrize(
    ("planned", "published"),
    [
        # Lan and DeMets with O'Brien–Fleming spending, two-sided 5%: tables of the method.
        (1, [1.960]),
        (2, [2.963, 1.969]),
        (3, [3.710, 2.511, 1.993]),
        (4, [4.333, 2.963, 2.359, 2.014]),
        (5, [4.877, 3.357, 2.680, 2.290, 2.031]),
    ],
)
def test_boundaries_are_those_published(planned: int, published: list[float]) -> None:
    assert np.allclose(spending_boundaries(0.05, planned), published, atol=6e-4)


@pytest.mark.parametrize("alpha", [0.2, 0.01])
@pytest.mark.parametrize("planned", [3, 8])
def test_each_look_spends_what_is_planned(
    alpha: float, planned: int, rng: np.random.Generator
) -> None:
    """Paths of a Brownian motion first cross as often as spending says, at every look."""
    n_paths = 400_000
    steps = rng.normal(size=(n_paths, planned)).cumsum(axis=1)
    reaches = np.abs(steps) / np.sqrt(np.arange(1, planned + 1))
    crossed = reaches >= spending_boundaries(alpha, planned)
    first = np.where(crossed.any(axis=1), crossed.argmax(axis=1), planned)
    found = np.bincount(first, minlength=planned + 1)[:planned]
    expected = np.diff(spent_alpha(alpha, np.arange(1, planned + 1) / planned), prepend=0.0)
    p_values = [
        stats.binomtest(int(one), n_paths, float(prob)).pvalue
        for one, prob in zip(found, expected, strict=True)
        if prob > 0
    ]
    assert min(p_values) > ALPHA / planned


def test_eight_looks_find_an_effect_that_is_none_as_rarely_as_one(rng: np.random.Generator) -> None:
    """In 10,000 experiments of eight batches with randomized binary rows, at ε = 2.

    Single intervals would in 17%.
    """
    n_experiments, planned, n_arm = 10_000, 8, 400
    keep = math.exp(2) / (1 + math.exp(2))
    prob = keep * 0.3 + (1 - keep) * 0.7  # of a response of one, in both arms
    ones = rng.binomial(n_arm, prob, size=(2, n_experiments, planned)).cumsum(axis=-1)
    shares = ones / (n_arm * np.arange(1, planned + 1))
    errors = np.sqrt((shares * (1 - shares)).sum(axis=0) / (n_arm * np.arange(1, planned + 1)))
    z_values = np.abs(shares[1] - shares[0]) / errors  # debiasing scales both
    alarms = (z_values >= spending_boundaries(0.05, planned)).any(axis=1).mean()
    naive = (z_values >= 1.96).any(axis=1).mean()
    # That is 5% in the limit of many units; 5.5% is promised.
    reach = stats.norm.isf(ALPHA) * math.sqrt(0.055 * 0.945 / n_experiments)
    assert alarms <= 0.055 + reach
    assert alarms >= 0.045 - reach
    assert naive > 0.14
    assert spending_boundaries(0.05, planned)[-1] <= 1.07 * stats.norm.isf(0.025)


def test_any_number_of_looks(rng: np.random.Generator) -> None:
    """Thousands of looks at most as often as α together, and 1.55 times as long at the best."""
    n_experiments, n_looks, aim = 4000, 2000, 1000
    steps = rng.normal(size=(n_experiments, n_looks)).cumsum(axis=1)
    units = np.arange(1, n_looks + 1)
    z_values = np.abs(steps) / np.sqrt(units)
    reaches = np.array(
        [stats.norm.isf(AnytimeLook(share=one / aim, aim=aim).nominal(0.05) / 2) for one in units]
    )
    alarms = int((z_values >= reaches).any(axis=1).sum())
    assert stats.binomtest(alarms, n_experiments, 0.05, alternative="greater").pvalue > ALPHA
    assert math.isclose(reaches[aim - 1] / 1.96, 1.55, abs_tol=0.005)
    fixed = (z_values >= 2.5).any(axis=1).mean()  # a boundary that stays is crossed in the end
    assert fixed > 0.1


@pytest.mark.parametrize(
    "look",
    [
        PlannedLook(number=1, planned=1),
        PlannedLook(number=3, planned=8),
        PlannedLook(number=8, planned=8),
        PlannedLook(number=20, planned=52),
        AnytimeLook(share=0.3, aim=1000),
    ],
)
def test_a_p_value_is_the_least_alpha_whose_interval_leaves_out_zero(look: Any) -> None:
    for alpha in (1e-4, 0.01, 0.05, 0.2, 0.5):
        assert math.isclose(look.p_value(look.nominal(alpha)), alpha, rel_tol=2e-3)
    singles = np.geomspace(1e-12, 1, 50)
    found = [look.p_value(one) for one in singles]
    assert all(single <= one * (1 + 1e-3) for single, one in zip(singles, found, strict=True))
    assert np.all(np.diff(found) >= 0)


def test_one_look_of_one_changes_nothing() -> None:
    look = PlannedLook(number=1, planned=1)
    for alpha in (0.001, 0.05, 0.5):
        assert math.isclose(look.nominal(alpha), alpha, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("look", "anytime", "message"),
    [
        ("3 of 8", None, "look must be which of how many"),
        ("9/8", None, "must be from 1/N to N/N"),
        ("0/8", None, "must be from 1/N to N/N"),
        (3, None, "look must be which of how many"),
        ("1/1000", None, "at most 200"),
        ("3/8", 1000, "leave out one of them"),
        (None, 0, "anytime must be a number of units"),
        (None, True, "anytime must be a number of units"),
    ],
)
def test_other_looks_are_rejected(look: Any, anytime: Any, message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        parse_look(look, anytime, 1000)


@pytest.mark.parametrize("options", [{"look": "2/3"}, {"anytime": 600}])
def test_every_interval_and_p_value_is_wider(table: Any, options: dict[str, Any]) -> None:
    """Of means, quantiles and ratios, in segments, and all at once; estimates stay."""
    release = cdp.release(
        table,
        **ARMS,
        outcomes={"clicks": cdp.OutcomeSpace.integers(0, 3)},
        mechanism=cdp.optimal(epsilon=8),
    )
    asked: dict[str, Any] = {"metrics": ["clicks", "p90(clicks)", "clicks/(clicks>=1)"]}
    single = cdp.estimate(release, **asked)
    found = cdp.estimate(release, **asked, **options)
    for one, wider in zip(single.effects, found.effects, strict=True):
        assert one.effect == wider.effect
        (low, high), (least, most) = one.ci(), wider.ci()
        assert least <= low
        assert most >= high
        assert wider.p_value >= one.p_value * (1 - 1e-3)
        assert (wider.p_value < 0.05) == (not least <= 0 <= most)
    effect = found["clicks"]
    look = found.look
    assert look is not None
    reach = stats.norm.isf(look.nominal(0.05) / 2) * effect.std_error
    assert math.isclose(effect.ci()[1] - effect.effect, reach, rel_tol=1e-6)


def test_pages_and_screens_show_the_look(table: Any) -> None:
    release = cdp.release(
        table,
        **ARMS,
        outcomes={"clicks": cdp.OutcomeSpace.integers(0, 3)},
        mechanism=cdp.optimal(epsilon=8),
    )
    found = cdp.estimate(release, look="2/3")
    assert "Look 2 of 3" in str(found)
    page = found.to_html()
    assert "over all looks" in page
    assert "SEs from zero" in page
    assert "over all looks" not in cdp.estimate(release).to_html()
    assert any("any number of looks" in note for note in cdp.estimate(release, anytime=600).notes)
