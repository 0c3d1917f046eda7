"""Standard errors of whole releases, whatever they are planned for: short lines of the bench.

In each line the standard error of a few releases is compared with what it should be, from the same
table: that of true outcomes and the variance of privacy that the release states. The longer bench
shows that these two are what the effects vary by. Bounds are so wide that a false alarm is below
`ALPHA`: over 2,000 releases of each line the ratio stayed within a third of the distance to them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.release_coverage import STUDIES, Study, chosen_effects, plan_study, true_numbers

import clusterdp as cdp

N_RELEASES = 12


def study(name: str) -> Study:
    return next(one for one in STUDIES if name in one.name)


def ratios(
    one: Study, purpose: str | None, epsilon: float, rng: np.random.Generator
) -> list[float]:
    """Standard errors over what they should be, release by release and effect by effect."""
    plan, found = plan_study(one, purpose, epsilon, rng), []
    for _ in range(N_RELEASES):
        table = one.table(rng)
        effects = chosen_effects(cdp.estimate(cdp.release(table, plan), **one.asked), one)
        for effect, (_, error, *_) in zip(effects, true_numbers(table, one), strict=True):
            found.append(effect.std_error / math.hypot(error, math.sqrt(effect.privacy_variance)))
    return found


@pytest.mark.parametrize(
    ("name", "purpose", "epsilon"),
    [
        ("79 schools", "overall", 2.0),
        ("three arms", "overall", 2.0),
        ("1% of 20,000", "overall", 1.0),
        ("10% missing", "overall", 2.0),
        ("30 groups of a breakdown", "breakdowns", 2.0),
    ],
)
@pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
def test_standard_errors_are_as_good_as_estimates(
    name: str, purpose: str, epsilon: float, rng: np.random.Generator
) -> None:
    """Rows of such plans carry a percent of ε: squares must not be read from them."""
    found = ratios(study(name), purpose, epsilon, rng)
    assert min(found) > 0.75
    assert max(found) < 1.35
    assert 0.9 < np.mean(found) < 1.15


def test_privacy_costs_little_where_a_cluster_lacks_an_arm(rng: np.random.Generator) -> None:
    """13 of 3,745 pupils are in a school without treatment, and in no effect."""
    one = study("79 schools")
    plan, table = plan_study(one, "overall", 2.0, rng), one.table(rng)
    (effect,) = chosen_effects(cdp.estimate(cdp.release(table, plan)), one)
    assert effect.privacy_share < 0.2


def test_there_is_no_interval_where_nothing_tells_how_groups_differ(
    rng: np.random.Generator,
) -> None:
    one = study("12 groups")
    plan = plan_study(one, "overall", 2.0, rng)
    found = cdp.estimate(cdp.release(one.table(rng), plan))
    (effect,) = found.effects
    if math.isnan(effect.std_error):
        assert not math.isnan(effect.effect)
        assert any("has no interval" in note for note in found.notes)
        assert "no interval" in str(found)


def test_an_adjusted_effect_that_noise_decides_is_not_reported(rng: np.random.Generator) -> None:
    one = study("adjusted")
    for purpose, adjusted in (("overall", False), ("segments", True)):
        plan = plan_study(one, purpose, 4.0, rng)
        found = cdp.estimate(cdp.release(one.table(rng), plan), **one.asked)
        assert [effect.of.adjusted for effect in chosen_effects(found, one)] == [adjusted]


def test_degrees_know_how_few_events_there_were(rng: np.random.Generator) -> None:
    """Of k events an arm's variance has about 2k degrees of freedom, however many units."""
    table = study("1% of 20,000").table(rng)
    few = table.with_columns(sold=(table["id"] < 8).cast(int))
    options = {"unit": "id", "arm": "arm", "outcomes": {"sold": "0,1"}, "epsilon": 20.0}
    found = cdp.estimate(cdp.release(few, **options))
    assert found.effects[0].degrees < 40
    many = table.with_columns(sold=(table["id"] < 2000).cast(int))
    assert math.isinf(cdp.estimate(cdp.release(many, **options)).effects[0].degrees)
