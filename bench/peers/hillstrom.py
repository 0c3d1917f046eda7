"""Hillstrom's e-mail experiment as a population: women's e-mail or none, and who visited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from bench.peers.trial import BY_ONE_FEATURE, BY_OWN_COLUMN, BY_TWO_FEATURES, Sample, Trial

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp._arrays import BoolArray, FloatArray, IntArray

_ARMS = ("No E-Mail", "Womens E-Mail")
_ENDS = {
    "recency": (1.0, 12.0),
    "log_history": (3.0, 8.5),
    "mens": (0.0, 1.0),
    "womens": (0.0, 1.0),
    "newbie": (0.0, 1.0),
    "urban": (0.0, 1.0),
    "rural": (0.0, 1.0),
}
_HIGH_HISTORY = 0.9  # the quantile above which the tenth by one feature begins


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Customers:
    """Rows of the table, as columns; axes `[unit]`, and `[unit, feature]` of features."""

    features: FloatArray
    arms: IntArray
    clusters: IntArray
    outcomes: IntArray
    many_channels: BoolArray

    def rows(self, places: IntArray) -> Customers:
        """Some of them, in this order."""
        return Customers(**{name: getattr(self, name)[places] for name in self.__slots__})

    def effect(self, inside: BoolArray) -> float:
        """The difference in means between arms among some of them."""
        treated, control = (self.outcomes[inside & (self.arms == arm)] for arm in (1, 0))
        return float(treated.mean() - control.mean())


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredEffects:
    """Customers who were not drawn from, whose experiment tells what a rule would gain."""

    customers: Customers

    @property
    def features(self) -> FloatArray:
        """What the rule knows of them."""
        return self.customers.features

    def gain(self, chosen: BoolArray) -> float:
        """Over treating as many at random."""
        everyone = np.ones(len(chosen), dtype=np.bool_)
        return self.customers.effect(chosen) - self.customers.effect(everyone)


@dataclass(frozen=True, slots=True, eq=False)
class HillstromPopulation:
    """Each trial halves the table at random.

    One half is the population: as many customers are drawn from it, with replacement, in each arm.
    Its own differences in means are the truth. Rules are tried on the other half.
    """

    customers: Customers
    name: str = "Hillstrom's e-mails"

    def draw(self, rng: np.random.Generator) -> Trial:
        """A new half, and new customers from it."""
        order = rng.permutation(len(self.customers.arms))
        half = self.customers.rows(order[: len(order) // 2])
        rest = self.customers.rows(order[len(order) // 2 :])
        arms = [np.flatnonzero(half.arms == arm) for arm in (0, 1)]
        drawn = half.rows(np.concatenate([rng.choice(one, len(one)) for one in arms]))
        return Trial(
            sample=Sample(
                features=drawn.features,
                bounds=np.array(list(_ENDS.values())),
                arms=drawn.arms,
                clusters=drawn.clusters,
                outcomes=drawn.outcomes,
                segments=_segments(drawn),
            ),
            effect=half.effect(np.ones(len(half.arms), dtype=np.bool_)),
            segment_effects={name: half.effect(one) for name, one in _segments(half).items()},
            targeting=MeasuredEffects(rest),
        )


def read_hillstrom(path: Path) -> HillstromPopulation:
    """The population of a file as Kevin Hillstrom published it (MineThatData, 2008)."""
    table = pl.read_csv(path, infer_schema_length=None).filter(pl.col("segment").is_in(_ARMS))
    features = table.select(
        "recency",
        pl.col("history").log().alias("log_history"),
        "mens",
        "womens",
        "newbie",
        (pl.col("zip_code") == "Urban").alias("urban"),
        (pl.col("zip_code") == "Rural").alias("rural"),
    )
    return HillstromPopulation(
        Customers(
            features=features.select(pl.col(list(_ENDS)).cast(pl.Float64)).to_numpy(),
            arms=(table["segment"] == _ARMS[1]).cast(pl.Int64).to_numpy(),
            clusters=table["history_segment"].rank("dense").cast(pl.Int64).to_numpy(),
            outcomes=table["visit"].cast(pl.Int64).to_numpy(),
            many_channels=(table["channel"] == "Multichannel").to_numpy(),
        )
    )


def _segments(customers: Customers) -> dict[str, BoolArray]:
    """New ones who bought women's products; the highest history; those of several channels."""
    names = list(_ENDS)
    column = {name: customers.features[:, names.index(name)] for name in names}
    high = np.quantile(column["log_history"], _HIGH_HISTORY)
    return {
        BY_TWO_FEATURES: (column["womens"] == 1) & (column["newbie"] == 1),
        BY_ONE_FEATURE: column["log_history"] > high,
        BY_OWN_COLUMN: customers.many_channels,
    }
