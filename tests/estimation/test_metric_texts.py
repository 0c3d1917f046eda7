"""What an analyst can ask for, as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.errors import ParameterError
from clusterdp.estimation.metrics.levels import DistributionEstimator
from clusterdp.estimation.metrics.mean import MeanEstimator
from clusterdp.estimation.metrics.parse import parse_metrics
from clusterdp.estimation.metrics.quantiles import QuantileEstimator, quantile_name
from clusterdp.estimation.metrics.ratio import RatioEstimator
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grammar import parse_metric

OUTCOMES = {"rounds": "0..12", "visit": "0,1", "spend": "0..2", "day 7": "0,1", "p90": "0,1"}
SPACES = [Categories(declared=declare({name: values})) for name, values in OUTCOMES.items()]
TOGETHER = Categories(declared=declare({"visit": "0,1", "spend": "0..2"}))


def parse(text: str, *spaces: Categories) -> Any:
    (found,) = parse_metrics(text, spaces or SPACES)
    return found


@pytest.mark.parametrize("text", ["rounds", "rounds>=10", "spend>0"])
def test_means_are_read_and_written(text: str) -> None:
    found = parse(text)
    assert isinstance(found, MeanEstimator)
    assert found.function.name == text
    space = SPACES[found.question]
    assert found.function.values.tolist() == space.values_of(parse_metric(text)).tolist()


def test_products_are_read_and_written() -> None:
    found = parse("visit*(spend>0)", TOGETHER)
    assert isinstance(found, MeanEstimator)
    assert found.function.name == "visit*(spend>0)"


@pytest.mark.parametrize("text", ["spend/visit", "(spend>0)/visit", "visit*spend/visit"])
def test_ratios_are_read_and_written(text: str) -> None:
    found = parse(text, TOGETHER)
    assert isinstance(found, RatioEstimator)
    assert (found.name, found.questions) == (text, (0, 0))
    above, below = text.split("/")
    values = (TOGETHER.values_of(parse_metric(one.strip("()"))) for one in (above, below))
    assert [found.above.values.tolist(), found.below.values.tolist()] == [
        one.tolist() for one in values
    ]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("p90(rounds)", 0.9),
        ("p99.9(rounds)", 0.999),
        ("median(rounds)", 0.5),
        ('p25("day 7")', 0.25),
    ],
)
def test_quantiles_are_read_and_written(text: str, share: float) -> None:
    found = parse(text)
    assert isinstance(found, QuantileEstimator)
    assert (found.name, found.share) == (text, share)
    assert found.levels.outcome in text


def test_distributions_are_read_and_written() -> None:
    found = parse("dist(rounds)")
    assert isinstance(found, DistributionEstimator)
    assert (found.name, found.levels.outcome) == ("dist(rounds)", "rounds")


def test_spaces_and_other_spellings_mean_the_same() -> None:
    assert parse(" p50( rounds ) ").name == "median(rounds)"
    assert parse("p90.0(rounds)").name == "p90(rounds)"
    assert parse("spend / visit").name == "spend/visit"
    assert isinstance(parse("p90"), MeanEstimator)  # an outcome may have this name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rounds/",
        "/visit",
        "a/b/c",
        "p90()",
        "p90(rounds>=1)",
        "q90(rounds)",
        "dist(rounds)/visit",
        "median(a)*b",
        "p(rounds)",
        "p-5(rounds)",
    ],
)
def test_others_are_refused_with_examples(text: str) -> None:
    with pytest.raises(ParameterError) as refused:
        parse(text)
    assert str(refused.value) == (
        "a metric reads rounds, rounds>=10, visit*spend, spend/visit, p90(rounds), median(rounds) "
        f"or dist(rounds), got {text!r}"
    )


@pytest.mark.parametrize("text", ["p0(rounds)", "p100(rounds)", "p250(rounds)"])
def test_a_quantile_lies_between_the_ends(text: str) -> None:
    with pytest.raises(ParameterError, match="between p0 and p100"):
        parse(text)


def test_owners_declare_no_ratios() -> None:
    with pytest.raises(ParameterError, match="a metric reads visit"):
        parse_metric("spend/visit")


@given(st.integers(1, 9999))
def test_every_percent_survives(hundredths: int) -> None:
    share = hundredths / 10_000
    found = parse(quantile_name("rounds", share))
    assert (found.share, found.name) == (share, quantile_name("rounds", share))
