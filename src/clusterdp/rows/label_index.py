"""Labels by their hashes: the time to find one does not grow with how many there are."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import CodeArray, WordArray

# No label has this code.
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelIndex:
    """A table of hashes, no two of which are alike.

    The first bits of a hash name its bucket. There are more buckets than labels, so that a label is
    hardly ever more than a step from the beginning of its bucket. A value that is no label is taken
    for one with probability 2^-64 for each label.

    Attributes:
        seed: What values are hashed with.
        shift: How many bits of a hash follow those that name its bucket.
        starts: Where each bucket begins among the hashes; axes `[bucket]`.
        hashes: The hashes of labels, sorted, and one that ends them; axes `[label + 1]`.
        codes: The codes of these labels; axes `[label + 1]`.
    """

    seed: int
    shift: np.uint64
    starts: CodeArray
    hashes: WordArray
    codes: CodeArray

    @classmethod
    def of(cls, labels: pl.Series) -> LabelIndex:
        """The index of distinct labels; a label's code is its place."""
        bits = (2 * len(labels)).bit_length()
        for seed in itertools.count():
            hashes = labels.hash(seed).to_numpy()
            order = np.argsort(hashes)
            in_order = hashes[order]
            if (in_order[1:] != in_order[:-1]).all():
                break
        shift = np.uint64(64 - bits)
        buckets = np.arange(2**bits, dtype=np.uint64) << shift
        return cls(
            seed=seed,
            shift=shift,
            starts=np.searchsorted(in_order, buckets).astype(np.int32),
            hashes=np.append(in_order, np.uint64(2**64 - 1)),
            codes=np.append(order, _NONE).astype(np.int32),
        )

    def find(self, column: pl.Series) -> CodeArray | None:
        """The code of each value; None if some value has none. Axes `[row]`."""
        if column.null_count():
            return None
        hashes = column.hash(self.seed).to_numpy()
        places = self.starts[hashes >> self.shift]
        behind = np.flatnonzero(self.hashes[places] < hashes)
        while behind.size:
            places[behind] += 1
            behind = behind[self.hashes[places[behind]] < hashes[behind]]
        codes = self.codes[places]
        is_known = (self.hashes[places] == hashes).all() and codes.min(initial=0) > _NONE
        return codes if is_known else None
