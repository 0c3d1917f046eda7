"""Files of a folder that never begin, never end, or are far too large: refused at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release_declared, run
from clusterdp.errors import FormatError
from clusterdp.published._parquet_bytes import ParquetBytes
from clusterdp.published.verification import verify_folder
from clusterdp.storage.folder import MOST_OF_MANIFEST, MOST_OF_TEXT, LocalFolder, read_regular
from clusterdp.storage.reading import open_folder
from forging import forge, rewrite, seal

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Whatever takes longer waits for something.
_SECONDS = 20


@contextmanager
def at_once() -> Iterator[None]:
    """Fail a test that waits, however it does."""

    def stop(*_: Any) -> None:
        raise AssertionError("it waited for a file")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_pipe(path: Path) -> None:
    elsewhere = path.parent.parent / f"pipe for {path.name}"
    os.mkfifo(elsewhere)
    path.symlink_to(elsewhere)


def giant(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # it takes no room on the disk


KINDS = (pipe, link_to_device, link_to_pipe, giant)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    number = pl.int_range(80)
    rows = pl.select(user=number, treated=number % 2, market=number // 2 % 2, clicks=number % 3)
    folder = tmp_path_factory.mktemp("sound") / "out"
    parts: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market"}
    cdp.publish(rows, out=folder, outcomes={"clicks": "0..2"}, epsilon=2, **parts)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "out")
    return tmp_path / "out"


FILES = ("manifest.json", "README.md", "index.html", "cells.parquet", "units.parquet")


@pytest.mark.parametrize("name", [*FILES, "channels.parquet"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_no_file_is_refused_at_once(
    kind: Callable[[Path], None], name: str, folder: Path, tmp_path: Path
) -> None:
    (folder / name).unlink()
    kind(folder / name)
    with at_once():
        for command in ("inspect", "verify", "estimate"):
            assert run(command, folder).exit_code == 2
        assert run("calibrate", folder, "--out", tmp_path / "rows.csv").exit_code == 2
        if name == "manifest.json":
            assert LocalFolder(folder).manifest() is None
            with pytest.raises(FormatError, match=r"cannot read .*manifest\.json: it is"):
                cdp.read_release(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_errata_that_are_no_file_are_not_read(kind: Callable[[Path], None], folder: Path) -> None:
    kind(folder / "errata.md")
    with at_once():
        assert run("estimate", folder).exit_code == 0
        found = [check.problem for check in verify_folder(folder) if check.problem]
    assert found == ([] if kind is giant else ["errata.md is not part of the release"])


def test_a_table_or_a_page_of_any_size_is_not_read(folder: Path) -> None:
    """Also if the manifest states that size."""

    giant(folder / "cells.parquet")
    content = json.loads((folder / "manifest.json").read_bytes())
    content["files"]["cells.parquet"]["bytes"] = 2**40
    seal(folder, content)
    with at_once():
        assert_refused(run("estimate", folder), "states more than 4,294,967,296 bytes of cells")


def of_many_rows(path: Path) -> None:
    held = pl.read_parquet(path)
    numbers = [name for name, kind in held.schema.items() if kind.is_integer()]
    n_rows = 20_000_000  # a file of some kilobytes
    many = pl.select(pl.repeat(0, n_rows, dtype=held.schema[name]).alias(name) for name in numbers)
    many.write_parquet(path, statistics=False)


@pytest.mark.parametrize("name", ["cells.parquet", "channels.parquet"])
def test_a_small_file_of_many_rows_is_not_unpacked(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_many_rows(folder / name)
    assert (folder / name).stat().st_size < 2**20
    forge(folder)
    whole, read = pl.read_parquet, []

    def noted(file: io.BytesIO) -> pl.DataFrame:
        read.append(file)
        return whole(file)

    monkeypatch.setattr(pl, "read_parquet", noted)
    with pytest.raises(FormatError, match=f"{name} has more rows or values"):
        cdp.read_release(folder)
    assert len(read) == (name != "cells.parquet")  # cells come first, and are sound then


def of_long_texts(path: Path) -> None:
    held = pl.read_parquet(path)
    texts = [str(place % 10) * 2**22 for place in range(8)]
    long = pl.concat([pl.Series("market", texts), held["market"][8:]])[: len(held)]
    rewrite(held.with_columns(long), path)


@pytest.fixture
def of_texts(table: pl.DataFrame, tmp_path: Path) -> Path:
    markets = pl.format("market {}", "market")
    parts: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market"}
    parts |= {"outcomes": {"clicks": "0..3"}, "epsilon": 2}
    cdp.publish(table.with_columns(market=markets), out=tmp_path / "texts", **parts)
    return tmp_path / "texts"


def test_a_small_file_of_long_texts_is_not_unpacked(of_texts: Path) -> None:
    folder = of_texts
    of_long_texts(folder / "cells.parquet")
    assert (folder / "cells.parquet").stat().st_size < 2**20
    forge(folder)
    with pytest.raises(FormatError, match=r"cells\.parquet has longer values"):
        cdp.read_release(folder)


def test_rows_of_long_texts_are_not_read(of_texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = of_texts
    of_long_texts(folder / "units.parquet")
    forge(folder)

    def read(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("clusterdp.published.verification.Verifier.readable", read)
    found = [check.problem for check in verify_folder(folder) if check.problem]
    assert found == ["units.parquet has longer values than a release can have"]


def test_values_are_counted_in_lists(folder: Path) -> None:
    lists = pl.DataFrame({"a": [[1, 2, 3], [4]], "b": [1, 2]})
    lists.write_parquet(folder / "lists.parquet", row_group_size=1)
    held = (folder / "lists.parquet").read_bytes()
    n_rows, n_values, _ = ParquetBytes.in_memory("lists.parquet", held).table_size()
    assert (n_rows, n_values) == (2, 4 + 2)
    for content in (b"", b"PAR1", b"\xff" * 100 + b"PAR1"):
        with pytest.raises(FormatError, match=r"lists\.parquet is not a Parquet file"):
            ParquetBytes.in_memory("lists.parquet", content).table_size()


@pytest.mark.parametrize(
    "spent",
    [
        {"epsilon": -5.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 7.0},
        {"epsilon": 1.0, "delta": -0.5},
    ],
)
def test_nobody_spent_less_than_nothing(spent: dict[str, float], folder: Path) -> None:
    forge(folder, lambda content: content["provenance"].update(spent_before=spent))
    assert_refused(run("inspect", folder), "spent_before must have a finite epsilon")
    assert [one.name for one in verify_folder(folder)] == ["manifest, checksums and schema"]


@pytest.mark.parametrize("name", ["epsilon is 0.01", "units", "errata.md"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_folder_in_the_folder_is_noticed(
    name: str, linked: bool, folder: Path, tmp_path: Path
) -> None:
    if linked:
        (tmp_path / "elsewhere").mkdir()
        (folder / name).symlink_to(tmp_path / "elsewhere")
    else:
        (folder / name).mkdir()
    found = [check.problem for check in verify_folder(folder) if check.problem]
    assert found == [f"{name} is not part of the release"]


@pytest.mark.parametrize("name", ["index.html", "part-00001.parquet", "part-00000.parquet"])
def test_files_of_rows_are_numbered(name: str, folder: Path) -> None:
    (folder / "units").mkdir()
    (folder / "units.parquet").rename(folder / "units" / name)

    def rename(content: dict[str, Any]) -> None:
        files = content["files"]
        files[f"units/{name}"] = files.pop("units.parquet")
        content["files"] = {one: files[one] for one in sorted(files)}

    forge(folder, rename)
    found = [check.problem for check in verify_folder(folder) if check.problem]
    refused = ["manifest.json names a file that is not part of a release"]
    assert found == ([] if name == "part-00000.parquet" else refused)
    (folder / "units" / "more").mkdir()
    assert any(check.problem for check in verify_folder(folder))


def test_links_to_files_are_read(folder: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    assert run("estimate", linked).exit_code == 0
    assert LocalFolder(linked).manifest() == (folder / "manifest.json").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_plans_and_lists_of_labels_are_files(kind: Callable[[Path], None], tmp_path: Path) -> None:
    place = tmp_path / "given"
    place.mkdir()
    kind(place / "experiment.toml")
    private: dict[str, Any] = {"private_cluster": 0.5, "labels_from": place / "experiment.toml"}
    with at_once():
        planned = run("plan", place / "experiment.toml")
        assert_refused(planned, "experiment.toml: it is")
        listed = release_declared(tmp_path / "t.parquet", tmp_path / "out", **private)
        assert_refused(listed, "experiment.toml cannot be read")


def test_no_more_is_read_than_may_be(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, 100) == open_folder(tmp_path).read("manifest.json", 100) == b"x" * 100
    with pytest.raises(OSError, match="larger than 99 bytes"):
        read_regular(path, 99)
    with pytest.raises(FormatError, match="larger than 99 bytes"):
        open_folder(tmp_path).read("manifest.json", 99)
    assert open_folder(tmp_path).read("README.md", 99) is None
    assert open_folder(tmp_path).part("manifest.json", 97, 9) == b"xxx"
    assert MOST_OF_TEXT < MOST_OF_MANIFEST
