"""Estimates with answers to follow-ups: as precise as a breakdown, and of the units asked about."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from asked_answers import Experiment, draw_table, make_experiment
from clusterdp.errors import DataError, ParameterError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """A release of 6,000 units with two answers: by tier, and by region found in a fold."""
    made = make_experiment(tmp_path_factory.mktemp("asked"), np.random.default_rng(), 6000)
    made.ask(by=["tier", "tier,region"])
    made.answer(epsilon=1)
    made.ask("found", by="region", found_in_fold=0, metrics="visit")
    made.answer("found", "confirmed", epsilon=1)
    return made


def segments(estimate: cdp.Estimate, metric: str) -> dict[tuple[Any, ...], Any]:
    return {
        tuple(value for _, value in one.of.segment): one
        for one in estimate.effects
        if one.of.metric == metric and one.of.segment
    }


def truth(experiment: Experiment, metric: str, **of: Any) -> float:
    """The difference of means in a segment, from true outcomes; clusters aside."""
    whole = experiment.table.join(experiment.labels, on="user").filter(**of)
    means = dict(whole.group_by("treated").agg(pl.col(metric).mean()).iter_rows())
    return float(means[1] - means[0])


def test_an_answer_is_as_good_as_a_declared_breakdown(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """One table, released twice: the segment asked about later, and declared before.

    Standard errors follow from public numbers and from how outcomes spread, which both releases
    estimate from 20,000 units: over 60 pairs of releases the ratio varied by less than 0.03.
    """
    table = draw_table(rng, 20_000)
    table.write_parquet(tmp_path / "table.parquet")
    cdp.Ledger.create(tmp_path / "budget.db", 10)
    asked: dict[str, Any] = {
        "unit": "user",
        "arm": "treated",
        "cluster": "market",
        "outcomes": {"visit": "0,1"},
    }
    mechanism = cdp.optimal(epsilon=2, sums=cdp.SumShares(totals=0.05, noise_in_rows=64))
    cdp.publish(
        str(tmp_path / "table.parquet"),
        out=tmp_path / "published",
        mechanism=mechanism,
        ledger=tmp_path / "budget.db",
        population="users",
        **asked,
    )
    shares = cdp.SumShares(totals=0.1 / 2.5, breakdowns=((("tier",), 0.5 / 2.5),), noise_in_rows=64)
    cdp.publish(
        table,
        out=tmp_path / "declared",
        mechanism=cdp.optimal(epsilon=2.5, sums=shares),
        breakdown="tier",
        **asked,
    )
    cdp.ask(
        tmp_path / "published", by="tier", segments=table.select("user", "tier"), out=tmp_path / "f"
    )
    cdp.answer(tmp_path / "f", epsilon=0.5, ledger=tmp_path / "budget.db", out=tmp_path / "answer")
    later = segments(
        cdp.estimate(tmp_path / "published", answers=tmp_path / "answer", by="tier"), "visit"
    )
    before = segments(cdp.estimate(tmp_path / "declared", by="tier"), "visit")
    rows = segments(
        cdp.estimate(tmp_path / "published", segments=table.select("user", "tier"), by="tier"),
        "visit",
    )
    assert set(later) == set(before) == {("basic",), ("gold",), ("silver",)}
    for of, one in later.items():
        assert one.std_error == pytest.approx(before[of].std_error, rel=0.1)
        assert one.std_error < 0.9 * rows[of].std_error


def test_effects_are_of_the_asked_segments(experiment: Experiment) -> None:
    found = segments(experiment.estimate("answer", by="tier"), "visit")
    assert set(found) == {("basic",), ("gold",), ("silver",)}
    for (tier,), one in found.items():
        # Six standard errors of privacy and of how clusters are weighed, as many as make a false
        # alarm rarer than ALPHA.
        assert abs(one.effect - truth(experiment, "visit", tier=tier)) < 6 * one.std_error
        assert one.n_control + one.n_treated == len(experiment.labels.filter(tier=tier))


def test_crossed_segments_have_totals(experiment: Experiment) -> None:
    found = segments(experiment.estimate("answer", by="tier,region"), "visit")
    rows = segments(experiment.estimate(by="tier,region", segments=experiment.labels), "visit")
    assert set(found) == {
        (tier, region) for tier in ("basic", "gold", "silver") for region in ("north", "south")
    }
    assert all(one.std_error < 0.9 * rows[of].std_error for of, one in found.items())


def test_several_answers_are_used_at_once(experiment: Experiment) -> None:
    both = experiment.estimate("answer", "confirmed", by=["tier", "region"], metrics="visit")
    found = segments(both, "visit")
    alone = segments(experiment.estimate("confirmed", by="region", metrics="visit"), "visit")
    assert found["north",].std_error <= 1.05 * alone["north",].std_error
    assert both.guarantee is not None
    assert both.guarantee.epsilon == pytest.approx(4, abs=1e-3)


def test_a_metric_that_was_not_asked_for_is_as_by_rows(experiment: Experiment) -> None:
    asked = segments(experiment.estimate("confirmed", by="region", metrics="spend"), "spend")
    fold = experiment.estimate(by="region", segments=experiment.labels, metrics="spend", fold=1)
    rows = segments(fold, "spend")
    assert asked["north",].std_error == pytest.approx(rows["north",].std_error, rel=0.2)


def test_segments_found_in_a_fold_are_of_the_other_units(experiment: Experiment) -> None:
    estimate = experiment.estimate("confirmed", by="region", metrics="visit")
    assert any("were found in fold 0" in note for note in estimate.notes)
    released = pl.read_parquet(experiment.published / "units.parquet")
    others = released.filter(pl.col("fold") == 1).join(experiment.labels, on="user")
    sizes = dict(others.group_by("region").len().iter_rows())
    for (region,), one in segments(estimate, "visit").items():
        assert one.n_control + one.n_treated == sizes[region]


def test_labels_in_the_analysts_own_table_do_not_bring_the_fold_back(
    experiment: Experiment,
) -> None:
    """The follow-up's labels count, not those of all units that the analyst has as well."""
    own = experiment.labels.with_columns(age=pl.int_range(pl.len()) % 40)
    alone = experiment.estimate("confirmed", by="region", metrics="visit")
    both = experiment.estimate(
        "confirmed", by="region", metrics="visit", segments=own, adjust="age"
    )
    sizes = [
        [(one.n_control, one.n_treated) for one in segments(found, "visit").values()]
        for found in (alone, both)
    ]
    assert {*sizes[0]} <= {*sizes[1]}


