"""Once noise is drawn nothing may fail: a release that is refused then is a second look at data."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clusterdp as cdp
from categories import one_outcome
from clusterdp.channels._optimal_channel import MOST_BIAS, OptimalChannel, design_optimal
from clusterdp.channels._solver.staircases import k_ary_response, plain_design, two_points
from clusterdp.channels.base import TABLE_TOTAL
from clusterdp.channels.optimal import OptimalBudget, OptimalRows
from clusterdp.channels.resampling import ResamplingChannel
from clusterdp.ledger.ledger import Ledger
from clusterdp.mechanisms.draw import Question, check_exact, complete, release_cells
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import ALONE, add_exact_noise
from clusterdp.statistics.sums import NoisySums
from populations import make_layout
from released import Drawn
from runs import run_release
from soak.designs import draw_and_design, is_sound, random_case

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.channels import Channel

# At small epsilons and large deltas, where the code as it was failed once in ten releases and more.
N_CASES = 10


@pytest.mark.slow
def test_random_designs_never_fail(rng: np.random.Generator) -> None:
    for _ in range(N_CASES):
        case = random_case(rng, delta=0.01, epsilon=float(rng.uniform(0.2, 1.5)))
        assert is_sound(draw_and_design(case, rng), case)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_without_a_solver_there_is_a_channel(
    delta: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterdp.channels._solver.generation.solve_cones", lambda *_: None)
    response = OptimalRows(epsilon=1, delta=delta).bound(cdp.OutcomeSpace.binary())
    values = np.array([-3.0, 0.0, 0.5, 8.0])
    priors = rng.dirichlet(np.ones(4), 5)
    tables, outputs, _ = design_optimal(priors, values[np.newaxis], np.ones(1), response)
    channel = OptimalChannel(
        tables=tables,
        outputs=outputs,
        groups=np.zeros((1, 2), np.int64),
        values=values[np.newaxis],
    )
    assert response.allows(channel)
    assert np.abs(channel.bias()).max() <= MOST_BIAS * np.abs(outputs).max()


def exact_worst(
    table: IntArray, outputs: FloatArray, values: FloatArray
) -> tuple[Fraction, Fraction]:
    """The largest ratio of an output's weights, and the largest bias, without any rounding."""
    rows = table.tolist()
    ratio = max(Fraction(max(column), min(column)) for column in zip(*rows, strict=True))
    numbers = [Fraction(number) for number in outputs.tolist()]
    means = [
        sum(weight * number for weight, number in zip(row, numbers, strict=True)) / TABLE_TOTAL
        for row in rows
    ]
    bias = max(abs(mean - Fraction(y)) for mean, y in zip(means, values.tolist(), strict=True))
    return ratio, bias


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12, unique=True),
    st.sampled_from([0.0, 1e12]),
    st.floats(0.01, 12),
)
def test_plain_channels_are_within_the_ratio_and_unbiased(
    listed: list[float], offset: float, epsilon: float
) -> None:
    values = np.unique(np.array(listed) + offset)
    if len(values) < 2:
        return
    allowed = OptimalRows(epsilon=epsilon).bound(cdp.OutcomeSpace.binary()).max_ratio
    for table, (outputs,) in (two_points(values, allowed), k_ary_response(values[None], allowed)):
        assert (table.sum(axis=1) == TABLE_TOTAL).all()
        assert (np.diff(outputs) >= 0).all()
        ratio, bias = exact_worst(table, outputs, values)
        assert ratio <= allowed
        assert bias <= Fraction(MOST_BIAS) * Fraction(max(1.0, float(np.abs(outputs).max())))


@pytest.mark.parametrize("epsilon", [0.01, 1, 12])
@pytest.mark.parametrize("n_outcomes", [2, 100, 1024, 2**16])
def test_there_is_a_plain_channel_for_every_number_of_outcomes(
    n_outcomes: int, epsilon: float
) -> None:
    """With values far from 0, where a mean in doubles would be off by more than is allowed."""
    values = 1e9 + np.arange(n_outcomes, dtype=np.float64)
    response = OptimalRows(epsilon=epsilon).bound(cdp.OutcomeSpace.binary())
    prior = np.full(n_outcomes, 1 / n_outcomes)
    table, outputs = plain_design(prior, values[np.newaxis], response.max_ratio)
    assert (table.sum(axis=1) == TABLE_TOTAL).all()
    least, most = table.min(axis=0).astype(object), table.max(axis=0).astype(object)
    assert all(most <= least * response.max_ratio)
    channel = OptimalChannel(
        tables=table[np.newaxis],
        outputs=outputs[np.newaxis],
        groups=np.zeros((1, 2), np.int64),
        values=values[np.newaxis],
    )
    assert np.abs(channel.bias()).max() <= MOST_BIAS * np.abs(outputs).max()


