"""Names and labels that could change a terminal: refused at release, never shown as they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from cli_runs import run
from clusterdp._text import NOT_PLAIN, is_plain, plain_text
from forging import forge, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# It clears the screen, rings, goes back to the start, reverses what follows, hides, ends a line.
HOSTILE = "a\x1b[2J\x9b31m\x07\r\u202eb\u200b\x7f\nforged line"
PARTS: dict[str, Any] = {"unit": "user", "arm": "treated", "cluster": "market"}
PARTS |= {"outcomes": {"clicks": "0,1"}, "mechanism": cdp.optimal(epsilon=2)}


def assert_plain(text: str) -> None:
    refused = {letter for letter in text if letter not in "\n\t" and not is_plain(letter)}
    assert not refused, [f"U+{ord(letter):04X}" for letter in refused]


def keys(content: Any) -> Iterator[str]:
    """Every name and text in JSON."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for one in (*content, *content.values()) if isinstance(content, dict) else content:
            yield from keys(one)


def table() -> pl.DataFrame:
    number = pl.int_range(200)
    return pl.select(
        user=number,
        treated=number % 2,
        market=pl.format("m{}", number // 2 % 3),
        tier=pl.format("t{}", number // 6 % 2),
        clicks=number.hash() % 2,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cdp.publish(table(), out=tmp_path / "out", **PARTS, passthrough=["tier"], title="Clicks")
    return tmp_path / "out"


def change_table(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    rewrite(change(pl.read_parquet(path)), path)


def spoil_market(folder: Path) -> None:
    for name in ("cells.parquet", "units.parquet"):
        change_table(
            folder / name, lambda held: held.with_columns(pl.col("market").replace("m2", HOSTILE))
        )
    forge(folder)


def spoil_tier(folder: Path) -> None:
    change_table(
        folder / "units.parquet",
        lambda held: held.with_columns(pl.col("tier").replace("t1", HOSTILE)),
    )
    forge(folder)


def spoil_ids(folder: Path) -> None:
    change_table(
        folder / "units.parquet",
        lambda held: held.with_columns(user=pl.format("{}" + HOSTILE, "user")).sort("user"),
    )
    forge(folder)


def spoil_name(folder: Path) -> None:
    change_table(folder / "units.parquet", lambda held: held.rename({"tier": HOSTILE}))
    forge(folder, lambda content: content["columns"].update(kept=[HOSTILE]))


def spoil_title(folder: Path) -> None:
    forge(folder, lambda content: content["provenance"].update(title=HOSTILE))


def spoil_outcome(folder: Path) -> None:
    change_table(
        folder / "units.parquet",
        lambda held: held.rename({"clicks_debiased": f"{HOSTILE}_debiased"}),
    )
    forge(folder, lambda content: declared(content)[0].update(name=HOSTILE))


def declared(content: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = content["questions"][0]["outcomes"]["declared"]["outcomes"]
    return found


def spoil_file_name(folder: Path) -> None:
    (folder / HOSTILE).write_text("")


def spoil_errata(folder: Path) -> None:
    (folder / "errata.md").write_text(f"- {HOSTILE}\n")


SPOILED = (
    spoil_market,
    spoil_tier,
    spoil_ids,
    spoil_name,
    spoil_title,
    spoil_outcome,
    spoil_file_name,
    spoil_errata,
)


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_hostile_folder_is_shown_as_plain_text(
    spoil: Callable[[Path], None], folder: Path, tmp_path: Path
) -> None:
    spoil(folder)
    page = tmp_path / "page.html"
    commands: list[tuple[object, ...]] = [
        ("inspect", folder),
        ("inspect", folder, "--json"),
        ("verify", folder),
        ("verify", folder, "--json"),
        ("estimate", folder, "--by", "tier", "--html", page),
        ("estimate", folder, "--json"),
        ("calibrate", folder, "--out", tmp_path / "rows.csv"),
    ]
    for command in commands:
        result = run(*command)
        assert_plain(result.output)
        assert_plain(result.stderr)
        assert not any(line.startswith("forged") for line in result.output.splitlines())
        assert result.exception is None or isinstance(result.exception, SystemExit)
    if page.exists():
        assert_plain(page.read_text())
    if spoil is not spoil_errata:
        assert run("verify", folder).exit_code == 2


def test_a_segment_of_the_analyst_is_shown_as_plain_text(folder: Path, tmp_path: Path) -> None:
    own, page = tmp_path / "own.parquet", tmp_path / "page.html"
    labels = pl.when(pl.col("user") % 3 == 0).then(pl.lit(HOSTILE)).otherwise(pl.lit("b"))
    table().select("user", labels.alias(HOSTILE)).write_parquet(own)
    given = ("--segments", own, "--on", "user", "--by", HOSTILE)
    listing = tmp_path / "effects.csv"
    result = run("estimate", folder, *given, "--html", page, "--csv", listing)
    assert result.exit_code == 0, result.output
    assert "a?[2J" in result.stdout
    assert "a?[2J" in listing.read_text()
    for text in (result.stdout, result.stderr, page.read_text(), listing.read_text()):
        assert_plain(text)
    assert not any(line.startswith("forged") for line in listing.read_text().splitlines())
    listed = run("estimate", folder, *given, "--json")
    assert_plain(listed.stdout)
    # For programs it is as it was.
    assert HOSTILE in {name for one in json.loads(listed.stdout)["effects"] for name in keys(one)}
    found = cdp.estimate(folder, segments=pl.read_parquet(own), by=[HOSTILE])
    for text in (repr(found), found._repr_html_(), repr(found.effects[0])):
        assert_plain(text)


@pytest.mark.parametrize(
    ("column", "part", "more"),
    [
        ("treated", "arm", {}),
        ("market", "cluster", {}),
        ("user", "unit", {}),
        ("tier", "passthrough", {"passthrough": ["tier"]}),
        ("tier", "breakdown", {"breakdown": ["tier"]}),
    ],
)
@pytest.mark.parametrize("hidden", ["\x1b[31m", "\u202e", "\u200b", "\n", "\u3164"])
def test_labels_that_cannot_be_shown_are_refused(
    column: str, part: str, more: dict[str, Any], hidden: str, tmp_path: Path
) -> None:
    texts = pl.col(column).cast(pl.String)
    spoiled = table().with_columns(
        pl.when(pl.int_range(pl.len()) == 6).then(texts + hidden).otherwise(texts).alias(column)
    )
    asked = {**PARTS, **more, "control": "0" if column == "treated" else 0}
    with pytest.raises(cdp.DataError, match=f"column '{column}' \\({part}") as refused:
        cdp.publish(spoiled, out=tmp_path / "out", **asked)
    assert hidden not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_one_rule_says_what_is_plain() -> None:
    above = (0xE0001, 0x1D173, *range(0xE00F0, 0xE0200))
    letters = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x10000), *above)]
    found = pl.Series(letters).str.contains(NOT_PLAIN).to_list()
    assert found == [not is_plain(letter) for letter in letters]
    assert plain_text("a\tb\x1bc", "\t") == "a\tb?c"
    unseen = "\u034f\u115f\u1160\u17b4\u180b\u180f\u2800\u3164\ufe00\uffa0\U000e0100"
    assert plain_text(unseen) == "?" * len(unseen)
    assert plain_text("\u2764\ufe0f") == "\u2764\ufe0f"  # a red heart
    assert plain_text("naïve ‰ ε می\u200cخواهم") == "naïve ‰ ε می\u200cخواهم"
