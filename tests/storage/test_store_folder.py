"""A release in an object store: claimed, uploaded, and published by its manifest or not at all."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.engines.local.table import LocalTable
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.storage.folder import CLAIM, MANIFEST, FileSum, LocalFolder
from clusterdp.storage.store import ObjectStore
from clusterdp.storage.store_folder import StoreFolder
from soak import s3
from store_releases import KEY, write_fixed

if TYPE_CHECKING:
    import polars as pl

    from clusterdp.releasing.prepare import OpenTable

pytestmark = pytest.mark.store

OTHER = ReleaseKey(b"o" * 32)
MECHANISMS = (cdp.optimal(epsilon=2, noise_scale=4),)


@pytest.fixture(autouse=True)
def _own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine stores meanwhile is where a test can look at it."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in (folder / "scratch").rglob("*")]


def prepared_of(table: pl.DataFrame) -> OpenTable:
    columns = Columns(
        unit="user", arm="treated", cluster="market", outcomes=("clicks",), kept=("secret",)
    )
    space = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
    return prepare(table, columns=columns, spaces=(space,))


def publish(table: pl.DataFrame, target: Any, key: ReleaseKey = KEY) -> None:
    write_fixed(prepared_of(table), MECHANISMS, target, key)


def in_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_bytes_as_on_a_disk_and_nothing_else(
    table: pl.DataFrame, bucket: s3.Bucket, tmp_path: Path
) -> None:
    publish(table, LocalFolder(tmp_path / "out"))
    publish(table, StoreFolder.at(f"{bucket.uri}/a/b"))
    assert bucket.read("a/b") == in_files(tmp_path / "out")
    assert bucket.names() == {f"a/b/{name}" for name in in_files(tmp_path / "out")}
    assert not left_behind(tmp_path)


def test_the_claim_comes_first_and_the_manifest_last_both_only_if_there_is_none(
    table: pl.DataFrame, bucket: s3.Bucket, store_server: s3.Server
) -> None:
    publish(table, StoreFolder.at(f"{bucket.uri}/out"))
    wrote = [one for one in store_server.requests(bucket) if one.method in {"PUT", "POST"}]
    names = [one.path.rpartition("/")[2] for one in wrote]
    assert names[0] == CLAIM
    assert names[-1] == MANIFEST
    assert names.count(MANIFEST) == 1
    assert {name for name, one in zip(names, wrote, strict=True) if one.only_new} == {
        CLAIM,
        MANIFEST,
    }
    published = bucket.read("out")
    assert CLAIM not in published
    # A claim tells runs apart, and is no part of what is published.
    assert KEY.claim() != OTHER.claim()
    assert not any(KEY.claim().encode() in content for content in published.values())


def test_what_no_manifest_names_stays_on_this_machine(
    table: pl.DataFrame, bucket: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a step of a release had forgotten true rows in the private folder."""
    honest = LocalTable.run

    def forgetful(own: LocalTable, asked: Any) -> Any:
        if asked.folder is not None:
            (Path(asked.folder) / ".sorting-more").mkdir()
            table.write_parquet(Path(asked.folder) / ".sorting-more" / "rows.parquet")
        return honest(own, asked)

    monkeypatch.setattr(LocalTable, "run", forgetful)
    publish(table, StoreFolder.at(f"{bucket.uri}/out"))
    assert not [name for name in bucket.names("out") if "/" in name]
    assert not [one for one in verify_folder(f"{bucket.uri}/out") if one.problem]


def test_a_second_release_finds_the_place_taken(table: pl.DataFrame, bucket: s3.Bucket) -> None:
    target = StoreFolder.at(f"{bucket.uri}/out")
    publish(table, target)
    before = bucket.read("out")
    with pytest.raises(cdp.OutputError, match="exists already"):
        target.check_free()
    with pytest.raises(cdp.OutputError, match="exists already"):
        publish(table, target, OTHER)
    assert bucket.read("out") == before


def test_a_place_with_something_in_it_is_left_alone(table: pl.DataFrame, bucket: s3.Bucket) -> None:
    bucket.put("out/notes.txt", b"mine")
    target = StoreFolder.at(f"{bucket.uri}/out")
    with pytest.raises(cdp.OutputError, match="is not empty; choose another folder"):
        target.check_free()
    with pytest.raises(cdp.OutputError, match="is not empty; choose another folder"):
        publish(table, target)
    assert bucket.read("out") == {"notes.txt": b"mine"}
    # Only whole names count.
    publish(table, StoreFolder.at(f"{bucket.uri}/ou"))


