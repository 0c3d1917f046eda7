"""Do 95% intervals of whole releases cover, whatever a plan is for?

    make bench-coverage

Each line is a design whose outcomes do not depend on the arm, so that every effect is zero. In each
replicate the table is drawn anew, released by one plan and estimated by `estimate`, all through the
functions that people call. Beside it stands the standard error without privacy, in the same tables.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from scipy import stats

import clusterdp as cdp
from clusterdp.estimation.group_variance import group_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.estimation.results import Effect

N_REPLICATES = 2000
# What all lines may take together; a line that is cut off says how many replicates it has.
MINUTES = 60.0
EPSILONS = (1.0, 2.0, 4.0)
PURPOSES = ("overall", None, "segments")
_ID, _ARM = "id", "arm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A design, and how it is released and estimated.

    Attributes:
        name: In words.
        table: A table, drawn anew; its public columns are the same every time but for the arms.
        options: Of the plan, but for ε and purpose.
        asked: Of the estimate.
        segment: The columns of the effects that are looked at; none for the overall effect.
        adjusted: Whether these are the ones to report where there are two.
        purposes: What releases are planned for.
    """

    name: str
    table: Callable[[np.random.Generator], pl.DataFrame]
    options: dict[str, Any]
    asked: dict[str, Any] = field(default_factory=dict)
    segment: tuple[str, ...] = ()
    purposes: tuple[str | None, ...] = PURPOSES


def shuffled(arms: IntArray, strata: IntArray, rng: np.random.Generator) -> IntArray:
    """The arms of each stratum in random order, strata being in order."""
    order = np.lexsort((rng.random(len(arms)), strata))
    return np.asarray(arms[order])


def star_table(rng: np.random.Generator, n_clusters: int = 79) -> pl.DataFrame:
    """3,745 pupils of 79 schools, with arms of different shares; the first school lacks one."""
    fixed = np.random.default_rng(1985)
    sizes = fixed.multinomial(3745 - 13 - 12 * (n_clusters - 1), np.ones(n_clusters - 1) / 78)
    sizes = np.concatenate([[13], sizes + 12])
    schools = np.repeat(np.arange(n_clusters), sizes)
    shares = fixed.uniform(0.3, 0.7, n_clusters)
    treated = np.clip(np.rint(shares * sizes), 2, sizes - 2).astype(np.int64)
    treated[0] = 0
    arms = np.concatenate([np.arange(size) < n for size, n in zip(sizes, treated, strict=True)])
    levels = fixed.normal(0, 12, n_clusters)
    scores = np.clip(np.rint(50 + levels[schools] + rng.normal(0, 26, len(schools))), 0, 100)
    return pl.DataFrame(
        {
            _ID: np.arange(len(schools)),
            "school": schools,
            _ARM: shuffled(arms.astype(np.int64), schools, rng),
            "score": scores,
        }
    )


def number_table(
    rng: np.random.Generator, sizes: tuple[int, ...] = (1872, 1873), n_groups: int = 1
) -> pl.DataFrame:
    """A score of 0 to 100 without clusters; arms of given sizes, groups to cut by, a segment."""
    n_units = sum(sizes)
    groups = np.arange(n_units) * n_groups // n_units
    arms = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    levels = 20 * np.sin(groups)
    scores = np.clip(np.rint(45 + levels + rng.normal(0, 22, n_units)), 0, 100)
    return pl.DataFrame(
        {_ID: np.arange(n_units), "group": groups, _ARM: arms, "score": scores.astype(np.float64)}
    )


def rare_table(
    rng: np.random.Generator, n_units: int = 20_000, share: float = 0.01
) -> pl.DataFrame:
    """Few conversions."""
    arms = rng.permutation(np.arange(n_units) % 2)
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


