"""Where a release comes from: given in any way, published alike, and the same when resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release_declared, run
from clusterdp.errors import ParameterError
from clusterdp.published.folder import read_manifest
from clusterdp.spec.provenance import LONGEST, Provenance, Spent

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

ABOUT: dict[str, Any] = {name: f"{name} of the <experiment>, ångström & 北京" for name in LONGEST}
GIVEN: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "mechanism": "uniform-prior-dp",
    "epsilon": 1,
}


def said(folder: Path) -> dict[str, Any]:
    known = msgspec.to_builtins(read_manifest(folder).provenance)
    return {name: known[name] for name in LONGEST}


def test_python_commands_and_files_say_the_same(
    source: Path, table: pl.DataFrame, tmp_path: Path
) -> None:
    cdp.publish(table, out=tmp_path / "python", **GIVEN, **ABOUT)
    assert release_declared(source, tmp_path / "file", **ABOUT).exit_code == 0
    plan = cdp.plan(source, **GIVEN, **ABOUT)
    cdp.publish(source, plan, out=tmp_path / "plan")
    for name in ("python", "file", "plan"):
        assert said(tmp_path / name) == ABOUT, name
        shown = run("inspect", tmp_path / name).output
        assert all(text in shown for name, text in ABOUT.items() if name != "unit_name")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must not be empty"),
        (" ", "must not be empty"),
        ("x" * 2001, "characters, got 2001; shorten it"),
        ("a\nb", "got U+000A; remove it"),
        ("a\x1b[31mb", "got U+001B; remove it"),
        ("a\u202eb", "got U+202E; remove it"),
    ],
)
def test_texts_that_could_do_harm_are_refused(text: str, message: str) -> None:
    for name in LONGEST:
        given: dict[str, Any] = {name: text}
        with pytest.raises(ParameterError, match=f"{name} must") as refused:
            Provenance(**given)
        assert message in str(refused.value)


def test_the_owner_is_told_before_it_is_too_late(table: pl.DataFrame) -> None:
    assert "Not stated" not in repr(cdp.preview(table, **GIVEN, **ABOUT))
    shown = repr(cdp.preview(table, **GIVEN, title="a", licence="b"))
    assert "Not stated  description, contact (cannot be added later" in shown


def test_a_refused_text_spends_nothing(source: Path, tmp_path: Path) -> None:
    ledger = cdp.Ledger.create(tmp_path / "l.db", 8)
    paid = {"ledger": tmp_path / "l.db", "population": "us", "approved_by": "a\x1b[31mb"}
    refused = release_declared(source, tmp_path / "out", "--new-population", **paid)
    assert_refused(refused, "approved_by must be one line without control characters, got U+001B")
    assert ledger.releases() == []
    assert not (tmp_path / "out").exists()


def test_a_resumed_release_tells_of_its_reservation(
    table: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The day and what had been spent are on record, whatever was spent meanwhile."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    ledger = cdp.Ledger.create(tmp_path / "l.db", 8, passphrase="p" * 20)
    paid: dict[str, Any] = {**GIVEN, "ledger": ledger, "population": "us"}
    cdp.publish(table, out=tmp_path / "first", new_population=True, **paid)
    with monkeypatch.context() as patch:
        patch.setattr("clusterdp.releasing.targets.write_card", stop)
        with pytest.raises(KeyboardInterrupt):
            cdp.publish(table, out=tmp_path / "second", **paid, **ABOUT)
    cdp.publish(table, out=tmp_path / "third", **paid)
    first, second, third = ledger.releases()
    cdp.resume(second.release_id, table, ledger=ledger)
    for name, record, spent in (
        ("first", first, 0),
        ("second", second, first.guarantee.epsilon),
        ("third", third, first.guarantee.epsilon + second.guarantee.epsilon),
    ):
        known = read_manifest(tmp_path / name).provenance
        assert str(known.released_on) == record.at[:10]
        assert known.spent_before is not None
        assert known.spent_before.epsilon == pytest.approx(spent)
    assert said(tmp_path / "second") == ABOUT
    assert run("verify", tmp_path / "second").exit_code == 0


def test_a_manifest_with_other_words_is_read_or_refused() -> None:
    whole = Provenance(**ABOUT, spent_before=Spent(epsilon=1, delta=0))
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Provenance) == whole
    for spoilt in ({"title": "a\nb"}, {"title": 1}, {"released_on": "yesterday"}, {"more": "x"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(json.dumps(spoilt), type=Provenance)
