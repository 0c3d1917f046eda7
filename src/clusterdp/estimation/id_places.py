"""Where the units of a release stand in the analyst's table, by their ids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._named import column, unnamed
from clusterdp.estimation.coded_rows import parts_of
from clusterdp.published.row_counts import collect_rows, read_batches
from clusterdp.rows.labels import minus

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import CodeArray

# The place of a unit that the table does not have.
NOWHERE = -1
# Integers are looked up directly if a table of all from the lowest to the highest has at most so
# many entries for each id. A join takes several times as long, and more memory.
_MOST_ENTRIES = 4
# So many ids are joined at once: a join needs four times the memory of what it joins.
_IDS_TOGETHER = 2**24
# The columns of a join; no column of a user has such a name.
_ROW, _PLACE, _WORD = "__clusterdp_row", "__clusterdp_place", "__clusterdp_word"


def find_places(units: pl.LazyFrame, ids: pl.Series) -> CodeArray | None:
    """The place of each released unit in a list of ids; None if the list repeats one.

    Args:
        units: Released rows.
        ids: Ids, named and typed as those of the rows; null is the id of no unit.

    Returns:
        Places in the order of rows, `NOWHERE` for units that are not listed; axes `[unit]`.
    """
    own = units.select(column(ids.name))
    if _are_close(ids):
        lookup = IdLookup.of(unnamed(ids))
        return lookup.find(own) if lookup.is_complete else None
    seed = _telling_seed(ids.drop_nulls())
    return None if seed is None else _join(own, ids, seed)


def _are_close(ids: pl.Series) -> bool:
    """Whether ids are integers that a look-up table has room for."""
    low, high = ids.min(), ids.max()
    if not isinstance(low, int) or not isinstance(high, int):
        return False
    return high - low < _MOST_ENTRIES * len(ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IdLookup:
    """The places of all integers from the lowest id to the highest.

    Attributes:
        low: The lowest id.
        places: The place of each integer, and at the end that of all others; axes `[integer + 1]`.
        n_ids: How many ids there are.
    """

    low: int
    places: CodeArray
    n_ids: int

    @classmethod
    def of(cls, ids: pl.Series) -> IdLookup:
        """The places of ids that are close together; if one is repeated, of its last."""
        low, high = int(ids.min()), int(ids.max())  # type: ignore[arg-type]  # integers
        places = np.full(high - low + 2, NOWHERE, _place_type(ids))
        for rows in parts_of(len(ids)):
            part = ids[rows]
            there = np.flatnonzero(part.is_not_null().to_numpy())
            places[minus(part.drop_nulls().to_numpy(), low)] = rows.start + there
        return cls(low=low, places=places, n_ids=len(ids) - ids.null_count())

    @property
    def is_complete(self) -> bool:
        """Whether every id has a place of its own."""
        return int(np.count_nonzero(self.places != NOWHERE)) == self.n_ids

    def find(self, own: pl.LazyFrame) -> CodeArray:
        """The places of units, whose ids are the column of a query."""
        others = np.uint64(len(self.places) - 1)
        found = [np.empty(0, self.places.dtype)]
        for batch in read_batches(own):
            distances = minus(batch.to_series().to_numpy(), self.low).view(np.uint64)
            found.append(self.places[np.minimum(distances, others).view(np.int64)])
        return np.concatenate(found)


def _telling_seed(ids: pl.Series) -> int | None:
    """A seed by which no two ids have the same word; None if an id is repeated."""
    seed = 0
    while ids.to_frame().select(_word(ids, seed)).to_series().n_unique() < len(ids):
        if ids.n_unique() < len(ids):
            return None
        seed += 1
    return seed


def _word(ids: pl.Series, seed: int) -> pl.Expr:
    """What ids are joined by: text by a hash, in a fraction of the time and memory."""
    import polars as pl

    word = column(ids.name)
    return word.hash(seed) if ids.dtype == pl.String else word


def _join(own: pl.LazyFrame, ids: pl.Series, seed: int) -> CodeArray:
    """The places of units by a join; of many ids part by part.

    The words of ids tell them apart. So a unit that has the word of an id, and is another, is none
    of them.
    """
    import polars as pl

    word = _word(ids, seed).alias(_WORD)
    rows = own.with_row_index(_ROW).with_columns(word)
    listed = ids.to_frame().with_row_index(_PLACE).drop_nulls().select(_PLACE, word).lazy()
    n_parts = max(math.ceil(len(ids) / _IDS_TOGETHER), 1)
    part_of = pl.col(_WORD).hash() % n_parts
    places = np.full(collect_rows(own.select(pl.len())).item(), NOWHERE, _place_type(ids))
    for part in range(n_parts):
        chosen = [one if n_parts == 1 else one.filter(part_of == part) for one in (rows, listed)]
        for pairs in read_batches(chosen[0].join(chosen[1], on=_WORD, how="inner")):
            same = pairs.filter(ids[pairs[_PLACE]] == pairs[ids.name])
            places[same[_ROW].to_numpy()] = same[_PLACE].to_numpy()
    return places


def _place_type(ids: pl.Series) -> np.dtype[Any]:
    """As narrow as the places of ids and `NOWHERE` allow."""
    return np.min_scalar_type(NOWHERE - len(ids))