def refuse_to_draw(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
    pytest.fail(f"noise of scale {scale} was drawn for {len(values)} numbers")


HUGE = cdp.OutcomeSpace.of([0, 1, 2**31])
TOO_LONG = Mechanism(
    name="optimal",
    statistics=(NoisySums(epsilon=0.5),),
    rows=OptimalBudget(epsilon=2, prior=(0.5, 0.25, 0.25)),
)


@pytest.mark.parametrize(
    ("mechanism", "space", "message"),
    [
        (
            cdp.optimal(epsilon=2, noise_scale=4, sums=cdp.SumShares(clusters=0.2)),
            HUGE,
            "64-bit sums",
        ),
        (TOO_LONG, cdp.OutcomeSpace.integers(0, 4), "prior has 3 numbers"),
        (cdp.noisy_horvitz_thompson(epsilon=1e-12), HUGE, "64-bit contrasts"),
    ],
    ids=["sums", "prior", "contrasts"],
)
def test_what_is_refused_for_public_reasons_draws_nothing(
    mechanism: Mechanism, space: cdp.OutcomeSpace, message: str
) -> None:
    n_rows = 400
    table = pl.DataFrame(
        {
            "user": range(n_rows),
            "arm": np.arange(n_rows) % 2,
            "cluster": np.arange(n_rows) // 200,
            "y": np.zeros(n_rows, np.int64),
        }
    )
    with pytest.raises(cdp.ParameterError, match=message):
        check_exact(make_layout([[100, 100]] * 2), space, mechanism)
    with pytest.raises(cdp.ParameterError, match=message):
        run_release(
            table,
            mechanism=mechanism,
            space=one_outcome("y", space),
            columns=Columns(unit="user", arm="arm", cluster="cluster", outcomes=("y",)),
            control=None,
            clip=False,
            key=ReleaseKey.from_system(),
            add_noise=refuse_to_draw,
        )


def test_a_ledger_reserves_nothing_for_what_cannot_be_released(tmp_path: Path) -> None:
    n_rows = 400
    source, ledger = tmp_path / "t.parquet", tmp_path / "ledger"
    pl.DataFrame(
        {
            "user": range(n_rows),
            "treated": np.arange(n_rows) % 2,
            "market": np.arange(n_rows) // 200,
            "clicks": np.zeros(n_rows, np.int64),
        }
    ).write_parquet(source)
    Ledger.create(str(ledger), 5)
    asked: dict[str, Any] = {"outcomes": {"clicks": f"0,1,{2**31}"}, "epsilon": 2}
    asked |= {"unit": "user", "arm": "treated", "cluster": "market"}
    asked |= {"sums_share": 0.3, "counts_share": 0.1}
    whose: dict[str, Any] = {"ledger": ledger, "population": "us", "new_population": True}
    with pytest.raises(cdp.ClusterDPError, match="64-bit sums"):
        cdp.publish(source, out=tmp_path / "out", **asked, **whose)
    assert not Ledger(str(ledger)).balance("us").releases


def test_infinite_arms_are_refused_before_anything_is_drawn(table: pl.DataFrame) -> None:
    """A manifest cannot name them: the folder would be published and could not be read."""
    arms = pl.when(pl.col("treated") == 1).then(float("inf")).otherwise(0.0)
    with pytest.raises(cdp.DataError, match="infinite"):
        cdp.release(
            table.with_columns(treated=arms),
            mechanism=cdp.optimal(epsilon=2),
            outcomes={"clicks": "0..3"},
            unit="user",
            arm="treated",
            cluster="market",
            control=0.0,
        )


CHANNELS = {
    "optimal": cdp.optimal(epsilon=1, noise_scale=4),
    "resampled": cdp.cluster_dp(noise_scale=20, prior_floor=0.05, epsilon=2),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_a_restored_channel_passes_the_check_of_a_designed_one(name: str) -> None:
    """Integers that would cost more than the release states randomize no row."""
    layout, mechanism = make_layout([[30, 40], [50, 60]]), CHANNELS[name]
    space = one_outcome("y", cdp.OutcomeSpace.integers(0, 3))
    counts = np.stack([layout.sizes] + [np.zeros_like(layout.sizes)] * 3, axis=-1)
    totals = CellTotals.from_counts(counts, space)
    statistics, channel = release_cells(totals, layout, space, mechanism, add_exact_noise)
    question = Question(space=space, mechanism=mechanism)
    drawn = Drawn(questions=(question.released(statistics, channel),), table_tag=bytes(32))
    assert Drawn.from_bytes(bytes(drawn), [question], layout).table_tag == bytes(32)
    if isinstance(channel, OptimalChannel):
        tables = np.zeros_like(channel.tables)
        tables[:, np.arange(4), np.arange(4)] = TABLE_TOTAL  # each output tells its outcome
        edited: Channel = replace(channel, tables=tables)
    else:
        assert isinstance(channel, ResamplingChannel)
        weights = np.zeros_like(channel.weights)
        weights[..., 0] = channel.weights.sum(axis=-1)  # only the first outcome is redrawn
        edited = replace(channel, weights=weights)
    edited_question = question.released(statistics, edited)
    forged = bytes(Drawn(questions=(edited_question,), table_tag=bytes(32)))
    with pytest.raises(cdp.ClusterDPError, match="would cost more than was stated"):
        Drawn.from_bytes(forged, [question], layout)


def test_a_design_that_costs_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain channels are checked as well, which take the place of what no solver finds."""

    def telling(prior: FloatArray, values: FloatArray, ratio: Fraction) -> tuple[Any, Any]:
        del prior, ratio
        return np.eye(values.shape[1], dtype=np.int64) * TABLE_TOTAL, values

    monkeypatch.setattr("clusterdp.channels._solver.staircases.plain_design", telling)
    monkeypatch.setattr("clusterdp.channels._solver.generation.solve_cones", lambda *_: None)
    layout, space = make_layout([[30, 40]]), one_outcome("y", cdp.OutcomeSpace.integers(0, 2))
    mechanism = cdp.optimal(epsilon=1.234)
    with pytest.raises(cdp.ClusterDPError, match="would cost more than was stated"):
        complete((), layout, Question(space=space, mechanism=mechanism))
