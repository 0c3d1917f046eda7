"""Ids that are text, as bytes: taken from all ids at once, from any place on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import IntArray, WordArray

BLOCK_BYTES = 16
# Sixteen bytes that are moved together, wherever they stand.
BLOCK = np.dtype((np.void, BLOCK_BYTES))


class IdText(NamedTuple):
    """Ids one after another.

    Attributes:
        windows: The 16 bytes from every place on, padded with zeros in the end; axes `[place]`.
        starts: The place where each id begins; axes `[unit]`.
        lengths: How many bytes each has; axes `[unit]`.
    """

    windows: npt.NDArray[np.void]
    starts: IntArray
    lengths: IntArray

    @classmethod
    def of(cls, ids: pl.Series) -> IdText:
        """The text of some ids. Polars is called twice, however many there are."""
        text = ids.str.join("").item().encode()
        padded = text + bytes(BLOCK_BYTES)
        lengths = ids.str.len_bytes().to_numpy().astype(np.int64)
        return cls(
            windows=np.ndarray(len(text) + 1, dtype=BLOCK, buffer=padded, strides=(1,)),
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
        )

    def part(self, units: slice | IntArray) -> IdText:
        """Some of the ids."""
        return IdText(self.windows, self.starts[units], self.lengths[units])

    def bytes_from(self, first: int, most: int) -> WordArray:
        """Up to 16 bytes of each id, zero-padded; two words, axes `[unit, word]`."""
        places = np.minimum(self.starts + first, len(self.windows) - 1)
        taken: WordArray = self.windows[places].view("<u8")
        taken &= _PREFIX_MASKS[np.clip(self.lengths - first, 0, most)].view("<u8")
        return taken.reshape(-1, 2)


# Row k keeps the first k of 16 bytes.
_PREFIX_MASKS = (
    np.where(np.arange(BLOCK_BYTES) < np.arange(BLOCK_BYTES + 1)[:, np.newaxis], 0xFF, 0)
    .astype(np.uint8)
    .view(BLOCK)
    .ravel()
)
