from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp import OutcomeSpace, ParameterError
from clusterdp.outcomes.declaration import parse_space
from clusterdp.outcomes.number import MOST_STEPS, Number

ENDS = st.decimals(-1000, 1000, places=2, allow_nan=False, allow_infinity=False)
SPACES = st.one_of(
    st.lists(st.integers(-99, 99), min_size=2, max_size=9, unique=True).map(OutcomeSpace.of),
    st.lists(st.floats(-9, 9), min_size=2, max_size=6, unique=True).map(OutcomeSpace.of),
    st.lists(st.integers(-99, 99), min_size=3, max_size=9, unique=True).map(
        lambda edges: OutcomeSpace.bins(sorted(edges))
    ),
    st.lists(st.integers(-99, 99), min_size=3, max_size=9, unique=True).map(
        lambda edges: OutcomeSpace.bins(sorted(edges), sorted(edges)[:-1])
    ),
    st.tuples(ENDS, ENDS)
    .filter(lambda ends: ends[0] != ends[1])
    .map(lambda ends: Number(float(min(ends)), float(max(ends)))),
)


@given(SPACES)
def test_the_text_of_a_space_reads_back(space: OutcomeSpace | Number) -> None:
    assert parse_space(str(space)) == space


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("number:0..493", Number(0, 493)),
        (" number: -1.5..2e3 ", Number(-1.5, 2000)),
        ("number:0..500 by 0.1", Number(0, 500, 0.1)),
        ("number:0..500 by 0.0001", Number(0, 500)),
        ("number:.5..1.", Number(0.5, 1)),
        ("number:-0..1", Number(0, 1)),
    ],
)
def test_numbers_are_read(text: str, number: Number) -> None:
    assert parse_space(text) == number


def test_a_unit_that_is_declared_makes_the_lattice_coarser() -> None:
    number = Number(0, 500, 0.1)
    assert (number.unit, number.n_steps) == (Fraction(1, 10), 5000)
    assert number.quantize(np.array([0.04, 0.06, 499.96]))[0].tolist() == [0, 1, 5000]
    assert str(number) == "number:0..500 by 0.1"
    for wrong in (0.3, 1e-7, 0, -1):
        with pytest.raises(ParameterError, match=r"power of ten of at least 0\.0001"):
            Number(0, 500, wrong)


def test_the_unit_follows_from_the_range() -> None:
    assert Number(0, 493).unit == Fraction(1, 10**4)
    assert Number(0, MOST_STEPS).unit == 1
    assert Number(0, 10**9).unit == 100
    assert Number(0, 0.5).unit == Fraction(1, 10**7)
    assert Number(2_000_000_000, 2_000_000_004).unit == 1


@given(ENDS, ENDS, st.integers(-6, 6))
def test_the_unit_is_the_finest_within_the_limits(
    one: Fraction, other: Fraction, exponent: int
) -> None:
    low, high = (float(Fraction(end) * Fraction(10) ** exponent) for end in sorted([one, other]))
    if low == high:
        return
    number = Number(low, high)
    assert math.log10(number.unit.denominator) % 1 == 0
    assert number.n_steps <= MOST_STEPS
    largest = max(abs(number.first_multiple), abs(number.first_multiple + number.n_steps))
    assert largest <= 2**31
    assert 10 * number.n_steps > MOST_STEPS or 10 * largest > 2**31
    assert float(number.value(0)) == low
    assert float(number.value(number.n_steps)) == high


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Number(1, 1), "low < high"),
        (lambda: Number(5, 1), "low < high"),
        (lambda: Number(0, math.inf), "high must be finite"),
        (lambda: Number(math.nan, 1), "low must be finite"),
        (lambda: Number(0, 1e200), "at most 1e"),
        (lambda: Number("a", 1), "low must be a number"),  # type: ignore[arg-type]
        (lambda: Number(0, 1_000_000_001), "multiple of 100.*use 1000000000"),
        (lambda: Number(0, 1000 / 3), "use 333.3333"),
        (lambda: parse_space("number:3"), "number:LOW..HIGH"),
        (lambda: parse_space("number:a..b"), "number:LOW..HIGH"),
        (lambda: parse_space("a..b"), "number|range"),
    ],
)
def test_bad_numbers_are_refused(build: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build()  # type: ignore[operator]


@given(st.data())
def test_decimals_of_the_lattice_are_their_own_nearest_points(data: st.DataObject) -> None:
    number = data.draw(
        st.sampled_from(
            [Number(0, 493), Number(-0.7, 0.3), Number(1_000_000.25, 1_000_001), Number(0, 10**9)]
        )
    )
    chosen = data.draw(st.lists(st.integers(0, number.n_steps), min_size=1, max_size=20))
    steps, clipped = number.quantize(np.array([float(number.value(step)) for step in chosen]))
    assert steps.tolist() == chosen
    assert not clipped.any()


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i8", "u8", "f2", "f4", "f8"])
def test_all_kinds_of_numbers_are_read(dtype: str) -> None:
    number = Number(0, 493)
    steps, clipped = number.quantize(np.array([0, 1], dtype))
    assert steps.tolist() == [0, 10**4]
    assert not clipped.any()


def test_numbers_beyond_the_range_count_as_its_ends() -> None:
    number = Number(-1, 493)
    last = number.n_steps
    beyond = np.array([-np.inf, -1.00001, -1, 493, 493.00001, 1e300, np.inf])
    steps, clipped = number.quantize(beyond)
    assert steps.tolist() == [0, 0, 0, last, last, last, last]
    assert clipped.tolist() == [True, True, False, False, True, True, True]
    for extreme in (np.array([2**64 - 1], "u8"), np.array([2**63 - 1])):
        assert number.quantize(extreme)[0].tolist() == [last]
    assert number.quantize(np.array([-(2**63)]))[0].tolist() == [0]


def test_single_precision_means_the_decimal_that_it_was_written_as() -> None:
    written = np.array([0.1, 123.4567, 492.9999], dtype=np.float32)
    assert Number(0, 493).quantize(written)[0].tolist() == [1000, 1234567, 4929999]
