"""The releases of `release_coverage`: designs without effects, drawn, released and estimated.

Each line is a design whose outcomes do not depend on the arm. In each replicate the table is drawn
anew, released by one plan and estimated by `estimate`, all through the functions that people call.
Next to it is what true outcomes give, in the same tables.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np
import polars as pl
from scipy import stats

import clusterdp as cdp
from clusterdp.estimation.means.arms import group_scores
from clusterdp.estimation.metrics import observed
from clusterdp.outcomes.space import ValueRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.estimation.effects.effect import Effect

EPSILONS = (1.0, 2.0, 4.0)
PURPOSES = ("overall", None, "segments")
_ID, _ARM, _PART = "id", "arm", "tenth"
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
        parts = table.sort(study.groups).partition_by(study.groups)
        return [[one for part in parts for one in true_effects(part, study)]]
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
