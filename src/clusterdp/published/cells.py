"""The published tables of cells and channels: written, and read back as what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.channels.draw import Statistics
from clusterdp.channels.optimal import DesignedChannel
from clusterdp.channels.resampling import ResamplingChannel
from clusterdp.channels.statistics import (
    ContrastSummary,
    CountSummary,
    SumSummary,
    contrast_noise,
    sum_noise,
    summary_groups,
)
from clusterdp.errors import FormatError
from clusterdp.experiment.outcomes import LARGEST_VALUE
from clusterdp.mechanisms.parts import PRIOR_TOTAL, TABLE_TOTAL, NoisyContrasts, NoisyCounts
from clusterdp.rows.encoding import RELEASED, holds_labels

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

    from clusterdp._arrays import IntArray
    from clusterdp.channels.design import Channel
    from clusterdp.channels.draw import CellRelease
    from clusterdp.channels.statistics import Summary
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.rows.encoding import CellEncoder, Columns


def cells_table(encoder: CellEncoder, layout: Layout, about_cells: CellRelease) -> pl.DataFrame:
    """The published table of cells; lists follow the order of the outcome space."""
    import polars as pl

    summary, sums, channel = about_cells
    n_clusters, n_arms = layout.sizes.shape
    clusters, arms = encoder.clusters.values, encoder.arms.values
    if encoder.pooled is not None:
        clusters = pl.Series(clusters.name, layout.clusters)
    published = [
        clusters.gather(np.repeat(np.arange(n_clusters), n_arms)),
        arms.gather(np.tile(np.arange(n_arms), n_clusters)),
        pl.Series("size", layout.sizes.ravel()),
    ]
    if isinstance(summary, CountSummary):
        published.append(_list_column("noisy_counts", summary.noisy_counts, summary.groups))
    if isinstance(summary, ContrastSummary):
        contrasts = np.full(layout.sizes.shape, np.nan)
        contrasts[:, list(layout.treatments)] = summary.contrasts
        # Contrasts stand beside the treatment cells they belong to; control cells have none.
        published.append(pl.Series("noisy_contrast", contrasts.ravel()).fill_nan(None))
    if sums is not None:
        published.append(pl.Series("noisy_sum", sums.sums.ravel()))
        if sums.squares is not None:
            published.append(pl.Series("noisy_squares", sums.squares.ravel()))
    if isinstance(channel, DesignedChannel):
        published.append(pl.Series("channel", channel.groups.ravel()))
    elif channel is not None:
        published.append(_list_column("prior", channel.prior(), channel.groups))
        published.append(_list_column("decode", channel.decode(), channel.groups))
    return pl.DataFrame(published)


def channels_table(channel: DesignedChannel) -> pl.DataFrame:
    """The published table of designed channels: one row per output.

    `weights` follow the order of the outcome space: P(released | outcome) is weight / 2^48.
    """
    import polars as pl

    n_channels, n_outputs = channel.numbers.shape
    possible = channel.tables.any(axis=1).ravel()
    weights = channel.tables.swapaxes(1, 2).reshape(-1, len(channel.values))
    return pl.DataFrame(
        {
            "channel": np.repeat(np.arange(n_channels), n_outputs)[possible],
            RELEASED: channel.numbers.ravel()[possible],
            "weights": pl.Series(weights[possible]).arr.to_list(),
        }
    )


def check_cells(
    cells: pl.DataFrame, columns: Columns, mechanism: Mechanism, n_outcomes: int
) -> None:
    """Raise a FormatError unless a table has the columns of such a release, and no gaps."""
    expected = _statistics_types(mechanism, n_outcomes)
    names = [columns.cluster, columns.arm, *expected]
    if cells.columns != names:
        raise FormatError(f"the cells do not have the columns {', '.join(names)}")
    sound = {name: cells.schema[name] == kind for name, kind in expected.items()}
    sound |= {name: holds_labels(cells.schema[name]) for name in (columns.cluster, columns.arm)}
    for name, right_type in sound.items():
        gaps = name != "noisy_contrast" and bool(cells[name].null_count())
        if not right_type or gaps or not _are_whole(cells[name], n_outcomes):
            raise FormatError(f"column {name!r} of the cells does not hold what it should")


def _statistics_types(mechanism: Mechanism, n_outcomes: int) -> dict[str, pl.DataType]:
    """The columns of a table of cells after its labels."""
    import polars as pl

    types: dict[str, Any] = {"size": pl.Int64()}
    if isinstance(mechanism.summary, NoisyCounts):
        types["noisy_counts"] = pl.List(pl.Int64)
    if isinstance(mechanism.summary, NoisyContrasts):
        types["noisy_contrast"] = pl.Float64()
    if mechanism.sums is not None:
        types["noisy_sum"] = pl.Int64()
        if n_outcomes > 2:
            types["noisy_squares"] = pl.Int64()
    if mechanism.designs_rows:
        types["channel"] = pl.Int64()
    elif mechanism.releases_rows:
        types |= {"prior": pl.List(pl.Float64), "decode": pl.List(pl.Float64)}
    return types


def _are_whole(column: pl.Series, length: int) -> bool:
    """Whether lists have that many numbers, and no gaps."""
    import polars as pl

    if not isinstance(column.dtype, pl.List):
        return True
    same = bool((column.list.len() == length).all())
    return same and not column.explode(empty_as_null=False).null_count()


def read_labels(cells: pl.DataFrame, columns: Columns) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Clusters and arms of a table of cells, which has one row for each pair, in order."""
    import polars as pl

    clusters, arms = (
        cells[name].unique(maintain_order=True) for name in (columns.cluster, columns.arm)
    )
    for labels in (clusters, arms):
        if labels.dtype != pl.String and not labels.is_sorted():
            raise FormatError(f"column {labels.name!r} of the cells is not in order")
    n_clusters, n_arms = len(clusters), len(arms)
    complete = len(cells) == n_clusters * n_arms and (
        clusters.gather(np.repeat(np.arange(n_clusters), n_arms)).equals(cells[columns.cluster])
        and arms.gather(np.tile(np.arange(n_arms), n_clusters)).equals(cells[columns.arm])
    )
    if not complete:
        raise FormatError("the cells are not one for every cluster and arm, in order")
    return tuple(clusters), tuple(arms)


