"""Each unit is asked one question, by its id and a public salt; its row answers that one alone."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from assertions import assert_frequencies
from batch_runs import WordGrid
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.errors import DataError, ParameterError
from clusterdp.releasing.prepare import prepare
from clusterdp.rows import questions
from clusterdp.rows.encoding import QuestionEncoder, RowEncoder
from clusterdp.rows.keys import KeyRing, ReleaseKey, UnitIds, fold_numbers, response_key
from clusterdp.rows.questions import QuestionRule
from clusterdp.rows.tally import CountRequest, Tally
from clusterdp.spec.columns import Columns, question_names
from joint_enumeration import category_chances
from two_questions import ASKED, COLUMNS, SPACES, asked_of_some, some_table

if TYPE_CHECKING:
    from clusterdp._arrays import CodeArray, FloatArray
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.rows.randomizing import BatchRandomizer

KEY = ReleaseKey(bytes(32))
KEYS = KeyRing(KEY)
RULE = QuestionRule(salt=KEY.question_salt(), asked=ASKED)
NAMES = COLUMNS.question_names
# Their channels are public; numbers are rounded in the second one.
ROWS = asked_of_some(cdp.optimal(epsilon=1), cdp.optimal(epsilon=2))
FUNNEL: tuple[str, ...] = ("visit", "sale")
NUMBER: tuple[str, ...] = ("rounds",)
OUTCOMES = (FUNNEL, NUMBER)


def prepared_of(table: pl.DataFrame, columns: Columns = COLUMNS) -> OpenTable:
    return prepare(table, columns=columns, spaces=SPACES).asking_by(ROWS, KEY)


def randomizer_of(table: pl.DataFrame, columns: Columns = COLUMNS) -> BatchRandomizer:
    prepared = prepared_of(table, columns)
    pairs = zip(ROWS, SPACES, strict=True)
    channels = [one.settled_rows(space).public_channel(space) for one, space in pairs]
    layout = prepared.layout
    groups = np.zeros_like(layout.sizes)
    return prepared.randomizer([replace(one, groups=groups) for one in channels])


def test_the_question_depends_on_the_id_and_the_salt_alone(rng: np.random.Generator) -> None:
    """Not on outcomes, arms, clusters, places in the table, batches, or how wide integers are."""
    table = some_table(600, rng)
    encoder = randomizer_of(table).encoder

    def asked(batch: pl.DataFrame, by: RowEncoder = encoder) -> list[int]:
        codes = by(batch, KEYS).question_codes
        assert codes is not None
        return list(map(int, codes))

    honest = dict(zip(table["user"], asked(table), strict=True))
    other = table.with_columns(
        pl.col("user").cast(pl.UInt16),
        *(pl.col(name).shuffle(seed=1) for name in ("treated", "market", "tier", "rounds")),
        visit=1 - pl.col("visit"),
        sale=pl.lit(0),
    ).sort(pl.col("user").hash())
    for batch in (other[:100], other[100:]):
        assert [honest[unit] for unit in batch["user"]] == asked(batch)
    elsewhere = replace(encoder, asking=QuestionRule(salt="00" * 16, asked=ASKED))
    assert asked(table, elsewhere) != list(honest.values())
    # Text is another id than the number, and as good.
    texts = table.with_columns(pl.format("unit {} of {}", "user", pl.lit("x" * 80)).alias("user"))
    of_texts = asked(texts)
    assert set(of_texts) == {0, 1}
    assert RULE.asks(texts["user"], pl.Series(NAMES).gather(of_texts), NAMES)


def test_shares_are_as_stated(rng: np.random.Generator) -> None:
    """And are those in each fold. Fails on correct code with probability 3 * ALPHA = 3e-6."""
    n_units = 200_000
    asked = (1, 2**15, 2**14, 2**14 - 1)
    rule = QuestionRule(salt=rng.bytes(16).hex(), asked=asked)
    units = UnitIds(pl.Series(np.arange(n_units)))
    found = rule.numbers(units)
    # Of the first one, three are expected.
    assert (found == 0).sum() < 30
    assert_frequencies(np.bincount(found[found > 0], minlength=4)[1:], np.array(asked[1:]))
    folds = fold_numbers(units, 2)
    both = np.bincount(2 * np.minimum(found, 2) + folds, minlength=6)[2:]
    assert_frequencies(both, np.repeat([asked[1], asked[2] + asked[3]], 2))
    with pytest.raises(AssertionError, match="frequencies differ"):
        assert_frequencies(both, np.array([10, 9, 10, 9]))


def test_questions_can_be_found_without_our_code() -> None:
    """As docs/reference/folder.md says it, of ids that are integers."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = hashlib.sha256(b"clusterdp question" + bytes.fromhex(RULE.salt)).digest()
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - single blocks
    places = []
    for unit in range(-50, 50):
        block = (8).to_bytes(7, "little") + b"\x01" + unit.to_bytes(8, "little", signed=True)
        places.append(int.from_bytes(encryptor.update(block)[:8], "little") >> 48)
    expected = [int(place >= ASKED[0]) for place in places]
    assert RULE.numbers(UnitIds(pl.Series(range(-50, 50)))).tolist() == expected


