"""What a covariate that stays with the owner takes off the variance of overall effects.

    make bench-metrics

In each replicate a table is drawn, released by one plan and estimated, as people do. Next to each
other are the plain and the adjusted effect of the same release, what the plan predicted, and
whether intervals cover. Writes `docs/studies/owner_covariates.md`.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.study_page import write_study

if TYPE_CHECKING:
    from collections.abc import Callable

# What all lines may take together, in minutes; lines that are cut off have fewer replicates.
N_REPLICATES, MINUTES = 2000, 75.0
EFFECT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A design.

    Attributes:
        name: In words.
        correlation: Of the covariate and the outcome, within clusters; the plan is told.
        draw: Outcomes before treatment, covariates and clusters of all users; the treatment adds
            `EFFECT`.
        share: The share of the treatment arm, cluster by cluster.
        options: More options of the plan.
    """

    name: str
    correlation: float
    draw: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]]
    share: Callable[[int], float] = lambda _: 0.5
    options: dict[str, Any] = field(default_factory=dict)


def normal(n_units: int, correlation: float, n_clusters: int = 1) -> Callable[..., Any]:
    """Normal outcomes with a standard deviation of 10; clusters differ in both variables."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        clusters = np.arange(n_units) ** 2 * n_clusters // n_units**2  # small ones and large ones
        levels = 5 * np.sin(clusters) * (n_clusters > 1)
        covariate = rng.standard_normal(n_units)
        rest = math.sqrt(1 - correlation**2) * rng.standard_normal(n_units)
        return 50 + levels + 10 * (correlation * covariate + rest), covariate + levels, clusters

    return draw


def spending(n_units: int) -> Callable[..., Any]:
    """Spend of two months: a third of the users spend nothing, and tails are heavy."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        of_user = rng.gamma(2.0, 10.0, n_units)
        before, after = (rng.gamma(1.4, of_user / 1.4) for _ in range(2))
        active = rng.random(n_units) < 2 / 3
        return np.minimum(active * after, 99.0), active * before, np.zeros(n_units, np.int64)

    return draw


ARMS: dict[str, Any] = {"arm": "arm", "unit": "user", "cluster": "market", "control": 0}
LINES = (
    Line(name="R² = 0.5, 40,000 users", correlation=math.sqrt(0.5), draw=normal(40_000, 0.7071)),
    Line(
        name="the same, planned for the overall effect",
        correlation=math.sqrt(0.5),
        draw=normal(40_000, 0.7071),
        options={"optimize_for": "overall"},
    ),
    Line(
        name="R² = 0.5, 30 unequal clusters, 20–70% treated",
        correlation=math.sqrt(0.5),
        draw=normal(40_000, 0.7071, 30),
        share=lambda cluster: 0.2 + 0.5 * (cluster % 7) / 6,
        options={"optimize_for": "overall"},
    ),
    Line(
        name="R² = 0.5, 10% treated",
        correlation=math.sqrt(0.5),
        draw=normal(40_000, 0.7071),
        share=lambda _: 0.1,
        options={"optimize_for": "overall"},
    ),
    Line(
        name="R² = 0.5, 4,000 users, ε = 4",
        correlation=math.sqrt(0.5),
        draw=normal(4_000, 0.7071),
        options={"optimize_for": "overall", "epsilon": 4.0},
    ),
    Line(name="R² = 0", correlation=0.0, draw=normal(40_000, 0.0)),
    Line(name="skewed spend", correlation=0.45, draw=spending(40_000)),
)


def table(line: Line, rng: np.random.Generator) -> pl.DataFrame:
    """A table of a line, drawn anew."""
    outcome, covariate, clusters = line.draw(rng)
    treated = np.empty(len(outcome), np.int64)
    for cluster in np.unique(clusters):
        own = np.flatnonzero(clusters == cluster)
        treated[own] = rng.permutation(np.arange(len(own)) < round(line.share(cluster) * len(own)))
    return pl.DataFrame(
        {
            "user": np.arange(len(outcome)),
            "market": clusters,
            "arm": treated,
            "spend": np.clip(outcome + EFFECT * treated, 0, 100),
            "before": covariate,
        }
    )


