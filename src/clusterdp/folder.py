"""The published folder: written once, complete or not at all, and read back with every check.

manifest.json     what this is and what it promises, with checksums of the other files
units.parquet     one row per unit
cells.parquet     one row per (cluster, arm)
channels.parquet  the probabilities of designed channels, where there are any
README.md         how to use it with no software of ours
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from clusterdp import manifest as manifests
from clusterdp.cells import Layout
from clusterdp.designed import DesignedChannel
from clusterdp.encoding import DEBIASED, RELEASED, TABLE_CHANGED
from clusterdp.engine import no_progress, unreadable
from clusterdp.errors import DataError, FormatError, OutputError
from clusterdp.fingerprint import Fingerprint
from clusterdp.folder_readme import write_readme
from clusterdp.noise import add_exact_noise
from clusterdp.pipeline import (
    Release,
    cells_table,
    channels_table,
    refuse_paper_accounting,
)
from clusterdp.randomize import RowRandomizer
from clusterdp.randomness import ReleaseKey
from clusterdp.recipes import PRIOR_TOTAL, NoisyContrasts, NoisyCounts
from clusterdp.resampling import ResamplingChannel
from clusterdp.stages import release_cells
from clusterdp.staging import PARTIAL_SUFFIX, private_file, staged_folder
from clusterdp.summary import (
    ContrastSummary,
    CountSummary,
    Summary,
    SumSummary,
    contrast_noise,
    sum_noise,
    summary_groups,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from clusterdp.channel import Channel
    from clusterdp.encoding import CellEncoder, Columns
    from clusterdp.engine import LocalTable
    from clusterdp.mechanisms import Mechanism
    from clusterdp.noise import NoiseSource

MANIFEST, README = "manifest.json", "README.md"
UNITS, CELLS, CHANNELS = "units.parquet", "cells.parquet", "channels.parquet"
# Half the time of the default level, for files a tenth larger.
_COMPRESSION_LEVEL = 1


class Progress(Protocol):
    """Where a long run reports to."""

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
        """Start a stage over that many rows; returns what to call with rows done."""
        ...


class Silence:
    """Reports to nobody."""

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:  # noqa: ARG002 - a protocol
        """Start a stage that nobody watches."""
        return no_progress


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A table whose public columns have been read: everything a plan may know.

    Attributes:
        table: The table.
        layout: Its cells.
        encoder: How its rows are assigned to cells.
        notes: What a reader of the release should know.
    """

    table: LocalTable
    layout: Layout
    encoder: CellEncoder
    notes: tuple[str, ...]


def write_release(
    prepared: Prepared, mechanism: Mechanism, target: Path, progress: Progress | None = None
) -> int:
    """Privatize a table into a new folder.

    Returns:
        How many outcomes were clipped, for the owner to know. It is stored nowhere.

    Raises:
        ClusterDPError: If the table, a parameter or the place is wrong. There is then no folder.
    """
    return write_with(
        prepared,
        mechanism,
        target,
        progress or Silence(),
        key=ReleaseKey.from_system(),
        add_noise=add_exact_noise,
    )


def write_with(  # noqa: PLR0913 - as `write_release`, and the two sources of randomness
    prepared: Prepared,
    mechanism: Mechanism,
    target: Path,
    progress: Progress,
    *,
    key: ReleaseKey,
    add_noise: NoiseSource,
) -> int:
    """As `write_release`, with the sources of randomness given: the door for tests."""
    refuse_paper_accounting(mechanism)
    table, layout, encoder = prepared.table, prepared.layout, prepared.encoder
    guarantee = mechanism.guarantee(layout.space)
    with _plain_errors(target), staged_folder(target) as folder:
        counted = progress.stage("counting cells", layout.n_units)
        counts, n_clipped, seen = table.count(layout, encoder, counted)
        progress.stage("drawing noise", 0)
        about_cells = release_cells(counts, layout, mechanism, add_noise)
        channel = about_cells.channel
        if channel is not None:
            aes_key = key.for_outcome(table.columns.outcome)
            randomizer = RowRandomizer.of(channel, layout.space, aes_key)
            randomized = progress.stage("randomizing rows", layout.n_units)
            again = Fingerprint()
            rows = table.randomize(layout, encoder, randomizer, again, randomized)
            _write_parquet(rows, folder / UNITS)
            if not again.matches(seen):
                raise DataError(TABLE_CHANGED)
        progress.stage("sealing the folder", 0)
        cells = cells_table(encoder, layout, about_cells)
        _write_parquet(cells.lazy(), folder / CELLS)
        if isinstance(channel, DesignedChannel):
            _write_parquet(channels_table(channel).lazy(), folder / CHANNELS)
        content = manifests.describe(
            software=_software(),
            columns=table.columns,
            layout=layout,
            mechanism=mechanism,
            guarantee=guarantee,
            notes=prepared.notes,
        )
        private_file(folder / README).write_text(write_readme(content), encoding="utf-8")
        content["files"] = {
            path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)}
            for path in sorted(folder.iterdir())
        }
        # Last of all: a folder without a manifest is not a release.
        private_file(folder / MANIFEST).write_bytes(manifests.seal(content))
    return n_clipped


