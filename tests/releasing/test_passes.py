"""In one pass or in two: the same bytes, the same refusals, and nothing drawn for a bad table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp._progress import NoProgress
from clusterdp.engines.local.table import LocalTable, write_parquet
from clusterdp.errors import TableChangedError
from clusterdp.releasing import targets
from clusterdp.releasing.journal import DRAWN, Event, NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.keys import ReleaseKey
from clusterdp.rows.randomizing import BatchRandomizer
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import LocalFolder
from fixed_release import checksums
from runs import write_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEY = ReleaseKey(b"k" * 32)
SPACE = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
TOTALS = cdp.SumShares(totals=0.1, breakdowns=((("tier",), 0.1),))
KNOWN: dict[str, cdp.Mechanism] = {
    "uniform": cdp.uniform_prior_dp(epsilon=2),
    "optimal": cdp.optimal(epsilon=2, sums=TOTALS),
}
COUNTED = cdp.cluster_dp(noise_scale=4, prior_floor=0.02, epsilon=2)


def publish(table: pl.DataFrame, out: Path, mechanism: cdp.Mechanism, **choices: Any) -> Path:
    """Publish a table with key and noise fixed, or by a journal that is given."""
    columns = Columns(
        unit="user",
        arm="treated",
        cluster="market",
        outcomes=("clicks",),
        kept=("secret",),
        breakdowns=(("tier",),),
    )
    fixed = {"journal": NoJournal(KEY), "add_noise": simulated_noise(np.random.default_rng(0))}
    named = {name: choices.pop(name, value) for name, value in fixed.items()}
    prepared = prepare(table, columns=columns, spaces=(SPACE,), **choices)
    write_with(prepared, (mechanism,), LocalFolder(out), NoProgress(), **named)
    return out


@pytest.fixture
def tiers(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(tier=pl.format("tier {}", pl.col("user") % 3))


@pytest.fixture
def in_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The local engine without its one pass."""
    with monkeypatch.context() as patch:
        patch.setattr(LocalTable, "writes_privately", False)
        yield patch


def no_pass(*_: object, **__: object) -> None:
    pytest.fail("there was another pass")


@pytest.mark.parametrize("keep_order", [False, True])
@pytest.mark.parametrize("name", KNOWN)
def test_one_pass_gives_the_bytes_of_two(
    name: str, keep_order: bool, tiers: pl.DataFrame, tmp_path: Path, in_two: pytest.MonkeyPatch
) -> None:
    two = publish(tiers, tmp_path / "two", KNOWN[name], keep_order=keep_order)
    in_two.undo()
    honest, passes = LocalTable.run, list[Any]()

    def run(table: LocalTable, asked: Any) -> Any:
        passes.append(asked)
        return honest(table, asked)

    in_two.setattr(LocalTable, "run", run)
    one = publish(tiers, tmp_path / "one", KNOWN[name], keep_order=keep_order)
    assert len(passes) == 1
    assert checksums(one) == checksums(two)


@dataclass(frozen=True)
class Remembering(NoJournal):
    """A journal that recalls what was kept, and notes what happened in which order."""

    kept: list[bytes] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def recall(self, event: Event) -> bytes | None:
        return self.kept[0] if self.kept and event == DRAWN else None

    def begin_rows(self) -> None:
        self.order.append("begun")

    def keep(self, event: Event, drawn: bytes) -> None:
        assert event == DRAWN
        assert not self.kept
        self.kept.append(drawn)
        self.order.append("kept")

    def give_up(self, reason: str) -> None:
        self.order.append("given up")


@pytest.mark.parametrize("name", KNOWN)
def test_an_engine_of_two_passes_writes_rows_after_what_was_drawn_is_kept(
    name: str, tiers: pl.DataFrame, tmp_path: Path, in_two: pytest.MonkeyPatch
) -> None:
    """Its rows may be public at once. So another table has none written, either."""
    journal, honest = Remembering(KEY), LocalTable.run

    def run(table: LocalTable, asked: Any) -> Any:
        journal.order.extend(["rows"] if asked.randomizer is not None else [])
        return honest(table, asked)

    in_two.setattr(LocalTable, "run", run)
    publish(tiers, tmp_path / "one", KNOWN[name], journal=journal)
    assert journal.order == ["kept", "rows"]
    other = tiers.with_columns(clicks=(pl.col("clicks") + 1) % 4)
    with pytest.raises(cdp.DataError, match="not the one that the release began with"):
        publish(other, tmp_path / "other", KNOWN[name], journal=journal)
    assert journal.order == ["kept", "rows"]


