"""One experiment, what is true of it, and where people come from whom a rule is tried on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from clusterdp._arrays import BoolArray, FloatArray, IntArray

# The segments that are asked for in every population; nobody announced them.
BY_TWO_FEATURES = "a quarter, by two features"
BY_ONE_FEATURE = "a tenth, by one feature"
BY_OWN_COLUMN = "by a column of the analyst's own"
SEGMENTS = (BY_TWO_FEATURES, BY_ONE_FEATURE, BY_OWN_COLUMN)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """The units of one experiment with two arms and a binary outcome.

    Attributes:
        features: What is known of units before treatment; axes `[unit, feature]`.
        bounds: The least and the largest value of each feature, public; axes `[feature, end]`.
        arms: 1 if treated, 0 if not; axes `[unit]`, as all below.
        clusters: A public number of the cluster of each unit.
        outcomes: 0 or 1; what all methods protect.
        segments: Who is in each of the segments that are asked for.
    """

    features: FloatArray
    bounds: FloatArray
    arms: IntArray
    clusters: IntArray
    outcomes: IntArray
    segments: Mapping[str, BoolArray]

    @property
    def n_units(self) -> int:
        """How many units there are."""
        return len(self.arms)


class Targeting(Protocol):
    """People whom a rule may treat, and what would come of it."""

    @property
    def features(self) -> FloatArray:
        """What the rule knows of them; axes `[unit, feature]`."""

    def gain(self, chosen: BoolArray) -> float:
        """The mean effect on those chosen, less that on everyone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trial:
    """A sample with the truth that answers are compared with."""

    sample: Sample
    effect: float
    segment_effects: Mapping[str, float]
    targeting: Targeting


class Population(Protocol):
    """Where trials come from."""

    @property
    def name(self) -> str:
        """As it is called on the page."""

    def draw(self, rng: np.random.Generator) -> Trial:
        """A new experiment."""
