"""Answers to follow-ups: paid once, drawn once, bound to their release, and no label in them."""

from __future__ import annotations

import json
import threading
import warnings
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from asked_answers import Experiment, make_experiment
from clusterdp.errors import ClusterDPError, OwnerNotice
from clusterdp.ledger import ledger as ledger_module
from clusterdp.ledger.reservation import Reservation
from clusterdp.published.folder import read_manifest
from clusterdp.published.overview import owners_words
from clusterdp.published.verification import verify_folder
from clusterdp.releasing.journal import unpack_entry
from forging import forge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def experiment(tmp_path: Path, rng: np.random.Generator) -> Experiment:
    return make_experiment(tmp_path, rng)


def problems(folder: Path) -> list[str]:
    return [f"{one.name}: {one.problem}" for one in verify_folder(folder) if one.problem]


def answered_once(experiment: Experiment) -> bool:
    """Whether a follow-up that is answered twice has one draw, paid once."""
    before = experiment.spent()
    first = experiment.answer()
    again = experiment.answer(out="again")
    drawn = [pl.read_parquet(f"{one.folder}/totals.parquet") for one in (first, again)]
    paid = round(experiment.spent() - before, 3) == 0.5
    return paid and drawn[0].equals(drawn[1]) and experiment.ledger.verify() == []


def test_the_same_followup_has_the_same_answer(experiment: Experiment) -> None:
    experiment.ask()
    assert answered_once(experiment)
    assert not (experiment.folder / "again").exists()


