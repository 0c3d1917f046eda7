"""A release in an object store is read as one on a disk, with its checksums."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import clusterdp as cdp
from cli_runs import assert_refused, release, run
from clusterdp.published.verification import verify_folder
from clusterdp.storage import store
from soak import s3
from store_releases import as_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

pytestmark = pytest.mark.store


@pytest.fixture
def uploaded(published: Path, bucket: s3.Bucket) -> str:
    """A release from a disk, as anyone may copy it to a store."""
    for path in published.iterdir():
        bucket.put(f"copies/published/{path.name}", path.read_bytes())
    return f"{bucket.uri}/copies/published"


def test_estimates_are_the_same(published: Path, uploaded: str) -> None:
    assert str(cdp.estimate(uploaded, by="market")) == str(cdp.estimate(published, by="market"))
    ours, theirs = cdp.read_release(published), cdp.read_release(uploaded)
    assert theirs.units.collect().equals(ours.units.collect())
    assert theirs.cells.equals(ours.cells)
    assert theirs.guarantee == ours.guarantee


@pytest.mark.parametrize("command", ["estimate", "inspect", "verify"])
def test_commands_say_the_same(command: str, published: Path, uploaded: str) -> None:
    ours, theirs = (run(command, place) for place in (published, uploaded))
    assert theirs.exit_code == 0, theirs.output
    assert theirs.stdout == ours.stdout.replace(str(published), uploaded)


def test_rows_are_calibrated_from_a_store(published: Path, uploaded: str, tmp_path: Path) -> None:
    for number, place in enumerate((published, uploaded)):
        assert run("calibrate", place, "--out", tmp_path / f"{number}.csv").exit_code == 0
    assert (tmp_path / "0.csv").read_bytes() == (tmp_path / "1.csv").read_bytes()


def test_a_page_names_the_folder_alone(uploaded: str, tmp_path: Path) -> None:
    assert run("estimate", uploaded, "--html", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "clusterdp estimate published" in page
    assert "s3://" not in page


def test_what_was_changed_in_a_store_is_refused(uploaded: str, bucket: s3.Bucket) -> None:
    cells, place = bucket.read("copies/published")["cells.parquet"], "copies/published"
    damages: dict[str, Callable[[], object]] = {
        "was changed since it was published": lambda: bucket.put(
            f"{place}/cells.parquet", cells[:-1] + b"?"
        ),
        "is truncated or has grown": lambda: bucket.put(f"{place}/cells.parquet", cells[:-1]),
        "lacks cells.parquet": lambda: bucket.remove(f"{place}/cells.parquet"),
        "it has no manifest.json": lambda: bucket.remove(f"{place}/manifest.json"),
    }
    for message, damage in damages.items():
        damage()
        with pytest.raises(cdp.FormatError, match=message):
            cdp.read_release(uploaded)
        assert_refused(run("estimate", uploaded), message)


def test_something_else_in_the_folder_is_found(uploaded: str, bucket: s3.Bucket) -> None:
    assert not [one for one in verify_folder(uploaded) if one.problem]
    bucket.put("copies/published/more/notes.txt", b"")
    problems = [one.problem for one in verify_folder(uploaded) if one.problem]
    assert problems == ["more/notes.txt is not part of the release"]


def test_errata_are_added_in_a_store(uploaded: str, bucket: s3.Bucket) -> None:
    for text in ("one unit was counted twice", "and another one"):
        assert run("errata", uploaded, text).exit_code == 0
    told = bucket.read("copies/published")["errata.md"].decode()
    assert told.count("no checksum covers them") == 1
    assert "one unit was counted twice" in told
    assert "and another one" in run("inspect", uploaded).stdout
    assert not [one for one in verify_folder(uploaded) if one.problem]


def test_what_is_not_there_is_said(bucket: s3.Bucket, source: Path) -> None:
    nowhere = f"{bucket.uri}-none/published"
    assert_refused(run("estimate", f"{bucket.uri}/none"), "there is no folder s3://")
    assert_refused(run("estimate", nowhere), f"there is no bucket '{bucket.name}-none'; make it")
    assert_refused(release(source, nowhere), f"there is no bucket '{bucket.name}-none'; make it")
    assert_refused(release(f"{nowhere}/t.csv", nowhere), "there is no bucket")
    assert_refused(release(f"{bucket.uri}/t.csv", "out"), f"there is no file {bucket.uri}/t.csv")
    assert_refused(release(source, "s3://"), "s3:// names no bucket; write s3://bucket/folder")


def test_no_credentials(
    uploaded: str, bucket: s3.Bucket, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    needed = "needs credentials, and none were found: set AWS_ACCESS_KEY_ID"
    assert_refused(run("estimate", f"{bucket.uri}/published"), needed)
    assert_refused(release(source, f"{bucket.uri}/out"), needed)
    assert_refused(release(f"{bucket.uri}/t.parquet", "out"), needed)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert_refused(run("estimate", uploaded), "cannot be accessed with these credentials")
    bucket.open_to_all()
    assert cdp.read_release(uploaded).units.collect().height == 600


def test_credentials_of_a_profile(
    bucket: s3.Bucket, uploaded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Amazon's own tools find them: in their files, with the address of the server."""
    lines = ["[profile analyst]", "region = eu-west-1", f"endpoint_url = {bucket.endpoint}"]
    keys = ["aws_access_key_id = analyst", f"aws_secret_access_key = {s3.SECRET}"]
    (tmp_path / "config").write_text("\n".join([*lines, *keys]))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "analyst")
    assert cdp.read_release(uploaded).units.collect().height == 600
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert_refused(run("estimate", uploaded), "settings of AWS that cannot be used")


def test_nothing_says_a_secret(
    bucket: s3.Bucket, store_server: s3.Server, table: pl.DataFrame, source: Path
) -> None:
    """The server repeats the secret in what it answers; and addresses may hold one."""
    refusing = store_server.new_bucket(s3.REFUSING)
    inside = f"s3://owner:{s3.SECRET}@{bucket.name}/out"
    said = [
        release(source, f"{refusing.uri}/out"),
        run("estimate", f"{refusing.uri}/out"),
        release(f"{refusing.uri}/t.parquet", "out"),
        release(source, inside),
        run("verify", inside),
    ]
    for result in said:
        assert result.exit_code != 0
        assert s3.SECRET not in result.output
    assert "cannot be accessed with these credentials" in said[0].stderr
    out = f"{bucket.uri}/out"
    done = release(bucket.put("t.parquet", as_bytes(table)), out)
    assert done.exit_code == 0
    assert s3.SECRET not in done.output
    published = bucket.read("out")
    assert not any(s3.SECRET.encode() in content for content in published.values())


def test_only_this_machine_is_reached_without_encryption(
    source: Path, monkeypatch: pytest.MonkeyPatch, bucket: s3.Bucket
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://stores.example")
    assert_refused(release(source, "s3://bucket/out"), "would be reached without encryption")


def test_a_server_that_does_not_answer(
    bucket: s3.Bucket, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(store._RETRIES, "max_retries", 0)  # noqa: SLF001 - not to wait
    assert_refused(
        release(source, "s3://bucket/out"), "cannot be reached (GenericError); try again"
    )


@pytest.mark.parametrize("package", ["obstore", "botocore"])
def test_packages_that_are_missing_are_named(
    package: str, source: Path, bucket: s3.Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    needed = "needs more packages: pip install '.[stores]'"
    assert_refused(release(source, "s3://bucket/out"), f"s3://bucket/out {needed}")
    assert_refused(release("s3://bucket/t.csv", "out"), needed)
    assert_refused(run("estimate", "s3://bucket/out"), needed)
