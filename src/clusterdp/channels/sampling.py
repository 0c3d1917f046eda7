"""Channels as alias tables: any output of any cell is drawn from random words by one look-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.channels.base import KEEP_TOTAL, PRIOR_TOTAL, TABLE_TOTAL

if TYPE_CHECKING:
    import numpy.typing as npt

    from clusterdp._arrays import CodeArray, IntArray, WordArray


_TABLE_BITS = TABLE_TOTAL.bit_length() - 1
_PRIOR_BITS = PRIOR_TOTAL.bit_length() - 1
_TABLE_SHIFT = np.uint64(64 - _TABLE_BITS)
_PRIOR_SHIFT = np.uint64(64 - _PRIOR_BITS)
_KEEP_SHIFT = np.uint64(64 - (KEEP_TOTAL.bit_length() - 1))
_ALIAS_BITS = 16


class AliasTable:
    """Distributions in integers as alias tables: an outcome of any of them is drawn by one look-up.

    Weights of total 2^t are cut into 2^b columns of equal height, 2^b at least the number of
    outcomes. A column belongs to one outcome below its threshold and to another, its alias, above.
    Heights are integers, so the tables hold the probabilities exactly.

    Args:
        weights: The distributions; axes `[row, outcome]`.
        total_bits: t.
        fewest_bits: The least b.

    Attributes:
        columns: Each column's threshold, shifted by 16 bits, and its alias; axes `[row * column]`.
            One number, so that a draw reads memory once.
    """

    def __init__(self, weights: IntArray, total_bits: int, fewest_bits: int) -> None:
        self.column_bits = max(fewest_bits, (weights.shape[-1] - 1).bit_length())
        self.below_bits = total_bits - self.column_bits
        thresholds, aliases = _alias_tables(weights, self.column_bits, 2**total_bits)
        self.columns: IntArray = ((thresholds << _ALIAS_BITS) | aliases).ravel()

    def look_up(self, rows: IntArray, point: IntArray) -> CodeArray:
        """What each point of a row's table belongs to. Overwrites `point`."""
        column = point >> self.below_bits
        point &= 2**self.below_bits - 1  # now the height within the column
        place = rows << self.column_bits
        place |= column
        found: IntArray = self.columns[place]
        own = point < (found >> _ALIAS_BITS)
        found &= 2**_ALIAS_BITS - 1  # now the alias
        np.copyto(found, column, where=own)
        return found


class RedrawSampler:
    """A resampling channel: a row is kept when its 52 bits fall below a weight, else redrawn.

    Args:
        keep_weight: That weight.
        weights: The priors in integers; axes `[group, outcome]`.
    """

    def __init__(self, keep_weight: int, weights: IntArray) -> None:
        self.keep_weight, self.priors = keep_weight, AliasTable(weights, _PRIOR_BITS, 1)

    def draw(self, words: WordArray, groups: IntArray, outcomes: CodeArray) -> CodeArray:
        """Released outcome codes.

        Args:
            words: Two words per row, from `unit_words`; axes `[row, word]`.
            groups: The group of each row's cell; axes `[row]`.
            outcomes: True outcome codes; axes `[row]`.
        """
        found = self.priors.look_up(groups, (words[:, 1] >> _PRIOR_SHIFT).view(np.int64))
        kept = (words[:, 0] >> _KEEP_SHIFT) < np.uint64(self.keep_weight)
        np.copyto(found, outcomes, where=kept)
        return found


class TableSampler:
    """An optimal channel: a distribution for every true outcome of every channel.

    Args:
        tables: The channels in integers; axes `[channel, true, released]`.
    """

    def __init__(self, tables: IntArray) -> None:
        _, self.n_outcomes, n_outputs = tables.shape
        # At least 2 bits, so that a threshold and an alias fit into 63.
        self.outputs = AliasTable(tables.reshape(-1, n_outputs), _TABLE_BITS, 2)

    def draw(self, words: WordArray, groups: IntArray, outcomes: CodeArray) -> CodeArray:
        """Output codes; arguments as in `RedrawSampler.draw`."""
        rows = groups * self.n_outcomes + outcomes
        return self.outputs.look_up(rows, (words[:, 0] >> _TABLE_SHIFT).view(np.int64))


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
