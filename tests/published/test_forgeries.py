"""Folders that were changed and sealed anew: what could carry outcomes is noticed."""

from __future__ import annotations

import io
import itertools
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.published._parquet_bytes import ParquetBytes
from clusterdp.published.manifest import software_name, unseal
from clusterdp.published.overview import owners_words
from clusterdp.published.verification import verify_folder
from clusterdp.storage.folder import FileSum
from clusterdp.storage.reading import open_folder
from edited_cards import edited_card
from forging import forge, leaves, put_other, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def problems(folder: Path) -> list[str]:
    return [check.name for check in verify_folder(folder) if check.problem is not None]


def in_the_lowest_bit(rows: pl.DataFrame) -> pl.DataFrame:
    """A secret of each row in the last bit of its debiased outcome."""
    numbers = rows["clicks_debiased"].to_numpy().copy()
    moved = np.where(np.arange(len(numbers)) % 2, np.nextafter(numbers, np.inf), numbers)
    return rows.with_columns(clicks_debiased=pl.Series(moved))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (in_the_lowest_bit, "debiased columns match responses"),
        (
            lambda rows: rows.with_columns(response=pl.lit(9999, dtype=pl.Int32)),
            "row counts match cell sizes",
        ),
        (
            lambda rows: rows.with_columns(response=pl.lit(-1, dtype=pl.Int32)),
            "row counts match cell sizes",
        ),
    ],
    ids=["the lowest bit", "a response beyond all", "a response below all"],
)
def test_rows_that_say_more_than_their_responses(
    change: Callable[[pl.DataFrame], pl.DataFrame], problem: str, published: Path
) -> None:
    assert problems(published) == []
    path = published / "units.parquet"
    rows = change(pl.read_parquet(path))
    rewrite(rows, path)
    forge(published)
    assert problems(published) == [problem]


def test_a_zero_has_the_sign_of_its_response(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    asked: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": {"change": "-1..1"}}
    rows = table().with_columns(change=pl.col("clicks") - 1)
    cdp.publish(rows, out=folder, mechanism=cdp.optimal(epsilon=2), **asked)
    assert problems(folder) == []
    held = pl.read_parquet(folder / "units.parquet")
    numbers = held["change_debiased"].to_numpy()
    moved = np.where((numbers == 0) & (np.arange(len(held)) % 2 == 0), -numbers, numbers)
    assert not np.array_equal(np.signbit(moved), np.signbit(numbers))
    changed = held.with_columns(change_debiased=pl.Series(moved))
    rewrite(changed, folder / "units.parquet")
    forge(folder)
    assert problems(folder) == ["debiased columns match responses"]


@pytest.mark.parametrize(
    "hidden",
    [pl.lit(["x"]), pl.lit(b"x"), pl.struct(x=pl.lit("x"))],
    ids=["a list", "bytes", "a struct"],
)
def test_a_kept_column_is_of_a_type_that_is_kept(hidden: pl.Expr, published: Path) -> None:
    path = published / "units.parquet"
    held = pl.read_parquet(path).with_columns(hidden.alias("secret"))
    held.write_parquet(path, statistics=False)
    forge(published)
    assert problems(published) == ["manifest, checksums and schema"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("README.md", "the README"), ("index.html", "index.html")],
)
@pytest.mark.parametrize("software", [software_name(), "clusterdp 9.9.9"])
def test_another_text_for_people(name: str, problem: str, software: str, published: Path) -> None:
    """Also where another version is said to have written it."""
    forge(published, lambda content: content.update(software=software))
    path = published / name
    path.write_text(path.read_text().replace("ε = 2", "ε = 0.001"))
    manifest = unseal((published / "manifest.json").read_bytes())
    files = {**manifest.files, name: FileSum.from_file(path)}
    if name != "index.html":
        page = edited_card((published / "index.html").read_text(), manifest.files, files)
        (published / "index.html").write_text(page)
        files["index.html"] = FileSum.from_file(published / "index.html")
    (published / "manifest.json").write_bytes(manifest.sealed(files))
    assert problems(published) == [f"{problem} matches the manifest"]


@pytest.mark.parametrize("software", ["epsilon 0.5", "clusterdp 9.9", "clusterdp 1.2.3\n", ""])
def test_software_is_a_name_and_a_version(software: str, published: Path) -> None:
    forge(published, lambda content: content.update(software=software))
    assert problems(published) == ["manifest, checksums and schema"]


@pytest.mark.parametrize(
    ("parent", "key"), [((), "notes"), (("guarantee",), "in_words"), (("questions", 0), "remark")]
)
def test_a_manifest_has_no_room_for_free_text(
    parent: tuple[str | int, ...], key: str, published: Path
) -> None:
    def change(content: Any) -> None:
        for one in parent:
            content = content[one]
        content[key] = "epsilon = 0.5"

    forge(published, change)
    assert problems(published) == ["manifest, checksums and schema"]


def table() -> pl.DataFrame:
    number = pl.int_range(240)
    return pl.select(
        user=number,
        treated=number % 2,
        market=pl.format("m{}", number // 2 % 3),
        tier=pl.format("t{}", number // 6 % 2),
        clicks=number // 2 % 3,
        rounds=number.hash(1) % 6,
    )


CLICKS = {"clicks": "0..2"}
# Every part of a folder is in one of these.
KINDS: dict[str, dict[str, Any]] = {
    "counts": {
        "outcomes": CLICKS,
        "mechanism": cdp.optimal(epsilon=4, noise_scale=4),
        "passthrough": ["tier"],
    },
    "redrawn": {
        "outcomes": CLICKS,
        "mechanism": cdp.cluster_dp(noise_scale=5, prior_floor=0.05, epsilon=2),
        "aggregate": ["clicks=max"],
        "min_cell_size": 39,
    },
    "pilot": {
        "outcomes": {"rounds": "number:0..100000"},
        "mechanism": cdp.optimal(
            epsilon=3, pilot=0.2, sums=cdp.SumShares(totals=0.1, breakdowns=((("tier",), 0.1),))
        ),
        "breakdown": ["tier"],
    },
    "private": {
        "outcomes": CLICKS,
        "mechanism": cdp.optimal(epsilon=1.5),
        "private_cluster": 0.5,
        "labels": ["m0", "m1", "m2"],
    },
}
# What nothing else shows, as `verify` and docs/reference/folder.md say.
OWNERS = {"software", "control", "pooling", "aggregates", "clip", "provenance"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    rows = table()
    few = rows.head(4).with_columns(user=pl.int_range(4) + 900, market=pl.lit("x"))
    fewer = rows.head(4).with_columns(user=pl.int_range(4) + 800, market=pl.lit("y"))
    found = {}
    for kind, asked in KINDS.items():
        held = rows if kind != "redrawn" else pl.concat([rows, few, fewer])
        found[kind] = tmp_path_factory.mktemp(kind) / "out"
        about: dict[str, Any] = {
            "unit": "user",
            "arm": "treated",
            "cluster": "market",
            "title": "Clicks",
        }
        cdp.publish(held, out=found[kind], **about, **asked)
        assert problems(found[kind]) == []
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_and_number_of_a_manifest_is_derived_again(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Even if both pages are written anew; what only the owner knows is named in the verdict."""
    content = json.loads((folders[kind] / "manifest.json").read_bytes())
    accepted = set()
    for number, place in enumerate(leaves(content)):
        repeats = any(isinstance(key, int) and key > 1 for key in place)
        if repeats or place[0] in ("files", "sha256"):  # these two are written anew
            continue
        copy = tmp_path / str(number)
        shutil.copytree(folders[kind], copy)
        forge(copy, lambda held, place=place: put_other(held, place))  # type: ignore[misc]  # bound
        if problems(copy):
            continue
        said = owners_words(unseal((copy / "manifest.json").read_bytes()))
        top = str(place[0])
        if place[-2:] == ("mechanism", "name"):
            assert "the name of the mechanism" in said
        elif place[-1] != "noise_in_rows":  # nothing follows from it but weights, which agree
            accepted.add(top)
            assert top in said or str(place[1]) in said
    assert accepted <= OWNERS


BEFORE_PILOT: dict[str, Callable[[dict[str, Any]], object]] = {
    "a prior of no categories": lambda one: one.update(prior=[0.5, 0.5]),
    "a prior below zero": lambda one: one.update(prior=[-5.0, 1e300]),
    "other grids": lambda one: one["outcomes"]["grids"].update(rounds=[0.0]),
    "another name": lambda one: one["outcomes"]["declared"]["outcomes"][0].update(name=" rounds"),
}


@pytest.mark.parametrize("change", BEFORE_PILOT.values(), ids=BEFORE_PILOT)
def test_what_was_declared_before_a_pilot_is_of_its_outcomes(
    change: Callable[[dict[str, Any]], object], folders: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folders["pilot"], copy)
    forge(copy, lambda held: change(held["before_pilot"][0]))
    assert problems(copy)
    assert "what was declared before the pilot" in said_of(folders["pilot"])


def test_the_name_of_a_mechanism_is_no_place_for_sentences(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folders["counts"], copy)
    said = "Optimal, epsilon 0.1: certified"
    forge(copy, lambda held: held["questions"][0]["mechanism"].update(name=said))
    assert problems(copy)
    with pytest.raises(cdp.ParameterError, match="letters, spaces and hyphens"):
        cdp.Mechanism(name=said, rows=cdp.optimal(epsilon=1).rows)


def said_of(folder: Path) -> set[str]:
    assert problems(folder) == []
    return set(owners_words(unseal((folder / "manifest.json").read_bytes())))


def test_what_nothing_can_check_is_named(
    folders: dict[str, Path], published: Path, tmp_path: Path
) -> None:
    noise = "that noise in statistics was drawn as stated"
    always = {"names, labels and values of outcomes", "which columns are private"}
    for folder in folders.values():
        assert said_of(folder) >= {*always, "that responses were drawn as stated"}
    assert noise in said_of(folders["counts"]) & said_of(folders["pilot"])
    assert noise not in said_of(folders["private"])
    assert "values of passthrough columns" in said_of(folders["counts"])

    def as_if_public(content: dict[str, Any]) -> None:
        content["labels"] = None
        content["guarantee"]["epsilon"] = content["questions"][0]["epsilon"]
        content["guarantee"]["neighbours"] = "replace-one-outcome"

    copy = tmp_path / "public"
    shutil.copytree(folders["private"], copy)
    forge(copy, as_if_public)
    assert "which columns are private" in said_of(copy)
    without_rows = tmp_path / "no rows"
    asked: dict[str, Any] = {"unit": "user", "arm": "treated", "outcomes": CLICKS}
    noisy = cdp.noisy_histogram(noise_scale=4)
    cdp.publish(table(), out=without_rows, mechanism=noisy, **asked)
    assert said_of(without_rows) >= {"numbers of units", noise}
    assert "numbers of units" not in said_of(published)


def test_a_file_holds_columns_and_nothing_else(folders: dict[str, Path], tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def mark_field(path: Path) -> None:
        rows = pl.read_parquet(path)
        schema = rows.head(0).to_arrow().schema
        marked = schema.set(0, schema.field(0).with_metadata({"said": "1"}))
        pl.DataFrame(rows).write_parquet(path, statistics=False, arrow_schema=marked)

    def mark_footer(path: Path) -> None:
        pl.read_parquet(path).write_parquet(path, statistics=False, metadata={"said": "1"})

    def other_writer(path: Path) -> None:
        held: pa.Table = pq.read_table(path)
        pq.write_table(held, path, write_statistics=False)

    def add_column(path: Path) -> None:
        rows = pl.read_parquet(path)
        rows.with_columns(epsilon=pl.lit(0.5)).write_parquet(path, statistics=False)

    def add_statistics(path: Path) -> None:
        pl.read_parquet(path).write_parquet(path, statistics=True)

    names = [path.name for path in folders["pilot"].glob("*.parquet")]
    assert len(names) == 5
    forged = [*itertools.product(names, (mark_footer, add_column))]
    forged += [("cells.parquet", one) for one in (mark_field, other_writer, add_statistics)]
    for number, (name, change) in enumerate(forged):
        copy = tmp_path / str(number)
        shutil.copytree(folders["pilot"], copy)
        change(copy / name)
        forge(copy)
        assert problems(copy), (name, change.__name__)
    copy = tmp_path / "as it was"
    shutil.copytree(folders["pilot"], copy)
    for name in names:
        rewrite(pl.read_parquet(copy / name), copy / name)
    forge(copy)
    assert problems(copy) == []


@pytest.mark.parametrize(
    ("inside", "behind"),
    [
        (b"", b"epsilon is 0.01"),
        (b"\x06\xc8\x01\x02", b""),
        (b"\x08\x0c\x06Polars", b""),
        (b"\x06\x12" + b"\xff" * 2_000_000 + b"\x01", b""),
    ],
    ids=["behind its end", "a field of no name", "a field twice", "a number without end"],
)
def test_a_footer_holds_what_parquet_defines(inside: bytes, behind: bytes, published: Path) -> None:
    path = published / "units.parquet"
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    rows, footer = content[: -8 - length], content[-8 - length : -8]
    changed = footer[:-1] + inside + footer[-1:] + behind
    path.write_bytes(rows + changed + len(changed).to_bytes(4, "little") + b"PAR1")
    manifest = unseal((published / "manifest.json").read_bytes())
    files = {**manifest.files, "units.parquet": FileSum.from_file(path)}
    (published / "manifest.json").write_bytes(manifest.sealed(files))
    held = ParquetBytes.in_folder(open_folder(published), "units.parquet")
    found = held.unexplained(pl.read_parquet_schema(io.BytesIO(content)))
    assert found == "units.parquet has metadata that cannot be read"
    assert problems(published)


def test_every_channel_is_explained(folders: dict[str, Path], tmp_path: Path) -> None:
    def one_more(folder: Path) -> None:
        channels = pl.read_parquet(folder / "channels.parquet")
        last = channels.filter(pl.col("channel") == pl.col("channel").max())
        more = last.with_columns(pl.col("channel") + 1)
        rewrite(pl.concat([channels, more]), folder / "channels.parquet")

    def another(folder: Path) -> None:
        cells = pl.read_parquet(folder / "cells.parquet")
        n_channels = cells["channel"].n_unique()
        assert n_channels > 1  # markets differ in all of their clicks
        moved = cells.with_columns((pl.col("channel") + 1) % n_channels)
        rewrite(moved, folder / "cells.parquet")

    for kind, change in (("counts", one_more), ("pilot", one_more), ("counts", another)):
        copy = tmp_path / f"{kind} {change.__name__}"
        shutil.copytree(folders[kind], copy)
        change(copy)
        forge(copy)
        found = problems(copy)
        assert "randomizers match the published numbers" in found