def test_an_answer_that_is_drawn_again_would_be_found(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: nobody looks for an earlier answer."""
    experiment.ask()
    monkeypatch.setattr(ledger_module, "refuse_answered", lambda *_: None)
    monkeypatch.setattr("clusterdp.owner.answers.refuse_answered", lambda *_: None)
    assert not answered_once(experiment)


def test_other_followups_add_up(experiment: Experiment) -> None:
    for number in range(2):
        experiment.ask(f"followup{number}")
        experiment.answer(f"followup{number}", f"answer{number}")
    assert experiment.spent() == 3.0
    totals = [experiment.totals(f"answer{number}") for number in range(2)]
    assert not totals[0].equals(totals[1])
    assert "answers" in str(experiment.ledger.show())


def test_an_answer_beyond_the_cap_reads_nothing(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.ask()
    monkeypatch.setattr(
        "clusterdp.releasing.prepare.OpenTable.count", lambda *_: pytest.fail("it was read")
    )
    with pytest.raises(ClusterDPError, match="not enough budget for 'users'"):
        experiment.answer(epsilon=9)
    assert experiment.spent() == 2.0
    assert not (experiment.folder / "answer").exists()


class KilledError(BaseException):
    """The end of a process, which cleans up nothing."""


STEPS = [
    ("keep", "before"),
    ("keep", "after"),
    ("seal", "before"),
    ("seal", "after"),
    ("commit", "before"),
]


@pytest.mark.parametrize(("step", "when"), STEPS)
@pytest.mark.parametrize("how", ["answer", "resume"])
def test_a_killed_answer_is_finished_with_the_same_draw(
    step: str, when: str, how: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.ask()
    kept: list[bytes] = []
    honest, keep = getattr(Reservation, step), Reservation.keep

    def note(self: Reservation, event: Any, drawn: bytes) -> None:
        kept.append(drawn)
        keep(self, event, drawn)

    def kill(self: Reservation, *given: Any) -> None:
        if when == "after":
            (note if step == "keep" else honest)(self, *given)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Reservation, "keep", note)
        patched.setattr(Reservation, step, kill)
        with pytest.raises(KilledError):
            experiment.answer()
    assert experiment.spent() == 2.5
    (record,) = (one for one in experiment.ledger.releases() if one.answers)
    with monkeypatch.context() as patched:
        patched.setattr(Reservation, "keep", note)
        if how == "answer":
            finished = experiment.answer(epsilon=3)  # what was reserved counts
        else:
            finished = cdp.resume(record.release_id, ledger=experiment.ledger)
    assert finished.release_id == record.release_id
    (drawn,) = kept  # nothing is drawn after something was written down
    sums = unpack_entry(drawn)[0]["0.0.noisy_sum"]
    published = np.array(experiment.totals()["noisy_sum_in_units"].to_list())
    assert np.array_equal(sums.reshape(published.shape), published)
    assert experiment.spent() == 2.5
    assert experiment.ledger.verify() == []
    assert problems(experiment.folder / "answer") == []
    assert experiment.estimate("answer", by="tier").effects


def test_an_answer_that_was_closed_stays_spent(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its noise is deleted and was never published. Another one costs again."""
    experiment.ask()

    def kill(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Reservation, "seal", kill)
        with pytest.raises(KilledError):
            experiment.answer()
    (closed,) = (one for one in experiment.ledger.releases() if one.is_unfinished)
    experiment.ledger.close(closed.release_id)
    assert experiment.answer().release_id != closed.release_id
    assert experiment.spent() == 3.0
    assert experiment.ledger.verify() == []


def test_owners_who_answer_at_once_spend_once(experiment: Experiment) -> None:
    experiment.ask()
    barrier, failed = threading.Barrier(2), list[BaseException]()

    def run(out: str) -> None:
        barrier.wait()
        try:
            experiment.answer(out=out)
        except ClusterDPError as error:  # the other one is at work on it
            failed.append(error)

    threads = [threading.Thread(target=run, args=(out,)) for out in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert experiment.spent() == 2.5
    answers = [one for one in experiment.ledger.releases() if one.answers]
    assert len(answers) == 1
    if answers[0].is_unfinished:
        experiment.answer(out="three")
    published = [out for out in ("one", "two", "three") if (experiment.folder / out).exists()]
    assert len(published) == 1
    assert problems(experiment.folder / published[0]) == []


def test_labels_are_not_in_an_answer(experiment: Experiment) -> None:
    """Their sizes are, and a checksum that a key belongs to; the key is not."""
    experiment.ask(reason="for the board")
    experiment.answer()
    folder = experiment.folder / "answer"
    held = b"".join(path.read_bytes() for path in folder.iterdir())
    asked = msgspec.json.decode((experiment.folder / "followup" / "followup.json").read_bytes())
    assert asked["key"].encode() not in held
    assert bytes.fromhex(asked["key"]) not in held
    manifest = read_manifest(folder)
    assert manifest.answers is not None
    assert manifest.answers.followup != manifest.answers.release
    assert not list(folder.glob("*units*"))
    assert not list(folder.glob("*labels*"))


# Labels that select by true outcomes, and what an analyst asks for with them.
STOLEN: dict[str, tuple[pl.Expr, str | None]] = {
    "a copy": (pl.format("visit {}", "visit"), "visit"),
    "one value alone": (pl.when(pl.col("visit") == 1).then(pl.lit("yes")), "visit"),
    "one of two outcomes": (pl.format("visit {}", "visit"), None),
    "a range of a number": (pl.when(pl.col("spend") > 0).then(pl.lit("spent")), "spend"),
}


def points_out(experiment: Experiment, case: str) -> bool:
    """Whether the owner is asked where labels from true outcomes come from."""
    made, metrics = STOLEN[case]
    stolen = experiment.table.select("user", tier=made)
    experiment.ask(segments=stolen, metrics=metrics)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        experiment.answer()
    said = "labels by 'tier' almost certainly come from true outcomes of"
    return any(issubclass(one.category, OwnerNotice) and said in str(one.message) for one in caught)


@pytest.mark.parametrize("case", STOLEN)
def test_labels_from_true_outcomes_are_pointed_out(case: str, experiment: Experiment) -> None:
    """They do not pass silently: the owner is asked where they come from."""
    assert points_out(experiment, case)


def test_planted_labels_from_true_outcomes_that_pass_silently_are_found(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: nobody compares labels with outcomes."""
    monkeypatch.setattr("clusterdp.engines.local.table.KeptColumns.add", lambda *_: None)
    assert not points_out(experiment, "a copy")


def test_labels_that_follow_from_nothing_pass_silently(
    experiment: Experiment, recwarn: pytest.WarningsRecorder
) -> None:
    """The same net, where it must not catch: a false alarm is rarer than one in 10^8 tables."""
    experiment.ask()
    experiment.answer()
    assert [one for one in recwarn if issubclass(one.category, OwnerNotice)] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.head(1100), "the table is not the one that was released"),
        (
            lambda table: table.with_columns(user=pl.col("user") + 10**6),
            "the table has other ids or arms than the release",
        ),
        (
            lambda table: table.with_columns(treated=1 - pl.col("treated")),
            "the table",
        ),
    ],
    ids=["fewer", "other ids", "other arms"],
)
def test_another_table_is_rejected_by_what_is_public(
    change: Any, said: str, experiment: Experiment
) -> None:
    experiment.ask()
    with pytest.raises(ClusterDPError, match=said):
        experiment.answer(table=change(experiment.table))
    assert experiment.spent() == 2.0


def test_a_rejection_does_not_depend_on_outcomes(experiment: Experiment) -> None:
    """Every outcome may change within its allowed values: the answer is made all the same."""
    experiment.ask()
    others = experiment.table.with_columns(
        visit=1 - pl.col("visit"), spend=20 * (1 - pl.col("visit"))
    )
    experiment.answer(table=others.with_columns(spend=pl.lit(0.0)))
    assert problems(experiment.folder / "answer") == []


def test_a_ledger_without_the_release_cannot_answer(experiment: Experiment, tmp_path: Path) -> None:
    experiment.ask()
    other = cdp.Ledger.create(tmp_path / "other.db", 10)
    with pytest.raises(ClusterDPError, match="the ledger has no release with the manifest"):
        experiment.answer(ledger=other)


def test_an_edited_followup_is_rejected(experiment: Experiment) -> None:
    asked = experiment.ask()
    path = experiment.folder / "followup" / "followup.json"
    path.write_bytes(path.read_bytes().replace(b'"tier"', b'"rank"'))
    with pytest.raises(ClusterDPError, match="was edited after it was written"):
        experiment.answer()
    assert asked.followup.names == ("tier",)
    assert experiment.spent() == 2.0


def test_labels_that_were_swapped_are_rejected(experiment: Experiment) -> None:
    experiment.ask()
    path = experiment.folder / "followup" / "labels.parquet"
    labels = pl.read_parquet(path)
    labels.with_columns(tier=pl.col("tier").reverse()).write_parquet(path)
    with pytest.raises(ClusterDPError, match="is not what the follow-up was written with"):
        experiment.answer()
    assert experiment.spent() == 2.0


def test_ids_of_others_are_rejected(experiment: Experiment) -> None:
    """A follow-up that was made by hand, with an id that the release does not have."""
    from clusterdp.published.followup import new_followup, write_followup

    release = cdp.read_release(experiment.published)
    asked = new_followup(
        release.manifest_sha256 or "", (("tier",),), metrics=None, found_in_fold=None, reason=""
    )
    labels = experiment.labels.select("user", "tier").with_columns(user=pl.col("user") + 10**6)
    write_followup(experiment.folder / "made", asked, labels, "unit")
    with pytest.raises(ClusterDPError, match="of ids that the release does not have"):
        experiment.answer("made")
    assert experiment.spent() == 2.0


def change_answers(**changed: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["answers"].update(changed)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(answers=None),
        change_answers(labels=[]),
        change_answers(labels=["tier"]),
        change_answers(release="elsewhere"),
        change_answers(found_in_fold=7),
        change_answers(n_labeled=[3]),
        change_answers(n_pooled=[-1]),
        lambda content: content["breakdowns"][0].update(
            labels=[["(not asked)"]], sizes=[[600, 600]]
        ),
    ],
    ids=["none", "no labels", "bare labels", "release", "fold", "too few", "pooled", "no group"],
)
def test_a_forged_answer_is_rejected(
    change: Callable[[dict[str, Any]], object], experiment: Experiment
) -> None:
    experiment.ask()
    experiment.answer()
    forge(experiment.folder / "answer", change)
    assert problems(experiment.folder / "answer")


def test_a_release_that_states_what_it_answers_is_rejected(experiment: Experiment) -> None:
    experiment.ask()
    experiment.answer()
    answers = json.loads((experiment.folder / "answer" / "manifest.json").read_bytes())["answers"]
    forge(experiment.published, lambda content: content.update(answers=answers))
    assert problems(experiment.published)


def test_what_nothing_checks_is_listed(experiment: Experiment) -> None:
    experiment.ask()
    experiment.answer()
    manifest = read_manifest(experiment.folder / "answer")
    assert "answers" in owners_words(manifest)


def test_an_answer_with_other_metrics_does_not_fit_its_release(experiment: Experiment) -> None:
    experiment.ask(metrics="visit")
    experiment.answer()
    forge(experiment.folder / "answer", change_answers(metrics=["spend"]))
    with pytest.raises(ClusterDPError, match="its outcomes are not those of the release"):
        experiment.estimate("answer", by="tier")


def test_what_is_shown_of_an_answer_leads_to_an_estimate(experiment: Experiment) -> None:
    experiment.ask()
    answered = experiment.answer()
    assert f"estimate(release, answers={answered.folder!r})" in repr(answered)
    assert "estimate(release, answers=" in repr(answered.read())
    published = cdp.read_release(experiment.published)
    assert "answers=" not in repr(published)


@pytest.mark.parametrize("wrong", [{"answers": 3}, {"followups": 3}, {"answers": ["answer", 3]}])
def test_answers_are_folders(wrong: dict[str, Any], experiment: Experiment) -> None:
    with pytest.raises(ClusterDPError, match="must be folders"):
        cdp.estimate(experiment.published, **wrong)
    experiment.ask()
    with pytest.raises(ClusterDPError, match="ledger must be a Ledger or its path"):
        experiment.answer(ledger=3)
