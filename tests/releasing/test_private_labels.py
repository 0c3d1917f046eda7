"""Private clusters through the pipeline: what is refused, kept, resumed, published and verified."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.document.text import to_lines
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.manifest import _with_checksum, unseal
from clusterdp.published.verification import verify_folder
from clusterdp.releasing import stages
from clusterdp.releasing.journal import unpack_entry
from clusterdp.storage.folder import INDEX, MANIFEST, README

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp._arrays import WordArray
    from clusterdp.rows.keys import UnitIds

LABELS = ("north", "south", "east")
ROWS = cdp.optimal(epsilon=1.5)
TOGETHER = "one unit's cluster and outcomes (label DP)"
PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "cluster": "region",
    "outcomes": {"y": "0,1"},
    "mechanism": ROWS,
    "private_cluster": 0.5,
    "labels": list(LABELS),
}


@pytest.fixture
def people(rng: np.random.Generator) -> pl.DataFrame:
    """Three hundred people in three regions."""
    n_units = 300
    return pl.DataFrame(
        {
            "user": rng.permutation(n_units),
            "arm": np.arange(n_units) % 2,
            "region": np.array(LABELS)[rng.integers(0, 3, n_units)],
            "y": rng.integers(0, 2, n_units),
            "tier": rng.integers(0, 2, n_units),
        }
    )


def problems(folder: Path) -> list[str]:
    return [check.problem for check in verify_folder(folder) if check.problem]


def test_the_guarantee_is_for_cluster_and_outcome_everywhere(
    people: pl.DataFrame, tmp_path: Path
) -> None:
    folder, ledger = tmp_path / "out", Ledger.create(tmp_path / "ledger.db", 10.0)
    asked = {**PARTS, "ledger": ledger, "population": "us", "new_population": True}
    shown = cdp.preview(people, **asked)
    assert TOGETHER in " ".join(repr(shown).split())
    details = "\n".join(to_lines(shown.details()))
    assert "take 0.5 of ε = 2" in details
    assert "expected in noisy clusters" in details
    assert shown.content["epsilon"] == pytest.approx(2.0)
    cdp.publish(people, out=folder, **asked)
    assert problems(folder) == []
    named = [check.name for check in verify_folder(folder)]
    assert "private clusters cost epsilon 0.5 of 2" in named
    (record,) = ledger.releases()
    assert record.guarantee.neighbours == "replace-one-cluster-and-outcome"
    assert record.guarantee.epsilon == pytest.approx(2.0)
    assert [float(one.atoms[0].loss) for one in record.terms.losses()] == pytest.approx([0.5, 1.5])
    release, found = cdp.read_release(folder), cdp.estimate(folder)
    assert TOGETHER in repr(release)
    assert "within regions, ε = 2" in str(found)
    assert any("same probabilities in all true clusters" in note for note in found.notes)
    for name in (README, INDEX):
        text = " ".join(unescape((folder / name).read_text(encoding="utf-8")).split())
        assert "Protected: the cluster and outcomes of every unit" in text
        assert "with respect to replacing one unit's cluster and outcomes" in text
        assert "a unit's own with probability" in text
        assert "every group mixes all true clusters" in text
        assert "plain means are biased" not in text
    assert "replacing one unit's cluster and outcomes" in unescape(found.to_html())


def test_a_folder_with_declared_probabilities_warns_of_plain_means(
    people: pl.DataFrame, tmp_path: Path
) -> None:
    folder, declared = tmp_path / "out", "north=0.5,south=0.5,east=0.4"
    cdp.publish(people, out=folder, **PARTS, assignment=declared)
    assert problems(folder) == []
    for name in (README, INDEX):
        assert "plain means are biased" in (folder / name).read_text(encoding="utf-8")
    cdp.estimate(folder, by="region")  # the command that it names


def test_a_plan_says_what_clusters_take(people: pl.DataFrame) -> None:
    asked = {**PARTS, "mechanism": "optimal"}
    text = repr(cdp.plan(people, epsilon=2, **asked))
    assert "25% noisy clusters" in text


def test_the_noisy_column_has_a_name_that_says_so(people: pl.DataFrame, tmp_path: Path) -> None:
    """The name of the truth is for effects in true clusters, and for nothing that is published."""
    shown = cdp.preview(people, **PARTS)
    assert shown.content["published_columns"] == ["user", "arm", "region_noisy"]
    cdp.publish(people, out=tmp_path / "out", **PARTS)
    folder, release = cdp.read_release(tmp_path / "out"), cdp.release(people, **PARTS)
    for found in (folder, release):
        assert found.units.lazy().collect_schema().names()[:3] == ["user", "arm", "region_noisy"]
        assert found.cells.columns[:2] == ["region_noisy", "arm"]
        assert [row.get("region") for row in cdp.estimate(found, by="region").to_rows()][1:] == [
            *LABELS
        ]
        with pytest.raises(cdp.ParameterError, match=r"noisy.*Fix: segment by 'region'"):
            cdp.estimate(found, by="region_noisy")
    own = people.select("user", region=pl.lit("mine"))
    with pytest.raises(cdp.DataError, match="both have a column 'region'"):
        cdp.estimate(folder, segments=own, by="region")
    unused = own.with_columns(mine="region")
    cdp.estimate(folder, segments=unused, by="mine")
    recipes = (tmp_path / "out" / README).read_text()
    assert 'partition by "region_noisy"' in recipes
    assert 'partition by "region"' not in recipes
    taken = people.with_columns(region_noisy="tier")
    with pytest.raises(cdp.DataError, match="'region_noisy' has a name that the release gives"):
        cdp.release(taken, **PARTS, passthrough="region_noisy")


def test_a_plan_and_its_folder_say_what_can_be_seen_in_true_clusters(
    people: pl.DataFrame, tmp_path: Path
) -> None:
    asked = {**PARTS, "mechanism": "optimal", "private_cluster": 0.2, "epsilon": 2}
    plan = cdp.plan(people, **asked)
    assert plan.report is not None
    review = "\n".join(to_lines(plan.report.review()))
    for label in LABELS:
        assert re.search(rf"region={label} +[\d.,]+ pp +none ", review)
    assert "No change in y is detectable in any true cluster." in " ".join(repr(plan).split())
    assert "region=north" in plan.to_html()
    cdp.publish(people, out=tmp_path / "out", **asked)
    for name in (README, INDEX):
        assert "region=north" in (tmp_path / "out" / name).read_text()


def test_errors_in_true_clusters_are_as_planned(rng: np.random.Generator) -> None:
    """Reported standard errors vary by 3% here, so that one in a million tests fails."""
    n_units = 20_000
    many = pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": rng.integers(0, 2, n_units),
            "region": rng.choice(LABELS, n_units, p=[0.5, 0.3, 0.2]),
            "y": rng.integers(0, 2, n_units),
        }
    )
    shares = dict(zip(LABELS, [0.5, 0.3, 0.2], strict=True))
    asked = {**PARTS, "mechanism": "optimal", "private_cluster": 2, "label_shares": shares}
    plan = cdp.plan(many, epsilon=4, **asked)
    planned = plan.to_dict()["visible"]["region=north"]["y"]
    found = cdp.estimate(cdp.release(many, plan), by="region")["region=north"]
    assert found.std_error == pytest.approx(planned["std_error"], rel=0.15)
    assert planned["sampling_std_error"] == pytest.approx(
        2 * 0.5 / (0.5 * n_units) ** 0.5, rel=0.01
    )


def test_a_public_cluster_is_as_it_was(people: pl.DataFrame) -> None:
    public = {name: one for name, one in PARTS.items() if name not in ("private_cluster", "labels")}
    release = cdp.release(people, **public)
    assert release.guarantee.neighbours == "replace-one-outcome"
    assert "cluster and outcome" not in repr(release)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": None}, "need their labels"),
        ({"labels": "north"}, "labels must be 2 to"),
        ({"labels": "north,north,east"}, "name a cluster twice"),
        ({"labels": "north,south,pooled"}, "small clusters are called together"),
        ({"cluster": None}, "missing: cluster"),
        ({"private_cluster": 0.0}, "private_cluster must be a number above 0"),
        ({"private_cluster": None}, "Give their part of epsilon: private_cluster="),
        ({"passthrough": "region"}, "cannot also be passthrough"),
        ({"breakdown": "region"}, "cannot also be passthrough"),
        ({"keep_order": True}, "the order of a table may reveal its clusters"),
        ({"cluster": "region,tier"}, "a private cluster is one column"),
        ({"assignment": "north=0.2", "randomization_unit": "tier"}, "assigned unit by unit"),
        ({"assignment": "north=0.2"}, "must name every label; add south=... .*--assignment"),
        ({"labels": None, "labels_from": "none.txt"}, "labels_from.*one label in a line.*none.txt"),
        (
            {"assignment": "north=0.2,south=0.5,west=0.5"},
            "must name each of north, south, east once .*; got 'west=0.5'",
        ),
        ({"assignment": "north=0.2,south=0.5,east=1.5"}, "with a sum below 1"),
        ({"assignment": "north=0.2,south=0.5,east=x"}, "numbers above 0"),
        (
            {"assignment": "north=0.2,south=0.5,east=0.5", "min_cell_size": 5},
            "cannot be pooled",
        ),
        (
            {
                "assignment": "north=0.2,south=0.5,east=0.5",
                "mechanism": cdp.noisy_histogram(epsilon=1),
            },
            "choose a mechanism that releases rows",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    people: pl.DataFrame, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(cdp.ClusterDPError, match=message):
        cdp.release(people, **{**PARTS, **changed})


def test_labels_must_leave_some_of_epsilon(people: pl.DataFrame) -> None:
    asked = {name: one for name, one in PARTS.items() if name != "mechanism"}
    with pytest.raises(cdp.ParameterError, match=r"must be less than epsilon.*got 0\.5.*give less"):
        cdp.release(people, **asked, epsilon=0.5)


@pytest.mark.parametrize("label", ["west", None])
def test_an_undeclared_label_is_refused_and_costs_nothing(
    people: pl.DataFrame, label: str | None, tmp_path: Path
) -> None:
    """The message tells neither the label nor how many rows have it."""
    wrong = people.with_columns(
        region=pl.when(pl.col("user") == 7).then(pl.lit(label)).otherwise("region")
    )
    ledger = Ledger.create(tmp_path / "ledger.db", 10.0)
    asked = {**PARTS, "ledger": ledger, "population": "us", "new_population": True}
    with pytest.raises(cdp.DataError, match="given back") as refused:
        cdp.publish(wrong, out=tmp_path / "out", **asked)
    assert "west" not in str(refused.value)
    assert "1 row" not in str(refused.value)
    assert [one.status for one in ledger.releases()] == ["cancelled"]


def test_labels_from_a_file_are_kept_in_plans(people: pl.DataFrame, tmp_path: Path) -> None:
    listed = tmp_path / "labels.txt"
    listed.write_text("north\n\nsouth \neast\n", encoding="utf-8")
    asked = {
        **{name: one for name, one in PARTS.items() if name not in ("labels", "mechanism")},
        "labels_from": listed,
        "mechanism": "optimal",
        "epsilon": 2,
        "label_shares": {"north": 0.5, "south": 0.3, "east": 0.2},
    }
    plan = cdp.plan(people, **asked)
    listed.unlink()
    assert plan.options.labels == list(LABELS)
    assert plan.options.labels_from is None
    assert TOGETHER in repr(plan)
    (cost,) = [note for note in plan.notes if "with public ones" in note]
    assert re.search(r"is [\d.]+ pp with private clusters, [\d.]+ pp with public ones", cost)
    plan.save(tmp_path / "plan.lock")
    release = cdp.release(people, tmp_path / "plan.lock", unit="user")
    assert release.guarantee.epsilon <= 2
    assert release.guarantee.epsilon == pytest.approx(2)


def lonely() -> pl.DataFrame:
    """Two people in two arms and two regions."""
    return pl.DataFrame({"user": [0, 1], "arm": [0, 1], "region": ["north", "east"], "y": [0, 1]})


def own_labels(units: UnitIds, aes_key: bytes) -> WordArray:
    """Words by which everyone is given their own label."""
    del aes_key
    return np.zeros((len(units), 2), dtype=np.uint64)


def test_a_refusal_by_given_labels_keeps_the_budget_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is drawn again: whoever resumes the release is refused for the same reason."""
    monkeypatch.setattr("clusterdp.rows.value_codes.unit_words", own_labels)
    ledger = Ledger.create(tmp_path / "ledger.db", 10.0)
    asked: dict[str, Any] = {
        **PARTS,
        "assignment": "north=0.5,south=0.5,east=0.5",
        "ledger": ledger,
        "population": "us",
        "new_population": True,
    }
    with pytest.raises(cdp.DataError, match="stays reserved") as refused:
        cdp.publish(lonely(), out=tmp_path / "out", **asked)
    (record,) = ledger.releases()
    assert record.status == "labelled"
    first = ledger.resume(record.release_id).recall("labelled")
    with pytest.raises(cdp.DataError) as again:
        cdp.resume(record.release_id, lonely(), ledger=ledger)
    assert str(again.value) == str(refused.value)
    assert ledger.resume(record.release_id).recall("labelled") == first
    with pytest.raises(cdp.LedgerError):
        ledger.cancel(record.release_id)
    assert ledger.balance("us").basic.epsilon == pytest.approx(2.0)
    assert not (tmp_path / "out").exists()


