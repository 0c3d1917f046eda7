"""Publish or refuse is itself an answer: what it may depend on, over all small tables.

The promise holds for neighbours that both pass the listed checks. A check reads public columns, or
one row's outcome against the declared space. Here every table of four units is run, refusals
included, so that nothing else decides and refusals say nothing more.
"""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.rows import leaks, row_order
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.counts import NoisyCounts
from runs import run_release

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTSIDE = 7
COLUMNS = Columns(unit="unit", arm="arm", cluster="cluster", outcomes=("outcome",), kept=("copy",))
MECHANISMS = {
    "rows": cdp.uniform_prior_dp(epsilon=1),
    "counts": cdp.cluster_dp(noise_scale=4, prior_floor=0.1, epsilon=2),
    "sums": cdp.optimal(epsilon=1, sums=cdp.SumShares(clusters=0.4)),
    "counts and delta": cdp.optimal(epsilon=1, noise_scale=9, delta=1e-2),
    "aggregates": cdp.noisy_histogram(epsilon=1),
}


def tables(values: list[int | None]) -> Iterator[tuple[tuple[int | None, ...], pl.DataFrame]]:
    """Every table of four units, in two arms. A kept column copies the outcome."""
    for outcomes in itertools.product(values, repeat=4):
        yield (
            outcomes,
            pl.DataFrame(
                {
                    "unit": [1, 2, 3, 4],
                    "arm": [0, 1, 0, 1],
                    "cluster": [0, 0, 0, 0],
                    "outcome": pl.Series(outcomes, dtype=pl.Int64),
                    "copy": pl.Series(outcomes, dtype=pl.Int64),
                }
            ),
        )


def result(table: pl.DataFrame, mechanism: cdp.Mechanism, **options: Any) -> str:
    """What a run tells the world: published, or the words of its refusal."""
    try:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("error")  # a notice must not decide even then
            run_release(
                table,
                mechanism=mechanism,
                space=one_outcome("outcome", cdp.OutcomeSpace.binary()),
                columns=COLUMNS,
                control=None,
                key=ReleaseKey(b"k" * 32),
                add_noise=lambda values, *_: values,
                **{"clip": False, "keep_order": True, **options},
            )
    except cdp.ClusterDPError as error:
        return str(error)
    return "published"


@pytest.fixture
def nets_that_always_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows are too few for the nets to see anything: make them see something everywhere."""
    monkeypatch.setattr(row_order, "_follows_order", lambda *_: True)
    monkeypatch.setattr(leaks, "column_reveals_outcome", lambda *_: True)


@pytest.mark.usefixtures("nets_that_always_warn")
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
def test_every_table_within_the_space_is_published(mechanism: cdp.Mechanism) -> None:
    assert {result(table, mechanism) for _, table in tables([0, 1])} == {"published"}


def test_a_refusal_tells_that_a_row_breaks_a_rule_and_no_more() -> None:
    """Three answers over 256 tables, and which one follows from what single rows are."""
    answers: dict[frozenset[int | None], set[str]] = {}
    for outcomes, table in tables([0, 1, OUTSIDE, None]):
        broken = frozenset(outcomes) - {0, 1}
        answers.setdefault(broken, set()).add(result(table, MECHANISMS["rows"]))
    assert answers[frozenset()] == {"published"}
    (outside,) = answers[frozenset({OUTSIDE})]
    (missing,) = answers[frozenset({None})]
    assert answers[frozenset({OUTSIDE, None})] == {missing}
    assert not any(character.isdigit() for character in missing)
    assert "has values outside the allowed values" in outside


def test_two_statistics_of_one_kind_are_refused_before_anything_is_drawn() -> None:
    """Their columns have the same names, so that no folder could hold both."""
    with pytest.raises(cdp.ParameterError, match="two statistics of one kind"):
        cdp.Mechanism(
            name="counts", statistics=(NoisyCounts(noise_scale=1), NoisyCounts(noise_scale=2))
        )


@pytest.mark.slow
def test_clipped_numbers_are_always_published() -> None:
    for _, table in tables([-OUTSIDE, 0, 1, OUTSIDE]):
        assert result(table, MECHANISMS["rows"], clip=True) == "published"


def test_counts_are_said_to_an_owner_who_asks() -> None:
    """A negative control: with `show_row_counts`, refusals differ by the rows that break rules."""
    said = {
        result(table, MECHANISMS["rows"], show_row_counts=True) for _, table in tables([0, OUTSIDE])
    }
    assert len(said) == 5
