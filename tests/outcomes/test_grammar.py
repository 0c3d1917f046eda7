from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterdp import OutcomeSpace, ParameterError
from clusterdp._text import exact
from clusterdp.outcomes.grammar import parse_constraint, parse_metric
from clusterdp.outcomes.metric import SIGNS, Constraint, Metric, OutcomeValue, Threshold
from clusterdp.outcomes.number import Number

if TYPE_CHECKING:
    from clusterdp.outcomes.number import Space

# Ends this large leave a unit of 1, and a lattice small enough to look at every point.
FAR = 2_000_000_000
NAMES = st.one_of(
    st.sampled_from(["visit", "day 7", "class", "e1", "größe", "a.b", "x>0", "(y)", "->"]),
    st.text(min_size=1).filter(lambda name: '"' not in name),
)
COMPARISONS = st.builds(
    Threshold,
    outcome=NAMES,
    sign=st.sampled_from(list(SIGNS)),
    threshold=st.floats(allow_nan=False, allow_infinity=False),
)
METRICS = st.lists(
    st.one_of(st.builds(OutcomeValue, outcome=NAMES), COMPARISONS), min_size=1, max_size=4
).map(lambda factors: Metric(factors=tuple(factors)))


@given(METRICS)
def test_the_text_of_a_metric_reads_back(metric: Metric) -> None:
    assert parse_metric(str(metric)) == metric


@given(METRICS, METRICS)
def test_the_text_of_an_constraint_reads_back(left: Metric, right: Metric) -> None:
    constraint = Constraint(condition=left, consequence=right)
    assert parse_constraint(str(constraint)) == constraint


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rounds", "rounds"),
        (" rounds >= 10.0 ", "rounds>=10"),
        ("(spend>0)", "spend>0"),
        ("visit * spend", "visit*spend"),
        ("(spend > -1e3)*visit", "(spend>-1000)*visit"),
        ('"day 7" == 1', '"day 7"==1'),
        ("spend>-0", "spend>0"),
    ],
)
def test_metrics_are_read(text: str, shown: str) -> None:
    assert str(parse_metric(text)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "*", "a b", "a>", ">1", "a>b", "a>1>0", "a*b>0", "a>0*b", "(a)", "((a>0))", "(a>0",
        "a>0)", "a=1", "a+b", "3", "a**b", "a*", "not a", "__import__('os')", '"a', "a>nan",
        "a>inf",
        "a>1e999", "a;b",
        "a->b",
    ],
)  # fmt: skip
def test_what_is_no_metric_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match=r"a metric must be written|finite"):
        parse_metric(text)


@pytest.mark.parametrize("text", ["", "a", "a -> ", "-> b", "a -> b -> c", "a => b"])
def test_what_is_no_constraint_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        parse_constraint(text)


@given(
    st.sampled_from(list(SIGNS)),
    st.one_of(st.integers(-2, 9), st.sampled_from([0.5, 3.25, 6.75])),
)
def test_cuts_are_where_a_comparison_changes(sign: str, above: float) -> None:
    number = Number(FAR, FAR + 7)
    comparison = Threshold(outcome="y", sign=sign, threshold=FAR + above)
    holds = comparison.of_levels([number.value(step) for step in range(8)])
    changes = [step for step in range(1, 8) if holds[step] != holds[step - 1]]
    assert sorted(comparison.cuts(number)) == changes


def test_comparisons_are_of_decimals() -> None:
    comparison = Threshold(outcome="y", sign=">=", threshold=0.3)
    assert comparison.of_levels([exact(0.1) + exact(0.2), exact(0.1)]).tolist() == [1, 0]


SPACES: dict[str, Space] = {
    "visit": OutcomeSpace.binary(),
    "spend": Number(0, 499),
    "time": Number(0, 60),
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sales", "'sales', which is not a declared outcome. The outcomes are 'visit', 'spend'"),
        ("spend>=500", "is the same for every value of 'spend'"),
        ("spend==0.00005", "is the same for every value of 'spend'"),
        ("visit>=0", "is the same for every value of 'visit'"),
        ("spend*spend", "a product can use a number once"),
        ("spend*visit*spend", "a product can use a number once"),
    ],
)
def test_what_cannot_be_measured_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        parse_metric(text).check(SPACES)


@pytest.mark.parametrize(
    "text", ["visit*visit", "spend*time", "spend*(spend>10)", "spend>=499", "spend==0", "visit<1"]
)
def test_what_can_be_measured_is_accepted(text: str) -> None:
    parse_metric(text).check(SPACES)


def test_a_ratio_is_not_declared_but_asked_together() -> None:
    with pytest.raises(ParameterError, match="--question spend,visits"):
        parse_metric("spend/visits")
