"""Ids of a new batch that earlier batches of its experiment have, where ids are public.

One person may have an id of another form elsewhere: 7, "7", "007" and "7.0" are one id here, and so
are "100000" and "1e+05", as some tools write it. So is a UUID in any case of letters, with hyphens
or without, and an e-mail address or the hexadecimal digits of a hash in any case. Ids are compared
by 128 bits of a public function of that form, so two different ids count as one in no table. Memory
holds 16 bytes for each row of the new batch; earlier ids are read a part at a time.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp._named import unnamed
from clusterdp._progress import no_progress
from clusterdp._text import counted
from clusterdp.errors import DataError, FormatError
from clusterdp.rows.keys import UnitIds, unit_words
from clusterdp.rows.value_codes import plain_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import polars as pl

    from clusterdp._arrays import WordArray
    from clusterdp._progress import RowsDone

_KEY = hashlib.sha256(b"clusterdp earlier ids").digest()
_HEX = "[0-9a-fA-F]"
_UUID = rf"^\{{?({_HEX}{{8}})-?({_HEX}{{4}})-?({_HEX}{{4}})-?({_HEX}{{4}})-?({_HEX}{{12}})\}}?$"
# Hashes of 160 bits or more, and e-mail addresses.
_ANY_CASE = rf"^(?:{_HEX}{{40,}}|[^@\s]+@[^@\s]+)$"
_NUMBER = r"^\+?(-?)0*([0-9]+)(?:\.0*)?$"
# With the sign that tools write and random text does not have: 12e45 may be any id.
_POWER = r"^-?[0-9](?:\.[0-9]+)?[eE]\+[0-9]{2}$"


class EarlierIds(NamedTuple):
    """The ids of a folder that a batch continues.

    Attributes:
        name: The folder.
        ids: Its ids, as a query with one column.
    """

    name: str
    ids: pl.LazyFrame

    def batches(self, progress: RowsDone = no_progress) -> Iterator[pl.Series]:
        """Its ids, a part at a time; `progress` is called with the rows of each.

        Raises:
            FormatError: If they cannot be read.
        """
        import polars as pl

        try:
            for batch in self.ids.collect_batches():
                yield batch.to_series()
                progress(len(batch))
        except (OSError, pl.exceptions.PolarsError) as error:
            kind = type(error).__name__
            raise FormatError(f"the ids of {self.name} cannot be read ({kind})") from None


class BatchIds:
    """Collects the ids of a new batch, and counts those that earlier ones have."""

    def __init__(self) -> None:
        self._runs: list[WordArray] = []

    def add(self, ids: pl.Series) -> None:
        """Take in some ids. Safe to call from several threads."""
        self._runs.append(_id_words(ids))

    def refuse_repeated(
        self, earlier: Sequence[EarlierIds], unit: str, progress: RowsDone = no_progress
    ) -> None:
        """Raise a DataError if an earlier folder has one of the ids, which are public.

        Args:
            earlier: The folders.
            unit: The column of ids, for the message.
            progress: Is called with the rows that were read.
        """
        found = {one.name: self.count_in(one.batches(progress)) for one in earlier}
        repeated = {name: n_ids for name, n_ids in found.items() if n_ids}
        listed = ", ".join(f"{counted(n_ids, 'id')} of {name}" for name, n_ids in repeated.items())
        if listed:
            raise DataError(
                f"column {unit!r} (unit) has {listed}; a batch has new units only. Leave out the "
                "rows of units that were released before, or publish without continues "
                "(--continues): the release then adds to what these units lost"
            )

    @cached_property
    def _words(self) -> tuple[WordArray, WordArray]:
        """The two words of each id, sorted by the first one; nothing is added after that."""
        words = np.concatenate([np.empty((0, 2), np.uint64), *self._runs])
        in_order = words[np.argsort(words[:, 0])]
        return np.ascontiguousarray(in_order[:, 0]), np.ascontiguousarray(in_order[:, 1])

    def count_in(self, earlier: Iterable[pl.Series]) -> int:
        """How many of the ids are among earlier ones."""
        first, second = self._words
        is_known = np.zeros(len(first), dtype=np.bool_)
        for ids in earlier:
            others = _id_words(ids)
            others = others[np.argsort(others[:, 0])]  # looked up in order: far fewer cache misses
            places = np.searchsorted(first, np.ascontiguousarray(others[:, 0]))
            while len(places):
                # As far as there are more, and their first words are equal.
                there = places < len(first)
                places, others = places[there], others[there]
                there = first[places] == others[:, 0]
                places, others = places[there], others[there]
                is_known[places[second[places] == others[:, 1]]] = True
                places = places + 1
        return int(is_known.sum())


def _id_words(ids: pl.Series) -> WordArray:
    """Two words for each id that is not missing, from its one form."""
    there = ids.drop_nulls()
    if there.is_empty():
        return np.empty((0, 2), np.uint64)
    return unit_words(UnitIds(_in_one_form(there)), _KEY)


def _in_one_form(ids: pl.Series) -> pl.Series:
    """Ids as text, the same however they are written."""
    import polars as pl

    plain = unnamed(plain_column(ids))
    if plain.dtype != pl.String:
        return plain.cast(pl.String)
    text = plain.str.strip_chars()
    if (text.str.len_bytes() > text.str.len_chars()).any():
        text = text.str.normalize("NFKC")
    is_uuid = text.str.contains(_UUID)
    is_power = text.str.contains(_POWER)
    if is_power.any():
        integers = text.filter(is_power).cast(pl.Float64).cast(pl.Int64, strict=False)
        written = integers.cast(pl.String).fill_null(text.filter(is_power))
        text = text.scatter(is_power.arg_true(), written)
    numbers = text.str.replace(_NUMBER, "${1}${2}")
    has_any_case = text.str.contains(_ANY_CASE)
    if has_any_case.any():
        numbers = numbers.str.to_lowercase().zip_with(has_any_case, numbers)
    if not is_uuid.any():
        return numbers
    uuids = text.str.replace(_UUID, "${1}${2}${3}${4}${5}").str.to_lowercase()
    return uuids.zip_with(is_uuid, numbers)