def read_release(path: str | Path) -> Release:
    """A published release, checked against its checksums.

    `units` is a Polars query over the folder, so that releases larger than memory can be used.

    Raises:
        FormatError: If the folder is not a release, or was damaged or edited.
    """
    folder = Path(path)
    content = read_manifest(folder)
    check_sizes(folder, content)
    _check_sums(folder, content)
    import polars as pl

    try:
        return _assemble(folder, content)
    except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{folder} does not hold together: {type(error).__name__}") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, unsealed."""
    if folder.name.endswith(PARTIAL_SUFFIX):
        raise FormatError(f"{folder} is what an interrupted run left behind, not a release")
    try:
        sealed = (folder / MANIFEST).read_bytes()
    except OSError:
        raise FormatError(f"{folder} is not a release: it has no {MANIFEST}") from None
    return manifests.unseal(sealed)


def _assemble(folder: Path, content: dict[str, Any]) -> Release:
    import polars as pl

    columns, mechanism = manifests.read_columns(content), manifests.read_mechanism(content)
    guarantee = manifests.read_guarantee(content)
    cells = pl.read_parquet(folder / CELLS)
    layout = _read_layout(cells, columns, content)
    summary = _read_summary(cells, layout, mechanism)
    channel = _read_channel(folder, cells, layout, mechanism)
    units = None
    if mechanism.releases_rows:
        units = pl.scan_parquet(folder / UNITS, glob=False)
        expected = [*columns.public, RELEASED, DEBIASED]
        if units.collect_schema().names() != expected:
            raise FormatError(f"{UNITS} does not have the columns {', '.join(expected)}")
    return Release(
        units=units,
        cells=cells,
        mechanism=mechanism,
        guarantee=guarantee,
        columns=columns,
        layout=layout,
        summary=summary,
        sums=_read_sums(cells, layout, mechanism),
        channel=channel,
        notes=tuple(content["notes"]),
    )


def _read_layout(cells: pl.DataFrame, columns: Columns, content: dict[str, Any]) -> Layout:
    arms = tuple(cells[columns.arm].unique(maintain_order=True))
    clusters = tuple(cells[columns.cluster].unique(maintain_order=True))
    layout = Layout(
        clusters=clusters,
        arms=arms,
        control=manifests.read_control(content, arms),
        sizes=cells["size"].to_numpy().reshape(len(clusters), len(arms)),
        space=manifests.read_space(content),
    )
    if layout.n_units != content["n_units"] or len(clusters) != content["n_clusters"]:
        raise FormatError(f"{CELLS} and {MANIFEST} disagree on the number of units or clusters")
    return layout


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


def _read_channel(
    folder: Path, cells: pl.DataFrame, layout: Layout, mechanism: Mechanism
) -> Channel | None:
    if not mechanism.releases_rows:
        return None
    if mechanism.designs_rows:
        return _read_designed(folder, cells, layout)
    if isinstance(mechanism.summary, NoisyCounts):
        groups, _ = summary_groups(layout, mechanism.summary)
    else:
        groups = np.zeros(layout.sizes.shape, dtype=np.int64)
    # Priors are integers over 2^32, which floats hold exactly.
    weights = np.rint(_by_group(cells, "prior", groups) * PRIOR_TOTAL).astype(np.int64)
    return ResamplingChannel(
        keep_weight=mechanism.response(layout.space).keep_weight,
        weights=weights,
        groups=groups,
        values=layout.space.as_array(),
    )


def _read_designed(folder: Path, cells: pl.DataFrame, layout: Layout) -> DesignedChannel:
    import polars as pl

    listed = pl.read_parquet(folder / CHANNELS)
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
        raise FormatError(f"{CELLS} names a channel that {CHANNELS} lacks")
    return DesignedChannel(
        tables=tables, numbers=numbers, groups=groups, values=layout.space.as_array()
    )


def _by_group(cells: pl.DataFrame, name: str, groups: np.ndarray) -> np.ndarray:
    """A column of lists as an array with one row per group; axes `[group, outcome]`."""
    by_cell = cells[name].list.to_array(len(cells[name][0])).to_numpy()
    _, first = np.unique(groups.ravel(), return_index=True)
    return np.asarray(by_cell[first])


def check_sizes(folder: Path, content: dict[str, Any]) -> None:
    """Raise a FormatError unless every file is there and of the size it was published with."""
    for name, stated in content["files"].items():
        path = folder / name
        if not path.is_file():
            raise FormatError(f"{folder} lacks {name}")
        if path.stat().st_size != stated["bytes"]:
            raise FormatError(f"{path} is truncated or has grown since it was published")


def _check_sums(folder: Path, content: dict[str, Any]) -> None:
    for name, stated in content["files"].items():
        if _sha256(folder / name) != stated["sha256"]:
            raise FormatError(f"{folder / name} was changed since it was published")


def _write_parquet(rows: pl.LazyFrame, path: Path) -> None:
    rows.sink_parquet(
        private_file(path),
        compression="zstd",
        compression_level=_COMPRESSION_LEVEL,
        # Rows stand in the owner's order: least and largest values would rule no row group out.
        statistics=False,
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _software() -> str:
    from clusterdp import __version__

    return f"clusterdp {__version__}"


@contextmanager
def _plain_errors(target: Path) -> Iterator[None]:
    """Errors of the disk and of Polars as one line that names the place and no data."""
    import polars as pl

    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"cannot write {target}: {reason}") from None
    except pl.exceptions.PolarsError as error:
        if "could not parse" in str(error):  # a kept column, which only the second pass reads
            raise unreadable(error) from None
        full = "No space left" in str(error) or "os error 28" in str(error)
        reason = "No space left on device" if full else type(error).__name__
        raise OutputError(f"cannot write {target}: {reason}") from None
