"""Where the units of a release stand in the analyst's table, by their ids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

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
# The columns of a join.
_ROW, _PLACE = "row", "place"


def find_places(units: pl.LazyFrame, ids: pl.Series) -> CodeArray | None:
    """The place of each released unit in a list of ids; None if the list repeats one.

    Args:
        units: Released rows.
        ids: Ids, named and typed as those of the rows; null is the id of no unit.

    Returns:
        Places in the order of rows, `NOWHERE` for units that are not listed; axes `[unit]`.
    """
    own = units.select(ids.name)
    if _are_close(ids):
        lookup = IdLookup.of(ids)
        return lookup.find(own) if lookup.is_complete else None
    listed = ids.drop_nulls()
    return _join(own, ids) if listed.n_unique() == len(listed) else None


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


def _join(own: pl.LazyFrame, ids: pl.Series) -> CodeArray:
    """The places of units by a join; of many ids part by part, by a hash."""
    import polars as pl

    rows = own.with_row_index(_ROW)
    listed = pl.DataFrame({ids.name: ids}).with_row_index(_PLACE).drop_nulls().lazy()
    n_parts = max(math.ceil(len(ids) / _IDS_TOGETHER), 1)
    hashed = pl.col(ids.name).hash() % n_parts
    n_rows = collect_rows(own.select(pl.len())).item()
    places = np.full(n_rows, NOWHERE, _place_type(ids))
    for part in range(n_parts):
        chosen = [one if n_parts == 1 else one.filter(hashed == part) for one in (rows, listed)]
        pairs = chosen[0].join(chosen[1], on=ids.name, how="inner").select(_ROW, _PLACE)
        for batch in read_batches(pairs):
            places[batch[_ROW].to_numpy()] = batch[_PLACE].to_numpy()
    return places


def _place_type(ids: pl.Series) -> np.dtype[Any]:
    """As narrow as the places of ids and `NOWHERE` allow."""
    return np.min_scalar_type(NOWHERE - len(ids))
