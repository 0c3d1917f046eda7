"""Rows of several outcomes through the pipeline of one batch, without a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from clusterdp.rows.encoding import RowEncoder
from clusterdp.rows.randomizing import BatchRandomizer
from clusterdp.rows.value_codes import CellEncoder, ValueCodes
from clusterdp.spec.columns import Columns
from populations import make_layout

if TYPE_CHECKING:
    from clusterdp._arrays import WordArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.rows.keys import UnitIds


def encoder_of(space: Categories) -> RowEncoder:
    """Rows of one cluster, `market` 0, and the arms 0 and 1."""
    columns = Columns(unit="user", arm="treated", cluster="market", outcomes=space.declared.names)
    cells = CellEncoder(
        clusters=ValueCodes.from_column(pl.Series([0])),
        arms=ValueCodes.from_column(pl.Series([0, 1])),
    )
    return RowEncoder.for_spaces(columns, (space,), cells, clip=False)


def randomizer_of(space: Categories, mechanism: Mechanism, n_units: int) -> BatchRandomizer:
    """What randomizes rows of control, where no counts are published."""
    layout = make_layout([[n_units, 1]])
    channel = mechanism.settled_rows(space).design(layout, space, None)
    return BatchRandomizer.from_channels(encoder_of(space), [channel], layout)


def batch_of(outcomes: dict[str, object], n_units: int) -> pl.DataFrame:
    """A batch of control: units 0, 1, …, with the given outcomes."""
    return pl.select(
        user=pl.int_range(n_units),
        treated=pl.lit(0, pl.Int64),
        market=pl.lit(0, pl.Int64),
    ).with_columns(**{name: pl.lit(values) for name, values in outcomes.items()})


class WordGrid:
    """Stands for `unit_words`: units take every combination of words of different keys, once each.

    What is drawn with words of one key is then a function of one number; what is drawn with words
    of two keys is independent, exactly.

    Attributes:
        n_values: How many words each key has, evenly spread.
        places: The number of each key, in the order in which they are used.
    """

    def __init__(self, n_values: int, keys: tuple[bytes, ...]) -> None:
        self.n_values = n_values
        self.places: dict[bytes, int] = {}
        for key in keys:
            self.places.setdefault(key, len(self.places))

    def __call__(self, units: UnitIds, aes_key: bytes) -> WordArray:
        """The words of each unit; axes `[unit, word]`."""
        digits = units.ids.to_numpy() // self.n_values ** self.places[aes_key] % self.n_values
        step = 2**64 // self.n_values
        words = digits.astype(np.uint64) * np.uint64(step) + np.uint64(step // 2)
        return np.stack([words, words], axis=1)
