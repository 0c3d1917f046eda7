"""What must not be published by mistake: orders and columns that reveal, tables that change."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from cli_runs import PARTS, assert_refused, release, run, write
from clusterdp.engines.base import BOTH_AT_ONCE, RANDOMIZING
from clusterdp.releasing import prepare as preparing
from clusterdp.releasing.prepare import prepare
from clusterdp.rows import row_order
from clusterdp.spec.columns import Columns
from clusterdp.storage.folder import LocalFolder
from runs import write_release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
COLUMNS = Columns(unit="user", arm="treated", cluster="market", outcomes=("clicks",))


def many(n_rows: int, n_clusters: int, rate: float, rng: np.random.Generator) -> pl.DataFrame:
    """A binary outcome in round-robin clusters."""
    index = np.arange(n_rows)
    return pl.DataFrame(
        {
            "user": index,
            "treated": index // n_clusters % 2,
            "market": index % n_clusters,
            "clicks": (rng.random(n_rows) < rate).astype(np.int64),
        }
    )


def release_in_memory(table: pl.DataFrame, **options: Any) -> cdp.Release:
    return cdp.release(
        table,
        mechanism=cdp.uniform_prior_dp(epsilon=1),
        **{"outcomes": {"clicks": "0,1"}, **options},
        unit="user",
        arm="treated",
        cluster="market",
    )


def notices(table: pl.DataFrame, **options: Any) -> list[str]:
    """What the owner is told of a table. It is released whatever that is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")  # which must not turn a notice into a refusal
        assert release_in_memory(table, **options).layout.n_units == len(table)
    assert all(issubclass(one.category, cdp.OwnerNotice) for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(("n_clusters", "rate"), [(5000, 0.5), (50, 0.02), (2, 0.5)])
def test_the_owner_of_a_sorted_table_is_warned_where_its_order_shows(
    n_clusters: int, rate: float, rng: np.random.Generator
) -> None:
    table = many(200_000, n_clusters, rate, rng)
    assert not notices(table)
    assert not notices(table, keep_order=True)
    ordered = table.with_columns(clicks=table["clicks"].sort())
    (warning,) = notices(ordered)
    assert "the order of ids reveals outcomes" in warning
    assert "Do not share the folder" in warning
    (warning,) = notices(ordered, keep_order=True)
    assert "the published row order reveals outcomes" in warning
    # In the order of ids nothing of the table's own order is left.
    other_ids = ordered.with_columns(user=pl.Series(rng.permutation(len(table))))
    assert not notices(other_ids)
    assert notices(other_ids, keep_order=True)
    # Ids rise from row to row, but for one: they were there before the table was sorted.
    sorted_later = table.sort("clicks", maintain_order=True)
    assert not notices(sorted_later)
    assert notices(sorted_later, keep_order=True)
    # Ids that follow outcomes show them wherever rows stood.
    moved = ordered.sample(fraction=1, shuffle=True)
    assert notices(moved)
    assert not notices(moved, keep_order=True)


@pytest.mark.parametrize("as_text", [False, True])
def test_rows_of_a_large_table_are_chosen_by_their_ids(
    as_text: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stable sort leaves ids in order within an outcome: blocks of rows would have other ids."""
    monkeypatch.setattr(row_order, "_LOOKED_AT", 300_000)  # half of the rows
    table = many(600_000, 4, 0.3, rng)
    if as_text:
        table = table.with_columns(pl.col("user").cast(pl.String).str.zfill(6))
    sorted_later = table.sort("clicks", maintain_order=True)
    assert not notices(sorted_later)
    assert notices(sorted_later, keep_order=True)
    for clicks in (table["clicks"].sort(), pl.Series(np.repeat(rng.integers(0, 2, 6000), 100))):
        (warning,) = notices(table.with_columns(clicks=clicks).sample(fraction=1, shuffle=True))
        assert "the order of ids" in warning


@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_an_outcome_at_the_end_of_a_large_table_is_noticed(
    rate: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the rows is looked at: short blocks of them, also where few have the outcome."""
    monkeypatch.setattr(row_order, "_LOOKED_AT", 150_000)
    table = many(600_000, 4, rate, rng)
    assert not notices(table, keep_order=True)
    (warning,) = notices(table.sort("clicks", maintain_order=True), keep_order=True)
    assert "the published row order reveals outcomes" in warning


def test_the_owner_of_a_table_sorted_in_blocks_is_warned(rng: np.random.Generator) -> None:
    """Questions of equal outcomes in random order: no trend, but neighbours are alike."""
    table = many(100_000, 4, 0.5, rng)
    questions = np.repeat(rng.integers(0, 2, 1000), 100)
    assert "the order of ids" in notices(table.with_columns(clicks=pl.Series(questions)))[0]


def test_an_order_by_public_columns_is_no_alarm(rng: np.random.Generator) -> None:
    """Outcomes differ between villages and days; one by the other follows the table's order."""
    n_rows = 20_000
    village = np.repeat(rng.permutation(200), n_rows // 200)
    rates = rng.uniform(0, 1, 200)[village]
    table = many(n_rows, 4, 0.5, rng).with_columns(
        clicks=pl.Series(rng.random(n_rows) < rates).cast(pl.Int64),
        village=pl.Series(village).cast(pl.String),
        noise=pl.Series(rng.random(n_rows)),
    )
    assert "the order of ids" in notices(table)[0]
    assert not notices(table, passthrough="village")
    assert not notices(table, passthrough="village", keep_order=True)
    # Columns that the order does not follow explain nothing, however fine they are.
    assert "the order of ids" in notices(table, passthrough="noise")[0]
    late = rng.random(n_rows) < np.arange(n_rows) / n_rows
    days = table.with_columns(clicks=pl.Series(late).cast(pl.Int64), day=pl.Series(range(n_rows)))
    assert "the order of ids" in notices(days)[0]
    assert not notices(days.with_columns(day=-pl.col("day")), passthrough="day")
    # Within villages, rows are in the order of outcomes.
    within = table.sort(pl.col("village").rank("dense"), "clicks").with_columns(user=table["user"])
    assert "the order of ids" in notices(within, passthrough="village")[0]


def test_nets_speak_before_anything_is_spent(
    table: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once: rows of a small table are checked before a release is on record."""
    ledger = cdp.Ledger.create(tmp_path / "budget.db", cap_epsilon=8)
    spoken: list[int] = []
    monkeypatch.setattr(preparing, "notify_owner", lambda _: spoken.append(len(ledger.releases())))
    cdp.publish(
        table.sort("clicks"),
        out=tmp_path / "out",
        unit="user",
        arm="treated",
        cluster="market",
        outcomes={"clicks": "0..3"},
        epsilon=2,
        keep_order=True,
        ledger=ledger,
        population="us",
        new_population=True,
    )
    assert spoken == [0]
    assert len(ledger.releases()) == 1


KEPT: dict[str, tuple[Callable[[pl.Series, np.random.Generator], Any], bool]] = {
    "a copy": (lambda y, rng: y, True),
    "a copy as text": (lambda y, rng: y.cast(str), True),
    "a copy as categories": (lambda y, rng: y.cast(str).cast(pl.Categorical), True),
    "a code": (lambda y, rng: 17 - 3 * y, True),
    "with a little noise": (lambda y, rng: y + rng.normal(size=len(y)) / 100, True),
    "a time": (lambda y, rng: times(y * 1000 + rng.random(len(y))), True),
    "unrelated": (lambda y, rng: rng.integers(0, 5, len(y)), False),
    "unrelated and fine": (lambda y, rng: rng.normal(size=len(y)), False),
    "unrelated text": (lambda y, rng: [f"name {n}" for n in rng.permutation(len(y))], False),
    "unrelated times": (lambda y, rng: times(rng.random(len(y))), False),
    "with gaps": (lambda y, rng: [None, 1.5, float("nan")] * (len(y) // 3) + [None] * 2, False),
    "somewhat related": (lambda y, rng: y + rng.normal(size=len(y)), False),
    "constant": (lambda y, rng: np.zeros(len(y)), False),
}


def times(seconds: Any) -> pl.Series:
    return pl.Series(np.asarray(seconds) * 1e6).cast(pl.Int64).cast(pl.Datetime("us"))


@pytest.mark.parametrize("case", KEPT)
@pytest.mark.parametrize("rate", [0.5, 0.04])
def test_the_owner_is_warned_of_kept_columns_that_reveal(
    case: str, rate: float, rng: np.random.Generator
) -> None:
    make, reveals = KEPT[case]
    table = many(20_000, 5, rate, rng)
    table = table.with_columns(pl.Series("extra", make(table["clicks"], rng)))
    told = notices(table, passthrough=["extra"])
    assert ["'extra' almost certainly reveals 'clicks'" in one for one in told] == [True] * reveals


def test_a_copy_of_a_rare_outcome_is_noticed_wherever_it_stands(rng: np.random.Generator) -> None:
    """Twelve of 100,000, none of them in the first 65,536 rows."""
    n_rows = 100_000
    rare = np.zeros(n_rows, dtype=np.int64)
    rare[rng.choice(np.arange(65_536, n_rows), 12, replace=False)] = 1
    table = many(n_rows, 5, 0.5, rng).with_columns(clicks=pl.Series(rare), copy=pl.Series(rare))
    assert "'copy' almost certainly reveals" in notices(table, passthrough=["copy"])[0]
    unrelated = table.with_columns(copy=pl.Series(rng.permutation(rare)))
    assert not notices(unrelated, passthrough=["copy"])


@pytest.mark.parametrize("rate", [0.5, 0.04])
def test_one_of_several_outcomes_of_a_question_is_noticed(
    rate: float, rng: np.random.Generator
) -> None:
    """A column may reveal one outcome, and show next to nothing of the others."""
    spend = pl.Series("spend", rng.integers(0, 9, 20_000))
    table = many(20_000, 5, rate, rng).with_columns(spend, copy=pl.col("clicks") > 0)
    asked = {"outcomes": {"clicks": "0..3", "spend": "0..8"}, "question": [["clicks", "spend"]]}
    (told,) = notices(table, passthrough=["copy"], **asked)
    assert "'copy' almost certainly reveals 'clicks', a private outcome" in told
    unrelated = table.with_columns(copy=pl.Series(rng.random(20_000) < rate))
    assert not notices(unrelated, passthrough=["copy"], **asked)


@pytest.mark.parametrize("least", [1, 15])
def test_a_column_that_follows_from_an_outcome_is_noticed(
    least: int, rng: np.random.Generator
) -> None:
    """Whether somebody bought, next to how much: most amounts cannot be guessed from it."""
    spend = rng.integers(1, 31, 20_000) * (rng.random(20_000) < 0.5)
    table = many(20_000, 5, 0.5, rng).with_columns(
        clicks=pl.Series(spend), bought=pl.Series(spend >= least)
    )
    asked: dict[str, Any] = {"passthrough": ["bought"], "outcomes": {"clicks": "0..30"}}
    (told,) = notices(table, **asked)
    assert "'bought' almost certainly reveals 'clicks'" in told
    unrelated = table.with_columns(bought=pl.Series(rng.permutation(spend >= least)))
    assert not notices(unrelated, **asked)


def test_the_bin_of_a_continuous_outcome_reveals(rng: np.random.Generator) -> None:
    table = many(5000, 5, 0.5, rng).with_columns(clicks=pl.Series(rng.uniform(0, 30, 5000)))
    table = table.with_columns(extra=(pl.col("clicks") // 10).cast(pl.Int64))
    told = notices(
        table, passthrough=["extra"], outcomes={"clicks": cdp.OutcomeSpace.bins([0, 10, 20, 30])}
    )
    assert "'extra' almost certainly reveals" in told[0]


def test_the_command_line_warns_and_publishes(table: pl.DataFrame, tmp_path: Path) -> None:
    copied = table.with_columns(copy="clicks")
    told = {
        "'copy' almost certainly reveals": (copied, ("--passthrough", "copy")),
        "the published row order": (copied.sort("clicks"), ("--keep-order",)),
    }
    for place, (warning, (held, options)) in enumerate(told.items()):
        out = tmp_path / f"out{place}"
        result = release(write(held, tmp_path), out, *options, "--json")
        assert result.exit_code == 0, result.output
        assert result.stderr.count("warning: Owner only: ") == 1
        assert warning in result.stderr
        assert "WARNING" not in result.stdout
        assert not any("WARNING" in path.read_text() for path in out.glob("*.[mj]*"))


def test_clusters_cannot_be_crossed_from_outcomes(table: pl.DataFrame, tmp_path: Path) -> None:
    parts = [*PARTS]
    parts[5] = "market,clicks"
    options = ("--epsilon", 1, "--out", tmp_path / "out")
    result = run("release", write(table, tmp_path), *parts, *options)
    assert_refused(result, "cannot be crossed from ids or outcomes")


CHANGES: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "rows lost": lambda table: table.head(500),
    "everyone twice": lambda table: pl.concat(
        [table, table.with_columns(clicks=3 - pl.col("clicks"))]
    ),
    "other arms": lambda table: table.with_columns(treated=1 - pl.col("treated")).head(-1),
    "other outcomes": lambda table: table.with_columns(clicks=3 - pl.col("clicks")),
    "other ids": lambda table: table.with_columns(user=pl.col("user") + 1),
}


def release_while_it_changes(
    change: str, stage_name: str, mechanism: cdp.Mechanism, table: pl.DataFrame, folder: Path
) -> None:
    """Release a file that is replaced when a stage begins."""
    path = folder / "t.csv"
    table.write_csv(path)
    prepared = prepare(path, columns=COLUMNS, spaces=(SPACE,))

    class Meddler:
        def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
            if name == stage_name:
                CHANGES[change](table).write_csv(path)
            return lambda _: None

    write_release(prepared, [mechanism], LocalFolder(folder / "out"), Meddler())


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_changes_between_passes_is_not_published(
    change: str, table: pl.DataFrame, tmp_path: Path
) -> None:
    mechanism = cdp.cluster_dp(noise_scale=10, prior_floor=0.02, epsilon=2)
    with pytest.raises(cdp.ClusterDPError):
        release_while_it_changes(change, RANDOMIZING, mechanism, table, tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change", ["rows lost", "everyone twice", "other arms"])
def test_a_table_that_changes_before_its_only_pass_is_not_published(
    change: str, table: pl.DataFrame, tmp_path: Path
) -> None:
    """Rows are written while they are counted: what was written is removed with its folder."""
    mechanism = cdp.uniform_prior_dp(epsilon=1)
    with pytest.raises(cdp.DataError):
        release_while_it_changes(change, BOTH_AT_ONCE, mechanism, table, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_staging_does_not_follow_links(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    (tmp_path / ".out.partial").symlink_to(victim)
    with pytest.raises(cdp.OutputError), LocalFolder(tmp_path / "out").staged(""):
        pass
    assert (victim / "file").read_text() == "mine"


def test_a_found_folder_is_made_private(tmp_path: Path) -> None:
    (tmp_path / ".out.partial").mkdir(mode=0o777)
    os.chmod(tmp_path / ".out.partial", 0o777)  # noqa: PTH101, S103 - what is being tested
    with LocalFolder(tmp_path / "out").staged("") as (folder, _):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_names_for_unfinished_folders_are_refused(source: Path, tmp_path: Path) -> None:
    assert_refused(release(source, tmp_path / "x.partial"), "unfinished folders")


def test_hidden_files_are_no_data(table: pl.DataFrame, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    (folder / "_temporary").mkdir(parents=True)
    table.write_parquet(folder / "a.parquet")
    table.write_parquet(folder / "_temporary" / "b.parquet")
    assert release(folder, tmp_path / "out").exit_code == 0


def test_a_query_leaves_nothing_behind(source: Path, tmp_path: Path) -> None:
    result = release("duckdb://", tmp_path / "out", "--query", f"select * from '{source}'")
    assert result.exit_code == 0, result.output
    assert not list(tmp_path.glob(".out*"))


def test_columns_may_be_called_anything(table: pl.DataFrame, tmp_path: Path) -> None:
    odd = table.rename({"market": "count", "secret": "len", "treated": "rows"})
    parts = ["--unit", "user", "--arm", "rows", "--cluster", "count", "--outcome", "clicks=0..3"]
    options = ("--epsilon", 1, "--passthrough", "len", "--out", tmp_path / "out")
    assert run("release", write(odd, tmp_path), *parts, *options).exit_code == 0
    assert run("verify", tmp_path / "out").exit_code == 0
    assert run("estimate", tmp_path / "out", "--by", "count").exit_code == 0


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("market", pl.Series([2**63 + 5, 2**63 + 9], dtype=pl.UInt64)),
        ("market", pl.Series([-(2**62), 2**62])),
        ("market", pl.Series([False, True])),
        ("market", pl.Series([0.5, 1.5])),
        ("market", pl.Series(["b", "a"], dtype=pl.Categorical)),
        ("market", pl.Series(["2024-01-01", "2024-02-01"]).str.to_date()),
    ],
    ids=["uint64", "far apart", "bool", "float", "categorical", "date"],
)
def test_labels_of_any_type_come_back_from_disk(
    column: str, values: pl.Series, table: pl.DataFrame, tmp_path: Path
) -> None:
    labelled = table.with_columns(values.gather(table["market"] % 2).alias(column))
    path = write(labelled, tmp_path)
    assert release(path, tmp_path / "out").exit_code == 0
    assert run("verify", tmp_path / "out").exit_code == 0
    assert run("estimate", tmp_path / "out").exit_code == 0


def test_outcomes_of_single_precision(table: pl.DataFrame) -> None:
    tenths = table.with_columns(clicks=(pl.col("clicks") / 10).cast(pl.Float32))
    released = cdp.release(
        tenths,
        mechanism=cdp.uniform_prior_dp(resample_prob=2**-40),
        outcomes={"clicks": cdp.OutcomeSpace.of([0, 0.1, 0.2, 0.3])},
        unit="user",
        arm="treated",
        cluster="market",
    )
    expected = table.sort("user")["clicks"]  # of 600 rows one is redrawn once in 10^9 runs
    assert released.units["response"].to_list() == expected.to_list()
