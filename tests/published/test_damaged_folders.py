"""Folders that were damaged, edited or forged after they were published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pytest

from cli_runs import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def spoil_file(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    path = folder / name
    path.write_bytes(change(path.read_bytes()))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda d: spoil_file(d, "units.parquet", lambda b: b[:-100]), "truncated"),
    "one bit": (
        lambda d: spoil_file(d, "units.parquet", lambda b: b[:99] + bytes([b[99] ^ 1]) + b[100:]),
        "was changed",
    ),
    "lost file": (lambda d: (d / "cells.parquet").unlink(), "lacks cells.parquet"),
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "no manifest.json"),
    "edited": (
        lambda d: spoil_file(
            d, "manifest.json", lambda b: b.replace(b'"delta": 0.0', b'"delta": 0.1')
        ),
        "was edited",
    ),
    "newer": (
        lambda d: spoil_file(
            d,
            "manifest.json",
            lambda b: b.replace(b'"format_version": 8', b'"format_version": 9'),
        ),
        "upgrade clusterdp",
    ),
    "other JSON": (lambda d: (d / "manifest.json").write_text("[1]"), "not the manifest"),
    "no JSON": (lambda d: (d / "manifest.json").write_bytes(b"\xff"), "not JSON"),
}


@pytest.mark.parametrize("case", DAMAGE)
@pytest.mark.parametrize("command", ["estimate", "verify"])
def test_damaged_folders_are_refused(case: str, command: str, published: Path) -> None:
    damage, message = DAMAGE[case]
    damage(published)
    result = run(command, published)
    assert result.exit_code == 2
    assert message in (result.stderr or result.stdout)
    assert "Traceback" not in result.output


def test_a_forged_guarantee_is_noticed(published: Path) -> None:
    """Sealed anew after an edit, a manifest still cannot state less than its parameters cost."""
    from clusterdp.published import manifest as manifests

    content = manifests.unseal((published / "manifest.json").read_bytes())
    less = replace(content.guarantee, epsilon=0.5)
    forged = msgspec.structs.replace(content, guarantee=less)
    (published / "manifest.json").write_bytes(forged.sealed(content.files))
    result = run("verify", published)
    assert result.exit_code == 2
    assert "does not match the parameters" in result.output


def test_forged_rows_are_noticed(published: Path) -> None:
    from clusterdp.published import manifest as manifests
    from clusterdp.storage.folder import FileSum

    path = published / "units.parquet"
    pl.read_parquet(path).with_columns(pl.col("clicks_debiased") + 1e-3).write_parquet(path)
    content = manifests.unseal((published / "manifest.json").read_bytes())
    files = {**content.files, "units.parquet": FileSum.from_file(path)}
    (published / "manifest.json").write_bytes(content.sealed(files))
    result = run("verify", published)
    assert result.exit_code == 2
    assert "FAIL debiased columns match" in result.output


def test_a_foreign_file_is_noticed(published: Path) -> None:
    (published / "secret.csv").write_text("true outcomes")
    result = run("verify", published)
    assert result.exit_code == 2
    assert "secret.csv is not part of the release" in result.output
