"""Stage 4: every row through its cell's channel. A stateless function of codes and random words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clusterdp.rows.keys import unit_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from clusterdp._arrays import CodeArray, FloatArray, IntArray
    from clusterdp.channels.alias_sampling import RedrawSampler, TableSampler
    from clusterdp.channels.catalogue import Channel
    from clusterdp.rows.unit_ids import UnitIds

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
        decodings: What each output of each group counts as, for every published column; axes
            `[group * output]`.
        aes_key: The key of the outcomes, from `ReleaseKey.for_response`.
    """

    sampler: RedrawSampler | TableSampler
    groups: IntArray | None
    n_outputs: int
    decodings: tuple[pl.Series, ...]
    aes_key: bytes = field(repr=False)

    @classmethod
    def of(cls, channel: Channel, debiased: list[FloatArray], aes_key: bytes) -> RowRandomizer:
        """The randomizer of a channel; `debiased` is what its outputs count as, by column."""
        import polars as pl

        groups = channel.groups.ravel()
        every_cell = np.array_equal(groups, np.arange(len(groups)))
        return cls(
            sampler=channel.sampler(),
            groups=None if every_cell else groups,
            n_outputs=debiased[0].shape[-1],
            decodings=tuple(pl.Series(each.ravel()) for each in debiased),
            aes_key=aes_key,
        )

    @property
    def n_places(self) -> int:
        """How many responses all groups have together."""
        return len(self.decodings[0])

    def __call__(self, units: UnitIds, cells: IntArray, categories: CodeArray) -> CodeArray:
        """Randomize a batch, given as ids, cell codes and category codes; axes `[row]`.

        Returns:
            The place of each row's response among those of all groups, `group * output`, in the
            type of fewest bytes; axes `[row]`.
        """
        n_rows = len(units)
        places = np.empty(n_rows, dtype=np.min_scalar_type(self.n_places - 1))
        for start in range(0, n_rows, _CACHED_ROWS):
            part = slice(start, start + _CACHED_ROWS)
            groups = cells[part] if self.groups is None else self.groups[cells[part]]
            words = unit_words(units.part(part), self.aes_key)
            codes = self.sampler.draw(words, groups, categories[part])
            codes += groups * self.n_outputs
            places[part] = codes
        return places

    def published(self, response: str, debiased: Sequence[str]) -> list[pl.Expr]:
        """The columns that are published, from one that holds the places of responses.

        Args:
            response: What that column is called, and the one of responses will be.
            debiased: What the other columns will be called.
        """
        import polars as pl

        place = pl.col(response)
        counts_as = (pl.lit(decoding).gather(place) for decoding in self.decodings)
        values = (each.alias(name) for name, each in zip(debiased, counts_as, strict=True))
        return [place.cast(pl.Int32) % self.n_outputs, *values]
