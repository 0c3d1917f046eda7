"""Rows that are kept or redrawn from a prior (stages 3 and 5 of the paper).

The channel and its decoding; the rule, by its strength or by a budget; and what that costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from clusterdp.channels.base import KEEP_TOTAL, PRIOR_TOTAL, Check
from clusterdp.channels.priors import estimate_prior, to_weights
from clusterdp.errors import FormatError, ParameterError
from clusterdp.privacy import accounting as acc
from clusterdp.statistics.base import list_column, read_lists

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels.sampling import RedrawSampler
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.privacy.accounting import LossAtom
    from clusterdp.statistics.base import Arrays, Histogram


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResamplingChannel:
    """P(released | true) of every cell: keep the outcome, or redraw it from the cell's prior.

    Q = (1−λ)I + λ q̃ 1ᵀ, with 1−λ = `keep_weight / KEEP_TOTAL` and q̃ = `weights / PRIOR_TOTAL`.
    Cells that share a prior share a group.

    Attributes:
        keep_weight: The probability of keeping a row, in integers.
        weights: The prior in integers; axes `[..., group, outcome]`.
        groups: The group of each cell; axes `[cluster, arm]`.
        space: The outcomes that are kept or redrawn.
    """

    keep_weight: int
    weights: IntArray
    groups: IntArray
    space: CategorySpace

    @property
    def values(self) -> FloatArray:
        """What categories count as; axes `[metric, category]`."""
        return self.space.metric_values()

    @property
    def resample_prob(self) -> float:
        """λ, exactly."""
        return (KEEP_TOTAL - self.keep_weight) / KEEP_TOTAL

    @property
    def keep_prob(self) -> float:
        """1−λ, exactly."""
        return self.keep_weight / KEEP_TOTAL

    def prior(self) -> FloatArray:
        """q̃, exactly; axes `[..., group, outcome]`."""
        return self.weights / PRIOR_TOTAL

    def transition(self) -> FloatArray:
        """Q; axes `[..., group, released, true]`."""
        redrawn = self.resample_prob * self.prior()[..., np.newaxis]
        return redrawn + self.keep_prob * np.eye(self.weights.shape[-1])

    def decode(self, metric: int = 0) -> FloatArray:
        """What each released category counts as: (ỹ − λm)/(1−λ), m the mean of the prior.

        Its expectation is the true outcome, for any prior. Axes `[..., group, released]`.
        """
        return self._decode(self.values[metric])

    def decode_function(self, values: FloatArray, priors: FloatArray) -> tuple[FloatArray, bool]:  # noqa: ARG002 - as other channels
        """The same of any function of the category `[category]`, and that it is in the span."""
        return self._decode(values), True

    def _decode(self, values: FloatArray) -> FloatArray:
        exact = self.read_numbers(np.broadcast_to(values, self.weights.shape).astype(np.longdouble))
        rounded = exact.astype(np.float64)
        # Rounding biases all outcomes of a group equally, by λΣq̃(rounded − exact). It is taken back
        # from the one value where the smallest step of a float moves that sum the least.
        bias = self._prior_mean(rounded - exact)
        step = self.weights * np.spacing(np.abs(rounded))
        finest = step.argmin(axis=-1)[..., np.newaxis]
        share = np.take_along_axis(self.weights, finest, axis=-1) / PRIOR_TOTAL
        moved = np.take_along_axis(rounded, finest, axis=-1) - bias / share
        np.put_along_axis(rounded, finest, moved.astype(np.float64), axis=-1)
        return rounded

    def decoded(self) -> FloatArray:
        """`decode` of every metric; axes `[..., group, metric, released]`."""
        return np.stack([self.decode(metric) for metric in range(len(self.values))], axis=-2)

    def noise_variance(self, metric: int = 0) -> FloatArray:
        """Var(debiased | true) = λ/(1−λ)·(y−m)² + λ/(1−λ)²·v; axes `[..., group, true]`.

        m and v are the mean and the variance of the prior.
        """
        return self.noise_of(self.values[metric])

    def noise_of(self, values: FloatArray, debiased: FloatArray | None = None) -> FloatArray:  # noqa: ARG002 - as other channels
        """The same of any function `[category]`."""
        deviation = values - self._prior_mean(values)
        spread = self._prior_mean(deviation**2)
        odds = self.resample_prob / self.keep_prob
        return np.asarray(odds * deviation**2 + odds / self.keep_prob * spread)

    def read_numbers(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An unbiased reading of numbers of categories `[..., group, true]` from released ones.

        That of `noise_variance` has a mean over rows that estimates what privacy cost.
        """
        return (numbers - self.resample_prob * self._prior_mean(numbers)) / self.keep_prob

    def possible(self) -> BoolArray:
        """Which outputs each group has: all categories; axes `[group, released]`."""
        return np.ones(self.weights.shape, dtype=np.bool_)

    def sampler(self) -> RedrawSampler:
        """The channel as look-up tables, which only randomizing needs."""
        from clusterdp.channels.sampling import RedrawSampler

        return RedrawSampler(self.keep_weight, self.weights)

    def simulate(self, counts: IntArray, rng: np.random.Generator) -> IntArray:
        """How often each outcome is released, in distribution as if every row were randomized.

        Axes of `counts`: `[..., cluster, arm, outcome]`; of the result `[..., cluster, arm,
        released]`.
        """
        resampled = rng.binomial(counts, self.resample_prob)
        prior = self.prior()[..., self.groups, :]
        redrawn = rng.multinomial(resampled.sum(axis=-1), prior)
        return np.asarray(counts - resampled + redrawn)

    def cell_columns(self) -> list[pl.Series]:
        """The prior and the decode values of every cell."""
        return [
            list_column("prior", self.prior(), self.groups),
            list_column("decode", self.decoded(), self.groups),
        ]

    def channels_table(self) -> None:
        """There is no table of channels: everything is in the table of cells."""

    def arrays(self) -> Arrays:
        """What the channel is made of, by name; `ResampledRows.restore` takes it back."""
        return {"weights": self.weights, "groups": self.groups}

    def _prior_mean(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        total: npt.NDArray[Any] = (self.weights * numbers).sum(axis=-1, keepdims=True)
        return total / PRIOR_TOTAL


class ResampledRows(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="channel", tag="resampling"
):
    """The strength of the randomization, by hand.

    Attributes:
        resample_prob: λ, the probability that a row is redrawn from the prior.
        delta: The δ at which the guarantee is stated.
        prior_floor: γ, or None for the largest possible, 1/K: then the prior is uniform.
    """

    is_designed: ClassVar[bool] = False
    cells_in_words: ClassVar[str] = (
        "the prior that outcomes were redrawn from, and what each counts as (`decode`)"
    )
    released_in_words: ClassVar[str] = (
        "`response` is the code of the outcome combination after randomization."
    )

    resample_prob: float
    delta: float = 0.0
    prior_floor: float | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "resample_prob", float(self.resample_prob))
        _check_common(self)
        if not 0 < self.resample_prob < 1:
            raise ParameterError(
                f"resample_prob must lie strictly between 0 and 1, got {self.resample_prob}"
            )

    def settle(self, space: CategorySpace, spent: tuple[LossAtom, ...]) -> ResampledRows:  # noqa: ARG002 - as a budget
        """The same in the integers that the machine uses."""
        bound = self.bound(space)
        floor = None if self.prior_floor is None else float(bound.prior_floor)
        return ResampledRows(resample_prob=bound.resample_prob, delta=self.delta, prior_floor=floor)

    def options(self) -> dict[str, Any]:
        """What an owner gives to get these rows, in addition to their strength."""
        return {} if self.prior_floor is None else {"prior_floor": self.prior_floor}

    def parameters(self) -> dict[str, float]:
        """Its numbers, by the names that people are shown."""
        return {**self.options(), "resample_prob": self.resample_prob}

    def bound(self, space: CategorySpace) -> ResamplingBound:
        """The integers over `space`.

        Raises:
            ParameterError: If the floor is above 1/K.
        """
        keep_weight = int((1 - Fraction(self.resample_prob)) * KEEP_TOTAL)
        floor_weight = _floor_weight(self.prior_floor, space.n_categories)
        return _checked_bound(keep_weight, floor_weight, self.delta)

    def at_epsilon(self, epsilon: float, space: CategorySpace) -> ResampledRows:
        """The same for rows that cost another ε on their own, at δ = 0."""
        floor = self.prior_floor or 1 / space.n_categories
        return msgspec.structs.replace(self, resample_prob=1 / (1 + floor * math.expm1(epsilon)))

    def public_prior(self, space: CategorySpace) -> FloatArray:
        """What rows are redrawn from where nothing was counted: the uniform distribution."""
        return np.full(space.n_categories, 1 / space.n_categories)

    def public_channel(self, space: CategorySpace) -> ResamplingChannel:
        """The channel of one cell as far as it is public."""
        return ResamplingChannel(
            keep_weight=self.bound(space).keep_weight,
            weights=to_weights(self.public_prior(space)[np.newaxis], 0),
            groups=np.zeros((1, 1), dtype=np.int64),
            space=space,
        )

    def plain_channel(self, space: CategorySpace) -> ResamplingChannel:
        """A channel in closed form that costs as much, and is public for any counts."""
        return self.public_channel(space)

    def design(
        self, layout: Layout, space: CategorySpace, histogram: Histogram | None
    ) -> ResamplingChannel:
        """The channel of every cell, with priors from noisy counts if there are any."""
        bound = self.bound(space)
        prior = self.public_prior(space)[np.newaxis]
        groups = np.zeros(layout.sizes.shape, dtype=np.int64)
        if histogram is not None:
            floor = float(bound.prior_floor)
            prior = estimate_prior(histogram.noisy_counts, histogram.group_sizes, floor)
            groups = histogram.groups
        return ResamplingChannel(
            keep_weight=bound.keep_weight,
            weights=to_weights(prior, bound.floor_weight),
            groups=groups,
            space=space,
        )

    def column_types(self) -> dict[str, pl.DataType]:
        """Its columns in the published table of cells."""
        import polars as pl

        return {"prior": pl.List(pl.Float64), "decode": pl.List(pl.List(pl.Float64))}

    def read(
        self,
        cells: pl.DataFrame,
        channels: pl.DataFrame | None,  # noqa: ARG002 - as other rows
        layout: Layout,
        space: CategorySpace,
        histogram: Histogram | None,
    ) -> ResamplingChannel:
        """The channel, from the published table of cells."""
        groups = np.zeros(layout.sizes.shape, np.int64) if histogram is None else histogram.groups
        # Priors are integers over 2^32, which floats hold exactly.
        prior = read_lists(cells["prior"], groups)
        exact = np.where((prior >= 0) & (prior <= 1), prior, np.nan) * PRIOR_TOTAL
        if (exact != np.floor(exact)).any() or (exact.sum(axis=-1) != PRIOR_TOTAL).any():
            raise FormatError("a prior of the cells does not have integers over 2^32")
        return self.restore({"weights": exact.astype(np.int64), "groups": groups}, space)

    def restore(self, arrays: Arrays, space: CategorySpace) -> ResamplingChannel:
        """The channel that `ResamplingChannel.arrays` was taken from."""
        return ResamplingChannel(
            keep_weight=self.bound(space).keep_weight,
            weights=arrays["weights"],
            groups=arrays["groups"],
            space=space,
        )

    def checks(
        self,
        arrays: Arrays,
        cells: pl.DataFrame,
        layout: Layout,
        space: CategorySpace,
        histogram: Histogram | None,
    ) -> list[Check]:
        """Whether a published channel follows from the published statistics.

        Args:
            arrays: The channel's.
            cells: The published table of cells.
            layout: What is public.
            space: The outcome space.
            histogram: The published noisy counts.
        """
        channel = self.restore(arrays, space)
        follows = np.array_equal(self.design(layout, space, histogram).weights, channel.weights)
        stated = np.array(cells["decode"].to_list())
        decoded = channel.decoded()[channel.groups.ravel()]
        return [
            Check.from_condition(
                "priors match the noisy counts",
                "cells.parquet has priors that do not match the noisy counts",
                holds=follows,
            ),
            Check.from_condition(
                "decode values match the priors",
                "cells.parquet has decode values that do not match its priors",
                holds=bool(np.allclose(stated, decoded, rtol=1e-12, atol=1e-12)),
            ),
        ]


