"""How estimates of two metrics covary, where one response tells both.

The noise of a row's debiased values x̃ and ỹ covaries. x̃ỹ − p tells by how much, p being what the
response tells of the product x·y. So N, D, N + kD and N − kD are calibrated alike, with the noise
that follows from p. A quarter of the difference of the last two variances is k times the covariance
of N̂ and D̂: what sampling adds to it, and what privacy does.

If the product is in the span of the channel, p is decoded. At a small ε it often is not, and rows
do not tell the covariance of x and y. Then p has bounds (McCormick, 1976). Let u be an end of x and
w one of y. In every category

    x·y = w·x + u·y + (x − u)(y − w) − u·w,

where (x − u)(y − w) is never below 0 if both are low ends, or both high ones, and never above 0
otherwise. Its extreme value among the categories that there are bounds x·y by what is linear in x
and y; and so the covariance has bounds. Which of two is used follows from the prior.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.estimation.effects.findings import Note
from clusterdp.estimation.means.calibration import public_ridge
from clusterdp.estimation.means.functions import channel_priors
from clusterdp.estimation.metrics.mean import MetricRows
from clusterdp.outcomes.space import Ends

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray
    from clusterdp.channels import Channel
    from clusterdp.estimation.means.functions import CategoryFunction
    from clusterdp.estimation.means.spread import UnitNoise
    from clusterdp.estimation.metrics.parse import Source
    from clusterdp.estimation.reading.profiles import Outputs


class Products(NamedTuple):
    """What responses tell of the product of two functions; axes as of `Outputs.values`.

    Attributes:
        least: Has a mean of at most the product, whatever the category.
        most: Has a mean of at least the product.
    """

    least: FloatArray
    most: FloatArray

    @classmethod
    def of(
        cls, above: CategoryFunction, below: CategoryFunction, channel: Channel, priors: FloatArray
    ) -> Products:
        """The product of two functions.

        Args:
            above: x.
            below: y.
            channel: What responses are drawn by.
            priors: What categories are thought to be like; axes `[..., channel, category]`.
        """
        product, spanned = channel.decode_function(above.values * below.values, priors)
        if spanned:
            return cls(product, product)
        first, second = (_debiased(one.outputs(channel, priors)) for one in (above, below))

        def expected(bound: _LinearBound) -> float:
            return float(np.mean(bound.of(priors @ above.values, priors @ below.values)))

        ends, others = Ends.of_values(above.values), Ends.of_values(below.values)
        lower = [_LinearBound.at(above, below, at, np.min) for at in zip(ends, others, strict=True)]
        upper = [
            _LinearBound.at(above, below, at, np.max)
            for at in zip(ends, reversed(others), strict=True)
        ]
        least, most = max(lower, key=expected), min(upper, key=expected)
        return cls(least.of(first, second), most.of(first, second))

    @classmethod
    def told_by(cls, source: Source, above: CategoryFunction, below: CategoryFunction) -> Products:
        """The product of two functions of the category of a question."""
        assert source.question.channel is not None  # noqa: S101 - there are rows
        priors = channel_priors(source.question, source.wanted.layout)
        return cls.of(above, below, source.question.channel, priors)

    @property
    def is_told(self) -> bool:
        """Whether rows tell how both go together."""
        return self.least is self.most


class _LinearBound(NamedTuple):
    """A bound of x·y: w·x + u·y and a constant."""

    of_above: float
    of_below: float
    constant: float

    @classmethod
    def at(
        cls,
        above: CategoryFunction,
        below: CategoryFunction,
        corner: tuple[float, float],
        extreme: Callable[[FloatArray], float],
    ) -> _LinearBound:
        """The one of two ends: from below with the least constant, from above with the largest."""
        end, other = corner
        rest = above.values * below.values - other * above.values - end * below.values
        return cls(other, end, float(extreme(rest)))

    def of(self, above: FloatArray, below: FloatArray) -> FloatArray:
        """Its values, or those of its mean, from those of x and y."""
        return self.of_above * above + self.of_below * below + self.constant


class SharedRows(NamedTuple):
    """Rows as two metrics read them, and both together.

    Attributes:
        rows: As N, D, N + kD and N − kD read them; these two by the least p, then by the largest.
        factor: k.
    """

    rows: tuple[MetricRows, ...]
    factor: float


def shared_rows(
    above: CategoryFunction,
    below: CategoryFunction,
    products: Products,
    source: Source,
    ridge_of: CategoryFunction,
) -> SharedRows:
    """The rows of a question that tells both.

    Args:
        above: x; a weighted sum of declared metrics if y is one, and none if it is none.
        below: y.
        products: What responses tell of x·y.
        source: The question.
        ridge_of: The function by whose noise all are calibrated.
    """
    first, second, third = map(source.measured, (above, below, ridge_of))
    factor = common_factor(first.noise, second.noise)
    every = [first, second]
    for product in products:
        for times in (factor, -factor):
            side = source.measured(above.minus(-times, below))
            noise = joint_noise(first.outputs, second.outputs, product, times)
            every.append(replace(side, outputs=side.outputs._replace(noise=noise)))
    ridge = public_ridge(third.readings, source.rows.profiles, third.noise)
    rows = (MetricRows.of(one, source.rows, source.wanted, ridge) for one in every)
    return SharedRows(tuple(rows), factor)


def common_factor(above: UnitNoise, below: UnitNoise) -> float:
    """k, by which y is about as noisy as x."""
    if above.variance > 0 and below.variance > 0:
        return math.sqrt(above.variance / below.variance)
    return above.ends.span / below.ends.span


def joint_noise(above: Outputs, below: Outputs, product: FloatArray, factor: float) -> FloatArray:
    """The noise variance of x̃ + k·ỹ, as responses tell it; axes as of `Outputs.noise`.

    Args:
        above: What responses tell of x.
        below: What they tell of y.
        product: What they tell of x·y.
        factor: k.
    """
    covariance = _debiased(above) * _debiased(below) - product
    return above.noise + factor**2 * below.noise + 2 * factor * covariance


def untold_note(above: str, below: str, what: str) -> Note:
    """That a covariance has bounds only; `what` has intervals that allow for them."""
    text = (
        f"rows do not tell how {above} goes with {below}, so intervals of {what} allow for the "
        "worst; the owner would have to declare the product of both as a metric"
    )
    return Note(text)


def _debiased(outputs: Outputs) -> FloatArray:
    return outputs.values + outputs.middle
