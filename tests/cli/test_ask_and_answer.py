"""`clusterdp ask`, `clusterdp answer`, and folders of answers in other commands."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from asked_answers import Experiment, make_experiment
from cli_runs import assert_refused, run
from clusterdp.cli import answers

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


@pytest.fixture
def experiment(tmp_path: Path, rng: np.random.Generator) -> Experiment:
    made = make_experiment(tmp_path, rng)
    made.labels.write_csv(tmp_path / "crm.csv")
    return made


def asked(experiment: Experiment, *more: str) -> str:
    folder = experiment.folder
    words = (
        "--segments",
        str(folder / "crm.csv"),
        "--by",
        "tier",
        "--out",
        str(folder / "followup"),
    )
    result = run("ask", str(experiment.published), *words, *more)
    assert result.exit_code == 0, result.output
    return result.output


def paid(experiment: Experiment, *more: str) -> list[str]:
    folder = experiment.folder
    words = ["--epsilon", "0.5", "--ledger", str(folder / "budget.db")]
    return ["answer", str(folder / "followup"), *words, "--out", str(folder / "answer"), *more]


def test_from_a_question_to_an_estimate(experiment: Experiment) -> None:
    said = asked(experiment, "--reason", "which tier to target")
    assert "the owner will see these labels" in " ".join(said.split())
    assert all(word in said for word in ("ε = 0.05", "ε = 0.5", "now", "no privacy"))
    answered = run(*paid(experiment, "--yes"))
    assert answered.exit_code == 0, answered.output
    words = " ".join(answered.output.split())
    assert "spends 0.5 of the 8 remaining" in words
    assert "which tier to target" in words
    folder = str(experiment.folder / "answer")
    estimated = run("estimate", str(experiment.published), "--answer", folder, "--by", "tier")
    assert estimated.exit_code == 0, estimated.output
    assert "ε = 2.5" in estimated.output
    assert "gold" in estimated.output
    again = run(*paid(experiment, "--yes"))
    assert again.exit_code == 0, again.output
    assert "was answered before" in " ".join(again.output.split())
    shown = run("ledger", "show", str(experiment.folder / "budget.db")).output
    assert "(answers " in shown
    assert experiment.spent() == 2.5


def test_a_dry_run_spends_nothing(experiment: Experiment) -> None:
    asked(experiment)
    result = run(*paid(experiment, "--dry-run", "--json"))
    plan = json.loads(result.output)["plan"]
    assert plan["n_groups"] == 3
    assert all(one["std_error"] < one["std_error_now"] for one in plan["expected"])
    assert experiment.spent() == 2.0
    assert not (experiment.folder / "answer").exists()


def test_an_owner_who_says_no_spends_nothing(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(experiment)
    monkeypatch.setattr(answers, "on_terminal", lambda: True)
    monkeypatch.setattr(answers, "confirmed", lambda _: False)
    result = run(*paid(experiment))
    assert result.exit_code == 2
    assert "Nothing was published." in result.output
    assert experiment.spent() == 2.0


def test_folders_of_answers(experiment: Experiment) -> None:
    asked(experiment)
    assert run(*paid(experiment, "--yes")).exit_code == 0
    folder, published = str(experiment.folder / "answer"), str(experiment.published)
    verified = run("verify", folder, "--release", published)
    assert verified.exit_code == 0, verified.output
    assert "the answer is about this release" in verified.output
    inspected = run("inspect", folder)
    assert "Follow-up" in inspected.output
    assert "`" not in inspected.output
    assert "estimate RELEASE --answer" in inspected.output
    assert run("inspect", folder, "-v").exit_code == 0
    assert json.loads(run("inspect", folder, "--json").output)["answers"]["n_pooled"] == [0]
    assert_refused(run("estimate", folder), "This folder answers a follow-up")


def test_another_release_is_found_by_verify(
    experiment: Experiment, tmp_path: Path, rng: np.random.Generator
) -> None:
    asked(experiment)
    assert run(*paid(experiment, "--yes")).exit_code == 0
    other = make_experiment(tmp_path / "other", rng)
    folder = str(experiment.folder / "answer")
    result = run("verify", folder, "--release", str(other.published))
    assert result.exit_code != 0
    said = " ".join(result.output.split())
    assert "is about another release" in said
    assert "Next: check the folders that you gave with it." in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "planet"), "No column 'planet'"),
        (("--by", "tier", "--metric", "age"), "There is no metric 'age' to ask for"),
        (("--by", "tier", "--found-in-fold", "7"), "There is no fold 7"),
        (("--by", "market"), "the release has a column of that name"),
        (("--by", "fold"), "Labels cannot be called 'fold'"),
    ],
)
def test_what_cannot_be_asked(words: tuple[str, ...], said: str, experiment: Experiment) -> None:
    folder = experiment.folder
    given = ("--segments", str(folder / "crm.csv"), "--out", str(folder / "followup"))
    assert_refused(run("ask", str(experiment.published), *given, *words), said)
    assert not (folder / "followup").exists()


def test_a_followup_is_not_written_over(experiment: Experiment) -> None:
    asked(experiment)
    result = run(
        "ask", str(experiment.published), "--segments", str(experiment.folder / "crm.csv"),
        "--by", "tier", "--out", str(experiment.folder / "followup"),
    )  # fmt: skip
    assert_refused(result, "exists already")


@pytest.mark.parametrize("command", ["inspect", "verify", "estimate", "ask"])
def test_a_followup_is_not_taken_for_a_release(command: str, experiment: Experiment) -> None:
    asked(experiment)
    more = {"ask": ["--by", "tier", "--out", "again"]}.get(command, [])
    result = run(command, str(experiment.folder / "followup"), *more)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert re.search(r"is a follow-up\.? A release or an answer was expected", said)
    assert "Get it again" not in said


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("published", "Fix: give the folder that clusterdp ask wrote"),
        ("none", "There is no folder"),
    ],
)
def test_what_cannot_be_answered(folder: str, said: str, experiment: Experiment) -> None:
    asked(experiment)
    command = paid(experiment, "--yes")
    command[1] = str(experiment.folder / folder)
    assert_refused(run(*command), said)
    assert experiment.spent() == 2.0


def test_a_damaged_copy_of_a_followup_is_passed_over(experiment: Experiment) -> None:
    asked(experiment)
    assert run(*paid(experiment, "--yes")).exit_code == 0
    copy = shutil.copytree(experiment.folder / "followup", experiment.folder / "copied")
    (copy / "labels.parquet").write_bytes(b"")
    words = ("--answer", str(experiment.folder / "answer"), "--by", "tier")
    found = run("estimate", str(experiment.published), *words)
    assert found.exit_code == 0, found.output
    shutil.rmtree(experiment.folder / "followup")
    assert_refused(
        run("estimate", str(experiment.published), *words), "is not what the follow-up was written"
    )


def test_an_estimate_speaks_of_labels_where_there_is_no_table(experiment: Experiment) -> None:
    asked(experiment, "--found-in-fold", "0")
    assert run(*paid(experiment, "--yes")).exit_code == 0
    words = ("--answer", str(experiment.folder / "answer"), "--by", "tier")
    said = " ".join(run("estimate", str(experiment.published), *words).output.split())
    assert "released ids are not in the labels of the follow-up" in said
    assert "segments table" not in said


def test_a_ledger_says_that_a_folder_is_in_it_and_takes_short_ids(experiment: Experiment) -> None:
    ledger, folder = str(experiment.folder / "budget.db"), str(experiment.published)
    checked = run("ledger", "verify", ledger, "--folder", folder)
    assert checked.exit_code == 0, checked.output
    assert "is in it, and not withdrawn." in checked.output
    release_id = experiment.ledger.releases()[0].release_id
    assert_refused(run("ledger", "withdraw", ledger, release_id[:7]), "has no release")
    withdrawn = run("ledger", "withdraw", ledger, release_id[:8])
    assert withdrawn.exit_code == 0, withdrawn.output
    assert run("ledger", "verify", ledger, "--folder", folder).exit_code == 2


def test_a_release_without_a_ledger_cannot_be_answered(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """The analyst learns it before the owner does."""
    made = make_experiment(tmp_path, rng, ledger=None, population=None)
    said = "No ledger paid for this release, so its owner cannot answer."
    assert said in made.ask().notes
    paid_for = make_experiment(tmp_path / "paid", rng)
    assert said not in paid_for.ask().notes
