"""Estimates that pages and figures are made of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

import clusterdp as cdp
from clusterdp.estimation.effects.effect import EffectTarget
from clusterdp.estimation.effects.findings import VARYING, Origin, with_families

if TYPE_CHECKING:
    import numpy as np

HOSTILE = "<script>alert('1')</script> \"&{{ 7 * 7 }}"
# A true outcome and an id that no page may hold.
SECRET, SECRET_ID = 37.123456, "unit-48213"
ARMS = ("No E-Mail", "Mens E-Mail", "Womens E-Mail")


def customers(rng: np.random.Generator, n_customers: int = 900) -> pl.DataFrame:
    """Three arms in turn, so that every cell has units; visits, orders, spend and segments."""
    place = pl.int_range(n_customers, eager=True)
    visit = rng.random(n_customers) < 0.4
    return pl.DataFrame(
        {
            "user": [SECRET_ID, *(f"u{one}" for one in range(1, n_customers))],
            "arm": [ARMS[one % 3] for one in range(n_customers)],
            "market": (place // 3) % 3,
            "tier": [("gold", "silver", HOSTILE)[one // 9 % 3] for one in range(n_customers)],
            "lone": ["one"] + ["all others"] * (n_customers - 1),
            "before": rng.normal(size=n_customers),
            "visit": visit.astype(int),
            "orders": visit * rng.integers(0, 4, n_customers),
            "spend": [SECRET, *(visit * rng.uniform(0, 90, n_customers))[1:]],
        }
    )


def released(table: pl.DataFrame, **options: Any) -> cdp.Release:
    """A release of visits and orders."""
    chosen: dict[str, Any] = {
        "outcomes": {"visit": "0,1", "orders": "0..3"},
        "constraint": ["orders>0 -> visit"],
        "mechanism": "optimal",
        "epsilon": 4,
        "unit": "user",
        "arm": "arm",
        "cluster": "market",
        "control": ARMS[0],
        "passthrough": ["tier", "lone"],
    }
    return cdp.release(table, **(chosen | options))


def effect(
    number: float, std_error: float, of: EffectTarget | None = None, n_units: int = 500
) -> cdp.Effect:
    """An effect as a value."""
    return cdp.Effect(
        of=of or EffectTarget("visit", "B", "A"),
        effect=number,
        std_error=std_error,
        sampling_variance=std_error**2,
        privacy_variance=0.0,
        n_treated=n_units,
        n_control=n_units,
    )


def estimate_of(*effects: cdp.Effect, shares: tuple[str, ...] = ()) -> cdp.Estimate:
    """An estimate that holds some effects, judged together."""
    return cdp.Estimate(
        effects=with_families(effects, VARYING),
        treatment="arm",
        estimator="stratified",
        mechanism="Optimal",
        guarantee=cdp.Guarantee(epsilon=2.0),
        origin=Origin(
            data="published",
            n_clusters=7,
            cluster="market",
            arm_sizes=(("A", 10_000), ("B", 10_000), ("C", 10_000)),
            shares=shares,
            made_by="clusterdp.estimate('published')",
        ),
        family=VARYING,
    )


def many_segments(n_segments: int, name: str = "number {}") -> cdp.Estimate:
    """Two arms and two metrics in many segments, one of which has no numbers."""
    targets = [
        EffectTarget(metric, arm, "A", segment)
        for segment in ((), *((("store", name.format(one)),) for one in range(n_segments)))
        for metric in ("visit", "spend")
        for arm in ("B", "C")
    ]
    effects = [
        effect(
            math.sin(place) / 9,
            math.nan if place == 9 else 0.05 + place % 7 / 99,
            of,
            n_units=10_000 if not of.segment else 100 + 7 * place % 997,
        )
        for place, of in enumerate(targets)
    ]
    return estimate_of(*effects, shares=("visit",))
