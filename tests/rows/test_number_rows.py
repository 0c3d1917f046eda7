"""Released numbers are right on average, over thousands of releases of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from assertions import assert_mean
from batch_runs import batch_of, randomizer_of
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.rows.encoding import QuestionEncoder
from clusterdp.rows.keys import KeyRing, ReleaseKey
from joint_enumeration import category_chances

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray
    from clusterdp.rows.encoding import RowCodes
    from clusterdp.rows.randomizing import BatchRandomizer

N_RELEASES, N_UNITS = 2000, 200
SPEND = cdp.Number(0, 50)
GRID = Grid(number=SPEND, points=tuple(int(SPEND.steps_to(point)) for point in (0, 2, 10, 50)))
SPACE = Categories(declared=declare({"visit": "0,1", "spend": SPEND}), grids=(GRID,))
MECHANISM = cdp.optimal(epsilon=2)
SHAPES: dict[str, Callable[[np.random.Generator], FloatArray]] = {
    "lognormal": lambda rng: rng.lognormal(1.5, 1.2, N_UNITS),
    "zero-inflated": lambda rng: rng.gamma(2, 8, N_UNITS) * (rng.random(N_UNITS) < 0.2),
    "counts": lambda rng: rng.negative_binomial(1, 0.15, N_UNITS).astype(np.float64),
}


def noise_variance(spend: FloatArray, visit: FloatArray) -> float:
    """Var(mean of debiased spend | table): of the channel and of rounding, row by row."""
    channel = MECHANISM.settled_rows(SPACE).public_channel(SPACE)
    values, noise = SPACE.metric_values()[1], channel.noise_variance(1)[0]
    total = 0.0
    for row in zip(visit.tolist(), spend.tolist(), strict=True):
        chances = category_chances(SPACE, row)
        total += float(chances @ (noise + (values - row[1]) ** 2))
    return total / len(spend) ** 2


def released_means(table: pl.DataFrame, rng: np.random.Generator) -> FloatArray:
    """The mean of debiased spend in each of many releases, each of its own key."""
    first = randomizer_of(SPACE, MECHANISM, N_UNITS)
    coded = first.encoder(table, {})
    keys = (ReleaseKey(rng.bytes(32)) for _ in range(N_RELEASES))
    return np.array([_release(first, coded, key) for key in keys])


def _release(first: BatchRandomizer, coded: RowCodes, key: ReleaseKey) -> float:
    """The mean of debiased spend, with another key and all else as it was."""
    (question,) = first.questions
    places = question(coded.asked(0), KeyRing(key))
    return float(question.decodings[1].to_numpy()[places].mean())


@pytest.mark.parametrize("shape", SHAPES)
def test_the_mean_of_a_number_is_unbiased_over_releases(
    shape: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the clipped number. Fails on correct code with probability ALPHA = 1e-6."""
    # On the lattice of single cents, so that nothing is quantized.
    spend = np.minimum(np.round(SHAPES[shape](rng), 2), 50)
    visit = (spend > 0).astype(np.float64)
    table = batch_of({"visit": pl.Series(visit), "spend": pl.Series(spend)}, N_UNITS)
    expected, std_dev = spend.mean(), noise_variance(spend, visit) ** 0.5
    assert_mean(released_means(table, rng), expected, std_dev)
    # The negative control: a number at the grid point below it, as bins would have it.
    monkeypatch.setattr(
        QuestionEncoder, "round", lambda self, rows, names, keys: rows.outcomes.categories
    )
    with pytest.raises(AssertionError, match="mean is off"):
        assert_mean(released_means(table, rng), expected, std_dev)