def test_a_release_killed_after_its_labels_goes_on_with_them(
    people: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db", 10.0)
    asked = {**PARTS, "ledger": ledger, "population": "us", "new_population": True}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stages, "take_pilots", stop)
        with pytest.raises(KeyboardInterrupt):
            cdp.publish(people, out=tmp_path / "out", **asked)
    (record,) = ledger.releases()
    stored = ledger.resume(record.release_id).recall("labelled")
    assert stored is not None
    other = people.with_columns(y=1 - pl.col("y"))
    with pytest.raises(cdp.DataError, match="not the one that the release began with"):
        cdp.resume(record.release_id, other, ledger=ledger)
    cdp.resume(record.release_id, people, ledger=ledger)
    assert ledger.verify() == problems(tmp_path / "out") == []
    sizes = cdp.read_release(tmp_path / "out").layout.sizes
    np.testing.assert_array_equal(unpack_entry(stored)[0]["sizes"], sizes)


def test_a_pilot_follows_labels(people: pl.DataFrame, tmp_path: Path) -> None:
    spend = people.with_columns(spend=pl.col("y") * 3.0)
    asked = {
        **PARTS,
        "outcomes": {"spend": "number:0..1000"},
        "mechanism": cdp.optimal(epsilon=8, pilot=0.6),
    }
    cdp.publish(spend, out=tmp_path / "out", **asked)
    assert problems(tmp_path / "out") == []
    assert cdp.read_release(tmp_path / "out").guarantee.epsilon == pytest.approx(8.5)


