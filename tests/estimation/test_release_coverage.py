"""Standard errors of whole releases, whatever they are planned for: short lines of the bench.

In each line the standard error of a few releases is compared with what it should be, from the same
table: that of true outcomes and the variance of privacy that the release states. The bench shows
that these two are what effects vary by. Over 100 releases of a line, with splits near these, the
ratio had a standard deviation of 0.006 to 0.035 (0.05 for groups of a breakdown). So bounds are
seven of them away or more: a false alarm is below `ALPHA`, if the ratio is about normal.
"""

from __future__ import annotations

import math
import pickle
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import opendp.measurements
import polars as pl
import pytest
from bench import release_coverage, release_lines
from bench.release_draws import (
    STUDIES,
    Replicates,
    Study,
    chosen_effects,
    compare,
    plan_study,
    predictions,
    replicate,
    right_baseline,
    true_numbers,
)

import clusterdp as cdp
from clusterdp.cells.layout import EVERYONE, Layout
from clusterdp.estimation.means.arms import ArmMeans, GroupScores

if TYPE_CHECKING:
    from pathlib import Path

N_RELEASES = 12
# Rows have a percent of ε, as is best for the overall effect alone.
OVERALL = {"totals_share": 0.99, "sums_share": 0.0}
GROUPS = {"totals_share": 0.04, "sums_share": 0.0, "breakdown_share": 0.95}

pytestmark = pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")


def find_study(name: str) -> Study:
    return next(one for one in STUDIES if name in one.name)


@cache
def known_baseline(name: str) -> dict[str, str]:
    return right_baseline(find_study(name), np.random.default_rng())


def release(study: Study, table: Any, epsilon: float, **shares: Any) -> cdp.Release:
    options = study.options | {"baseline": known_baseline(study.name)} | shares
    return cdp.release(table, unit="id", arm="arm", epsilon=epsilon, **options)


