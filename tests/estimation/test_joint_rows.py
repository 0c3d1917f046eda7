"""Several outcomes through real releases of rows: numbers off the grid, clipped and rounded."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray

N_UNITS, N_CLUSTERS, N_TABLES = 3000, 6, 150
HIGHEST_ROUNDS = 120
METRICS = ("day_1", "rounds", "rounds>=10")
PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"day_1": "0,1", "rounds": cdp.Number(0, HIGHEST_ROUNDS)},
    "metric": ["rounds>=10"],
}


class Players(NamedTuple):
    """What every unit would do in each arm; axes `[unit, arm]`."""

    day_1: IntArray
    rounds: FloatArray
    inside: BoolArray  # whether a unit is in the segment

    def measured(self) -> dict[str, FloatArray]:
        """The metrics by name, as they are defined: of the clipped number."""
        clipped = np.clip(self.rounds, 0, HIGHEST_ROUNDS)
        every = np.stack([self.day_1, clipped, clipped >= 10])
        return dict(zip(METRICS, every, strict=True))

    def truth(self, metric: str, label: str) -> float:
        """The average effect, overall or in the segment."""
        outcomes = self.measured()[metric]
        gains = outcomes[:, 1] - outcomes[:, 0]
        return float(gains.mean() if label == "overall" else gains[self.inside].mean())

    def table(self, rng: np.random.Generator) -> pl.DataFrame:
        """The outcomes under a fresh assignment, half of every cluster in each arm."""
        order = rng.permutation(N_UNITS)
        arms = np.empty(N_UNITS, dtype=np.int64)
        arms[order[np.argsort(order % N_CLUSTERS, kind="stable")]] = np.arange(N_UNITS) % 2
        units = np.arange(N_UNITS)
        return pl.DataFrame(
            {
                "user": units,
                "treated": arms,
                "market": units % N_CLUSTERS,
                "day_1": self.day_1[units, arms],
                "rounds": self.rounds[units, arms],
            }
        )


@pytest.fixture
def players(rng: np.random.Generator) -> Players:
    """Heavy-tailed rounds, not whole numbers, with 4% of units beyond the range."""
    control = rng.lognormal(2.3, 1.4, N_UNITS)
    rounds = np.stack([control, control * 1.3 + 0.37], axis=1)
    return Players(
        day_1=(rng.random((N_UNITS, 1)) < [0.3, 0.42]).astype(np.int64),
        rounds=rounds,
        inside=rng.random(N_UNITS) < 0.4,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [cdp.optimal(epsilon=3), cdp.optimal(epsilon=4, sums=cdp.SumShares(clusters=0.3))],
    ids=["rows", "sums"],
)
def test_every_metric_is_covered(
    mechanism: cdp.Mechanism, players: Players, rng: np.random.Generator
) -> None:
    """False alarms: ALPHA for each of six effects, if intervals cover 93.5%; ALPHA for each mean.

    The negative control is the effect on rounds that are not clipped.
    """
    segments = pl.DataFrame({"user": np.arange(N_UNITS), "vip": players.inside})
    found: dict[tuple[str, str], list[cdp.Effect]] = {}
    for _ in range(N_TABLES):
        release = cdp.release(players.table(rng), mechanism=mechanism, **PARTS)
        estimate = cdp.estimate(release, segments=segments, by="vip")
        for key in product(METRICS, ("overall", "vip=True")):
            found.setdefault(key, []).append(estimate[key])
    for key, effects in found.items():
        truth = players.truth(*key)
        n_covered = sum(low <= truth <= high for low, high in map(cdp.Effect.ci, effects))
        assert n_covered >= stats.binom(N_TABLES, 0.935).ppf(ALPHA), (key, n_covered)
        assert is_unbiased(effects, truth), key
    unclipped = float((players.rounds[:, 1] - players.rounds[:, 0]).mean())
    assert not is_unbiased(found["rounds", "overall"], unclipped)


def is_unbiased(effects: list[cdp.Effect], truth: float) -> bool:
    """Whether the mean error, in standard errors, is what chance explains at ALPHA."""
    errors = [(effect.effect - truth) / effect.std_error for effect in effects]
    return bool(abs(np.mean(errors)) <= stats.norm.isf(ALPHA / 2) / np.sqrt(len(errors)))


def test_effects_are_named_by_metric(players: Players, rng: np.random.Generator) -> None:
    release = cdp.release(players.table(rng), mechanism=cdp.optimal(epsilon=2), **PARTS)
    segments = pl.DataFrame({"user": np.arange(N_UNITS), "vip": players.inside})
    estimate = cdp.estimate(release, segments=segments, by="vip")
    assert estimate.metrics == METRICS
    assert [effect.of.metric for effect in estimate.effects[:3]] == list(METRICS)
    assert {effect.family_size for effect in estimate.effects[3:]} == {6}
    assert estimate["rounds", 1, "vip=True"].of.label == "vip=True"
    with pytest.raises(KeyError, match="has several metrics"):
        _ = estimate["vip=True"]
    with pytest.raises(cdp.ParameterError, match="There are 3 overall effects"):
        _ = estimate.effect
    assert all(metric in str(estimate) for metric in METRICS)


def test_true_effects_are_of_the_clipped_number(players: Players, rng: np.random.Generator) -> None:
    """Against means and variances of the rows, cluster by cluster; nothing is rounded to a grid."""
    table = players.table(rng)
    estimate = cdp.estimate_without_privacy(table, **PARTS)
    measured = players.measured()
    arms, units = table["treated"].to_numpy(), np.arange(N_UNITS)
    for name in METRICS:
        seen, effect, variance = measured[name][units, arms], 0.0, 0.0
        for market in range(N_CLUSTERS):
            treated, control = (
                seen[(units % N_CLUSTERS == market) & (arms == arm)] for arm in (1, 0)
            )
            effect += (treated.mean() - control.mean()) / N_CLUSTERS
            noise = treated.var(ddof=1) / len(treated) + control.var(ddof=1) / len(control)
            variance += noise / N_CLUSTERS**2
        # The lattice of the number is in steps of a hundred-thousandth; squares lose some bits.
        assert estimate[name].effect == pytest.approx(effect, abs=1e-4)
        assert estimate[name].std_error ** 2 == pytest.approx(variance, rel=1e-3)
