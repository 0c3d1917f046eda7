"""What a mechanism is made of: what is published about cells, and how rows are randomized.

Values are checked when they are made; numbers that privacy depends on are integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from clusterdp.privacy import accounting as acc

# A row is kept with probability `keep_weight / KEEP_TOTAL`; 52 bits are exact in a float.
KEEP_TOTAL = 2**52
# Priors are integers over this total.
PRIOR_TOTAL = 2**32
# A designed channel's probabilities are integers over this total.
TABLE_TOTAL = 2**48
# A designed channel that could tell outcomes apart no better than this says nothing; beyond the
# other end a row hides nothing and probabilities get too small to be exact, so it is not spent.
SMALLEST_ROW_EPSILON, LARGEST_ROW_EPSILON = 0.01, 12.0
# Beyond, every probability is 0 or 1 as far as a machine can tell: publish the table instead.
LARGEST_EPSILON = 1000.0
# Below, noise is all zeros and hides nothing; above, it buries any count there is.
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-3, 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """Outcome counts with discrete Laplace noise.

    Attributes:
        noise_scale: σ, the scale of the noise on every count.
        scope: "cluster" for one histogram per (cluster, arm), "population" for one per arm.
    """

    noise_scale: float
    scope: Literal["cluster", "population"] = "cluster"

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_scale", float(self.noise_scale))
        if not _SMALLEST_SCALE <= self.noise_scale <= _LARGEST_SCALE:
            raise ParameterError(
                f"noise_scale must lie between {_SMALLEST_SCALE:g} and {_LARGEST_SCALE:g}, "
                f"got {self.noise_scale:g}"
            )
        if self.scope not in ("cluster", "population"):
            raise ParameterError(f'scope must be "cluster" or "population", got {self.scope!r}')


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyContrasts:
    """Per cluster, the difference of arm means against control, with discrete Laplace noise.

    Attributes:
        epsilon: What all contrasts of one cluster cost together.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checked_epsilon(self.epsilon))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySums:
    """Each cell's sum of outcomes, and of their squares, with discrete Laplace noise.

    Attributes:
        epsilon: What both cost together.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checked_epsilon(self.epsilon))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedResampling:
    """The strength of the rows' randomization, by hand.

    Attributes:
        resample_prob: λ, the probability that a row is redrawn from the prior.
        delta: The δ at which the guarantee is stated.
    """

    resample_prob: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "resample_prob", float(self.resample_prob))
        object.__setattr__(self, "delta", checked_delta(self.delta))
        if not 0 < self.resample_prob < 1:
            raise ParameterError(
                f"resample_prob must lie strictly between 0 and 1, got {self.resample_prob}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedResampling:
    """The strength of the rows' randomization, by the budget of the whole release.

    Attributes:
        epsilon: The ε of summary and rows together.
        delta: The δ of summary and rows together.
        accounting: How the budget is turned into a resample probability.
    """

    epsilon: float
    delta: float = 0.0
    accounting: acc.Accounting = "valid"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checked_epsilon(self.epsilon))
        object.__setattr__(self, "delta", checked_delta(self.delta))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDesign:
    """Rows through the channel of least variance, by what they cost on their own.

    Attributes:
        epsilon: ε of the rows.
        delta: δ of the rows, which is also that of the release.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checked_epsilon(self.epsilon))
        object.__setattr__(self, "delta", checked_delta(self.delta))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedDesign(FixedDesign):
    """Rows through the channel of least variance, by the budget of the whole release.

    Attributes:
        epsilon: The ε of summaries and rows together.
        delta: The δ of the release.
    """


RowRecipe = FixedResampling | BudgetedResampling | FixedDesign


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignedResponse:
    """What bounds a designed channel, in the integers that the machine uses.

    Attributes:
        epsilon: ε of the rows.
        delta: δ of the rows.
        max_ratio: No output is likelier than this many times under another outcome; at most e^ε.
        reveal_weight: Up to this much of TABLE_TOTAL each outcome may spend without that bound; at
            most δ.
    """

    epsilon: float
    delta: float
    max_ratio: Fraction
    reveal_weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """How each row is redrawn, in the integers that the machine uses and the guarantee counts.

    Attributes:
        keep_weight: A row is kept with probability `keep_weight / KEEP_TOTAL`, which is 1−λ.
        floor_weight: No outcome's prior is below `floor_weight / PRIOR_TOTAL`, which is γ.
    """

    keep_weight: int
    floor_weight: int

    @property
    def keep_prob(self) -> Fraction:
        """1−λ, exactly."""
        return Fraction(self.keep_weight, KEEP_TOTAL)

    @property
    def prior_floor(self) -> Fraction:
        """γ, exactly."""
        return Fraction(self.floor_weight, PRIOR_TOTAL)

    @property
    def resample_prob(self) -> float:
        """λ; 52 bits, so the float is exact."""
        return float(1 - self.keep_prob)


def checked_epsilon(epsilon: float) -> float:
    """ε as a float, or a ParameterError."""
    epsilon = float(epsilon)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ParameterError(f"epsilon must be a finite number above 0, got {epsilon}")
    if epsilon > LARGEST_EPSILON:
        raise ParameterError(f"epsilon must be at most {LARGEST_EPSILON:g}, got {epsilon:g}")
    return epsilon


def checked_delta(delta: float) -> float:
    """δ as a float, or a ParameterError."""
    delta = float(delta)
    if not 0 <= delta < 1:
        raise ParameterError(f"delta must lie in [0, 1), got {delta}")
    return delta
