"""Do 95% intervals of whole releases cover, whatever a plan is for?

    make bench-coverage

Each line is a design whose outcomes do not depend on the arm, so that every effect is zero. In each
replicate the table is drawn anew, released by one plan and estimated by `estimate`, all through the
functions that people call. Next to it is what true outcomes give, in the same tables.

Lines run on all cores, and stop after a stated time: two cores need about five hours for all
replicates. What was measured is kept in `build/release_coverage`, so that the next run goes on
where this one stopped; a change of the program begins anew. Writes
`docs/studies/release_coverage.md`.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np
import polars as pl
from scipy import stats

import clusterdp as cdp
from bench.study_page import write_study
from clusterdp.estimation.means.arms import group_scores
from clusterdp.estimation.metrics import observed
from clusterdp.outcomes.space import ValueRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.estimation.effects.effect import Effect

N_REPLICATES, N_TESTS = 2000, 8000
# What one run may take; a line that is cut off says how many replicates it has.
MINUTES = 120.0
# Replicates that share a plan, and are kept together.
_AT_ONCE = 250
_ROOT = Path(__file__).parents[1]
_KEPT = _ROOT / "build" / "release_coverage"
EPSILONS = (1.0, 2.0, 4.0)
PURPOSES = ("overall", None, "segments")
# What is wanted: of coverage, of the mean standard error, of its 5th and 95th percentile, and of
# predictions.
COVERAGE, MEAN_ERROR, SPREAD, PREDICTED = (0.935, 0.98), (0.95, 1.10), 0.15, (0.9, 1.15)
# How much wider percentiles may be than without privacy.
_WIDER = 1.15
_ID, _ARM, _PART = "id", "arm", "tenth"
# Replicates that must have been clipped alike.
_ALIKE = 30
# Tables that the baseline of a plan is computed from.
_N_KNOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A design, and how it is released and estimated.

    Attributes:
        name: In words.
        table: A table, drawn anew; its public columns are the same every time but for the arms.
        options: Of the plan, but for ε, purpose and baseline.
        asked: Of the estimate.
        groups: The column of the groups whose effects are looked at; None for the overall effect
            and that of a tenth of the units.
        purposes: What releases are planned for.
        epsilons: Their budgets.
    """

    name: str
    table: Callable[[np.random.Generator], pl.DataFrame]
    options: dict[str, Any]
    asked: dict[str, Any] = field(default_factory=dict)
    groups: str | None = None
    purposes: tuple[str | None, ...] = PURPOSES
    epsilons: tuple[float, ...] = EPSILONS

    @property
    def outcomes(self) -> list[str]:
        """The names of the outcomes."""
        return list(self.options["outcomes"])

    def kinds(self, purpose: str | None) -> tuple[str, ...]:
        """What effects are looked at, in words; a plan for the overall effect serves no other."""
        if self.groups is not None:
            return ("in groups",)
        return ("overall",) if purpose == "overall" else ("overall", "in a tenth")

    @property
    def is_predicted(self) -> bool:
        """Whether a line is compared with its plan.

        Plans know no covariate, and not what a pilot will find. Of several outcomes, each has a
        prediction of its own.
        """
        known = "adjust" not in self.asked and "pilot" not in self.options
        return known and len(self.outcomes) == 1

    def draw(self, rng: np.random.Generator) -> pl.DataFrame:
        """A table, with a tenth of its units marked."""
        return self.table(rng).with_columns((pl.col(_ID) % 10 == 0).alias(_PART))

    def estimate(self, release: cdp.Release, purpose: str | None = None) -> cdp.Estimate:
        """The estimate of a release that was planned for some purpose."""
        by = {} if purpose == "overall" else {"by": self.groups or _PART}
        return cdp.estimate(release, **by | self.asked)


def shuffled(arms: IntArray, strata: IntArray, rng: np.random.Generator) -> IntArray:
    """The arms of each stratum in random order, strata being in order."""
    order = np.lexsort((rng.random(len(arms)), strata))
    return np.asarray(arms[order])


