"""A small release of two questions: a funnel, and a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

import clusterdp as cdp
from clusterdp.outcomes.categories import Categories, together
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid
from clusterdp.releasing.prepare import prepare
from clusterdp.spec.columns import Columns
from runs import release_in_memory

if TYPE_CHECKING:
    from clusterdp.rows.keys import ReleaseKey
    from clusterdp.statistics.noise import NoiseSource

ROUNDS = cdp.Number(0, 4)
SPACES = together(
    (
        Categories(
            declared=declare({"visit": "0,1", "sale": "0,1"}, constraints=["sale -> visit"])
        ),
        Categories(
            declared=declare({"rounds": ROUNDS}),
            grids=(
                Grid(number=ROUNDS, points=tuple(int(ROUNDS.steps_to(one)) for one in (0, 1, 4))),
            ),
        ),
    )
)
COLUMNS = Columns(
    unit="user",
    arm="treated",
    cluster="market",
    outcomes=("visit", "sale", "rounds"),
    kept=("tier",),
    breakdowns=(("tier",),),
    folds=2,
    question_names=("visit+sale", "rounds"),
)
# Of 65,536 units, how many are asked each question: three in eight, and five.
ASKED = (24_576, 40_960)


def asked_of_some(*mechanisms: cdp.Mechanism) -> tuple[cdp.Mechanism, ...]:
    """The same mechanisms, each of a question that some units are asked."""
    pairs = zip(mechanisms, ASKED, strict=True)
    return tuple(msgspec.structs.replace(one, asked=asked) for one, asked in pairs)


_SUMS = cdp.SumShares(totals=0.1, clusters=0.1, breakdowns=((("tier",), 0.1),), noise_in_rows=50.0)
# Of different kinds: one has noisy counts.
MECHANISMS = asked_of_some(
    cdp.optimal(epsilon=1.2, sums=_SUMS),
    cdp.cluster_dp(noise_scale=8, prior_floor=0.1, epsilon=1.2, sums=_SUMS),
)


def some_table(n_units: int, rng: np.random.Generator) -> pl.DataFrame:
    """Units in four markets, every cell of which has some."""
    number = np.arange(n_units)
    treated = number % 2
    visit = rng.random(n_units) < 0.4 + 0.2 * treated
    return pl.DataFrame(
        {
            "user": rng.permutation(n_units),
            "treated": treated,
            "market": number // 2 % 4,
            "tier": number // 8 % 2,
            "visit": visit.astype(np.int64),
            "sale": (visit & (rng.random(n_units) < 0.5)).astype(np.int64),
            "rounds": np.round(4 * rng.beta(1 + treated, 3, n_units), 2),
        }
    )


def release_questions(
    table: Any, key: ReleaseKey, add_noise: NoiseSource, mechanisms: Any = MECHANISMS
) -> cdp.Release:
    """The release of a table in two questions."""
    prepared = prepare(table, columns=COLUMNS, spaces=SPACES)
    return release_in_memory(prepared, mechanisms, key, add_noise)
