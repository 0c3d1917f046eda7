"""Sound folders and a sound ledger, to be spoilt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

import clusterdp as cdp
from categories import one_outcome
from clusterdp._progress import NoProgress
from clusterdp.published.contents import FolderView
from clusterdp.published.document import write_card, write_readme
from clusterdp.published.folder import read_files
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.clusters import PublicClusters
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import simulated_noise
from clusterdp.storage.folder import FileSum, LocalFolder
from clusterdp.storage.parquet import write_table
from clusterdp.storage.reading import open_folder
from edited_cards import edited_card
from runs import write_with

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from clusterdp.outcomes.categories import Categories

N_USERS = 48


@dataclass(frozen=True, slots=True, eq=False)
class SoundFolder:
    """A published folder, in memory.

    Attributes:
        name: What was released.
        files: Its files.
    """

    name: str
    files: dict[str, bytes]

    def manifest(self) -> dict[str, Any]:
        """Its manifest, but for the checksum."""
        content: dict[str, Any] = json.loads(self.files["manifest.json"])
        del content["sha256"]
        return content

    def tables(self) -> list[str]:
        """Its Parquet files."""
        return [name for name in self.files if name.endswith(".parquet")]

    def table(self, name: str) -> pl.DataFrame:
        """One of them."""
        return pl.read_parquet(BytesIO(self.files[name]))


def table() -> pl.DataFrame:
    """An experiment of 48 users in 3 markets with clicks from 0 to 3; no order tells them."""
    row = np.arange(N_USERS)
    return pl.DataFrame(
        {
            "user": row * 7 % N_USERS + 1000,
            "treated": row % 2,
            "market": row // 2 % 3,
            "clicks": row // 6 % 4,
            "tier": row // 3 % 2,
        }
    )


def sound_folders(rng: np.random.Generator, place: Path) -> list[SoundFolder]:
    """A folder of every kind."""
    numbers = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
    plain = table()
    named = plain.with_columns(
        user=pl.format("id-{}", "user"),
        treated=pl.Series(["a", "b", "c"])[(np.arange(N_USERS) % 3).tolist()],
        market=pl.format("m{}", pl.Series(np.arange(N_USERS) // 3 % 2)),
    )
    row = pl.int_range(pl.len())
    # Two small clusters, to be pooled.
    uneven = plain.with_columns(market=pl.when(row < 8).then(8 + row // 2 % 2).otherwise("market"))
    binned = one_outcome("clicks", cdp.OutcomeSpace.bins([0, 1.5, 2.5, 4]))
    made: dict[str, tuple[Any, ...]] = {
        "Cluster-DP": (plain, cdp.cluster_dp(noise_scale=4, prior_floor=0.05, epsilon=2), numbers),
        "Optimal": (
            named,
            cdp.optimal(epsilon=3, noise_scale=3, sums=cdp.SumShares(clusters=0.2)),
            numbers,
        ),
        "Optimal, public": (plain, cdp.optimal(epsilon=2, prior=[4, 3, 2, 1]), numbers),
        "Uniform": (
            uneven,
            cdp.uniform_prior_dp(epsilon=2, sums=cdp.SumShares(clusters=0.2)),
            binned,
        ),
        "Cluster-Free-DP": (
            named,
            cdp.cluster_free_dp(noise_scale=4, prior_floor=0.1, epsilon=2, delta=1e-3),
            numbers,
        ),
        "Histogram": (named, cdp.noisy_histogram(epsilon=2), binned),
        "Contrasts": (named, cdp.noisy_horvitz_thompson(epsilon=2), numbers),
        "Totals": (
            plain,
            cdp.optimal(
                epsilon=3,
                prior=[4, 3, 2, 1],
                sums=cdp.SumShares(totals=0.1, clusters=0.1, breakdowns=((("tier",), 0.1),)),
            ),
            numbers,
            {"breakdowns": (("tier",),), "folds": 2},
        ),
        "No clusters": (
            named,
            cdp.uniform_prior_dp(epsilon=2, sums=cdp.SumShares(totals=0.2)),
            numbers,
            {"cluster": None, "folds": 2},
        ),
    }
    folders = [
        _publish(name, *parts, rng=rng, target=place / str(number))
        for number, (name, parts) in enumerate(made.items())
    ]
    in_parts = [_in_parts(folders[number], place / str(number)) for number in (0, 1)]
    return [*folders, *in_parts]


def _publish(
    name: str,
    rows: pl.DataFrame,
    mechanism: cdp.Mechanism,
    space: Categories,
    parts: Mapping[str, Any] | None = None,
    *,
    rng: np.random.Generator,
    target: Path,
) -> SoundFolder:
    named = {"unit": "user", "arm": "treated", "cluster": "market", "kept": ("tier",)}
    columns = Columns(**{**named, "outcomes": ("clicks",), **(parts or {})})
    control = rows["treated"].min()
    write_with(
        prepare(
            rows,
            columns=columns,
            spaces=(space,),
            control=control,
            clusters=PublicClusters(min_cell_size=4),
        ),
        (mechanism,),
        LocalFolder(target),
        NoProgress(),
        journal=NoJournal(ReleaseKey(rng.bytes(32))),
        add_noise=simulated_noise(rng),
    )
    return SoundFolder(name, {path.name: path.read_bytes() for path in target.iterdir()})


def _in_parts(folder: SoundFolder, place: Path) -> SoundFolder:
    """The same with its rows in a folder, as an engine of many machines writes them.

    Args:
        folder: The folder.
        place: Where it is.
    """
    files = {name: content for name, content in folder.files.items() if name != "units.parquet"}
    files["units/part-00000.parquet"] = folder.files["units.parquet"]
    content = folder.manifest()
    parts = [name for name in files if name.startswith("units/")]
    release, manifest = read_files(open_folder(place))
    channels = [one.channel for one in release.questions]
    view = FolderView.from_parts(manifest, release.layout, channels)
    files["README.md"] = write_readme(view, parts).encode()
    files["index.html"] = write_card(view, _sums(files)).encode()
    content["files"] = msgspec.to_builtins(_sums(files))
    return SoundFolder(f"{folder.name}, in parts", sealed(content, files))


def as_parquet(rows: pl.DataFrame) -> bytes:
    """A table as the bytes of a file."""
    file = BytesIO()
    write_table(rows.lazy(), file)
    return file.getvalue()


def sealed(content: dict[str, Any], files: dict[str, bytes]) -> dict[str, bytes]:
    """Files with a manifest that names them all, with the checksums that it should have."""
    before = {name: FileSum(**one) for name, one in content["files"].items()}
    page = edited_card(files["index.html"].decode(), before, _sums(files)).encode()
    whole = {**files, "index.html": page}
    listed = msgspec.to_builtins(_sums(whole))
    return {**whole, "manifest.json": seal({**content, "files": listed})}


def _sums(files: dict[str, bytes]) -> dict[str, FileSum]:
    """The checksums of all files but the manifest."""
    return {
        name: FileSum(len(files[name]), _sha256(files[name]))
        for name in sorted(files)
        if name != "manifest.json"
    }


def seal(content: dict[str, Any]) -> bytes:
    """A manifest with its checksum, as docs/reference/folder.md has it; for unsound ones, too."""
    try:
        json.dumps(content, allow_nan=False).encode()
        signed = {**content, "sha256": _sha256(msgspec.json.encode({**content, "sha256": ""}))}
        return msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n"
    except (ValueError, OverflowError):  # NaN, half a letter, or a number beyond 64 bits
        return json.dumps({**content, "sha256": "0" * 64}, indent=2).encode()


def _sha256(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()