def star_table(rng: np.random.Generator, n_clusters: int = 79) -> pl.DataFrame:
    """3,745 pupils of 79 schools, as in STAR; arms have different shares, the first lacks one."""
    fixed = np.random.default_rng(1985)
    sizes = fixed.multinomial(3745 - 13 - 12 * (n_clusters - 1), np.ones(n_clusters - 1) / 78)
    sizes = np.concatenate([[13], sizes + 12])
    schools = np.repeat(np.arange(n_clusters), sizes)
    shares = fixed.uniform(0.3, 0.7, n_clusters)
    treated = np.clip(np.rint(shares * sizes), 2, sizes - 2).astype(np.int64)
    treated[0] = 0
    arms = np.concatenate([np.arange(size) < n for size, n in zip(sizes, treated, strict=True)])
    levels = fixed.normal(0, 12, n_clusters)
    scores = 437 + levels[schools] + rng.normal(0, 28, len(schools))
    return pl.DataFrame(
        {
            _ID: np.arange(len(schools)),
            "school": schools,
            _ARM: shuffled(arms.astype(np.int64), schools, rng),
            "score": np.clip(np.rint(scores), 315, 627),
        }
    )


def number_table(
    rng: np.random.Generator, sizes: tuple[int, ...] = (1872, 1873), n_groups: int = 1
) -> pl.DataFrame:
    """A score of 0 to 100 without clusters; arms of given sizes, groups to cut by, a segment."""
    n_units = sum(sizes)
    groups = np.arange(n_units) * n_groups // n_units
    arms = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    levels = 8 * np.sin(groups)
    scores = np.clip(np.rint(45 + levels + rng.normal(0, 22, n_units)), 0, 100)
    return pl.DataFrame(
        {_ID: np.arange(n_units), "group": groups, _ARM: arms, "score": scores.astype(np.float64)}
    )


def rare_table(
    rng: np.random.Generator, n_units: int = 20_000, share: float = 0.01, treated: float = 0.5
) -> pl.DataFrame:
    """Few conversions; `treated` is the share of the treatment arm."""
    arms = rng.permutation((np.arange(n_units) < treated * n_units).astype(np.int64))
    sold = (rng.random(n_units) < share).astype(np.int64)
    return pl.DataFrame({_ID: np.arange(n_units), _ARM: arms, "sold": sold})


def group_table(rng: np.random.Generator, n_groups: int, n_units: int = 4000) -> pl.DataFrame:
    """Villages that were assigned as a whole; a tenth of the variance is between them."""
    fixed = np.random.default_rng(7)
    sizes = fixed.multinomial(n_units, fixed.dirichlet(np.full(n_groups, 8.0)))
    villages = np.repeat(np.arange(n_groups), sizes)
    arms = rng.permutation(np.arange(n_groups) % 2)[villages]
    levels = rng.normal(0, 7, n_groups)
    scores = np.clip(np.rint(50 + levels[villages] + rng.normal(0, 21, n_units)), 0, 100)
    return pl.DataFrame({_ID: np.arange(n_units), "village": villages, _ARM: arms, "score": scores})


