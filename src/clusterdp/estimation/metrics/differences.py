"""Differences between the effects of segments, and whether effects differ at all.

Estimates of several segments are calibrated by the same sums, so their errors are correlated. A
difference is a weighted sum over rows like any other effect, and has a variance of its own.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.estimation.effects.effect import REST, Effect, EffectArrays, EffectTarget, to_effect
from clusterdp.estimation.effects.findings import SegmentTest
from clusterdp.estimation.effects.text import segment_label
from clusterdp.estimation.means.calibration import CalibratedSums, Calibration
from clusterdp.estimation.metrics.base import SegmentEffect
from clusterdp.estimation.reading.request import Differences

if TYPE_CHECKING:
    from collections.abc import Sequence


class SegmentErrors(NamedTuple):
    """Effects of segments of one dimension, and the parts of their variances.

    Attributes:
        effects: Axes `[segment]`.
        sampling: Covariances of sampling; axes `[segment, segment]`. Segments have no units in
            common, but may have groups that were assigned as a whole.
        privacy: Covariances of privacy; axes `[segment, segment]`.
        known: The part of `privacy` that is known; axes the same.
        degrees: Degrees of freedom; axes `[segment]`.
        by_sums: What the noise of each published sum, in standard deviations, does to the effects;
            axes `[segment, sum]`.
    """

    effects: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    known: FloatArray
    degrees: FloatArray
    by_sums: FloatArray

    @classmethod
    def from_segments(
        cls,
        segments: Sequence[SegmentEffect],
        means: list[CalibratedSums],
        calibration: Calibration,
    ) -> SegmentErrors:
        """The errors of some segments of an arm, given the means of both arms in each."""
        privacy, known = np.zeros((2, len(segments), len(segments)))
        for arm in (0, 1):
            together, sums = calibration.covariances(
                coefficients=np.stack([one.coefficients[arm] for one in means]),
                noise_sums=np.stack([one.noise_sums[arm] for one in means]),
            )
            privacy, known = privacy + together, known + sums
        variances = np.array([one.arrays.privacy_variances[0] for one in segments])
        np.fill_diagonal(privacy, variances)
        return cls(
            effects=np.array([one.arrays.effects[0] for one in segments]),
            sampling=_sampling(segments),
            privacy=privacy,
            known=known,
            degrees=np.concatenate([one.arrays.degrees for one in segments]),
            by_sums=np.sqrt(calibration.sums.variances)
            * np.stack([one.coefficients[1] - one.coefficients[0] for one in means]),
        )

    @property
    def variances(self) -> FloatArray:
        """Of each segment's effect."""
        return np.asarray(np.maximum(np.diag(self.sampling), 0.0) + np.diag(self.privacy))

    def combine(self, weights: FloatArray) -> EffectArrays:
        """A weighted sum of the effects."""
        privacy = max(
            float(weights @ self.privacy @ weights), float(weights @ self.known @ weights)
        )
        parts = weights**2 * self.variances
        return EffectArrays(
            effects=np.array([weights @ self.effects]),
            variances=np.array([max(float(weights @ self.sampling @ weights), 0.0) + privacy]),
            privacy_variances=np.array([privacy]),
            degrees=np.array([parts.sum() ** 2 / (parts**2 / self.degrees).sum()]),
        )


def _sampling(segments: Sequence[SegmentEffect]) -> FloatArray:
    """Covariances of sampling between segments."""
    scores = [one.scores for one in segments if one.scores is not None]
    found = np.zeros((len(segments), len(segments)))
    for of_arm in zip(*scores, strict=True):
        # A segment may lack the last groups.
        longest = max(len(one.scores) for one in of_arm)
        padded = np.stack([np.pad(one.scores, (0, longest - len(one.scores))) for one in of_arm])
        found += padded @ padded.T
    np.fill_diagonal(found, [one.sampling for one in segments])
    return found