BAD: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "an id twice": lambda table: pl.concat([table, table.head(1)]),
    "no id": lambda table: table.with_columns(user=pl.col("user").replace(7, None)),
    "an outcome outside": lambda table: table.with_columns(
        clicks=pl.when(pl.col("user") == 7).then(4321).otherwise("clicks")
    ),
    "no outcome": lambda table: table.with_columns(
        clicks=pl.when(pl.col("user") != 7).then("clicks")
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_is_refused_before_anything_is_drawn(
    case: str, tiers: pl.DataFrame, tmp_path: Path, in_two: pytest.MonkeyPatch
) -> None:
    """With the words of two passes, and nothing is left of the rows that were written meanwhile."""
    bad, said = BAD[case](tiers), []
    for mechanism in (KNOWN["optimal"], KNOWN["optimal"], COUNTED):
        with pytest.raises(cdp.DataError) as caught:
            publish(bad, tmp_path / "out", mechanism, add_noise=no_pass, show_row_counts=True)
        said.append(str(caught.value))
        assert not list(tmp_path.iterdir())
        in_two.undo()
    assert len(set(said)) == 1
    assert "4321" not in said[0]


@pytest.mark.parametrize("mechanism", [KNOWN["optimal"], COUNTED], ids=["known", "counted"])
def test_a_resumed_release_compares_the_table_before_it_randomizes_a_row(
    mechanism: cdp.Mechanism,
    tiers: pl.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its key was used with the table on record, and is never used with another one."""
    whole, journal = publish(tiers, tmp_path / "whole", mechanism), Remembering(KEY)
    with monkeypatch.context() as patch:
        patch.setattr(targets, "cells_table", interrupt)
        with pytest.raises(KeyboardInterrupt):
            publish(tiers, tmp_path / "out", mechanism, journal=journal)
    other = tiers.with_columns(clicks=3 - pl.col("clicks"))
    with monkeypatch.context() as patch:
        patch.setattr(BatchRandomizer, "respond", no_pass)
        with pytest.raises(cdp.DataError, match="not the one that the release began with"):
            publish(other, tmp_path / "out", mechanism, journal=journal, add_noise=no_pass)
    resumed = publish(tiers, tmp_path / "out", mechanism, journal=journal, add_noise=no_pass)
    assert checksums(resumed) == checksums(whole)


def test_rows_of_one_pass_are_on_record_before_the_first_one(
    tiers: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, honest = Remembering(KEY), BatchRandomizer.respond

    def respond(*arguments: Any) -> Any:
        journal.order.append("a row")
        return honest(*arguments)

    monkeypatch.setattr(BatchRandomizer, "respond", respond)
    publish(tiers, tmp_path / "out", KNOWN["optimal"], journal=journal)
    assert journal.order[0] == "begun"
    assert journal.order[-1] == "kept"
    assert "a row" in journal.order


@pytest.mark.parametrize("unseen", [True, False])
def test_a_table_that_changes_between_two_passes_is_not_published(
    unseen: bool, tiers: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of it were stored in a private folder, and end the release; or none was, anywhere."""
    journal, honest = Remembering(KEY), LocalTable.run
    written: list[Path] = []

    def changed(table: LocalTable, asked: Any) -> Any:
        rows = table.rows
        if asked.randomizer is not None:
            rows = rows.with_columns(clicks=3 - pl.col("clicks"))
        return honest(replace(table, rows=rows), asked)

    def write(rows: pl.LazyFrame, path: Path) -> Any:
        written.append(path)
        return write_parquet(rows, path)

    monkeypatch.setattr(LocalTable, "run", changed)
    monkeypatch.setattr(LocalTable, "writes_privately", unseen)
    monkeypatch.setattr("clusterdp.engines.local.table.write_parquet", write)
    with pytest.raises(TableChangedError):
        publish(tiers, tmp_path / "out", COUNTED, journal=journal)
    assert journal.order == (["kept", "begun", "given up"] if unseen else ["kept"])
    assert bool(written) == unseen
    assert not list(tmp_path.iterdir())


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt
