"""What a newcomer in Python meets first: the way to a folder, and errors with remedies."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.document.text import to_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
}


@pytest.fixture
def ledger(tmp_path: Path) -> cdp.Ledger:
    return cdp.Ledger.create(tmp_path / "budget.db", cap_epsilon=4)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _interrupted(
    table: Any, ledger: cdp.Ledger, out: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> KeyboardInterrupt:
    """The interrupt of a release that stopped when it called `where`."""
    whose: dict[str, Any] = {"ledger": ledger, "population": "us", "new_population": True}
    with monkeypatch.context() as patch:
        patch.setattr(f"clusterdp.releasing.{where}", _stop)
        with pytest.raises(KeyboardInterrupt) as caught:
            cdp.publish(table, out=out, **NAMES, epsilon=1, **whose)
    return caught.value


class TestLedger:
    """The way to a ledger, and what it says."""

    def test_errors_name_the_way_in_python_first(self, table: pl.DataFrame, tmp_path: Path) -> None:
        where = tmp_path / "budget.db"
        whose: dict[str, Any] = {"ledger": where, "population": "us"}
        out = tmp_path / "out"
        with pytest.raises(cdp.LedgerError) as caught:
            cdp.publish(table, out=out, **NAMES, epsilon=1, **whose)
        (remedy,) = re.findall(r"clusterdp\.(Ledger\.create\(.*?\))", str(caught.value))
        assert remedy == f"Ledger.create('{where}', cap_epsilon=...)"
        cdp.Ledger.create(where, cap_epsilon=8)
        # The first population of a ledger needs no confirmation; it may have one.
        cdp.publish(table, out=out, **NAMES, epsilon=1, **whose, new_population=True)
        with pytest.raises(cdp.LedgerError, match=r"exists already, .* clusterdp\.Ledger\('budget"):
            cdp.Ledger.create(where)

    def test_what_fits_is_named_and_fits(
        self, table: pl.DataFrame, ledger: cdp.Ledger, tmp_path: Path
    ) -> None:
        given: dict[str, Any] = {**NAMES, "ledger": ledger, "population": "us"}
        cdp.publish(table, out=tmp_path / "one", **given, epsilon=1.23457, new_population=True)
        with pytest.raises(cdp.LedgerError) as caught:
            cdp.publish(table, out=tmp_path / "two", **given, epsilon=3)
        (most,) = re.findall(r"set epsilon = (\S+) or less", str(caught.value))
        looked = cdp.preview(table, **given, epsilon=3)
        assert looked.notes[0].startswith("This release would be rejected: not enough budget")
        assert f"and {most} of 4 remains" in looked.notes[0]
        assert not any("would be rejected" in note for note in looked.notes[1:])
        cdp.publish(table, out=tmp_path / "two", **given, epsilon=float(most))
        with pytest.raises(cdp.LedgerError, match="ask for a higher budget cap"):
            cdp.publish(table, out=tmp_path / "three", **given, epsilon=1)

    @pytest.mark.parametrize("where", ["stages.draw_together", "targets.write_readme"])
    def test_an_interrupt_carries_what_finishes_the_release(
        self,
        where: str,
        table: pl.DataFrame,
        ledger: cdp.Ledger,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        caught = _interrupted(table, ledger, tmp_path / "out", where, monkeypatch)
        (note,) = caught.__notes__
        (advice,) = re.findall(r"Resume with: clusterdp\.(.*)", note)
        assert f"clusterdp.{advice}" in repr(ledger.show())
        assert "--resume" not in repr(ledger.show())
        finished = eval(f"cdp.{advice}", {"cdp": cdp, "frame": table})  # noqa: S307 - our own
        assert finished.folder == str(tmp_path / "out")

    def test_a_file_is_finished_by_its_name(
        self, source: Path, ledger: cdp.Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caught = _interrupted(source, ledger, tmp_path / "out", "targets.write_readme", monkeypatch)
        assert "frame" not in caught.__notes__[0]
        (release_id,) = (one.release_id for one in ledger.releases())
        assert f"clusterdp release --resume {release_id}" in repr(ledger.show())
        cdp.resume(release_id, ledger=ledger)

    def test_the_table_may_change_until_noise_is_drawn(
        self,
        table: pl.DataFrame,
        ledger: cdp.Ledger,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        changed = table.with_columns(clicks=3 - pl.col("clicks"))
        _interrupted(table, ledger, tmp_path / "out", "stages.draw_together", monkeypatch)
        (release_id,) = (one.release_id for one in ledger.releases())
        assert cdp.resume(release_id, changed, ledger=ledger).release_id == release_id

    def test_resuming_needs_a_ledger(self) -> None:
        with pytest.raises(cdp.ParameterError, match=r"give ledger=\.\.\. \(--ledger\)"):
            cdp.resume("some id")


class TestAssumptions:
    """What is assumed of outcomes stands where predictions stand."""

    def test_without_a_reference_outcomes_are_uniform(self, table: pl.DataFrame) -> None:
        plan = cdp.plan(table, **NAMES, epsilon=2)
        said = "No baseline was given, so all values are assumed equally likely."
        details = "\n".join(to_lines(cdp.preview(table, plan).details()))
        shown = (repr(plan), plan._repr_html_(), details)
        assert all(said in " ".join(text.split()) and "--baseline" in text for text in shown)
        assert said in plan.to_dict()["assumed"]

    def test_a_baseline_is_stated_and_kept(self, table: pl.DataFrame, tmp_path: Path) -> None:
        plan = cdp.plan(table, **NAMES, epsilon=2, baseline=[3, 1, 0, 0])
        said = f"your baselines: clicks mean 0.25 (sd {np.sqrt(0.25 * 0.75):.3g})"
        plan.save(tmp_path / "plan.lock")
        details = "\n".join(to_lines(cdp.preview(table, tmp_path / "plan.lock").details()))
        assert all(said in text and "--baseline" not in text for text in (repr(plan), details))
        assert said in (tmp_path / "plan.lock").read_text()

    def test_a_small_effect_asks_for_a_baseline_once(self, table: pl.DataFrame) -> None:
        with pytest.raises(cdp.ParameterError, match=r"mde=0.001 .*what you expect: --baseline"):
            cdp.plan(table, **NAMES, mde=0.001)
        with pytest.raises(cdp.ParameterError, match="Plan for a larger effect") as caught:
            cdp.plan(table, **NAMES, mde=0.001, baseline="mean:1,std:1")
        assert "reference" not in str(caught.value)


def test_a_preview_checks_that_the_place_is_free(table: pl.DataFrame, tmp_path: Path) -> None:
    plan = cdp.plan(table, **NAMES, epsilon=2)
    assert "ε = 2" in repr(cdp.preview(table, plan, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(cdp.OutputError, match=r"another folder \(out=.* to spend epsilon again"):
        cdp.preview(table, plan, out=tmp_path)


_COLUMNS = "'user', 'treated', 'market', 'clicks', 'secret'"
MISSING: dict[str, tuple[dict[str, Any], str]] = {
    "arm": (
        {"arm": "Treated"},
        "'Treated' to use as arm (arm=..., --arm). Did you mean 'treated'?",
    ),
    "unit": ({"unit": "usr"}, "'usr' to use as unit (unit=..., --unit). Did you mean 'user'?"),
    "cluster": ({"cluster": "x"}, "'x' to use as cluster (cluster=..., --cluster). The table has"),
    "crossed": ({"cluster": ["market", "x"]}, "'x' to cross as cluster (cluster=..., --cluster)"),
    "outcome": (
        {"outcomes": {"click": "0..3"}},
        "(outcomes=..., --outcome). Did you mean 'clicks'?",
    ),
    "kept": (
        {"passthrough": "Secret"},
        "'Secret' to use as passthrough (passthrough=..., --passthrough). Did you mean 'secret'?",
    ),
}


@pytest.mark.parametrize("case", MISSING)
@pytest.mark.parametrize("call", [cdp.plan, cdp.preview, cdp.release])
@pytest.mark.parametrize("kind", [pl.DataFrame.lazy, pl.DataFrame.to_pandas])
def test_a_missing_column_is_named_with_all_there_are(
    case: str, call: Callable[..., Any], kind: Callable[..., Any], table: pl.DataFrame
) -> None:
    change, message = MISSING[case]
    given = {**NAMES, "epsilon": 1, **change}
    if call is cdp.plan and case == "outcome":
        # The experiment may be planned before it ran: a note about the outcome, and no error.
        notes = " ".join(call(kind(table), **given).notes)
        assert message in notes
        assert _COLUMNS in notes
        return
    with pytest.raises(cdp.DataError) as caught:
        call(kind(table), **given)
    assert message in str(caught.value)
    assert f"table has {_COLUMNS}" in str(caught.value)


def test_a_missing_column_of_a_file_is_named_alike(source: Path) -> None:
    public = ("--cluster", "market", "--outcome", "clicks=0..3", "--epsilon", 1)
    shown = run("plan", source, "--arm", "Treated", *public).stderr
    assert "'Treated' to use as arm (--arm)\n\n  No outcome was read" in shown
    assert "\n  Did you mean 'treated'?" in shown
    assert _COLUMNS in shown


def test_errors_have_a_remedy(table: pl.DataFrame, tmp_path: Path) -> None:
    text = table.with_columns(clicks=pl.lit("4,321"))
    with pytest.raises(cdp.DataError, match=r"thousands=',' \(--thousands ,\)") as caught:
        cdp.release(text, **NAMES, epsilon=1)
    assert "4321" not in str(caught.value)
    with pytest.raises(cdp.FormatError, match=r"there is no folder .*pubb; check its name"):
        cdp.estimate(tmp_path / "pubb")
    with pytest.raises(cdp.FormatError, match="is not a release: it has no manifest"):
        cdp.estimate(tmp_path)
    with pytest.raises(cdp.ParameterError, match=r"missing: the budget\. Fix: give epsilon=\.\.\."):
        cdp.release(table, **NAMES)
    for call in (cdp.plan, cdp.preview, cdp.release):
        with pytest.raises(cdp.ParameterError, match=r"source must be a pandas.* got int"):
            call(5, **NAMES, epsilon=1)
    release = cdp.release(table, **NAMES, epsilon=1)
    with pytest.raises(
        cdp.ParameterError, match=r"A segments table .* Fix: add by=\.\.\. \(--by\)"
    ):
        cdp.estimate(release, segments=table.select("user"))


def test_notebooks_show_what_text_does(
    table: pl.DataFrame, ledger: cdp.Ledger, tmp_path: Path
) -> None:
    whose: dict[str, Any] = {"ledger": ledger, "population": "<us>", "new_population": True}
    looked = cdp.preview(table, **NAMES, epsilon=1, **whose)
    page = unescape(looked._repr_html_())
    assert all(word in page for word in re.findall(r"\w+", repr(looked)))
    assert all(note in page for note in looked.notes)
    published = cdp.publish(table, out=tmp_path / "out", **NAMES, epsilon=1, **whose)
    page = unescape(published._repr_html_())
    assert published.folder in page
    assert str(published.release_id) in page
    assert ledger._repr_html_() == ledger.show()._repr_html_()
    for shown in (looked, ledger):
        assert "<us>" not in shown._repr_html_()
        assert "&lt;us&gt;" in shown._repr_html_()


def test_an_effect_is_a_line_and_a_guarantee_has_its_own(table: pl.DataFrame) -> None:
    estimate = cdp.estimate(cdp.release(table, **NAMES, epsilon=1))
    (effect,) = estimate.effects
    assert repr(effect).startswith("Effect(clicks, overall, 1 vs 0: ")
    assert len(repr(effect).splitlines()) == 1
    first, *_ = repr(estimate).splitlines()
    assert estimate.guarantee is not None
    assert first == "treated = 1 vs 0 (control), 600 units, within markets, ε = 1"
    assert estimate.guarantee.statement().formal in unescape(estimate.to_html()).replace(
        "\xa0", " "
    )
