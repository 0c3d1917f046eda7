"""Releases of two and three questions, enumerated: what a unit loses, whatever it is asked.

Everything that depends on a unit's outcomes is counted by the code of the release itself: its
response, the sums of everyone, the counts and the pilot of its question. Of noise, the centre and
the scale are written down. So a sum that forgets a question, or a count of somebody who was not
asked, shows in the loss.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import questions_of
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.mechanisms.draw import draw_together
from clusterdp.outcomes.categories import Categories, together
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.releasing.prepare import asked_of, prepare
from clusterdp.rows.encoding import RowCodes, RowEncoder
from clusterdp.rows.keys import CLUSTERS_KEY, KeyRing, ReleaseKey, response_key, rounding_key
from clusterdp.rows.randomizing import BatchRandomizer
from clusterdp.rows.tally import CountRequest, Tally
from clusterdp.spec.columns import Columns, question_names
from clusterdp.spec.terms import Terms
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.noise import ALONE
from clusterdp.statistics.pilot import pilot_space
from clusterdp.statistics.sums import NoisySums
from joint_enumeration import category_chances
from neighbour_tables import Centre, shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._arrays import IntArray

SLACK = 1e-9
KEY = ReleaseKey(bytes(32))
KEYS = KeyRing(KEY)
ROUNDS = cdp.Number(0, 4)
FUNNEL = Categories(
    declared=declare({"visit": "0,1", "sale": "0,1"}, constraints=["sale -> visit"])
)
NUMBER = Categories(
    declared=declare({"rounds": ROUNDS}),
    grids=(Grid(number=ROUNDS, points=tuple(int(ROUNDS.steps_to(one)) for one in (0, 1, 4))),),
)
RATING = Categories(declared=declare({"rating": "0..2"}, missing=["rating"]))
# All outcomes that a unit may have in each question: numbers that are rounded, too.
OUTCOMES: dict[Categories, tuple[tuple[float | None, ...], ...]] = {
    FUNNEL: ((0, 0), (1, 0), (1, 1)),
    NUMBER: ((0,), (0.5,), (2.75,), (4,)),
    RATING: ((0,), (2,), (None,)),
}
TWO, THREE = (FUNNEL, NUMBER), (FUNNEL, NUMBER, RATING)
SUMS = cdp.SumShares(totals=0.1, clusters=0.2, breakdowns=((("tier",), 0.1),), noise_in_rows=50.0)
CASES: dict[str, tuple[tuple[Categories, ...], tuple[cdp.Mechanism, ...]]] = {
    "rows": (TWO, (cdp.optimal(epsilon=1.2), cdp.optimal(epsilon=0.8))),
    "rows and sums": (TWO, (cdp.optimal(epsilon=1.2, sums=SUMS),) * 2),
    "counts": (
        TWO,
        (
            cdp.cluster_dp(noise_scale=8, prior_floor=0.1, epsilon=1.2, sums=SUMS),
            cdp.optimal(epsilon=1.2, noise_scale=12, sums=SUMS),
        ),
    ),
    "pilots": (TWO, (cdp.optimal(epsilon=1.2, sums=SUMS, pilot=0.2),) * 2),
    "one pilot": (TWO, (cdp.optimal(epsilon=1.2), cdp.optimal(epsilon=1.2, pilot=0.3))),
    "three questions": (THREE, (cdp.optimal(epsilon=1.2, sums=SUMS),) * 3),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enumeration:
    """A release whose losses are enumerated."""

    spaces: tuple[Categories, ...]
    mechanisms: tuple[cdp.Mechanism, ...]

    @classmethod
    def of(cls, alone: Sequence[Categories], given: Sequence[cdp.Mechanism]) -> Enumeration:
        """Questions that are asked about alike."""
        shares = np.diff(np.linspace(0, 2**16, len(given) + 1).astype(int)).tolist()
        made = (
            msgspec.structs.replace(one, asked=asked)
            for one, asked in zip(given, shares, strict=True)
        )
        return cls(spaces=together(alone), mechanisms=tuple(made))

    @property
    def every_row(self) -> list[tuple[float | None, ...]]:
        """All that a unit's outcomes may be, of all questions."""
        own = (OUTCOMES[one] for one in self.spaces[0].together)
        return [tuple(itertools.chain(*parts)) for parts in itertools.product(*own)]

    @property
    def columns(self) -> Columns:
        """Those of the table."""
        names = [space.declared.names for space in self.spaces]
        return Columns(
            unit="user",
            arm="treated",
            cluster="market",
            outcomes=tuple(itertools.chain(*names)),
            missing=tuple(name for one in self.spaces for name in one.declared.missing),
            kept=("tier",),
            breakdowns=(("tier",),),
            folds=2,
            question_names=question_names(names),
        )

    def table(self, unit: int, row: tuple[float | None, ...]) -> pl.DataFrame:
        """A table of units with the same outcomes, but for one."""
        number = np.arange(48)
        public = pl.DataFrame(
            {
                "user": number,
                "treated": number % 2,
                "market": number // 2 % 4,
                "tier": number // 8 % 2,
            }
        )
        pairs = zip(self.columns.outcomes, row, self.every_row[0], strict=True)
        return public.with_columns(
            pl.when(pl.col("user") == unit).then(pl.lit(own)).otherwise(pl.lit(other)).alias(name)
            for name, own, other in pairs
        )

    def encoder(self, spaces: tuple[Categories, ...]) -> tuple[RowEncoder, Any]:
        """Rows as codes, and the cells."""
        table = self.table(0, self.every_row[0])
        prepared = prepare(table, columns=self.columns, spaces=spaces)
        prepared = prepared.asking_by(self.mechanisms, KEY)
        encode = prepared.table.encoder(prepared.encoder, prepared.asking)
        return encode, prepared.layout

    def question_of(self, unit: int, row: tuple[float | None, ...]) -> int:
        """What a unit with these outcomes is asked."""
        encode, _ = self.encoder(self.spaces)
        codes = encode(self.table(unit, row), KEYS).question_codes
        assert codes is not None
        return int(codes[unit])

    def centres(self, unit: int, row: tuple[float | None, ...]) -> list[Centre]:
        """What noise is added to, where a unit has these outcomes."""
        found: list[Centre] = []

        def write_down(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
            found.append(Centre(values.copy(), scale, widths))
            return values

        encode, layout = self.encoder(self.spaces)
        asked = [asked_of(one, layout) for one in self.mechanisms]
        totals = self._counted(encode, layout, asked, unit, row)
        draw_together(totals, layout, self.spaces, self.mechanisms, write_down)
        bins = tuple(pilot_space(space.declared) for space in self.spaces)
        encode, layout = self.encoder(bins)
        asked = [CountRequest(counts=True) for _ in bins]
        totals = self._counted(encode, layout, asked, unit, row)
        for mechanism, space, counted in zip(self.mechanisms, bins, totals, strict=True):
            if mechanism.pilot is not None:
                mechanism.pilot.draw(counted.counts.sum(axis=(0, 1)), space, write_down)
        return found

    def _counted(self, encode: RowEncoder, layout: Any, asked: Any, unit: int, row: Any) -> Any:
        tally = Tally(encode, layout, asked)
        tally.add(tally.encoder(self.table(unit, row), KEYS), KEYS)
        return tally.totals

    def own_loss(self, number: int, old: tuple[Any, ...], new: tuple[Any, ...]) -> float:
        """What the response of a unit that is asked a question loses, from the integers."""
        space, mechanism = self.spaces[number], self.mechanisms[number]
        transition = mechanism.settled_rows(space).public_channel(space).transition()[0]
        first = sum(len(one.declared.names) for one in self.spaces[:number])
        own = slice(first, first + len(space.declared.names))
        before, after = (transition @ category_chances(space, row[own]) for row in (old, new))
        return float(np.log(before[before > 0] / after[before > 0]).max())

    def losses(self) -> dict[int, float]:
        """The most that a unit loses which is asked each question, over all pairs of outcomes."""
        rows, found = self.every_row, dict[int, float]()
        for unit in range(48):
            number = self.question_of(unit, rows[0])
            if number in found:
                continue
            centres = [self.centres(unit, row) for row in rows]
            found[number] = max(
                self.own_loss(number, rows[old], rows[new])
                # Numbers with noise of their own lose all they move by, those of a box the most.
                + sum(
                    (sum if one.widths == ALONE else max)(one.distances) / one.scale
                    for one in moved_by(centres[old], centres[new])
                )
                for old, new in itertools.permutations(range(len(rows)), 2)
            )
            if len(found) == len(self.mechanisms):
                break
        return found


def moved_by(one: list[Centre], other: list[Centre]) -> list[Any]:
    """The shifts between two lists of centres, each with the widths of its noise."""
    found = []
    for before, after in zip(one, other, strict=True):
        found += [_Shifted(*shift, before.widths) for shift in shifts([before], [after])]
    return found


@dataclass(frozen=True, slots=True)
class _Shifted:
    distances: tuple[int, ...]
    scale: float
    widths: tuple[int, ...]


def audit(name: str) -> None:
    """No unit loses more than is stated, and what is stated is nearly lost."""
    made = Enumeration.of(*CASES[name])
    stated = Terms.from_questions(questions_of(made.spaces, made.mechanisms)).guarantee.epsilon
    assert stated <= 1.2 + SLACK
    losses = made.losses()
    assert set(losses) == set(range(len(made.mechanisms)))
    for number, loss in losses.items():
        assert loss <= made.mechanisms[number].guarantee(made.spaces[number]).epsilon + SLACK
    # Totals of units that weigh less than the heaviest lose less.
    assert max(losses.values()) >= (0.99 if name == "rows" else 0.8) * stated


@pytest.mark.parametrize("name", CASES)
def test_a_unit_loses_what_its_own_question_costs(name: str) -> None:
    audit(name)


def count_everyone(patch: pytest.MonkeyPatch) -> None:
    """Counts and pilots are of all units, whatever they are asked."""
    honest = RowCodes.asked

    def everyone(self: RowCodes, number: int) -> Any:
        return honest(self._replace(question_codes=None), number)

    patch.setattr(RowCodes, "asked", everyone)


def halve_the_noise_of_sums(patch: pytest.MonkeyPatch) -> None:
    """Each of two questions takes all of what sums may cost."""
    from clusterdp.statistics import _sum_noise

    honest = _sum_noise.NoiseBox.scale
    patch.setattr(_sum_noise.NoiseBox, "scale", lambda self, epsilon: honest(self, 2 * epsilon))


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (count_everyone, "counts"),
        (count_everyone, "pilots"),
        (halve_the_noise_of_sums, "rows and sums"),
    ],
)
def test_planted_bugs_are_caught(
    plant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        audit(name)


def audit_questions() -> None:
    """What a unit is asked does not change with any outcome, and it answers that alone."""
    made = Enumeration.of(*CASES["three questions"])
    asked = {
        row: [made.question_of(unit, row) for unit in range(12)] for row in made.every_row[::5]
    }
    assert len(set(map(tuple, asked.values()))) == 1
    encode, layout = made.encoder(made.spaces)
    channels = [
        mechanism.settled_rows(space).design(layout, space, None)
        for mechanism, space in zip(made.mechanisms, made.spaces, strict=True)
    ]
    randomize = BatchRandomizer.from_channels(encode, channels, layout)
    rows, _ = randomize(made.table(0, made.every_row[0]), KEYS)
    answered = [rows[f"{name}_debiased"].is_not_null() for name in ("visit", "rounds")]
    answered.append(rows["rating_observed_debiased"].is_not_null())
    assert (pl.DataFrame(answered).sum_horizontal() == 1).all()


def ask_by_an_outcome(patch: pytest.MonkeyPatch) -> None:
    """Those who visited are asked about it."""
    honest = RowEncoder.__call__

    def by_outcome(self: RowEncoder, batch: pl.DataFrame, keys: Any) -> RowCodes:
        rows = honest(self, batch, keys)
        assert rows.question_codes is not None
        visited = batch["visit"].to_numpy() == 1
        codes = np.where(visited, 0, rows.question_codes).astype(np.int32)
        return rows._replace(question_codes=codes)

    patch.setattr(RowEncoder, "__call__", by_outcome)


def answer_twice(patch: pytest.MonkeyPatch) -> None:
    """Everyone answers the first question, whatever they are asked."""
    honest = BatchRandomizer.complete

    def twice(self: BatchRandomizer, rows: pl.DataFrame) -> pl.DataFrame:
        return honest(self, rows).with_columns(pl.col("visit_debiased").fill_null(0.0))

    patch.setattr(BatchRandomizer, "complete", twice)


def test_a_unit_answers_the_one_question_that_its_id_leads_to() -> None:
    audit_questions()


@pytest.mark.parametrize("plant", [ask_by_an_outcome, answer_twice])
def test_other_questions_are_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        audit_questions()


def test_every_key_of_a_release_is_another() -> None:
    """Also where the names of outcomes, written one after another, are the same."""
    names = [("a", "b"), ("a,b",), ("ab",), ("a",), ("b",)]
    with pytest.raises(cdp.ParameterError, match="rename the column"):
        declare({"a\x00b": "0,1"})
    keys = [KEYS[response_key(one)] for one in names]
    for name in ("a", "b", "a,b"):
        keys += [KEYS[rounding_key(name, "rows")], KEYS[rounding_key(name, "counts")]]
    keys.append(KEYS[CLUSTERS_KEY])
    salt = bytes.fromhex(KEY.question_salt())
    # The salt is public: a key that follows from it, as that of the question does, is no secret.
    public = [sha256(b"clusterdp question" + salt).digest(), sha256(salt).digest()]
    assert len({*keys, *public}) == len(keys) + len(public)
    assert all(salt not in key for key in (*keys, KEY.expose()))


def test_the_largest_epsilon_and_delta_count_and_private_clusters_add_up() -> None:
    given = (cdp.optimal(epsilon=1, delta=1e-6), cdp.optimal(epsilon=0.5, delta=2e-6))
    made = Enumeration.of(TWO, given)
    terms = Terms.from_questions(questions_of(made.spaces, made.mechanisms))
    assert math.isclose(terms.guarantee.epsilon, 1)
    assert math.isclose(terms.guarantee.delta, 2e-6)
    for space, mechanism, stated in zip(made.spaces, made.mechanisms, terms.questions, strict=True):
        rows = mechanism.settled_rows(space).public_channel(space).transition()[0]
        beyond = np.maximum(rows[:, :, None] - math.exp(stated.epsilon) * rows[:, None, :], 0)
        assert beyond.sum(axis=0).max() <= stated.delta + 1e-12
    ((atoms, revealed),) = terms.losses()
    assert float(atoms[0].loss) == pytest.approx(1)
    assert revealed == pytest.approx(2e-6)
    labels = ClusterResponse.for_epsilon(("a", "b"), 0.7)
    whole = Terms.from_questions(questions_of(made.spaces, made.mechanisms), labels).guarantee
    assert whole.epsilon == pytest.approx(labels.guarantee().epsilon + 1, abs=1e-9)


def test_without_rows_everyone_is_part_of_every_question() -> None:
    mechanisms = (cdp.noisy_histogram(epsilon=0.5), cdp.noisy_histogram(epsilon=0.7))
    terms = Terms.from_questions(questions_of(together(TWO), mechanisms))
    assert math.isclose(terms.guarantee.epsilon, 1.2)
    assert len(terms.losses()) == 2


@pytest.mark.parametrize(
    ("mechanisms", "match"),
    [
        ((cdp.optimal(epsilon=1), cdp.optimal(epsilon=1)), "asked one question"),
        ((cdp.optimal(epsilon=1), cdp.noisy_histogram(epsilon=1)), "choose mechanisms"),
    ],
)
def test_questions_that_do_not_fit_together_are_refused(
    mechanisms: tuple[cdp.Mechanism, ...], match: str
) -> None:
    with pytest.raises(cdp.ParameterError, match=match):
        Terms.from_questions(questions_of(together(TWO), mechanisms))


def test_sums_without_rows_are_alike_too() -> None:
    sums = [NoisySums(epsilon=epsilon) for epsilon in (5.0, 0.01)]
    made = [
        cdp.Mechanism(name="by hand", statistics=(NoisyCounts(noise_scale=2), one)) for one in sums
    ]
    with pytest.raises(cdp.ParameterError, match="same shares"):
        Terms.from_questions(questions_of(together(TWO), made))


def test_sums_of_everyone_are_alike_for_all_questions() -> None:
    made = Enumeration.of(TWO, (cdp.optimal(epsilon=1, sums=SUMS), cdp.optimal(epsilon=1)))
    with pytest.raises(cdp.ParameterError, match="same shares"):
        Terms.from_questions(questions_of(made.spaces, made.mechanisms))