def test_predictions_hold(experiment: Experiment) -> None:
    """What `ask` shows at an ε is what `estimate` finds, up to how the spread is estimated."""
    asked = experiment.ask("again", by="tier", metrics="visit")
    (expected,) = asked.forecast.predictions(1.0)
    names = [name for _, name, _ in asked.forecast.groups]
    experiment.answer("again", "predicted", epsilon=1)
    found = segments(experiment.estimate("predicted", by="tier", metrics="visit"), "visit")
    for name, prediction in zip(names, expected, strict=True):
        one = found[name.removeprefix("tier="),]
        assert one.std_error == pytest.approx(prediction.std_error, rel=0.2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"use": "rows"}, "Answers are noisy totals"),
        ({"answers": ["published"]}, "is a release, not an answer"),
    ],
)
def test_what_does_not_go_together_is_rejected(
    given: dict[str, Any], said: str, experiment: Experiment
) -> None:
    answers = [experiment.folder / one for one in given.pop("answers", ["answer"])]
    with pytest.raises((DataError, ParameterError), match=said):
        cdp.estimate(experiment.published, answers=answers, by="tier", **given)


def test_an_answer_is_no_release(experiment: Experiment) -> None:
    with pytest.raises(ParameterError, match="This folder answers a follow-up"):
        cdp.estimate(experiment.folder / "answer")
    with pytest.raises(ParameterError, match="This folder is an answer"):
        cdp.ask(experiment.folder / "answer", by="tier", out=experiment.folder / "x")


def test_an_answer_to_another_release_is_rejected(
    experiment: Experiment, tmp_path: Path, rng: np.random.Generator
) -> None:
    other = make_experiment(tmp_path / "other", rng)
    with pytest.raises(DataError, match="is about another release"):
        cdp.estimate(other.published, answers=experiment.folder / "answer", by="tier")


def test_labels_that_were_not_asked_about_are_rejected(
    experiment: Experiment, tmp_path: Path
) -> None:
    """The follow-up is found by its checksum; its labels must have that of the answer."""
    import shutil

    from clusterdp.published import followup

    shutil.copytree(experiment.folder / "answer", tmp_path / "answer")
    with pytest.raises(ParameterError, match="answers a follow-up that is not at hand"):
        cdp.estimate(experiment.published, answers=tmp_path / "answer", by="tier")
    held = experiment.folder / "followup"
    asked, _ = followup.read_followup(held)
    labels = followup.read_labels_of(held, asked)
    swapped = labels.with_columns(tier=pl.col("tier").reverse())
    assert asked.checksums(swapped) != asked.checksums(labels)
    assert asked.checksums(labels.reverse()) == asked.checksums(labels)