def read_statistics(cells: pl.DataFrame, layout: Layout, mechanism: Mechanism) -> Statistics:
    """The noisy statistics of a table of cells."""
    return Statistics(
        summary=_read_summary(cells, layout, mechanism), sums=_read_sums(cells, layout, mechanism)
    )


def read_channel(
    cells: pl.DataFrame, channels: pl.DataFrame | None, layout: Layout, mechanism: Mechanism
) -> Channel | None:
    """The channel of a table of cells, with the table of channels if these were designed."""
    if not mechanism.releases_rows:
        return None
    if channels is not None:
        return _read_designed(channels, cells, layout)
    if isinstance(mechanism.summary, NoisyCounts):
        groups, _ = summary_groups(layout, mechanism.summary)
    else:
        groups = np.zeros(layout.sizes.shape, dtype=np.int64)
    # Priors are integers over 2^32, which floats hold exactly.
    prior = _by_group(cells, "prior", groups)
    exact = np.where((prior >= 0) & (prior <= 1), prior, np.nan) * PRIOR_TOTAL
    if (exact != np.floor(exact)).any() or (exact.sum(axis=-1) != PRIOR_TOTAL).any():
        raise FormatError("a prior of the cells is not made of integers over 2^32")
    weights = exact.astype(np.int64)
    return ResamplingChannel(
        keep_weight=mechanism.response(layout.space).keep_weight,
        weights=weights,
        groups=groups,
        values=layout.space.as_array(),
    )


def _read_summary(cells: pl.DataFrame, layout: Layout, mechanism: Mechanism) -> Summary | None:
    recipe = mechanism.summary
    if isinstance(recipe, NoisyCounts):
        groups, group_sizes = summary_groups(layout, recipe)
        return CountSummary(
            noisy_counts=_by_group(cells, "noisy_counts", groups),
            group_sizes=group_sizes,
            groups=groups,
            noise_scale=recipe.noise_scale,
        )
    if isinstance(recipe, NoisyContrasts):
        table = cells["noisy_contrast"].to_numpy().reshape(layout.sizes.shape)
        told = np.arange(len(layout.arms)) != layout.control
        possible = np.abs(table) < LARGEST_VALUE
        if (possible != told).any() or cells["noisy_contrast"].null_count() != (~possible).sum():
            raise FormatError("the cells do not have a contrast for every treatment, and no other")
        variances = [
            [
                contrast_noise(layout, recipe.epsilon, cluster, arm).variance
                for arm in layout.treatments
            ]
            for cluster in range(len(layout.clusters))
        ]
        return ContrastSummary(
            contrasts=table[:, list(layout.treatments)], noise_variances=np.array(variances)
        )
    return None


