"""An experiment file: read, written, with errors that name its lines; and its lock."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given

import clusterdp as cdp
from cli_runs import assert_refused, run
from clusterdp.cli.owner import on_terminal
from clusterdp.spec._experiment_text import named_options, to_toml
from clusterdp.spec.experiment import ExperimentFile
from clusterdp.spec.parse import parse
from requests_asked import asked_for

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
# One experiment.
[table]
source = "t.parquet"
unit = "user"
unit_name = "customer"
arm = "treated"
cluster = "market"
shares = { 0 = 0.5, 1 = 0.5 }

[outcomes]
visit = { type = "binary", baseline = 0.3 }
spend = { type = "number", range = [0, 200], baseline = { mean = 3, sd = 12 } }
score = { type = "count", max = 3, missing = true, observed = 0.9 }

[analysis]
primary = "spend"
breakdowns = []
optimize_for = "balanced"

[privacy]
epsilon = 2

[about]
title = "Visits"
contact = ""

[output]
folder = "published"
"""


@pytest.fixture
def file(tmp_path: Path, rng: np.random.Generator) -> Path:
    """An experiment file next to its table."""
    n_users = 1000
    pl.DataFrame(
        {
            "user": rng.permutation(n_users),
            "treated": np.arange(n_users) % 2,
            "market": rng.integers(0, 3, n_users),
            "visit": rng.integers(0, 2, n_users),
            "spend": np.round(rng.gamma(1, 3, n_users), 2),
            "score": rng.integers(0, 4, n_users),
        }
    ).write_parquet(tmp_path / "t.parquet")
    path = tmp_path / "experiment.toml"
    path.write_text(FILE)
    return path


@given(asked_for())
def test_a_request_is_written_and_read_back(given: dict[str, Any]) -> None:
    request = parse(given)
    written = to_toml(request.options)
    again = parse(named_options(tomllib.loads(written)))
    # Options may have other texts for the same thing: `0..1` is a binary outcome.
    assert replace(again, options=request.options) == request
    assert to_toml(again.options) == written


def test_what_a_file_declares(file: Path) -> None:
    options = ExperimentFile.read(file).options
    assert options.outcomes == ["visit=0,1", "spend=number:0..200", "score=0..3"]
    assert options.baseline == ["visit=0.3", "spend=mean:3,std:12", "score_observed=0.9"]
    assert options.missing == ["score"]
    assert options.breakdown is None
    assert options.contact is None
    assert options.arm_shares == ["0=0.5", "1=0.5"]
    request = parse(options)
    assert request.primary == "spend"
    assert request.provenance.units == "customers"
    assert request.budget.optimize_for is None


def test_paths_are_relative_to_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent.parent)
    named = f"{file.parent.name}/experiment.toml"
    options = ExperimentFile.read(named).options
    assert options.input == f"{file.parent.name}/t.parquet"
    assert options.out == f"{file.parent.name}/published"
    monkeypatch.chdir(file.parent)
    assert ExperimentFile.read("experiment.toml").options.input == "t.parquet"


