"""A release into a store that a ledger pays for: spent from the first visible byte, and resumed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release, run
from clusterdp.ledger.ledger import Ledger
from clusterdp.ledger.reservation import Reservation
from clusterdp.published.verification import verify_folder
from clusterdp.storage.folder import CLAIM, MANIFEST, PARTIAL_SUFFIX
from clusterdp.storage.store import ObjectStore
from clusterdp.storage.store_folder import StoreFolder

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from soak.s3 import Bucket

pytestmark = pytest.mark.store


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(str(tmp_path / "budget.db"), 4)


def spend(source: Path, out: str, ledger: Ledger) -> Result:
    paid = ("--ledger", ledger, "--population", "us", "--new-population")
    return release(source, out, *paid)


def status(ledger: Ledger) -> list[str]:
    return [one.status for one in ledger.releases()]


def resume(ledger: Ledger, *options: object) -> Result:
    (record,) = ledger.releases()
    return run("release", "--resume", record.release_id, "--ledger", ledger, *options)


def failing(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The store is out of reach from some upload on."""
    upload, read = ObjectStore.upload, ObjectStore.read
    cut: list[bool] = []

    def attempt(store: ObjectStore, name: str, path: Path) -> None:
        if name in names:
            cut.append(True)
            raise cdp.OutputError(f"{store} cannot be reached")
        upload(store, name, path)

    def asked(store: ObjectStore, name: str) -> Any:
        if cut:
            raise cdp.OutputError(f"{store} cannot be reached")
        return read(store, name)

    monkeypatch.setattr(ObjectStore, "upload", attempt)
    monkeypatch.setattr(ObjectStore, "read", asked)


def interrupted(reservation: Reservation, place: str) -> None:
    raise KeyboardInterrupt


def test_what_is_visible_is_spent_and_the_release_is_finished(
    source: Path, bucket: Bucket, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = f"{bucket.uri}/out"
    with monkeypatch.context() as faulty:
        failing(faulty, "units.parquet")
        told = spend(source, out, ledger)
    hint = "cannot be reached The budget stays reserved. Resume with: clusterdp release"
    assert told.exit_code == 2
    assert hint in " ".join(told.stderr.split())
    assert status(ledger) == ["drawn"]
    assert {CLAIM, "cells.parquet"} <= bucket.names("out")
    assert MANIFEST not in bucket.names("out")
    visible = bucket.read("out")["cells.parquet"]
    cancelled = run("ledger", "cancel", ledger, ledger.releases()[0].release_id)
    assert "has drawn noise" in cancelled.stderr
    # Nobody else gets the place, and its owner gets it back.
    assert_refused(release(source, out), "another run is publishing at")
    done = resume(ledger)
    assert done.exit_code == 0, done.output
    assert status(ledger) == ["committed"]
    assert bucket.read("out")["cells.parquet"] == visible
    assert CLAIM not in bucket.names("out")
    assert not [one for one in verify_folder(out) if one.problem]


def test_who_loses_a_place_publishes_elsewhere(
    source: Path, bucket: Bucket, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another owner claims the place between the first look at it and the claim."""
    reserve = Ledger.reserve

    def overtaken(own: Ledger, *arguments: Any, **options: Any) -> Reservation:
        bucket.put(f"out/{CLAIM}", b"theirs")
        return reserve(own, *arguments, **options)

    with monkeypatch.context() as racing:
        racing.setattr(Ledger, "reserve", overtaken)
        told = spend(source, f"{bucket.uri}/out", ledger)
    shown = " ".join(told.stderr.split())
    assert re.search("another run is publishing at .* The budget stays reserved", shown)
    assert bucket.names("out") == {CLAIM}
    assert status(ledger) == ["reserved"]
    assert_refused(resume(ledger), "another run is publishing at")
    done = resume(ledger, "--out", f"{bucket.uri}/elsewhere")
    assert done.exit_code == 0, done.output
    assert status(ledger) == ["committed"]


def test_closing_removes_what_was_uploaded(
    source: Path, bucket: Bucket, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as faulty:
        faulty.setattr(ObjectStore, "create", only_claims)
        spend(source, f"{bucket.uri}/out", ledger)
    assert status(ledger) == ["drawn"]
    assert {CLAIM, "units.parquet"} < bucket.names("out")
    (record,) = ledger.releases()
    bucket.put("out/theirs", b"somebody else's")
    bucket.put(f"other/{CLAIM}", b"somebody else's")
    assert ledger.close(record.release_id).ended == ledger.releases()[0].ended
    assert bucket.names("out") == set()
    assert bucket.names("other") == {CLAIM}


def only_claims(store: ObjectStore, name: str, content: bytes) -> bool:
    """Creates claims, and fails at the manifest."""
    if name != CLAIM:
        raise cdp.OutputError("the store went away")
    return HONEST(store, name, content)


HONEST = ObjectStore.create


def test_a_release_that_was_published_and_not_recorded_is_recorded(
    source: Path, bucket: Bucket, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as faulty:
        faulty.setattr(Reservation, "commit", interrupted)
        spend(source, f"{bucket.uri}/out", ledger)
    assert status(ledger) == ["drawn"]
    before = bucket.read("out")
    # What a kill at the last moment leaves, there and here.
    (record,) = ledger.releases()
    bucket.put(f"out/{CLAIM}", record.content["claim"].encode())
    working = StoreFolder.at(f"{bucket.uri}/out").working
    left = working.with_name(f".{working.name}{PARTIAL_SUFFIX}")
    left.mkdir()
    (left / "units.parquet").touch()
    assert resume(ledger).exit_code == 0
    assert status(ledger) == ["committed"]
    assert bucket.read("out") == before
    assert not left.exists()


def test_closing_a_release_finds_it_in_the_store(
    source: Path, bucket: Bucket, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as faulty:
        faulty.setattr(Reservation, "commit", interrupted)
        spend(source, f"{bucket.uri}/out", ledger)
    (record,) = ledger.releases()
    assert run("ledger", "close", ledger, record.release_id).exit_code == 0
    assert status(ledger) == ["committed"]


def test_closing_a_release_of_a_store_that_cannot_be_seen(
    source: Path, bucket: Bucket, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as faulty:
        faulty.setattr(Reservation, "commit", interrupted)
        spend(source, f"{bucket.uri}/out", ledger)
    (record,) = ledger.releases()
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert run("ledger", "close", ledger, record.release_id).exit_code == 0
    assert status(ledger) == ["closed"]
