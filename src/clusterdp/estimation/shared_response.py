"""How effects on an outcome and on exposure covary, where one response tells both.

The noise of a row's debiased values ỹ and ẽ covaries. ỹẽ − p tells by how much, p being what the
response tells of the product y·e. So N, D, N + kD and N − kD are calibrated alike, with the noise
that follows from p. A quarter of the difference of the last two variances is k times the covariance
of N̂ and D̂: what sampling adds to it, and what privacy does.

If the product is in the span of the channel, p is decoded. At a small ε it often is not, and rows
do not tell the covariance of y and e. Then p has bounds (Fréchet): for y from a to b and e 0 or 1,

    max(a·e, y + b·e − b) ≤ y·e ≤ min(y + a·e − a, b·e),

and so has the covariance. Which of two bounds is used follows from the prior.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.estimation.calibration import public_ridge
from clusterdp.estimation.measured import channel_priors
from clusterdp.estimation.metric_effects import MetricRows

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.channels.catalogue import Channel
    from clusterdp.estimation.asked import Source
    from clusterdp.estimation.calibration import UnitNoise
    from clusterdp.estimation.measured import CategoryFunction
    from clusterdp.estimation.profiles import Outputs


class Products(NamedTuple):
    """What responses tell of the product of an outcome and exposure; axes as of `Outputs.values`.

    Attributes:
        least: Has a mean of at most the product, whatever the category.
        most: Has a mean of at least the product.
    """

    least: FloatArray
    most: FloatArray

    @classmethod
    def of(
        cls,
        function: CategoryFunction,
        exposure: CategoryFunction,
        channel: Channel,
        priors: FloatArray,
    ) -> Products:
        """The product of two functions, the second of which is 0 or 1.

        Args:
            function: y.
            exposure: e.
            channel: What responses are drawn by.
            priors: What categories are thought to be like; axes `[..., channel, category]`.
        """
        product, spanned = channel.decode_function(function.values * exposure.values, priors)
        if spanned:
            return cls(product, product)
        low, high = float(function.values.min()), float(function.values.max())
        mean, share = (float((priors @ one.values).mean()) for one in (function, exposure))
        outcome, exposed = (_debiased(one.outputs(channel, priors)) for one in (function, exposure))
        least, most = low * exposed, high * exposed
        if mean + high * share - high > low * share:
            least = outcome + high * exposed - high
        if mean + low * share - low < high * share:
            most = outcome + low * exposed - low
        return cls(least, most)


class SharedRows(NamedTuple):
    """Rows as an outcome and exposure read them, and both together.

    Attributes:
        rows: As N, D, N + kD and N − kD read them; these two by the least p, then by the largest.
        factor: k.
        is_told: Whether rows tell how outcome and exposure go together.
    """

    rows: list[MetricRows]
    factor: float
    is_told: bool


def shared_rows(
    function: CategoryFunction, exposure: CategoryFunction, source: Source
) -> SharedRows:
    """The rows of a block that tells both."""
    assert source.block.channel is not None  # noqa: S101 - there are rows
    if function.combination is None:
        exposure = exposure.from_counts_alone()  # calibrated by the same sums
    first, second = source.measured(function), source.measured(exposure)
    factor = common_factor(first.noise, second.noise)
    priors = channel_priors(source.block, source.wanted.layout)
    products = Products.of(function, exposure, source.block.channel, priors)
    every = [first, second]
    for product in products:
        for times in (factor, -factor):
            side = source.measured(function.minus(-times, exposure))
            noise = joint_noise(first.outputs, second.outputs, product, times)
            every.append(replace(side, outputs=side.outputs._replace(noise=noise)))
    ridge = public_ridge(first.readings, source.rows.profiles, first.noise)
    rows = [MetricRows.of(one, source.rows, source.wanted, ridge) for one in every]
    return SharedRows(rows, factor, products.least is products.most)


def common_factor(function: UnitNoise, exposure: UnitNoise) -> float:
    """k, by which exposure is about as noisy as an outcome."""
    if function.variance > 0 and exposure.variance > 0:
        return math.sqrt(function.variance / exposure.variance)
    return function.ends.span / exposure.ends.span


def joint_noise(
    function: Outputs, exposure: Outputs, product: FloatArray, factor: float
) -> FloatArray:
    """The noise variance of ỹ + k·ẽ, as responses tell it; axes as of `Outputs.noise`.

    Args:
        function: What responses tell of y.
        exposure: What they tell of e.
        product: What they tell of y·e.
        factor: k.
    """
    covariance = _debiased(function) * _debiased(exposure) - product
    return function.noise + factor**2 * exposure.noise + 2 * factor * covariance


def _debiased(outputs: Outputs) -> FloatArray:
    return outputs.values + outputs.middle