def _read_sums(cells: pl.DataFrame, layout: Layout, mechanism: Mechanism) -> SumSummary | None:
    if mechanism.sums is None:
        return None
    shape = layout.sizes.shape
    squares = None
    if sum_noise(layout.space, mechanism.sums.epsilon).of_squares is not None:
        squares = cells["noisy_squares"].to_numpy().reshape(shape)
    return SumSummary(sums=cells["noisy_sum"].to_numpy().reshape(shape), squares=squares)


def _read_designed(listed: pl.DataFrame, cells: pl.DataFrame, layout: Layout) -> DesignedChannel:
    _check_channels(listed, layout.space.n_outcomes)
    by_channel = listed.partition_by("channel", maintain_order=True)
    n_outputs = max(len(one) for one in by_channel)
    tables = np.zeros((len(by_channel), layout.space.n_outcomes, n_outputs), dtype=np.int64)
    numbers = np.zeros((len(by_channel), n_outputs))
    for channel, outputs in enumerate(by_channel):
        weights = outputs["weights"].list.to_array(layout.space.n_outcomes).to_numpy()
        tables[channel, :, : len(outputs)] = weights.T
        numbers[channel, : len(outputs)] = outputs[RELEASED].to_numpy()
    groups = cells["channel"].to_numpy().reshape(layout.sizes.shape)
    if groups.min() < 0 or groups.max() >= len(by_channel):
        raise FormatError("a cell names a channel that is not there")
    return DesignedChannel(
        tables=tables, numbers=numbers, groups=groups, values=layout.space.as_array()
    )


def _check_channels(listed: pl.DataFrame, n_outcomes: int) -> None:
    """Raise a FormatError unless a table lists probabilities of outputs, channel by channel."""
    import polars as pl

    types = {"channel": pl.Int64(), RELEASED: pl.Float64(), "weights": pl.List(pl.Int64)}
    if list(listed.schema.items()) != list(types.items()) or listed.is_empty():
        raise FormatError(f"the channels do not have the columns {', '.join(types)}")
    gaps = any(listed[name].null_count() for name in types)
    if gaps or not _are_whole(listed["weights"], n_outcomes):
        raise FormatError("the channels have gaps")
    weights = listed["weights"].explode(empty_as_null=False)
    possible = listed["weights"].list.max() > 0
    if not (weights.is_between(0, TABLE_TOTAL).all() and possible.all()):
        raise FormatError("the channels have weights that are no probabilities")
    steps = listed["channel"].diff().drop_nulls()
    follow = listed["channel"][0] == 0 and steps.is_in([0, 1]).all()
    rising = (listed[RELEASED].diff().drop_nulls() >= 0) | (steps == 1)
    possible = listed[RELEASED].abs() < LARGEST_VALUE
    if not (follow and possible.all() and rising.all()):
        raise FormatError("the channels or their outputs are not in order")


def _by_group(cells: pl.DataFrame, name: str, groups: np.ndarray) -> np.ndarray:
    """A column of lists as an array with one row per group; axes `[group, outcome]`.

    Raises:
        FormatError: If cells of one group differ.
    """
    by_cell = cells[name].list.to_array(len(cells[name][0])).to_numpy()
    _, first, group = np.unique(groups.ravel(), return_index=True, return_inverse=True)
    if not np.array_equal(by_cell[first][group], by_cell):
        raise FormatError(f"cells that should share {name!r} do not")
    return np.asarray(by_cell[first])


def _list_column(name: str, by_group: npt.NDArray[Any], groups: IntArray) -> pl.Series:
    import polars as pl

    return pl.Series(name, by_group[groups.ravel()]).arr.to_list()