def plan_of(line: Line, made: pl.DataFrame) -> cdp.Plan:
    """The plan of a line; what is expected of outcomes comes from another table."""
    spend, before = made["spend"].to_numpy(), made["before"].to_numpy()
    ends = [math.floor(before.min()), math.ceil(before.max())]
    covariate = {"column": "before", "range": ends, "correlation": line.correlation}
    options: dict[str, Any] = {"epsilon": 2.0, **line.options}
    return cdp.plan(
        made.drop("spend"),
        **ARMS,
        outcomes={"spend": "number:0..100"},
        baseline={"spend": f"mean:{spend.mean():.4g},std:{spend.std():.4g}"},
        covariate={"spend": covariate},
        **options,
    )


def predicted(plan: cdp.Plan) -> tuple[float, float]:
    """The predicted variances of the plain and of the adjusted overall effect."""
    assert plan.report is not None  # noqa: S101 - it was just made
    (one,) = plan.report.questions[0].comparison.choice.precisions
    return one.of_target(0).std_error ** 2, one.overall.std_error**2


def measure(line: Line, seconds: float) -> tuple[str, ...]:
    """One line of the table, of as many replicates as there is time for."""
    rng, end = np.random.default_rng(), time.monotonic() + seconds
    plan = plan_of(line, table(line, rng))
    expected, found = predicted(plan), []
    for number in range(N_REPLICATES):
        if number > 1 and time.monotonic() > end:
            break
        effects = cdp.estimate(cdp.release(table(line, rng), plan=plan)).effects
        row: list[float] = []
        for one in effects:
            low, high = one.ci()
            row += [one.effect, one.std_error**2, low <= EFFECT <= high]
        low, high = next(one for one in effects if one.to_report).ci()
        found.append([*row, low <= EFFECT <= high])
    values = np.array(found)
    n, plain, adjusted = len(values), values[:, 0], values[:, 3]
    ratio = adjusted.var(ddof=1) / plain.var(ddof=1)
    correlation = np.corrcoef(plain, adjusted)[0, 1]
    error = ratio * 2 * math.sqrt((1 - correlation**2) / n)
    return (
        line.name,
        f"{n:,}",
        f"{expected[1] / expected[0]:.3f}",
        f"{ratio:.3f} ± {error:.3f}",
        f"{np.nanmean(values[:, 4]) / adjusted.var(ddof=1):.3f} ± {math.sqrt(2 / n):.3f}",
        f"{math.sqrt(expected[1] / adjusted.var(ddof=1)):.3f} ± {math.sqrt(0.5 / n):.3f}",
        f"{(adjusted.mean() - EFFECT) / adjusted.std(ddof=1):+.3f} ± {1 / math.sqrt(n):.3f}",
        f"{100 * values[:, 2].mean():.1f}%",
        f"{100 * values[:, 6].mean():.1f}% ± {100 * math.sqrt(0.0475 / n):.1f}",
    )


HEADER = (
    "design", "replicates", "predicted ratio", "ratio found", "stated / found variance",
    "predicted / found SE", "bias in SDs", "plain covers", "covers",
)  # fmt: skip


def main() -> None:
    """Measure every line, and write the study."""
    warnings.simplefilter("ignore")
    rows = []
    for line in LINES:
        rows.append(measure(line, 60 * MINUTES / len(LINES)))
        print(*rows[-1], sep=" | ", flush=True)
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    head = f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}"
    write_study("owner_covariates", TEXT.format(table=f"{head}\n{body}"))


TEXT = """# What does a covariate gain that stays with the owner?
A covariate with R² = 0.5 about halves the variance of an overall effect: what privacy adds stays.
What a plan predicts is found, and intervals cover. With R² = 0 nothing is lost but the part of ε
that the plan spends on it.

`make bench-metrics` draws tables with a true effect of 0.5 and releases each by one plan, at ε = 2
or as said. It estimates the overall effect, as people do. The ratio is the variance of adjusted
effects over that of plain ones in the same releases. Lines that were cut off have fewer replicates.

{table}

"Covers" is for the effect that is reported, which is the one with the smaller SE. Errors are Monte
Carlo errors. Where clusters differ, the variance of a plain effect is stated on the wide side; what
the covariate explains is taken off that.
"""

if __name__ == "__main__":
    main()
