from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assertions import assert_frequencies
from clusterdp import DataError
from clusterdp.outcomes import encoding
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.outcomes.number import Number, rounds_up
from rounding_probs import category_probs, up_prob

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, WordArray

FAR = 2_000_000_000
# Between grid points 8 steps apart, three bits of a word decide: these are all cases.
EIGHTHS = np.arange(8, dtype=np.uint64) << np.uint64(61)


def two_numbers() -> Categories:
    """Two numbers of 8 steps, rounded to their ends, and their product."""
    number = Number(FAR, FAR + 8)
    grid = Grid(number=number, points=(0, 8))
    declared = declare({"x": number, "y": number}, metrics=["x*y"])
    return Categories(declared=declared, grids=(grid, grid))


def game() -> Categories:
    """Two binary outcomes and a number with a cut."""
    number = Number(FAR, FAR + 20)
    declared = declare(
        {"one": "0,1", "rounds": number, "seven": "0,1"},
        metrics=[f"rounds>={FAR + 10}"],
        constraints=["seven -> one", f"rounds>={FAR + 10} -> one"],
    )
    return Categories(declared=declared, grids=(Grid(number=number, points=(0, 3, 9, 10, 17, 20)),))


# Exact: the probabilities of the machine.


@given(st.integers(1, 2**24), st.data())
def test_the_stated_probability_is_that_of_the_machine(width: int, data: st.DataObject) -> None:
    numerator = data.draw(st.integers(0, width - 1))
    n_up = up_prob(numerator, width) * 2**64
    assert n_up.denominator == 1
    assert 0 <= up_prob(numerator, width) - Fraction(numerator, width) < Fraction(1, 2**64)
    beside = [word for word in (0, int(n_up) - 1, int(n_up), 2**64 - 1) if word >= 0]
    more = data.draw(st.lists(st.integers(0, 2**64 - 1), max_size=5))
    for word in beside + more:
        up = rounds_up(
            np.array([word], dtype=np.uint64),
            np.array([numerator], dtype=np.uint64),
            np.array([width], dtype=np.uint64),
        )
        assert bool(up[0]) == (word < n_up) == (word * width // 2**64 < numerator)


def test_rounding_keeps_every_lattice_number_up_to_the_stated_bound() -> None:
    categories = game()
    values = [int(value) for value in categories.outcome_values()[1]]
    widest = max(np.diff(categories.grids[0].points))
    for step in range(21):
        probs = category_probs(categories, {"one": 1, "rounds": FAR + step, "seven": 0})
        assert sum(probs.values()) == 1
        mean = sum(prob * values[category] for category, prob in probs.items())
        assert 0 <= mean - (FAR + step) < Fraction(int(widest), 2**64)


def test_nothing_is_rounded_across_a_cut() -> None:
    categories = game()
    at_least_ten = categories.metric_values()[-1]
    for step in range(21):
        probs = category_probs(categories, {"one": 1, "rounds": FAR + step, "seven": 1})
        assert {at_least_ten[category] for category in probs} == {float(step >= 10)}


def test_the_stated_distribution_is_that_of_rounding() -> None:
    """Words in the middle of equal parts, a multiple of every gap: each part counts alike."""
    categories, encoder = game(), game().encoder()
    n_parts = int(np.lcm.reduce(np.diff(categories.grids[0].points)))
    middles = [(2 * part + 1) * 2**63 // n_parts for part in range(n_parts)]
    words = np.array(middles, dtype=np.uint64)[:, np.newaxis]
    for step in range(21):
        row = {"one": 1, "rounds": FAR + step, "seven": 0}
        table = {name: np.full(n_parts, value) for name, value in row.items()}
        found = encoder.round(encoder.encode(table), words)
        for category, prob in category_probs(categories, row).items():
            share = Fraction(int((found == category).sum()), n_parts)
            assert abs(share - prob) < Fraction(1, 2**64)


def mean_product(categories: Categories, x: int, y: int, words: WordArray) -> float:
    """The mean of x·y, in steps above the lower ends, over all rows of words."""
    encoder = categories.encoder()
    table = {"x": np.full(len(words), FAR + x), "y": np.full(len(words), FAR + y)}
    found = encoder.round(encoder.encode(table), words)
    steps = categories.outcome_values() - FAR
    return float((steps[0] * steps[1])[found].mean())


ALL_PAIRS = np.array(list(itertools.product(EIGHTHS, repeat=2)))
SHARED = np.stack([EIGHTHS, EIGHTHS], axis=1)


def test_products_of_numbers_are_unbiased_with_a_word_each() -> None:
    for x, y in itertools.product(range(9), repeat=2):
        assert mean_product(two_numbers(), x, y, ALL_PAIRS) == x * y


def test_a_word_shared_by_two_numbers_is_caught() -> None:
    """Planted bug: the check above fails if both numbers are rounded with one word."""
    means = [
        mean_product(two_numbers(), x, y, SHARED) for x, y in itertools.product(range(9), repeat=2)
    ]
    assert means != [x * y for x, y in itertools.product(range(9), repeat=2)]
    assert mean_product(two_numbers(), 4, 4, SHARED) == 32


def mean_number(step: int) -> float:
    """The mean of one rounded number over all cases of its word, in steps."""
    categories, encoder = two_numbers(), two_numbers().encoder()
    table = {"x": np.full(8, FAR + step), "y": np.full(8, FAR)}
    found = encoder.round(encoder.encode(table), np.stack([EIGHTHS, EIGHTHS], axis=1))
    return float((categories.outcome_values()[0] - FAR)[found].mean())


def test_numbers_are_unbiased_over_all_words() -> None:
    assert [mean_number(step) for step in range(9)] == list(range(9))


def test_rounding_the_wrong_way_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: up with probability 1 − p fails the check above."""

    def wrong(words: WordArray, numerators: WordArray, widths: WordArray) -> BoolArray:
        return rounds_up(words, (widths - numerators) % widths, widths)

    monkeypatch.setattr(encoding, "rounds_up", wrong)
    assert [mean_number(step) for step in range(9)] != list(range(9))


# Statistical: one table with random words.


def test_random_words_give_the_stated_frequencies(rng: np.random.Generator) -> None:
    categories, encoder = game(), game().encoder()
    n_rows = 40_000
    row = {"one": 1, "rounds": FAR + 12, "seven": 0}
    words = rng.integers(0, 2**64, size=(n_rows, 1), dtype=np.uint64)
    table = {name: np.full(n_rows, value) for name, value in row.items()}
    found = encoder.round(encoder.encode(table), words)
    probs = category_probs(categories, row)
    observed = np.array([(found == category).sum() for category in probs])
    stated: FloatArray = np.array([float(prob) for prob in probs.values()])
    assert observed.sum() == n_rows
    assert_frequencies(observed, stated)
    with pytest.raises(AssertionError, match="frequencies differ"):
        assert_frequencies(observed, stated[::-1])


# What rows hold.


def encoded(table: dict[str, Any], clip: tuple[str, ...] = ()) -> Any:
    rows = {name: np.array(values) for name, values in table.items()}
    return game().encoder(clip=clip).encode(rows)


def test_rows_that_break_a_rule_are_counted() -> None:
    rows = encoded(
        {
            "one": [0, 1, 0, 0, 2, 0.5],
            "rounds": [FAR, FAR + 20, FAR + 9, FAR + 10, FAR + 10, FAR],
            "seven": [0, 1, 1, 0, 0, 0],
        }
    )
    assert (rows.n_missing, rows.n_outside, rows.n_broken) == (0, 2, 2)
    words = np.zeros((6, 1), dtype=np.uint64)
    found = game().encoder().round(rows, words)
    assert (found < 0).tolist() == [False, False, True, True, True, True]


def test_rows_outside_stay_outside_when_numbers_are_rounded_up() -> None:
    rows = encoded({"one": [7] * 8, "rounds": [FAR + 15] * 8, "seven": [1] * 8})
    assert (game().encoder().round(rows, EIGHTHS[:, np.newaxis]) == -1).all()


def test_numbers_are_clipped_and_counted_and_others_where_asked() -> None:
    table = {"one": [1, 9, 1], "rounds": [-1e300, 1e300, FAR], "seven": [0.0, 1.0, 1.0]}
    assert encoded(table).n_outside == 1
    assert encoded(table).n_clipped == (0, 2, 0)
    rows = encoded(table, clip=("one", "seven"))
    assert (rows.n_outside, rows.n_clipped) == (0, (1, 2, 0))
    assert rows.steps.tolist() == [[0, 20, 0]]


def test_what_is_infinite_is_in_no_space_and_never_clipped() -> None:
    table = {"one": [1, np.inf, 1], "rounds": [-np.inf, np.inf, FAR], "seven": [0.0, 1.0, 1.0]}
    assert encoded(table, clip=("one", "seven")).n_outside == 2


def test_missing_outcomes_are_counted_by_row_and_nothing_is_encoded() -> None:
    nan = np.nan
    rows = encoded({"one": [nan, 1, nan, 0], "rounds": [nan, FAR, FAR, FAR], "seven": [0, 1, 1, 0]})
    assert rows.n_missing == 2
    assert rows.positions.shape == (4,)
    assert (game().encoder().round(rows, np.zeros((4, 1), np.uint64)) == -1).all()


@pytest.mark.parametrize("binary", ["?", "i1", "u8", "i8", "f4", "f8"])
@pytest.mark.parametrize("number", ["u4", "i8", "u8", "f8"])
def test_every_kind_of_column_is_read_alike(binary: str, number: str) -> None:
    rows = encoded(
        {
            "one": np.array([0, 1, 1], binary),
            "rounds": np.array([FAR, FAR + 7, FAR + 20], number),
            "seven": np.array([0, 0, 1], binary),
        }
    )
    assert rows.steps.tolist() == [[0, 7, 20]]
    assert rows.lower.tolist() == [[0, 1, 5]]
    assert rows.positions.tolist() == [0, 1 * 12 + 1 * 2, 12 + 5 * 2 + 1]


@pytest.mark.parametrize("column", [["a", "b"], [None, 1], [1j, 2]])
def test_what_is_no_number_is_refused_without_quoting_it(column: list[Any]) -> None:
    with pytest.raises(DataError, match=r"column 'one' .* holds no numbers; convert it") as caught:
        encoded({"one": column, "rounds": [FAR, FAR], "seven": [0, 0]})
    assert str(column[0]) not in str(caught.value).split()


def test_tables_must_have_every_column_at_one_length() -> None:
    with pytest.raises(DataError, match="no column 'seven'"):
        encoded({"one": [0], "rounds": [FAR]})
    with pytest.raises(DataError, match="differ in length"):
        encoded({"one": [0], "rounds": [FAR], "seven": [0, 1]})


def test_no_rows_are_no_error() -> None:
    empty: npt.NDArray[np.float64] = np.zeros(0)
    rows = encoded({"one": empty, "rounds": empty, "seven": empty})
    assert game().encoder().round(rows, np.zeros((0, 1), np.uint64)).shape == (0,)


def test_blocks_change_nothing(rng: np.random.Generator) -> None:
    """More rows than a block holds give what each row gives by itself."""
    n_rows = 2**15 + 3
    table = {
        "one": np.ones(n_rows, dtype=np.int64),
        "rounds": FAR + rng.integers(0, 21, n_rows),
        "seven": rng.integers(0, 2, n_rows),
    }
    words = rng.integers(0, 2**64, size=(n_rows, 1), dtype=np.uint64)
    encoder = game().encoder()
    whole = encoder.round(encoder.encode(table), words)
    parts = [
        encoder.round(
            encoder.encode({name: values[rows] for name, values in table.items()}), words[rows]
        )
        for rows in (slice(0, 10), slice(10, 2**15 - 1), slice(2**15 - 1, None))
    ]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_the_wrong_number_of_words_is_refused() -> None:
    rows = encoded({"one": [0], "rounds": [FAR], "seven": [0]})
    with pytest.raises(ValueError, match="words must be of shape"):
        game().encoder().round(rows, np.zeros((1, 2), np.uint64))
