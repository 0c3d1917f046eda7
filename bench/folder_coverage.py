"""Do 95% intervals of three folders together cover, each of another size and ε?

Every experiment draws units of three folders that differ in level and in effect, releases each
folder at an ε of its own, with totals next to rows, and estimates them together. The true effect is
that of the folders, by their units. `bench/after_release.py` repeats it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

import clusterdp as cdp

# Units, ε, the share of visits in control, and the effect on it.
FOLDERS = ((900, 0.8, 0.3, 0.05), (600, 2.0, 0.5, -0.05), (400, 4.0, 0.4, 0.15))
TIERS = ("gold", "silver")
GOAL = (0.935, 0.975)


def _table(n_units: int, level: float, effect: float, rng: np.random.Generator) -> pl.DataFrame:
    """Units of a folder; a visit has 1 to 3 clicks, 2 in the mean."""
    arm = rng.integers(0, 2, n_units)
    visit = rng.random(n_units) < level + effect * arm
    return pl.DataFrame(
        {
            "arm": arm,
            "market": rng.integers(0, 3, n_units),
            "visit": visit.astype(np.int8),
            "clicks": np.where(visit, rng.integers(1, 4, n_units), 0),
            "tier": rng.choice(TIERS, n_units, p=[0.4, 0.6]),
        }
    )


def experiment(
    rng: np.random.Generator, **options: Any
) -> dict[tuple[str, str], tuple[bool, bool]]:
    """One draw of units, releases and the estimate of all.

    Args:
        rng: The source of outcomes.
        options: More options of the estimate.
    """
    tables, releases, first = [], [], 0
    for n_units, epsilon, level, effect in FOLDERS:
        table = _table(n_units, level, effect, rng)
        table = table.with_columns(user=pl.int_range(first, first + n_units))
        first += n_units
        tables.append(table.with_columns(true=pl.lit(effect)))
        releases.append(
            cdp.release(
                table,
                unit="user",
                arm="arm",
                control=0,
                cluster="market",
                outcomes={"visit": "0,1", "clicks": "0..3"},
                mechanism=cdp.optimal(epsilon=epsilon, sums=cdp.SumShares(totals=0.2)),
                passthrough=["tier"],
            )
        )
    units = pl.concat(tables)
    found = cdp.estimate(releases, by=["tier"], **options)
    covered = {}
    for one in found.effects:
        part = units
        for name, value in one.of.segment:
            part = part.filter(pl.col(name) == value)
        true = float(part["true"].mean()) * (2 if one.of.metric == "clicks" else 1)  # type: ignore[arg-type]
        low, high = one.ci()
        sampled = 1.96 * np.sqrt(max(one.sampling_variance, 0.0))
        is_near = bool(abs(one.effect - true) <= sampled)
        covered[one.of.metric, one.of.label] = low <= true <= high, is_near
    return covered
