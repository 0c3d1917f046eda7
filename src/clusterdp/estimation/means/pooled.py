"""What several folders show about a metric, as one: each has a channel and sums of its own.

Values of a metric are distances from one middle, that of the values of all folders. Published sums
are of the units of their folder, and are weighed against the noise of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clusterdp._arrays import FloatArray, IntArray
from clusterdp.estimation.means.functions import DecodedFunction
from clusterdp.estimation.means.responses import ResponseValues
from clusterdp.estimation.means.spread import RowNoiseBound
from clusterdp.outcomes.space import ValueRange


def pooled_function(parts: Sequence[DecodedFunction], sizes: Sequence[int]) -> DecodedFunction:
    """A function as several folders identify it.

    Args:
        parts: The function in each folder.
        sizes: The units of each folder.
    """
    noise = _pooled_noise([one.noise for one in parts], np.array(sizes))
    readings = tuple(
        # Squares are of distances from the middle of the folder's own values.
        one._replace(folder=place)
        if part.outputs.middle == noise.ends.middle
        else one._replace(folder=place, squares=None)
        for place, part in enumerate(parts)
        for one in part.readings
    )
    return DecodedFunction(
        name=parts[0].name,
        outputs=_pooled_outputs([one.outputs for one in parts], noise.ends.middle),
        readings=readings,
        noise=noise,
        breakdowns=frozenset.intersection(*(one.breakdowns for one in parts)),
        row_noise=tuple(part.noise.variance for part in parts for _ in part.readings),
    )


def _pooled_outputs(parts: Sequence[ResponseValues], middle: float) -> ResponseValues:
    """What outputs of each folder's channels count as, as distances from one middle."""
    values = stacked_outputs([one.values + (one.middle - middle) for one in parts])
    return ResponseValues(
        values=values,
        noise=stacked_outputs([one.noise for one in parts]),
        groups=_stacked_groups([one.groups for one in parts], [len(one.values) for one in parts]),
        middle=middle,
    )


def stacked_outputs(parts: Sequence[FloatArray]) -> FloatArray:
    """Numbers of the outputs of all channels, zero for outputs that a channel does not have.

    Axes `[channel, output]`.
    """
    most = max(one.shape[-1] for one in parts)
    padded = [np.pad(one, [(0, 0), (0, most - one.shape[-1])]) for one in parts]
    return np.concatenate(padded)


def _stacked_groups(parts: Sequence[IntArray], n_channels: Sequence[int]) -> IntArray:
    """The channel of each cell, among those of all folders; axes `[cluster, arm]`."""
    starts = np.cumsum([0, *n_channels])
    moved = [one + start for one, start in zip(parts, starts, strict=False)]
    return np.concatenate(moved)


def _pooled_noise(parts: Sequence[RowNoiseBound], sizes: IntArray) -> RowNoiseBound:
    """What is public of the noise of a row of any folder."""
    first = parts[0]
    ends = ValueRange(min(one.ends.low for one in parts), max(one.ends.high for one in parts))
    weights = sizes / sizes.sum()
    return RowNoiseBound(
        ends=ends,
        variance=float(weights @ [one.variance for one in parts]),
        square_variance=float(weights @ [one.square_variance for one in parts]),
        largest=max(one.largest for one in parts),
        kurtosis=max(one.kurtosis for one in parts),
        two_values=all(one.two_values and one.ends == ends for one in parts),
        # The middle less a constant, which is the same in all folders.
        origin=first.origin - first.ends.middle + ends.middle,
        share=min(one.share for one in parts),
    )
