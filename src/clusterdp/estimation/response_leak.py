"""Segments made of released outcomes: the noise of a row must not decide where the row counts.

A column that is known of units, and was not made of what was released, tells of a unit's response
no more than its true outcome does. So in every segment the responses in a set B have, each by
itself, a probability between min_y P(B|y) and max_y P(B|y) of the published channel. Where a
segment has so many or so few of them that this has a probability of less than 1e-6, whatever the
true outcomes are, the column follows from responses.

What is caught: any function of `response`, and thresholds of a debiased column (any function of it
where all cells share a channel), alone or with noise, that tell more of responses than ε allows, in
segments large enough for that to show (some hundreds of units; more for a large ε). What is not: a column that follows from responses weakly, such as predictions
of a model that was trained on the same rows. These need a fold that was held out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.errors import DataError

if TYPE_CHECKING:
    from clusterdp._arrays import BoolArray, FloatArray, IntArray
    from clusterdp.channels.catalogue import Channel

# The probability that any sound column of an estimate is refused.
_LEVEL = 1e-6


class ColumnCounts(NamedTuple):
    """Rows counted by the values of a column.

    Attributes:
        name: The column.
        counts: Axes `[value, group of cells, response]`.
    """

    name: str
    counts: IntArray


def check_columns(columns: list[ColumnCounts], channel: Channel, n_metrics: int) -> None:
    """Raise a DataError if a column to cut by was made of released outcomes.

    Args:
        columns: The columns.
        channel: The channel of the rows.
        n_metrics: How many metrics it decodes.
    """
    n_values = sum(len(column.counts) for column in columns)
    for column in columns:
        surprise = max(leak_surprises(column.counts, channel, n_metrics), default=0.0)
        if surprise > math.log(n_values / _LEVEL):
            raise DataError(
                f"column {column.name!r} follows from released responses: its values tell more of "
                "them than true outcomes can, so effects in its segments mean nothing. Cut by "
                "columns that were known before; or train on one fold and estimate in another "
                "(holdout, --holdout)"
            )


def leak_surprises(counts: IntArray, channel: Channel, n_metrics: int) -> list[float]:
    """How surprising the responses of each value are: −log of a bound of their probability.

    Sets are chosen by looking: by the number of a response, those that a value has more of than
    others do; by each metric, those that decode to more than a threshold. The bound is multiplied
    by how many sets could have been chosen.
    """
    transition = channel.transition()  # [group, response, category]
    n_responses = transition.shape[1]
    decoded = [channel.decode(metric) for metric in range(n_metrics)]
    thresholds = [_thresholds(values) for values in decoded]
    n_sets = [math.log(2) * n_responses, math.log(max(1, sum(map(len, thresholds))))]
    shares = counts.sum(axis=(0, 1)) / counts.sum()
    found = []
    for each in counts:
        more = each.sum(axis=0) > shares * each.sum()
        surprise = _surprise(each, np.broadcast_to(more, each.shape), transition) - n_sets[0]
        for values, cuts in zip(decoded, thresholds, strict=True):
            halves = [_surprise(each, values > cut, transition) for cut in cuts]
            surprise = max(surprise, max(halves, default=0.0) - n_sets[1])
        found.append(surprise - math.log(2))  # two ways to choose sets
    return found


def _thresholds(values: FloatArray) -> FloatArray:
    """Values to cut at: as many as a channel has outputs, whatever the number of channels."""
    every = np.unique(values)
    probs = np.linspace(0, 1, values.shape[1] + 1)[1:-1]
    return np.unique(np.quantile(every, probs, method="lower"))


def _surprise(counts: IntArray, chosen: BoolArray, transition: FloatArray) -> float:
    """−log of a bound of how likely so many, or so few, responses of a set are.

    Chernoff's bound for independent draws with probabilities of mean p: exp(−n·KL(share, p)).

    Args:
        counts: Of the rows of a segment; axes `[group, response]`.
        chosen: The set; axes the same.
        transition: Axes `[group, response, category]`.
    """
    n_rows = counts.sum()
    of_set = np.where(chosen[..., np.newaxis], transition, 0.0).sum(axis=1)  # [group, category]
    sizes = counts.sum(axis=1)
    share = counts[chosen].sum() / n_rows
    low, high = (sizes @ each / n_rows for each in (of_set.min(axis=1), of_set.max(axis=1)))
    if low <= share <= high:
        return 0.0
    return float(n_rows * _divergence(share, low if share < low else high) - math.log(2))


def _divergence(share: float, prob: float) -> float:
    """Kullback and Leibler's, of two probabilities; infinite where what was found cannot be."""
    from scipy.special import rel_entr

    return float(rel_entr(share, prob) + rel_entr(1 - share, 1 - prob))
