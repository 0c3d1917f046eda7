"""`clusterdp inspect` and `clusterdp verify`."""

from __future__ import annotations

from typing import Any

import typer

from clusterdp._words import counted
from clusterdp.cli.console import REFUSED, errors_in_one_line, print_json, print_pairs, say
from clusterdp.cli.options import AsJson, Folder


@errors_in_one_line()
def inspect(folder: Folder, *, as_json: AsJson = False) -> None:
    """Show what a published folder is and what it promises.

    clusterdp inspect published/
    """
    from clusterdp.published.folder import check_sizes, read_manifest

    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    if as_json:
        print_json(manifest)
    else:
        print_pairs(_lines(manifest))


@errors_in_one_line()
def verify(folder: Folder, *, as_json: AsJson = False) -> None:
    """Check that a folder is undamaged and that everything in it follows from the rest.

    clusterdp verify published/
    """
    from clusterdp.published.verification import verify_folder

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


def _lines(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    from clusterdp.published.manifest import what_is_public

    columns, outcome, rows = (
        manifest["columns"],
        manifest["outcome"],
        manifest["mechanism"]["rows"],
    )
    values = outcome["values"]
    shown = ", ".join(f"{value:g}" for value in values[:8])
    space = shown + (f", ... {values[-1]:g} ({len(values)} values)" if len(values) > 8 else "")
    if outcome["edges"]:
        space += f"; each stands for a bin of {', '.join(f'{e:g}' for e in outcome['edges'])}"
    lines = [
        ("outcome", f"{outcome['name']}: {space}"),
        ("privacy", manifest["guarantee"]["in_words"]),
        ("public", what_is_public(manifest["row_order"])),
        ("mechanism", manifest["mechanism"]["name"]),
    ]
    summary = manifest["mechanism"]["summary"]
    if summary is not None:
        lines.append(("  summary", ", ".join(f"{name} {value}" for name, value in summary.items())))
    sums = manifest["mechanism"].get("sums")
    if sums is not None:
        lines.append(("  sums", f"of every cell, epsilon {sums['epsilon']:.6g}"))
    if rows is not None:
        lines.append(("  rows", _describe_rows(rows)))
    published = [columns["arm"], columns["cluster"]]
    if rows is not None:
        published = [columns["unit"], *published, *columns["kept"]]
    arms = ", ".join(str(arm) for arm in manifest["arms"])
    lines += [
        (
            "table",
            (
                f"{counted(manifest['n_units'], 'unit')}, "
                f"{counted(manifest['n_clusters'], 'cluster')}, "
                f"arms {arms} (control {manifest['control']})"
            ),
        ),
        ("columns", ", ".join(map(repr, published))),
        (
            "files",
            ", ".join(
                f"{name} ({_size(file['bytes'])})" for name, file in manifest["files"].items()
            ),
        ),
        ("written by", manifest["software"]),
    ]
    lines += [("note", note) for note in manifest["notes"]]
    return lines


def _describe_rows(rows: dict[str, Any]) -> str:
    if "epsilon" in rows:
        return (
            f"a channel designed for epsilon {rows['epsilon']:.6g}; released outcomes are numbers, "
            "not outcomes"
        )
    floor = rows["prior_floor"]
    prior = "uniform prior" if floor is None else f"prior_floor {floor:.6g}"
    return f"resample_prob {rows['resample_prob']:.6g}, {prior}"


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"
