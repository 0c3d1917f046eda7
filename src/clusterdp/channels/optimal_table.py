"""The published table of optimal channels: one row per output, written and read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.channels.integers import TABLE_TOTAL
from clusterdp.errors import FormatError
from clusterdp.experiment.outcomes import LARGEST_VALUE
from clusterdp.statistics.columns import are_whole

if TYPE_CHECKING:
    import polars as pl

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.layout import Layout

_OUTPUT = "released_outcome"


def write_channels(tables: IntArray, numbers: FloatArray) -> pl.DataFrame:
    """The table, from arrays as in `OptimalChannel`.

    `weights` follow the order of the outcome space: P(released | outcome) is weight / 2^48.
    """
    import polars as pl

    n_channels, n_outputs = numbers.shape
    possible = tables.any(axis=1).ravel()
    weights = tables.swapaxes(1, 2).reshape(-1, tables.shape[1])
    return pl.DataFrame(
        {
            "channel": np.repeat(np.arange(n_channels), n_outputs)[possible],
            _OUTPUT: numbers.ravel()[possible],
            "weights": pl.Series(weights[possible]).arr.to_list(),
        }
    )


def read_channels(
    listed: pl.DataFrame, of_cells: pl.Series, layout: Layout, n_outcomes: int
) -> dict[str, np.ndarray]:
    """The arrays of a channel, by their names in `OptimalChannel`.

    Args:
        listed: The table of channels.
        of_cells: The channel of each cell.
        layout: The cells.
        n_outcomes: K.
    """
    _check_channels(listed, n_outcomes)
    by_channel = listed.partition_by("channel", maintain_order=True)
    n_outputs = max(len(one) for one in by_channel)
    tables = np.zeros((len(by_channel), n_outcomes, n_outputs), dtype=np.int64)
    numbers = np.zeros((len(by_channel), n_outputs))
    for channel, outputs in enumerate(by_channel):
        weights = outputs["weights"].list.to_array(n_outcomes).to_numpy()
        tables[channel, :, : len(outputs)] = weights.T
        numbers[channel, : len(outputs)] = outputs[_OUTPUT].to_numpy()
    groups = of_cells.to_numpy().reshape(layout.sizes.shape)
    if groups.min() < 0 or groups.max() >= len(by_channel):
        raise FormatError("a cell names a channel that is not there")
    return {"tables": tables, "outputs": numbers[:, np.newaxis], "groups": groups}


def _check_channels(listed: pl.DataFrame, n_outcomes: int) -> None:
    """Raise a FormatError unless a table lists probabilities of outputs, channel by channel."""
    import polars as pl

    types = {"channel": pl.Int64(), _OUTPUT: pl.Float64(), "weights": pl.List(pl.Int64)}
    if list(listed.schema.items()) != list(types.items()) or listed.is_empty():
        raise FormatError(f"the channels do not have the columns {', '.join(types)}")
    gaps = any(listed[name].null_count() for name in types)
    if gaps or not are_whole(listed["weights"], n_outcomes):
        raise FormatError("the channels have gaps")
    weights = listed["weights"].explode(empty_as_null=False)
    possible = listed["weights"].list.max() > 0
    if not (weights.is_between(0, TABLE_TOTAL).all() and possible.all()):
        raise FormatError("the channels have weights that are no probabilities")
    steps = listed["channel"].diff().drop_nulls()
    follow = listed["channel"][0] == 0 and steps.is_in([0, 1]).all()
    rising = (listed[_OUTPUT].diff().drop_nulls() >= 0) | (steps == 1)
    possible = listed[_OUTPUT].abs() < LARGEST_VALUE
    if not (follow and possible.all() and rising.all()):
        raise FormatError("the channels or their outputs are not in order")