def test_a_rule_asks_everyone_one_question() -> None:
    for asked in ((ASKED_TOTAL, 0), (ASKED_TOTAL - 1,), (ASKED_TOTAL, 1)):
        with pytest.raises(ParameterError, match="questions are asked of 65536 units together"):
            QuestionRule(salt="00", asked=asked)
    ids = pl.Series("user", range(40))
    told = pl.Series("question", NAMES).gather(RULE.numbers(UnitIds(ids)))
    assert RULE.asks(ids, told, NAMES)
    assert not RULE.asks(ids, told.reverse(), NAMES)
    assert not RULE.asks(ids, told.replace(NAMES[0], None), NAMES)
    assert not RULE.asks(ids + 1, told, NAMES)


@pytest.mark.parametrize("text_ids", [False, True])
def test_a_row_answers_its_own_question_alone(text_ids: bool, rng: np.random.Generator) -> None:
    """Its bytes do not change with the outcomes of others, nor with the rows of its batch."""
    table = some_table(400, rng)
    if text_ids:  # longer than the blocks that are made for all ids at once
        table = table.with_columns(pl.format("{}{}", pl.lit("x" * 70), "user").alias("user"))
    randomize = randomizer_of(table)
    honest = randomize(table, KEYS)[0]
    assert honest.columns == [
        *("user", "treated", "market", "tier", "fold", "question", "response"),
        *("visit_debiased", "sale_debiased", "rounds_debiased"),
    ]
    assert dict(honest.schema) == dict(randomize.schema(table.schema))
    assert RULE.asks(honest["user"], honest["question"], NAMES)
    is_first = honest["question"] == NAMES[0]
    changed = {
        "visit": 1 - table["visit"],
        "sale": 0 * table["sale"],
        "rounds": 4 - table["rounds"],
    }
    for names, own in ((FUNNEL, ~is_first), (NUMBER, is_first)):
        other = table.with_columns(changed[name].alias(name) for name in names)
        found = randomize(other, KEYS)[0]
        assert found.filter(own).equals(honest.filter(own))
        assert not found.filter(~own).equals(honest.filter(~own))
    parts = [randomize(table[start : start + 37], KEYS)[0] for start in range(0, 400, 37)]
    assert pl.concat(parts).equals(honest)
    asked_first = honest.filter(is_first)
    assert asked_first.drop_nulls(["visit_debiased", "sale_debiased"]).height == is_first.sum()
    assert asked_first["rounds_debiased"].null_count() == is_first.sum()
    assert honest.filter(~is_first)["rounds_debiased"].null_count() == 0
    assert honest.filter(~is_first)["visit_debiased"].null_count() == (~is_first).sum()
    for number, (question, names) in enumerate(zip(randomize.questions, OUTCOMES, strict=True)):
        rows = honest.filter(honest["question"] == NAMES[number])
        for name, decoding in zip(names, question.decodings, strict=True):
            assert rows[f"{name}_debiased"].to_list() == decoding.gather(rows["response"]).to_list()


