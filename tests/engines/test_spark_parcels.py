"""What Spark's workers send each other: nothing is lost on the way, and sums do not overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from clusterdp.engines.spark import _parcels as spark_parcels
from clusterdp.engines.spark._counting import Parts
from clusterdp.engines.spark._parcels import (
    RowPacker,
    opened,
    packed_numbers,
    to_batch,
    unpacked_rows,
)
from clusterdp.engines.spark._randomizing import order_rows

if TYPE_CHECKING:
    import pytest

KINDS = pa.schema([("c0", pa.int64()), ("c1", pa.string())])


def some_rows(n_rows: int, rng: np.random.Generator) -> pl.DataFrame:
    ids = rng.permutation(n_rows)
    return pl.DataFrame({"c0": ids, "c1": [f"né {one}" if one % 3 else None for one in ids]})


def test_rows_arrive_at_their_parts_however_they_are_packed(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_parcels, "_GATHERED_BYTES", 3000)
    monkeypatch.setattr(spark_parcels, "PARCEL_BYTES", 500)
    rows, packer = some_rows(1000, rng), RowPacker()
    sent: list[pa.RecordBatch] = []
    for batch in rows.iter_slices(70):
        sent += packer.add(batch, batch["c0"].to_numpy() % 4, KINDS)
    assert len(sent) > 10  # some were full before the end
    sent += packer.rest()
    assert not list(packer.rest())
    for part in range(4):
        own = [batch for batch in sent if batch.column(0)[0].as_py() == part]
        arrived = unpacked_rows(opened(iter(own)))
        assert arrived is not None
        assert arrived.schema == KINDS
        expected = rows.filter(pl.col("c0") % 4 == part).sort("c0")
        assert pl.DataFrame(arrived).sort("c0").equals(expected)
        in_order = order_rows("c0", ("c0", "c1"), None, iter(own))
        assert pl.DataFrame(pa.Table.from_batches(in_order)).equals(expected)


def test_how_parcels_are_cut_does_not_depend_on_what_rows_hold(rng: np.random.Generator) -> None:
    """Numbers of a fixed width: released outcomes have one."""
    parts = rng.integers(0, 5, 3000)
    sizes = []
    for numbers in (np.zeros(3000), rng.normal(size=3000)):
        rows = pl.DataFrame({"c0": np.arange(3000), "c1": numbers})
        kinds = pa.schema([("c0", pa.int64()), ("c1", pa.float64())])
        packer = RowPacker()
        sent = [*packer.add(rows, parts, kinds), *packer.rest()]
        sizes.append([(part, len(held)) for part, held in opened(iter(sent))])
    assert sizes[0] == sizes[1]


def test_numbers_arrive_at_their_parts(rng: np.random.Generator) -> None:
    numbers, parts = rng.integers(-(2**62), 2**62, 1000), rng.integers(0, 300, 1000)
    packed = packed_numbers(numbers, parts, 300)
    assert [part for part, _ in packed] == sorted(set(parts))
    for part, held in packed:
        assert np.array_equal(np.frombuffer(held, np.int64), numbers[parts == part])


def added(parts: Parts, *parcels: tuple[int, bytes]) -> dict[int, tuple[int, int]]:
    """What a part adds up to, by place: low and high halves."""
    batches = parts.add_up(iter([to_batch(parcels)]))
    columns = (batch.to_pydict() for batch in batches)
    return {
        place: (low, high)
        for one in columns
        for place, low, high in zip(one["place"], one["low"], one["high"], strict=True)
    }


def test_sums_outgrow_64_bits() -> None:
    parts = Parts(n_of_ids=1, n_places=10)
    largest = 2**63 - 1
    held = np.array([[-2, -1], [largest, -5]]).tobytes()
    sums = added(parts, *[(parts.n_all - 1, held)] * 7)
    assert {place: (high << 32) + low for place, (low, high) in sums.items()} == {
        -2: 7 * largest,
        -1: -35,
    }


def test_repeated_ids_are_counted_where_they_meet() -> None:
    parts = Parts(n_of_ids=2, n_places=10)
    words = [np.array(one, dtype=np.uint64).tobytes() for one in ([3, 9, 2**64 - 1], [9, 4, 9])]
    assert added(parts, *((1, one) for one in words)) == {parts.n_places: (2, 0)}
    assert added(parts, (0, words[0])) == {parts.n_places: (0, 0)}
