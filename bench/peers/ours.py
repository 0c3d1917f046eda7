"""clusterdp, by its own functions: plan, release, estimate, calibrated rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.peers.bins import Binning, bins_of
from bench.peers.given import Answer, RowsGiven
from clusterdp.errors import OwnerNotice

if TYPE_CHECKING:
    from bench.peers.trial import Sample
    from clusterdp._arrays import BoolArray, FloatArray

EXPERIMENT: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"y": "0,1"}}
SUMS_SHARE = 0.9  # of ε, for sums of bins


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReleaseGiven:
    """A release with rows, and the analyst's own columns; axes `[unit, feature]` of features."""

    release: cdp.Release
    features: FloatArray

    def overall(self) -> Answer:
        """As `estimate` tells it."""
        return _answer(cdp.estimate(self.release).effects[0])

    def segment(self, inside: BoolArray) -> Answer:
        """As `estimate` tells it of a table that is joined by the unit's id."""
        table = pl.DataFrame({"user": np.arange(len(inside)), "inside": inside})
        return _answer(cdp.estimate(self.release, segments=table, by="inside")["inside=True"])

    def uplift(self, features: FloatArray) -> FloatArray:
        """By linear models of calibrated rows."""
        rows = cdp.calibrated_rows(self.release).sort("user")
        values, arms = rows["y_calibrated"].to_numpy(), rows["treated"].to_numpy()
        return RowsGiven(values=values, arms=arms, features=self.features).uplift(features)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BinnedGiven(ReleaseGiven):
    """A release whose clusters are bins of the features."""

    binning: Binning

    def uplift(self, features: FloatArray) -> FloatArray:
        """The estimated effect in each person's bin."""
        found = cdp.estimate(self.release, by="market")
        bins = range(self.binning.n_bins)
        return np.array([found[f"market={one}"].effect for one in bins])[
            self.binning.assign(features)
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AggregateGiven:
    """A release without rows."""

    release: cdp.Release

    def overall(self) -> Answer:
        """As `estimate` tells it."""
        return _answer(cdp.estimate(self.release).effects[0])

    def segment(self, inside: BoolArray) -> None:
        """One question was asked."""

    def uplift(self, features: FloatArray) -> None:
        """One question was asked."""


def table_of(sample: Sample) -> pl.DataFrame:
    """The owner's table: no feature is in it, but the cluster."""
    return pl.DataFrame(
        {
            "user": np.arange(sample.n_units),
            "treated": sample.arms,
            "market": sample.clusters,
            "y": sample.outcomes,
        }
    )


@cache
def plan_for(n_clusters: int, cell_size: int, epsilon: float, optimize_for: str | None) -> cdp.Plan:
    """A plan for a purpose, or for all of them, made before there is a table."""
    cells = [(market, arm, cell_size) for market in range(n_clusters) for arm in (0, 1)]
    sizes = pl.DataFrame(cells, schema=["market", "treated", "units"], orient="row")
    return cdp.plan(
        sizes,
        **EXPERIMENT,
        cluster="market",
        size="units",
        epsilon=epsilon,
        optimize_for=optimize_for,
    )


def planned(
    sample: Sample,
    epsilon: float,
    rng: np.random.Generator,  # noqa: ARG001 - the noise is that of the operating system
    *,
    optimize_for: str | None,
) -> ReleaseGiven:
    """Carry out a plan for as many units and clusters, of equal sizes."""
    n_clusters = len(np.unique(sample.clusters))
    cell_size = round(sample.n_units / (200 * n_clusters)) * 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OwnerNotice)
        plan = plan_for(n_clusters, max(cell_size, 100), epsilon, optimize_for)
        release = cdp.release(table_of(sample), plan)
    return ReleaseGiven(release=release, features=sample.features)


def with_bins(
    sample: Sample,
    epsilon: float,
    rng: np.random.Generator,  # noqa: ARG001 - the noise is that of the operating system
    *,
    n_bins: int,
) -> BinnedGiven:
    """Bins of the features as clusters, and most of ε for their noisy sums."""
    binning = bins_of(sample, n_bins)
    table = table_of(sample).with_columns(market=pl.Series(binning.assign(sample.features)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OwnerNotice)
        release = cdp.release(
            table,
            **EXPERIMENT,
            cluster="market",
            mechanism="optimal",
            epsilon=epsilon,
            sums_share=SUMS_SHARE,
        )
    return BinnedGiven(release=release, features=sample.features, binning=binning)


def one_cluster(
    sample: Sample,
    epsilon: float,
    rng: np.random.Generator,  # noqa: ARG001 - the noise is that of the operating system
) -> AggregateGiven:
    """Noisy Horvitz–Thompson of everyone as one cluster: one number."""
    mechanism = cdp.noisy_horvitz_thompson(epsilon=epsilon)
    release = cdp.release(table_of(sample), mechanism=mechanism, **EXPERIMENT)
    return AggregateGiven(release=release)


def _answer(effect: cdp.Effect) -> Answer:
    return Answer(effect.effect, *effect.ci(0.95))
