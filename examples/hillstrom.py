"""A real experiment: what an analyst finds in a private folder, beside the true numbers.

python examples/hillstrom.py hillstrom.csv     # prints the tables of the README

Kevin Hillstrom's e-mail experiment (MineThatData, 2008) has 64,000 customers, two kinds of e-mail
or none, and whether they visited, bought, and how much they spent. Privacy noise is fresh in every
run. True numbers are computed by Polars alone: means, and their ratios by linearisation.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import clusterdp as cdp

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROL, ARMS = "No E-Mail", ("Mens E-Mail", "Womens E-Mail")
# What the owner declares. The reference is what is known of such campaigns, not of this one.
EXPERIMENT: dict[str, Any] = {
    "unit": "customer",
    "arm": "segment",
    "control": CONTROL,
    "cluster": "history_segment",
    "outcomes": {"visit": "0,1", "conversion": "0,1", "spend": "number:0..500"},
    "constraint": ["conversion -> visit", "spend>0 -> conversion"],
    "baseline": {"visit": "0.15", "conversion": "0.01", "spend": "mean:1,std:15"},
    "breakdown": ["newbie,womens"],
    "epsilon": 2,
}
METRICS = ("visit", "conversion", "spend", "spend/visit")
GROUPS = ("newbie", "womens")


def read_customers(file: Path) -> pl.DataFrame:
    """The table, with a number for each customer."""
    return pl.read_csv(file, infer_schema_length=None).with_row_index("customer")


def true_mean(rows: pl.DataFrame, metric: str) -> tuple[float, float]:
    """The mean of a metric, or the ratio of two, with the variance of its estimate."""
    above, _, below = metric.partition("/")
    numbers = rows.select(
        above=pl.col(above).cast(pl.Float64),
        below=pl.col(below).cast(pl.Float64) if below else pl.lit(1.0),
    )
    means = numbers.mean().row(0)
    ratio = means[0] / means[1]
    rest = numbers.select((pl.col("above") - ratio * pl.col("below")) / means[1]).to_series()
    return ratio, float(rest.var() or 0.0) / len(rest)  # type: ignore[arg-type]  # a number


def true_effect(rows: pl.DataFrame, metric: str, arm: str) -> tuple[float, float]:
    """The effect of an arm on a metric, from true outcomes, with its standard error."""
    (treated, error), (control, other) = (
        true_mean(rows.filter(pl.col("segment") == one), metric) for one in (arm, CONTROL)
    )
    return treated - control, math.sqrt(error + other)


def line(label: str, arm: str, effect: cdp.Effect, true: tuple[float, float]) -> str:
    """One effect of a table."""
    digits = 2 if "spend" in label else 4
    low, high = effect.ci(0.95)
    interval = f"[{low:.{digits}f}, {high:.{digits}f}]"
    private = f"{effect.effect:>9.{digits}f}  {effect.std_error:>7.{digits}f}  {interval:>17}"
    return f"  {label:20} {arm:14}{private}   {true[0]:>7.{digits}f}  {true[1]:>7.{digits}f}"


def tables(customers: pl.DataFrame, estimate: cdp.Estimate) -> Iterator[str]:
    """Effects for everyone, and on visits in groups, with the true ones beside them."""
    heading = f"{'effect':>9}  {'error':>7}  {'95% interval':>17}   {'true':>7}  {'error':>7}"
    yield f"  {'everyone':20} {'':14}{heading}"
    for metric in METRICS:
        for arm in ARMS:
            yield line(metric, arm, estimate[metric, arm], true_effect(customers, metric, arm))
    yield ""
    yield f"  {'visit, in groups':20} {'':14}{heading}"
    for values, group in customers.sort(GROUPS).group_by(GROUPS, maintain_order=True):
        label = ", ".join(f"{name}={value}" for name, value in zip(GROUPS, values, strict=True))
        for arm in ARMS:
            yield line(label, arm, estimate["visit", arm, label], true_effect(group, "visit", arm))


def main() -> None:
    """Plan, publish, estimate, compare."""
    customers = read_customers(Path(sys.argv[1]))
    plan = cdp.plan(customers, **EXPERIMENT)  # reads no outcome
    with tempfile.TemporaryDirectory() as place:
        folder = cdp.publish(customers, plan, out=Path(place) / "published")
        estimate = cdp.estimate(folder, metrics=list(METRICS), by=[",".join(GROUPS)])
    print("\n".join(tables(customers, estimate)))


if __name__ == "__main__":
    main()
