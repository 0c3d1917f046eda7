"""Releases that an owner gives up, also while a run is at work on them."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from cli_runs import assert_refused, release, run
from clusterdp.errors import DataError
from clusterdp.ledger import _store
from clusterdp.ledger.ledger import Ledger
from clusterdp.ledger.reservation import Reservation
from clusterdp.releasing import stages
from clusterdp.releasing import targets as publishing
from clusterdp.storage.folder import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

    from clusterdp.ledger.history import ReleaseRecord

# Steps of the passes: rows are read, and in one pass randomized; noise is drawn.
READING, DRAWING = "count_and_draw", "draw_together"


@pytest.fixture
def where(tmp_path: Path) -> Path:
    path = tmp_path / "budget.db"
    assert run("ledger", "init", path, "--cap-epsilon", 4).exit_code == 0
    return path


def spend(source: Path, where: Path, *options: object) -> Result:
    """Release the first outcome of a population."""
    paid = ("--ledger", where, "--population", "us", "--new-population")
    return release(source, where.with_name("out"), *paid, *options)


def only(where: Path) -> ReleaseRecord:
    (record,) = Ledger(str(where)).releases()
    return record


def before(monkeypatch: pytest.MonkeyPatch, name: str, action: Callable[..., None]) -> None:
    """Let something happen before noise is drawn, or before a function of `publishing`."""
    owner = stages if name in {READING, DRAWING} else publishing
    called = getattr(owner, name)

    def do_both(*arguments: Any, **options: Any) -> Any:
        action(*arguments)
        return called(*arguments, **options)

    monkeypatch.setattr(owner, name, do_both)


def interrupted(
    monkeypatch: pytest.MonkeyPatch, name: str, source: Path, where: Path, *options: object
) -> str:
    """A release that is interrupted before a step; its id."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        before(patched, name, stop)
        assert spend(source, where, *options).exit_code == 130
    return only(where).release_id


