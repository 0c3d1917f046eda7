"""Rows through the unbiased channel of least variance: its parameters, cost and design."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from clusterdp.channels._optimal_channel import (
    OptimalBound,
    OptimalChannel,
    design_optimal,
    read_channels,
)
from clusterdp.channels.base import (
    LARGEST_ROW_EPSILON,
    RATIO_DENOMINATOR,
    SMALLEST_ROW_EPSILON,
    TABLE_TOTAL,
    Check,
)
from clusterdp.channels.priors import learn_priors, representative_priors, with_every_outcome
from clusterdp.channels.resampling import nothing_left
from clusterdp.errors import FormatError, ParameterError
from clusterdp.privacy import accounting as acc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.privacy.accounting import LossAtom
    from clusterdp.statistics.base import Arrays, Histogram


# Cells share this many channels at most; with more, less than a hundredth of the variance is left
# to gain.
MOST_CHANNELS = 96
# Machines may add up costs in another order.
_SAME_COST = 1e-9


class DesignedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel of least variance is designed for.

    Attributes:
        epsilon: ε of the rows, or of the whole release.
        delta: δ of the rows, which is also that of the release.
        prior: The distribution that a channel is designed for, or that noisy counts are shrunk
            towards; None for uniform. Known from outside the experiment, so it costs nothing.
    """

    is_designed: ClassVar[bool] = True

    epsilon: float
    delta: float = 0.0
    prior: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "epsilon", acc.checked_epsilon(self.epsilon))
        msgspec.structs.force_setattr(self, "delta", acc.checked_delta(self.delta))
        if self.prior is not None:
            msgspec.structs.force_setattr(self, "prior", _checked_prior(self.prior))

    def options(self) -> dict[str, Any]:
        """What an owner gives to get these rows, in addition to their strength or the budget."""
        return {} if self.prior is None else {"prior": list(self.prior)}


