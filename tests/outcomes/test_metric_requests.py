"""What an analyst can ask, as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp.errors import ParameterError
from clusterdp.outcomes.grammar import (
    Distribution,
    Mean,
    MetricRequest,
    Quantile,
    Ratio,
    parse_metric,
    parse_metric_request,
)
from clusterdp.outcomes.metric import Metric

ASKED: dict[str, MetricRequest] = {
    "rounds": Mean(metric=Metric.mean_of("rounds")),
    "rounds>=10": Mean(metric=parse_metric("rounds>=10")),
    "visit*(spend>0)": Mean(metric=parse_metric("visit*(spend>0)")),
    "spend/visit": Ratio(above=Metric.mean_of("spend"), below=Metric.mean_of("visit")),
    "(spend>0)/visit": Ratio(above=parse_metric("spend>0"), below=Metric.mean_of("visit")),
    "visit*spend/visit": Ratio(above=parse_metric("visit*spend"), below=Metric.mean_of("visit")),
    "p90(rounds)": Quantile(outcome="rounds", share=0.9),
    "p99.9(rounds)": Quantile(outcome="rounds", share=0.999),
    "median(rounds)": Quantile(outcome="rounds", share=0.5),
    'p25("day 7")': Quantile(outcome="day 7", share=0.25),
    "dist(rounds)": Distribution(outcome="rounds"),
}


@pytest.mark.parametrize("text", ASKED)
def test_texts_are_read_and_written(text: str) -> None:
    assert parse_metric_request(text) == ASKED[text]
    assert str(ASKED[text]) == text


def test_spaces_and_other_spellings_mean_the_same() -> None:
    assert parse_metric_request(" p50( rounds ) ") == ASKED["median(rounds)"]
    assert parse_metric_request("p90.0(rounds)") == ASKED["p90(rounds)"]
    assert parse_metric_request("spend / visit") == ASKED["spend/visit"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rounds/",
        "/visit",
        "a/b/c",
        "p90",
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
    if text == "p90":  # an outcome may have this name
        assert parse_metric_request(text) == Mean(metric=Metric.mean_of("p90"))
        return
    with pytest.raises(ParameterError, match=r"a metric reads rounds, .*p90\(rounds\)"):
        parse_metric_request(text)


@pytest.mark.parametrize("text", ["p0(rounds)", "p100(rounds)", "p250(rounds)"])
def test_a_quantile_lies_between_the_ends(text: str) -> None:
    with pytest.raises(ParameterError, match="between p0 and p100"):
        parse_metric_request(text)


def test_owners_declare_no_ratios() -> None:
    with pytest.raises(ParameterError, match="a metric reads visit"):
        parse_metric("spend/visit")


@given(st.integers(1, 9999))
def test_every_percent_survives(hundredths: int) -> None:
    question = Quantile(outcome="y", share=hundredths / 10_000)
    assert parse_metric_request(str(question)) == question