def compare_segments(
    segments: Sequence[SegmentEffect], calibration: Calibration, between: Differences
) -> tuple[list[Effect], SegmentTest | None]:
    """Differences between the segments of a dimension, and a test that all effects are the same.

    Segments without an effect or a standard error are left out.
    """
    segments = [one for one in segments if 0 < one.arrays.variances[0] < np.inf]
    means = [one.found for one in segments if one.found is not None]
    if len(segments) < 2:
        return [], None
    errors = SegmentErrors.from_segments(segments, means, calibration)
    compare = {"rest": _against_rest, "pairs": _in_pairs}[between]
    return compare(errors, segments), _same_effects(errors, segments[0].of)


def _against_rest(errors: SegmentErrors, segments: Sequence[SegmentEffect]) -> list[Effect]:
    """Each segment against the mean effect of the others, weighted by their units.

    Of two segments, the first alone: the second one against the rest is the same question.
    """
    sizes = np.array([one.n_units for one in segments])
    effects = []
    for place, one in enumerate(segments if len(segments) > 2 else segments[:1]):
        rest = np.where(np.arange(len(segments)) == place, 0, sizes)
        weights = -rest / rest.sum()
        weights[place] = 1.0
        of = one.of._replace(against=REST)
        effects.append(to_effect(errors.combine(weights), of, _arm_sizes(one)))
    return effects


def _in_pairs(errors: SegmentErrors, segments: Sequence[SegmentEffect]) -> list[Effect]:
    """Each segment against each that comes after it."""
    effects, axes = [], np.eye(len(segments))
    for first, second in combinations(range(len(segments)), 2):
        one, other = segments[first], segments[second]
        of = one.of._replace(against=segment_label(other.of.segment))
        found = errors.combine(axes[first] - axes[second])
        effects.append(to_effect(found, of, _arm_sizes(one) + _arm_sizes(other)))
    return effects


def _arm_sizes(one: SegmentEffect) -> IntArray:
    return np.array([one.value.n_control, one.value.n_treated])


def _same_effects(errors: SegmentErrors, of: EffectTarget) -> SegmentTest:
    """Wald's test that the effects of all segments are the same, by an F distribution.

    Variances are estimated, and with few units badly: Welch's (1951) correction. The sum of squares
    of normal errors has the cumulants S − 1, 2(S − 1) and 8(S − 1). Noise of published sums has
    longer tails, of Laplace's at most. With q_j what the square of sum j's noise counts, 3Σ q² is
    added to the second cumulant, and 36Σ q² + 30Σ q³ to the third. A chi-squared variable that is
    shifted and scaled has these three, with 8κ₂³/κ₃² degrees of freedom.
    """
    n_segments = len(errors.effects)
    sampling = errors.sampling.copy()
    np.fill_diagonal(sampling, np.maximum(np.diag(sampling), 0.0))
    covariances = errors.privacy + sampling
    contrasts = np.eye(n_segments)[1:] - np.eye(n_segments)[0]
    weights = contrasts.T @ np.linalg.solve(contrasts @ covariances @ contrasts.T, contrasts)
    distance = errors.effects @ weights @ errors.effects
    counted = ((weights @ errors.by_sums) * errors.by_sums).sum(axis=0)
    variance = 2 * (n_segments - 1) + 3 * (counted**2).sum()
    third = 8 * (n_segments - 1) + 36 * (counted**2).sum() + 30 * (counted**3).sum()
    free = 8 * variance**3 / third**2
    shares = 1 / errors.variances / (1 / errors.variances).sum()
    spread = ((1 - shares) ** 2 / errors.degrees).sum()
    squared = n_segments**2 - 1
    welch = distance / (1 + 2 * (n_segments - 2) / squared * spread)
    return SegmentTest(
        metric=of.metric,
        arm=of.arm,
        control=of.control,
        by=tuple(name for name, _ in of.segment),
        adjusted=of.adjusted,
        statistic=max(1 + (welch - (n_segments - 1)) * math.sqrt(2 / (free * variance)), 0.0),
        n_segments=n_segments,
        effect_degrees=free,
        degrees=squared / (3 * spread),
    )
