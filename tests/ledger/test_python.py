"""A ledger in Python: all that the command line can do, with the same words."""

from __future__ import annotations

import builtins
import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.errors import DataError, LedgerError
from clusterdp.ledger import _store, statement
from clusterdp.ledger.paid_release import PopulationBudget
from clusterdp.spec.clusters import PublicClusters
from clusterdp.spec.provenance import Provenance
from clusterdp.spec.spec import QuestionSpec, ReleaseSpec
from clusterdp.storage.folder import LocalFolder
from ledger_runs import LAYOUT, SPACE, finish, reserve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ledger(tmp_path: Path) -> cdp.Ledger:
    return cdp.Ledger.create(tmp_path / "budget.db", cap_epsilon=4, cap_delta=1e-6)


def test_show_is_what_the_command_line_shows(ledger: cdp.Ledger, tmp_path: Path) -> None:
    assert "nothing was spent yet" in " ".join(str(ledger.show()).split())  # a long path wraps
    finish(reserve(ledger, 1))
    reserve(ledger, 2, "ca")
    shown_here = cdp.Ledger(tmp_path / "budget.db").show()
    assert repr(shown_here) == str(shown_here)
    assert run("ledger", "show", tmp_path / "budget.db", width=80).stdout.startswith(
        f"{shown_here}\nNext: "
    )
    shown = run("ledger", "show", tmp_path / "budget.db", "--json").stdout
    assert json.loads(shown) == shown_here.to_dict()
    assert [one.population for one in ledger.show("ca").balances] == ["ca"]
    with pytest.raises(LedgerError, match="nothing was spent on 'uk'; populations are: 'us', 'ca'"):
        ledger.show("uk")