WRONG = {
    "unknown section": ("[analysis]", "[analysys]", "line 15: there is no section 'analysys'"),
    "unknown key": ("epsilon =", "epsilom =", "line 21: there is no key 'epsilom' in [privacy]"),
    "its nearest name": ("epsilon =", "epsilom =", "Did you mean epsilon?"),
    "wrong type": ("epsilon = 2", 'epsilon = "two"', "line 21: epsilon must be a number"),
    "out of range": ("epsilon = 2", "epsilon = -2", "line 21: epsilon must be a finite number"),
    "syntax": ("epsilon = 2", "epsilon = ", "line 21: this is not TOML"),
    "type of outcome": ('"count"', '"counts"', "line 13: type of 'score' must be one of binary"),
    "key of outcome": ("max = 3", "maximum = 3", "line 13: 'score' of type count has no key"),
    "no key of outcome": (
        "max = 3, ",
        "",
        "line 13: 'score' of type count needs max, as in max = 5",
    ),
    "name in a constraint": (
        "breakdowns = []",
        'constraints = ["spend > 0 -> visits"]',
        "line 17: constraint 'spend > 0 -> visits' uses 'visits', which is not a declared outcome",
    ),
    "name in a metric": (
        "breakdowns = []",
        'metrics = ["spent > 0"]',
        "line 17: 'spent>0' uses 'spent', which is not a declared outcome. Did you mean 'spend'?",
    ),
    "too many values": (
        "max = 3",
        "max = 200",
        "line 13: outcome",
    ),
    "its fix": (
        "max = 3",
        "max = 200",
        "Fix: declare 'score' as type = \"number\", range = [0, 200]",
    ),
    "source": ("t.parquet", "u.parquet", "line 3: there is no file"),
    "ledger": (
        "epsilon = 2",
        'epsilon = 2\nledger = "no.db"\npopulation = "us"',
        "line 22: There is no ledger",
    ),
    "range": ("[0, 200]", "[0]", "line 12: range of 'spend' must be two numbers"),
    "empty range": (
        "[0, 200]",
        "[200, 0]",
        "allowed values of 'spend': a number needs",
    ),
    "baseline": ("sd = 12", "std = 12", "line 12: baseline of 'spend' must be a number, a list"),
    "no type": ('{ type = "binary", baseline = 0.3 }', "1", "line 11: 'visit' needs a type"),
    "open range": ("[0, 200]", "[]", "line 12: fill in range of 'spend'"),
    "open epsilon": ("epsilon = 2", 'epsilon = "?"', "line 21: fill in epsilon"),
    "open unit": ('unit = "user"', 'unit = ""', "line 4: fill in unit"),
    "column": ('unit = "user"', 'unit = "usr"', "Did you mean 'user'?"),
    "arm": ('arm = "treated"', 'arm = "treatd"', "line 6: There is no column 'treatd'"),
    "no label": ('arm = "treated"', 'arm = "treated"\ncontrol = []', "line 7: control"),
    "primary": ('primary = "spend"', 'primary = "sale"', "line 16: primary must be one of"),
    "no unit": ('unit = "user"\n', "", "missing: unit under [table]"),
    "one column twice": ('arm = "treated"', 'arm = "user"', "column 'user' has two parts"),
    "shares": ("1 = 0.5", "2 = 0.5", "line 8: shares under [table] must name each"),
}


@pytest.mark.parametrize(("right", "wrong", "message"), WRONG.values(), ids=WRONG)
def test_errors_name_the_line(right: str, wrong: str, message: str, file: Path) -> None:
    file.write_text(FILE.replace(right, wrong))
    planned = run("plan", file)
    refused = planned if planned.exit_code else run("release", file)
    assert_refused(refused, message)
    assert not (file.parent / "published").exists()


def test_errors_say_what_was_not_done(file: Path) -> None:
    """And how to go on, in a line of its own."""
    file.write_text(FILE.replace('arm = "treated"', 'arm = "treatd"'))
    shown = run("plan", file, width=200).stderr
    assert f"error: {file}, line 6: there is no column 'treatd' to use as arm" in shown
    assert "\n\n  No outcome was read, and nothing was written.\n  Did you mean 'treated'?" in shown
    shown = run("plan", file.with_name("no.toml"), width=200).stderr
    assert shown.endswith("\n  Fix: check its name, or draft one: clusterdp init TABLE\n")
    shown = run("release", file, width=200).stderr
    assert shown.count("Nothing was published.") == 1


def test_every_open_entry_is_named(file: Path) -> None:
    file.write_text(FILE.replace("[0, 200]", "[]").replace("epsilon = 2", 'epsilon = "?"'))
    refused = run("plan", file)
    assert "line 12: fill in range of 'spend'" in refused.stderr
    assert "Also open: epsilon (line 21)." in refused.stderr
    assert not file.with_suffix(".lock").exists()


def test_a_file_is_planned_and_published(file: Path) -> None:
    assert_refused(run("release", file), "experiment.lock is missing")
    planned = run("plan", file)
    assert planned.exit_code == 0, planned.output
    assert f"Wrote {file.with_suffix('.lock')}" in planned.stdout
    assert f"Next: clusterdp release {file}" in planned.stdout
    released = run("release", file)
    assert released.exit_code == 0, released.output
    release = cdp.read_release(file.parent / "published")
    assert release.guarantee.epsilon <= 2
    assert '"unit_name": "customer"' in (file.parent / "published/manifest.json").read_text()


