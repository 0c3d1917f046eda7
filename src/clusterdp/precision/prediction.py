"""What to expect of effects: a standard error, and what of it privacy costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.spec.purpose import BREAKDOWNS

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.spec.purpose import Purpose


# What is shown in place of a detectable effect that is larger than any effect can be.
UNSEEN = "none"
# Two-sided 5% test, 80% power.
_TESTED, _POWER = 0.975, 0.8


class Prediction(NamedTuple):
    """What the standard error of an effect should be, and what of it privacy costs.

    Of several treatments, the least certain one.

    Attributes:
        std_error: The standard error.
        sampling_std_error: The same from true outcomes.
        privacy_std_error: What privacy adds, in squares.
        largest_effect: The largest effect that is possible: the range of the metric.
        degrees: Degrees of freedom that are expected of it; infinite if intervals are normal.
        sampling_degrees: The same from true outcomes.
    """

    std_error: float
    sampling_std_error: float
    privacy_std_error: float
    largest_effect: float = math.inf
    degrees: float = math.inf
    sampling_degrees: float = math.inf

    @classmethod
    def from_variances(
        cls,
        sampling: FloatArray,
        privacy: FloatArray,
        largest_effect: float = math.inf,
        degrees: tuple[FloatArray, FloatArray] | None = None,
    ) -> Prediction:
        """From variances of every treatment; axes `[treatment]`.

        Args:
            sampling: From true outcomes.
            privacy: What privacy adds.
            largest_effect: The range of the metric.
            degrees: Degrees of freedom, and those from true outcomes; None if there are many.
        """
        total = sampling + privacy
        worst = int(np.argmax(total))
        return cls(
            math.sqrt(total[worst]),
            math.sqrt(sampling[worst]),
            math.sqrt(privacy[worst]),
            largest_effect,
            *(() if degrees is None else (float(one[worst]) for one in degrees)),
        )

    def to_dict(self) -> dict[str, float | None]:
        """Everything about it as plain values; no degrees of freedom where intervals are normal."""
        known = self._asdict()
        for name in ("degrees", "sampling_degrees"):
            known[name] = None if math.isinf(known[name]) else known[name]
        return {**known, "detectable_effect": self.detectable_effect}

    @property
    def detectable_effect(self) -> float:
        """The smallest effect that a two-sided 5% test finds with 80% probability."""
        return _detectable(self.degrees) * self.std_error

    @property
    def detectable_without_privacy(self) -> float:
        """The same from true outcomes."""
        return _detectable(self.sampling_degrees) * self.sampling_std_error

    @property
    def is_visible(self) -> bool:
        """Whether some possible effect can be detected."""
        return self.detectable_effect <= self.largest_effect

    @property
    def is_visible_without_privacy(self) -> bool:
        """The same from true outcomes."""
        return self.detectable_without_privacy <= self.largest_effect


def _detectable(degrees: float) -> float:
    """How many standard errors an effect has that is found."""
    if math.isinf(degrees):
        return NormalDist().inv_cdf(_TESTED) + NormalDist().inv_cdf(_POWER)
    from scipy.special import stdtrit

    return float(stdtrit(degrees, _TESTED) + stdtrit(degrees, _POWER))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedVariance:
    """Variances that are expected of effects on one metric; `...` are alternatives.

    Targets are everyone, then the groups of each breakdown; everyone alone where no rows are
    published. Predictions are of one alternative, without `...`.

    Attributes:
        sampling: Of effects from true outcomes; axes `[target, treatment]`.
        privacy: What privacy adds; axes `[..., target, treatment]`.
        by_rows: What privacy adds for everyone by rows alone, axes `[..., treatment]`; None if no
            rows are published.
        largest_effect: The largest effect that is possible: the range of the metric.
        between: The part of sampling that is between groups which were assigned as a whole; axes
            `[treatment]`.
        degrees: Degrees of freedom that such groups leave, with noise of privacy on what each adds,
            axes `[..., treatment]`, and without. None if units were assigned.
    """

    sampling: FloatArray
    privacy: FloatArray
    by_rows: FloatArray | None
    largest_effect: float
    between: FloatArray | float = 0.0
    degrees: tuple[FloatArray, FloatArray] | None = None

    @property
    def overall(self) -> Prediction:
        """Of the overall effect."""
        return self.of_target(0)

    def of_target(self, target: int) -> Prediction:
        """Of everyone (0), or of a group."""
        return self._prediction(self.sampling[target], self.privacy[target])

    def segment(self, share: float) -> Prediction | None:
        """Of a segment with this share of every cell; None if no rows are published.

        Calibration moves a segment as it moves everyone, and only rows tell the two apart.
        """
        if self.by_rows is None:
            return None
        privacy = self.privacy[0] + (1 / share - 1) * self.by_rows
        sampling = (self.sampling[0] - self.between) / share + self.between
        return self._prediction(sampling, privacy)

    def least_certain(self, purpose: Purpose, layout: Layout) -> Prediction:
        """Of what a purpose is about: of the groups of a breakdown, the least certain one."""
        if purpose.kind != BREAKDOWNS or self.by_rows is None:
            return self.segment(purpose.share) or self.overall
        targets, _ = purpose.groups(layout)
        return max(map(self.of_target, targets), key=lambda one: one.std_error)

    def of_purpose(self, purpose: Purpose, layout: Layout) -> FloatArray:
        """The variance that a purpose is judged by; axes `[..., treatment]`.

        Of a breakdown it is the average over groups, each counted by its share of the units.
        Groups that were assigned are few, and noise hides how they differ: that makes intervals
        longer, and the variance count for more.
        """
        variances = self.sampling + self.privacy
        found = variances[..., 0, :]
        if self.by_rows is not None and purpose.kind == BREAKDOWNS:
            targets, shares = purpose.groups(layout)
            found = np.einsum("g,...gt->...t", shares, variances[..., targets, :])
        elif self.by_rows is not None:
            rows = self.by_rows + self.sampling[0] - self.between
            found = found + (1 / purpose.share - 1) * rows
        if self.degrees is None:
            return found
        from scipy.special import stdtrit

        return np.asarray(found * stdtrit(self.degrees[0], _TESTED) ** 2)

    def _prediction(self, sampling: FloatArray, privacy: FloatArray) -> Prediction:
        return Prediction.from_variances(sampling, privacy, self.largest_effect, self.degrees)
