"""Batches as owners publish them: new units of one experiment, each at the ε of one release."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp.cli.console import REFUSED
from clusterdp.engines.base import EngineTable
from clusterdp.engines.local.table import LocalTable
from clusterdp.errors import ClusterDPError, DataError, FormatError, LedgerError, ParameterError
from clusterdp.ledger._store import LedgerStore
from clusterdp.ledger.ledger import Ledger
from clusterdp.published.folder import read_manifest
from clusterdp.published.manifest import checksum_of
from clusterdp.published.verification import APART, verify_folder
from clusterdp.rows.earlier_ids import BatchIds
from clusterdp.storage.folder import MANIFEST, UNITS
from forging import forge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp.ledger._store import Transaction

SIZE = 60
ASKED: dict[str, Any] = {
    "outcomes": {"clicks": "0..3"},
    "unit": "user",
    "arm": "treated",
    "mechanism": cdp.uniform_prior_dp(epsilon=2),
    "population": "us",
}


def week(first: int, **more: Any) -> pl.DataFrame:
    """The units of a week: as many as ever, with ids from some number on."""
    numbers = np.arange(first, first + SIZE)
    table = {"user": numbers, "treated": numbers % 2, "clicks": numbers % 4}
    return pl.DataFrame({**table, **more})


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.chdir(tmp_path)
    return Ledger.create("budget.db", 3)


def publish(ledger: Ledger | str, table: Any, out: str, *earlier: Any, **more: Any) -> Any:
    return cdp.publish(table, out=out, ledger=ledger, continues=earlier, **{**ASKED, **more})


def spent(ledger: Ledger) -> float:
    return round(ledger.balance("us").basic.epsilon, 6)


def test_batches_cost_what_one_does(ledger: Ledger) -> None:
    """A quarter of a year; `bench.batches` has 52 weeks of 10,000 users each."""
    weeks: list[Any] = []
    for number in range(13):
        weeks.append(publish(ledger, week(number * SIZE), f"week{number}", *weeks))
        assert spent(ledger) == 2
    sums = [checksum_of(read_manifest(folder)) for folder in weeks]
    for number, folder in enumerate(weeks):
        known = read_manifest(folder).provenance
        assert known.continues == (tuple(sums[:number]) or None)
        assert known.spent_before is not None
        assert known.spent_before.epsilon == 0
    assert "12 releases have new units only" in " ".join(str(ledger.show()).split())
    assert ledger.verify() == []
    # Everybody's budget is spent by what is outside of the chain.
    with pytest.raises(LedgerError, match="not enough budget"):
        publish(ledger, week(0), "again")


def test_a_folder_says_what_it_continues(ledger: Ledger) -> None:
    publish(ledger, week(0), "week1")
    publish(ledger, week(SIZE), "week2", "week1", unit_name="user")
    text = cdp.read_release("week2").provenance
    assert text.continues == (checksum_of(read_manifest("week1")),)
    with open("week2/README.md", encoding="utf-8") as file:  # noqa: PTH123 - as users do
        readme = " ".join(file.read().split())
    assert "**This folder continues earlier ones**, which have none of these users" in readme
    assert f"Continues: 1 earlier folder with other users ({text.continues[0][:8]})" in readme
    shown = run("inspect", "week2")
    assert "1 earlier folder with other users" in " ".join(shown.stdout.split())
    assert json.loads(run("inspect", "week2", "--json").stdout)["provenance"]["continues"]
    assert "Continues" not in run("inspect", "week1").stdout


def test_verify_compares_ids_with_those_of_earlier_folders(ledger: Ledger) -> None:
    publish(ledger, week(0), "week1")
    publish(ledger, week(SIZE), "week2", "week1")
    publish(ledger, week(2 * SIZE), "week3", "week1", "week2")
    assert verify_folder("week3", ["week2", "week1"])[-1] == (APART, None)
    for given in (["week1"], ["week1", "week2", "week3"]):
        last = verify_folder("week3", given)[-1]
        assert last.name == APART
        assert "are not those that the manifest names" in str(last.problem)
    said = json.loads(run("verify", "week3", "--json").stdout)["owners_words"]
    assert "continues" in said
    both = ("--continues", "week1", "--continues", "week2")
    said = json.loads(run("verify", "week3", *both, "--json").stdout)["owners_words"]
    assert "continues" not in said


@pytest.mark.parametrize(
    "kind", [pl.Int64, pl.Int32, pl.UInt64, pl.String, pl.Categorical(), "float", "uuid"], ids=str
)
def test_planted_a_repeated_id_is_found_in_every_type(kind: Any, ledger: Ledger) -> None:
    def typed(first: int, *, later: bool = False) -> pl.DataFrame:
        table, user = week(first), pl.col("user")
        if kind == "float":  # read from text, the ids of the second week were floats
            return table.with_columns(user.cast(pl.String) + (".0" if later else ""))
        if kind == "uuid":
            uuids = pl.format("00000000-0000-4000-8000-{}", user.cast(pl.String).str.zfill(12))
            return table.with_columns(user=uuids.str.to_uppercase() if later else uuids)
        return table.with_columns(user.cast(pl.String).cast(kind))

    publish(ledger, typed(1000), "week1")
    before = ledger.head()
    overlapping = typed(1000 + SIZE - 1, later=True)
    with pytest.raises(DataError, match=r"'user' .* has 1 id of week1; a batch has new units only"):
        publish(ledger, overlapping, "week2", "week1")
    assert ledger.head() == before
    publish(ledger, typed(1000 + SIZE, later=True), "week2", "week1")


def test_a_repeated_id_shows_no_outcome_and_no_id(ledger: Ledger) -> None:
    publish(ledger, week(100), "week1")
    messages = set()
    for clicks in (0, 3):
        table = week(100 + SIZE - 2).with_columns(clicks=pl.lit(clicks))
        with pytest.raises(DataError) as refused:
            publish(ledger, table, "week2", "week1")
        messages.add(str(refused.value))
    (message,) = messages
    assert "158" not in message
    assert "159" not in message


@pytest.mark.parametrize(
    ("more", "columns", "reason"),
    [
        ({"outcomes": {"clicks": "0..4"}}, {}, "other outcomes: 'clicks=0..3' there"),
        ({"outcomes": {"clicks": "0..3"}, "missing": ["clicks"]}, {}, "or missing' here"),
        ({"clip": True}, {}, "other clips: False there, and True here"),
        ({"control": 1}, {}, "other controls: 0 there, and 1 here"),
        ({}, {"treated": ["0", "1"] * (SIZE // 2)}, "other arms: 0, 1 there, and '0', '1' here"),
        ({"cluster": "market"}, {"market": [1] * SIZE}, "other clusters: none there"),
        (
            {"randomization_unit": "school"},
            {"school": [number % 10 for number in range(SIZE)]},
            "other randomization units",
        ),
    ],
)
def test_a_batch_declares_what_earlier_ones_did(
    more: dict[str, Any], columns: dict[str, Any], reason: str, ledger: Ledger
) -> None:
    publish(ledger, week(0), "week1")
    before = ledger.head()
    if "treated" in columns:
        more = {**more, "control": "0"}
    with pytest.raises(ParameterError, match=reason):
        publish(ledger, week(SIZE, **columns), "week2", "week1", **more)
    assert ledger.head() == before


def test_what_is_measured_better_may_differ(ledger: Ledger) -> None:
    publish(ledger, week(0), "week1")
    more = {
        "mechanism": None,
        "epsilon": 1,
        "pilot": 0.1,
        "baseline": {"clicks": "mean:1,std:1"},
        "passthrough": ["age"],
        "arm_shares": {"0": 0.5, "1": 0.5},
    }
    publish(ledger, week(SIZE, age=[30] * SIZE), "week2", "week1", **more)
    publish(ledger, week(2 * SIZE), "week3", "week1", "week2")
    manifest = read_manifest("week2")
    assert manifest.before_pilot[0] is not None
    assert manifest.provenance.continues is not None
    assert spent(ledger) == 2


def test_what_cannot_be_continued(ledger: Ledger, tmp_path: Path) -> None:
    publish(ledger, week(0), "week1")
    publish(ledger, week(0), "totals", mechanism=cdp.noisy_histogram(epsilon=0.5))
    unknown = {**ASKED, "population": None, "ledger": None}
    cdp.publish(week(0), out="elsewhere", **unknown)
    before = ledger.head()
    for folder, reason in {
        "totals": "published without rows, so it has no ids",
        "elsewhere": "has no release about 'us' with the manifest",
        "nothing": "there is no folder nothing",
    }.items():
        with pytest.raises(ClusterDPError, match=reason):
            publish(ledger, week(SIZE), "week2", folder)
    with pytest.raises(ParameterError, match="a batch is published with rows"):
        publish(ledger, week(SIZE), "week2", "week1", mechanism=cdp.noisy_histogram(epsilon=0.5))
    with pytest.raises(ParameterError, match=r"needs the ledger .* give ledger=\.\.\."):
        cdp.publish(week(SIZE), out="week2", continues="week1", **unknown)
    # A folder whose rows were left out is not the one that the ledger knows.
    shutil.copytree("week1", "copy")
    rows = pl.read_parquet("copy/units.parquet")
    rows.head(SIZE - 1).write_parquet(tmp_path / "copy" / UNITS)
    with pytest.raises(FormatError, match=UNITS):
        publish(ledger, week(SIZE - 1), "week2", "copy")
    assert ledger.head() == before


def test_a_table_that_changes_after_it_was_compared_is_rejected(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that are counted are the ones whose ids are compared."""
    publish(ledger, week(0), "week1")
    path, honest = tmp_path / "table.parquet", LocalTable.apart_from
    week(SIZE).write_parquet(path)

    def swap(table: LocalTable, *given: Any) -> LocalTable:
        compared = honest(table, *given)
        week(SIZE - 1).write_parquet(path)
        return compared

    with monkeypatch.context() as patched:
        patched.setattr(LocalTable, "apart_from", swap)
        with pytest.raises(DataError, match="has 1 id of week1"):
            publish(ledger, path, "week2", "week1")
    assert not (tmp_path / "week2").exists()
    assert spent(ledger) == 2
    assert not any(one.is_unfinished for one in ledger.releases())