@pytest.mark.parametrize("part", ["own", "labels", "neighbours", "epsilon", "assignment"])
def test_an_edited_response_is_refused(people: pl.DataFrame, part: str, tmp_path: Path) -> None:
    """Also where its checksum was made anew."""
    folder = tmp_path / "out"
    cdp.publish(people, out=folder, **PARTS, assignment="north=0.4,south=0.5,east=0.6")
    manifest = unseal((folder / MANIFEST).read_bytes())
    assert manifest.labels is not None
    content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(manifest))
    if part == "own":  # more noise than was drawn, at a lower price
        content["labels"] |= {
            "own": manifest.labels.own - 2,
            "other": manifest.labels.other + 1,
        }
    elif part == "labels":
        content["labels"]["labels"] = ["north", "south", "west"]
    elif part == "neighbours":
        content["guarantee"]["neighbours"] = "replace-one-outcome"
    elif part == "epsilon":
        content["guarantee"]["epsilon"] = 1.9
    else:
        content["assignment"][0] = [0.4, 0.4]
    forged = _with_checksum(msgspec.convert(content, type(manifest)))
    (folder / MANIFEST).write_bytes(forged)
    if part == "own":  # what is stated is then less than what it costs
        assert problems(folder) != []
        return
    with pytest.raises(cdp.FormatError):
        cdp.read_release(folder)