_SCORE = {"outcomes": {"score": "number:0..100"}, "reference": {"score": "mean:50,std:26"}}
STUDIES = (
    Study(
        name="79 schools of unequal shares, one incomplete",
        table=star_table,
        options=_SCORE | {"cluster": "school"},
    ),
    Study(name="the same without clusters", table=number_table, options=_SCORE),
    Study(
        name="three arms, 80/15/5",
        table=lambda rng: number_table(rng, (6400, 1200, 400)),
        options=_SCORE | {"control": 0},
    ),
    Study(
        name="1% of 20,000",
        table=rare_table,
        options={"outcomes": {"sold": "0,1"}, "reference": {"sold": 0.01}},
    ),
    Study(
        name="30 groups of a breakdown",
        table=lambda rng: number_table(rng, (4500, 4500), 30),
        options=_SCORE | {"breakdown": "group"},
        asked={"by": "group", "differences": "rest"},
        segment=("group",),
        purposes=(None, "breakdowns"),
    ),
    *(
        Study(
            name=f"{n_groups} groups assigned as a whole",
            table=lambda rng, n_groups=n_groups: group_table(rng, n_groups),  # type: ignore[misc]  # a default binds the number
            options=_SCORE | {"assigned_by": "village", "breakdown": "village"},
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
        options=_SCORE | {"keep": "before", "reference": {"score": "mean:50,std:13"}},
        asked={"adjust": "before"},
    ),
)


class Line(NamedTuple):
    """What replicates of one release show.

    Attributes:
        what: The design, what it is planned for, and ε.
        n_replicates: How many replicates there were.
        coverage: The share of 95% intervals that hold the truth.
        without: The same without privacy.
        ratio: The mean standard error over the standard deviation of estimates.
        low: The 5th percentile of the same.
        high: The 95th percentile.
        plain_spread: Half of the distance of both percentiles without privacy.
        deviation: The standard deviation of estimates.
        plain_deviation: The same without privacy.
        none: The share of effects without an interval.
        rejected: How often tests of homogeneity reject at 5%; NaN where there are none.
    """

    what: tuple[str, ...]
    n_replicates: int
    coverage: float
    without: float
    ratio: float
    low: float
    high: float
    plain_spread: float
    deviation: float
    plain_deviation: float
    none: float
    rejected: float

    def cells(self) -> tuple[str, ...]:
        """As text."""
        rejected = "" if math.isnan(self.rejected) else f"{self.rejected:.1%}"
        return (
            *self.what,
            f"{self.n_replicates:,}",
            f"{self.coverage:.1%}",
            f"{self.without:.1%}",
            f"{self.ratio:.2f}",
            f"{self.low:.2f} to {self.high:.2f}",
            f"±{self.plain_spread:.2f}",
            f"{self.deviation:.3g}",
            f"{self.plain_deviation:.3g}",
            f"{self.none:.1%}",
            rejected,
        )


HEADER = (
    "design",
    "planned for",
    "ε",
    "replicates",
    "coverage",
    "without privacy",
    "SE/SD",
    "5 to 95%",
    "without privacy",
    "SD",
    "without privacy",
    "no interval",
    "rejected",
)


def plan_study(
    study: Study, purpose: str | None, epsilon: float, rng: np.random.Generator
) -> cdp.Plan:
    """The plan of one line."""
    named: dict[str, Any] = {"unit": _ID, "arm": _ARM, "epsilon": epsilon, "purpose": purpose}
    return cdp.plan(study.table(rng), **named, **study.options)


def measure(
    study: Study, purpose: str | None, epsilon: float, n_replicates: int, *, seconds: float = 1e9
) -> Line:
    """Replicates of one line, as many as there is time for."""
    rng, end = np.random.default_rng(), time.monotonic() + seconds
    plan = plan_study(study, purpose, epsilon, rng)
    private: list[list[tuple[float, ...]]] = []
    plain: list[list[tuple[float, ...]]] = []
    tests: list[bool] = []
    while len(private) < n_replicates and (len(private) < 2 or time.monotonic() < end):
        table = study.table(rng)
        estimate = cdp.estimate(cdp.release(table, plan), **study.asked)
        private.append(_numbers(chosen_effects(estimate, study)))
        plain.append(true_numbers(table, study))
        tests += [one.p_value < 0.05 for one in estimate.tests]
    what = (study.name, purpose or "everything", f"{epsilon:g}")
    return _line(what, np.array(private), np.array(plain), tests)


def true_numbers(table: pl.DataFrame, study: Study) -> list[tuple[float, ...]]:
    """Effects from true outcomes, each with its standard error and interval."""
    options, found = study.options, []
    outcome = next(iter(options["outcomes"]))
    table = table.with_columns(pl.col(outcome).cast(pl.Float64).fill_nan(None)).drop_nulls(outcome)
    for _, part in sorted(table.group_by(*study.segment)) if study.segment else [((), table)]:
        arms, values = part[_ARM].to_numpy(), part[outcome].to_numpy()
        if "adjust" in study.asked:
            values = residuals(part[study.asked["adjust"]].to_numpy(), values, arms)
        strata = part[options["cluster"]].to_numpy() if "cluster" in options else 0 * arms
        groups = part[options["assigned_by"]].to_numpy() if "assigned_by" in options else None
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


def chosen_effects(estimate: cdp.Estimate, study: Study) -> list[Effect]:
    """The effects that are looked at: those to report, of the first metric."""
    return [
        one
        for one in estimate.effects
        if one.to_report
        and one.of.metric == estimate.effects[0].of.metric
        and one.of.against is None
        and tuple(name for name, _ in one.of.segment) == study.segment
    ]


def _numbers(effects: list[Effect]) -> list[tuple[float, ...]]:
    return [(one.effect, one.std_error, *one.ci()) for one in effects]


def _line(what: tuple[str, ...], private: FloatArray, plain: FloatArray, tests: list[bool]) -> Line:
    """Axes of arrays: `[replicate, effect, 4]`."""

    def measured(numbers: FloatArray) -> tuple[float, FloatArray, float]:
        known = np.isfinite(numbers[..., 1])
        covered = (numbers[..., 2] <= 0) & (numbers[..., 3] >= 0)
        deviations = np.nanstd(numbers[..., 0], axis=0, ddof=1)
        ratios = (numbers[..., 1] / deviations)[known]
        share = float(covered[known].mean()) if known.any() else math.nan
        return share, ratios, float(np.sqrt((deviations**2).mean()))

    coverage, ratios, deviation = measured(private)
    without, plain_ratios, plain_deviation = measured(plain)
    low, high = np.quantile(ratios, [0.05, 0.95]) if ratios.size else (math.nan, math.nan)
    plain_low, plain_high = np.quantile(plain_ratios, [0.05, 0.95])
    return Line(
        what=what,
        n_replicates=len(private),
        coverage=coverage,
        without=without,
        ratio=float(ratios.mean()) if ratios.size else math.nan,
        low=float(low),
        high=float(high),
        plain_spread=float(plain_high - plain_low) / 2,
        deviation=deviation,
        plain_deviation=plain_deviation,
        none=float(1 - np.isfinite(private[..., 1]).mean()),
        rejected=float(np.mean(tests)) if tests else math.nan,
    )


def lines() -> Iterator[Line]:
    """Every design, purpose and ε, within the time there is."""
    every = [
        (study, purpose, epsilon)
        for study in STUDIES
        for purpose in study.purposes
        for epsilon in EPSILONS
    ]
    end = time.monotonic() + 60 * MINUTES
    for place, (study, purpose, epsilon) in enumerate(every):
        seconds = (end - time.monotonic()) / (len(every) - place)
        yield measure(study, purpose, epsilon, N_REPLICATES, seconds=seconds)


def main() -> None:
    """Measure and show."""
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    for line in lines():
        print(*line.cells(), sep="  ", flush=True)


if __name__ == "__main__":
    main()