class OptimalRows(DesignedRows, frozen=True, kw_only=True, tag_field="channel", tag="optimal"):
    """The channel of least variance, by what the rows cost on their own."""

    cells_in_words: ClassVar[str] = "the number of the randomizer of its rows (`channel`)"
    released_in_words: ClassVar[str] = (
        "`response` is the code of the randomized response; it is not an outcome."
    )

    def settle(self, space: CategorySpace, spent: tuple[LossAtom, ...]) -> OptimalRows:  # noqa: ARG002 - as a budget
        """The same."""
        return self

    def parameters(self) -> dict[str, float]:
        """Its numbers, by the names that people are shown."""
        return {"epsilon of rows": self.epsilon}

    def bound(self, space: CategorySpace) -> OptimalBound:  # noqa: ARG002 - as other rows
        """What bounds the channel, in integers.

        Raises:
            ParameterError: If no channel can be designed at this ε.
        """
        if not SMALLEST_ROW_EPSILON <= self.epsilon <= LARGEST_ROW_EPSILON:
            raise ParameterError(
                f"epsilon of the rows must lie between {SMALLEST_ROW_EPSILON:g} and "
                f"{LARGEST_ROW_EPSILON:g}, got {self.epsilon:.6g}"
            )
        return OptimalBound(
            epsilon=self.epsilon,
            delta=self.delta,
            max_ratio=acc.largest_ratio(self.epsilon, RATIO_DENOMINATOR),
            reveal_weight=int(Fraction(self.delta) * TABLE_TOTAL),
        )

    def at_epsilon(self, epsilon: float, space: CategorySpace) -> OptimalRows:  # noqa: ARG002 - as other rows
        """The same for rows that cost another ε."""
        return msgspec.structs.replace(self, epsilon=epsilon)

    def public_prior(self, space: CategorySpace) -> FloatArray:
        """What is thought of outcomes from outside the experiment: uniform, or declared."""
        if self.prior is None:
            return np.full(space.n_categories, 1 / space.n_categories)
        if len(self.prior) != space.n_categories:
            raise ParameterError(
                f"prior has {len(self.prior)} numbers, and the outcome has {space.n_categories} "
                "allowed values"
            )
        return np.array(self.prior)

    def public_channel(self, space: CategorySpace) -> OptimalChannel:
        """The channel of one cell as far as it is public."""
        return self._public_design(space)[0]

    def design_gap(self, space: CategorySpace) -> float:
        """How much more variance that channel may have than the least possible, as a share."""
        return self._public_design(space)[1]

    def _public_design(self, space: CategorySpace) -> tuple[OptimalChannel, float]:
        prior = with_every_outcome(self.public_prior(space))
        weights = tuple(self.metric_weights(space).tolist())
        return _remembered_design(tuple(prior), space, weights, self.bound(space))

    def near_noise(self, space: CategorySpace) -> FloatArray:
        """The noise of about that channel, for plans; axes `[metric, category]`."""
        prior = with_every_outcome(self.public_prior(space))
        weights = tuple(self.metric_weights(space).tolist())
        found = _remembered_noise(tuple(prior), space, weights, self.bound(space))
        if found is None:  # as where the solver gives up
            channel = self.public_channel(space)
            metrics = range(len(channel.values))
            return np.stack([channel.noise_variance(metric)[0] for metric in metrics])
        return found

    def plain_channel(self, space: CategorySpace) -> OptimalChannel:
        """A channel in closed form that costs as much, and is public for any counts."""
        from clusterdp.channels._solver.staircases import plain_design

        values = space.metric_values()
        prior = with_every_outcome(self.public_prior(space))
        table, outputs = plain_design(prior, values, self.bound(space).max_ratio)
        return OptimalChannel(
            tables=table[np.newaxis],
            outputs=outputs[np.newaxis],
            groups=np.zeros((1, 1), dtype=np.int64),
            values=values,
        )

    def metric_weights(self, space: CategorySpace) -> FloatArray:
        """How much the variance of each metric counts in the design; axes `[metric]`."""
        return space.metric_weights(None if self.prior is None else self.public_prior(space))

    def design(
        self, layout: Layout, space: CategorySpace, histogram: Histogram | None
    ) -> OptimalChannel:
        """One channel for every cell; or, with noisy counts, the best of some for each cell."""
        if histogram is None:
            one = self.public_channel(space)
            return one.with_groups(np.zeros(layout.sizes.shape, dtype=np.int64))
        priors = learn_priors(histogram, self.public_prior(space))
        chosen_for = representative_priors(priors.reshape(-1, space.n_categories), MOST_CHANNELS)
        channel, _ = _design(chosen_for, space, self.metric_weights(space), self.bound(space))
        best = (priors @ self._costs(channel, space)).argmin(axis=-1)  # [..., group]
        return channel.with_groups(best[..., histogram.groups]).used()

    def _costs(self, channel: OptimalChannel, space: CategorySpace) -> FloatArray:
        """What each channel costs, by what is true; axes `[category, channel]`."""
        return channel.weighted_noise(self.metric_weights(space)).T

    def _explained(
        self, channel: OptimalChannel, space: CategorySpace, histogram: Histogram | None
    ) -> bool:
        """Whether each channel is that of a cell, and each cell's the best by what is published."""
        if not np.array_equal(np.unique(channel.groups), np.arange(len(channel.tables))):
            return False
        if histogram is None:
            return len(channel.tables) == 1
        priors = learn_priors(histogram, self.public_prior(space))[histogram.groups]
        costs = priors @ self._costs(channel, space)  # [cluster, arm, channel]
        own = np.take_along_axis(costs, channel.groups[..., np.newaxis], axis=-1)[..., 0]
        return bool((own <= costs.min(axis=-1) * (1 + _SAME_COST)).all())

    def column_types(self) -> dict[str, pl.DataType]:
        """Its columns in the published table of cells."""
        import polars as pl

        return {"channel": pl.Int64()}

    def read(
        self,
        cells: pl.DataFrame,
        channels: pl.DataFrame | None,
        layout: Layout,
        space: CategorySpace,
        histogram: Histogram | None,  # noqa: ARG002 - as other rows
    ) -> OptimalChannel:
        """The channel, from the published tables of cells and channels."""
        if channels is None:
            raise FormatError("the table of randomizers is missing")
        arrays = read_channels(channels, cells["channel"], layout, space.metric_values().shape)
        return self.restore(arrays, space)

    def restore(self, arrays: Arrays, space: CategorySpace) -> OptimalChannel:
        """The channel that `OptimalChannel.arrays` was taken from."""
        return OptimalChannel(**arrays, values=space.metric_values())

    def checks(
        self,
        arrays: Arrays,
        cells: pl.DataFrame,  # noqa: ARG002 - as other rows
        layout: Layout,  # noqa: ARG002 - as other rows
        space: CategorySpace,
        histogram: Histogram | None,
    ) -> list[Check]:
        """Whether a published channel keeps what is promised of it.

        Args:
            arrays: The channel's.
            cells: The published table of cells.
            layout: What is public.
            space: The outcome space.
            histogram: The published noisy counts.
        """
        channel = self.restore(arrays, space)
        return [
            Check.from_condition(
                "randomizers match the published numbers",
                "cells.parquet or channels.parquet has a randomizer that does not match the "
                "published numbers",
                holds=self._explained(channel, space, histogram),
            ),
            Check.from_condition(
                "randomizers satisfy their stated epsilon",
                "channels.parquet has a randomizer that costs more than the manifest says",
                holds=self.bound(space).allows(channel),
            ),
            Check.from_condition(
                "randomizers are unbiased",
                "channels.parquet has a randomizer whose outputs do not average to the outcome",
                holds=channel.is_unbiased(),
            ),
        ]


