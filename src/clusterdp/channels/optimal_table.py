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

# The columns of an output: its number within the channel, what it counts as in every metric, and
# its weight for every category.
_RESPONSE, _DECODE, _WEIGHTS = "response", "decode", "weights"


def write_channels(tables: IntArray, outputs: FloatArray) -> pl.DataFrame:
    """The table, from arrays as in `OptimalChannel`.

    `weights` follow the order of the categories: P(response | category) is weight / 2^48. `decode`
    follows the order of the metrics.
    """
    import polars as pl

    n_channels, n_categories, n_outputs = tables.shape
    possible = tables.any(axis=1).ravel()
    weights = tables.swapaxes(1, 2).reshape(-1, n_categories)
    decode = outputs.swapaxes(1, 2).reshape(-1, outputs.shape[1])
    return pl.DataFrame(
        {
            "channel": np.repeat(np.arange(n_channels), n_outputs)[possible],
            _RESPONSE: np.tile(np.arange(n_outputs), n_channels)[possible],
            _DECODE: pl.Series(decode[possible]).arr.to_list(),
            _WEIGHTS: pl.Series(weights[possible]).arr.to_list(),
        }
    )


def read_channels(
    listed: pl.DataFrame, of_cells: pl.Series, layout: Layout, shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    """The arrays of a channel, by their names in `OptimalChannel`.

    Args:
        listed: The table of channels.
        of_cells: The channel of each cell.
        layout: The cells.
        shape: How many metrics and how many categories there are.
    """
    n_metrics, n_categories = shape
    _check_channels(listed, n_metrics, n_categories)
    by_channel = listed.partition_by("channel", maintain_order=True)
    n_outputs = max(len(one) for one in by_channel)
    tables = np.zeros((len(by_channel), n_categories, n_outputs), dtype=np.int64)
    outputs = np.zeros((len(by_channel), n_metrics, n_outputs))
    for channel, one in enumerate(by_channel):
        weights = one[_WEIGHTS].list.to_array(n_categories).to_numpy()
        tables[channel, :, : len(one)] = weights.T
        decode = one[_DECODE].list.to_array(n_metrics).to_numpy()
        outputs[channel, :, : len(one)] = decode.T
    groups = of_cells.to_numpy().reshape(layout.sizes.shape)
    if groups.min() < 0 or groups.max() >= len(by_channel):
        raise FormatError("a cell names a channel that is not there")
    return {"tables": tables, "outputs": outputs, "groups": groups}


def _check_channels(listed: pl.DataFrame, n_metrics: int, n_categories: int) -> None:
    """Raise a FormatError unless a table lists probabilities of outputs, channel by channel."""
    import polars as pl

    types = {
        "channel": pl.Int64(),
        _RESPONSE: pl.Int64(),
        _DECODE: pl.List(pl.Float64),
        _WEIGHTS: pl.List(pl.Int64),
    }
    if list(listed.schema.items()) != list(types.items()) or listed.is_empty():
        raise FormatError(f"the channels do not have the columns {', '.join(types)}")
    gaps = any(listed[name].null_count() for name in types)
    lengths = {_WEIGHTS: (n_categories,), _DECODE: (n_metrics,)}
    whole = all(are_whole(listed[name], length) for name, length in lengths.items())
    if gaps or not whole:
        raise FormatError("the channels have gaps")
    weights = listed[_WEIGHTS].explode(empty_as_null=False)
    possible = listed[_WEIGHTS].list.max() > 0
    if not (weights.is_between(0, TABLE_TOTAL).all() and possible.all()):
        raise FormatError("the channels have weights that are no probabilities")
    if not (listed[_DECODE].explode(empty_as_null=False).abs() < LARGEST_VALUE).all():
        raise FormatError("the channels have outputs that are no numbers")
    steps = listed["channel"].diff().drop_nulls()
    follow = listed["channel"][0] == 0 and steps.is_in([0, 1]).all()
    numbered = listed.select(pl.int_range(pl.len()).over("channel") == pl.col(_RESPONSE))
    if not (follow and numbered.to_series().all()):
        raise FormatError("the channels or their outputs are not in order")
