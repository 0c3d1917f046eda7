"""The ids of a batch as blocks of 16 bytes, made once for all keys that they are encrypted with."""

from __future__ import annotations

from functools import cached_property
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
_FIRST_BYTES = BLOCK_BYTES - _HEADER_BYTES
# Blocks that are made for all ids at once. Few ids have more than 56 bytes.
_MOST_BLOCKS = 4
# Texts worked on at a time, so that what is computed for them stays in the processor's cache.
_CACHED_TEXTS = 2**13


class IdBlocks(NamedTuple):
    """Ids, each as a row of blocks.

    Attributes:
        blocks: Header and beginning of each id, then what follows, padded with zeros; each has axes
            `[unit, word]`, two words to a block. Some first ones: an id may be as long as a book.
        lengths: How many blocks each id has; axes `[unit]`. None where all have one.
        text: The text of the ids, where they are text.
    """

    blocks: tuple[WordArray, ...]
    lengths: IntArray | None = None
    text: IdText | None = None

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
        """As many blocks as ids take, or the first ones."""
        text = IdText.of(ids)
        lengths = 1 + np.maximum(0, text.lengths - _FIRST_BYTES + BLOCK_BYTES - 1) // BLOCK_BYTES
        n_blocks = min(int(lengths.max(initial=1)), _MOST_BLOCKS)
        blocks = np.empty((n_blocks, len(ids), 2), dtype="<u8")
        for start in range(0, len(ids), _CACHED_TEXTS):
            part = text.part(units := slice(start, start + _CACHED_TEXTS))
            blocks[0, units, 0] = _STRING_KIND + part.lengths.astype(np.uint64)
            blocks[0, units, 1] = part.bytes_from(0, _FIRST_BYTES)[:, 0]
            for number in range(1, n_blocks):
                blocks[number, units] = _later_block(part, number)
        return cls(tuple(blocks), lengths, text)

    def part(self, units: slice) -> IdBlocks:
        """Those of some of the ids."""
        if self.lengths is None or self.text is None:
            return IdBlocks(tuple(block[units] for block in self.blocks))
        blocks = tuple(block[units] for block in self.blocks)
        return IdBlocks(blocks, self.lengths[units], self.text.part(units))

    def later(self, number: int, places: IntArray) -> WordArray:
        """A block after the first of ids that are text; axes `[place, word]`."""
        assert self.text is not None  # noqa: S101 - no other id has several blocks
        return _later_block(self.text.part(places), number)


def _later_block(text: IdText, number: int) -> WordArray:
    return text.bytes_from(_FIRST_BYTES + (number - 1) * BLOCK_BYTES, BLOCK_BYTES)


class UnitIds:
    """The ids of some units, integers or text, none of them missing where blocks are asked for.

    Attributes:
        ids: The ids.
    """

    def __init__(self, ids: pl.Series, made: IdBlocks | None = None) -> None:
        self.ids, self._made = ids, made

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, units: slice) -> UnitIds:
        """Some of the units. Their text has been made ready with that of the others."""
        return UnitIds(self.ids[units], None if self._texts is None else self.blocks(units))

    def blocks(self, units: slice) -> IdBlocks:
        """The blocks of some of the units."""
        if self._texts is not None:
            return self._texts.part(units)
        # Faster made than stored and read.
        return IdBlocks.of_integers(self._numbers[units])

    @cached_property
    def _texts(self) -> IdBlocks | None:
        import polars as pl

        if self.ids.dtype != pl.String:
            return None
        return IdBlocks.of_texts(self.ids) if self._made is None else self._made

    @cached_property
    def _numbers(self) -> IntArray:
        return self.ids.to_numpy()
