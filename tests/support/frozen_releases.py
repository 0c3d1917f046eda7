"""Releases, estimates and plans of every kind, small, by public functions alone.

Channels of least variance are found in real numbers. Another processor or another version of NumPy
finds one that differs in the tenth digit, and other rows are drawn from it: see `made_with`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import clusterdp as cdp
from fixed_randomness import fixed_randomness

if TYPE_CHECKING:
    from pathlib import Path

N_UNITS = 480
PARTS: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market"}
CLICKS: dict[str, Any] = {"outcomes": {"clicks": "0..3"}, **PARTS}
ROUNDS: dict[str, Any] = {"outcomes": {"rounds": "number:0..1000"}, **PARTS}
PRIVATE: dict[str, Any] = {"private_cluster": 0.5, "labels": "north,south,east"}
SCHOOLS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "randomization_unit": "school",
    "outcomes": {"visit": "0,1"},
    "arm_shares": "0=0.5,1=0.5",
    "epsilon": 1,
}


def experiment() -> pl.DataFrame:
    """Units in three markets with outcomes of every kind, by formula."""
    number = pl.int_range(N_UNITS)
    table = pl.select(
        user=number * 7919 % 100_003,
        treated=number % 2,
        market=pl.Series(["north", "south", "east"]).gather(number // 2 % 3),
        tier=pl.Series(["gold", "basic"]).gather(number // 6 % 2),
        school=number % 24,
        age=20 + number * 13 % 47,
        # Two fractions between 0 and 1 that tell nothing of each other.
        one=number * 40_503 % 65_521 / 65_521,
        two=number * number * 30_011 % 65_537 / 65_537,
    )
    visit = pl.col("one") < 0.4 + 0.2 * pl.col("treated")
    return table.with_columns(
        clicks=(4 * pl.col("one") ** 2 + 0.4 * pl.col("treated")).floor().clip(0, 3).cast(pl.Int64),
        visit=visit.cast(pl.Int64),
        sale=(visit & (pl.col("two") < 0.5)).cast(pl.Int64),
        rounds=(6 * pl.col("two") + pl.col("treated")).round(2),
        score=pl.when(pl.col("two") < 0.8).then((5 * pl.col("one")).floor()),
    ).drop("one", "two")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A release, and what is estimated from it.

    Attributes:
        options: What it is asked for with.
        words: What is said of it where it becomes a folder.
        estimates: Arguments of `estimate`, by a name for each.
    """

    options: dict[str, Any]
    words: dict[str, Any] = field(default_factory=dict)
    estimates: dict[str, dict[str, Any]] = field(default_factory=lambda: {"overall": {}})


