"""The optimal channel in integers: what bounds it, its design, and its published table.

**What its outputs must count as**, so that their mean is a given function of the category: a
function f can be decoded if it is in the span of the channel: f(y) = Σ_s P(s|y)·g(s) for some g. Of
all such g the one of least variance under a prior is g = D⁻¹Q(Q'D⁻¹Q)⁺f, with Q[s, y] = P(s|y) and
D the probabilities of outputs under that prior. Where f is not in the span, the same formula gives
the nearest function that is, and the residual is the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.base import TABLE_TOTAL
from clusterdp.errors import FormatError, notify_owner
from clusterdp.outcomes.finite import LARGEST_VALUE
from clusterdp.privacy import accounting as acc
from clusterdp.statistics.base import are_whole

if TYPE_CHECKING:
    from fractions import Fraction

    import polars as pl

    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.channels._solver.staircases import Staircase
    from clusterdp.channels.sampling import TableSampler
    from clusterdp.privacy.accounting import LossAtom
    from clusterdp.statistics.base import Arrays

    Design = tuple[IntArray, FloatArray, float]


# Singular values below this share of the largest are taken as 0.
_RANK_TOLERANCE = 1e-9
# Each repetition takes away what rounding to doubles left of the residual.
_REPETITIONS = 3


def decode_functions(
    table: IntArray, prior: FloatArray, functions: FloatArray, near: FloatArray | None = None
) -> FloatArray:
    """What outputs count as in functions of the category; axes `[function, released]`.

    It is the decoding of least variance; or, near what outputs should count as, the one that moves
    them least. Impossible outputs count as 0. Where a function is not in the span, `residuals` are
    not 0.

    Args:
        table: P in integers over TABLE_TOTAL; axes `[true, released]`.
        prior: How likely categories are thought to be, above 0; axes `[category]`.
        functions: f; axes `[function, category]`.
        near: What is moved, axes as those of the result; None for nothing.
    """
    inverse = _inverse(table, prior)
    outputs = np.zeros((len(functions), table.shape[1])) if near is None else near
    for _ in range(_REPETITIONS):
        outputs = outputs - residuals(table, outputs, functions) @ inverse.T
    return outputs


def residuals(table: IntArray, outputs: FloatArray, functions: FloatArray) -> FloatArray:
    """E[output | category] − f, in long doubles as they add up; axes `[function, category]`.

    Axes before those of `table`, which must be `[..., true, released]`, are kept in front.
    """
    weights = table.astype(np.longdouble)[..., np.newaxis, :, :]
    means = (weights * outputs[..., :, np.newaxis, :]).sum(axis=-1) / TABLE_TOTAL
    return np.asarray(means - functions, dtype=np.float64)


def _inverse(table: IntArray, prior: FloatArray) -> FloatArray:
    """D⁻¹Q(Q'D⁻¹Q)⁺; axes `[released, category]`."""
    channel = table / TABLE_TOTAL
    scale = np.sqrt(np.maximum(prior, 0.0) @ channel)
    possible = scale > 0
    scaled = channel[:, possible] / scale[possible]
    left, sizes, right = np.linalg.svd(scaled, full_matrices=False)
    spanned = sizes > _RANK_TOLERANCE * sizes[0]
    inverse = np.zeros(table.T.shape)
    inverse[possible] = (right[spanned].T / sizes[spanned]) @ left[:, spanned].T
    inverse[possible] /= scale[possible, np.newaxis]
    return inverse


# The columns of an output: its number within the channel, what it counts as in every metric, and
# its weight for every category.
_RESPONSE, _DECODE, _WEIGHTS = "response", "decode", "weights"


def read_channels(
    listed: pl.DataFrame, of_cells: pl.Series, layout: Layout, shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    """The arrays of a channel, by their names in `OptimalChannel`.

    Args:
        listed: The table of channels.
        of_cells: The channel of each cell.
        layout: The cells.
        shape: How many metrics and how many categories there are.
    """
    n_metrics, n_categories = shape
    _check_channels(listed, n_metrics, n_categories)
    by_channel = listed.partition_by("channel", maintain_order=True)
    n_outputs = max(len(one) for one in by_channel)
    tables = np.zeros((len(by_channel), n_categories, n_outputs), dtype=np.int64)
    outputs = np.zeros((len(by_channel), n_metrics, n_outputs))
    for channel, one in enumerate(by_channel):
        tables[channel, :, : len(one)] = one[_WEIGHTS].list.to_array(n_categories).to_numpy().T
        outputs[channel, :, : len(one)] = one[_DECODE].list.to_array(n_metrics).to_numpy().T
    groups = of_cells.to_numpy().reshape(layout.sizes.shape)
    if groups.min() < 0 or groups.max() >= len(by_channel):
        raise FormatError("a cell names a randomizer that is missing")
    return {"tables": tables, "outputs": outputs, "groups": groups}


def _check_channels(listed: pl.DataFrame, n_metrics: int, n_categories: int) -> None:
    """Raise a FormatError unless a table lists probabilities of outputs, channel by channel."""
    import polars as pl

    types = {
        "channel": pl.Int64(),
        _RESPONSE: pl.Int64(),
        _DECODE: pl.List(pl.Float64),
        _WEIGHTS: pl.List(pl.Int64),
    }
    if list(listed.schema.items()) != list(types.items()) or listed.is_empty():
        raise FormatError(f"the randomizers do not have the columns {', '.join(types)}")
    gaps = any(listed[name].null_count() for name in types)
    lengths = {_WEIGHTS: (n_categories,), _DECODE: (n_metrics,)}
    whole = all(are_whole(listed[name], length) for name, length in lengths.items())
    if gaps or not whole:
        raise FormatError("the randomizers have gaps")
    weights = listed[_WEIGHTS].explode(empty_as_null=False)
    possible = listed[_WEIGHTS].list.max() > 0
    if not (weights.is_between(0, TABLE_TOTAL).all() and possible.all()):
        raise FormatError("the randomizers have weights that are not probabilities")
    if not (listed[_DECODE].explode(empty_as_null=False).abs() < LARGEST_VALUE).all():
        raise FormatError("the randomizers have outputs that are not numbers")
    steps = listed["channel"].diff().drop_nulls()
    follow = listed["channel"][0] == 0 and steps.is_in([0, 1]).all()
    numbered = listed.select(pl.int_range(pl.len()).over("channel") == pl.col(_RESPONSE))
    if not (follow and numbered.to_series().all()):
        raise FormatError("the randomizers or their outputs are not in order")


# How far E[debiased | true] may be from true, of the largest output: 1e-9 where that is 10,000.
MOST_BIAS = 1e-13
# The same of a function that the channel was not designed for.
MOST_RESIDUAL = 1e-12
# A smaller δ buys nothing that could be measured; channels are then designed without it.
_LEAST_REVEAL = int(1e-5 * TABLE_TOTAL)
# Shares of the room for rounding that are tried.
_MORE_ROOM = (1.0, 30.0, 1000.0)
# Singular values below this share of the largest are taken as 0: such directions are mostly noise.
_LEAST_SINGULAR = 1e-2
_NONE_FOUND = (
    "no optimal randomizer was found for some cells. A plain one is used there: equally private "
    "and unbiased, with more variance"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimalChannel:
    """P(released | true) of every cell, as a table for each distinct channel.

    A draw gives the index of an output. Two outputs may count as the same number.

    Attributes:
        tables: P in integers over TABLE_TOTAL; axes `[channel, true, released]`. Channels with
            fewer outputs than others have outputs of probability 0 at the end.
        outputs: What each output counts as; axes `[channel, metric, released]`.
        groups: The channel of each cell; axes `[..., cluster, arm]`.
        values: What categories count as; axes `[metric, category]`.
    """

    tables: IntArray
    outputs: FloatArray
    groups: IntArray
    values: FloatArray

    def __post_init__(self) -> None:
        n_channels, n_categories, n_outputs = self.tables.shape
        if self.values.ndim != 2 or self.values.shape[1] != n_categories:
            raise ValueError(
                f"values must have axes [metric, category] with {n_categories} categories, "
                f"got shape {self.values.shape}"
            )
        if self.outputs.shape != (n_channels, len(self.values), n_outputs):
            raise ValueError(
                f"outputs must have shape {(n_channels, len(self.values), n_outputs)}, "
                f"got {self.outputs.shape}"
            )

    def transition(self) -> FloatArray:
        """Q; axes `[channel, released, true]`."""
        return np.asarray(self.tables.swapaxes(-1, -2) / TABLE_TOTAL)

    def decode(self, metric: int = 0) -> FloatArray:
        """What each output counts as in a metric; axes `[channel, released]`."""
        return self.outputs[:, metric]

    def noise_variance(self, metric: int = 0) -> FloatArray:
        """Var(debiased | true) = Σ P(s|y)(s − y)² of a metric; axes `[channel, true]`."""
        return self.noise_of(self.values[metric], self.outputs[:, metric])

    def noise_of(self, values: FloatArray, debiased: FloatArray) -> FloatArray:
        """The same of any function `[category]`, from what outputs count as in it."""
        distance = debiased[:, np.newaxis, :] - values[:, np.newaxis]
        return np.asarray((self.tables * distance**2).sum(axis=-1) / TABLE_TOTAL)

    def weighted_noise(self, weights: FloatArray) -> FloatArray:
        """Σ weight·noise variance over metrics; axes `[channel, category]`."""
        every = [weight * self.noise_variance(place) for place, weight in enumerate(weights)]
        return np.asarray(sum(every))

    def read_numbers(self, numbers: FloatArray) -> FloatArray:
        """A reading of numbers of categories `[channel, true]` from outputs `[channel, released]`.

        Its expectation given the category is that category's number as nearly as the channel can
        distinguish categories. (Two outputs, for example, distinguish only means.)
        """
        inverse = np.linalg.pinv(self.tables / TABLE_TOTAL, rcond=_LEAST_SINGULAR)
        return np.asarray((inverse @ numbers[..., np.newaxis])[..., 0])

    def decode_function(self, values: FloatArray, priors: FloatArray) -> tuple[FloatArray, bool]:
        """What each output counts as in any function of the category.

        Args:
            values: The function; axes `[category]`.
            priors: What categories are thought to be like; axes `[channel, category]`.

        Returns:
            What outputs count as, axes `[channel, released]`; and whether its mean is the function
            in all channels, as is so if the function is in their span.
        """
        outputs = np.stack(
            [
                decode_functions(table, prior, values[np.newaxis])
                for table, prior in zip(self.tables, priors, strict=True)
            ]
        )
        furthest = np.abs(residuals(self.tables, outputs, values[np.newaxis])).max(axis=(-2, -1))
        outputs = outputs[:, 0]
        largest = np.maximum(np.abs(outputs).max(axis=-1), np.abs(values).max())
        return outputs, bool((furthest <= MOST_RESIDUAL * largest).all())

    def with_groups(self, groups: IntArray) -> OptimalChannel:
        """The same channels for other cells."""
        return replace(self, groups=groups)

    def used(self) -> OptimalChannel:
        """The channels that a cell has, numbered again."""
        kept, groups = np.unique(self.groups, return_inverse=True)
        n_outputs = int(self.possible()[kept].any(axis=0).sum())
        return replace(
            self,
            tables=self.tables[kept, :, :n_outputs],
            outputs=self.outputs[kept, :, :n_outputs],
            groups=groups.reshape(self.groups.shape),
        )

    def arrays(self) -> Arrays:
        """What the channel is made of, by name; `OptimalRows.restore` takes it back."""
        return {"tables": self.tables, "outputs": self.outputs, "groups": self.groups}

    def possible(self) -> BoolArray:
        """Which outputs each channel has; axes `[channel, released]`."""
        return np.asarray(self.tables.any(axis=1))

    def sampler(self) -> TableSampler:
        """The channel as look-up tables, which only randomizing needs."""
        from clusterdp.channels.sampling import TableSampler

        return TableSampler(self.tables)

    def simulate(self, counts: IntArray, rng: np.random.Generator) -> IntArray:
        """How often each output is released, in distribution as if every row were randomized.

        Axes of `counts`: `[..., cluster, arm, outcome]`; of the result `[..., cluster, arm,
        released]`.
        """
        probs = (self.tables / TABLE_TOTAL)[self.groups]  # [..., cluster, arm, true, released]
        return np.asarray(rng.multinomial(counts, probs).sum(axis=-2))

    def cell_columns(self) -> list[pl.Series]:
        """The number of every cell's channel."""
        import polars as pl

        return [pl.Series("channel", self.groups.ravel())]

    def channels_table(self) -> pl.DataFrame:
        """The published table of channels.

        `weights` follow the order of the categories: P(response | category) is weight / 2^48.
        `decode` follows the order of the metrics.
        """
        import polars as pl

        n_channels, n_categories, n_outputs = self.tables.shape
        possible = self.possible().ravel()
        weights = self.tables.swapaxes(1, 2).reshape(-1, n_categories)
        decode = self.outputs.swapaxes(1, 2).reshape(-1, len(self.values))
        return pl.DataFrame(
            {
                "channel": np.repeat(np.arange(n_channels), n_outputs)[possible],
                _RESPONSE: np.tile(np.arange(n_outputs), n_channels)[possible],
                _DECODE: pl.Series(decode[possible]).arr.to_list(),
                _WEIGHTS: pl.Series(weights[possible]).arr.to_list(),
            }
        )

    def bias(self) -> FloatArray:
        """E[debiased | true] − true, without rounding to doubles; `[channel, metric, true]`."""
        return residuals(self.tables, self.outputs, self.values)

    def is_unbiased(self) -> bool:
        """Whether no bias exceeds MOST_BIAS of the largest output of its channel and metric."""
        largest = np.maximum(1.0, np.abs(self.outputs).max(axis=-1))
        return bool((np.abs(self.bias()).max(axis=-1) <= MOST_BIAS * largest).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalBound:
    """What bounds an optimal channel, in the integers that the machine uses.

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

    @property
    def revealed(self) -> float:
        """The probability that a row shows its outcome outright."""
        return self.delta

    @property
    def used_weight(self) -> int:
        """The part of `reveal_weight` that designs use: none where it is too little to matter."""
        return self.reveal_weight if self.reveal_weight >= _LEAST_REVEAL else 0

    def allows(self, channel: OptimalChannel) -> bool:
        """Whether every table of a channel, in its integers, costs no more."""
        return all(map(self._allows, channel.tables))

    def _allows(self, table: IntArray) -> bool:
        """Σ max(0, P(s|y) − ratio·P(s|y′)) over outputs, against δ; in exact integers."""
        if (table < 0).any() or (table.sum(axis=1) != TABLE_TOTAL).any():
            return False
        numerator, denominator = self.max_ratio.as_integer_ratio()
        exact = table.astype(object)
        if not self.reveal_weight:
            highest, lowest = exact.max(axis=0), exact.min(axis=0)
            return bool((highest * denominator <= lowest * numerator).all())
        for outcome in exact:
            beyond = np.maximum(outcome * denominator - exact * numerator, 0)
            if (beyond.sum(axis=1) > self.reveal_weight * denominator).any():
                return False
        return True

    def loss(self) -> tuple[LossAtom, ...]:
        """The privacy loss of a row that is not revealed, largest first."""
        return acc.any_loss(self.epsilon)

    def total_epsilon(self, spent: tuple[LossAtom, ...], delta: float) -> float:  # noqa: ARG002 - as other rows
        """The ε of statistics and rows together; δ is in the channel already."""
        return acc.total_epsilon(spent, self.epsilon)


# A channel in integers: its table `[true, released]`, what outputs count as `[metric, released]`,
# sorted by the first metric, and its gap. The variance is at most this share above the least
# possible, before rounding; it is infinite if no bound is known.


def design_optimal(
    priors: FloatArray, values: FloatArray, weights: FloatArray, bound: OptimalBound
) -> tuple[IntArray, FloatArray, float]:
    """The channel of least variance for each prior, or a plain one where none is found.

    It never fails: it is called after noise was drawn.

    Args:
        priors: How likely categories are thought to be; axes `[channel, category]`.
        values: What categories count as; axes `[metric, category]`.
        weights: What a metric's variance counts for, above 0; axes `[metric]`.
        bound: What bounds the channels.

    Returns:
        `(tables, outputs, gap)`: as in `OptimalChannel`, and the largest gap of `Design`.
    """
    made = [design_one(prior, values, weights, bound) for prior in priors]
    n_outputs = max(table.shape[1] for table, _, _ in made)
    tables = np.zeros((len(made), values.shape[1], n_outputs), dtype=np.int64)
    outputs = np.zeros((len(made), len(values), n_outputs))
    for channel, (table, counted_as, _) in enumerate(made):
        tables[channel, :, : table.shape[1]] = table
        outputs[channel, :, : table.shape[1]] = counted_as
    return tables, outputs, max(gap for _, _, gap in made)


def design_one(
    prior: FloatArray, values: FloatArray, weights: FloatArray, bound: OptimalBound
) -> Design:
    """The channel for one prior; arguments as for `design_optimal`."""
    # Only owners design channels: readers of one do not load the solver.
    from clusterdp.channels._solver.staircases import design_staircase, plain_design

    # Noise is drawn by now, so there must be a channel even if the solver fails.
    plain = *plain_design(prior, values, bound.max_ratio), np.inf
    n_categories = values.shape[1]
    # Rounding moves the probabilities of an output by a few units: room is left for that.
    n_outputs = (1 + len(values)) * n_categories
    room = 1e-12 + 8 * n_outputs**2 * float(bound.max_ratio) / TABLE_TOTAL
    for factor in _MORE_ROOM:
        ratio = float(bound.max_ratio) * (1 - factor * room)
        if ratio <= 1:
            break
        try:
            staircase = design_staircase(
                values, prior, weights, ratio=ratio, delta=bound.used_weight / TABLE_TOTAL
            )
            rounded = _rounded(staircase, prior, values, bound)
        except np.linalg.LinAlgError:  # a decomposition that does not converge
            continue
        if rounded is not None:
            # Where k-ary response is best, it is so in integers too; what bounds one bounds both.
            plain = *plain[:2], rounded[2]
            return min(plain, rounded, key=lambda made: _cost(made, prior, values, weights))
    if np.ptp(values, axis=1).any():
        notify_owner(_NONE_FOUND)
    return plain


def _cost(design: Design, prior: FloatArray, values: FloatArray, weights: FloatArray) -> float:
    """The sum over metrics of weight times noise variance under a prior, over TABLE_TOTAL."""
    table, outputs, _ = design
    squares = (outputs[:, np.newaxis, :] - values[..., np.newaxis]) ** 2
    return float(weights @ (table * squares).sum(axis=-1) @ prior)


def _rounded(
    staircase: Staircase | None, prior: FloatArray, values: FloatArray, bound: OptimalBound
) -> Design | None:
    """A channel in integers with what its outputs count as; None without an exact one."""
    if staircase is None:
        return None
    table, outputs = _to_table(staircase, bound.used_weight)
    outputs = decode_functions(table, prior, values, near=outputs)
    order = np.lexsort(np.vstack([table, outputs[::-1]]))
    table, outputs = table[:, order], outputs[:, order]
    channel = OptimalChannel(
        tables=table[np.newaxis],
        outputs=outputs[np.newaxis],
        groups=np.zeros((1, 1), dtype=np.int64),
        values=values,
    )
    exact = bound.allows(channel) and channel.is_unbiased()
    return (table, outputs, staircase.gap) if exact else None


def _to_table(staircase: Staircase, reveal_weight: int) -> tuple[IntArray, FloatArray]:
    """The channel in integers: axes `[true, released]`, every row adding up to TABLE_TOTAL."""
    high = np.rint(staircase.low * staircase.ratio * TABLE_TOTAL).astype(np.int64)
    low = np.ceil(high / staircase.ratio).astype(np.int64)
    table = np.where(staircase.high.T, high, low)
    # What rounding left over goes where it changes ratios least: to the least unlikely output.
    sturdiest = int(table.min(axis=0).argmax())
    table[:, sturdiest] += TABLE_TOTAL - reveal_weight - table.sum(axis=1)
    outputs = staircase.outputs
    if reveal_weight:
        own = reveal_weight * np.eye(len(table), dtype=np.int64)
        table, outputs = np.hstack([table, own]), np.hstack([outputs, staircase.reveals])
    possible = table.any(axis=0)
    return table[:, possible], outputs[:, possible]
