"""Stage 4: every row through its cell's channel. A stateless function of codes and random words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.channels.optimal import DesignedChannel
from clusterdp.mechanisms.parts import KEEP_TOTAL, PRIOR_TOTAL, TABLE_TOTAL
from clusterdp.rows.keys import unit_words

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray, WordArray
    from clusterdp.channels.design import Channel
    from clusterdp.channels.resampling import ResamplingChannel
    from clusterdp.experiment.outcomes import OutcomeSpace

_TABLE_BITS = TABLE_TOTAL.bit_length() - 1
_TABLE_SHIFT = np.uint64(64 - _TABLE_BITS)
_PRIOR_BITS = PRIOR_TOTAL.bit_length() - 1
_ALIAS_BITS = 16
# Rows worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_ROWS = 2**15
_KEEP_SHIFT = np.uint64(64 - (KEEP_TOTAL.bit_length() - 1))
_PRIOR_SHIFT = np.uint64(64 - _PRIOR_BITS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RedrawSampler:
    """A resampling channel as alias tables: any outcome of any group is drawn with one look-up.

    A prior of total 2^32 is cut into 2^b columns of equal height. A column belongs to one outcome
    below its threshold and to another, its alias, above. Heights are integers, so the tables hold
    the channel's probabilities exactly.

    Attributes:
        keep_weight: A row is kept when its 52 bits fall below this.
        column_bits: b, with 2^b at least the number of outcomes.
        columns: Each column's threshold, shifted by 16 bits, and its alias; axes
            `[group * column]`. One number, so that a draw reads memory once.
    """

    keep_weight: int
    column_bits: int
    columns: IntArray

    @classmethod
    def of(cls, channel: ResamplingChannel) -> RedrawSampler:
        """The tables of a channel."""
        column_bits = max(1, (len(channel.values) - 1).bit_length())
        return cls(
            keep_weight=channel.keep_weight,
            column_bits=column_bits,
            columns=_alias_columns(channel.weights, column_bits, _PRIOR_BITS),
        )

    def draw(self, words: WordArray, groups: IntArray, outcomes: CodeArray) -> CodeArray:
        """Released outcome codes.

        Args:
            words: Two words per row, from `unit_words`; axes `[row, word]`.
            groups: The group of each row's cell; axes `[row]`.
            outcomes: True outcome codes; axes `[row]`.
        """
        point = (words[:, 1] >> _PRIOR_SHIFT).view(np.int64)
        found = _look_up(self.columns, groups, point, self.column_bits, _PRIOR_BITS)
        kept = (words[:, 0] >> _KEEP_SHIFT) < np.uint64(self.keep_weight)
        np.copyto(found, outcomes, where=kept)
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableSampler:
    """A designed channel as alias tables, one for every true outcome of every channel.

    Attributes:
        n_outcomes: K.
        column_bits: b, with 2^b at least the number of outputs.
        columns: As in `RedrawSampler`; axes `[group * true * column]`.
    """

    n_outcomes: int
    column_bits: int
    columns: IntArray

    @classmethod
    def of(cls, channel: DesignedChannel) -> TableSampler:
        """The tables of a channel."""
        n_outputs = channel.tables.shape[-1]
        # At least 2 bits, so that a threshold and an alias fit into 63.
        column_bits = max(2, (n_outputs - 1).bit_length())
        weights = channel.tables.reshape(-1, n_outputs)
        return cls(
            n_outcomes=len(channel.values),
            column_bits=column_bits,
            columns=_alias_columns(weights, column_bits, _TABLE_BITS),
        )

    def draw(self, words: WordArray, groups: IntArray, outcomes: CodeArray) -> CodeArray:
        """Output codes; arguments as in `RedrawSampler.draw`."""
        point = (words[:, 0] >> _TABLE_SHIFT).view(np.int64)
        rows = groups * self.n_outcomes + outcomes
        return _look_up(self.columns, rows, point, self.column_bits, _TABLE_BITS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowRandomizer:
    """Pass 2 of every engine: a stateless function of a batch of rows.

    It holds everything a worker needs and nothing of the table, so batches may be run in any order,
    anywhere, and again: the same rows give the same result.

    Attributes:
        sampler: The channel as look-up tables.
        groups: The group of each cell, axes `[cell]`; None where every cell is its own group.
        values: The outcome values as they are released, axes `[outcome]`; None for a designed
            channel, which releases the debiased number itself.
        n_outputs: How many different values a group can release.
        decode: What each released value counts as; axes `[group * released]`.
        aes_key: The key of this outcome, from `ReleaseKey.for_outcome`.
    """

    sampler: RedrawSampler | TableSampler
    groups: IntArray | None
    values: npt.NDArray[Any] | None
    n_outputs: int
    decode: FloatArray
    aes_key: bytes = field(repr=False)

    @classmethod
    def of(cls, channel: Channel, space: OutcomeSpace, aes_key: bytes) -> RowRandomizer:
        """The randomizer of a channel."""
        groups = channel.groups.ravel()
        every_cell = np.array_equal(groups, np.arange(len(groups)))
        decode = channel.decode()
        sampler: RedrawSampler | TableSampler
        values = None
        if isinstance(channel, DesignedChannel):
            sampler = TableSampler.of(channel)
        else:
            sampler, values = RedrawSampler.of(channel), space.as_released()
        return cls(
            sampler=sampler,
            groups=None if every_cell else groups,
            values=values,
            n_outputs=decode.shape[-1],
            decode=decode.ravel(),
            aes_key=aes_key,
        )

    def __call__(self, units: pl.Series, cells: IntArray, outcomes: CodeArray) -> RandomizedRows:
        """Randomize a batch, given as ids, cell codes and outcome codes; axes `[row]`."""
        n_rows = len(units)
        debiased = np.empty(n_rows)
        released = debiased if self.values is None else np.empty(n_rows, self.values.dtype)
        for start in range(0, n_rows, _CACHED_ROWS):
            part = slice(start, start + _CACHED_ROWS)
            groups = cells[part] if self.groups is None else self.groups[cells[part]]
            words = unit_words(units[part], self.aes_key)
            codes = self.sampler.draw(words, groups, outcomes[part])
            if self.values is not None:
                released[part] = self.values[codes]
            codes += groups * self.n_outputs
            debiased[part] = self.decode[codes]
        return RandomizedRows(released=released, debiased=debiased)


class RandomizedRows(NamedTuple):
    """What becomes of a batch; every array has axes `[row]`."""

    released: npt.NDArray[Any]
    debiased: FloatArray


def _look_up(
    columns: IntArray, rows: IntArray, point: IntArray, column_bits: int, total_bits: int
) -> CodeArray:
    """What each point of a row's alias table belongs to. Overwrites `point`."""
    below_bits = total_bits - column_bits
    column = point >> below_bits
    point &= 2**below_bits - 1  # now the height within the column
    place = rows << column_bits
    place |= column
    found: IntArray = columns[place]
    own = point < (found >> _ALIAS_BITS)
    found &= 2**_ALIAS_BITS - 1  # now the alias
    np.copyto(found, column, where=own)
    return found


