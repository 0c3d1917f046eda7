"""A release of two blocks, enumerated: rows and sums of both, and the words they are drawn by."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from batch_runs import WordGrid, batch_of
from clusterdp.engines.base import row_encoder
from clusterdp.experiment.declared import declare
from clusterdp.published.terms import Terms
from clusterdp.releasing.prepare import asked_of, prepare
from clusterdp.rows.batches import RowEncoder
from clusterdp.rows.columns import Columns
from clusterdp.rows.counting import RowCounter, Tally
from clusterdp.rows.keys import ReleaseKey
from clusterdp.rows.labels import CellEncoder, Labels
from clusterdp.rows.publishing import BatchRandomizer
from clusterdp.statistics.noise import ALONE
from joint_enumeration import category_chances
from neighbour_tables import Centre, shifts
from populations import make_layout
from two_blocks import COLUMNS, SPACES, some_table

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray

SLACK = 1e-9
KEY = ReleaseKey(bytes(32))
# All outcomes that a unit may have: numbers that are rounded, too.
FUNNEL_ROWS = ((0, 0), (1, 0), (1, 1))
NUMBER_ROWS = ((0,), (0.5,), (2.75,), (4,))
EVERY_ROW = tuple(one + other for one, other in itertools.product(FUNNEL_ROWS, NUMBER_ROWS))
SUMS = cdp.SumShares(totals=0.1, clusters=0.2, breakdowns=((("tier",), 0.1),), noise_in_rows=50.0)
MECHANISMS = {
    "rows": (cdp.optimal(epsilon=1.2), cdp.optimal(epsilon=0.8)),
    "rows and sums": (cdp.optimal(epsilon=1.2, sums=SUMS), cdp.optimal(epsilon=0.8, sums=SUMS)),
    "sums of one": (cdp.uniform_prior_dp(epsilon=1.2), cdp.optimal(epsilon=0.8, sums=SUMS)),
}
# Words of each of three keys: two channels, and the rounding of the number.
N_WORDS = 60
# Both channels are noisy, and a response of the second one still tells how a number was rounded.
AUDITED = (cdp.optimal(epsilon=1), cdp.optimal(epsilon=2))


def joint_rows(mechanisms: tuple[cdp.Mechanism, ...]) -> FloatArray:
    """P(both responses | outcomes) from the integers; axes `[response 1, response 2, row]`."""
    parts = []
    for place, (mechanism, space) in enumerate(zip(mechanisms, SPACES, strict=True)):
        transition = mechanism.settled_rows(space).public_channel(space).transition()[0]
        own = [row[:2] if place == 0 else row[2:] for row in EVERY_ROW]
        parts.append(transition @ np.array([category_chances(space, row) for row in own]).T)
    return np.asarray(np.einsum("ax,bx->abx", *parts))


def centres_of(mechanisms: tuple[cdp.Mechanism, ...]) -> list[list[Centre]]:
    """What noise is added to, of both blocks counted in one pass, for every row of a unit."""
    table = some_table(48, np.random.default_rng(0)).sort("user")
    prepared = prepare(table, columns=COLUMNS, spaces=SPACES)
    encoder, layout = row_encoder(prepared.table, prepared.encoder), prepared.layout
    counter = RowCounter.of(encoder, layout, [asked_of(one, layout, KEY) for one in mechanisms])
    every = []
    for row in EVERY_ROW:
        changed = table.with_columns(
            pl.when(pl.col("user") == 0).then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
            for name, value in zip(COLUMNS.outcomes, row, strict=True)
        )
        tally = Tally.empty(counter, layout.sizes.size)
        tally.add(counter.encoder(changed))
        found: list[Centre] = []

        def write_down(
            values: IntArray,
            scale: float,
            widths: tuple[int, ...] = ALONE,
            into: list[Centre] = found,
        ) -> IntArray:
            into.append(Centre(values.copy(), scale, widths))
            return values

        blocks = zip(mechanisms, SPACES, counter.blocks, tally.blocks, strict=True)
        for mechanism, space, block, counted in blocks:
            totals = block.totals(counted, layout)
            for statistic in mechanism.statistics:
                statistic.draw(totals, layout, space, write_down)
        every.append(found)
    return every


@pytest.mark.parametrize("name", MECHANISMS)
def test_both_blocks_together_lose_what_is_stated(name: str) -> None:
    """Over all pairs of outcomes of a unit, in both blocks at once."""
    mechanisms = MECHANISMS[name]
    stated = Terms.of(SPACES, mechanisms).to_guarantee().epsilon
    assert stated <= 2
    rows, centres = joint_rows(mechanisms), centres_of(mechanisms)
    losses = []
    for old, new in itertools.permutations(range(len(EVERY_ROW)), 2):
        possible = rows[..., old] > 0
        of_rows = np.log(rows[..., old][possible] / rows[..., new][possible]).max()
        moved = shifts(centres[old], centres[new])
        losses.append(of_rows + sum(max(one.distances) / one.scale for one in moved))
    assert max(losses) <= stated + SLACK
    # Totals of units that weigh less than the heaviest lose less.
    assert max(losses) >= (0.99 if name == "rows" else 0.85) * stated


def randomizer() -> BatchRandomizer:
    columns = Columns(
        unit="user",
        arm="treated",
        cluster="market",
        outcomes=("visit", "sale", "rounds"),
        n_blocks=2,
    )
    cells = CellEncoder(clusters=Labels.of(pl.Series([0])), arms=Labels.of(pl.Series([0, 1])))
    layout = make_layout([[N_WORDS**3, 1]])
    channels = [
        mechanism.settled_rows(space).design(layout, space, None)
        for mechanism, space in zip(AUDITED, SPACES, strict=True)
    ]
    return BatchRandomizer.of(
        RowEncoder.of(columns, SPACES, cells, clip=False), channels, layout, KEY
    )


def machine_rows(row: tuple[float, ...]) -> FloatArray:
    """P(both responses | outcomes) of the machine, over all words of its keys."""
    made = randomizer()
    keys = [key for one in made.blocks for key in (one.row_randomizer.aes_key, *one.rounding_keys)]
    words = WordGrid(N_WORDS, tuple(keys))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clusterdp.rows.randomizer.unit_words", words)
        patch.setattr("clusterdp.rows.batches.unit_words", words)
        named: dict[str, object] = dict(zip(("visit", "sale", "rounds"), row, strict=True))
        rows = made(batch_of(named, N_WORDS**3)).rows
    sizes = [one.row_randomizer.n_outputs for one in made.blocks]
    together = np.zeros(sizes)
    np.add.at(together, (rows["response_1"].to_numpy(), rows["response_2"].to_numpy()), 1)
    return together / N_WORDS**3


def audit_words() -> None:
    """Responses of different blocks are independent, and each goes through its own channel."""
    wanted = joint_rows(AUDITED)
    for place in (0, 6, len(EVERY_ROW) - 1):
        # Every column of an alias table is cut at one place, between two words of the grid.
        found = machine_rows(EVERY_ROW[place])
        np.testing.assert_allclose(found, wanted[..., place], atol=2 / N_WORDS)


def share_the_word(patch: pytest.MonkeyPatch) -> None:
    """Both channels take the same word."""
    honest = ReleaseKey.for_response

    def shared(self: ReleaseKey, outcomes: tuple[str, ...]) -> bytes:
        del outcomes
        return honest(self, ("visit", "sale"))

    patch.setattr(ReleaseKey, "for_response", shared)


def round_by_the_other_word(patch: pytest.MonkeyPatch) -> None:
    """The number of one block is rounded by the word of the other block's channel."""

    def shared(self: ReleaseKey, outcome: str, purpose: str) -> bytes:
        del outcome, purpose
        return self.for_response(("visit", "sale"))

    patch.setattr(ReleaseKey, "for_rounding", shared)


