"""Stage 4: every row through its cell's channel. A stateless function of codes and random words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

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
        values: The outcome values as they are released, axes `[outcome]`; None for an optimal
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
    def of(cls, channel: Channel, aes_key: bytes) -> RowRandomizer:
        """The randomizer of a channel."""
        groups = channel.groups.ravel()
        every_cell = np.array_equal(groups, np.arange(len(groups)))
        decode = channel.decode()
        return cls(
            sampler=channel.sampler(),
            groups=None if every_cell else groups,
            values=channel.released(),
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
