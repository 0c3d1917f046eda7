from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp import OutcomeSpace, ParameterError


def test_constructors() -> None:
    assert OutcomeSpace.integers(-2, 1).values == (-2, -1, 0, 1)
    assert OutcomeSpace.of([5, 0, 1]).values == (0, 1, 5)
    assert OutcomeSpace.binary().values == (0, 1)
    binned = OutcomeSpace.bins([0, 1, 10, 100])
    assert binned.values == (0.5, 5.5, 55)
    assert OutcomeSpace.bins([0, 1, 10], representatives=[0, 4]).values == (0, 4)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: OutcomeSpace.integers(3, 3), "low < high"),
        (lambda: OutcomeSpace.of([1]), "at least 2"),
        (lambda: OutcomeSpace.of([1, 1, 2]), "strictly increasing"),
        (lambda: OutcomeSpace.of([1, float("nan")]), "finite"),
        (lambda: OutcomeSpace.integers(0, 70_000), "at most 65536"),
        (lambda: OutcomeSpace.bins([0, 2, 1]), "strictly increasing"),
        (lambda: OutcomeSpace.bins([0, 1, 2], representatives=[1]), "at least 2"),
        (lambda: OutcomeSpace.bins([0, 1, 2], representatives=[1, 2, 3]), "2 bins"),
    ],
)
def test_bad_declarations(build: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["i1", "i8", "u8", "f4", "f8"])
def test_encoding_integers_of_any_type(dtype: str) -> None:
    codes, outside = OutcomeSpace.integers(1, 3).encode(np.array([1, 3, 2, 4, 0], dtype))
    np.testing.assert_array_equal(outside, [False, False, False, True, True])
    np.testing.assert_array_equal(codes[:3], [0, 2, 1])


def test_extreme_integers_are_outside_not_wrapped() -> None:
    low = OutcomeSpace.integers(-1, 1)
    assert low.encode(np.array([2**64 - 1, 2**63], dtype=np.uint64))[1].all()
    assert low.encode(np.array([-(2**63), 2**63 - 1]))[1].all()
    np.testing.assert_array_equal(low.encode(np.array([True, False]))[0], [2, 1])


def test_bins_hold_their_left_edge_and_the_last_its_right() -> None:
    space = OutcomeSpace.bins([0, 1, 10])
    codes, outside = space.encode(np.array([0, 0.99, 1, 10, 10.1, -0.1, np.nan]))
    np.testing.assert_array_equal(outside, [False] * 4 + [True] * 3)
    np.testing.assert_array_equal(codes[:4], [0, 0, 1, 1])


def test_values_between_are_outside_even_when_clipped() -> None:
    space = OutcomeSpace.of([0, 1, 5])
    clipped = space.clip(np.array([-3.0, 0.5, 7.0]))
    np.testing.assert_array_equal(clipped, [0, 0.5, 5])
    np.testing.assert_array_equal(space.encode(clipped)[1], [False, True, False])


def test_clipping_keeps_narrow_integers_within_their_type() -> None:
    space = OutcomeSpace.integers(-5, 300)
    observed = np.array([0, 255], dtype=np.uint8)
    np.testing.assert_array_equal(space.clip(observed), observed)
    above = OutcomeSpace.integers(200, 300).clip(np.array([5], dtype=np.int8))
    np.testing.assert_array_equal(above, [127])


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=12, unique=True), st.integers(0, 4))
def test_the_lattice_denotes_the_values(numbers: list[int], decimals: int) -> None:
    space = OutcomeSpace.of([number / 10**decimals for number in numbers])
    unit, multiples = space.lattice()
    assert [float(unit * multiple) for multiple in multiples] == pytest.approx(space.values)
    assert np.gcd.reduce(multiples) == 1


def test_values_without_a_common_unit_are_refused() -> None:
    assert OutcomeSpace.of([0.1, 0.25]).lattice() == (Fraction(1, 20), (2, 5))
    with pytest.raises(ParameterError, match="fewer decimals"):
        OutcomeSpace.of([0.1234567890123, 1]).lattice()
