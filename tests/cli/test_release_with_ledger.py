"""Releases that spend from a ledger, and those that are resumed, as an owner runs them."""

from __future__ import annotations

import json
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release, release_declared, run
from clusterdp.ledger import _store
from clusterdp.ledger.ledger import Ledger
from clusterdp.owner import job
from clusterdp.releasing import stages
from clusterdp.releasing import targets as publishing
from released import drawn_of

if TYPE_CHECKING:
    from typer.testing import Result


@pytest.fixture
def where(tmp_path: Path) -> Path:
    path = tmp_path / "budget.db"
    made = run("ledger", "init", path, "--cap-epsilon", 4)
    assert made.exit_code == 0, made.output
    return path


def spend(source: Path, target: Path, where: Path, *options: object) -> Result:
    known = any(one.population == "us" for one in Ledger(str(where)).releases())
    confirmed = () if known else ("--new-population",)
    return release(source, target, "--ledger", where, "--population", "us", *confirmed, *options)


def shown(where: Path, *options: object) -> dict[str, Any]:
    result = run("ledger", "show", where, "--json", *options)
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_a_budget_is_spent_and_runs_out(source: Path, tmp_path: Path, where: Path) -> None:
    for name, left in (("first", "2"), ("second", "0")):
        result = spend(source, tmp_path / name, where)
        assert result.exit_code == 0, result.output
        assert (
            f"Release {Ledger(str(where)).releases()[-1].release_id[:8]}, {left} of 4 remaining."
            in result.stdout
        )
    refused = spend(source, tmp_path / "third", where)
    assert refused.exit_code == 2
    assert "not enough budget for 'us'" in refused.stderr
    assert "No outcome was read and nothing was spent" in refused.stderr
    assert not (tmp_path / "third").exists()
    (balance,) = shown(where)["populations"]
    assert balance["basic_epsilon"] == pytest.approx(4)
    assert [one["status"] for one in balance["releases"]] == ["published", "published"]
    other = release(
        *(source, tmp_path / "third", "--ledger", where, "--epsilon", 4),
        *("--population", "ca", "--new-population"),
    )
    assert other.exit_code == 0, other.output


def test_over_the_cap_is_refused_before_an_outcome_is_read(
    source: Path, tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, stages, "count_and_draw", AssertionError)
    refused = spend(source, tmp_path / "out", where, "--epsilon", 5)
    assert "not enough budget" in refused.stderr
    allowed = spend(source, tmp_path / "out", where, "--epsilon", 4)
    assert isinstance(allowed.exception, AssertionError)


def test_a_refused_table_gives_its_budget_back(
    table: pl.DataFrame, tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    table.with_columns(clicks=pl.col("clicks") + 2).write_parquet(path)
    # The rows of a small table are checked before anything is on record.
    refused = spend(path, tmp_path / "out", where)
    assert refused.exit_code == 2
    assert "has values outside the allowed values" in refused.stderr
    assert shown(where)["populations"] == []
    monkeypatch.setattr(job, "FEW_ROWS", 0)
    refused = spend(path, tmp_path / "out", where)
    assert refused.exit_code == 2
    assert "has values outside the allowed values" in refused.stderr
    assert "(the budget was given back)" in refused.stderr
    (balance,) = shown(where)["populations"]
    assert balance["remaining_epsilon"] == 4
    assert balance["releases"][0]["status"] == "cancelled"
    assert run("ledger", "verify", where).exit_code == 0


def interrupt(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, error: type[BaseException]
) -> None:
    """Let a function fail where it would have been called."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module, name, fail)


# Where a run can be interrupted, and whether noise was drawn by then.
POINTS = {
    "before counting": (stages, "count_and_draw", False),
    "after the noise": (publishing, "cells_table", True),
    "before the manifest": (publishing, "write_readme", True),
}


@pytest.mark.parametrize("mechanism", ["optimal", "cluster-dp", "noisy-histogram"])
@pytest.mark.parametrize("point", POINTS)
def test_an_interrupted_release_is_finished(
    point: str, mechanism: str, source: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, drew = POINTS[point]
    tmp_path = where.parent
    with monkeypatch.context() as patched:
        interrupt(patched, module, name, KeyboardInterrupt)
        paid = {"ledger": where, "population": "us", "mechanism": mechanism}
        stopped = release_declared(source, tmp_path / "out", "--new-population", **paid)
    assert stopped.exit_code == 130
    assert "the budget stays reserved. Resume with: clusterdp release --resume" in stopped.stderr
    assert not (tmp_path / "out").exists()
    (balance,) = shown(where)["populations"]
    (unfinished,) = balance["releases"]
    # In two passes rows begin after the noise is on record.
    last = "randomizing" if mechanism == "cluster-dp" else "drawn"
    assert unfinished["status"] == (last if drew else "reserved")
    reservation = Ledger(str(where)).resume(unfinished["release_id"])
    kept = reservation.recall("drawn")
    assert (kept is not None) == drew
    resumed = run("release", "--resume", unfinished["release_id"], "--ledger", where)
    assert resumed.exit_code == 0, resumed.output
    published = cdp.read_release(tmp_path / "out")
    if kept is not None:
        drawn = drawn_of(kept, published)
        ((question, kept_block),) = zip(published.questions, drawn.questions, strict=True)
        assert kept_block.statistics
        both = zip(question.statistics, kept_block.statistics, strict=True)
        assert (question.channel is None) == (kept_block.channel is None)
        channels = [(question.channel, kept_block.channel)] if question.channel else []
        for ours, theirs in [*both, *channels]:
            assert ours is not None
            assert theirs is not None
            for name, array in ours.arrays().items():
                assert np.array_equal(array, theirs.arrays()[name])
    (balance,) = shown(where)["populations"]
    assert [one["status"] for one in balance["releases"]] == ["published"]
    assert balance["basic_epsilon"] == unfinished["epsilon"]
    assert run("verify", tmp_path / "out").exit_code == 0
    again = run("release", "--resume", unfinished["release_id"], "--ledger", where)
    assert_refused(again, "is committed: there is nothing to resume")


def leave_unfinished(
    monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, where: Path
) -> str:
    with monkeypatch.context() as patched:
        interrupt(patched, publishing, "cells_table", KeyboardInterrupt)
        spend(source, target, where)
    (balance,) = shown(where)["populations"]
    return str(balance["releases"][-1]["release_id"])


def test_it_is_finished_with_the_same_table_alone(
    table: pl.DataFrame,
    source: Path,
    tmp_path: Path,
    where: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unfinished = leave_unfinished(monkeypatch, source, tmp_path / "out", where)
    flipped = pl.col("clicks").max() - pl.col("clicks")
    table.with_columns(clicks=flipped).write_parquet(source)
    changed = run("release", "--resume", unfinished, "--ledger", where)
    assert changed.exit_code == 2
    assert "the table is not the one that the release began with" in changed.stderr
    table.head(-1).write_parquet(source)
    changed = run("release", "--resume", unfinished, "--ledger", where)
    assert "not the one that the release was reserved for" in changed.stderr
    assert not (tmp_path / "out").exists()
    # Moved and in another order it is still the same, and may be published elsewhere.
    table.sample(fraction=1.0, shuffle=True).write_parquet(tmp_path / "moved.parquet")
    resumed = run(
        *("release", tmp_path / "moved.parquet", "--resume", unfinished, "--ledger", where),
        *("--out", tmp_path / "elsewhere"),
    )
    assert resumed.exit_code == 0, resumed.output
    assert cdp.read_release(tmp_path / "elsewhere").layout.n_units == 600


def test_published_and_not_committed(
    source: Path, tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        interrupt(patched, _store.Transaction, "wipe", KeyboardInterrupt)
        stopped = spend(source, tmp_path / "out", where)
    assert stopped.exit_code == 2
    assert "is published, but that could not be recorded (interrupted); record it" in stopped.stderr
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (balance,) = shown(where)["populations"]
    unfinished = balance["releases"][0]["release_id"]
    resumed = run("release", "--resume", unfinished, "--ledger", where)
    assert resumed.exit_code == 0, resumed.output
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (committed,) = shown(where)["populations"][0]["releases"]
    assert committed["status"] == "published"
    assert committed["folder"] == str(tmp_path / "out")


def test_one_reservation_gives_one_release(
    source: Path, tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published and not committed; then someone makes the ledger forget what was drawn."""
    import sqlite3

    with monkeypatch.context() as patched:
        interrupt(patched, _store.Transaction, "wipe", KeyboardInterrupt)
        spend(source, tmp_path / "out", where)
    (unfinished,) = shown(where)["populations"][0]["releases"]
    resume = ("release", "--resume", unfinished["release_id"], "--ledger", where)
    with sqlite3.connect(where) as connection:
        connection.execute("update clusterdp_secrets set drawn = null")
    connection.close()
    assert_refused(
        run(*resume, "--out", tmp_path / "second"), "what it drew was changed or is lost"
    )
    assert "what it drew was changed or is lost" in run("ledger", "verify", where).stdout
    assert not (tmp_path / "second").exists()


def test_what_was_sealed_is_all_that_can_be_published(
    source: Path, tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        interrupt(patched, _store.Transaction, "wipe", KeyboardInterrupt)
        spend(source, tmp_path / "out", where)
    (unfinished,) = shown(where)["populations"][0]["releases"]
    resume = ("release", "--resume", unfinished["release_id"], "--ledger", where)
    with monkeypatch.context() as patched:
        patched.setattr(publishing, "write_readme", lambda *_: "another release")
        refused = run(*resume, "--out", tmp_path / "second")
    assert refused.exit_code == 2
    assert "this differs from the release" in refused.stderr
    assert not (tmp_path / "second").exists()
    assert run(*resume, "--out", tmp_path / "second").exit_code == 0
    names = [path.name for path in (tmp_path / "out").iterdir()]
    same = [
        (tmp_path / "out" / n).read_bytes() == (tmp_path / "second" / n).read_bytes() for n in names
    ]
    assert all(same)


def test_names_of_populations(source: Path, tmp_path: Path, where: Path) -> None:
    spend(source, tmp_path / "out", where)
    result = release(
        source, tmp_path / "dry", "--ledger", where, "--population", " us ", "--dry-run"
    )
    said = " ".join(result.stdout.split())
    assert "us: spends 2 of the 2 remaining" in said
    for name in ("", " ", "a\nb", "\x1b[31mred"):
        refused = release(source, tmp_path / "dry", "--ledger", where, "--population", name)
        assert refused.exit_code == 2
        assert "population" in refused.stderr


def test_hints_can_be_pasted(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    monkeypatch.chdir(folder)
    run("ledger", "init", "budget.db", "--cap-epsilon", 4)
    with monkeypatch.context() as patched:
        interrupt(patched, publishing, "cells_table", KeyboardInterrupt)
        stopped = spend(source, tmp_path / "out", Path("budget.db"))
    hint = stopped.stderr.split("Resume with: ")[1].splitlines()[0]
    monkeypatch.chdir(tmp_path)
    resumed = run(*shlex.split(hint)[1:])
    assert resumed.exit_code == 0, resumed.output


def test_what_was_decided_is_not_decided_again(
    source: Path, tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = leave_unfinished(monkeypatch, source, tmp_path / "out", where)
    resume = ("release", "--resume", unfinished, "--ledger", where)
    assert_refused(
        run(*resume, "--epsilon", 1), "epsilon (--epsilon) was decided when the release began"
    )
    assert_refused(run("release", "--resume", unfinished), "needs the ledger that recorded it")
    assert_refused(run("release", "--resume", "none", "--ledger", where), "has no release none")
    monkeypatch.setattr("clusterdp.ledger.paid_release.__version__", "9.9")
    assert_refused(run(*resume), "only that version finishes it exactly")


def test_options_that_belong_together(source: Path, tmp_path: Path, where: Path) -> None:
    out = tmp_path / "out"
    assert_refused(release(source, out, "--ledger", where), "needs a population")
    assert_refused(release(source, out, "--population", "us"), "belong to a ledger")
    assert_refused(
        release(source, out, "--ledger", tmp_path / "none.db", "--population", "us"),
        f"There is no ledger '{tmp_path / 'none.db'}'",
    )


def test_a_dry_run_shows_the_budget_and_spends_nothing(
    source: Path, tmp_path: Path, where: Path
) -> None:
    result = spend(source, tmp_path / "out", where, "--dry-run")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "us: spends 2 of the 4 remaining" in said
    result = spend(source, tmp_path / "out", where, "--dry-run", "--epsilon", 5)
    assert "note: This release would be rejected: not enough budget" in result.stdout
    assert shown(where)["populations"] == []


def test_show_is_for_people(
    source: Path, tmp_path: Path, where: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing was spent yet" in run("ledger", "show", where).stdout
    spend(source, tmp_path / "first", where, "--epsilon", 1)
    unfinished = leave_unfinished(monkeypatch, source, tmp_path / "out", where)
    text = run("ledger", "show", where).stdout
    assert "█" * 18 + "░" * 6 in text
    assert "3 of 4 spent, 1 remaining\n" in text
    assert f"{unfinished} is unfinished. Resume with:\n" in text
    # A command stands in a line of its own, so that it can be copied.
    resume = f"clusterdp release --resume {unfinished} --ledger {where}"
    assert resume in [line.strip() for line in text.splitlines()]
    assert_refused(run("ledger", "show", where, "--population", "ca"), "nothing was spent on 'ca'")


def test_verify_tells_an_edited_ledger(source: Path, tmp_path: Path, where: Path) -> None:
    import sqlite3

    spend(source, tmp_path / "out", where)
    head = shown(where)["head"]
    assert head in run("ledger", "verify", where).stdout
    assert run("ledger", "verify", where, "--head", head).exit_code == 0
    with sqlite3.connect(where) as connection:
        connection.execute("update clusterdp_entries set at = '2020' where number = 1")
    connection.close()
    verified = run("ledger", "verify", where)
    assert verified.exit_code == 2
    assert "FAIL entry 1 was changed" in verified.stdout
    assert_refused(run("ledger", "show", where), "was edited: entry 1 was changed")


def test_encrypted_from_init_to_commit(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, key_file = tmp_path / "budget.db", tmp_path / "key"
    assert_refused(
        run("ledger", "init", where, "--cap-epsilon", 4, "--key-file", key_file), "cannot read"
    )
    key_file.write_bytes(b"short")
    key_file.chmod(0o600)
    assert_refused(
        run("ledger", "init", where, "--cap-epsilon", 4, "--key-file", key_file), "32 random ones"
    )
    key_file.write_bytes(bytes(range(32)))
    made = run("ledger", "init", where, "--cap-epsilon", 4, "--key-file", key_file)
    assert made.exit_code == 0, made.output
    assert "not encrypted" not in made.stdout
    assert stat.S_IMODE(where.stat().st_mode) == 0o600
    assert_refused(spend(source, tmp_path / "out", where), "give its key file")
    plain = tmp_path / "plain.db"
    run("ledger", "init", plain, "--cap-epsilon", 4)
    assert_refused(
        spend(source, tmp_path / "out", plain, "--ledger-key-file", key_file),
        "a key file was given, but this ledger does not encrypt keys",
    )
    result = spend(source, tmp_path / "out", where, "--ledger-key-file", key_file)
    assert result.exit_code == 0, result.output
    phrase = tmp_path / "phrase.db"
    assert_refused(
        run("ledger", "init", phrase, "--cap-epsilon", 4, "--passphrase"), "There is no terminal"
    )
    monkeypatch.setenv("CLUSTERDP_LEDGER_PASSPHRASE", "correct horse")
    assert run("ledger", "init", phrase, "--cap-epsilon", 4, "--passphrase").exit_code == 0
    assert spend(source, tmp_path / "second", phrase).exit_code == 0
    monkeypatch.setenv("CLUSTERDP_LEDGER_PASSPHRASE", "wrong horse")
    assert_refused(spend(source, tmp_path / "third", phrase), "not the ledger's passphrase")


def test_an_experiment_file_may_name_the_ledger(source: Path, tmp_path: Path, where: Path) -> None:
    paid = {"ledger": where, "population": "us"}
    result = release_declared(source, tmp_path / "out", "--new-population", **paid)
    assert result.exit_code == 0, result.output
    assert len(shown(where)["populations"]) == 1
