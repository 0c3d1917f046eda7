"""The ids of a batch as blocks of 16 bytes, made once for all keys that they are encrypted with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.rows.id_text import BLOCK_BYTES, IdText

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import IntArray, WordArray

# The first 8 bytes of the first block: what kind of id follows, and how long it is. No encoding of
# an id is then a prefix of another, which is what makes CBC-MAC a pseudorandom function.
_HEADER_BYTES = 8
_INTEGER_KIND = 1 << 56
_STRING_KIND = 2 << 56
# Texts worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_TEXTS = 2**13


class IdBlocks(NamedTuple):
    """Ids, each as a row of blocks.

    Attributes:
        blocks: Header and beginning of each id, then what follows, padded with zeros; each has axes
            `[unit, word]`, two words to a block.
        lengths: How many blocks each id has; axes `[unit]`. None where all have one.
    """

    blocks: tuple[WordArray, ...]
    lengths: IntArray | None = None

    @classmethod
    def of_integers(cls, ids: IntArray) -> IdBlocks:
        """One block each, whatever type the integers have."""
        blocks = np.empty((len(ids), 2), dtype="<u8")
        blocks[:, 0] = _INTEGER_KIND + 8
        is_signed = ids.dtype.kind == "i"
        blocks[:, 1] = ids.astype("<i8").view("<u8") if is_signed else ids.astype(np.uint64)
        return cls((blocks,))

    @classmethod
    def of_texts(cls, ids: pl.Series) -> IdBlocks:
        """As many blocks as the longest id takes."""
        text, taken = IdText.of(ids), BLOCK_BYTES - _HEADER_BYTES
        lengths = 1 + np.maximum(0, text.lengths - taken + BLOCK_BYTES - 1) // BLOCK_BYTES
        blocks = np.empty((int(lengths.max(initial=1)), len(ids), 2), dtype="<u8")
        for start in range(0, len(ids), _CACHED_TEXTS):
            part = text.part(units := slice(start, start + _CACHED_TEXTS))
            blocks[0, units, 0] = _STRING_KIND + part.lengths.astype(np.uint64)
            blocks[0, units, 1] = part.bytes_from(0, taken)[:, 0]
            for number, following in enumerate(blocks[1:]):
                following[units] = part.bytes_from(taken + number * BLOCK_BYTES, BLOCK_BYTES)
        return cls(tuple(blocks), lengths)

    def part(self, units: slice) -> IdBlocks:
        """Those of some of the ids."""
        lengths = None if self.lengths is None else self.lengths[units]
        return IdBlocks(tuple(block[units] for block in self.blocks), lengths)


class UnitIds:
    """The ids of some units, integers or text, none of them missing where blocks are asked for.

    Attributes:
        ids: The ids.
    """

    def __init__(self, ids: pl.Series, texts: IdBlocks | None = None) -> None:
        self.ids, self._texts = ids, texts

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, units: slice) -> UnitIds:
        """Some of the units. Their text has been made ready with that of the others."""
        import polars as pl

        if self.ids.dtype != pl.String:
            return UnitIds(self.ids[units])
        return UnitIds(self.ids[units], self.blocks().part(units))

    def blocks(self) -> IdBlocks:
        """Their blocks. Those of integers are made faster than they are stored and read."""
        import polars as pl

        if self.ids.dtype != pl.String:
            return IdBlocks.of_integers(self.ids.to_numpy())
        if self._texts is None:
            self._texts = IdBlocks.of_texts(self.ids)
        return self._texts
