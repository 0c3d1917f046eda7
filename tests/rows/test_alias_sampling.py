from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assertions import assert_frequencies
from categories import one_outcome
from clusterdp.channels.base import KEEP_TOTAL, PRIOR_TOTAL
from clusterdp.channels.resampling import ResamplingChannel
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.rows.encoding import QuestionEncoder
from clusterdp.rows.keys import UnitIds
from clusterdp.rows.randomizing import QuestionRandomizer
from clusterdp.rows.value_codes import ValueCodes

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray


def make_channel(priors: list[list[int]], keep_prob: float) -> ResamplingChannel:
    """A channel with one group per prior, given as relative weights."""
    weights = np.array(priors, dtype=np.int64)
    weights = weights * (PRIOR_TOTAL // weights.sum(axis=1, keepdims=True))
    weights[:, 0] += PRIOR_TOTAL - weights.sum(axis=1)
    return ResamplingChannel(
        keep_weight=int(keep_prob * KEEP_TOTAL),
        weights=weights,
        groups=np.arange(len(priors)).reshape(-1, 1),
        space=OutcomeSpace.integers(0, weights.shape[1] - 1),
    )


priors = st.integers(2, 20).flatmap(
    lambda size: st.lists(
        st.lists(st.integers(1, 10**6), min_size=size, max_size=size), min_size=1, max_size=5
    )
)


@given(priors)
def test_alias_tables_hold_the_prior_exactly(relative: list[list[int]]) -> None:
    channel = make_channel(relative, 0.5)
    sampler = channel.sampler()
    n_columns = 2**sampler.priors.column_bits
    height = PRIOR_TOTAL // n_columns
    shape = (len(relative), n_columns)
    thresholds = sampler.priors.columns.reshape(shape) >> 16
    aliases = sampler.priors.columns.reshape(shape) & 0xFFFF
    held: IntArray = np.zeros(shape, dtype=np.int64)
    held += thresholds
    for group in range(len(relative)):
        np.add.at(held[group], aliases[group], height - thresholds[group])
    np.testing.assert_array_equal(held[:, : channel.weights.shape[1]], channel.weights)
    assert not held[:, channel.weights.shape[1] :].any()


@given(priors)
def test_draws_follow_the_tables_to_the_last_integer(relative: list[list[int]]) -> None:
    """Both sides of every threshold, and both ends of every column."""
    channel = make_channel(relative, 0.5)
    sampler = channel.sampler()
    height = PRIOR_TOTAL >> sampler.priors.column_bits
    group = len(relative) - 1
    for column in range(2**sampler.priors.column_bits):
        place = (group << sampler.priors.column_bits) + column
        threshold, alias = divmod(int(sampler.priors.columns[place]), 2**16)
        points = np.array([0, threshold - 1, threshold, height - 1])
        points = points[(points >= 0) & (points < height)]
        words = np.zeros((len(points), 2), dtype=np.uint64)
        words[:, 0] = np.uint64(2**64 - 1)  # never kept
        words[:, 1] = (points + column * height).astype(np.uint64) << np.uint64(32)
        drawn = sampler.draw(words, np.full(len(points), group), np.zeros(len(points), np.int64))
        np.testing.assert_array_equal(drawn, np.where(points < threshold, column, alias))


def test_rows_are_kept_below_the_keep_weight_and_not_at_it() -> None:
    channel = make_channel([[1, 1]], 0.25)
    bits = np.array([0, channel.keep_weight - 1, channel.keep_weight, KEEP_TOTAL - 1])
    words = np.zeros((4, 2), dtype=np.uint64)
    words[:, 0] = bits.astype(np.uint64) << np.uint64(12)
    drawn = channel.sampler().draw(words, np.zeros(4, np.int64), np.ones(4, np.int64))
    np.testing.assert_array_equal(drawn, [1, 1, 0, 0])  # redrawn: the first column, outcome 0


def randomizer_of(channel: ResamplingChannel, n_outcomes: int) -> QuestionRandomizer:
    space = one_outcome("y", OutcomeSpace.integers(0, n_outcomes - 1))
    return QuestionRandomizer.from_channel(QuestionEncoder.for_space(space, clip=False), channel)


@pytest.mark.parametrize("true", [0, 2])
def test_rows_are_released_with_the_stated_probabilities(
    true: int, rng: np.random.Generator
) -> None:
    channel = make_channel([[5, 1, 3], [1, 1, 1]], 0.3)
    n_rows = 60_000
    randomizer, key = randomizer_of(channel, 3), rng.bytes(32)
    ids = pl.Series(rng.permutation(n_rows))
    clusters = np.arange(n_rows) % 2
    places = randomizer.draw(UnitIds(ids), clusters, np.full(n_rows, true), key)
    (value,) = randomizer.counts_as(pl.col("response"))
    rows = pl.DataFrame({"response": places}).select(y=value)
    codes = places % randomizer.n_outputs
    for cluster in range(2):
        observed = np.bincount(codes[clusters == cluster], minlength=3)
        assert_frequencies(observed, channel.transition()[cluster][:, true])
        with pytest.raises(AssertionError, match="frequencies differ"):
            assert_frequencies(observed, channel.transition()[1 - cluster][:, true])
    np.testing.assert_array_equal(rows["y"], channel.decode()[clusters, codes])


def test_batches_do_not_matter(rng: np.random.Generator) -> None:
    channel = make_channel([[5, 1, 3], [1, 2, 1]], 0.3)
    randomizer, key = randomizer_of(channel, 3), rng.bytes(32)
    ids = pl.Series([f"u{number}" for number in range(1000)])
    clusters, outcomes = rng.integers(0, 2, 1000), rng.integers(0, 3, 1000)
    whole = randomizer.draw(UnitIds(ids), clusters, outcomes, key)
    order = rng.permutation(1000)
    shuffled = randomizer.draw(UnitIds(ids.gather(order)), clusters[order], outcomes[order], key)
    np.testing.assert_array_equal(shuffled, whole[order])


def test_a_million_labels_can_be_sent_to_a_worker(rng: np.random.Generator) -> None:
    names = pl.select(pl.format("m{}", pl.int_range(1_000_000))).to_series()
    labels = ValueCodes.from_column(names)
    sent = pickle.loads(pickle.dumps(labels))  # noqa: S301 - our own
    some = names.gather(rng.integers(0, len(names), 1000))
    np.testing.assert_array_equal(sent.encode(some), labels.encode(some))