def test_a_statement_fits_a_terminal(ledger: cdp.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(reserve(ledger, 1))
    monkeypatch.setattr(statement, "terminal_width", lambda: 80)
    lines = str(ledger.show()).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("1 of 4 spent, 3 remaining")
    assert any(line.split()[-2:] == ["status", "by"] for line in lines)


def test_notebooks_show_tables(ledger: cdp.Ledger) -> None:
    reserve(ledger, 1, "<b>us</b>")
    html = ledger.show()._repr_html_().replace("\xa0", " ")
    assert "&lt;b&gt;us&lt;/b&gt;" in html
    assert "<b>us" not in html
    assert "<td>unfinished</td>" in html
    for name, number in (("spent", 1), ("remaining", 3), ("budget cap", 4)):
        assert f"<dt>{name}</dt><dd>ε = {number}" in html


def test_long_names_fit_the_table(monkeypatch: pytest.MonkeyPatch, ledger: cdp.Ledger) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    reserve(ledger, 1)
    statement = ledger.show()
    (balance,) = statement.balances
    (record,) = balance.releases
    names = ("net_revenue_90_days", "sessions_90_days", "score")
    monkeypatch.setattr(type(record.terms), "outcome_names", names)
    lines = repr(statement).splitlines()
    assert sum("date (UTC)" in line for line in lines) == 1
    assert sum("  3 outcomes  " in line for line in lines) == 1


def test_wrong_types_are_named(ledger: cdp.Ledger, tmp_path: Path) -> None:
    wrong: Any = "8"
    with pytest.raises(cdp.ParameterError, match=r"cap_epsilon must be a number .*, got '8'"):
        cdp.Ledger.create(tmp_path / "new.db", cap_epsilon=wrong)
    with pytest.raises(cdp.ParameterError, match=r"cap_delta must be a number .*, got '8'"):
        cdp.Ledger.create(tmp_path / "new.db", cap_delta=wrong)
    wrong = 8
    with pytest.raises(cdp.ParameterError, match=r"population must be a name .* got 8"):
        ledger.balance(wrong)
    assert repr(ledger) == f"Ledger('{tmp_path / 'budget.db'}')"


def test_releases_are_listed_closed_and_cancelled(ledger: cdp.Ledger) -> None:
    first, second = reserve(ledger, 1), reserve(ledger, 2)
    assert ledger.close(first.release_id, reason="the table is gone").status == "closed"
    assert ledger.cancel(second.release_id).status == "cancelled"
    assert [one.status for one in ledger.releases()] == ["closed", "cancelled"]
    assert ledger.balance(" us ").remaining == pytest.approx(3)
    head = ledger.head().hash
    assert ledger.verify(head=head) == []
    assert ledger.verify(head="0" * 64) == [
        "no entry has the hash that was given: history was changed"
    ]


class TestPaidRelease:
    """Releases that are paid for without a terminal."""

    @pytest.fixture
    def said(self) -> list[str]:
        return []

    @pytest.fixture
    def prepared(self) -> Any:
        """A table of which nothing is stored."""
        return SimpleNamespace(layout=LAYOUT, table=SimpleNamespace(close=lambda: None))

    @pytest.fixture
    def spec(self) -> ReleaseSpec:
        question = QuestionSpec(
            space=SPACE, mechanism=cdp.uniform_prior_dp(epsilon=1), rounding=(0.0,)
        )
        return ReleaseSpec.from_questions([question], PublicClusters(), Provenance())

    def budget(self, ledger: cdp.Ledger, said: list[str], **options: Any) -> PopulationBudget:
        return PopulationBudget(ledger, "us", confirmed_new=True, on_message=said.append, **options)

    def test_it_is_reserved_written_and_committed(
        self, ledger: cdp.Ledger, said: list[str], prepared: Any, spec: ReleaseSpec, tmp_path: Path
    ) -> None:
        def write(*given: Any, **_: Any) -> dict[str, Any]:
            finish(given[-1])
            return {"folder": "out"}

        budget = self.budget(cdp.Ledger(tmp_path / "budget.db"), said)
        budget.check_population()
        described = budget.describe(spec.terms)
        assert described["remaining_epsilon"] == 4
        target = LocalFolder(tmp_path / "out")
        options = {"out": "out", "ledger": "budget.db"}
        finished = budget.release(prepared, spec, target, options, write)
        (record,) = ledger.releases()
        assert finished == {"folder": "out", "release_id": record.release_id}
        assert record.status == "committed"
        assert record.content["options"] == {"out": os.path.abspath("out")}  # noqa: PTH100 - as it does
        assert said == []

    def test_a_refused_table_gets_its_budget_back(
        self, ledger: cdp.Ledger, said: list[str], prepared: Any, spec: ReleaseSpec, tmp_path: Path
    ) -> None:
        def write(*_: Any, **__: Any) -> dict[str, Any]:
            raise DataError("the table is unsound")

        target, options = LocalFolder(tmp_path / "out"), {"out": "out"}
        with pytest.raises(DataError, match="the budget was given back"):
            self.budget(ledger, said).release(prepared, spec, target, options, write)
        assert ledger.balance("us").remaining == 4

    def test_an_interrupted_one_says_how_it_is_finished(
        self, ledger: cdp.Ledger, said: list[str], prepared: Any, spec: ReleaseSpec, tmp_path: Path
    ) -> None:
        def write(*_: Any, **__: Any) -> dict[str, Any]:
            raise KeyboardInterrupt

        target, options = LocalFolder(tmp_path / "out"), {"out": "out"}
        budget = self.budget(ledger, said, resume_hint=lambda release_id: f"resume={release_id!r}")
        with pytest.raises(KeyboardInterrupt):
            budget.release(prepared, spec, target, options, write)
        (record,) = ledger.releases()
        assert record.status == "reserved"
        assert said[-1] == f"the budget stays reserved. Resume with: resume='{record.release_id}'"


def test_who_it_was_where_there_is_no_pwd(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_pwd(name: str, *rest: Any) -> Any:
        if name == "pwd":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setenv("LOGNAME", "maya")
    monkeypatch.setattr(builtins, "__import__", without_pwd)
    assert _store.current_user() == "maya"
