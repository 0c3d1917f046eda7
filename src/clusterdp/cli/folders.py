"""`clusterdp inspect` and `clusterdp verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from clusterdp._words import counted
from clusterdp.cli.console import REFUSED, errors_in_one_line, print_json, print_line, print_pairs
from clusterdp.cli.options import AsJson, Folder
from clusterdp.published.folder import check_sizes, read_manifest
from clusterdp.published.manifest import what_is_public
from clusterdp.published.verification import verify_folder

if TYPE_CHECKING:
    from clusterdp.published.manifest import Manifest


@errors_in_one_line()
def inspect(folder: Folder, *, as_json: AsJson = False) -> None:
    """Show what a published folder is and what it promises.

    clusterdp inspect published/
    """
    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    if as_json:
        print_json(msgspec.to_builtins(manifest))
    else:
        print_pairs(_lines(manifest))


@errors_in_one_line()
def verify(folder: Folder, *, as_json: AsJson = False) -> None:
    """Check that a folder is undamaged and that everything in it follows from the rest.

    clusterdp verify published/
    """
    checks = verify_folder(folder)
    sound = all(check.problem is None for check in checks)
    if as_json:
        print_json({"sound": sound, "checks": [check._asdict() for check in checks]})
    else:
        for check in checks:
            mark = "ok  " if check.problem is None else "FAIL"
            print_line(f"{mark} {check.name}" + (f": {check.problem}" if check.problem else ""))
    if not sound:
        raise typer.Exit(REFUSED)


def _lines(manifest: Manifest) -> list[tuple[str, str]]:
    mechanism, columns = manifest.mechanism, manifest.to_columns()
    declared, space = manifest.outcomes.declared, manifest.outcomes.categories()
    numbers = mechanism.parameters(space).items()
    parameters = ", ".join(f"{name} {value:.6g}" for name, value in numbers)
    units, clusters = counted(manifest.n_units, "unit"), counted(manifest.n_clusters, "cluster")
    groups = [
        f"{', '.join(one.columns)} ({counted(len(one.sizes), 'group')})"
        for one in manifest.breakdowns
    ]
    arms = ", ".join(map(str, manifest.arms))
    published = columns.public if mechanism.releases_rows else columns.cell
    files = [f"{name} ({_size(file.bytes)})" for name, file in manifest.files.items()]
    return [
        *(("outcome", f"{one.name}: {one.space}") for one in declared.outcomes),
        *(("implication", text) for text in declared.implications),
        *(("metric", text) for text in declared.metrics),
        ("privacy", manifest.guarantee.in_words),
        ("public", what_is_public(manifest.row_order)),
        ("mechanism", f"{mechanism.name} ({parameters})"),
        ("table", f"{units}, {clusters}, arms {arms} (control {manifest.control})"),
        *(("breakdown", one) for one in groups),
        *([("folds", str(manifest.folds))] if manifest.folds > 1 else []),
        ("columns", ", ".join(map(repr, published))),
        ("files", ", ".join(files)),
        ("written by", manifest.software),
        *(("note", note) for note in manifest.notes),
    ]


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"
