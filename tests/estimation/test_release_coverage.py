"""Standard errors of whole releases, whatever they are planned for: short lines of the bench.

In each line the standard error of a few releases is compared with what it should be, from the same
table: that of true outcomes and the variance of privacy that the release states. The bench shows
that these two are what effects vary by. Over 100 releases of a line, with splits near these, the
ratio had a standard deviation of 0.006 to 0.02 (0.05 for groups of a breakdown). So bounds are
seven of them away or more: a false alarm is below `ALPHA`, if the ratio is about normal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from bench.release_coverage import STUDIES, Study, chosen_effects, true_numbers

import clusterdp as cdp

N_RELEASES = 12
# Rows have a percent of ε, as is best for the overall effect alone.
OVERALL = {"totals_share": 0.99, "sums_share": 0.0}
GROUPS = {"totals_share": 0.04, "sums_share": 0.0, "breakdown_share": 0.95}

pytestmark = pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")


def find_study(name: str) -> Study:
    return next(one for one in STUDIES if name in one.name)


def release(study: Study, table: Any, epsilon: float, **shares: Any) -> cdp.Release:
    return cdp.release(table, unit="id", arm="arm", epsilon=epsilon, **study.options, **shares)


@pytest.mark.parametrize(
    ("name", "shares", "epsilon"),
    [
        ("79 schools", {"totals_share": 0.96, "sums_share": 0.035}, 2.0),
        ("three arms", OVERALL, 2.0),
        ("1% of 20,000", OVERALL, 1.0),
        ("10% missing", OVERALL, 2.0),
        ("30 groups of a breakdown", GROUPS, 2.0),
    ],
)
def test_standard_errors_are_as_good_as_estimates(
    name: str, shares: dict[str, float], epsilon: float, rng: np.random.Generator
) -> None:
    """Squares are not read from rows that carry a percent of ε."""
    study, found = find_study(name), []
    for _ in range(N_RELEASES):
        table = study.table(rng)
        estimate = cdp.estimate(release(study, table, epsilon, **shares), **study.asked)
        pairs = zip(chosen_effects(estimate, study), true_numbers(table, study), strict=True)
        for effect, (_, error, *_) in pairs:
            found.append(effect.std_error / math.hypot(error, math.sqrt(effect.privacy_variance)))
    assert min(found) > 0.6
    assert max(found) < 1.4
    assert 0.9 < np.mean(found) < 1.15


def test_privacy_costs_little_where_a_cluster_lacks_an_arm(rng: np.random.Generator) -> None:
    """13 of 3,745 pupils are in a school without treatment, and in no effect."""
    study = find_study("79 schools")
    table = study.table(rng)
    (effect,) = cdp.estimate(release(study, table, 2.0, **OVERALL)).effects
    ((_, error, *_),) = true_numbers(table, study)
    assert math.sqrt(effect.privacy_variance) < 0.5 * error


def test_there_is_no_interval_where_nothing_tells_how_groups_differ(
    rng: np.random.Generator,
) -> None:
    """With totals of the groups there is one."""
    study, given = find_study("12 groups"), OVERALL | {"breakdown_share": 0.0}
    found = cdp.estimate(release(study, study.table(rng), 2.0, **given))
    (effect,) = found.effects
    assert math.isnan(effect.std_error)
    assert not math.isnan(effect.effect)
    assert any("has no interval" in note for note in found.notes)
    given = {"totals_share": 0.5, "sums_share": 0.0, "breakdown_share": 0.4}
    (effect,) = cdp.estimate(release(study, study.table(rng), 2.0, **given)).effects
    assert effect.std_error > 0
    assert 1 < effect.degrees < 11


@pytest.mark.parametrize(("share", "adjusted"), [(0.99, False), (0.1, True)])
def test_an_adjusted_effect_that_noise_decides_is_not_reported(
    share: float, adjusted: bool, rng: np.random.Generator
) -> None:
    study = find_study("adjusted")
    given = release(study, study.table(rng), 4.0, totals_share=share, sums_share=0.0)
    found = chosen_effects(cdp.estimate(given, **study.asked), study)
    assert [effect.of.adjusted for effect in found] == [adjusted]


def test_degrees_know_how_few_events_there_were(rng: np.random.Generator) -> None:
    """Of k events an arm's variance has about 2k degrees of freedom, however many units."""
    study = find_study("1% of 20,000")
    table = study.table(rng)
    few, many = (table.with_columns(sold=(table["id"] < n).cast(int)) for n in (8, 2000))
    assert cdp.estimate(release(study, few, 20.0)).effects[0].degrees < 40
    assert math.isinf(cdp.estimate(release(study, many, 20.0)).effects[0].degrees)
