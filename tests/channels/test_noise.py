from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from assertions import assert_discrete_laplace
from clusterdp.statistics.noise import add_exact_noise, noise_variance, simulated_noise

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray

N_DRAWS = 40_000


def draw(scale: float, size: int) -> IntArray:
    return add_exact_noise(np.zeros(size, np.int64), scale)


@pytest.mark.parametrize("scale", [0.7, 2.0, 10.0])
def test_exact_noise_has_the_stated_distribution(scale: float) -> None:
    assert_discrete_laplace(draw(scale, N_DRAWS), scale)


@pytest.mark.parametrize("scale", [0.7, 2.0, 10.0])
def test_simulated_noise_has_the_stated_distribution(
    scale: float, rng: np.random.Generator
) -> None:
    assert_discrete_laplace(simulated_noise(rng)(np.zeros(N_DRAWS, np.int64), scale), scale)


@pytest.mark.parametrize("wrong", [0.9, 1.1, 0.5])
def test_noise_of_another_scale_is_noticed(wrong: float) -> None:
    with pytest.raises(AssertionError, match="frequencies differ"):
        assert_discrete_laplace(draw(2.0 * wrong, N_DRAWS), 2.0)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 200.0])
def test_variance_by_summation(scale: float) -> None:
    values = np.arange(-60 * int(scale + 1), 60 * int(scale + 1) + 1)
    probs = np.exp(-np.abs(values) / scale)
    summed = (probs * values.astype(float) ** 2).sum() / probs.sum()
    assert noise_variance(scale) == pytest.approx(summed, rel=1e-9)
    assert noise_variance(scale) < 2 * scale**2


def test_large_scales_do_not_saturate() -> None:
    assert np.abs(draw(1e12, 200)).max() > 2**31


def _draw_into(queue: multiprocessing.Queue[list[int]]) -> None:
    queue.put(draw(1e9, 20).tolist())


def test_a_forked_child_does_not_repeat_its_parent() -> None:
    """Two processes forked from one state, and their parent, draw different noise."""
    draw(1e9, 20)
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[list[int]] = context.Queue()
    children = [context.Process(target=_draw_into, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    draws = [queue.get(timeout=60) for _ in children] + [draw(1e9, 20).tolist()]
    for child in children:
        child.join()
    assert len({tuple(draw) for draw in draws}) == 3


def test_threads_draw_independently() -> None:
    with ThreadPoolExecutor(8) as threads:
        drawn = threads.map(lambda _: tuple(draw(1e9, 5).tolist()), range(64))
        assert len(set(drawn)) == 64


def test_sums_beyond_64_bits_are_clamped_not_wrapped() -> None:
    """A sum that wrapped around would show the count it was made of."""
    counts = np.full(200, 12345)
    noisy = add_exact_noise(counts, 1e30)
    assert set(noisy.tolist()) <= {-(2**63), 2**63 - 1}