# Before which step, and how the release can be ended there.
POINTS = [
    (READING, "close"),
    (READING, "cancel"),
    (DRAWING, "close"),
    ("cells_table", "close"),
    ("write_readme", "close"),
]


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize(("point", "end"), POINTS)
def test_a_run_whose_release_is_ended_publishes_nothing(
    *,
    point: str,
    end: str,
    resumed: bool,
    source: Path,
    where: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = {"close": "closed", "cancel": "cancelled"}[end]

    def end_it(*_: object) -> None:
        ended = run("ledger", end, where, only(where).release_id)
        assert ended.exit_code == 0, ended.output

    if resumed:
        unfinished = interrupted(monkeypatch, point, source, where)
    before(monkeypatch, point, end_it)
    if resumed:
        result = run("release", "--resume", unfinished, "--ledger", where)
    else:
        result = spend(source, where)
    assert result.exit_code == 2, result.output
    told = f"error: release {only(where).release_id} was {status} by"
    (error,) = result.stderr.splitlines()
    assert error.startswith(told)
    assert error.endswith("while this run was at work; this run published nothing")
    assert sorted(path.name for path in where.parent.iterdir()) == ["budget.db", "clicks.parquet"]
    assert only(where).status == status
    assert Ledger(str(where)).balance("us").remaining == (2 if end == "close" else 4)
    assert run("ledger", "verify", where).exit_code == 0


def test_a_refused_table_of_a_closed_release(
    source: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its budget is not given back: it was closed."""

    def refuse(*_: object) -> None:
        run("ledger", "close", where, only(where).release_id)
        raise DataError("the table is unsound")

    monkeypatch.setattr(stages, READING, refuse)
    refused = spend(source, where)
    assert refused.exit_code == 2
    assert "the table is unsound (release" in refused.stderr
    assert "was closed by" in refused.stderr
    assert "given back" not in refused.stderr
    assert only(where).status == "closed"


def test_what_is_about_to_be_published_cannot_be_closed(
    source: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def try_to_close(path: Path) -> None:
        if path.name == MANIFEST:
            told.append(run("ledger", "close", where, only(where).release_id))

    before(monkeypatch, "private_file", try_to_close)
    assert spend(source, where).exit_code == 0
    assert len(told) == 1
    assert_refused(told[0], "a run is about to publish release")
    assert only(where).status == "committed"


def test_what_is_published_is_recorded_instead_of_closed(
    source: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_store.Transaction, "wipe", stop)
        assert "is published, but that could not be" in spend(source, where).stderr
    unfinished, out = only(where).release_id, where.with_name("out")
    content = {path.name: path.read_bytes() for path in out.iterdir()}
    closed = run("ledger", "close", where, unfinished)
    assert closed.exit_code == 0, closed.output
    assert f"is published at {out}, and now recorded: ε = 2" in closed.stdout
    assert "stays spent" in closed.stdout
    assert (only(where).status, only(where).folder) == ("committed", str(out))
    assert content == {path.name: path.read_bytes() for path in out.iterdir()}
    assert_refused(
        run("release", "--resume", unfinished, "--ledger", where),
        "is committed: there is nothing to resume",
    )


def test_closed_between_publishing_and_committing(
    source: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on another machine, whose folder cannot be seen from here."""
    published = Reservation.commit

    def close_first(reservation: Reservation, place: str) -> None:
        out = where.with_name("out")
        out.rename(where.with_name("elsewhere"))
        run("ledger", "close", where, reservation.release_id)
        where.with_name("elsewhere").rename(out)
        published(reservation, place)

    monkeypatch.setattr(Reservation, "commit", close_first)
    refused = spend(source, where)
    assert refused.exit_code == 2
    assert "out is published, but release" in refused.stderr
    assert "its budget stays spent" in refused.stderr
    ended = only(where).ended
    assert ended is not None
    assert ended["sealed_for"] == str(where.with_name("out"))
    assert Ledger(str(where)).balance("us").remaining == 2


def test_a_sealed_release_is_closed_with_its_checksum(
    source: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(path: Path) -> None:
        if path.name == MANIFEST:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        before(patched, "private_file", stop)
        assert spend(source, where).exit_code == 130
    closed = run("ledger", "close", where, only(where).release_id, "--reason", "the table is gone")
    assert closed.exit_code == 0, closed.output
    assert f"note: It was about to be published at {where.with_name('out')}" in closed.stdout
    ended = only(where).ended
    assert ended is not None
    assert ended["sealed_sha256"] in closed.stdout
    assert ended["reason"] == "the table is gone"


def test_show_names_the_ways_on(source: Path, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = interrupted(monkeypatch, READING, source, where)
    text = run("ledger", "show", where).stdout
    ways = [line.strip() for line in text.splitlines() if line.startswith("    clusterdp ")]
    assert [shlex.split(way)[1:3] for way in ways] == [
        ["release", "--resume"],
        ["ledger", "cancel"],
        ["ledger", "close"],
    ]
    assert_refused(run(*shlex.split(ways[0])[1:], "--new-population"), "decided when the release")
    assert run(*shlex.split(ways[1])[1:]).exit_code == 0
    assert "cancelled" in run("ledger", "show", where).stdout
    shown = json.loads(run("ledger", "show", where, "--json").stdout)
    (one,) = shown["populations"][0]["releases"]
    assert (one["release_id"], one["status"]) == (unfinished, "cancelled")
    assert set(one["ended"]) == {"at", "who", "worked_at", "worker"}


@pytest.mark.parametrize(("point", "drew"), [(DRAWING, "rows"), ("cells_table", "noise")])
def test_one_that_drew_can_be_closed_alone(
    point: str, drew: str, source: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = interrupted(monkeypatch, point, source, where)
    text = run("ledger", "show", where).stdout
    assert f"clusterdp ledger close {where} {unfinished}" in text
    assert "ledger cancel" not in text
    assert_refused(
        run("ledger", "cancel", where, unfinished),
        f"it has drawn {drew}, so its budget stays spent; close it with: clusterdp ledger close",
    )
    closed = run("ledger", "close", where, unfinished)
    assert f"Abandoned release {unfinished}: ε = 2 of population 'us' stays" in closed.stdout
    text = run("ledger", "show", where).stdout
    assert "abandoned" in text
    assert "2 of 4 spent, 2 remaining" in text
    assert "unfinished" not in text
    assert_refused(run("ledger", "close", where, unfinished), "is closed: there is nothing to")
    assert_refused(
        run("release", "--resume", unfinished, "--ledger", where), "there is nothing to resume"
    )