RELEASES = {
    "public channel": Frozen(
        options={**CLICKS, "epsilon": 1, "passthrough": "tier,age"},
        estimates={
            "overall": {},
            "rows": {"use": "rows", "estimator": "unstratified"},
            "by tier": {"by": "tier", "differences": "rest"},
            "adjusted": {"adjust": "age"},
            "quantile": {"metrics": ["median(clicks)", "dist(clicks)"]},
        },
    ),
    "noisy counts": Frozen(
        options={**CLICKS, "epsilon": 2, "mechanism": "optimal", "counts_share": 0.3}
    ),
    "Cluster-DP": Frozen(
        options={**CLICKS, "epsilon": 2, "mechanism": "cluster-dp", "passthrough": "tier"},
        estimates={"overall": {}, "by tier": {"by": "tier", "differences": "pairs"}},
    ),
    "aggregates alone": Frozen(
        options={**CLICKS, "epsilon": 1, "mechanism": "noisy-histogram"},
    ),
    "pilot": Frozen(
        options={**ROUNDS, "epsilon": 3, "pilot": 0.2},
        estimates={"overall": {}, "quantile": {"metrics": ["rounds", "p90(rounds)", "rounds>=3"]}},
    ),
    "private clusters": Frozen(
        options={**CLICKS, **PRIVATE, "epsilon": 2, "passthrough": "tier"},
        estimates={"overall": {}, "by tier": {"by": "tier"}, "by market": {"by": "market"}},
    ),
    "private clusters and a pilot": Frozen(
        options={**ROUNDS, **PRIVATE, "epsilon": 3, "pilot": 0.2}
    ),
    "two questions": Frozen(
        options={
            **PARTS,
            "outcomes": {"visit": "0,1", "sale": "0,1", "rounds": "number:0..10"},
            "constraint": ["sale -> visit"],
            "question": ["visit,sale=2", "rounds"],
            "breakdown": "tier",
            "folds": 4,
            "passthrough": "age",
            "epsilon": 2,
        },
        estimates={
            "overall": {},
            "by tier": {"by": "tier", "differences": "rest"},
            "adjusted": {"adjust": "age"},
            "ratio": {"metrics": ["sale/visit", "rounds/visit"]},
            "exposure": {"metrics": "sale", "exposure": "visit"},
            "fold": {"metrics": "visit", "fold": 1},
        },
    ),
    "missing outcome": Frozen(
        options={
            **PARTS,
            "outcomes": {"score": "0..4"},
            "missing": "score",
            "epsilon": 2,
        },
        words={"title": "A survey", "contact": "a@example.org", "reason": "It is small."},
    ),
    "groups": Frozen(options=SCHOOLS),
    "groups with totals": Frozen(
        options={**SCHOOLS, "totals_share": 0.2, "passthrough": "tier"},
        estimates={"overall": {}, "by tier": {"by": "tier", "differences": "rest"}},
    ),
    "delta": Frozen(
        options={**CLICKS, "epsilon": 1, "delta": 1e-5, "mechanism": "uniform-prior-dp"}
    ),
}


# Those whose plans are frozen.
PLANS = ("public channel", "Cluster-DP", "pilot", "private clusters", "two questions", "groups")
# Those that are frozen as Spark writes them, too.
ON_SPARK = ("Cluster-DP", "two questions", "private clusters and a pilot")


def write_release(name: str, source: Any, folder: Path) -> dict[str, str]:
    """Publish a release; returns the SHA-256 of every file, by its name."""
    frozen = RELEASES[name]
    with fixed_randomness():
        cdp.publish(source, out=folder, **frozen.options, **frozen.words)
    return checksums(folder)


def checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a folder, by its name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def memory_release(name: str) -> cdp.Release:
    """The same release, in memory."""
    with fixed_randomness():
        return cdp.release(experiment(), **RELEASES[name].options)


def estimates(name: str, folder: Path) -> dict[str, Any]:
    """What is estimated from a release, as plain values."""
    asked = RELEASES[name].estimates
    return {what: cdp.estimate(folder, **given).to_dict() for what, given in asked.items()}


def plan_text(name: str, folder: Path) -> str:
    """The plan file of a release."""
    path = folder / "plan.lock"
    cdp.plan(experiment(), **RELEASES[name].options).save(path)
    return path.read_text(encoding="utf-8")


def made_with() -> dict[str, str]:
    """What bytes follow from beside the program: who writes Parquet, and how numbers are rounded.

    The last is a checksum of what linear algebra and functions give for a matrix. It differs where
    the processor, or the version of what uses it, makes last digits differ.
    """
    place = np.arange(1.0, 17.0)
    matrix = np.sin(np.outer(place, place)) + np.diag(place)
    parts = (
        matrix @ matrix,
        np.linalg.solve(matrix, place),
        np.linalg.cholesky(matrix @ matrix.T),
        *np.linalg.svd(matrix),
        np.exp(matrix / 16),
        np.log(place),
    )
    digits = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    return {
        "polars": version("polars"),
        "pyarrow": version("pyarrow"),
        "arithmetic": hashlib.sha256(digits).hexdigest(),
    }