N_WORDS = 48
# Outcomes of both questions: a number that is rounded, and one that is not.
TRUTHS = ((1, 0, 2.75), (1, 1, 0.0))


def machine_rows(number: int, truth: tuple[float, ...]) -> FloatArray:
    """P(a question is asked, and has this response) of the machine, over all words of its keys."""
    n_units = N_WORDS**3
    names = ("visit", "sale", "rounds")
    zero = pl.lit(0, pl.Int64)
    units = pl.select(user=pl.int_range(n_units), treated=zero, market=zero, tier=zero)
    table = units.with_columns(
        **{name: pl.lit(value) for name, value in zip(names, truth, strict=True)}
    )
    first = some_table(16, np.random.default_rng(0))
    randomize = randomizer_of(first)
    of_rule = unit_key(randomize)
    response = [KEYS[one.response_key] for one in randomize.questions]
    rounding = [
        KEYS[key]
        for one in SPACES
        for key in QuestionEncoder.for_space(one, clip=False).rounding_keys("rows")
    ]
    own = response[number]
    words = WordGrid(N_WORDS, (of_rule, own, *rounding))
    # The other question's rows are not looked at.
    words.places.setdefault(response[1 - number], words.places[own])
    with pytest.MonkeyPatch.context() as patch:
        for module in ("randomizing", "encoding", "questions"):
            patch.setattr(f"clusterdp.rows.{module}.unit_words", words)
        rows = randomize(table, KEYS)[0]
    asked = (rows["question"] == NAMES[number]).to_numpy()
    n_outputs = randomize.questions[number].n_outputs
    return np.bincount(rows["response"].to_numpy()[asked], minlength=n_outputs) / n_units