class KilledError(BaseException):
    """The end of a process, which cleans up nothing."""


@contextmanager
def killed_at(point: int, patch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Kill whatever writes to a ledger: before, within or after one of its transactions."""
    honest, passed = LedgerStore.writing, [0]

    def step() -> None:
        if passed[0] == point:
            raise KilledError
        passed[0] += 1

    @contextmanager
    def writing(store: LedgerStore) -> Iterator[Transaction]:
        step()
        with honest(store) as transaction:
            yield transaction
            step()
        step()

    with patch.context() as patched:
        patched.setattr(LedgerStore, "writing", writing)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        yield passed


def test_killed_anywhere_a_batch_is_finished_or_leaves_nothing(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(ledger, week(0), "week1")
    path, stranger = tmp_path / "new.parquet", tmp_path / "stranger.parquet"
    week(SIZE).write_parquet(path)
    week(SIZE - 1).write_parquet(stranger)  # one unit of the first week
    n_resumed, earlier = 0, ["week1"]
    for point in range(100):
        out, first = f"kill{point}", len(earlier) * SIZE
        week(first).write_parquet(path)
        with killed_at(point, monkeypatch) as passed, suppress(KilledError):
            publish(ledger, path, out, *earlier)
        opened = [one for one in ledger.releases() if one.is_unfinished]
        if opened:
            (batch,) = opened
            n_resumed += 1
            with pytest.raises(LedgerError, match="is unfinished, so the two could share units"):
                publish(ledger, week(first + SIZE // 2), "another", *earlier)
            if not (tmp_path / out).exists():
                # Another table with as many units, one of them released before.
                with pytest.raises(DataError):
                    cdp.resume(batch.release_id, stranger, ledger=ledger)
            again = {one.release_id: one for one in ledger.releases()}[batch.release_id]
            if again.is_unfinished:
                cdp.resume(batch.release_id, path, ledger=ledger)
        if not (tmp_path / out).exists():  # it was cancelled, or never began
            assert spent(ledger) == 2
            publish(ledger, path, out, *earlier)
        assert verify_folder(out, earlier)[-1] == (APART, None)
        earlier.append(out)
        assert spent(ledger) == 2
        if passed[0] < point:
            break
    assert passed[0] < point
    assert n_resumed >= 10
    assert ledger.verify() == []


def test_of_two_batches_at_once_one_is_published(ledger: Ledger, tmp_path: Path) -> None:
    publish(ledger, week(0), "week1")
    ready, said = threading.Barrier(2), dict[str, str]()

    def race(name: str) -> None:
        ready.wait()
        try:
            publish("budget.db", week(SIZE), name, "week1")  # the very same units
        except ClusterDPError as error:
            said[name] = str(error)

    owners = [threading.Thread(target=race, args=[name]) for name in ("left", "right")]
    for owner in owners:
        owner.start()
    for owner in owners:
        owner.join()
    made = [name for name in ("left", "right") if (tmp_path / name).exists()]
    (lost,) = said
    assert made == [name for name in ("left", "right") if name != lost]
    assert "unfinished" in said[lost] or "lack the one published" in said[lost]
    assert spent(ledger) == 2


def test_planted_without_comparing_ids_two_batches_overlap(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What all of the above is for: verify sees it, with the folders."""
    publish(ledger, week(0), "week1")
    with monkeypatch.context() as patched:
        patched.setattr(BatchIds, "refuse_repeated", lambda *_, **__: None)
        publish(ledger, week(SIZE - 3), "week2", "week1")
    assert spent(ledger) == 2  # which is wrong for three units
    assert "has 3 ids of week1" in str(verify_folder("week2", ["week1"])[-1].problem)


def test_resumed_elsewhere(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(ledger, week(0), "week1")
    path = tmp_path / "new.parquet"
    week(SIZE).write_parquet(path)
    with killed_at(4, monkeypatch), suppress(KilledError):
        publish(ledger, path, "week2", "week1")
    (batch,) = (one for one in ledger.releases() if one.is_unfinished)
    (tmp_path / "week1").rename(tmp_path / "moved")
    with pytest.raises(FormatError, match="there is no folder"):
        cdp.resume(batch.release_id, ledger=ledger)
    cdp.publish(week(0), out="other", **{**ASKED, "population": None})
    with pytest.raises(LedgerError, match="continues other folders than were given"):
        cdp.resume(batch.release_id, ledger=ledger, continues=["other"])
    cdp.resume(batch.release_id, ledger=ledger, continues=["moved"])
    assert verify_folder("week2", ["moved"])[-1] == (APART, None)


def test_an_experiment_file_names_earlier_folders(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    week(0).write_parquet(tmp_path / "week1.parquet")
    week(SIZE).write_parquet(tmp_path / "week2.parquet")
    text = """
[table]
source = "{0}.parquet"
unit = "user"
arm = "treated"
[outcomes]
clicks = {{ type = "count", max = 3 }}
[privacy]
epsilon = 2
ledger = "budget.db"
population = "us"
{1}
[output]
folder = "{0}"
"""
    for name, continues in (("week1", ""), ("week2", 'continues = ["week1"]')):
        (tmp_path / f"{name}.toml").write_text(text.format(name, continues))
        planned = run("plan", f"{name}.toml")
        assert "spends 2 of the 3 remaining" in " ".join(planned.stdout.split())
        assert run("release", f"{name}.toml", "--yes").exit_code == 0
    assert spent(ledger) == 2
    # From another working directory, too: paths are relative to the file.
    (tmp_path / "week3.toml").write_text(text.format("week2", 'continues = ["week1", "week2"]'))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    planned = run("plan", "../week3.toml")
    assert "spends 2 of the 3 remaining" in " ".join(planned.stdout.split())
    shutil.rmtree("../week1")
    said = run("plan", "../week3.toml").stdout
    assert "A release would be rejected: there is no folder" in said
    assert "no ledger" not in said
    assert "Next: fix what a release would be rejected for, then clusterdp release" in said


def test_a_preview_compares_no_ids_and_spends_nothing(ledger: Ledger) -> None:
    publish(ledger, week(0), "week1")
    asked = {**ASKED, "ledger": ledger}
    before = ledger.head()
    shown = str(cdp.preview(week(SIZE), out="week2", continues=["week1"], **asked))
    assert "spends 2 of the 3 remaining" in " ".join(shown.split())
    assert "continues 1 earlier folder" in " ".join(shown.split())
    assert ledger.head() == before


def test_a_withdrawn_batch_still_counts(ledger: Ledger, tmp_path: Path) -> None:
    publish(ledger, week(0), "week1")
    publish(ledger, week(SIZE), "week2", "week1")
    first = ledger.releases()[0]
    said = run("ledger", "withdraw", "budget.db", first.release_id, "--reason", "a user asked")
    assert "stays spent" in said.stdout
    assert MANIFEST in {path.name for path in (tmp_path / "week1").iterdir()}
    record = ledger.releases()[0]
    assert record.is_withdrawn
    assert record.status == "committed"
    assert spent(ledger) == 2
    text = " ".join(str(ledger.show()).split())
    assert "withdrawn" in text
    assert "a user asked. Copies of it may exist" in text
    assert ledger.show().to_dict()["populations"][0]["releases"][0]["status"] == "withdrawn"
    assert "withdrawn" in ledger.show().to_csv()
    checked = run("ledger", "verify", "budget.db", "--folder", "week1")
    assert "was withdrawn" in " ".join((checked.stdout + checked.stderr).split())
    assert run("ledger", "verify", "budget.db", "--folder", "week2").exit_code == 0
    # It has to be continued all the same, from a copy.
    (tmp_path / "week1").rename(tmp_path / "kept")
    with pytest.raises(LedgerError, match=r"lack the one published at .*week1\. It was withdrawn"):
        publish(ledger, week(2 * SIZE), "week3", "week2")
    publish(ledger, week(2 * SIZE), "week3", "kept", "week2")
    assert spent(ledger) == 2
    with pytest.raises(LedgerError, match="is withdrawn: only a published one"):
        ledger.withdraw(first.release_id)
    assert ledger.verify() == []
    with pytest.raises(LedgerError, match="has no release"):
        ledger.withdraw("0" * 32)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_attack_ids_of_a_text_file_are_those_of_a_table(
    suffix: str, ledger: Ledger, tmp_path: Path
) -> None:
    """One id that a tool wrote as 1e+05 makes text of a whole column."""
    publish(ledger, week(99_990), "week1")
    later = week(100_050).with_columns(user=pl.col("user").cast(pl.String))
    later = later.with_columns(pl.col("user").replace("100050", "1e+05"))
    path = tmp_path / f"week2.{suffix}"
    later.write_csv(path) if suffix == "csv" else later.write_parquet(path)
    with pytest.raises(DataError, match="has 1 id of week1"):
        publish(ledger, path, "week2", "week1")


def claiming(continues: Any) -> Callable[[dict[str, Any]], object]:
    """Lets a manifest name other folders."""
    return lambda content: content["provenance"].update(continues=continues)


def test_attack_a_manifest_that_names_other_folders_is_noticed(ledger: Ledger) -> None:
    """Whoever writes a folder can write its manifest: its ledger and the folders disagree then."""
    publish(ledger, week(0), "week1")
    publish(ledger, week(SIZE), "week2", "week1")
    sound = run("ledger", "verify", "budget.db", "--folder", "week2")
    assert sound.exit_code == 0
    for claim, problem in {
        None: "are not those that the manifest names",
        ("f" * 64,): "are not those that the manifest names",
        (): "manifest.json is inconsistent",
        ("f" * 63,): "manifest.json is inconsistent",
        ("e" * 64, "e" * 64): "manifest.json is inconsistent",
    }.items():
        folder = Path("forged")
        shutil.copytree("week2", folder)
        forge(folder, claiming(claim))
        assert problem in str(verify_folder(folder, ["week1"])[-1].problem)
        assert run("ledger", "verify", "budget.db", "--folder", folder).exit_code == REFUSED
        shutil.rmtree(folder)


def test_attack_a_folder_without_ids_says_that_it_continues_one(ledger: Ledger) -> None:
    publish(ledger, week(0), "totals", mechanism=cdp.noisy_histogram(epsilon=0.5))
    claim = [checksum_of(read_manifest("totals"))]
    forge(Path("totals"), claiming(claim))
    assert "'continues' and 'row_order'" in str(verify_folder("totals", ["totals"])[-1].problem)


def test_engines_that_cannot_compare_ids_say_so() -> None:
    with pytest.raises(ParameterError, match=r"leave out engine spark \(--engine spark\)"):
        EngineTable.apart_from(cast("Any", None), [])


SHAPES: dict[str, dict[str, Any]] = {
    "several rows": {"aggregate": "max"},
    "original order": {"keep_order": True},
    "private clusters": {
        "cluster": "market",
        "private_cluster": 0.5,
        "labels": "a,b",
        "mechanism": None,
        "epsilon": 2,
    },
    "a pilot": {"mechanism": None, "epsilon": 2, "pilot": 0.1},
    "noisy counts": {"mechanism": cdp.cluster_dp(noise_scale=20, prior_floor=0.05, epsilon=2)},
    "two questions": {
        "mechanism": "uniform-prior-dp",
        "epsilon": 2,
        "outcomes": {"clicks": "0..3", "sale": "0,1"},
        "question": ["clicks", "sale"],
    },
}


@pytest.mark.parametrize("pre_check", [True, False], ids=["before", "while counting"])
@pytest.mark.parametrize("shape", [*SHAPES, "a query", "several files"])
def test_attack_a_repeated_id_in_every_kind_of_table(
    shape: str, pre_check: bool, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = SHAPES.get(shape, {})

    def source(first: int) -> tuple[Any, dict[str, Any]]:
        table = week(first, market=["a", "b", "b"] * (SIZE // 3), sale=[0] * SIZE)
        if shape == "several rows":
            return pl.concat([table, table]), {}
        if shape == "several files":
            folder = tmp_path / f"parts{first}"
            folder.mkdir()
            table.head(20).write_parquet(folder / "one.parquet")
            table.tail(SIZE - 20).write_parquet(folder / "two.parquet")
            return folder, {}
        if shape == "a query":
            table.write_database("units", f"sqlite:///{tmp_path}/{first}.db")
            return f"sqlite:///{tmp_path}/{first}.db", {"query": "select * from units"}
        return table, {}

    first, how = source(0)
    publish(ledger, first, "week1", **asked, **how)
    overlapping, how = source(SIZE - 3)
    with monkeypatch.context() as patched:
        if not pre_check:
            patched.setattr(
                LocalTable, "apart_from", lambda table, ids, _: replace(table, earlier=tuple(ids))
            )
        with pytest.raises(DataError, match="has 3 ids of week1"):
            publish(ledger, overlapping, "week2", "week1", **asked, **how)
    assert not (tmp_path / "week2").exists()
    assert spent(ledger) == 2
    new, how = source(SIZE)
    publish(ledger, new, "week2", "week1", **asked, **how)
    assert verify_folder("week2", ["week1"])[-1] == (APART, None)
