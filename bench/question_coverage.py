"""Do 95% intervals cover where each person was asked one of several questions?

    make bench-coverage

Outcomes do not depend on the arm, so that every effect is zero. In each replicate the table is
drawn anew, released by one plan and estimated, through the functions that people call: overall, in
a tenth of units that the plan does not know, in the groups of a declared breakdown, and for a
ratio of two questions. Writes `docs/studies/question_coverage.md`.
"""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.study_page import write_study
from clusterdp.estimation.metrics import observed

N_REPLICATES, N_UNITS, N_MARKETS = 2000, 6000, 20
EPSILONS = (1.0, 2.0)
# What all lines may take together, in minutes; lines that are cut off have fewer effects.
MINUTES = 40.0
OPTIONS: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "outcomes": {
        "bought": "0,1",
        "visits": "0..5",
        "spend": "number:0..100",
        "score": "number:0..10",
    },
    "missing": "score",
    "baseline": {
        "bought": "0.2",
        "visits": "0.5,0.2,0.12,0.08,0.06,0.04",
        "spend": "mean:20,std:20",
        "score": "mean:6,std:2",
        "score_observed": "0.6",
    },
    "cluster": "market",
    "breakdown": "region",
    "passthrough": "tenth",
}
ASKED: dict[str, Any] = {
    "metrics": ["bought", "visits", "spend", "score", "spend/visits"],
    "by": ["tenth", "region"],
}


def draw_table(rng: np.random.Generator) -> pl.DataFrame:
    """Users with outcomes of four questions that go together, whatever their arm.

    Markets differ, and so do the shares of arms in them. Some cells expect about as many answers as
    make a stratum.
    """
    number = np.arange(N_UNITS)
    market = number % N_MARKETS
    taste = rng.normal(size=N_UNITS) + market / N_MARKETS - 0.5
    shares = np.where(market < N_MARKETS // 2, 0.3, 0.7)
    bought = rng.random(N_UNITS) < 1 / (1 + np.exp(1.6 - 0.8 * taste))
    visits = np.minimum(rng.poisson(np.exp(0.5 * taste - 0.1)), 5)
    spend = np.clip(20 + 12 * taste + rng.normal(0, 14, N_UNITS), 0, 100)
    score = np.clip(np.rint(6 + taste + rng.normal(0, 1.8, N_UNITS)), 0, 10)
    return pl.DataFrame(
        {
            "user": number,
            "arm": (_within(market, rng) < shares).astype(np.int64),
            "market": market,
            "tenth": number % 10 == 0,
            "region": number // 10 % 4,
            "bought": bought.astype(np.int64),
            "visits": visits,
            "spend": spend,
            "score": np.where(rng.random(N_UNITS) < 0.6, score, np.nan),
        }
    )


def _within(groups: Any, rng: np.random.Generator) -> Any:
    """A random place of each unit in its group, from 0 to 1; as many below each share."""
    order = np.lexsort((rng.random(len(groups)), groups))
    sizes = np.bincount(groups)
    places = np.empty(len(groups))
    places[order] = np.concatenate([np.arange(size) / size for size in sizes])
    return places


class Line(NamedTuple):
    """What replicates show of effects of one kind."""

    epsilon: float
    metric: str
    where: str
    n_effects: int
    coverage: float
    ratio: float

    @property
    def error(self) -> float:
        """The Monte Carlo error of the coverage, in effects that are alike."""
        return math.sqrt(0.95 * 0.05 / self.n_effects)


def measure(epsilon: float, n_replicates: int, seconds: float) -> list[Line]:
    """All lines of one ε, of as many replicates as there is time for."""
    rng, end = np.random.default_rng(), time.monotonic() + seconds
    plan = cdp.plan(draw_table(rng), **OPTIONS, epsilon=epsilon)
    found: dict[tuple[str, str], list[tuple[float, float, bool]]] = defaultdict(list)
    for number in range(n_replicates):
        if number > 1 and time.monotonic() > end:
            break
        # Bounds for attrition take most of the time, and have a bench of their own.
        with patch.object(observed, "attrition_bounds", lambda *_: []):
            estimate = cdp.estimate(cdp.release(draw_table(rng), plan), **ASKED)
        for one in estimate.effects:
            segment = dict(one.of.segment)
            if not math.isfinite(one.std_error) or segment.get("tenth") is False:
                continue
            low, high = one.ci()
            where = next(iter(segment), "overall")
            found[one.of.metric, where].append((one.effect, one.std_error, low <= 0 <= high))
    return [
        Line(epsilon, metric, where, len(held), *_shown(np.array(held, dtype=np.float64)))
        for (metric, where), held in found.items()
    ]


def _shown(held: Any) -> tuple[float, float]:
    """The coverage, and the mean standard error over the standard deviation of effects."""
    return float(held[:, 2].mean()), float(held[:, 1].mean() / held[:, 0].std(ddof=1))


def page(lines: list[Line]) -> str:
    """What was measured, as a page."""
    rows = [
        f"| {one.epsilon:g} | {one.metric} | {one.where} | {one.n_effects:,} | "
        f"{one.coverage:.1%} ± {one.error:.1%} | {one.ratio:.2f} |"
        for one in lines
    ]
    return f"""# Coverage with one question per person
Four outcomes in questions of their own, {N_UNITS:,} users in {N_MARKETS} markets, two arms that do
not differ and have 30 or 70% of a market. `region` is a breakdown of four groups, `tenth` a segment
that the plan does not know. Made by `make bench-coverage`, which draws, plans, releases and
estimates as people do.

Intervals of a ratio of two questions allow for the worst covariance of its parts, which nobody can
see: they cover more than 95%. Where the response rate, or the visits of a segment, are not
significantly different from zero, a ratio's interval has no bounds, and its standard error means
nothing.

| ε | metric | where | effects | 95% intervals that cover | mean standard error over deviation |
|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def main() -> None:
    """Measure, show and write."""
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    minutes = MINUTES / len(EPSILONS)
    found = [line for one in EPSILONS for line in measure(one, N_REPLICATES, 60 * minutes)]
    write_study("question_coverage", page(found))
    print(page(found))


if __name__ == "__main__":
    main()