class OptimalBudget(DesignedRows, frozen=True, kw_only=True, tag_field="channel"):
    """The channel of least variance, by the budget of statistics and rows together."""

    def settle(self, space: CategorySpace, spent: tuple[LossAtom, ...]) -> OptimalRows:  # noqa: ARG002 - as other rows
        """What the statistics leave for the rows.

        Raises:
            ParameterError: If they leave nothing.
        """
        epsilon = acc.remaining_epsilon(self.epsilon, spent)
        if epsilon < SMALLEST_ROW_EPSILON and spent[0].loss:
            raise ParameterError(nothing_left(self.epsilon, float(spent[0].loss)))
        return OptimalRows(
            epsilon=min(epsilon, LARGEST_ROW_EPSILON),
            delta=self.delta,
            prior=self.prior,
        )


def _checked_prior(prior: Sequence[float]) -> tuple[float, ...]:
    numbers = tuple(float(number) for number in prior)
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or not any(numbers):
        raise ParameterError("a prior must have numbers of at least 0, and not all 0")
    total = math.fsum(numbers)
    if math.isclose(total, 1.0, rel_tol=1e-12):  # as it is, so that it reads as it was written
        return numbers
    return tuple(number / total for number in numbers)


def _design(
    priors: FloatArray, space: CategorySpace, weights: FloatArray, bound: OptimalBound
) -> tuple[OptimalChannel, float]:
    """A channel for each prior, one cell each, and the largest of their gaps."""
    values = space.metric_values()
    tables, outputs, gap = design_optimal(priors, values, weights, bound)
    groups = np.arange(len(priors))[np.newaxis]
    return OptimalChannel(tables=tables, outputs=outputs, groups=groups, values=values), gap


@lru_cache(maxsize=1024)
def _remembered_noise(
    prior: tuple[float, ...],
    space: CategorySpace,
    weights: tuple[float, ...],
    bound: OptimalBound,
) -> FloatArray | None:
    """Plans ask for the noise of the same channels again and again."""
    from clusterdp.channels._solver import staircases

    ratio, delta = float(bound.max_ratio), bound.used_weight / TABLE_TOTAL
    return staircases.near_noise(
        space.metric_values(), np.array(prior), np.array(weights), ratio=ratio, delta=delta
    )


@lru_cache(maxsize=256)
def _remembered_design(
    prior: tuple[float, ...],
    space: CategorySpace,
    weights: tuple[float, ...],
    bound: OptimalBound,
) -> tuple[OptimalChannel, float]:
    """A channel is a pure function of these, and takes a moment to design."""
    return _design(np.array([prior]), space, np.array(weights), bound)
