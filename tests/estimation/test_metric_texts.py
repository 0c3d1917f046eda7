"""What an analyst can ask for, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clusterdp as cdp
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.intervals import quantile
from clusterdp.estimation.means.functions import question_of, take_call
from clusterdp.estimation.metrics import parse as parsing
from clusterdp.estimation.metrics._composed import ArmEstimates, compared_arms
from clusterdp.estimation.metrics.base import MetricFindings, QuestionRows
from clusterdp.estimation.metrics.levels import DistributionEstimator, Levels
from clusterdp.estimation.metrics.mean import MeanEstimator
from clusterdp.estimation.metrics.parse import parse_metrics
from clusterdp.estimation.metrics.quantiles import QuantileEstimator, quantile_name
from clusterdp.estimation.metrics.ratio import RatioEstimator
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grammar import Parser, parse_metric

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        f"Cannot read metric {text!r}. Fix: write rounds, rounds>=10, visit*rounds, rounds/visit, "
        "p90(rounds), median(rounds) or dist(rounds)."
    )


def test_several_metrics_in_one_text_are_refused() -> None:
    with pytest.raises(ParameterError) as refused:
        parse("rounds,visit")
    assert str(refused.value) == (
        "Cannot read metric 'rounds,visit': it has several. Fix: give each by itself: "
        "metrics=['rounds', 'visit'] (--metric rounds --metric visit)."
    )


@pytest.mark.parametrize("text", ["p0(rounds)", "p100(rounds)", "p250(rounds)"])
def test_a_quantile_lies_between_the_ends(text: str) -> None:
    with pytest.raises(ParameterError, match="above p0 and below p100"):
        parse(text)


def test_owners_declare_no_ratios() -> None:
    with pytest.raises(ParameterError, match="is a ratio, which needs no declaration"):
        parse_metric("spend/visit")


@given(st.integers(1, 9999))
def test_every_percent_survives(hundredths: int) -> None:
    share = hundredths / 10_000
    found = parse(quantile_name("rounds", share))
    assert (found.share, found.name) == (share, quantile_name("rounds", share))


class TopEstimator(NamedTuple):
    """A kind of metric that someone adds: the share of units at the largest value."""

    name: str
    question: int
    levels: Levels

    @classmethod
    def from_text(cls, parser: Parser, spaces: Sequence[Categories]) -> TopEstimator | None:
        call = take_call(parser)
        if call is None or call[0] != "top":
            return None
        name, outcome = f"top({call[1]})", call[1]
        question = question_of([outcome], name, spaces)
        return cls(name, question, Levels(outcome, spaces[question]))

    def estimate(self, questions: Sequence[QuestionRows]) -> MetricFindings:
        data = questions[self.question].read(*self.levels.functions[-1:])
        arms = compared_arms(data, self.name)
        return MetricFindings(effects=[one.composed_effect(ArmTop) for one in arms])


class ArmTop(NamedTuple):
    """The share of an arm."""

    arm: ArmEstimates

    @property
    def value(self) -> float:
        return float(self.arm.means[0])

    @property
    def bounds(self) -> tuple[float, float]:
        return self.value, self.value

    @property
    def variances(self) -> tuple[float, float]:
        return float(self.arm.sampling[0]), float(self.arm.privacy[0])

    def limits(self, level: float) -> tuple[float, float]:
        reach = quantile(level) * float(np.sqrt(self.arm.variances[0]))
        return self.value - reach, self.value + reach


def test_a_kind_of_metric_is_a_class_and_its_name_in_a_list(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pl.DataFrame(
        {
            "user": np.arange(900),
            "arm": np.arange(900) % 2,
            "rounds": rng.integers(0, 4, 900),
        }
    )
    release = cdp.release(
        table, unit="user", arm="arm", outcomes={"rounds": "0..3"}, epsilon=3, mechanism="optimal"
    )
    with pytest.raises(ParameterError, match="Cannot read metric"):
        cdp.estimate(release, metrics="top(rounds)")
    monkeypatch.setattr(parsing, "KINDS", (*parsing.KINDS, TopEstimator))
    found = cdp.estimate(release, metrics=["top(rounds)", "rounds>=3"])
    mine, theirs = found["top(rounds)"], found["rounds>=3"]
    assert (mine.effect, mine.treated_mean) == pytest.approx((theirs.effect, theirs.treated_mean))
    assert mine.ci()[0] < mine.effect < mine.ci()[1]
    assert "top(rounds)" in repr(found)
