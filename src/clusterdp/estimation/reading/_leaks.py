"""Columns made of released outcomes: the noise of a row must not decide where the row counts.

A column that is known of units, and was not made of what was released, reveals no more about a
unit's response than its true outcome does. So in every segment the responses in a set B have, each
by itself, a probability between min_y P(B|y) and max_y P(B|y) of the published channel. Where a
segment has so many or so few of them that this has a probability of less than 1e-6, for any
true outcomes, the column follows from responses.

What is caught: any function of `response`, and thresholds of a debiased column (any function of it
where all cells share a channel), with or without noise, that reveal more about responses than ε
allows, in segments large enough for that to show (some hundreds of units; more for a large ε). What
is not: a column that follows from responses weakly, such as predictions of a model that was trained
on the same rows. These need a fold that was held out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from clusterdp._arrays import BoolArray, FloatArray, IntArray
from clusterdp.channels import Channel
from clusterdp.errors import DataError

# The probability that any sound column of an estimate is refused.
_LEVEL = 1e-6
# Responses by group of cells: groups, responses and counts; axes `[entry]` of each.
_Responses = tuple[IntArray, IntArray, IntArray]


class ColumnCounts(NamedTuple):
    """Rows counted by the values of a column; axes `[entry]`.

    Attributes:
        name: The column.
        values: The value, as a number from zero on.
        groups: The group of cells, which share a channel.
        responses: The response.
        counts: How many rows have all three.
    """

    name: str
    values: IntArray
    groups: IntArray
    responses: IntArray
    counts: IntArray

    @classmethod
    def from_entries(
        cls, name: str, values: Any, groups: IntArray, responses: Any, counts: Any
    ) -> Self:
        """From counts of rows, whose entries may repeat."""
        import polars as pl

        entries = {"values": values, "groups": groups, "responses": responses, "counts": counts}
        by, total = pl.exclude("counts").cast(pl.Int64), pl.col("counts").cast(pl.Int64).sum()
        found = pl.DataFrame(entries).group_by(by).agg(total)
        return cls(name, *(one.to_numpy() for one in found))

    def answered(self, n_outputs: int) -> ColumnCounts:
        """The rows of units that were asked: who was does not depend on outcomes."""
        asked = self.responses < n_outputs
        return ColumnCounts(self.name, *(terms[asked] for terms in self[1:]))

    def by_value(self) -> Iterator[_Responses]:
        """The responses of each value."""
        order = np.argsort(self.values, kind="stable")
        ends = np.flatnonzero(np.diff(self.values[order])) + 1
        for places in np.split(order, ends):
            yield self.groups[places], self.responses[places], self.counts[places]


class _ResponseSets:
    """Sets of responses, with the least and the largest probability that any category gives each.

    Args:
        chosen: Which responses are in each set; axes `[set, group, response]`.
        transition: The channel; axes `[group, response, category]`.
    """

    def __init__(self, chosen: BoolArray, transition: FloatArray) -> None:
        probs = np.einsum("sgr,grc->sgc", chosen, transition)
        self._chosen = np.broadcast_to(chosen, (len(chosen), *transition.shape[:2]))
        self._low, self._high = probs.min(-1), probs.max(-1)  # [set, group]

    def surprise(self, found: _Responses) -> float:
        """The most of any set: −log of a bound of how likely so many, or so few, responses are.

        Chernoff's bound for independent draws with probabilities of mean p: exp(−n·KL(share, p)).
        """
        from scipy.special import rel_entr

        groups, responses, counts = found
        n_rows = counts.sum()
        shares = self._chosen[:, groups, responses] @ counts / n_rows
        low, high = (each[:, groups] @ counts / n_rows for each in (self._low, self._high))
        nearest = np.clip(shares, low, high)
        # Infinite if it is impossible.
        divergences = rel_entr(shares, nearest) + rel_entr(1 - shares, 1 - nearest)
        outside = (shares < low) | (shares > high)
        return float(np.where(outside, n_rows * divergences - math.log(2), 0.0).max())


def check_leaks(
    columns: list[ColumnCounts], channel: Channel, n_metrics: int, n_questions: int
) -> None:
    """Raise a DataError if a column was made of released outcomes.

    Args:
        columns: The columns.
        channel: The channel of the rows.
        n_metrics: How many metrics it decodes.
        n_questions: How many questions of the release are checked, each for its responses.
    """
    answered = (column.answered(channel.possible().shape[-1]) for column in columns)
    columns = [column for column in answered if len(column.counts)]
    n_values = sum(len(np.unique(column.values)) for column in columns)
    for column in columns:
        if max(leak_surprises(column, channel, n_metrics)) > math.log(
            n_questions * n_values / _LEVEL
        ):
            raise DataError(
                f"Column {column.name!r} appears to be derived from the released outcomes, so "
                "effects by it are meaningless. Fix: use columns measured before treatment, or "
                "train in one fold and estimate in another (fold, --fold)."
            )


def leak_surprises(column: ColumnCounts, channel: Channel, n_metrics: int) -> list[float]:
    """How surprising the responses of each value are: −log of a bound of their probability.

    Sets are chosen by looking: by the number of a response, those that a value has more of than
    others do; by each metric, those that decode to more than a threshold. The bound is multiplied
    by how many sets could have been chosen.
    """
    transition = channel.transition()  # [group, response, category]
    n_responses = transition.shape[1]
    chosen = [
        np.broadcast_to(values > cut, transition.shape[:2])
        for values in map(channel.decode, range(n_metrics))
        for cut in _thresholds(values)
    ]
    halves = _ResponseSets(np.stack(chosen), transition) if chosen else None
    totals = np.bincount(column.responses, column.counts, n_responses)
    found = []
    for each in column.by_value():
        _, responses, counts = each
        mine = np.bincount(responses, counts, n_responses)
        more = mine / mine.sum() > totals / totals.sum()
        same = np.broadcast_to(more, (1, *transition.shape[:2]))
        surprise = _ResponseSets(same, transition).surprise(each) - math.log(2) * n_responses
        if halves is not None:
            surprise = max(surprise, halves.surprise(each) - math.log(len(chosen)))
        found.append(surprise - math.log(2))  # two ways to choose sets
    return found


def _thresholds(values: FloatArray) -> FloatArray:
    """Values to cut at: as many as a channel has outputs, for any number of channels."""
    every = np.unique(values)
    probs = np.linspace(0, 1, values.shape[1] + 1)[1:-1]
    return np.unique(np.quantile(every, probs, method="lower"))
