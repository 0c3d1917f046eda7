"""Stage 4: every row through its cell's channel. A stateless function of codes and random words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.rows.keys import unit_words

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray
    from clusterdp.channels.alias_sampling import RedrawSampler, TableSampler
    from clusterdp.channels.catalogue import Channel

# Rows worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_ROWS = 2**15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowRandomizer:
    """Pass 2 of every engine: a stateless function of a batch of rows.

    It holds everything a worker needs and nothing of the table, so batches may be run in any order,
    anywhere, and again: the same rows give the same result.

    Attributes:
        sampler: The channel as look-up tables.
        groups: The group of each cell, axes `[cell]`; None where every cell is its own group.
        n_outputs: How many different outputs a group has.
        decode: What each output counts as in every published column; axes
            `[column, group * output]`.
        aes_key: The key of the outcomes, from `ReleaseKey.for_response`.
    """

    sampler: RedrawSampler | TableSampler
    groups: IntArray | None
    n_outputs: int
    decode: FloatArray
    aes_key: bytes = field(repr=False)

    @classmethod
    def of(cls, channel: Channel, debiased: list[FloatArray], aes_key: bytes) -> RowRandomizer:
        """The randomizer of a channel; `debiased` is what its outputs count as, by column."""
        groups = channel.groups.ravel()
        every_cell = np.array_equal(groups, np.arange(len(groups)))
        decode = np.stack(debiased)
        return cls(
            sampler=channel.sampler(),
            groups=None if every_cell else groups,
            n_outputs=decode.shape[-1],
            decode=decode.reshape(len(decode), -1),
            aes_key=aes_key,
        )

    def __call__(self, units: pl.Series, cells: IntArray, categories: CodeArray) -> RandomizedRows:
        """Randomize a batch, given as ids, cell codes and category codes; axes `[row]`."""
        n_rows = len(units)
        responses = np.empty(n_rows, dtype=np.int32)
        debiased = np.empty((len(self.decode), n_rows))
        for start in range(0, n_rows, _CACHED_ROWS):
            part = slice(start, start + _CACHED_ROWS)
            groups = cells[part] if self.groups is None else self.groups[cells[part]]
            words = unit_words(units[part], self.aes_key)
            codes = self.sampler.draw(words, groups, categories[part])
            responses[part] = codes
            codes += groups * self.n_outputs
            for column, decode in enumerate(self.decode):
                debiased[column, part] = decode[codes]
        return RandomizedRows(responses=responses, debiased=debiased)


class RandomizedRows(NamedTuple):
    """What becomes of a batch: axes `[row]`, and `[column, row]`."""

    responses: npt.NDArray[np.int32]
    debiased: FloatArray
