"""What a method gives an analyst: answers, and predictions of uplift if there are any."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray

_Z = float(stats.norm.isf(0.025))


class Answer(NamedTuple):
    """An estimated effect with its 95% interval; without one, its ends are not numbers."""

    effect: float
    low: float = np.nan
    high: float = np.nan

    @classmethod
    def of(cls, effect: float, variance: float) -> Answer:
        """A normal interval."""
        reach = _Z * variance**0.5
        return cls(effect, effect - reach, effect + reach)


class Given(Protocol):
    """What an analyst was given. None where it cannot answer."""

    def overall(self) -> Answer | None:
        """The effect on everyone."""

    def segment(self, inside: BoolArray) -> Answer | None:
        """The effect on some of the units, by a public column that nobody announced."""

    def uplift(self, features: FloatArray) -> FloatArray | None:
        """Predicted effects on new people; axes `[person]`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowsGiven:
    """One number for each unit, whose mean is that of its outcome.

    Attributes:
        values: Debiased outcomes; axes `[unit]`.
        arms: 0 or 1; axes `[unit]`.
        features: Axes `[unit, feature]`.
    """

    values: FloatArray
    arms: IntArray
    features: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    def overall(self) -> Answer:
        """The difference in means."""
        return difference_in_means(self.values, self.arms)

    def segment(self, inside: BoolArray) -> Answer:
        """The difference in means of some units."""
        return difference_in_means(self.values[inside], self.arms[inside])

    def uplift(self, features: FloatArray) -> FloatArray:
        """The difference of two linear models, one of each arm."""
        treated, control = (
            fit_linear(self.features[self.arms == arm], self.values[self.arms == arm])
            for arm in (1, 0)
        )
        return predict_linear(treated - control, features)


def difference_in_means(values: FloatArray, arms: IntArray) -> Answer:
    """Neyman's estimate, with variances of their own in both arms."""
    treated, control = values[arms == 1], values[arms == 0]
    variance = treated.var(ddof=1) / len(treated) + control.var(ddof=1) / len(control)
    return Answer.of(float(treated.mean() - control.mean()), float(variance))


def fit_linear(features: FloatArray, values: FloatArray) -> FloatArray:
    """Least squares with an intercept, the first coefficient."""
    return np.asarray(np.linalg.lstsq(_with_one(features), values)[0])


def predict_linear(coefficients: FloatArray, features: FloatArray) -> FloatArray:
    """What coefficients of `fit_linear` predict; axes `[unit]`."""
    return np.asarray(_with_one(features) @ coefficients)


def _with_one(features: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(features)), features])
