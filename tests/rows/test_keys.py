from __future__ import annotations

import copy
import multiprocessing
import pickle
import tracemalloc

import numpy as np
import polars as pl
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.rows.keys import (
    CLUSTERS_KEY,
    KeyRing,
    ReleaseKey,
    UnitIds,
    response_key,
    rounding_key,
    unit_words,
)

KEY = bytes(range(32))


def cbc_mac(kind: int, payload: bytes) -> bytes:
    """The same function by the textbook: the last block of AES-CBC over header and id."""
    message = (kind << 56 | len(payload)).to_bytes(8, "little") + payload
    message += bytes(-len(message) % 16)
    encryptor = Cipher(algorithms.AES(KEY), modes.CBC(bytes(16))).encryptor()
    return encryptor.update(message)[-16:]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_integers_against_the_textbook(ids: list[int]) -> None:
    words = unit_words(UnitIds(pl.Series(ids, dtype=pl.Int64)), KEY)
    expected = [cbc_mac(1, number.to_bytes(8, "little", signed=True)) for number in ids]
    assert [row.tobytes() for row in words] == expected


@given(st.lists(st.text(max_size=70) | st.text("aé", max_size=300), min_size=1, max_size=20))
def test_strings_against_the_textbook(ids: list[str]) -> None:
    words = unit_words(UnitIds(pl.Series(ids)), KEY)
    assert [row.tobytes() for row in words] == [cbc_mac(2, text.encode()) for text in ids]


def test_ids_that_pilot_alike_get_different_randomness() -> None:
    strings = ["", "\0", "\0\0", "a", "a\0", "1", "01", "é", "e\u0301", "x" * 8, "x" * 9]
    strings += ["x" * 23, "x" * 24, "x" * 25, "x" * 40, "x" * 41]
    words = {row.tobytes() for row in unit_words(UnitIds(pl.Series(strings)), KEY)}
    assert len(words) == len(strings)
    assert unit_words(UnitIds(pl.Series([1])), KEY).tobytes() not in words


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt16, pl.Int32, pl.UInt64])
def test_the_width_of_an_integer_does_not_matter(dtype: type[pl.DataType]) -> None:
    wide = unit_words(UnitIds(pl.Series([0, 1, 100])), KEY)
    np.testing.assert_array_equal(
        unit_words(UnitIds(pl.Series([0, 1, 100], dtype=dtype)), KEY), wide
    )


def test_a_units_randomness_does_not_depend_on_its_batch(rng: np.random.Generator) -> None:
    ids = pl.Series([f"user-{number}" * int(1 + number % 5) for number in range(1000)])
    whole = unit_words(UnitIds(ids), KEY)
    order = rng.permutation(1000)
    np.testing.assert_array_equal(unit_words(UnitIds(ids.gather(order)), KEY), whole[order])
    slices = [slice(start, start + 77) for start in range(0, 1000, 77)]
    parts = [unit_words(UnitIds(ids[each]), KEY) for each in slices]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    together = UnitIds(ids)
    parts = [unit_words(together.part(each), KEY) for each in slices]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_one_very_long_id_takes_little_memory() -> None:
    """Among many short ones, whose blocks are not made for its sake."""
    ids = [*(f"u{number}" for number in range(20_000)), "x" * 200_003]
    tracemalloc.start()
    try:
        words = unit_words(UnitIds(pl.Series(ids)), KEY)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [words[place].tobytes() for place in (0, -1)] == [
        cbc_mac(2, ids[place].encode()) for place in (0, -1)
    ]
    assert peak < 20e6


def test_outcomes_and_keys_are_separated() -> None:
    key, clicks = ReleaseKey.from_system(), response_key(("clicks",))
    assert KeyRing(key)[clicks] == KeyRing(key)[clicks]
    assert KeyRing(key)[clicks] != KeyRing(key)[response_key(("sales",))]
    assert KeyRing(key)[clicks] != KeyRing(ReleaseKey.from_system())[clicks]


def test_every_purpose_of_an_outcome_has_a_key_of_its_own() -> None:
    """Words for rounding and for the channel's draw must have nothing in common."""
    ring = KeyRing(ReleaseKey.from_system())
    names = [
        response_key(("spend",)),
        response_key(("spend", "visit")),
        response_key(("visit", "spend")),
        rounding_key("spend", "rows"),
        rounding_key("spend", "counts"),
        rounding_key("visit", "rows"),
        CLUSTERS_KEY,
    ]
    assert len({ring[name] for name in names}) == len(names)


def test_rows_of_another_attempt_have_other_keys_and_counts_keep_theirs() -> None:
    key = ReleaseKey.from_system()
    first, second = KeyRing(key), KeyRing(key, key.for_attempt(2))
    kept = [rounding_key("spend", "counts"), CLUSTERS_KEY]
    other = [rounding_key("spend", "rows"), response_key(("spend",))]
    assert [first[name] == second[name] for name in (*kept, *other)] == [True, True, False, False]


def test_a_ring_of_keys_is_neither_shown_nor_sent() -> None:
    ring = KeyRing(ReleaseKey(b"0123456789abcdef0123456789abcdef"))
    assert repr(ring[CLUSTERS_KEY]) not in f"{ring} {ring!r}"
    with pytest.raises(TypeError, match="secret"):
        pickle.dumps(ring)


def test_a_key_is_not_shown() -> None:
    secret = b"0123456789abcdef0123456789abcdef"
    for shown in (repr(ReleaseKey(secret)), str(ReleaseKey(secret)), f"{ReleaseKey(secret)}"):
        assert "0123" not in shown
        assert "3031" not in shown


def _key_into(queue: multiprocessing.Queue[bytes]) -> None:
    queue.put(KeyRing(ReleaseKey.from_system())[CLUSTERS_KEY])


def test_a_forked_child_makes_another_key() -> None:
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[bytes] = context.Queue()
    children = [context.Process(target=_key_into, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    keys = {queue.get(timeout=60) for _ in children}
    keys.add(KeyRing(ReleaseKey.from_system())[CLUSTERS_KEY])
    for child in children:
        child.join()
    assert len(keys) == 3


@pytest.mark.parametrize("smuggle", [pickle.dumps, copy.deepcopy])
def test_a_key_cannot_be_carried_off_by_accident(smuggle: object) -> None:
    with pytest.raises(TypeError, match="secret"):
        smuggle(ReleaseKey.from_system())  # type: ignore[operator]