def test_one_place_has_one_owner(
    table: pl.DataFrame, bucket: s3.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a run is at work, another release is refused, and does not disturb the first."""
    first, second = (StoreFolder.at(f"{bucket.uri}/out") for _ in range(2))
    with suppress(KeyboardInterrupt), first.staged(OTHER.claim()):
        with pytest.raises(cdp.OutputError, match="another run is writing"):
            publish(table, second)
        # On another machine no lock is in the way.
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with pytest.raises(cdp.OutputError, match="another run is publishing at"):
            second.check_free()
        with pytest.raises(cdp.OutputError, match="another run is publishing at"):
            publish(table, second)
        assert bucket.read("out") == {CLAIM: OTHER.claim().encode()}
        second.check_free(OTHER.claim())
        raise KeyboardInterrupt
    assert not bucket.names("out")
    publish(table, second)


@pytest.mark.parametrize("claimed", [False, True])
def test_a_refused_table_leaves_the_place_free(
    claimed: bool, table: pl.DataFrame, bucket: s3.Bucket
) -> None:
    """Also that of a run which was killed before it uploaded anything."""
    if claimed:
        bucket.put(f"out/{CLAIM}", KEY.claim().encode())
    with pytest.raises(cdp.DataError, match="outside the allowed values"):
        publish(table.with_columns(clicks=9), StoreFolder.at(f"{bucket.uri}/out"))
    assert not bucket.names()
    publish(table, StoreFolder.at(f"{bucket.uri}/out"))


@pytest.mark.parametrize("failing", ["cells.parquet", "units.parquet", MANIFEST])
def test_an_upload_that_fails_is_no_release_and_is_finished_with_the_same_key(
    failing: str,
    table: pl.DataFrame,
    bucket: s3.Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(table, LocalFolder(tmp_path / "whole"))
    target = StoreFolder.at(f"{bucket.uri}/out")

    def cut(method: Any) -> Any:
        def attempt(store: ObjectStore, name: str, content: Any) -> Any:
            if name == failing:
                raise cdp.OutputError("the line was cut")
            return method(store, name, content)

        return attempt

    with monkeypatch.context() as faulty:
        for method in ("upload", "create"):
            faulty.setattr(ObjectStore, method, cut(getattr(ObjectStore, method)))
        with pytest.raises(cdp.OutputError, match="the line was cut"):
            publish(table, target)
    assert MANIFEST not in bucket.names("out")
    with pytest.raises(cdp.FormatError, match=f"is not a release: it has no {MANIFEST}"):
        cdp.read_release(str(target))
    with pytest.raises(cdp.OutputError, match="another run is publishing"):
        publish(table, target, OTHER)
    publish(table, target)
    assert bucket.read("out") == in_files(tmp_path / "whole")
    assert not left_behind(tmp_path)


def test_a_run_that_lost_its_claim_removes_what_it_uploaded(
    table: pl.DataFrame, bucket: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its release was closed from another machine while it uploaded: nobody else would."""
    target = StoreFolder.at(f"{bucket.uri}/out")
    upload = ObjectStore.upload

    def cleared(store: ObjectStore, name: str, path: Path) -> None:
        if name == "cells.parquet":
            store.remove(CLAIM)
        upload(store, name, path)

    monkeypatch.setattr(ObjectStore, "upload", cleared)
    with pytest.raises(cdp.OutputError, match="the claim of this run"):
        publish(table, target)
    assert not bucket.names("out")


def test_an_answer_that_was_lost_is_no_defeat(
    table: pl.DataFrame, bucket: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest arrived; when it is sent again, the store says that there is one."""
    create = ObjectStore.create

    def twice(store: ObjectStore, name: str, content: bytes) -> bool:
        if name == MANIFEST:
            create(store, name, content)
        return create(store, name, content)

    monkeypatch.setattr(ObjectStore, "create", twice)
    publish(table, StoreFolder.at(f"{bucket.uri}/out"))
    assert cdp.read_release(f"{bucket.uri}/out").layout.n_units == len(table)


def test_a_manifest_of_somebody_else_is_never_overwritten(
    table: pl.DataFrame, bucket: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody removed the claim by hand, and published in the meantime."""
    upload = ObjectStore.upload

    def overtaken(store: ObjectStore, name: str, path: Path) -> None:
        upload(store, name, path)
        bucket.put(f"out/{MANIFEST}", b"theirs")

    monkeypatch.setattr(ObjectStore, "upload", overtaken)
    with pytest.raises(cdp.OutputError, match="another run published"):
        publish(table, StoreFolder.at(f"{bucket.uri}/out"))
    assert bucket.read("out")[MANIFEST] == b"theirs"


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_drawn(
    table: pl.DataFrame, bucket: s3.Bucket, store_server: s3.Server
) -> None:
    careless = store_server.new_bucket(s3.CARELESS)
    with pytest.raises(cdp.OutputError, match="ignores conditional writes"):
        publish(table, StoreFolder.at(f"{careless.uri}/out"))
    assert not careless.names()


def test_a_claim_that_was_left_beside_a_release_does_no_harm(
    table: pl.DataFrame, bucket: s3.Bucket
) -> None:
    target = StoreFolder.at(f"{bucket.uri}/out")
    publish(table, target)
    bucket.put(f"out/{CLAIM}", KEY.claim().encode())
    with pytest.raises(cdp.OutputError, match="exists already"):
        publish(table, target)
    assert cdp.read_release(str(target)).layout.n_units == len(table)
    target.clear(KEY.claim())
    assert CLAIM not in bucket.names("out")


def test_large_files_go_up_in_parts_and_appear_whole(
    bucket: s3.Bucket, store_server: s3.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * 2**16)  # 16 MB
    monkeypatch.setattr("clusterdp.storage.store._PART_BYTES", 5 * 2**20)
    store = ObjectStore.open(bucket.uri, cdp.OutputError)
    store.upload("large", path)
    parts = [one for one in store_server.requests(bucket) if "partNumber" in one.query]
    assert len(parts) == 4
    assert store.sum("large") == FileSum.from_file(path)
    assert bucket.unfinished_uploads() == 0
