"""Requests of all kinds, as Python gives them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import clusterdp as cdp
from clusterdp.spec.fields import MECHANISM_NAMES

SHARES = st.floats(0, 0.9, allow_nan=False)
ABOVE_ZERO = st.floats(0.01, 10, allow_nan=False)
OUTCOMES: dict[str, Any] = {
    "visit": st.sampled_from(["0,1", [0, 1], "no,yes", cdp.OutcomeSpace.binary()]),
    "clicks": st.sampled_from(
        ["0..3", "0,1,5", [0, 2, 4], "-2..2", "bins:0,1,10", "bins:0,1,9 as 0,4"]
    ),
    "spend": st.sampled_from(["number:0..50", cdp.Number(0, 50), "number:-1e5..1.5e5 by 1"]),
    "net revenue, €": st.just("0..1"),
}
# Every option that stands alone, with values as people give them.
ALONE: dict[str, Any] = {
    "unit": st.just("user"),
    "arm": st.just("arm"),
    "cluster": st.sampled_from(["market", "market,region", ["market", "region"]]),
    "breakdown": st.sampled_from(["region", [["region", "age"], "half"], ["region,age"]]),
    "passthrough": st.sampled_from(["a", "a,b", ["a", "b"]]),
    "folds": st.integers(1, 10),
    "control": st.sampled_from([0, "A", True, 1.5]),
    "arm_shares": st.sampled_from([{"A": 0.5, "B": 0.5}, ["A=1", "B=2"]]),
    "min_cell_size": st.integers(1, 50),
    "clip": st.booleans(),
    "decimal": st.sampled_from([".", ","]),
    "epsilon": ABOVE_ZERO,
    "delta": st.sampled_from([0.0, 1e-6]),
    "mechanism": st.sampled_from(MECHANISM_NAMES),
    "pilot": SHARES,
    "counts_share": SHARES,
    "totals_share": SHARES,
    "prior": st.sampled_from(["0.5,0.5", [1, 2, 3]]),
    "optimize_for": st.sampled_from(
        ["balanced", "overall", "breakdowns", "segments", "segments:0.05"]
    ),
    "aggregate": st.sampled_from(["sum", ["max"]]),
    "title": st.just("Visits of March"),
    "unit_name": st.just("patient"),
    "input": st.sampled_from(["t.csv", "s3://bucket/t.parquet", "postgresql://me@host/shop"]),
    "query": st.just("select * from \"visits\" where 'a' <> 'b'"),
    "ledger": st.sampled_from(["budget.db", "postgresql://me@host/budgets"]),
    "population": st.just("users, old & new"),
    "keep_order": st.booleans(),
    "resample_prob": SHARES.filter(bool),
    "engine": st.just("local"),
    "out": st.just("published"),
}


@st.composite
def asked_for(draw: st.DrawFn) -> dict[str, Any]:
    """Options of a release, as Python gives them."""
    names = draw(st.lists(st.sampled_from(list(OUTCOMES)), min_size=1, unique=True))
    found: dict[str, Any] = {"outcomes": {name: draw(OUTCOMES[name]) for name in names}}
    found |= draw(st.fixed_dictionaries({}, optional=ALONE))
    if draw(st.booleans()):
        found["missing"] = names[:1]
        found["baseline"] = {f"{names[0]}_observed": 0.9}
    if "clicks" in names and draw(st.booleans()):
        found["weight"] = {"clicks": 2}
    if "spend" in names and draw(st.booleans()):
        found |= {
            "metric": "spend>=1",
            "baseline": {"spend": "mean:0.5,std:0.5"},
            "primary": "spend",
        }
    if draw(st.booleans()) and "net revenue, €" not in names:
        found["question"] = draw(
            st.sampled_from([[[name] for name in names], [f"{name}=2" for name in names]])
        )
    if "arm_shares" not in found and "cluster" in found and draw(st.booleans()):
        found["assignment"] = draw(
            st.sampled_from(
                [{"north": 0.2, "south": 0.5}, ["north=a:0.3/b:0.2", "south=a:0.1/b:0.1"]]
            )
        )
        found |= {"private_cluster": 0.5, "labels": "north,south"}
        found.pop("min_cell_size", None)
    elif "cluster" in found and draw(st.booleans()):
        found |= {"private_cluster": 0.5, "labels": ["north", "south"]}
        found["label_shares"] = {"north": 3, "south": 1}
    return found
