"""Channels as alias tables: any output of any cell is drawn from random words by one look-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.channels.base import KEEP_TOTAL, PRIOR_TOTAL, TABLE_TOTAL

if TYPE_CHECKING:
    import numpy.typing as npt

    from clusterdp._arrays import CodeArray, IntArray, WordArray


_TABLE_BITS = TABLE_TOTAL.bit_length() - 1
_TABLE_SHIFT = np.uint64(64 - _TABLE_BITS)
_PRIOR_BITS = PRIOR_TOTAL.bit_length() - 1
_ALIAS_BITS = 16
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
    def of(cls, keep_weight: int, weights: IntArray) -> RedrawSampler:
        """The tables of a channel, from its priors in integers; axes `[group, outcome]`."""
        column_bits = max(1, (weights.shape[-1] - 1).bit_length())
        return cls(
            keep_weight=keep_weight,
            column_bits=column_bits,
            columns=_alias_columns(weights, column_bits, _PRIOR_BITS),
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
    """An optimal channel as alias tables, one for every true outcome of every channel.

    Attributes:
        n_outcomes: K.
        column_bits: b, with 2^b at least the number of outputs.
        columns: As in `RedrawSampler`; axes `[group * true * column]`.
    """

    n_outcomes: int
    column_bits: int
    columns: IntArray

    @classmethod
    def of(cls, tables: IntArray) -> TableSampler:
        """The tables of channels in integers; axes `[channel, true, released]`."""
        _, n_outcomes, n_outputs = tables.shape
        # At least 2 bits, so that a threshold and an alias fit into 63.
        column_bits = max(2, (n_outputs - 1).bit_length())
        weights = tables.reshape(-1, n_outputs)
        return cls(
            n_outcomes=n_outcomes,
            column_bits=column_bits,
            columns=_alias_columns(weights, column_bits, _TABLE_BITS),
        )

    def draw(self, words: WordArray, groups: IntArray, outcomes: CodeArray) -> CodeArray:
        """Output codes; arguments as in `RedrawSampler.draw`."""
        point = (words[:, 0] >> _TABLE_SHIFT).view(np.int64)
        rows = groups * self.n_outcomes + outcomes
        return _look_up(self.columns, rows, point, self.column_bits, _TABLE_BITS)


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
