"""Scales hold what they were made for, and write numbers that are on them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.document.scales import Linear, Logarithmic, Scale, interval_scale

NUMBERS = st.floats(min_value=-1e12, max_value=1e12).filter(lambda one: one == 0 or abs(one) > 1e-9)
POSITIVE = st.floats(min_value=1e-12, max_value=1e12)
SLACK = 1e-6


def assert_holds(scale: Scale, values: list[float]) -> None:
    places = scale.places(values)
    assert (places > -SLACK).all()
    assert (places < 1 + SLACK).all()
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 12
    at = scale.places(ticks)
    assert (np.diff(at) > 0).all()
    assert (at > -SLACK).all()
    assert (at < 1 + SLACK).all()


@given(st.lists(NUMBERS, min_size=1))
def test_a_linear_scale_holds_its_values(values: list[float]) -> None:
    # A spread that is lost beside the values is none that a chart could show.
    if max(values) - min(values) > 1e-6 * max(map(abs, values)) or len(set(values)) == 1:
        assert_holds(Linear.over(values), values)


@given(st.lists(POSITIVE, min_size=1))
def test_a_logarithmic_scale_holds_its_values(values: list[float]) -> None:
    assert_holds(Logarithmic.over(values), values)


@pytest.mark.parametrize("kind", [Linear, Logarithmic])
def test_what_is_no_number_decides_no_scale(kind: type[Linear | Logarithmic]) -> None:
    assert kind.over([1.0, 2.0, math.nan, math.inf]) == kind.over([1.0, 2.0])
    assert_holds(kind.over([math.nan]), [])


def test_numbers_at_an_axis_are_round() -> None:
    assert Linear(0.0, 1.0).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert Linear.over([1.0, 2.0], least=1.0).ticks() == [1, 2]
    assert Linear.over([1.0, 1.0], least=1.0).ticks() == [1]
    assert Logarithmic(0.01, 1.0).ticks() == [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]


def test_a_long_interval_leaves_room_for_short_ones() -> None:
    """Ends beyond the axis are cut off; the same scale without the long ones."""
    short = [(-0.1, 0.2), (0.0, 0.3)]
    assert interval_scale([*short, (-5, 9), (-8, 2)]) == interval_scale(short)
    assert interval_scale([*short, (-0.5, 0.9)]) != interval_scale(short)
    assert interval_scale([(math.nan, math.nan), (-math.inf, math.inf)]) == interval_scale([])
