"""Stages 3 and 5 of an optimal channel: probabilities in integers, and what decodes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.channels.alias_sampling import TableSampler
from clusterdp.channels.integers import TABLE_TOTAL
from clusterdp.channels.optimal_table import write_channels
from clusterdp.channels.plain import plain_channel
from clusterdp.channels.program import design_staircases

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import BoolArray, CodeArray, FloatArray, IntArray
    from clusterdp.channels.optimal_rows import OptimalResponse
    from clusterdp.channels.program import Staircase
    from clusterdp.statistics.base import Arrays

# How far E[debiased | true] may be from true, of the largest output: 1e-9 where that is 10,000.
MOST_BIAS = 1e-13
# A smaller δ buys nothing that could be measured; channels are then designed without it.
_LEAST_REVEAL = int(1e-5 * TABLE_TOTAL)
# Shares of the room for rounding that are tried.
_MORE_ROOM = (1.0, 30.0, 1000.0)
# Singular values of a channel below this, relative to the largest, tell nothing of what it hides.
_TELLING = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimalChannel:
    """P(released | true) of every cell, as a table for each distinct channel.

    What is released is a number, and that number is the debiased outcome.

    Attributes:
        tables: P in integers over TABLE_TOTAL; axes `[channel, true, released]`. Channels with
            fewer outputs than others have outputs of probability 0.
        numbers: What is released; axes `[channel, released]`.
        groups: The channel of each cell; axes `[..., cluster, arm]`.
        values: The outcome values; axes `[outcome]`.
    """

    tables: IntArray
    numbers: FloatArray
    groups: IntArray
    values: FloatArray

    def transition(self) -> FloatArray:
        """Q; axes `[channel, released, true]`."""
        return np.asarray(self.tables.swapaxes(-1, -2) / TABLE_TOTAL)

    def decode(self) -> FloatArray:
        """What each output counts as: itself. Axes `[channel, released]`."""
        return self.numbers

    def noise_variance(self) -> FloatArray:
        """Var(debiased | true) = Σ P(s|y)(s − y)²; axes `[channel, true]`."""
        distance = self.numbers[:, np.newaxis, :] - self.values[:, np.newaxis]
        return np.asarray((self.tables * distance**2).sum(axis=-1) / TABLE_TOTAL)

    def decode_noise_variance(self) -> FloatArray:
        """A reading of `noise_variance` from outputs; axes `[channel, released]`.

        Its expectation given the true outcome is that outcome's noise variance as nearly as the
        channel can tell outcomes apart. (Two outputs, for example, tell nothing but the mean.)
        """
        hidden = self.noise_variance()[..., np.newaxis]
        inverse = np.linalg.pinv(self.tables / TABLE_TOTAL, rcond=_TELLING)
        return np.asarray((inverse @ hidden)[..., 0])

    def with_groups(self, groups: IntArray) -> OptimalChannel:
        """The same channels for other cells."""
        return replace(self, groups=groups)

    def arrays(self) -> Arrays:
        """What the channel is made of, by name; `OptimalRows.restore` takes it back."""
        return {"tables": self.tables, "numbers": self.numbers, "groups": self.groups}

    def released(self) -> None:
        """What is released is the debiased number itself."""

    def encode(self, released: npt.NDArray[Any], cells: IntArray) -> tuple[CodeArray, BoolArray]:
        """The output codes of released values of some cells, and which of them are none."""
        groups = self.groups.ravel()[cells]
        codes, found = np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells), dtype=np.bool_)
        for group in np.unique(groups):
            mine = np.flatnonzero(groups == group)
            possible = self.tables[group].any(axis=0)
            numbers = self.numbers[group][possible]  # increasing
            places = np.minimum(np.searchsorted(numbers, released[mine]), len(numbers) - 1)
            codes[mine], found[mine] = places, numbers[places] == released[mine]
        return codes, ~found

    def sampler(self) -> TableSampler:
        """The channel as look-up tables."""
        return TableSampler.of(self.tables)

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
        """The published table of channels."""
        return write_channels(self.tables, self.numbers)

    def is_unbiased(self) -> bool:
        """Whether every output counts as the outcome on average, to the precision of doubles."""
        largest = max(1.0, float(np.abs(self.numbers).max()))
        return bool(np.abs(self.bias()).max() <= MOST_BIAS * largest)

    def bias(self) -> FloatArray:
        """E[debiased | true] − true, computed without rounding to doubles; `[channel, true]`."""
        return _bias(self.tables, self.numbers[:, np.newaxis, :], self.values)

    def is_within(self, response: OptimalResponse) -> bool:
        """Whether every table, in its integers, is (ε, δ)-DP as the response says."""
        return all(_is_within(table, response) for table in self.tables)


def design_channels(
    priors: FloatArray, values: FloatArray, response: OptimalResponse
) -> tuple[IntArray, FloatArray]:
    """The channel of least variance for each prior, or a plain one where none is found.

    It never fails: it is called after noise was drawn.

    Args:
        priors: Axes `[channel, outcome]`, each above 0.
        values: The outcome values; axes `[outcome]`.
        response: What bounds the channels.

    Returns:
        `(tables, numbers)`, as in `OptimalChannel`.
    """
    made: dict[int, tuple[IntArray, FloatArray]] = {}
    # Rounding moves the probabilities of an output by a few units: room is left for that.
    room = 1e-12 + 8 * (3 * len(values)) ** 2 * float(response.max_ratio) / TABLE_TOTAL
    reveal_weight = response.reveal_weight if response.reveal_weight >= _LEAST_REVEAL else 0
    for factor in _MORE_ROOM:
        missing = [channel for channel in range(len(priors)) if channel not in made]
        ratio = float(response.max_ratio) * (1 - factor * room)
        if ratio <= 1 or not missing:
            break
        designs = design_staircases(
            values, priors[missing], ratio=ratio, delta=reveal_weight / TABLE_TOTAL
        )
        for channel, staircase in zip(missing, designs, strict=True):
            rounded = _rounded(staircase, values, response, reveal_weight)
            if rounded is not None:
                made[channel] = rounded
    # Noise is drawn by now: whatever the solver does, there is a channel.
    for channel, prior in enumerate(priors):
        if channel not in made:
            made[channel] = plain_channel(prior, values, response.max_ratio)
    return _stacked([made[channel] for channel in range(len(priors))])


def _stacked(made: list[tuple[IntArray, FloatArray]]) -> tuple[IntArray, FloatArray]:
    """Channels in one array each of tables and numbers, with impossible outputs where needed."""
    n_outputs = max(len(numbers) for _, numbers in made)
    tables = np.zeros((len(made), len(made[0][0]), n_outputs), dtype=np.int64)
    numbers = np.zeros((len(made), n_outputs))
    for channel, (table, outputs) in enumerate(made):
        tables[channel, :, : len(outputs)] = table
        numbers[channel, : len(outputs)] = outputs
    return tables, numbers


def _rounded(
    staircase: Staircase | None, values: FloatArray, response: OptimalResponse, reveal_weight: int
) -> tuple[IntArray, FloatArray] | None:
    """A channel in integers with the numbers it releases; None if it is not exact."""
    if staircase is None or not len(staircase.steps.outputs):
        return None
    if reveal_weight and len(np.unique(staircase.reveals.outcomes)) < len(values):
        return None
    table, outputs = _to_table(staircase, len(values), reveal_weight)
    outputs = _unbiased(table, outputs, values)
    order = np.argsort(outputs, kind="stable")
    table, outputs = table[:, order], outputs[order]
    largest = max(1.0, float(np.abs(outputs).max()))
    bias = np.abs(_bias(table, outputs, values)).max()
    exact = _is_within(table, response) and bias <= MOST_BIAS * largest
    return (table, outputs) if exact else None


def _to_table(
    staircase: Staircase, n_outcomes: int, reveal_weight: int
) -> tuple[IntArray, FloatArray]:
    """The channel in integers: axes `[true, released]`, every row adding up to TABLE_TOTAL."""
    steps, reveals, ratio = staircase
    high = np.rint(steps.low * ratio * TABLE_TOTAL).astype(np.int64)
    low = np.ceil(high / ratio).astype(np.int64)
    table = np.where(steps.high.T, high, low)
    # What rounding left over goes where it changes ratios least: to the least unlikely output.
    sturdiest = int(table.min(axis=0).argmax())
    table[:, sturdiest] += TABLE_TOTAL - reveal_weight - table.sum(axis=1)
    outputs = steps.outputs
    if reveal_weight:
        revealed = np.zeros((n_outcomes, len(reveals.outputs)), dtype=np.int64)
        for outcome in range(n_outcomes):
            own = np.flatnonzero(reveals.outcomes == outcome)
            shares = reveals.probs[own] / reveals.probs[own].sum() * reveal_weight
            revealed[outcome, own] = np.floor(shares)
            revealed[outcome, own[0]] += reveal_weight - revealed[outcome].sum()
        table, outputs = np.hstack([table, revealed]), np.concatenate([outputs, reveals.outputs])
    possible = table.any(axis=0)
    return table[:, possible], outputs[possible]


def _unbiased(table: IntArray, outputs: FloatArray, values: FloatArray) -> FloatArray:
    """Outputs moved by what rounding their probabilities did to their means.

    Each step takes away all of the bias that the channel can express, to the precision of doubles.
    """
    inverse = np.linalg.pinv(table / TABLE_TOTAL, rcond=1e-9)
    for _ in range(3):
        outputs = outputs - inverse @ _bias(table, outputs, values)
    return outputs


def _bias(tables: IntArray, numbers: FloatArray, values: FloatArray) -> FloatArray:
    """E[number | true] − true, in long doubles as they add up; axes `[..., true]`."""
    means = (tables.astype(np.longdouble) * numbers).sum(axis=-1) / TABLE_TOTAL
    return np.asarray(means - values, dtype=np.float64)


def _is_within(table: IntArray, response: OptimalResponse) -> bool:
    """Max P(s|y) − ratio·P(s|y′), summed over outputs where positive, against δ; exact integers."""
    if (table < 0).any() or (table.sum(axis=1) != TABLE_TOTAL).any():
        return False
    numerator, denominator = response.max_ratio.as_integer_ratio()
    exact = table.astype(object)
    if not response.reveal_weight:
        highest, lowest = exact.max(axis=0), exact.min(axis=0)
        return bool((highest * denominator <= lowest * numerator).all())
    for outcome in exact:
        beyond = np.maximum(outcome * denominator - exact * numerator, 0)
        if (beyond.sum(axis=1) > response.reveal_weight * denominator).any():
            return False
    return True