class ResamplingBudget(msgspec.Struct, frozen=True, kw_only=True, tag_field="channel"):
    """The strength of the randomization, by the budget of the whole release.

    Attributes:
        epsilon: The ε of statistics and rows together.
        delta: The δ of statistics and rows together.
        prior_floor: γ, or None for the largest possible, 1/K.
    """

    is_designed: ClassVar[bool] = False

    epsilon: float
    delta: float = 0.0
    prior_floor: float | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "epsilon", acc.checked_epsilon(self.epsilon))
        _check_common(self)

    def options(self) -> dict[str, Any]:
        """What an owner gives to get these rows, in addition to the budget."""
        return {} if self.prior_floor is None else {"prior_floor": self.prior_floor}

    def settle(self, space: CategorySpace, spent: tuple[LossAtom, ...]) -> ResampledRows:
        """The strength that this budget allows.

        Args:
            space: The outcome space.
            spent: The loss of the statistics.

        Raises:
            ParameterError: If the statistics leave nothing for the rows.
        """
        floor_weight = _floor_weight(self.prior_floor, space.n_categories)
        floor = Fraction(floor_weight, PRIOR_TOTAL)
        if self.epsilon <= (cost := float(spent[0].loss)):
            raise ParameterError(nothing_left(self.epsilon, cost))
        keep = Fraction(
            acc.largest_keep_prob(
                epsilon=self.epsilon, delta=self.delta, prior_floor=floor, summary=spent
            )
        )
        # At least one row in 2^52 is redrawn, so that every output stays possible.
        keep_weight = min(int(keep * KEEP_TOTAL), KEEP_TOTAL - 1)
        bound = _checked_bound(keep_weight, floor_weight, self.delta)
        return ResampledRows(
            resample_prob=bound.resample_prob,
            delta=self.delta,
            prior_floor=None if self.prior_floor is None else float(floor),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResamplingBound:
    """How each row is redrawn, in the integers that the machine uses and the guarantee counts.

    Attributes:
        keep_weight: A row is kept with probability `keep_weight / KEEP_TOTAL`, which is 1−λ.
        floor_weight: No outcome's prior is below `floor_weight / PRIOR_TOTAL`, which is γ.
        delta: The δ at which the guarantee is stated.
    """

    keep_weight: int
    floor_weight: int
    delta: float

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

    @property
    def revealed(self) -> float:
        """The probability that a row shows its outcome outright."""
        return 0.0

    def allows(self, channel: ResamplingChannel) -> bool:
        """Whether a channel, in its integers, costs no more."""
        weights = channel.weights
        whole = (weights >= self.floor_weight).all() and (weights.sum(axis=-1) == PRIOR_TOTAL).all()
        return bool(whole) and 0 <= channel.keep_weight <= self.keep_weight

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss of a row, largest first."""
        return acc.resampled_row_loss(self.keep_prob, self.prior_floor)

    def total_epsilon(self, spent: tuple[LossAtom, ...], delta: float) -> float:
        """The ε of statistics and rows together at this δ."""
        return acc.row_epsilon(
            keep_prob=self.keep_prob, prior_floor=self.prior_floor, delta=delta, summary=spent
        )


def nothing_left(epsilon: float, spent: float) -> str:
    """What to say where statistics cost the whole budget."""
    return (
        f"noisy counts and sums cost {spent:.6g} of epsilon={epsilon:g}, and nothing is left for "
        f"the rows; give an epsilon above {spent:.6g}"
    )


def _check_common(rows: ResampledRows | ResamplingBudget) -> None:
    msgspec.structs.force_setattr(rows, "delta", acc.checked_delta(rows.delta))
    if rows.prior_floor is None:
        return
    msgspec.structs.force_setattr(rows, "prior_floor", float(rows.prior_floor))
    if not 0 < rows.prior_floor <= 0.5:
        raise ParameterError(
            "prior_floor must lie in (0, 1/K], so that every outcome stays possible, "
            f"got {rows.prior_floor}"
        )


def _checked_bound(keep_weight: int, floor_weight: int, delta: float) -> ResamplingBound:
    if keep_weight == 0:
        raise ParameterError(
            "rows would be kept with probability below 2^-52, so they would be only noise; lower "
            "resample_prob, or raise epsilon or prior_floor"
        )
    return ResamplingBound(keep_weight=keep_weight, floor_weight=floor_weight, delta=delta)


def _floor_weight(prior_floor: float | None, n_outcomes: int) -> int:
    """The floor in integers: at least γ where that is possible, at most 1/K."""
    highest = PRIOR_TOTAL // n_outcomes
    if prior_floor is None:
        return highest
    if prior_floor > 1 / n_outcomes:
        raise ParameterError(
            f"prior_floor must be at most 1/K = {1 / n_outcomes:.6g} for {n_outcomes} outcomes, "
            f"got {prior_floor}"
        )
    return min(math.ceil(Fraction(prior_floor) * PRIOR_TOTAL), highest)
