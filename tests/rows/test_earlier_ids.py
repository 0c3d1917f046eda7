"""Ids of a new batch that earlier ones have, in every form in which they are written."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from clusterdp.errors import DataError, FormatError
from clusterdp.rows import earlier_ids
from clusterdp.rows.earlier_ids import BatchIds, EarlierIds

if TYPE_CHECKING:
    from pathlib import Path

UUIDS = [str(uuid.UUID(int=number << 100)) for number in range(1, 5)]
FORMS = {
    "integers": pl.Series([7, 8, -9, 10], dtype=pl.Int64),
    "short integers": pl.Series([7, 8, -9, 10], dtype=pl.Int8),
    "text": pl.Series(["7", "8", "-9", "10"]),
    "with zeros": pl.Series(["007", "08", "-09", "0010"]),
    "of floats": pl.Series(["7.0", "8.", "-9.00", "10.0"]),
    "with spaces": pl.Series([" 7", "8 ", "\u00a0-9", "\t10"]),
    "with signs": pl.Series(["+7", "+8", "-9", "+10"]),
    "wide": pl.Series(["７", "８", "-９", "１０"]),
    "categories": pl.Series(["7", "8", "-9", "10"], dtype=pl.Categorical()),
    "an enum": pl.Series(["7", "8", "-9", "10"], dtype=pl.Enum(["10", "-9", "8", "7"])),
}
UUID_FORMS = {
    "lower": pl.Series(UUIDS),
    "upper": pl.Series([one.upper() for one in UUIDS]),
    "without hyphens": pl.Series([one.replace("-", "") for one in UUIDS]),
    "in braces": pl.Series([f"{{{one.upper()}}}" for one in UUIDS]),
}
HASHES = [hashlib.sha256(bytes([number])).hexdigest() for number in range(4)]
MAILS = ["ann@shop.org", "bo.li@shop.org", "7@shop.org", "ö@shop.org"]
HASH_FORMS = {
    "lower": pl.Series(HASHES),
    "upper": pl.Series([one.upper() for one in HASHES]),
    "with spaces": pl.Series([f" {one} " for one in HASHES]),
}
MAIL_FORMS = {
    "lower": pl.Series(MAILS),
    "upper": pl.Series([one.upper() for one in MAILS]),
    "title": pl.Series([one.title() for one in MAILS]),
}


def n_repeated(own: pl.Series, *earlier: pl.Series) -> int:
    ids = BatchIds()
    for start in range(0, len(own), 3):
        ids.add(own[start : start + 3])
    return ids.count_in(earlier)


@pytest.mark.parametrize(
    "forms",
    [FORMS, UUID_FORMS, HASH_FORMS, MAIL_FORMS],
    ids=["numbers", "UUIDs", "hashes", "addresses"],
)
def test_an_id_is_the_same_in_every_form(forms: dict[str, pl.Series]) -> None:
    for own in forms.values():
        for other in forms.values():
            assert n_repeated(own, other) == 4
            assert n_repeated(own, other.head(1)) == 1
            assert n_repeated(own.head(2), other.tail(2)) == 0


@pytest.mark.parametrize(
    "ids", [["a", "A"], ["x1", "x01"], ["1e5", "100000"], ["7", "70"], ["7.5", "7"], ["", "0"]]
)
def test_ids_that_differ_stay_apart(ids: list[str]) -> None:
    """Letters of other ids have a case, and zeros within them mean something."""
    one, other = ids
    assert n_repeated(pl.Series([one]), pl.Series([other])) == 0
    assert n_repeated(pl.Series([one, other]), pl.Series([other])) == 1


def test_powers_of_ten_are_numbers() -> None:
    """Some tools write 100000 as 1e+05, and the ids of the whole column are then text."""
    written = pl.Series(["1e+05", "-2.5E+06", "3e+30", "7"])
    assert n_repeated(written, pl.Series([100_000, -2_500_000, 7])) == 3
    assert n_repeated(written, pl.Series([3, 2_500_000])) == 0
    assert n_repeated(pl.Series(["12e45", "1e05"]), pl.Series(["100000", "120e44"])) == 0


def test_counts_are_exact(rng: np.random.Generator) -> None:
    for size in (0, 1, 10, 3000):
        own = rng.choice(10_000, size, replace=False)
        earlier = [rng.choice(10_000, 2000, replace=False) for _ in range(3)]
        expected = len(set(own.tolist()) & set(np.concatenate(earlier).tolist()))
        assert n_repeated(pl.Series(own), *map(pl.Series, earlier)) == expected
        texts = [pl.Series(one).cast(pl.String) for one in earlier]
        assert n_repeated(pl.Series(own).cast(pl.String), *texts) == expected


def test_hashes_that_share_their_first_half_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As unlikely as it is: the other half decides, for all that share the first."""

    def halves(ids: pl.Series) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
        numbers = ids.to_numpy().astype(np.uint64)
        return np.stack([numbers // np.uint64(10), numbers], axis=1)

    monkeypatch.setattr(earlier_ids, "_id_words", halves)
    own = pl.Series([11, 12, 13, 14, 25, 31])
    assert n_repeated(own, pl.Series([13, 14, 15, 26, 39, 99])) == 2
    assert n_repeated(own, pl.Series([10, 24, 40])) == 0


def test_a_missing_id_is_nobody() -> None:
    own = pl.Series([None, 1, 2], dtype=pl.Int64)
    assert n_repeated(own, pl.Series([None, 2], dtype=pl.Int64)) == 1


def test_the_folders_are_named_with_how_many_ids() -> None:
    ids = BatchIds()
    ids.add(pl.Series([1, 2, 3, 4]))
    folders = [
        EarlierIds(name, pl.LazyFrame({"user": numbers}))
        for name, numbers in {"week1": [1, 2, 9], "week2": [8], "week3": [4]}.items()
    ]
    done: list[int] = []
    with pytest.raises(DataError, match="has 2 ids of week1, 1 id of week3; a batch has new units"):
        ids.refuse_repeated(folders, "user", done.append)
    assert sum(done) == 5
    ids.refuse_repeated(folders[1:2], "user")


def test_ids_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    damaged = tmp_path / "units.parquet"
    damaged.write_bytes(b"PAR1 nothing PAR1")
    ids = BatchIds()
    ids.add(pl.Series([1]))
    with pytest.raises(FormatError, match="the ids of week1 cannot be read"):
        ids.refuse_repeated([EarlierIds("week1", pl.scan_parquet(damaged))], "user")
