"""Does a published folder hold together? Every check that needs no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clusterdp.channels.design import design_channel
from clusterdp.channels.optimal import MOST_BIAS, DesignedChannel
from clusterdp.channels.resampling import ResamplingChannel
from clusterdp.errors import ClusterDPError
from clusterdp.published.folder import read_manifest, read_release, unit_files
from clusterdp.published.row_counts import (
    collect_rows,
    count_released,
    encode_released,
    released_cells,
    scan_units,
)
from clusterdp.rows.encoding import DEBIASED, RELEASED
from clusterdp.storage.files import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterdp.published.release import Release


class Check(NamedTuple):
    """One check: what it is about, and what is wrong, or None."""

    name: str
    problem: str | None


def verify_folder(folder: Path) -> list[Check]:
    """Run every check; the first ones decide whether the others can run at all."""
    try:
        release = read_release(folder)
    except ClusterDPError as error:
        return [Check("manifest, checksums and schema", str(error))]
    manifest = read_manifest(folder)
    listed = {MANIFEST, *manifest["files"]}
    there = (path for path in folder.rglob("*") if not path.is_dir())
    names = (path.relative_to(folder).as_posix() for path in there)
    foreign = sorted(name for name in names if name not in listed)
    checks = [
        Check("manifest, checksums and schema", None),
        Check(
            "nothing else is in the folder",
            f"{foreign[0]} is not part of the release" if foreign else None,
        ),
        # read_release refuses a guarantee that does not follow.
        Check("the guarantee follows from the parameters", None),
    ]
    steps: list[tuple[str, Callable[[Release], str | None]]] = []
    if isinstance(release.channel, DesignedChannel):
        steps = [
            ("channels are within what the rows cost", _check_ratios),
            ("channels are unbiased", _check_bias),
        ]
    elif release.channel is not None:
        steps = [
            ("priors follow from the noisy counts", _check_priors),
            ("decode values follow from the priors", _check_decode),
        ]
    if release.channel is not None:
        steps += [
            ("rows can be read", _check_readable),
            ("rows fill the cells", _check_rows),
            ("debiased outcomes follow from released ones", _check_debiased),
            ("each unit has one row", _check_units),
        ]
    if manifest["row_order"] == "ids":
        parts = [folder / name for name in unit_files(manifest)]
        steps.append(("rows stand in the order of ids", lambda one: _check_order(one, parts)))
    for name, step in steps:
        try:
            checks.append(Check(name, step(release)))
        except ClusterDPError as error:
            checks.append(Check(name, str(error)))
    return checks


def _check_ratios(release: Release) -> str | None:
    assert isinstance(release.channel, DesignedChannel)  # noqa: S101 - only called then
    if not release.channel.is_within(release.mechanism.designed_response()):
        return "channels.parquet has a channel that costs more than the manifest says"
    return None


def _check_bias(release: Release) -> str | None:
    assert isinstance(release.channel, DesignedChannel)  # noqa: S101 - only called then
    largest = max(1.0, float(np.abs(release.channel.numbers).max()))
    if np.abs(release.channel.bias()).max() > MOST_BIAS * largest:
        return "channels.parquet has a channel whose outputs do not average to the outcome"
    return None


def _check_priors(release: Release) -> str | None:
    assert isinstance(release.channel, ResamplingChannel)  # noqa: S101 - only called then
    made = design_channel(release.mechanism, release.layout, release.summary)
    if not isinstance(made, ResamplingChannel) or not np.array_equal(
        made.weights, release.channel.weights
    ):
        return "cells.parquet has priors that the noisy counts do not lead to"
    return None


def _check_decode(release: Release) -> str | None:
    assert release.channel is not None  # noqa: S101 - only called then
    stated = np.array(release.cells["decode"].to_list())
    made = release.channel.decode()[release.channel.groups.ravel()]
    if not np.allclose(stated, made, rtol=1e-12, atol=1e-12):
        return "cells.parquet has decode values that its priors do not lead to"
    return None


def _check_readable(release: Release) -> str | None:
    """Kept columns, too, which no other check reads."""
    import polars as pl

    collect_rows(scan_units(release).select(pl.all().null_count()))
    return None


def _check_rows(release: Release) -> str | None:
    count_released(release)  # or an error that says what is wrong
    return None


def _check_debiased(release: Release) -> str | None:
    assert release.channel is not None  # noqa: S101 - only called then
    columns, layout = release.columns, release.layout
    published = scan_units(release).select(columns.cluster, columns.arm, RELEASED, DEBIASED)
    pairs = collect_rows(published.unique())
    cells = released_cells(pairs, columns, layout)
    codes, _ = encode_released(pairs[RELEASED].to_numpy(), cells, release)
    made = release.channel.decode()[release.channel.groups.ravel()[cells], codes]
    if not np.allclose(pairs[DEBIASED].to_numpy(), made, rtol=1e-12, atol=1e-12):
        return "rows have debiased outcomes that the decode values do not give"
    return None


def _check_order(release: Release, parts: list[Path]) -> str | None:
    """Within each file: files of many machines hold ids by their hash."""
    import polars as pl

    unit = pl.col(release.columns.unit)
    for part in parts:
        falls = pl.scan_parquet(part, glob=False).select((unit < unit.shift(1)).any())
        if collect_rows(falls).item():
            return f"{part.name} is in another order, which may depend on outcomes"
    return None


def _check_units(release: Release) -> str | None:
    import polars as pl

    unit = pl.col(release.columns.unit)
    counted = scan_units(release).select(
        units=unit.n_unique(), gaps=unit.null_count(), rows=pl.len()
    )
    n_units, n_gaps, n_rows = collect_rows(counted).row(0)
    if n_gaps:
        return "rows lack an id"
    return None if n_units == n_rows else "rows repeat an id"
