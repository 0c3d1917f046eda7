"""Effects on what is composed of several metrics: ratios, quantiles, distributions.

Each arm's means of all these metrics, in a segment, become one number with limits. The effect is
the difference of two arms' numbers.

How estimates of two metrics covary:

**One response has both.** The noise of a row's debiased values x̃ and ỹ covaries. x̃ỹ − p shows
by how much, p being what the response counts as in the product x·y. So N, D, N + kD and N − kD are
calibrated in the same way, with the noise that follows from p. A quarter of the difference of the
last two variances is k times the covariance of N̂ and D̂: what sampling adds to it, and what
privacy does.

If the product is in the span of the channel, p is decoded. At a small ε it often is not, and rows
do not show the covariance of x and y. Then p has bounds (McCormick, 1976). Let u be an end of x and
w one of y. In every category

    x·y = w·x + u·y + (x − u)(y − w) − u·w,

where (x − u)(y − w) is never below 0 if both are low ends, or both high ones, and never above 0
otherwise. Its extreme value among the categories that there are bounds x·y by what is linear in x
and y; and so the covariance has bounds. Which of two is used follows from the prior.

**A row and a public column.** A public column of 0 and 1, an exposure, is crossed with responses.
It has no noise. So the mean of products with debiased values is that of products with true ones,
and only sampling makes means of both covary.

**Different questions.** Outcomes x and y of different questions are never answered by the same
unit. Means x̄ and ȳ of rows alone are of different people, who were drawn at random, and do not
covary: that those asked about one are not asked about the other takes off exactly what x and y
covary by. Calibration moves both to sums of everyone. If a unit counts s in both means, and s − Xb
and s − Xb' in their noise, they covary by Σ (s² − (s − Xb)(s − Xb'))·Cov(x, y). No row shows
Cov(x, y). It is at most the product of both standard deviations; and both means and their ends
bound it, as above. So the covariance of means has bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp.channels import Channel
from clusterdp.estimation.effects.effect import FEW_UNITS, Effect
from clusterdp.estimation.effects.intervals import ArmPair, ArmValue, EffectInterval
from clusterdp.estimation.effects.notes import Note
from clusterdp.estimation.means.functions import CategoryFunction, channel_priors
from clusterdp.estimation.means.responses import CellMoments, ResponseValues, read_answers
from clusterdp.estimation.means.spread import RowNoiseBound
from clusterdp.estimation.means.weights import CellWeights, arm_variances
from clusterdp.estimation.metrics.base import ArmPairMeans, MetricData, QuestionRows, SegmentData
from clusterdp.estimation.reading.profiles import spread_cells, times
from clusterdp.estimation.reading.segments import CrossedCounts
from clusterdp.outcomes.space import ValueRange

if TYPE_CHECKING:
    from clusterdp.estimation.means.likelihood import ShareLikelihood

Composed = TypeVar("Composed", bound=ArmValue)


class ArmEstimates(NamedTuple):
    """An arm's means of several metrics; axes `[metric]`.

    Attributes:
        means: The means.
        sampling: Their estimated variances of sampling; they can be negative by chance.
        privacy: Their estimated variances of privacy.
        degrees: Degrees of freedom of the variances; infinite where there are many units.
        likelihood: The means by maximum likelihood; None unless they are shares that are more
            precise by it.
    """

    means: FloatArray
    sampling: FloatArray
    privacy: FloatArray
    degrees: float
    likelihood: ShareLikelihood | None = None

    def minus(self, other: ArmEstimates) -> ArmEstimates:
        """Differences to the means of another arm, which are independent."""
        return ArmEstimates(
            means=self.means - other.means,
            sampling=other.sampling + self.sampling,
            privacy=other.privacy + self.privacy,
            degrees=min(other.degrees, self.degrees),
        )

    @property
    def variances(self) -> FloatArray:
        """Of sampling and privacy together."""
        return np.asarray(np.maximum(self.sampling, 0.0) + self.privacy)


class ArmComparison:
    """A treatment and control in a segment, as several metrics read the rows of both.

    Attributes:
        of: What effects describe.
        pair: The indices of both arms.
        parts: The rows of the segment, by metric.
        weights: Of the cells of both arms, the same for every metric.
        means: The means of both arms, by metric; none where an arm is empty or shows no spread.
        n_control: Units of control.
        n_treated: Units of the treatment.
        control: The means of control; None without any.
        treated: Those of the treatment.

    Args:
        name: What is composed of the metrics.
        parts: The rows of the segment, by metric.
        arm: The index of the treatment.
    """

    def __init__(self, name: str, parts: list[SegmentData], arm: int) -> None:
        first = parts[0]
        self.parts, self.of = parts, first.target(name, arm)
        self.pair = pair = [first.whole.request.layout.control, arm]
        self.weights = weights = first.weigh(pair)
        self.n_control, self.n_treated = map(int, first.arm_sizes(weights))
        self.means: list[ArmPairMeans] = []
        self.control: ArmEstimates | None = None
        self.treated: ArmEstimates | None = None
        if all(part.are_known(pair, weights) for part in parts):
            means = [part.pair_means(pair, weights) for part in parts]
            if all(np.isfinite(one.means.sampling + one.means.privacy).all() for one in means):
                self.means = means
                self.control, self.treated = (self._estimates(place) for place in (0, 1))

    def _estimates(self, place: int) -> ArmEstimates:
        """The means of control (0) or of the treatment (1)."""
        origins = np.array([part.whole.decoded.outputs.middle for part in self.parts])
        every, n_units = [one.means for one in self.means], (self.n_control, self.n_treated)[place]
        # Of a share that is near 0 or 1 few events are known; others may be known well.
        degrees = min(
            float((one.means.degrees if one.scores is None else one.means.effective_degrees)[place])
            for one in self.means
        )
        return ArmEstimates(
            means=origins + np.array([one.means[place] for one in every]),
            sampling=np.array([one.sampling[place] for one in every]),
            privacy=np.array([one.privacy[place] for one in every]),
            degrees=degrees if min(degrees, n_units) < FEW_UNITS else math.inf,
        )

    def add_likelihoods(self, rows: QuestionRows, functions: Sequence[CategoryFunction]) -> None:
        """Add the likelihood to the means of arms that gain by it.

        Only rows of one channel have one, where units were assigned and are known one by one.

        Args:
            rows: The rows of the question.
            functions: The functions whose means they are, each 0 or 1.
        """
        # Few estimates have any.
        from clusterdp.estimation.means.likelihood import ShareLikelihood, UnbiasedShares

        part, transition = self.parts[0], _only_channel(rows.folders or (rows,))
        is_plain = part.factors is None and part.whole.rows.profiles.assigned is None
        if transition is None or not is_plain:
            return
        inside = np.array([one.values > 0.5 for one in functions])
        decoded = [one.whole.decoded.outputs for one in self.parts]
        read = np.array([one.values[0] + one.middle for one in decoded])

        def with_likelihood(place: int, estimates: ArmEstimates | None) -> ArmEstimates | None:
            if estimates is None:
                return None
            counts = part.arm_responses(self.pair[place], self.weights.of_units()[:, place])
            saved = np.array([one.found.saved_share[place] for one in self.means])
            unbiased = UnbiasedShares(read, estimates.means, estimates.variances, saved)
            found = ShareLikelihood(counts, transition, inside, unbiased)
            is_used = found.is_used(is_designed=rows.question.mechanism.designs_rows)
            return estimates._replace(likelihood=found) if is_used else estimates

        self.control, self.treated = map(with_likelihood, (0, 1), (self.control, self.treated))

    def effect(self, value: float, sampling: float, privacy: float, **others: Any) -> Effect:
        """An effect of the treatment, from its number and the parts of its variance."""
        return Effect(
            of=self.of,
            effect=value,
            std_error=math.sqrt(sampling + privacy),
            sampling_variance=sampling,
            privacy_variance=privacy,
            n_treated=self.n_treated,
            n_control=self.n_control,
            **others,
        )

    def no_effect(self) -> Effect:
        """Of arms that show none."""
        return self.effect(math.nan, math.nan, math.nan)

    def composed_effect(
        self,
        compose: Callable[[ArmEstimates], Composed],
        compare: Callable[[Composed, Composed], EffectInterval] = ArmPair,
    ) -> Effect:
        """The difference of what two arms' means are composed to.

        Args:
            compose: From an arm's means to a number with limits.
            compare: From the numbers of treatment and control to the interval of their difference.
        """
        if self.control is None or self.treated is None:
            return self.no_effect()
        treated, control = compose(self.treated), compose(self.control)
        return self.effect(
            treated.value - control.value,
            *map(sum, zip(treated.variances, control.variances, strict=True)),
            treated_mean=treated.value,
            treated_std_error=math.sqrt(sum(treated.variances)),
            control_mean=control.value,
            control_std_error=math.sqrt(sum(control.variances)),
            degrees=min(self.control.degrees, self.treated.degrees),
            interval=compare(treated, control),
        )


def _only_channel(parts: Sequence[QuestionRows]) -> FloatArray | None:
    """The channel of all rows; None if there are several. Axes `[output, category]`."""
    first, *others = [(one.question.space, one.question.channel) for one in parts]
    channel = first[1]
    if channel is None or len(channel.possible()) > 1:
        return None
    transition = channel.transition()
    for space, other in others:
        if space != first[0] or other is None or not np.array_equal(other.transition(), transition):
            return None
    return np.asarray(transition[0])


def compared_arms(data: Sequence[MetricData], name: str) -> Iterator[ArmComparison]:
    """Each treatment and control, overall and in every segment.

    Args:
        data: The rows as each metric reads them, calibrated the same way.
        name: What is composed of the metrics.
    """
    for counted in zip(*(one.rows.parts for one in data), strict=True):
        parts = [SegmentData(one, *each) for one, each in zip(data, counted, strict=True)]
        for arm in data[0].request.layout.treatments:
            yield ArmComparison(name, parts, arm)


# What responses count as in a product: numbers with a mean of at most the product, and of at least
# the product, in every category. They are the same array if rows show how both factors go
# together.
ProductBounds = tuple[FloatArray, FloatArray]


def product_bounds(
    above: CategoryFunction, below: CategoryFunction, channel: Channel, priors: FloatArray
) -> ProductBounds:
    """What responses count as in the product of two functions; axes as of `ResponseValues.values`.

    Args:
        above: x.
        below: y.
        channel: What responses are drawn by.
        priors: What categories are thought to be like; axes `[..., channel, category]`.
    """
    product, spanned = channel.decode_function(above.values * below.values, priors)
    if spanned:
        return product, product
    first, second = (_debiased(one.outputs(channel, priors)) for one in (above, below))
    expected = priors @ above.values, priors @ below.values

    def bounds(others: tuple[float, ...], side: int) -> FloatArray:
        """The best bound w·x + u·y + constant from below (−1) or from above (1)."""
        found = []
        for end, other in zip(ValueRange.from_values(above.values), others, strict=True):
            rest = above.values * below.values - other * above.values - end * below.values
            constant = side * float((side * rest).max())
            mean = float(np.mean(other * expected[0] + end * expected[1] + constant))
            found.append((side * mean, other * first + end * second + constant))
        return min(found, key=lambda bound: bound[0])[1]

    ends = tuple(ValueRange.from_values(below.values))
    return bounds(ends, -1), bounds(ends[::-1], 1)


def question_product(
    rows: QuestionRows, above: CategoryFunction, below: CategoryFunction
) -> ProductBounds:
    """What the rows of a question count as in the product of two functions of its category."""
    if rows.folders:
        from clusterdp.estimation.means.pooled import stacked_outputs  # of several folders only

        pairs = zip(rows.of_folders(above), rows.of_folders(below), strict=True)
        every = [question_product(one, first, second) for (one, first), (_, second) in pairs]
        least = stacked_outputs([one for one, _ in every])
        if all(one is other for one, other in every):
            return least, least
        return least, stacked_outputs([one for _, one in every])
    assert rows.question.channel is not None  # noqa: S101 - there are rows
    priors = channel_priors(rows.question, rows.request.released)
    return product_bounds(above, below, rows.question.channel, priors)


def shared_data(
    above: CategoryFunction,
    below: CategoryFunction,
    products: ProductBounds,
    source: QuestionRows,
    ridge_of: CategoryFunction,
) -> tuple[list[MetricData], float]:
    """The rows of a question that has two metrics, as these read them, and both together.

    Args:
        above: x; a weighted sum of declared metrics if y is one, else not one.
        below: y.
        products: What responses count as in x·y.
        source: The question.
        ridge_of: The function by whose noise all are calibrated.

    Returns:
        The rows as N, D, N + kD and N − kD read them; these two by the least p, then by the
        largest. And k.
    """
    first, second, third = map(source.decode, (above, below, ridge_of))
    factor = common_factor(first.noise, second.noise)
    every = [first, second]
    for product in products:
        for multiple in (factor, -factor):
            side = source.decode(above.minus(-multiple, below))
            noise = joint_noise(first.outputs, second.outputs, product, multiple)
            every.append(replace(side, outputs=side.outputs._replace(noise=noise)))
    data = [MetricData(one, source.rows, source.request, third.ridge) for one in every]
    return data, factor


def common_factor(above: RowNoiseBound, below: RowNoiseBound) -> float:
    """k, by which y is about as noisy as x."""
    if above.variance > 0 and below.variance > 0:
        return math.sqrt(above.variance / below.variance)
    return above.ends.span / below.ends.span


def joint_noise(
    above: ResponseValues, below: ResponseValues, product: FloatArray, factor: float
) -> FloatArray:
    """The noise variance of x̃ + k·ỹ, as responses show it; axes as of `ResponseValues.noise`.

    Args:
        above: What responses count as in x.
        below: What they count as in y.
        product: What they count as in x·y.
        factor: k.
    """
    covariance = _debiased(above) * _debiased(below) - product
    return above.noise + factor**2 * below.noise + 2 * factor * covariance


def unidentified_note(above: str, below: str, what: str) -> Note:
    """That a covariance has bounds only; `what` has intervals that allow for them."""
    return Note(
        f"The release does not identify the covariance of {above} and {below}, so CIs of {what} "
        f"are conservative. Ask the owner to declare {below}*{above}."
    )


def _debiased(outputs: ResponseValues) -> FloatArray:
    return outputs.values + outputs.middle


def crossed_covariance(one: ArmComparison, crossed: CrossedCounts) -> float:
    """The sampling covariance of effects on an outcome and on exposure.

    Args:
        one: Both arms, as the outcome reads their rows and as exposure does.
        crossed: The same rows, crossed.
    """
    by_groups = _group_covariances(one.means)
    if by_groups is not None:
        return float(by_groups.sum())
    profiles = one.parts[0].whole.rows.profiles
    outcomes, exposures = (
        read_answers(counted, profiles, part.whole.decoded.outputs)[0]
        for counted, part in zip(crossed, one.parts, strict=True)
    )
    entries = crossed[0]
    cells, n_cells = profiles.cells[entries.profiles], math.prod(profiles.shape)
    sums = np.bincount(cells, entries.counts * (outcomes * exposures), n_cells)
    products = np.asarray(sums.reshape(profiles.shape)[:, one.pair], np.float64)
    first, second = (part.moments.of_arms(one.pair) for part in one.parts)
    return float(arm_covariances(first, second, products, one.weights).sum())


def apart_covariances(one: ArmComparison) -> tuple[FloatArray, FloatArray]:
    """The least and the largest covariance of means of two questions; axes `[arm]`."""
    found = one.means
    by_groups = _group_covariances(found)
    if by_groups is not None:
        return by_groups, by_groups
    part = one.parts[0]
    each = spread_cells(one.weights.of_units(), part.profiles, one.pair)  # s
    first, second = (
        times(means.found.coefficients, of.whole.calibration.solver.transposed)
        for of, means in zip(one.parts, found, strict=True)
    )
    shared = -part.whole.calibration.sizes * first * second  # of s² − (s − Xb)(s − Xb')
    shared[:, part.places] += part.sums.sizes * each * (first + second)[:, part.places]
    shares, squares = np.abs(shared).sum(axis=-1), (part.sums.sizes * each**2).sum(axis=-1)
    above, below = (np.maximum(means.means.sampling, 0.0) for means in found)
    spread = np.sqrt(above * below) / squares
    # How far means are from their low and their high ends.
    (low, high), (other_low, other_high) = (
        _end_distances(of, means) for of, means in zip(one.parts, found, strict=True)
    )
    least = np.minimum.reduce([spread, low * other_low, high * other_high])
    most = np.minimum.reduce([spread, low * other_high, high * other_low])
    factor = np.minimum(shares, squares)
    return -factor * least, factor * most


def _end_distances(part: SegmentData, found: ArmPairMeans) -> tuple[FloatArray, FloatArray]:
    """How far the means of arms are from the least and the largest value; axes `[arm]`."""
    half = part.whole.calibration.unit_noise.ends.span / 2
    means = np.clip(found.means.means, -half, half)
    return half + means, half - means


def _group_covariances(found: list[ArmPairMeans]) -> FloatArray | None:
    """What groups that were assigned as a whole say of how means covary; axes `[arm]`.

    None if units were assigned.
    """
    first, second = (means.scores for means in found)
    if first is None or second is None:
        return None
    pairs = zip(first, second, strict=True)
    return np.array([left.scores @ right.scores for left, right in pairs])


def arm_covariances(
    one: CellMoments, other: CellMoments, products: FloatArray, weights: CellWeights
) -> FloatArray:
    """Sampling covariances of weighted means of two metrics; axes `[..., arm]`.

    A quarter of Var(y + e) − Var(y − e). If the noise of both is independent, it cancels.

    Args:
        one: Moments of the first metric.
        other: Of the second one.
        products: Sums of products of both, as distances from the numbers that means are distances
            from; axes `[..., cluster, arm]`.
        weights: Of the cells.
    """
    around = products - one.sizes * one.means * other.means

    def variances(sign: int) -> FloatArray:
        moments = CellMoments(
            sizes=one.sizes,
            means=one.means + sign * other.means,
            squares=one.squares + other.squares + 2 * sign * around,
            noise=one.noise + other.noise,
        )
        return arm_variances(moments, weights)

    return np.asarray((variances(1) - variances(-1)) / 4)