def test_the_words_of_blocks_are_independent() -> None:
    audit_words()


@pytest.mark.parametrize("plant", [share_the_word, round_by_the_other_word])
def test_shared_words_are_caught(plant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(plant)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        audit_words()


def test_every_key_of_a_release_is_another() -> None:
    """Also where the names of outcomes, written one after another, are the same."""
    names = [("a", "b"), ("a,b",), ("ab",), ("a",), ("b",)]
    with pytest.raises(cdp.ParameterError, match="rename the column"):
        declare({"a\x00b": "0,1"})
    keys = [KEY.for_response(one) for one in names]
    for name in ("a", "b", "a,b"):
        keys += [KEY.for_rounding(name, "rows"), KEY.for_rounding(name, "counts")]
    assert len(set(keys)) == len(keys)


def test_delta_and_losses_add_up() -> None:
    mechanisms = (cdp.optimal(epsilon=1, delta=1e-6), cdp.optimal(epsilon=0.5, delta=2e-6))
    terms = Terms.of(SPACES, mechanisms)
    assert math.isclose(terms.guarantee.epsilon, 1.5)
    assert math.isclose(terms.guarantee.delta, 3e-6)
    assert [float(loss.atoms[0].loss) for loss in terms.losses()] == pytest.approx([1, 0.5])
