"""Stage 4: every row through its cell's channel. A stateless function of codes and random words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.mechanisms import KEEP_TOTAL, PRIOR_TOTAL
from clusterdp.randomness import unit_words

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp.arrays import CodeArray, FloatArray, IntArray, WordArray
    from clusterdp.channel import Channel

_PRIOR_BITS = PRIOR_TOTAL.bit_length() - 1
_KEEP_SHIFT = np.uint64(64 - (KEEP_TOTAL.bit_length() - 1))
_PRIOR_SHIFT = np.uint64(64 - _PRIOR_BITS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowSampler:
    """The channel as alias tables: any outcome of any group is drawn with one look-up.

    A prior of total 2^32 is cut into 2^b columns of equal height. A column belongs to one outcome
    below its threshold and to another, its alias, above. Heights are integers, so the tables hold
    the channel's probabilities exactly.

    Attributes:
        keep_weight: A row is kept when its 52 bits fall below this.
        column_bits: b, with 2^b at least the number of outcomes.
        thresholds: Axes `[group * column]`.
        aliases: Axes `[group * column]`.
    """

    keep_weight: int
    column_bits: int
    thresholds: npt.NDArray[np.uint32]
    aliases: npt.NDArray[np.uint16]

    @classmethod
    def of(cls, channel: Channel) -> RowSampler:
        """The tables of a channel."""
        column_bits = max(1, (len(channel.values) - 1).bit_length())
        thresholds, aliases = _alias_tables(channel.weights, column_bits)
        return cls(
            keep_weight=channel.keep_weight,
            column_bits=column_bits,
            thresholds=thresholds.astype(np.uint32).ravel(),
            aliases=aliases.astype(np.uint16).ravel(),
        )

    def draw(self, words: WordArray, groups: CodeArray, outcomes: CodeArray) -> CodeArray:
        """Released outcome codes.

        Args:
            words: Two words per row, from `unit_words`; axes `[row, word]`.
            groups: The group of each row's cell; axes `[row]`.
            outcomes: True outcome codes; axes `[row]`.
        """
        below_bits = _PRIOR_BITS - self.column_bits
        point = (words[:, 1] >> _PRIOR_SHIFT).astype(np.uint32)
        column = point >> np.uint32(below_bits)
        height = point & np.uint32(2**below_bits - 1)
        place = (groups.astype(np.int64) << self.column_bits) | column
        redrawn = np.where(height < self.thresholds[place], column, self.aliases[place])
        kept = (words[:, 0] >> _KEEP_SHIFT) < np.uint64(self.keep_weight)
        return np.where(kept, outcomes, redrawn)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowRandomizer:
    """Pass 2 of every engine: a stateless function of a batch of rows.

    It holds everything a worker needs and nothing of the table, so batches may be run in any order,
    anywhere, and again: the same rows give the same result.

    Attributes:
        sampler: The channel as look-up tables.
        groups: The group of each cell; axes `[cluster, arm]`.
        values: The outcome values; axes `[outcome]`.
        decode: What each released outcome counts as; axes `[group, released]`.
        aes_key: The key of this outcome, from `ReleaseKey.for_outcome`.
    """

    sampler: RowSampler
    groups: IntArray
    values: FloatArray
    decode: FloatArray
    aes_key: bytes = field(repr=False)

    @classmethod
    def of(cls, channel: Channel, aes_key: bytes) -> RowRandomizer:
        """The randomizer of a channel."""
        return cls(
            sampler=RowSampler.of(channel),
            groups=channel.groups,
            values=channel.values,
            decode=channel.decode(),
            aes_key=aes_key,
        )

    def __call__(
        self, units: pl.Series, clusters: CodeArray, arms: CodeArray, outcomes: CodeArray
    ) -> RandomizedRows:
        """Randomize a batch, given as ids and codes; axes `[row]`."""
        groups = self.groups[clusters, arms]
        codes = self.sampler.draw(unit_words(units, self.aes_key), groups, outcomes)
        return RandomizedRows(
            codes=codes, released=self.values[codes], debiased=self.decode[groups, codes]
        )


class RandomizedRows(NamedTuple):
    """What becomes of a batch; every array has axes `[row]`."""

    codes: CodeArray
    released: FloatArray
    debiased: FloatArray


def _alias_tables(weights: IntArray, column_bits: int) -> tuple[IntArray, IntArray]:
    """Walker's construction, in integers and for all groups at once.

    Each step finishes one column per group: the emptiest open one, topped up from the fullest.

    Returns:
        `(thresholds, aliases)`; axes `[group, column]`.
    """
    n_groups, n_outcomes = weights.shape
    n_columns, height = 2**column_bits, PRIOR_TOTAL >> column_bits
    left = np.zeros((n_groups, n_columns), dtype=np.int64)
    left[:, :n_outcomes] = weights
    thresholds = np.full_like(left, height)
    aliases = np.tile(np.arange(n_columns), (n_groups, 1))
    rows = np.arange(n_groups)
    closed: npt.NDArray[Any] = np.zeros_like(left, dtype=np.bool_)
    for _ in range(n_columns - 1):
        emptiest = np.where(closed, PRIOR_TOTAL + 1, left).argmin(axis=1)
        fullest = np.where(closed, -1, left).argmax(axis=1)
        held = np.minimum(left[rows, emptiest], height)
        thresholds[rows, emptiest] = held
        aliases[rows, emptiest] = fullest
        left[rows, fullest] -= height - held
        closed[rows, emptiest] = True
    return thresholds, aliases