def test_checksums_do_not_confuse_texts() -> None:
    """Ids and labels that read alike one after another are different labels."""
    from clusterdp.published.followup import new_followup

    asked = new_followup("0" * 64, (("x",),), metrics=None, found_in_fold=None, reason="")
    tables: list[dict[str, Any]] = [
        {"id": ["a", "b"], "x": ["1", "2"]},
        {"id": ["a", "b"], "x": ["12", ""]},
        {"id": ["a1", "b"], "x": ["", "2"]},
        {"id": ["a", "b"], "x": ["1", None]},
        {"id": ["a:1", "b"], "x": ["1:a", "2"]},
        {"id": ["a"], "x": ["1,1:b,1:2"]},
    ]
    found = [asked.checksums(pl.DataFrame(one)) for one in tables]
    assert len({*found}) == len(tables)
    other = new_followup("0" * 64, (("x",),), metrics=None, found_in_fold=None, reason="")
    assert other.checksums(pl.DataFrame(tables[0])) != found[0]


def test_small_groups_are_pooled(tmp_path: Path, rng: np.random.Generator) -> None:
    experiment = make_experiment(tmp_path, rng)
    few = experiment.labels.with_columns(
        tier=pl.when(pl.int_range(pl.len()) < 30).then(pl.lit("staff")).otherwise("tier")
    )
    asked = experiment.ask(segments=few)
    assert "1 group with fewer than 20 units" in " ".join(asked.notes)
    experiment.answer()
    groups = set(experiment.totals()["group"])
    assert groups == {"(not asked)", "basic", "gold", "silver"}
    found = segments(experiment.estimate("answer", by="tier"), "visit")
    assert math.isfinite(found["staff",].effect)


def test_groups_that_are_all_too_small_are_rejected(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    experiment = make_experiment(tmp_path, rng)
    with pytest.raises(DataError, match="has fewer than 20 units in some arm"):
        experiment.ask(segments=experiment.labels.with_columns(tier=pl.format("{}", "user")))


def test_of_many_groups_the_largest_are_shown(tmp_path: Path, rng: np.random.Generator) -> None:
    experiment = make_experiment(tmp_path, rng, 6000)
    many = experiment.labels.with_columns(tier=(pl.col("user") % 30).cast(pl.String))
    asked = experiment.ask(segments=many, metrics="visit")
    (table,) = asked.forecast.tables([0.2], "units")
    assert "the 20 largest of 30 groups" in table.title
    assert len(table.rows) == 1 + 20
    assert len(asked.to_dict()["expected"]["0.2"]) == 30


def test_a_published_column_can_be_asked_about(tmp_path: Path, rng: np.random.Generator) -> None:
    """Its labels come from the follow-up then: the fold in which they were found has none."""
    table = draw_table(rng, 4000)
    ledger = cdp.Ledger.create(tmp_path / "budget.db", 10)
    cdp.publish(
        table.drop("tier", "market"),
        out=tmp_path / "published",
        unit="user",
        arm="treated",
        outcomes={"visit": "0,1"},
        passthrough="region",
        epsilon=2,
        folds=2,
        ledger=ledger,
        population="users",
    )
    cdp.ask(tmp_path / "published", by="region", found_in_fold=1, out=tmp_path / "asked")
    cdp.answer(tmp_path / "asked", table, epsilon=1, ledger=ledger, out=tmp_path / "answer")
    estimate = cdp.estimate(tmp_path / "published", answers=tmp_path / "answer", by="region")
    released = pl.read_parquet(tmp_path / "published" / "units.parquet").filter(fold=0)
    found = {
        of[0]: one.n_control + one.n_treated for of, one in segments(estimate, "visit").items()
    }
    assert found == dict(released.group_by("region").len().iter_rows())


def test_private_clusters_cannot_be_asked_about(tmp_path: Path, rng: np.random.Generator) -> None:
    private: dict[str, Any] = {"private_cluster": 0.5, "labels": "0,1,2", "constraint": None}
    experiment = make_experiment(tmp_path, rng, **private)
    with pytest.raises(ParameterError, match="Clusters of this release are private"):
        experiment.ask()
