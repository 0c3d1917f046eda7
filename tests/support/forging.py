"""Folders that were changed and sealed anew, by whoever can write them and has this software."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from clusterdp.engines.local.table import write_parquet
from clusterdp.errors import FormatError
from clusterdp.published.contents import FolderView
from clusterdp.published.document import write_card, write_readme
from clusterdp.published.folder import read_files, unit_files
from clusterdp.storage.folder import INDEX, MANIFEST, README, FileSum
from clusterdp.storage.reading import open_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import polars as pl

    Place = tuple[str | int, ...]


def forge(folder: Path, change: Callable[[dict[str, Any]], object] = lambda _: None) -> None:
    """Change the manifest; name all files as they are now; write both pages anew if possible."""
    content = json.loads((folder / MANIFEST).read_bytes())
    change(content)
    for name in content["files"]:
        content["files"][name] = _sum(folder / name)
    seal(folder, content)
    try:
        release, manifest = read_files(open_folder(folder))
    except FormatError:
        return
    channels = [question.channel for question in release.questions]
    view = FolderView.from_parts(manifest, release.layout, channels)
    (folder / README).write_text(write_readme(view, unit_files(manifest)))
    content["files"][README] = _sum(folder / README)
    files = {name: FileSum(**one) for name, one in content["files"].items()}
    (folder / INDEX).write_text(write_card(view, files))
    content["files"][INDEX] = _sum(folder / INDEX)
    seal(folder, content)


def rewrite(table: pl.DataFrame, path: Path) -> None:
    """Write a table in place of a file, as a release writes it."""
    path.unlink()
    write_parquet(table.lazy(), path)


def _sum(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(FileSum.from_file(path))
    return found


def seal(folder: Path, content: dict[str, Any]) -> None:
    """Write a manifest with the checksum that it should have."""
    unsigned = msgspec.json.encode({**content, "sha256": ""})
    signed = {**content, "sha256": hashlib.sha256(unsigned).hexdigest()}
    sealed = msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n"
    (folder / MANIFEST).write_bytes(sealed)


def leaves(content: Any, place: Place = ()) -> Iterator[Place]:
    """Where a manifest has texts and numbers."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, one in pairs:
        if isinstance(one, dict | list):
            yield from leaves(one, (*place, key))
        elif one is not None:
            yield (*place, key)


def put_other(content: dict[str, Any], place: Place) -> None:
    """Put another text or number in a place."""
    *above, last = place
    held: Any = content
    for key in above:
        held = held[key]
    before = held[last]
    if place == ("software",):
        held[last] = "clusterdp 9.9.9"
    elif isinstance(before, bool):
        held[last] = not before
    elif isinstance(before, str):
        held[last] = f"{before}x"
    else:
        held[last] = before + 1 if isinstance(before, int) else before / 2 or 0.25
