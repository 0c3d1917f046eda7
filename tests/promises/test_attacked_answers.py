"""Attacks on follow-ups and answers, by analysts, by mishaps of owners, and by copies."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
import pytest

import clusterdp as cdp
from asked_answers import Experiment, make_experiment
from clusterdp.errors import ClusterDPError
from clusterdp.ledger.reservation import Reservation
from clusterdp.owner.answers import AnswerJob, run_answer
from clusterdp.published.followup import new_followup, write_followup
from forging import forge

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from clusterdp.owner.answering import AnswerPreview


@pytest.fixture
def experiment(tmp_path: Path, rng: np.random.Generator) -> Experiment:
    return make_experiment(tmp_path, rng)


def ask_anything(experiment: Experiment, labels: pl.DataFrame, **changed: Any) -> None:
    """Write a follow-up as an analyst can who does not use `ask`."""
    release = cdp.read_release(experiment.published).manifest_sha256
    asked = new_followup(
        str(release), ((labels.columns[1],),), metrics=None, found_in_fold=None, reason=""
    )
    asked = msgspec.structs.replace(asked, **changed)
    write_followup(experiment.folder / "made", asked, labels, "unit")


def test_copies_of_an_answer_are_one(experiment: Experiment) -> None:
    """They share their noise: two would look more precise than they are."""
    experiment.ask()
    experiment.answer()
    shutil.copytree(experiment.folder / "answer", experiment.folder / "copy")
    once = experiment.estimate("answer", by="tier")
    twice = experiment.estimate("answer", "copy", "answer", by="tier")
    assert str(once) == str(twice)


def test_other_people_in_a_table_of_the_same_sizes_are_rejected(experiment: Experiment) -> None:
    """Of a chain of batches, they could lose more than the ledger says."""
    experiment.ask(segments=experiment.labels.filter(pl.col("tier") != "basic"))
    asked = pl.read_parquet(experiment.folder / "followup" / "labels.parquet")["user"]
    place = experiment.folder / "other.parquet"
    others = (
        pl.when(pl.col("user").is_in(asked.implode())).then("user").otherwise(-1 - pl.col("user"))
    )
    experiment.table.with_columns(user=others).write_parquet(place)
    with pytest.raises(ClusterDPError, match="other ids than the release"):
        experiment.answer(table=str(place))
    # The same people in other arms would be in other totals.
    first, second = (experiment.table.filter(pl.col("market") == 0, treated=arm) for arm in (0, 1))
    unasked = pl.col("user").is_in(asked.implode()).not_()
    ids = [one.filter(unasked)["user"][0] for one in (first, second)]
    moved = pl.when(pl.col("user").is_in(ids)).then(1 - pl.col("treated")).otherwise("treated")
    experiment.table.with_columns(treated=moved).write_parquet(place)
    with pytest.raises(ClusterDPError, match="or in other arms"):
        experiment.answer(table=str(place))
    assert experiment.spent() == 2.0
    experiment.answer()


def test_a_release_that_was_moved_has_to_be_named(experiment: Experiment) -> None:
    experiment.ask()
    moved = experiment.published.rename(experiment.folder / "moved")
    with pytest.raises(ClusterDPError, match=r"is not at .*published any more.*\(release="):
        experiment.answer()
    assert experiment.spent() == 2.0
    experiment.answer(release=moved)


def test_a_dry_run_finishes_nothing(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.ask()
    with monkeypatch.context() as patched:
        patched.setattr(Reservation, "seal", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            experiment.answer()
    job = AnswerJob(
        followup=str(experiment.folder / "followup"),
        epsilon=0.5,
        out=str(experiment.folder / "answer"),
        ledger=experiment.ledger,
    )
    with pytest.raises(ClusterDPError, match="is unfinished"):
        run_answer(job, publishes=False)
    assert not (experiment.folder / "answer").exists()
    assert experiment.answer(epsilon=3).folder
    assert experiment.spent() == 2.5


def test_a_followup_that_changes_after_the_preview_is_answered_as_it_was_shown(
    experiment: Experiment,
) -> None:
    """An analyst who can write it cannot exchange it while the owner reads what it costs."""
    asked = experiment.ask()
    experiment.ask("other", by="region")
    shown: list[dict[str, Any]] = []

    def exchange(preview: AnswerPreview) -> None:
        shown.append(preview.content)
        shutil.rmtree(experiment.folder / "followup")
        shutil.move(experiment.folder / "other", experiment.folder / "followup")

    job = AnswerJob(
        followup=str(experiment.folder / "followup"),
        epsilon=0.5,
        out=str(experiment.folder / "answer"),
        ledger=experiment.ledger,
    )
    run_answer(job, show=exchange)
    answer = cdp.read_release(experiment.folder / "answer")
    assert answer.answers is not None
    (breakdown,) = answer.layout.breakdowns
    assert [shown[0]["followup"], shown[0]["dimensions"]] == [answer.answers.followup, ["tier"]]
    assert breakdown.columns == asked.followup.dimensions[0] == ("tier",)


def test_what_was_withdrawn_is_not_answered(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.ask()
    experiment.ask("another")
    experiment.ask("begun")
    release_id = experiment.answer().release_id
    with monkeypatch.context() as patched:
        patched.setattr(Reservation, "seal", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            experiment.answer("begun", "again")
    (begun,) = (one for one in experiment.ledger.releases() if one.is_unfinished)
    experiment.ledger.withdraw(str(release_id))
    with pytest.raises(ClusterDPError, match="answered this follow-up, and was withdrawn"):
        experiment.answer(out="again")
    (released,) = (one for one in experiment.ledger.releases() if one.answers is None)
    experiment.ledger.withdraw(released.release_id)
    with pytest.raises(ClusterDPError, match="which the follow-up is about, was withdrawn"):
        experiment.answer("another", "again")
    with pytest.raises(ClusterDPError, match="which the follow-up is about, was withdrawn"):
        cdp.resume(begun.release_id, ledger=experiment.ledger)
    assert not (experiment.folder / "again").exists()
    assert experiment.spent() == 3.0


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("tier", {"metrics": ()}),
        ("tier", {"reason": "x" * 501}),
        ("fold", {}),
        ("question", {}),
        ("response", {}),
        ("__clusterdp_id", {}),
        ("__clusterdp_row", {}),
    ],
)
def test_a_hostile_followup_is_rejected_before_the_table_is_read(
    name: str, changed: dict[str, Any], experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.ask()
    ask_anything(
        experiment, experiment.labels.select("user", pl.col("tier").alias(name)), **changed
    )
    monkeypatch.setattr("clusterdp.owner.answering.prepare", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(ClusterDPError):
        experiment.answer("made")


def test_labels_that_nobody_can_read_are_rejected(experiment: Experiment) -> None:
    """Or a folder of an answer would have a page of a megabyte for each group."""
    long = experiment.labels.select("user", tier=pl.concat_str(pl.lit("x" * 501), "tier"))
    with pytest.raises(ClusterDPError, match="have more than 500 characters"):
        experiment.ask(segments=long)
    ask_anything(experiment, long)
    with pytest.raises(ClusterDPError, match="has labels that cannot be shown"):
        experiment.answer("made")


def test_many_dimensions_are_counted_soon(experiment: Experiment) -> None:
    """Each more part of an answer would double the losses that composition has to look at."""
    many = experiment.labels.select("user", *(pl.col("tier").alias(f"t{n}") for n in range(40)))
    ask_anything(experiment, many, dimensions=tuple((name,) for name in many.columns[1:]))
    begun = time.process_time()
    experiment.answer("made")
    assert time.process_time() - begun < 30
    assert experiment.spent() == 2.5


def test_labels_cannot_stand_for_columns_that_clusters_are_crossed_from(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    table = make_experiment(tmp_path / "first", rng).table
    crossed = tmp_path / "crossed.parquet"
    table.with_columns(zone=pl.col("user") % 2).write_parquet(crossed)
    options: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"visit": "0,1"}}
    made = cdp.publish(
        str(crossed), out=tmp_path / "published", cluster=["market", "zone"], epsilon=2, **options
    )
    labels = table.select("user", zone=pl.col("market").cast(pl.String))
    with pytest.raises(ClusterDPError, match="Labels cannot be called 'zone'"):
        cdp.ask(made.folder, by="zone", segments=labels, out=tmp_path / "followup")


def test_there_is_no_fold_to_name_without_folds(tmp_path: Path, rng: np.random.Generator) -> None:
    experiment = make_experiment(tmp_path, rng, folds=1)
    assert cdp.read_release(experiment.published).layout.folds == 1
    with pytest.raises(ClusterDPError, match="There is no fold 0"):
        experiment.ask(found_in_fold=0)


def test_an_answer_cannot_hide_where_segments_were_found(experiment: Experiment) -> None:
    experiment.ask(found_in_fold=1)
    experiment.answer()
    forge(experiment.folder / "answer", lambda one: one["answers"].update(found_in_fold=None))
    with pytest.raises(ClusterDPError, match="not what was answered"):
        experiment.estimate("answer", by="tier")


def test_an_answer_about_groups_of_other_sizes_is_rejected(experiment: Experiment) -> None:
    """As if groups were exchanged: the manifest says nothing else of who is in them."""
    experiment.ask()
    experiment.answer()
    forge(experiment.folder / "answer", lambda one: one["breakdowns"][0]["sizes"].reverse())
    with pytest.raises(ClusterDPError, match="groups of totals differ in size"):
        experiment.estimate("answer", by="tier")
