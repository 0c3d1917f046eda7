"""Rows of several questions in memory and in folders, by any attempt; and looks at who is asked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import questions_of
from clusterdp._progress import NoProgress
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.mechanisms.settling import settle
from clusterdp.outcomes.baseline import choose_categories
from clusterdp.outcomes.categories import Categories, together
from clusterdp.outcomes.declaration import declare
from clusterdp.releasing import stages
from clusterdp.releasing.journal import LOOKED, Event, NoJournal, unpack_entry
from clusterdp.releasing.prepare import prepare
from clusterdp.releasing.stages import take_pilots
from clusterdp.rows.keys import ReleaseKey, UnitIds
from clusterdp.rows.questions import QuestionRule
from clusterdp.spec.clusters import PrivateClusters
from clusterdp.statistics.noise import ALONE, simulated_noise
from clusterdp.statistics.pilot import pilot_space
from clusterdp.storage.folder import LocalFolder
from runs import release_in_memory, state_of, write_with
from two_questions import ASKED, COLUMNS, MECHANISMS, SPACES, asked_of_some, some_table

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp._arrays import IntArray
    from clusterdp.releasing.prepare import OpenTable

KEY = ReleaseKey(bytes(range(32)))
RULE = QuestionRule(salt=KEY.question_salt(), asked=ASKED)
NAMES = COLUMNS.question_names
PUBLIC = asked_of_some(cdp.optimal(epsilon=1), cdp.optimal(epsilon=1))
LABELS = PrivateClusters(
    response=ClusterResponse.for_epsilon(["0", "1", "2", "3"], 0.7), shares=(1.0,) * 4
)


@dataclass(frozen=True, slots=True)
class Attempt(NoJournal):
    """A journal that keeps pilots in memory, and whose rows have a key of their own."""

    rows_by: ReleaseKey = KEY
    pilots: list[bytes] = field(default_factory=list)

    @property
    def row_key(self) -> ReleaseKey:
        """The key of rows."""
        return self.rows_by

    def recall(self, event: Event) -> bytes | None:
        """The last one."""
        return self.pilots[-1] if self.pilots and event == LOOKED else None

    def keep(self, event: Event, drawn: bytes) -> None:
        """Keep it."""
        if event == LOOKED:
            self.pilots.append(drawn)


def noise() -> Any:
    return simulated_noise(np.random.default_rng(0))


def written(
    prepared: OpenTable, folder: Path, journal: NoJournal, mechanisms: Any = MECHANISMS
) -> pl.DataFrame:
    target = LocalFolder(folder)
    write_with(prepared, mechanisms, target, NoProgress(), journal=journal, add_noise=noise())
    return pl.read_parquet(folder / "units.parquet")


@pytest.mark.parametrize("mechanisms", [PUBLIC, MECHANISMS], ids=["one pass", "two passes"])
@pytest.mark.parametrize("how", ["ids", "order of the table", "private clusters"])
def test_rows_are_the_same_in_memory_and_in_a_folder(
    mechanisms: Any, how: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    table = some_table(400, rng)
    private = how == "private clusters"
    prepared = prepare(
        table,
        columns=replace(COLUMNS, private_cluster=private),
        spaces=SPACES,
        keep_order=how == "order of the table",
        clusters=LABELS if private else None,
    )
    rows = written(prepared, tmp_path / "out", NoJournal(KEY), mechanisms)
    assert rows.equals(release_in_memory(prepared, mechanisms, KEY, noise()).units)
    assert tuple(rows.columns) == prepared.table.columns.as_published().published
    in_order = table["user"] if how == "order of the table" else table["user"].sort()
    assert rows["user"].equals(in_order)
    assert RULE.asks(rows["user"], rows["question"], NAMES)
    own = {NAMES[0]: ("visit", "sale"), NAMES[1]: ("rounds",)}
    for name, outcomes in own.items():
        for outcome in outcomes:
            there = rows[f"{outcome}_debiased"].is_not_null()
            assert there.equals(rows["question"] == name, check_names=False)


def test_another_attempt_asks_the_same_questions(tmp_path: Path, rng: np.random.Generator) -> None:
    """And draws other responses."""
    prepared = prepare(some_table(400, rng), columns=COLUMNS, spaces=SPACES)
    first, again = (
        written(prepared, tmp_path / str(number), Attempt(KEY, KEY.for_attempt(number)), PUBLIC)
        for number in (1, 2)
    )
    assert KEY.for_attempt(2).question_salt() != KEY.question_salt()
    assert again["question"].equals(first["question"])
    assert not again["response"].equals(first["response"])


def test_one_pass_gives_the_bytes_of_two(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(some_table(400, rng), columns=COLUMNS, spaces=SPACES)
    written(prepared, tmp_path / "one", NoJournal(KEY), PUBLIC)
    monkeypatch.setattr(stages, "public_channels", lambda *_: ())
    written(prepared, tmp_path / "two", NoJournal(KEY), PUBLIC)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


# Looks at two numbers that lie far below the ends of their ranges, and none at a third outcome.
def _number(name: str) -> Categories:
    return choose_categories(declare({name: cdp.Number(0, 10_000)}), {}, 6)[0]


LOOKED_AT = together(
    (_number("rounds"), Categories(declared=declare({"sale": "0,1"})), _number("spend"))
)
SHARES = (2**14, 2**14, 2**15)
PILOTS = tuple(
    msgspec.structs.replace(cdp.optimal(epsilon=3, pilot=pilot), asked=asked)
    for pilot, asked in zip((0.3, 0.0, 0.3), SHARES, strict=True)
)


def pilot_table(n_units: int = 4000) -> pl.DataFrame:
    number = pl.int_range(n_units)
    return pl.select(
        user=number,
        treated=number % 2,
        market=number // 2 % 2,
        rounds=number.hash(1) % 6,
        sale=number.hash(2) % 2,
        spend=(number.hash(3) % 6000) / 100,
    )


def look_at(table: pl.DataFrame) -> OpenTable:
    names = ("rounds", "sale", "spend")
    columns = replace(
        COLUMNS, outcomes=names, question_names=names, kept=(), breakdowns=(), folds=1
    )
    return prepare(table, columns=columns, spaces=LOOKED_AT)


def exactly(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
    del scale, widths
    return values


def test_looks_are_at_units_that_are_asked() -> None:
    """Each question has its own, which decides its own range and prior; all are kept as one."""
    table, journal = pilot_table(), Attempt(KEY)
    prepared = look_at(table).asking_by(PILOTS, KEY)
    after = take_pilots(state_of(prepared, PILOTS, journal, exactly))
    numbers = QuestionRule(salt=KEY.question_salt(), asked=SHARES).numbers(UnitIds(table["user"]))
    assert [pilot is not None for pilot in after.pilots] == [True, False, True]
    assert [one.declared is not None for one in after.spec.questions] == [True, False, True]
    for place, name in ((0, "rounds"), (2, "spend")):
        pilot = after.pilots[place]
        assert pilot is not None
        edges = [float(point) for point in pilot_space(LOOKED_AT[place].declared).grids[0].values]
        values = table.filter(numbers == place)[name].to_numpy()
        bins = np.searchsorted(edges, values, side="right") - 1
        np.testing.assert_array_equal(pilot.noisy_counts, np.bincount(bins, minlength=len(edges)))
        (found,) = after.spec.spaces[place].declared.numbers.values()
        assert values.max() <= found.high < 200
        prior = np.array(after.spec.mechanisms[place].prior)
        mean = after.spec.spaces[place].metric_values()[0] @ prior
        # As distributed as those who are asked: had there been thought to be more, less.
        assert mean == pytest.approx(values.mean(), rel=0.1)
    assert after.spec.spaces[1].record() == LOOKED_AT[1].record()
    assert after.spec.mechanisms[1] == PILOTS[1]
    assert after.spec.questions[1].expected is None
    assert any("rounds is clipped" in note for note in after.found)
    assert any("spend is clipped" in note for note in after.found)
    # A run that is resumed recalls all of them, draws nothing, and follows them alike.
    (kept,) = journal.pilots
    assert set(unpack_entry(kept)[0]) == {"0", "2"}
    again = take_pilots(state_of(prepared, PILOTS, journal, noise()))
    assert again.spec.spaces == after.spec.spaces
    assert again.spec.mechanisms == after.spec.mechanisms
    assert len(journal.pilots) == 1
    changed = look_at(table.with_columns(sale=1 - pl.col("sale"))).asking_by(PILOTS, KEY)
    with pytest.raises(cdp.DataError, match="not the one that the release began with"):
        take_pilots(state_of(changed, PILOTS, journal, noise()))


def test_what_cannot_be_released_together_is_as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at two questions, each of which could be followed alone."""
    prepared = look_at(pilot_table()).asking_by(PILOTS, KEY)
    pilots = take_pilots(state_of(prepared, PILOTS, NoJournal(KEY), exactly)).pilots
    calls = []

    def refuse(*given: Any) -> None:
        calls.append(given)
        if len(calls) > 2:  # after each was checked by itself
            raise cdp.ParameterError("too many bits")

    monkeypatch.setattr("clusterdp.mechanisms.settling.check_exact", refuse)
    settled = settle(questions_of(LOOKED_AT, PILOTS), prepared.layout, pilots)
    assert [one.space for one in settled] == list(LOOKED_AT)
    assert [one.mechanism.prior for one in settled] == [one.prior for one in PILOTS]


def test_releases_with_looks_at_several_questions(tmp_path: Path) -> None:
    rows = written(look_at(pilot_table()), tmp_path / "out", NoJournal(KEY), PILOTS)
    assert rows["question"].unique().sort().to_list() == ["rounds", "sale", "spend"]
    made = release_in_memory(look_at(pilot_table()), PILOTS, KEY, noise())
    assert made.units.equals(rows)
    pilots = pl.read_parquet(tmp_path / "out" / "pilot.parquet")
    for place, pilot in enumerate(made.pilots):
        if pilot is not None:
            of_question = pilots.filter(
                pilots["question"].rank("dense") == (1 if place == 0 else 2)
            )
            assert of_question["noisy_count"].to_list() == pilot.noisy_counts.tolist()
