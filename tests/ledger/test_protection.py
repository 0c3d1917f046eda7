"""What somebody who can replace files, or chance, could do to a ledger."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

import pytest

import clusterdp as cdp
from categories import one_question
from cli_runs import assert_refused, release, run
from clusterdp.errors import LedgerError, ParameterError
from clusterdp.ledger.ledger import PASSPHRASE, Ledger
from ledger_runs import SPACE, reserve

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

PHRASE = "correct horse"
CAP = 4


def spend(source: Path, where: Path, *options: object) -> Result:
    paid = ("--ledger", where, "--population", "us", "--new-population")
    return release(source, where.with_name("out"), *paid, *options)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("phrase", [PHRASE, ""])
def test_a_passphrase_is_never_ignored(
    phrase: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encrypted ledger is replaced by one that is not, to get the next key in clear."""
    where = tmp_path / "budget.db"
    Ledger.create(str(where), CAP, passphrase=PHRASE)
    where.unlink()
    Ledger.create(str(where), CAP)
    before = where.read_bytes()
    monkeypatch.setenv(PASSPHRASE, phrase)
    refused = spend(source, where)
    assert_refused(refused, f"{PASSPHRASE} is set, but this ledger does not encrypt keys")
    assert_refused(refused, "use the ledger that was made with the passphrase")
    assert PHRASE not in refused.output
    assert where.read_bytes() == before
    assert not (tmp_path / "out").exists()
    with pytest.raises(
        LedgerError, match="a passphrase was given, but this ledger does not encrypt"
    ):
        Ledger(str(where)).unlock(passphrase=phrase)
    monkeypatch.delenv(PASSPHRASE)
    assert spend(source, where).exit_code == 0


def test_a_key_file_is_never_ignored(source: Path, tmp_path: Path, key_file: Path) -> None:
    where = tmp_path / "budget.db"
    Ledger.create(str(where), CAP)
    assert_refused(
        spend(source, where, "--ledger-key-file", key_file),
        "a key file was given, but this ledger does not encrypt keys",
    )
    assert Ledger(str(where)).releases() == []


def test_a_resumed_release_does_not_ignore_it_either(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "budget.db"
    unfinished = reserve(Ledger.create(str(where), CAP)).release_id
    monkeypatch.setenv(PASSPHRASE, PHRASE)
    assert_refused(
        run("release", "--resume", unfinished, "--ledger", where), "does not encrypt keys"
    )


def test_a_ledger_in_clear_is_not_made_by_oversight(
    tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "budget.db"
    monkeypatch.setenv(PASSPHRASE, PHRASE)
    init = ("ledger", "init", where, "--cap-epsilon", 4)
    assert_refused(run(*init), "add --passphrase")
    assert not where.exists()
    assert run(*init, "--key-file", key_file).exit_code == 0
    assert Ledger(str(where)).protection == "key file"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_file_of_others_is_refused(
    mode: int, source: Path, tmp_path: Path, key_file: Path
) -> None:
    where = tmp_path / "budget.db"
    init = ("ledger", "init", where, "--cap-epsilon", 4, "--key-file", key_file)
    key_file.chmod(mode)
    assert_refused(run(*init), f"(mode {mode:03o}); restrict it with: chmod 600 {key_file}")
    assert not where.exists()
    key_file.chmod(0o600)
    assert run(*init).exit_code == 0
    key_file.chmod(mode)
    assert_refused(spend(source, where, "--ledger-key-file", key_file), "chmod 600")
    key_file.chmod(0o400)
    assert spend(source, where, "--ledger-key-file", key_file).exit_code == 0


def test_ids_are_long_and_unique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = str(tmp_path / "budget.db")
    ledger = Ledger.create(where, CAP)
    first = reserve(ledger)
    assert re.fullmatch("[0-9a-f]{32}", first.release_id)
    ended = reserve(ledger).release_id
    ledger.cancel(ended)
    other = "0123456789abcdef" * 2
    drawn = iter([first.release_id, ended, first.release_id, other])
    monkeypatch.setattr(secrets, "token_hex", lambda n_bytes: next(drawn)[: 2 * n_bytes])
    second = reserve(ledger)
    assert second.release_id == other
    assert second.key != first.key
    assert ledger.resume(first.release_id).key == first.key
    assert Ledger(where).verify() == []


def test_sums_decide_unless_asked_otherwise(tmp_path: Path) -> None:
    mechanism = cdp.uniform_prior_dp(epsilon=0.25)

    def count(where: Path) -> int:
        ledger = Ledger(str(where))
        for n_releases in range(100):
            try:
                ledger.reserve("us", terms=one_question(SPACE, mechanism), about={}, place="x")
            except LedgerError:
                return n_releases
        raise AssertionError

    init = ("--cap-epsilon", 2, "--cap-delta", 1e-5)
    made = run("ledger", "init", tmp_path / "basic.db", *init)
    assert "tight" not in made.stdout
    assert count(tmp_path / "basic.db") == 8
    made = run("ledger", "init", tmp_path / "tight.db", *init, "--tight")
    told = "It is valid only if earlier results do not influence the parameters of later releases"
    assert told in made.stdout
    assert count(tmp_path / "tight.db") > 8
    for name, basic, tight in (("basic", ", ", ""), ("tight", "", ", ")):
        text = run("ledger", "show", tmp_path / f"{name}.db").stdout
        assert re.search(rf"of 2 spent{basic}\S*( remaining)?\n", text)
        assert ("by tight composition at δ = 1e-05, " in text) == bool(tight)
        shown = run("ledger", "show", tmp_path / f"{name}.db", "--json").stdout
        assert f'"decides": "{name}"' in shown


def test_the_tight_composition_needs_a_delta(tmp_path: Path) -> None:
    refused = run("ledger", "init", tmp_path / "l", "--cap-epsilon", 2, "--tight")
    assert_refused(refused, "tight composition needs a cap_delta above 0")
    with pytest.raises(ParameterError, match="cap_delta"):
        Ledger.create(str(tmp_path / "l"), CAP, tight=True)
    assert not (tmp_path / "l").exists()
    assert run("ledger", "init", tmp_path / "l", "--cap-epsilon", 2, "--basic").exit_code == 2


def test_another_format_is_not_called_an_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in (3, 5):
        where = tmp_path / f"format-{version}.db"
        with monkeypatch.context() as patched:
            patched.setattr("clusterdp.ledger.history.FORMAT_VERSION", version)
            Ledger.create(str(where), CAP)
        assert_refused(run("ledger", "show", where), f"has format {version}, and this version of")
        assert f"FAIL the ledger has format {version}" in run("ledger", "verify", where).stdout


@pytest.mark.parametrize("url", ["postgresql:/me:sesame@host", "postgres:me:sesame@host/db"])
def test_a_mistyped_url_shows_no_password(url: str, tmp_path: Path) -> None:
    for command in (("show", url), ("init", url, "--cap-epsilon", 1)):
        refused = run("ledger", *command)
        assert_refused(refused, "a ledger is a file, or postgresql://user@host/database")
        assert "sesame" not in refused.output
