"""Two populations whose effects are known: a few people respond much, or all by a little."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bench.peers.trial import (
    BY_ONE_FEATURE,
    BY_OWN_COLUMN,
    BY_TWO_FEATURES,
    Sample,
    Trial,
)

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray

_N_TRUTH = 1_000_000  # units whose effects are averaged to the truth
_N_TARGETS = 40_000  # people whom a rule may treat
_TIER_SHARE, _TIER_EFFECT = 0.2, 0.08  # a column that the owner never saw


class _Law(Protocol):
    """Means of outcomes, given features in [−1, 1]; axes `[unit]`."""

    name: str
    n_features: int

    def base(self, features: FloatArray) -> FloatArray:
        """The mean without treatment."""

    def effect(self, features: FloatArray) -> FloatArray:
        """What treatment adds to it, outside the tier."""


class FewRespond:
    """Three covariates; a quarter of the people respond five times as much as the others."""

    name = "simulated, three covariates"
    n_features = 3

    def base(self, features: FloatArray) -> FloatArray:
        """Between 0.1 and 0.3, by the third covariate."""
        return np.asarray(0.2 + 0.1 * features[:, 2])

    def effect(self, features: FloatArray) -> FloatArray:
        """A step in two covariates."""
        return np.asarray(0.03 + 0.12 * ((features[:, 0] > 0) & (features[:, 1] > 0)))


class AllRespond:
    """Ten covariates; eight of them change the effect, each by a little."""

    name = "simulated, ten covariates"
    n_features = 10
    _slopes = 0.025 * np.array([1, 1, -1, 1, -1, 1, 1, -1, 0, 0])

    def base(self, features: FloatArray) -> FloatArray:
        """Between 0.2 and 0.4, by all covariates."""
        return np.asarray(0.3 + 0.1 * features.mean(axis=1))

    def effect(self, features: FloatArray) -> FloatArray:
        """Linear."""
        return np.asarray(0.04 + features @ self._slopes)


@dataclass(frozen=True, eq=False)
class SimulatedPopulation:
    """People with features that are uniform in [−1, 1], and a tier that the analyst alone knows."""

    law: _Law
    n_units: int = 30_000

    @property
    def name(self) -> str:
        """As it is called on the page."""
        return self.law.name

    @cached_property
    def truth(self) -> tuple[float, dict[str, float]]:
        """Effects on everyone and in segments."""
        rng = np.random.default_rng(0)
        features, tier = self._people(_N_TRUTH, rng)
        effects = self.law.effect(features) + _TIER_EFFECT * tier
        asked = _segments(features, tier)
        inside = {name: float(effects[one].mean()) for name, one in asked.items()}
        return float(effects.mean()), inside

    @cached_property
    def targets(self) -> KnownEffects:
        """The people whom a rule may treat."""
        features, _ = self._people(_N_TARGETS, np.random.default_rng(1))
        return KnownEffects(features, self.law.effect(features))

    def draw(self, rng: np.random.Generator) -> Trial:
        """New people, and what is true of all of them."""
        effect, segment_effects = self.truth
        return Trial(
            sample=self.sample(rng),
            effect=effect,
            segment_effects=segment_effects,
            targeting=self.targets,
        )

    def sample(self, rng: np.random.Generator) -> Sample:
        """New people, half of them treated."""
        features, tier = self._people(self.n_units, rng)
        arms = rng.permutation(np.arange(self.n_units) % 2)
        added = self.law.effect(features) + _TIER_EFFECT * tier
        means = self.law.base(features) + arms * added
        return Sample(
            features=features,
            bounds=np.tile([-1.0, 1.0], (self.law.n_features, 1)),
            arms=arms,
            clusters=_clusters(features[:, -1]),
            outcomes=(rng.random(self.n_units) < means).astype(np.int64),
            segments=_segments(features, tier),
        )

    def _people(self, n_units: int, rng: np.random.Generator) -> tuple[FloatArray, BoolArray]:
        features = rng.uniform(-1, 1, (n_units, self.law.n_features))
        return features, rng.random(n_units) < _TIER_SHARE


@dataclass(frozen=True, slots=True, eq=False)
class KnownEffects:
    """People whose effects are known."""

    features: FloatArray
    effects: FloatArray

    def gain(self, chosen: BoolArray) -> float:
        """Over treating as many at random."""
        return float(self.effects[chosen].mean() - self.effects.mean())


def _clusters(feature: FloatArray) -> IntArray:
    """Ten markets, by a covariate."""
    return np.clip(((feature + 1) * 5).astype(np.int64), 0, 9)


def _segments(features: FloatArray, tier: BoolArray) -> dict[str, BoolArray]:
    return {
        BY_TWO_FEATURES: (features[:, 0] > 0) & (features[:, 1] > 0),
        BY_ONE_FEATURE: features[:, 0] > 0.8,
        BY_OWN_COLUMN: tier,
    }