def unit_key(randomize: BatchRandomizer) -> bytes:
    """The key that questions are chosen with."""
    taken: list[bytes] = []

    def take(units: UnitIds, key: bytes) -> Any:
        taken.append(key)
        return np.zeros((len(units), 2), dtype=np.uint64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clusterdp.rows.questions.unit_words", take)
        assert randomize.encoder.asking is not None
        randomize.encoder.asking.numbers(UnitIds(pl.Series([0])))
    return taken[0]


def audit_words() -> None:
    """A question and the response to it are independent, and as probable as stated."""
    for number, (mechanism, space) in enumerate(zip(ROWS, SPACES, strict=True)):
        transition = mechanism.settled_rows(space).public_channel(space).transition()[0]
        for truth in TRUTHS:
            own = truth[:2] if number == 0 else truth[2:]
            wanted = mechanism.asked_share * transition @ category_chances(space, own)
            found = machine_rows(number, truth)
            # Every column of an alias table is cut at one place, between two words of the grid.
            np.testing.assert_allclose(found, wanted, atol=2 / N_WORDS)


def choose_by_the_word_of_rows(patch: pytest.MonkeyPatch) -> None:
    """The question is chosen with the word that the response is drawn by."""
    key = KEYS[response_key(FUNNEL)]

    def numbers(self: QuestionRule, units: UnitIds) -> CodeArray:
        places = vars(questions)["unit_words"](units, key)[:, 0] >> np.uint64(48)
        return np.asarray(places >= self.asked[0]).astype(np.int32)

    patch.setattr(QuestionRule, "numbers", numbers)


def test_words_of_questions_responses_and_roundings_are_independent() -> None:
    audit_words()


def test_a_shared_word_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_by_the_word_of_rows(monkeypatch)
    with pytest.raises(AssertionError):
        audit_words()


def test_counts_are_of_units_that_are_asked_and_sums_of_everyone(rng: np.random.Generator) -> None:
    table = some_table(400, rng)
    prepared, everyone = prepared_of(table), prepare(table, columns=COLUMNS, spaces=SPACES)
    numbers = RULE.numbers(UnitIds(table["user"]))
    asked = [CountRequest(sums=True, levels=((), ("tier",)), counts=True, rounded=True)] * 2
    found, whole = (
        one.table.run(one.pass_with(KEYS, counts=asked)) for one in (prepared, everyone)
    )
    assert found.seen == whole.seen
    pairs = zip(found.counted.totals, whole.counted.totals, strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        np.testing.assert_array_equal(ours.sums, theirs.sums)
        np.testing.assert_array_equal(ours.squares, theirs.squares)
        for level in theirs.groups:
            np.testing.assert_array_equal(ours.groups[level][0], theirs.groups[level][0])
        one, other = (of.counted.questions[number].counts for of in (found, whole))
        np.testing.assert_array_equal(one, other)
        part = table.filter(numbers == number)
        alone = prepare(part, columns=COLUMNS, spaces=SPACES)
        of_part = alone.table.run(alone.pass_with(KEYS, counts=asked)).counted.totals[number]
        np.testing.assert_array_equal(ours.counts, of_part.counts)
        assert ours.counts.sum() == len(part)
    # Without rounding, as pilots have them: at the grid point below.
    at_points = [CountRequest(counts=True)] * 2
    below = prepared.count(at_points).counted
    rounds = table.filter(numbers == 1)["rounds"].to_numpy()
    in_bins = np.bincount(np.searchsorted([1, 4], rounds, side="right"), minlength=3)
    np.testing.assert_array_equal(below.totals[1].counts.sum(axis=(0, 1)), in_bins)


def test_what_is_counted_of_some_has_a_section_of_its_own(rng: np.random.Generator) -> None:
    prepared = prepared_of(some_table(48, rng))
    layout, cells = prepared.layout, prepared.encoder
    for asking, more in ((None, (0, 3)), (RULE, (3, 3))):
        encoder = RowEncoder.for_spaces(COLUMNS, SPACES, cells, asking, clip=False)
        wanted = [CountRequest(counts=True, rounded=True)] * 2
        counters = Tally(encoder, layout, wanted).questions
        assert [one.table.shape[1] - one.n_categories for one in counters] == list(more)
        counters = Tally(encoder, layout, [CountRequest(rounded=True)] * 2).questions
        assert all(one.table.shape[1] == one.n_categories for one in counters)


def test_several_questions_need_a_rule(rng: np.random.Generator) -> None:
    table = some_table(48, rng)
    made = randomizer_of(table)
    prepared = prepare(table, columns=COLUMNS, spaces=SPACES)
    with pytest.raises(ValueError, match="several questions need a rule"):
        prepared.randomizer([None, None])  # type: ignore[list-item]  # never looked at
    assert made.encoder.asking == RULE
    histograms = (cdp.noisy_histogram(epsilon=1),) * 2
    assert prepared.asking_by(histograms, KEY).asking is None
    assert prepared.asking_by(ROWS[:1], KEY).asking is None


def test_names_of_questions() -> None:
    assert question_names([FUNNEL, NUMBER]) == NAMES
    assert question_names([FUNNEL]) == ()
    assert replace(COLUMNS, question_names=()).published[5] == "response"
    twice = question_names([("a", "b"), ("a+b",)])
    with pytest.raises(DataError, match="two questions would have one name"):
        Columns(unit="u", arm="t", cluster=None, outcomes=("a", "b", "a+b"), question_names=twice)
    with pytest.raises(DataError, match="column 'question' has a name that the release gives"):
        replace(COLUMNS, kept=("question",))
    with pytest.raises(DataError, match="column 'noisy_sum_2' has a name that the release gives"):
        replace(COLUMNS, cluster="noisy_sum_2")