def missing_table(rng: np.random.Generator, share: float, n_units: int = 4000) -> pl.DataFrame:
    """A score that some lack; those with a low score more often."""
    table = number_table(rng, (n_units // 2, n_units - n_units // 2))
    scores = table["score"].to_numpy().copy()
    chance = share * (1.5 - scores / 90)
    scores[rng.random(n_units) < chance] = np.nan
    return table.with_columns(score=pl.Series(scores))


def covariate_table(rng: np.random.Generator, n_units: int = 10_000) -> pl.DataFrame:
    """A score of which a covariate explains four fifths."""
    covariate = rng.normal(size=n_units)
    scores = 50 + 12 * covariate + rng.normal(0, 6, n_units)
    arms = rng.permutation(np.arange(n_units) % 2)
    return pl.DataFrame(
        {
            _ID: np.arange(n_units),
            _ARM: arms,
            "before": covariate,
            "score": np.clip(np.rint(scores), 0, 100),
        }
    )


def spend_table(rng: np.random.Generator, n_units: int = 8000) -> pl.DataFrame:
    """Amounts with a heavy tail; a third spend nothing."""
    amounts = rng.lognormal(3, 1.2, n_units) * (rng.random(n_units) < 2 / 3)
    arms = rng.permutation(np.arange(n_units) % 2)
    return pl.DataFrame({_ID: np.arange(n_units), _ARM: arms, "spend": amounts.round(2)})


def many_table(rng: np.random.Generator, n_units: int = 8000) -> pl.DataFrame:
    """Five outcomes that are 0 or 1, some of them rare, and three numbers between."""
    arms = rng.permutation(np.arange(n_units) % 2)
    events = {
        f"event{place}": (rng.random(n_units) < share).astype(np.int64)
        for place, share in enumerate((0.02, 0.05, 0.1, 0.3, 0.5))
    }
    numbers = {
        f"number{place}": rng.beta(*shape, n_units).round(3)
        for place, shape in enumerate(((2, 2), (1, 4), (1, 12)))
    }
    return pl.DataFrame({_ID: np.arange(n_units), _ARM: arms, **events, **numbers})


_SCORE: dict[str, Any] = {"outcomes": {"score": "number:0..100"}}
_SOLD: dict[str, Any] = {"outcomes": {"sold": "0,1"}}
STUDIES = (
    Study(
        name="79 schools of unequal shares, one incomplete",
        table=star_table,
        options={"outcomes": {"score": "number:315..627"}, "cluster": "school"},
    ),
    Study(name="a score without clusters", table=number_table, options=_SCORE),
    Study(
        name="three arms, 80/15/5",
        table=lambda rng: number_table(rng, (6400, 1200, 400)),
        options=_SCORE | {"control": 0},
    ),
    Study(name="1% of 20,000", table=rare_table, options=_SOLD),
    Study(
        name="4 events in each arm",
        table=lambda rng: rare_table(rng, 4000, 0.002),
        options=_SOLD,
        purposes=("overall",),
    ),
    Study(
        name="4 events in an arm of 5%",
        table=lambda rng: rare_table(rng, 8000, 0.01, 0.05),
        options=_SOLD,
        purposes=("overall",),
    ),
    Study(
        name="heavy tails with a pilot",
        table=spend_table,
        options={"outcomes": {"spend": "number:0..10000"}, "pilot": 0.05},
    ),
    Study(
        name="30 groups of a breakdown",
        table=lambda rng: number_table(rng, (4500, 4500), 30),
        options=_SCORE | {"breakdown": "group"},
        asked={"differences": "rest"},
        groups="group",
        purposes=(None, "breakdowns"),
    ),
    *(
        Study(
            name=f"{n_groups} groups assigned as a whole",
            table=lambda rng, n_groups=n_groups: group_table(rng, n_groups),  # type: ignore[misc]  # a default binds the number
            options=_SCORE | {"randomization_unit": "village", "breakdown": "village"},
            purposes=(None, "overall"),
        )
        for n_groups in (12, 30, 80)
    ),
    *(
        Study(
            name=f"{share:.0%} missing",
            table=lambda rng, share=share: missing_table(rng, share),  # type: ignore[misc]  # as above
            options=_SCORE | {"missing": "score"},
        )
        for share in (0.1, 0.4)
    ),
    Study(
        name="adjusted, R² of 0.8",
        table=covariate_table,
        options=_SCORE | {"passthrough": ["before", _PART]},
        asked={"adjust": "before"},
    ),
    Study(
        name="eight outcomes",
        table=many_table,
        options={
            "outcomes": {f"event{place}": "0,1" for place in range(5)}
            | {f"number{place}": "number:0..1" for place in range(3)}
        },
    ),
)


class Line(NamedTuple):
    """What replicates of one release show of one kind of effects.

    Attributes:
        what: The design, what it is planned for, ε, and the effects.
        n_replicates: How many replicates there were.
        n_intervals: How many intervals there were.
        coverage: The share of 95% intervals that hold the truth.
        without: The same without privacy.
        ratio: The mean standard error over the standard deviation of estimates.
        low: The 5th percentile of the same.
        high: The 95th percentile.
        plain_low: The 5th percentile without privacy.
        plain_high: The 95th percentile.
        length: The mean length of intervals over those of known standard deviations.
        deviation: The standard deviation of estimates.
        plain_deviation: The same without privacy.
        privacy: What privacy adds, in squares, as reported.
        predicted: The planned standard error over the standard deviation of estimates.
        none: The share of effects without an interval.
    """

    what: tuple[str, ...]
    n_replicates: int
    n_intervals: int
    coverage: float
    without: float
    ratio: float
    low: float
    high: float
    plain_low: float
    plain_high: float
    length: float
    deviation: float
    plain_deviation: float
    privacy: float
    predicted: float
    none: float

    def misses(self) -> list[str]:
        """What is not as wanted, by more than two Monte Carlo standard errors."""
        of_share = 2 * math.sqrt(0.05 * 0.95 / max(self.n_intervals, 1))
        of_error = math.sqrt(2 / self.n_replicates)
        widest = max(SPREAD, _WIDER * (self.plain_high - self.plain_low) / 2)
        found = {
            "coverage": not _within(self.coverage, COVERAGE, of_share),
            "mean": not _within(self.ratio, MEAN_ERROR, of_error * self.ratio),
            "spread": (self.high - self.low) / 2 > widest * self.ratio,
            "predicted": self.predicted < PREDICTED[0] * (1 - of_error)
            or self.predicted > PREDICTED[1] * (1 + of_error),
        }
        return [name for name, missed in found.items() if missed]

    def cells(self) -> tuple[str, ...]:
        """As text."""
        return (
            *self.what,
            f"{self.n_replicates:,}",
            f"{self.coverage:.1%}",
            f"{self.without:.1%}",
            f"{self.ratio:.2f}",
            f"{self.low:.2f} to {self.high:.2f}",
            f"{self.plain_low:.2f} to {self.plain_high:.2f}",
            f"{self.length:.2f}",
            f"{self.deviation:.3g}",
            f"{self.plain_deviation:.3g}",
            f"{self.privacy:.3g}",
            "" if math.isnan(self.predicted) else f"{self.predicted:.2f}",
            f"{self.none:.1%}",
            ", ".join(self.misses()),
        )


def _within(number: float, ends: tuple[float, float], tolerance: float) -> bool:
    return ends[0] - tolerance <= number <= ends[1] + tolerance


HEADER = (
    "design",
    "planned for",
    "ε",
    "effect",
    "replicates",
    "coverage",
    "without privacy",
    "SE/SD",
    "5 to 95%",
    "without privacy",
    "length",
    "SD",
    "without privacy",
    "of privacy",
    "predicted",
    "no interval",
    "not as wanted",
)


class HomogeneityLine(NamedTuple):
    """How often a test of homogeneity rejects at 5% where effects are the same."""

    what: tuple[str, ...]
    n_tests: int
    rejected: float

    def cells(self) -> tuple[str, ...]:
        """As text."""
        error = math.sqrt(0.05 * 0.95 / max(self.n_tests, 1))
        return (*self.what, f"{self.n_tests:,}", f"{self.rejected:.1%}", f"{error:.1%}")


def right_baseline(study: Study, rng: np.random.Generator) -> dict[str, str]:
    """The right baseline of a design, from tables that are not released."""
    tables, found = pl.concat([study.draw(rng) for _ in range(_N_KNOWN)]), {}
    for name, space in study.options["outcomes"].items():
        values = tables[name].cast(pl.Float64).fill_nan(None).drop_nulls().to_numpy()
        found[name] = f"mean:{np.mean(values):.6g},std:{np.std(values):.6g}"
        if space == "0,1":
            found[name] = f"{np.mean(values):.6g}"
        if "missing" in study.options:
            found[f"{name}_observed"] = f"{len(values) / len(tables):.4g}"
    return found


def plan_study(
    study: Study, purpose: str | None, epsilon: float, rng: np.random.Generator
) -> cdp.Plan:
    """The plan of one line."""
    named: dict[str, Any] = {"unit": _ID, "arm": _ARM, "epsilon": epsilon, "optimize_for": purpose}
    named |= {"passthrough": [_PART], "baseline": right_baseline(study, rng)}
    return cdp.plan(study.draw(rng), **named | study.options)


def predictions(plan: cdp.Plan, study: Study) -> tuple[float, ...]:
    """The planned standard errors of each kind of effects."""
    if not study.is_predicted:
        return math.nan, math.nan
    assert plan.report is not None  # noqa: S101 - it was made here
    precision = plan.report.questions[0].comparison.choice.precisions[0]
    if study.groups is not None:
        variances = (precision.sampling + precision.privacy)[1:]
        return (float(np.sqrt(variances.mean())),)
    segment = precision.segment(0.1)
    return precision.overall.std_error, math.nan if segment is None else segment.std_error


class Replicates(NamedTuple):
    """Effects of many releases by one plan; axes of arrays `[replicate, effect, number]`.

    Attributes:
        what: The design, what it is planned for, and ε.
        kinds: The kinds of effects that are looked at, in words.
        private: Of releases: effect, standard error, interval, variance of privacy; by kind.
        plain: Of true outcomes: effect, standard error, interval; by kind.
        tests: Whether tests of homogeneity reject.
        predicted: The planned standard error; by kind.
        clips: Where outcomes were clipped; axes `[replicate]`.
    """

    what: tuple[str, ...]
    kinds: tuple[str, ...]
    private: tuple[FloatArray, ...]
    plain: tuple[FloatArray, ...]
    tests: list[bool]
    predicted: tuple[float, ...]
    clips: FloatArray

    @classmethod
    def together(cls, parts: list[Replicates]) -> Replicates:
        """All replicates of the same design, purpose and ε."""
        private, plain = (
            tuple(np.concatenate(kind) for kind in zip(*every, strict=True))
            for every in ([one.private for one in parts], [one.plain for one in parts])
        )
        return parts[0]._replace(
            private=private,
            plain=plain,
            tests=[rejects for one in parts for rejects in one.tests],
            predicted=tuple(np.mean([one.predicted for one in parts], axis=0)),
            clips=np.concatenate([one.clips for one in parts]),
        )

    def lines(self) -> list[Line]:
        """A line for each kind of effects."""
        of_kinds = zip(self.kinds, self.private, self.plain, self.predicted, strict=False)
        return [
            _line((*self.what, kind), private, plain, predicted, self.clips)
            for kind, private, plain, predicted in of_kinds
        ]


def replicate(
    study: Study, purpose: str | None, epsilon: float, n_replicates: int, *, seconds: float = 1e9
) -> Replicates:
    """Replicates of one plan, as many as there is time for."""
    rng, end = np.random.default_rng(), time.monotonic() + seconds
    plan = plan_study(study, purpose, epsilon, rng)
    private: list[list[list[tuple[float, ...]]]] = []
    plain: list[list[list[tuple[float, ...]]]] = []
    tests: list[bool] = []
    clips: list[float] = []
    while len(private) < n_replicates and (len(private) < 2 or time.monotonic() < end):
        table = study.draw(rng)
        release = cdp.release(table, plan)
        # Bounds for attrition take four fifths of the time, and have a bench of their own.
        with patch.object(observed, "attrition_bounds", lambda *_: []):
            estimate = study.estimate(release, purpose)
        private.append([list(map(_numbers, one)) for one in chosen_effects(estimate, study)])
        clips.append(largest_value(release))
        plain.append(true_numbers(table, study, clips[-1]))
        tests += [one.p_value < 0.05 for one in estimate.tests]
    return Replicates(
        (study.name, purpose or "everything", f"{epsilon:g}"),
        study.kinds(purpose),
        tuple(
            np.array(one) for one in list(zip(*private, strict=True))[: len(study.kinds(purpose))]
        ),
        tuple(np.array(one) for one in zip(*plain, strict=True)),
        tests,
        predictions(plan, study),
        np.array(clips),
    )


def largest_value(release: cdp.Release) -> float:
    """Where a pilot has the outcome clipped; infinite without a pilot."""
    if release.pilots[0] is None:
        return math.inf
    return float(ValueRange.from_values(release.questions[0].space.metric_values()[0]).high)


def true_numbers(
    table: pl.DataFrame, study: Study, largest: float = math.inf
) -> list[list[tuple[float, ...]]]:
    """Effects from true outcomes, each with its standard error and interval; by kind."""
    names = study.outcomes
    values = pl.col(names).cast(pl.Float64).fill_nan(None).clip(upper_bound=largest)
    table = table.with_columns(values).drop_nulls(names)
    if study.groups is not None:
        parts = sorted(table.group_by(study.groups), key=lambda one: one[0])
        return [[one for _, part in parts for one in true_effects(part, study)]]
    return [true_effects(one, study) for one in (table, table.filter(_PART))]


def true_effects(part: pl.DataFrame, study: Study) -> list[tuple[float, ...]]:
    """The effects of all arms on some units, outcome by outcome."""
    options, arms, found = study.options, part[_ARM].to_numpy(), []
    strata = part[options["cluster"]].to_numpy() if "cluster" in options else 0 * arms
    groups = (
        part[options["randomization_unit"]].to_numpy() if "randomization_unit" in options else None
    )
    for name in study.outcomes:
        values = part[name].to_numpy()
        if "adjust" in study.asked:
            values = residuals(part[study.asked["adjust"]].to_numpy(), values, arms)
        found += [
            compare(values, arms == arm, arms == 0, strata, groups) for arm in np.unique(arms)[1:]
        ]
    return found


def residuals(covariate: FloatArray, values: FloatArray, arms: IntArray) -> FloatArray:
    """Outcomes without what a covariate explains in each arm, at its mean over all."""
    found = values.copy()
    for arm in np.unique(arms):
        there = arms == arm
        slope = np.cov(covariate[there], values[there])[0, 1] / covariate[there].var(ddof=1)
        found[there] -= slope * (covariate[there] - covariate.mean())
    return found


def compare(
    values: FloatArray,
    treated: BoolArray,
    control: BoolArray,
    strata: IntArray,
    groups: IntArray | None,
) -> tuple[float, ...]:
    """The difference in means within strata, with Neyman's variance or that between groups."""
    means, variances, degrees = [], [], []
    strata = np.where(_few(strata, treated, control), strata.max() + 1, strata)
    sizes = np.bincount(strata)
    n_both = np.minimum(np.bincount(strata, treated), np.bincount(strata, control))
    sizes = np.where(n_both > 1, sizes, 0)
    for chosen in (treated, control):
        n_cell = np.maximum(np.bincount(strata, chosen), 1)
        weights = np.where(chosen, (sizes / sizes.sum() / n_cell)[strata], 0.0)
        centres = (np.bincount(strata, chosen * values) / n_cell)[strata]
        means.append(weights @ values)
        if groups is None:
            more = (n_cell / np.maximum(n_cell - 1, 1))[strata]
            variances.append((more * weights**2) @ (values - centres) ** 2)
            degrees.append(chosen.sum() - 1)
        else:
            shares, totals = (
                np.bincount(groups, one).astype(np.float64) for one in (weights, weights * values)
            )
            scores = group_scores(shares, totals)
            variances.append(scores.variance)
            degrees.append(scores.degrees)
    variance = sum(variances)
    freedom = variance**2 / sum(one**2 / n for one, n in zip(variances, degrees, strict=True))
    effect, error = float(means[0] - means[1]), math.sqrt(variance)
    reach = float(stats.t.ppf(0.975, freedom)) * error
    return effect, error, effect - reach, effect + reach


def _few(strata: IntArray, treated: BoolArray, control: BoolArray) -> BoolArray:
    """Units of strata that have some, but fewer than two, in an arm: those are pooled."""
    of_arms = np.minimum(np.bincount(strata, treated), np.bincount(strata, control))
    return np.asarray((of_arms == 1)[strata])


def chosen_effects(estimate: cdp.Estimate, study: Study) -> list[list[Effect]]:
    """The effects that are looked at, by kind: those to report, of the outcomes."""
    every = [
        one
        for one in estimate.effects
        if one.to_report and one.of.metric in study.outcomes and one.of.against is None
    ]
    every.sort(key=lambda one: study.outcomes.index(one.of.metric))
    if study.groups is not None:
        return [[one for one in every if one.of.segment]]
    inside = ((_PART, True),)
    return [[one for one in every if one.of.segment == which] for which in ((), inside)]


def _numbers(one: Effect) -> tuple[float, ...]:
    return (one.effect, one.std_error, *one.ci(), one.privacy_variance)


class _Measured(NamedTuple):
    """What some intervals show: coverage, SE over SD, length over that of a known SD, and SD."""

    coverage: float
    ratios: FloatArray
    length: float
    deviations: FloatArray

    @classmethod
    def of(cls, numbers: FloatArray, clips: FloatArray) -> _Measured:
        """What some numbers show, axes `[replicate, effect, number]`.

        The standard deviation of estimates depends on where outcomes are clipped: standard errors
        are compared with that of replicates which are clipped alike, if there are enough.
        """
        covered = (numbers[..., 2] <= 0) & (numbers[..., 3] >= 0)
        ends, alike, sizes = np.unique(clips, return_inverse=True, return_counts=True)
        if sizes.max() < _ALIKE:
            ends, alike, sizes = clips[:1], np.zeros(len(clips), np.int64), np.array([len(clips)])
        every = np.array(
            [np.nanstd(numbers[alike == one, :, 0], axis=0, ddof=1) for one in range(len(ends))]
        )[alike]
        enough = (sizes >= min(_ALIKE, len(clips)))[alike, np.newaxis]
        known = np.isfinite(numbers[..., 1])
        lengths = (numbers[..., 3] - numbers[..., 2]) / (2 * stats.norm.ppf(0.975) * every)
        return cls(
            float(covered[known].mean()) if known.any() else math.nan,
            (numbers[..., 1] / every)[known & enough],
            float(lengths[known & enough].mean()),
            np.nanstd(numbers[..., 0], axis=0, ddof=1),
        )


def _line(
    what: tuple[str, ...],
    private: FloatArray,
    plain: FloatArray,
    predicted: float,
    clips: FloatArray,
) -> Line:
    """A line; axes of `private` and `plain` are `[replicate, effect, number]`."""
    found, without = _Measured.of(private, clips), _Measured.of(plain, clips)
    low, high = np.quantile(found.ratios, [0.05, 0.95]) if found.ratios.size else [math.nan] * 2
    plain_low, plain_high = np.quantile(without.ratios, [0.05, 0.95])
    return Line(
        what=what,
        n_replicates=len(private),
        n_intervals=found.ratios.size,
        coverage=found.coverage,
        without=without.coverage,
        ratio=float(found.ratios.mean()) if found.ratios.size else math.nan,
        low=float(low),
        high=float(high),
        plain_low=float(plain_low),
        plain_high=float(plain_high),
        length=found.length,
        deviation=float(np.sqrt((found.deviations**2).mean())),
        plain_deviation=float(np.sqrt((without.deviations**2).mean())),
        privacy=float(np.sqrt(np.nanmean(private[..., 4]))),
        # A plan is for the effect that is known least; of groups, for all alike.
        predicted=predicted
        / float(
            np.sqrt((found.deviations**2).mean())
            if "groups" in what[-1]
            else found.deviations.max()
        ),
        none=float(1 - np.isfinite(private[..., 1]).mean()),
    )


class Task(NamedTuple):
    """Some replicates of one design, purpose and ε, and the file that keeps them."""

    study: int
    purpose: str | None
    epsilon: float
    part: int
    file: Path


def lines(studies: tuple[Study, ...], minutes: float) -> Iterator[Line | HomogeneityLine]:
    """Every design, purpose and ε: what was measured before, and what there is time for now.

    All lines get their first replicates before any gets more.
    """
    folder = _KEPT / _program_hash()
    folder.mkdir(parents=True, exist_ok=True)
    every = [
        Task(index, purpose, epsilon, part, folder / f"{index}-{purpose}-{epsilon:g}-{part}")
        for index, study in enumerate(STUDIES)
        if study in studies
        for purpose in study.purposes
        for epsilon in study.epsilons
        # Tests of homogeneity want more replicates than intervals.
        for part in range((N_TESTS if "differences" in study.asked else N_REPLICATES) // _AT_ONCE)
    ]
    todo = sorted((one for one in every if not one.file.exists()), key=lambda one: one.part)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_measure, todo, [time.monotonic() + 60 * minutes] * len(todo)))
    for first in every:
        if first.part:
            continue
        parts = [one.file for one in every if one[:3] == first[:3] and one.file.exists()]
        if not parts:
            continue
        found = Replicates.together([pickle.loads(one.read_bytes()) for one in parts])  # noqa: S301 - our own files
        yield from found.lines()
        if found.tests:
            yield HomogeneityLine(found.what, len(found.tests), float(np.mean(found.tests)))


def _program_hash() -> str:
    """A name for the program that is measured: its sources, and this bench."""
    sources = sorted((_ROOT / "src").rglob("*.py"))
    digest = hashlib.sha256()
    for source in [*sources, Path(__file__)]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _measure(task: Task, end: float) -> None:
    """Measure and keep some replicates, unless the time is up."""
    seconds = end - time.monotonic()
    if seconds < 0:
        return
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    study = STUDIES[task.study]
    found = replicate(study, task.purpose, task.epsilon, _AT_ONCE, seconds=seconds)
    if len(found.clips) == _AT_ONCE:
        task.file.write_bytes(pickle.dumps(found))


def page(found: list[Line | HomogeneityLine], minutes: float) -> str:
    """The page."""
    intervals = [one for one in found if isinstance(one, Line)]
    tests = [one for one in found if isinstance(one, HomogeneityLine)]
    sound = [one for one in intervals if not one.misses()]
    return _PAGE.format(
        minutes=f"{minutes:.0f}",
        n_lines=len(intervals),
        n_sound=len(sound),
        table=_table(HEADER, intervals),
        tests=_table(("design", "planned for", "ε", "tests", "rejected", "± (Monte Carlo)"), tests),
    )


def _table(header: tuple[str, ...], found: list[Any]) -> str:
    rows = [header, ("---",) * len(header), *(one.cells() for one in found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_PAGE = """# Do intervals of whole releases cover?

Written by `make bench-coverage`; not edited by hand. Each line is a design whose outcomes do not
depend on the arm, so that every effect is zero. In each replicate the table is drawn again, planned
with a right baseline, released and estimated by the functions that people call. Next to it is
what true outcomes give in the same tables. A run stops after {minutes} minutes, and the next one
goes on; *replicates* says how many each line had. A coverage of 95% over 2,000 effects has a Monte
Carlo standard error of 0.5 points, and a ratio of standard errors one of 1.6%.

- *SE/SD* is the mean standard error over the standard deviation of estimates, with its 5th and 95th
  percentile; *length* that of intervals over those of a known standard deviation; *of privacy* what
  privacy adds in squares, as reported; *predicted* the planned standard error over the standard
  deviation.
- *not as wanted* names what is outside its range by more than two Monte Carlo standard errors:
  *coverage* of 93.5 to 98%; *mean* SE/SD of 0.95 to 1.10; *spread* of its percentiles within ±15%,
  or 1.15 times as wide as without privacy; *predicted* 0.9 to 1.15.

{n_sound} of {n_lines} lines are as wanted in everything.

Standard errors vary most where groups were assigned as a whole. Their variance is that between
groups, and each group is known with noise only. What noise adds is known and subtracted, and what
is left varies with it: of 80 groups, noise adds 3.5 times that variance if planned for everything
at ε = 1, 0.7 times at ε = 2 or planned for overall at ε = 1. Percentiles are then about ±37, 22 and
22% of the mean. Who knew everything but one variance that all groups share would have ±37, 20 and
22% (the bound of Cramér and Rao, for normal noise), and ±18% is wanted: only more of ε for totals
of groups would help. Of 80 groups planned for overall at ε = 2, and of 30 planned for everything at
ε = 2, that bound is as wanted (±17 and ±26%), and the estimate is just above. It does not take
groups of any size to vary equally, since intervals would be too short where large groups vary
more. Degrees of freedom allow for all of this.

In 79 schools planned for overall, standard errors are about 6% too large. Rows have too little of ε
to tell how schools differ, so that this is left in the variance: an upper bound.

{table}

## Do tests of homogeneity keep their level?
How often they reject at 5% where effects are the same.

{tests}
"""


def main(names: list[str]) -> None:
    """Measure and show; write the page if all designs were measured."""
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    chosen = tuple(one for one in STUDIES if not names or any(name in one.name for name in names))
    found = []
    for line in lines(chosen, MINUTES):
        print(*line.cells(), sep="  ", flush=True)
        found.append(line)
    if not names:
        write_study("release_coverage", page(found, MINUTES))


if __name__ == "__main__":
    main(sys.argv[1:])
