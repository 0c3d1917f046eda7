"""Noise on several integers together: its law by enumeration, and what is drawn against it."""

from __future__ import annotations

import itertools
import math
import secrets
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assertions import assert_frequencies
from clusterdp.statistics import noise
from clusterdp.statistics import noise as box_noise
from clusterdp.statistics.noise import (
    add_exact_noise,
    box_variances,
    noise_variance,
    simulated_noise,
    start_weights,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.statistics.noise import NoiseSource

N_DRAWS, TAIL = 6_000, 40


class Law(NamedTuple):
    """Widths, a scale, and how many levels have a class for each of their vectors."""

    widths: tuple[int, ...]
    scale: float
    n_told_apart: int


LAWS = [Law((1, 1), 1.5, 2), Law((2, 3), 0.8, 1), Law((1, 1, 2), 0.7, 1), Law((1, 1), 0.3, 1)]


def levels_of(vectors: IntArray, widths: tuple[int, ...]) -> IntArray:
    return np.asarray((-(-np.abs(vectors) // np.array(widths))).max(axis=-1))


def vectors_within(widths: tuple[int, ...], level: int) -> IntArray:
    """All vectors of a box; axes `[vector, integer]`."""
    axes = [range(-level * width, level * width + 1) for width in widths]
    return np.array(list(itertools.product(*axes)))


def n_held(widths: tuple[int, ...], level: int) -> int:
    return math.prod(2 * level * width + 1 for width in widths)


def level_masses(law: Law) -> FloatArray:
    """How likely levels are, by the stated law of vectors; axes `[level]`."""
    held = [n_held(law.widths, level) for level in range(TAIL + 1)]
    masses = np.diff(held, prepend=0) * np.exp(-np.arange(TAIL + 1) / law.scale)
    return np.asarray(masses / masses.sum())


def assert_law(draws: IntArray, law: Law) -> None:
    """Draws against P(z) ∝ exp(−N(z)/scale): vectors near 0 one by one, others by level."""
    masses, inner = level_masses(law), vectors_within(law.widths, law.n_told_apart)
    drawn_levels, inner_levels = levels_of(draws, law.widths), levels_of(inner, law.widths)
    each = masses[inner_levels] / np.bincount(inner_levels)[inner_levels]
    observed = [(draws == vector).all(axis=1).sum() for vector in inner]
    # Levels beyond, as long as many are expected; the rest is one class.
    last = max(level for level in range(TAIL) if N_DRAWS * masses[level:].sum() > 50)
    outer = range(law.n_told_apart + 1, last)
    observed += [(drawn_levels == level).sum() for level in outer]
    probs = [*each, *masses[list(outer)], masses[max(last, law.n_told_apart + 1) :].sum()]
    assert_frequencies(np.array([*observed, len(draws) - sum(observed)]), np.array(probs))


def draw(source: NoiseSource, law: Law) -> IntArray:
    return source(np.zeros((N_DRAWS, len(law.widths)), np.int64), law.scale, law.widths)


@pytest.mark.parametrize("law", LAWS)
def test_exact_noise_has_the_stated_law(law: Law) -> None:
    assert_law(draw(add_exact_noise, law), law)


@pytest.mark.parametrize("law", LAWS)
def test_simulated_noise_has_the_stated_law(law: Law, rng: np.random.Generator) -> None:
    assert_law(draw(simulated_noise(rng), law), law)


def shrink_the_box(patch: pytest.MonkeyPatch) -> None:
    """The largest integer of a box is never drawn."""
    honest = secrets.randbelow
    patch.setattr(secrets, "randbelow", lambda n: honest(max(n - 1, 1)))


def start_at_zero(patch: pytest.MonkeyPatch) -> None:
    """Levels are the sum of geometric variables alone."""
    patch.setattr(box_noise, "_start", lambda *_: 0)


def forget_a_geometric(patch: pytest.MonkeyPatch) -> None:
    """One for each integer, where it takes one more."""
    honest = box_noise.draw_exactly

    def fewer(widths: tuple[int, ...], scale: float, geometric: list[int]) -> list[list[int]]:
        kept = [0 if place % (len(widths) + 1) == 0 else one for place, one in enumerate(geometric)]
        return honest(widths, scale, kept)

    patch.setattr(noise, "draw_exactly", fewer)


def miscount_the_boxes(patch: pytest.MonkeyPatch) -> None:
    """Levels as likely as if all widths were one larger."""
    honest = box_noise._bounds.__wrapped__  # noqa: SLF001 - what is broken
    patch.setattr(
        box_noise,
        "_bounds",
        lambda widths, *rest: honest(tuple(width + 1 for width in widths), *rest),
    )


@pytest.mark.parametrize(
    "bug", [shrink_the_box, start_at_zero, forget_a_geometric, miscount_the_boxes]
)
def test_another_law_is_noticed(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    law = LAWS[2]
    bug(monkeypatch)
    with pytest.raises(AssertionError, match="frequencies differ"):
        assert_law(draw(add_exact_noise, law), law)


@pytest.mark.parametrize("n_bits", [1, 3])
def test_a_choice_with_few_bits_asks_for_more(n_bits: int) -> None:
    """Every start is as likely as stated, though the first bits hardly ever decide."""
    law = Law((1, 1, 1), 4.0, 0)
    drawn = [box_noise._start(law.widths, law.scale, n_bits) for _ in range(N_DRAWS)]  # noqa: SLF001 - with other bits
    weights = np.array(start_weights(law.widths)) * np.exp(-np.arange(4) / law.scale)
    observed = np.bincount(drawn, minlength=4)
    # The last start is too rare for a class of its own.
    assert_frequencies(
        np.append(observed[:2], observed[2:].sum()), np.append(weights[:2], weights[2:].sum())
    )


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8).map(tuple))
def test_levels_are_counted_without_negative_weights(widths: tuple[int, ...]) -> None:
    """Σ_i h_i·C(k − i + m, m) is the number of vectors in a box, for any level."""
    weights, n_widths = start_weights(widths), len(widths)
    assert min(weights) >= 0
    for level in (0, 1, 2, 3 * n_widths, 1000):
        counted = sum(
            one * math.comb(level - start + n_widths, n_widths)
            for start, one in enumerate(weights)
            if start <= level
        )
        assert counted == n_held(widths, level)


@pytest.mark.parametrize("law", [*LAWS, Law((1,), 2.0, 0), Law((1, 5), 3.0, 0)])
def test_variances_by_summation(law: Law) -> None:
    masses = np.exp(-np.arange(400) / law.scale)
    held = np.array([n_held(law.widths, level) for level in range(400)], dtype=float)
    chances = masses * held / (masses * held).sum()
    for width, variance in zip(law.widths, box_variances(law.widths, law.scale), strict=True):
        ends = width * np.arange(400)
        assert variance == pytest.approx(chances @ (ends * (ends + 1) / 3), rel=1e-9)


@pytest.mark.parametrize("scale", [0.001, 0.3, 7.5, 1e9])
def test_one_integer_has_discrete_laplace_noise(scale: float) -> None:
    assert box_variances((1,), scale)[0] == pytest.approx(noise_variance(scale), rel=1e-12)


@pytest.mark.parametrize(
    ("widths", "steps"), [((1, 1), 1), ((1, 2), 2), ((2, 3), 1), ((1, 1, 2), 1)]
)
def test_every_neighbour_costs_what_is_stated(widths: tuple[int, ...], steps: int) -> None:
    """Over all vectors of noise and all moves up to so many widths, larger ones cost more."""
    noisy, moves = vectors_within(widths, 4), vectors_within(widths, steps)
    levels = levels_of(noisy, widths)
    losses = [int((levels_of(noisy + move, widths) - levels).max()) for move in moves]
    assert losses == levels_of(moves, widths).tolist()
    assert max(losses) == steps
    beyond = np.array([steps * width + 1 for width in widths])
    assert (levels_of(noisy + beyond, widths) - levels).max() == steps + 1


def test_vectors_beyond_64_bits_are_clamped_not_wrapped() -> None:
    noisy = add_exact_noise(np.full((50, 2), 12345), 1e15, (2**40, 2**41))
    assert set(noisy.ravel().tolist()) <= {-(2**63), 2**63 - 1}
    assert noisy.shape == (50, 2)