@pytest.mark.parametrize("n_before", [1, 2, 3])
def test_a_line_stays_until_a_later_program_has_measured_it_as_often(
    n_before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = find_study("a score without")
    task = release_coverage.Task(STUDIES.index(study), "overall", 4.0, 0, tmp_path / "later" / "4")
    other = task._replace(epsilon=2.0, file=tmp_path / "later" / "2")

    def before(_: str, header: tuple[str, ...]) -> list[list[str]]:
        ends = ["95%", "95%", "1.00", "0.50 to 1.50", "0.9 to 1.1", "1", "1", "1", "1", "1.00"]
        numbers = [str(n_before), *ends, *["before"] * (len(header) - 15)]
        lines = [[*one.what, "overall", *numbers] for one in (task, other)]
        return lines if header == release_lines.HEADER else []

    monkeypatch.setattr(release_coverage, "written_rows", before)
    monkeypatch.setattr(release_coverage, "_AT_ONCE", 2)
    task.file.parent.mkdir()
    task.file.write_bytes(pickle.dumps(replicate(study, "overall", 4.0, 2)))
    rows = release_coverage.rows_of([other, task])
    kept, measured = rows.intervals
    assert kept[-1] == "before"
    # What was published is judged anew, with the Monte Carlo error of three replicates at most.
    assert kept[-2] == "before"
    assert measured[-1] == ("before" if n_before == 3 else "later")
    assert len(measured) == len(release_lines.HEADER)
    assert not rows.tests
    page = release_coverage.page(rows, 1.0)
    assert "of 2 lines are as wanted" in page
    assert "95%" in page.partition("Over all lines coverage is ")[2].partition(",")[0]


@pytest.mark.parametrize(("n_replicates", "verdict"), [(100, []), (2000, ["spread"])])
def test_a_spread_is_judged_with_its_monte_carlo_error(
    n_replicates: int, verdict: list[str], rng: np.random.Generator
) -> None:
    """±16.5% where ±15% is wanted: its standard error is 1.45% over 100 releases, 0.33% over 2,000.

    That of half the distance of percentiles is `0.88/√n` of it (normal numbers): simulated here.
    """
    drawn = np.quantile(rng.normal(size=(2000, 500)), [0.05, 0.95], axis=1)
    halves = (drawn[1] - drawn[0]) / 2
    # 5 standard errors of a standard deviation of 2,000 numbers.
    assert halves.std() / 1.645 == pytest.approx(0.88 / math.sqrt(500), rel=5 / math.sqrt(4000))
    ones = ("ratio", "length", "deviation", "plain_deviation", "privacy", "predicted")
    known: dict[str, Any] = dict.fromkeys(ones, 1.0) | {"coverage": 0.95, "without": 0.95}
    known |= {"n_replicates": n_replicates, "n_intervals": 2000, "none": 0.0, "what": ("a",)}
    known |= {"low": 0.835, "high": 1.165, "plain_low": 0.99, "plain_high": 1.01}
    assert release_lines.Line(**known).misses() == verdict


@pytest.mark.parametrize("follows", [True, False])
def test_halves_show_whether_errors_of_estimates_vary_as_stated(
    follows: bool, rng: np.random.Generator
) -> None:
    """Where they do not, SE/SD of the larger half is 1.6 times that of the smaller.

    Each has a Monte Carlo standard error of 1.6%: a false alarm is below `ALPHA`.
    """
    stated = np.exp(rng.normal(0, 0.3, (4000, 1)))
    errors = rng.normal(size=stated.shape)
    effects, reach = errors * (stated if follows else 1.0), 1.96 * stated
    private = np.stack([effects, stated, effects - reach, effects + reach, reach], axis=-1)
    plain = np.stack([errors, 1.0 + 0 * reach, errors - 1.96, errors + 1.96], axis=-1)
    what, clips = ("a", "b", "1"), np.zeros(len(stated))
    found = Replicates(what, ("overall",), (private,), (plain,), [], (1.0,), clips)
    (cells,) = release_lines.halves_cells(found)
    smaller, larger = map(float, cells[5:7])
    assert (larger / smaller < 1.2) == follows


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
        table = study.draw(rng)
        purpose = None if study.groups else "overall"
        estimate = study.estimate(release(study, table, epsilon, **shares), purpose)
        effects, truth = chosen_effects(estimate, study)[0], true_numbers(table, study)[0]
        pairs = zip(effects, truth, strict=True)
        for effect, (_, error, *_) in pairs:
            found.append(effect.std_error / math.hypot(error, math.sqrt(effect.privacy_variance)))
    assert min(found) > 0.6
    assert max(found) < 1.4
    assert 0.9 < np.mean(found) < 1.15


@pytest.mark.parametrize("spreads", [(5.0, 18.0), (18.0, 5.0)])
@pytest.mark.parametrize("shares", [OVERALL, {"totals_share": 0.15, "sums_share": 0.0}])
def test_an_arm_of_a_tenth_has_a_spread_of_its_own(
    shares: dict[str, float], spreads: tuple[float, float], rng: np.random.Generator
) -> None:
    """Squares are added up by arm: the large arm does not speak for the small one.

    With the spread of all units the first would have less than half of its standard error. Over 330
    releases or more the ratio had a mean of 1.00 to 1.01, and a standard deviation of 0.12 at most.
    The mean of twelve is more than five of its own from the bounds: a false alarm is below `ALPHA`.
    """
    n_units, found = 6000, []
    arms, strata = np.arange(n_units) % 10 == 0, np.zeros(n_units, np.int64)
    for _ in range(N_RELEASES):
        scores = np.where(arms, 55, 45) + np.array(spreads)[arms * 1] * rng.normal(size=n_units)
        scores = np.clip(np.rint(scores), 0, 100)
        table = pl.DataFrame({"id": range(n_units), "arm": arms * 1, "score": scores})
        asked: dict[str, Any] = {"unit": "id", "arm": "arm", "epsilon": 2.0, **shares}
        given = cdp.release(table, outcomes={"score": "number:0..100"}, **asked)
        (effect,) = cdp.estimate(given).effects
        error = compare(scores, arms, ~arms, strata, None)[1]
        found.append(effect.std_error / math.hypot(error, math.sqrt(effect.privacy_variance)))
    assert 0.8 < np.mean(found) < 1.25


def test_noise_of_one_cell_does_not_take_the_variance_away(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large it is. Noise of eight standard deviations once left nothing of the variance.

    One of 158 cells has that in a few of a thousand releases. Here one has 20 of them.
    """
    drawn_exactly = opendp.measurements.make_laplace

    def with_one_large(domain: Any, metric: Any, scale: float) -> Any:
        exact = drawn_exactly(domain, metric, scale=scale)

        def draw(values: list[int]) -> list[int]:
            drawn = exact(values)
            if len(drawn) == n_cells:
                drawn[n_cells // 2] += math.ceil(20 * math.sqrt(2) * scale)
            return list(drawn)

        return draw

    study = find_study("79 schools")
    n_cells, table = 2 * 79, study.draw(rng)
    monkeypatch.setattr(opendp.measurements, "make_laplace", with_one_large)
    given = release(study, table, 2.0, totals_share=0.96, sums_share=0.035)
    (effect,) = cdp.estimate(given).effects
    error = true_numbers(table, study)[0][0][1]
    known = math.hypot(error, math.sqrt(effect.privacy_variance))
    assert 0.8 < effect.std_error / known < 1.4


def test_privacy_costs_little_where_a_cluster_lacks_an_arm(rng: np.random.Generator) -> None:
    """13 of 3,745 pupils are in a school without treatment, and in no effect.

    Without privacy the standard error is 0.94. That of privacy is 0.445, and varies by under 1%.
    Rows of so small an ε do not tell how schools differ. So that stays in the variance of sampling,
    28² + 12² instead of 28²: the ratio is 1 to 1.073. One release has a standard deviation of 0.036
    around it (600 releases), a mean of twelve 0.0105. Bounds are 5.4 of these away: a false alarm
    is below `ALPHA`.
    """
    study, ratios = find_study("79 schools"), []
    plan = plan_study(study, "overall", 2.0, rng)
    for _ in range(N_RELEASES):
        (effect,) = cdp.estimate(cdp.release(study.draw(rng), plan)).effects
        assert math.sqrt(effect.privacy_variance) < 0.5
        ratios.append(effect.std_error / math.hypot(0.94, 0.445))
    assert 0.94 < np.mean(ratios) < 1.13


def test_a_tenth_of_the_units_is_known_as_well_as_its_size_says(rng: np.random.Generator) -> None:
    """Also where a few rows carry most of the noise: all rows tell how much there is.

    The largest noise that a row can have made standard errors of `number2` 3.5 times as large. A
    mean of twelve has a standard deviation of 0.03: a false alarm is below `ALPHA`.
    """
    study, ratios = find_study("eight outcomes"), []
    plan = plan_study(study, "segments", 4.0, rng)
    for _ in range(N_RELEASES):
        every, tenth = chosen_effects(
            study.estimate(cdp.release(study.draw(rng), plan), "segments"), study
        )
        ratios.append(
            [
                part.std_error / (math.sqrt(10) * whole.std_error)
                for whole, part in zip(every, tenth, strict=True)
            ]
        )
    of_outcomes = np.mean(ratios, axis=0)
    assert of_outcomes.min() > 0.8
    assert of_outcomes.max() < 1.35


@pytest.mark.parametrize(("privacy", "least"), [(0.0, 9.9), (99.0, 9.5), (400.0, 39.0)])
def test_noise_that_is_known_leaves_degrees_of_freedom(privacy: float, least: float) -> None:
    """A variance of S + P that is estimated with the error of S + N has ν(S + P)²/(S + N)².

    N is 99 times S, and known as P is: that P is large takes no degrees away.
    """
    scores = GroupScores(np.sqrt(np.full(11, (1.0 + privacy * (privacy < 100)) / 11)), 10.0)
    scores = scores._replace(noise=privacy * (privacy < 100))
    plain = ArmMeans(*np.array([[0.0], [0.0], [privacy], [1e6], [0.0], [0.0]]))
    found = plain.between_groups((scores,))
    assert found.effective_degrees[0] >= least


def test_there_is_no_interval_where_nothing_tells_how_groups_differ(
    rng: np.random.Generator,
) -> None:
    """With totals of the groups there is one."""
    study, given = find_study("12 groups"), OVERALL | {"breakdown_share": 0.0}
    found = cdp.estimate(release(study, study.draw(rng), 2.0, **given))
    (effect,) = found.effects
    assert math.isnan(effect.std_error)
    assert not math.isnan(effect.effect)
    assert any("has no CI" in note for note in found.notes)
    given = {"totals_share": 0.5, "sums_share": 0.0, "breakdown_share": 0.4}
    (effect,) = cdp.estimate(release(study, study.draw(rng), 2.0, **given)).effects
    assert effect.std_error > 0
    assert 1 < effect.degrees < 11


@pytest.mark.parametrize(("share", "most"), [(0.99, 1.1), (0.1, 0.8)])
def test_an_adjusted_effect_is_hardly_known_worse_than_a_plain_one(
    share: float, most: float, rng: np.random.Generator
) -> None:
    """With all of its slopes, what rows of 1% of ε say would have twice the standard error."""
    study = find_study("adjusted")
    given = release(study, study.draw(rng), 4.0, totals_share=share, sums_share=0.0)
    found = cdp.estimate(given, **study.asked)
    (adjusted,), (plain,) = (
        [one for one in found.effects if one.of.adjusted == wanted and one.of.metric == "score"]
        for wanted in (True, False)
    )
    assert adjusted.to_report
    assert adjusted.std_error < most * plain.std_error


def test_slopes_explain_no_more_than_the_whole_variance(rng: np.random.Generator) -> None:
    """With a share λ of slopes at least (1 − λ)² of the variance of sampling is left.

    λ is 0.3 here, or a step of 0.025 less (400 releases): it follows from public numbers and from
    published squares. For a false alarm it would have to be 0.35. Squares that are 19% too large
    do not make it so, which is nine of their standard deviations: below `ALPHA`, if they are about
    normal. If the variance were not bounded, a tenth of the releases would be below (12.75% were
    below 0.46), and one run in five hundred would not notice.
    """
    study = find_study("adjusted")
    for _ in range(60):
        given = release(study, study.draw(rng), 4.0, totals_share=0.856, sums_share=0.0)
        found = cdp.estimate(given, **study.asked)
        adjusted, plain = (
            next(one for one in found.effects if one.of.adjusted == wanted)
            for wanted in (True, False)
        )
        left, whole = (one.std_error**2 - one.privacy_variance for one in (adjusted, plain))
        assert left > 0.45 * whole


def test_one_arm_makes_up_for_what_slopes_of_the_other_explain_too_much() -> None:
    zeros = np.zeros(2)
    layout = Layout(clusters=(EVERYONE,), arms=(0, 1), control=0, sizes=np.full((1, 2), 3))
    plain = ArmMeans(zeros, np.array([1.0, 2.0]), zeros, np.full(2, 1e6), zeros, zeros)
    for sampling, expected in (((-0.2, 0.3), 1.0), ((0.1, 2.0), 2.1)):
        found = plain._replace(sampling=np.array(sampling)).explained(plain, np.array([0.5, 0.75]))
        assert found.effects(layout).variances == pytest.approx([expected])


@pytest.mark.parametrize(
    ("name", "purpose", "known"),
    [
        ("79 schools", "overall", 0.94),
        ("a score", None, 0.70),
        ("1% of 20,000", "segments", 0.00142),
        ("30 groups of a breakdown", "breakdowns", 2.4),
        ("80 groups assigned", "overall", 1.76),
    ],
)
def test_plans_predict_what_releases_show(
    name: str, purpose: str | None, known: float, rng: np.random.Generator
) -> None:
    """Predicted errors beside those of true outcomes (the bench's) and what a release states.

    The privacy part of one release has a standard deviation of 3% at most in these, and tables of
    the baseline one of 1%: bounds of 0.9 and 1.15 are four of them away or more.
    """
    study = find_study(name)
    plan = plan_study(study, purpose, 2.0, rng)
    estimate = study.estimate(cdp.release(study.draw(rng), plan), purpose)
    variances = [one.privacy_variance for one in chosen_effects(estimate, study)[0]]
    truth = math.hypot(known, math.sqrt(np.mean(variances)))
    assert 0.9 < predictions(plan, study)[0] / truth < 1.15


def test_degrees_know_how_few_events_there_were(rng: np.random.Generator) -> None:
    """Of k events an arm's variance has about 2k degrees of freedom, however many units."""
    study = find_study("1% of 20,000")
    table = study.draw(rng)
    few, many = (table.with_columns(sold=(table["id"] < n).cast(int)) for n in (8, 2000))
    assert cdp.estimate(release(study, few, 20.0)).effects[0].degrees < 40
    assert math.isinf(cdp.estimate(release(study, many, 20.0)).effects[0].degrees)