def _alias_columns(weights: IntArray, column_bits: int, total_bits: int) -> IntArray:
    """Thresholds and aliases in one number each; axes `[row * column]`."""
    thresholds, aliases = _alias_tables(weights, column_bits, 2**total_bits)
    return np.asarray((thresholds << _ALIAS_BITS) | aliases).ravel()


def _alias_tables(weights: IntArray, column_bits: int, total: int) -> tuple[IntArray, IntArray]:
    """Walker's construction, in integers and for all groups at once.

    Each step finishes one column per group: the emptiest open one, topped up from the fullest.

    Returns:
        `(thresholds, aliases)`; axes `[group, column]`.
    """
    n_groups, n_outcomes = weights.shape
    n_columns, height = 2**column_bits, total >> column_bits
    left = np.zeros((n_groups, n_columns), dtype=np.int64)
    left[:, :n_outcomes] = weights
    thresholds = np.full_like(left, height)
    aliases = np.tile(np.arange(n_columns), (n_groups, 1))
    rows = np.arange(n_groups)
    closed: npt.NDArray[Any] = np.zeros_like(left, dtype=np.bool_)
    for _ in range(n_columns - 1):
        emptiest = np.where(closed, total + 1, left).argmin(axis=1)
        fullest = np.where(closed, -1, left).argmax(axis=1)
        held = np.minimum(left[rows, emptiest], height)
        thresholds[rows, emptiest] = held
        aliases[rows, emptiest] = fullest
        left[rows, fullest] -= height - held
        closed[rows, emptiest] = True
    return thresholds, aliases