def test_a_file_that_changed_is_planned_again(file: Path) -> None:
    cdp.plan(file).save()
    file.write_text(FILE.replace("epsilon = 2", "epsilon = 3"))
    with pytest.raises(cdp.ParameterError, match="changed after it was planned"):
        cdp.publish(file)
    assert_refused(run("release", file), f"Plan again: clusterdp plan {file}")
    cdp.plan(file).save()
    assert cdp.publish(file).read().guarantee.epsilon > 2.9


def test_options_override_the_file_in_plan_and_conflict_in_release(file: Path) -> None:
    planned = run("plan", file, "--epsilon", 1)
    assert "note: --epsilon: in" in planned.stdout
    refused = run("release", file, "--epsilon", 1)
    assert_refused(refused, "--epsilon conflicts with experiment.lock (ε = 1)")
    with pytest.raises(cdp.ParameterError, match="epsilon conflicts with"):
        cdp.publish(file, epsilon=1)
    released = run("release", file, "--out", file.parent / "other")
    assert released.exit_code == 0, released.output
    assert cdp.read_release(file.parent / "other").guarantee.epsilon <= 1


def test_an_effect_to_find_takes_the_place_of_the_budget(file: Path) -> None:
    """It is an effect on the primary metric, of which 200 is the largest there can be."""
    weak, strong = (cdp.plan(file, mde=effect).options.epsilon or 0 for effect in (20, 5))
    assert 0 < weak < strong


def test_a_plan_by_flags_can_be_kept_as_a_file(file: Path) -> None:
    table, kept = file.parent / "t.parquet", file.parent / "kept" / "mine.toml"
    kept.parent.mkdir()
    flags = ("--unit", "user", "--arm", "treated", "--outcome", "visit=0,1")
    planned = run("plan", table, *flags, "--epsilon", 1, "--out", kept)
    assert planned.exit_code == 0, planned.output
    assert f"Wrote {kept} and {kept.with_suffix('.lock')}" in planned.stdout
    released = run("release", kept, "--out", file.parent / "out")
    assert released.exit_code == 0, released.output
    again = run("plan", table, *flags, "--epsilon", 1, "--out", kept)
    assert_refused(again, "mine.toml exists, and was left as it is")
    odd = run("plan", table, *flags, "--epsilon", 1, "--out", file.parent / "plan.lock")
    assert_refused(odd, "--out writes an experiment file, got 'plan.lock'; name it .toml")


@pytest.mark.parametrize(
    ("typed", "flags", "published"),
    [("y", (), True), ("n", (), False), ("", (), False), ("n", ("--yes",), True)],
)
def test_a_terminal_is_asked(
    typed: str,
    flags: tuple[str, ...],
    published: bool,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("plan", file)
    monkeypatch.setattr("clusterdp.cli.owner.on_terminal", lambda: True)
    released = run("release", file, *flags, typed=f"{typed}\n")
    assert (file.parent / "published").exists() == published
    assert released.exit_code == (0 if published else 2)
    # On standard error, so that it is seen where the output goes to a file.
    assert ("Publish? [y/N]" in released.stderr) != bool(flags)
    assert "Publish?" not in released.stdout
    assert ("Nothing was published." in released.stdout) != published


def test_an_answer_that_is_none_is_asked_for_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("plan", file)
    monkeypatch.setattr("clusterdp.cli.owner.on_terminal", lambda: True)
    released = run("release", file, typed="maybe\ny\n")
    assert "Answer y (yes) or n (no)." in released.stderr
    assert released.stderr.count("Publish? [y/N]") == 2
    assert (file.parent / "published").exists()


def test_the_owner_is_asked_wherever_the_output_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert on_terminal()


def test_a_script_is_not_asked(file: Path) -> None:
    run("plan", file)
    released = run("release", file)
    assert released.exit_code == 0
    assert "Publish?" not in released.stdout
