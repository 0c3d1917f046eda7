"""Outcomes that are text: each is missing, a number, or refused by a kind of a fixed list."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clusterdp as cdp
from clusterdp.rows.column_types import (
    NO_NUMBER,
    PLAIN,
    TEXT_KINDS,
    Notation,
    count_text_kinds,
    text_to_number,
)

if TYPE_CHECKING:
    from pathlib import Path

GERMAN = Notation(decimal=",", thousands=".")
FRENCH = Notation(decimal=",", thousands=" ")
AMERICAN = Notation(thousands=",")
SWISS = Notation(thousands="'")


def read(texts: list[str | None], notation: Notation = PLAIN) -> list[float | None]:
    frame = pl.DataFrame({"y": texts}, schema={"y": pl.String})
    return frame.select(text_to_number(pl.col("y"), notation))["y"].to_list()


def shape(text: str, notation: Notation = PLAIN) -> str | None:
    """What a text is called; None if nothing is wrong with it."""
    frame = pl.DataFrame({"y": [text, "7"]}).select(count_text_kinds(["y"], notation))
    counts = frame["y"][0].to_list()
    assert sum(counts) <= 1
    return TEXT_KINDS[counts.index(1)].named if sum(counts) else None


def test_missing_is_a_short_list_of_words() -> None:
    words = ["", "  ", "NA", "na", "N/A", "NaN", "null", "NULL", "None", " nan\t", None]
    for notation in (PLAIN, GERMAN):
        assert read(words, notation) == [None] * len(words)


@pytest.mark.parametrize("text", ["-", ".", "?", "#N/A", "missing", "1_000", "1d", "0x1p3", "١"])
def test_any_other_word_is_no_number_and_not_missing(text: str) -> None:
    for notation in (PLAIN, GERMAN, AMERICAN):
        assert read([text], notation) == [NO_NUMBER]


@pytest.mark.parametrize("text", ["inf", "-inf", "Infinity", "1e999"])
def test_infinity_is_no_number(text: str) -> None:
    for notation in (PLAIN, AMERICAN):
        assert read([text], notation) == [NO_NUMBER]


@pytest.mark.parametrize(
    ("notation", "texts"),
    [
        (PLAIN, {"51.55": 51.55, " +7 ": 7, "-.5": -0.5, "1e3": 1000, "True": 1, "FALSE": 0}),
        (GERMAN, {"51,55": 51.55, "1.234,5": 1234.5, "1.234.567": 1234567, "1234,5": 1234.5}),
        (FRENCH, {"1 234,5": 1234.5, "1\u202f234\u00a0567": 1234567, " 7 ": 7}),
        (AMERICAN, {"1,234.5": 1234.5, "-1,234,567": -1234567, "12.25": 12.25}),
        (SWISS, {"1'234.5": 1234.5, "1\u2019234": 1234}),
    ],
)
def test_numbers_are_read_as_declared(notation: Notation, texts: dict[str, float]) -> None:
    assert read(list(texts), notation) == list(texts.values())


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        (GERMAN, "51.55"),
        (GERMAN, "1.23,5"),
        (GERMAN, "1,234.5"),
        (AMERICAN, "51,55"),
        (AMERICAN, "1,2345"),
        (AMERICAN, ",234"),
        (FRENCH, "1 23"),
        (Notation(decimal=","), "51.55"),
    ],
)
def test_a_separator_in_another_place_is_no_slip(notation: Notation, text: str) -> None:
    assert read([text], notation) == [NO_NUMBER]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_is_read_back(number: float) -> None:
    text = pl.Series([number]).cast(pl.String)[0]
    assert read([text]) == [number]
    assert read([text.replace(".", ",")], GERMAN) == [number]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("51,55", "decimal commas"),
        ("1.234,56", "points between thousands"),
        ("1.234.567", "points between thousands"),
        ("1,234", "commas before three digits"),
        ("1,234.56", "commas between thousands"),
        ("1,234,567", "commas between thousands"),
        ("1\u202f234,56", "spaces between thousands"),
        ("1'234", "apostrophes between thousands"),
        ("5%", "percent signs"),
        ("$51.55", "a currency sign or a unit"),
        ("51,55 \u20ac", "a currency sign or a unit"),
        ("EUR 51.55", "a currency sign or a unit"),
        ("7 kg", "a currency sign or a unit"),
        ("unknown", "values that are not numbers"),
    ],
)
def test_the_kind_of_trouble_is_named(text: str, named: str) -> None:
    found = shape(text)
    assert found is not None
    assert found.startswith(named)


COMMAS = Notation(decimal=",")
WRITTEN = (
    *("51,55", "51.55", "1,234.5", "1,234,567", "1.234,5", "1.234.567"),
    *("1 234", "1 234,5", "1 234.5", "1'234", "1'234,5", "1'234.5"),
)


@pytest.mark.parametrize("notation", [PLAIN, COMMAS, GERMAN, FRENCH, AMERICAN, SWISS])
@pytest.mark.parametrize("text", WRITTEN)
def test_advice_leads_to_a_number(text: str, notation: Notation) -> None:
    """Whatever was declared before: one step is enough."""
    frame = pl.DataFrame({"y": [text]}).select(count_text_kinds(["y"], notation))
    for kind, n_rows in zip(TEXT_KINDS, frame["y"][0], strict=True):
        if n_rows:
            declared, _, dropped = kind.advice("y", notation).partition("leave out ")
            options: dict[str, Any] = {"decimal": notation.decimal, "thousands": notation.thousands}
            options |= {name: getattr(PLAIN, name) for name in options if name in dropped}
            options |= dict(re.findall(r"(\w+)=['\"](.)['\"]", declared))
            assert read([text], Notation(**options)) != [NO_NUMBER]


def test_advice_does_not_repeat_what_was_declared() -> None:
    texts = frame_of(["1,234.56", "12.50"] * 50)
    asked = {**ASKED, "outcomes": {"amount": "number:0..2000"}}
    with pytest.raises(cdp.DataError) as refused:
        cdp.release(texts, decimal=",", **asked)
    assert str(refused.value).endswith(
        "has commas between thousands, as in 1,000.5; declare them: thousands=',' "
        "(--thousands ,); leave out decimal=',' (--decimal ,)"
    )
    assert cdp.release(texts, thousands=",", **asked) is not None


def test_decimal_points_are_named_where_commas_were_declared() -> None:
    assert str(shape("51.55", Notation(decimal=","))).startswith("decimal points")


def test_what_is_declared_is_no_trouble() -> None:
    assert [shape(text, GERMAN) for text in ("51,55", "1.234,5", "NA", "")] == [None] * 4
    assert shape("7") is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"decimal": ";"}, "decimal"),
        ({"thousands": "-"}, "thousands"),
        ({"thousands": "."}, "decimal and thousands are both"),
    ],
)
def test_separators_are_few(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(cdp.ParameterError, match=message):
        Notation(**asked)


def frame_of(texts: list[str]) -> pl.DataFrame:
    n_units = len(texts)
    return pl.DataFrame(
        {"user": range(n_units), "treated": [0, 1] * (n_units // 2), "amount": texts}
    )


ASKED: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "outcomes": {"amount": "number:0..100"},
    "epsilon": 2,
    "missing": ["amount"],
}


def test_text_is_never_taken_for_missing() -> None:
    texts = frame_of(["51,55", "12,5"] * 50)
    with pytest.raises(cdp.DataError, match=r"'amount'.*decimal commas") as refused:
        cdp.release(texts, **ASKED)
    assert "51,55" not in str(refused.value)
    assert "100" not in str(refused.value)
    with pytest.raises(cdp.DataError, match="decimal commas, as in 0,5 in 100 rows"):
        cdp.release(texts, show_row_counts=True, **ASKED)


def test_text_is_clipped_into_no_space() -> None:
    texts = frame_of(["7", "12 EUR"] * 50)
    asked = {**ASKED, "outcomes": {"amount": "0..20"}, "clip": True, "missing": None}
    with pytest.raises(cdp.DataError, match="a currency sign or a unit"):
        cdp.release(texts, **asked)


@pytest.mark.parametrize("rule", ["sum", "mean", "max", "any"])
def test_text_stays_no_number_when_rows_are_added_up(rule: str) -> None:
    events = pl.concat([frame_of(["7"] * 100), frame_of(["1,5"] + ["7"] * 99)])
    with pytest.raises(cdp.DataError, match="decimal commas"):
        cdp.release(events, aggregate=rule, **ASKED)


def test_declared_separators_are_used() -> None:
    """Every outcome is 40, so that the mean of the release can be told from all else."""
    texts = frame_of(["40,00", "0.040,0"] * 1000)
    asked = {**ASKED, "epsilon": 50, "missing": None}
    made = cdp.release(texts, decimal=",", thousands=".", **asked)
    (arm,) = cdp.estimate(made).effects
    assert arm.control_mean == pytest.approx(40, rel=0.1)


def test_words_that_mean_missing_do_so_among_labels() -> None:
    texts = frame_of(["yes", "no", "NA", ""] * 50)
    asked = {**ASKED, "outcomes": {"amount": "no,yes"}}
    assert cdp.release(texts, **asked) is not None
    with pytest.raises(cdp.DataError, match="missing values"):
        cdp.release(texts, **{**asked, "missing": None})
    # A word that is declared as a label is one.
    told = frame_of(["none", "some"] * 50)
    declared = {"amount": "none,some"}
    assert cdp.release(told, **{**ASKED, "outcomes": declared, "missing": None}) is not None


@pytest.mark.parametrize(
    ("texts", "noticed"),
    [
        (["561", "1.234", "12.071"] * 10, True),
        (["0.561", "1.234", "12.071"] * 10, False),  # no thousand begins with a zero
        (["561", "1.23", "12.071"] * 10, False),
        (["1561", "1.234", "12.071"] * 10, False),  # written without points elsewhere
        (["1.000", "1.234", "12.071"] * 10, False),  # all have three decimals
        (["561", "1.234"], False),  # may be chance
    ],
)
def test_points_that_may_separate_thousands_are_noticed(
    texts: list[str], *, noticed: bool, tmp_path: Path
) -> None:
    """They are read as decimals, so that the owner would lose most of the revenue."""
    units = pl.DataFrame({"user": range(len(texts)), "arm": [0, 1] * (len(texts) // 2)})
    units.with_columns(spend=pl.Series(texts)).write_csv(tmp_path / "shop.csv")
    asked: dict[str, Any] = {"unit": "user", "arm": "arm", "outcomes": {"spend": "number:0..20000"}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cdp.publish(tmp_path / "shop.csv", out=tmp_path / "out", epsilon=2, **asked)
    found = [one for one in caught if "look like those between thousands" in str(one.message)]
    assert bool(found) == noticed
