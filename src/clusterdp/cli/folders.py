"""`clusterdp inspect` and `clusterdp verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from clusterdp._words import counted
from clusterdp.cli.console import REFUSED, print_json, print_pairs, say
from clusterdp.published.folder import check_sizes, read_manifest
from clusterdp.published.manifest import what_is_public
from clusterdp.published.verification import verify_folder

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.published.manifest import Manifest
    from clusterdp.published.terms import OutcomeTerms


def run_inspect_command(folder: Path, *, as_json: bool) -> None:
    """Show a manifest."""
    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    if as_json:
        print_json(msgspec.to_builtins(manifest))
        return
    print_pairs(_lines(manifest))


def run_verify_command(folder: Path, *, as_json: bool) -> None:
    """Run every check; exit with 2 if one fails."""
    import typer

    checks = verify_folder(folder)
    sound = all(check.problem is None for check in checks)
    if as_json:
        print_json({"sound": sound, "checks": [check._asdict() for check in checks]})
    else:
        for check in checks:
            mark = "ok  " if check.problem is None else "FAIL"
            say(f"{mark} {check.name}" + (f": {check.problem}" if check.problem else ""))
    if not sound:
        raise typer.Exit(REFUSED)


def _lines(manifest: Manifest) -> list[tuple[str, str]]:
    columns, outcome, mechanism = manifest.columns, manifest.outcome, manifest.mechanism
    published = [columns.arm, columns.cluster]
    if mechanism.releases_rows:
        published = [columns.unit, *published, *columns.kept]
    arms = ", ".join(str(arm) for arm in manifest.arms)
    table = (
        f"{counted(manifest.n_units, 'unit')}, {counted(manifest.n_clusters, 'cluster')}, "
        f"arms {arms} (control {manifest.control})"
    )
    files = (f"{name} ({_size(file.bytes)})" for name, file in manifest.files.items())
    numbers = mechanism.parameters(outcome.space).items()
    return [
        ("outcome", f"{outcome.name}: {_values(outcome)}"),
        ("privacy", manifest.guarantee.in_words),
        ("public", what_is_public(manifest.row_order)),
        ("mechanism", mechanism.name),
        ("parameters", ", ".join(f"{name} {value:.6g}" for name, value in numbers)),
        ("table", table),
        ("columns", ", ".join(map(repr, published))),
        ("files", ", ".join(files)),
        ("written by", manifest.software),
        *(("note", note) for note in manifest.notes),
    ]


def _values(outcome: OutcomeTerms) -> str:
    """The possible outcomes, of which the first are shown."""
    values = outcome.values
    shown = ", ".join(f"{value:g}" for value in values[:8])
    shown += f", ... {values[-1]:g} ({len(values)} values)" if len(values) > 8 else ""
    if outcome.edges:
        shown += f"; each stands for a bin of {', '.join(f'{e:g}' for e in outcome.edges)}"
    return shown


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"
