"""Ratios of metrics whose covariance rows do not tell: bounds, coverage, what is said."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from bench.exposure_draws import JOINT, shared_estimates
from bench.metric_coverage import rates
from bench.metric_draws import Experiment, draw, ratio_question, released_estimates
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.effects.intervals import ArmPair
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.metrics._composed import product_bounds
from clusterdp.estimation.metrics.ratio import ArmRatio
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare

N_REPLICATES = 2000
OUTCOMES: dict[str, Any] = {"clicked": "0,1", "spend": "0..3"}
# Outcomes, and constraints among them.
SPACES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "above zero": ({"x": "0..2", "y": "1,2,5"}, []),
    "both signs": ({"x": "-2,1,3", "y": "-1,0,4"}, []),
    "implied": ({"x": "0..3", "y": "0..2"}, ["x>0 -> y>0"]),
}


def contrary() -> Experiment:
    """Nearly all who clicked spend nothing, and nearly all others spend most."""
    spend = np.array([0.05, 0.0, 0.0, 0.95])
    shares = (0.5, 0.55)
    probs = [np.concatenate([(1 - share) * spend, share * spend[::-1]]) for share in shares]
    return Experiment(JOINT, np.stack(probs))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_intervals_cover_where_rows_do_not_tell_the_covariance(
    epsilon: float, rng: np.random.Generator
) -> None:
    """False alarms: ALPHA for each of two rates if intervals cover 93.5%.

    The negative control takes the covariance from the variance of N − kD, which rows do not tell.
    It covers 82 to 86%, so that it reaches the bound less often than ALPHA, too.
    """
    experiment = contrary()
    question = ratio_question(experiment)
    mechanism = cdp.optimal(epsilon=epsilon, sums=cdp.SumShares(totals=0.3))
    drawn = draw(experiment, 20_000, 1.0, N_REPLICATES, rng)
    above, below, ridge_of = question.functions
    pairs, factor = shared_estimates(drawn, (above, below), ridge_of, JOINT, mechanism, rng)
    bounded = partial(ArmRatio.from_shared, factor=factor)
    found = rates(pairs, question._replace(compose=bounded))
    polarized = rates(released_estimates(drawn, question, JOINT, mechanism, rng), question)
    fewest = stats.binom.ppf(ALPHA, N_REPLICATES, 0.935) / N_REPLICATES
    assert min(found.covered) >= fewest > max(polarized.covered)


@pytest.mark.parametrize("case", SPACES)
def test_products_of_any_two_metrics_are_bounded(case: str) -> None:
    """In every category, and closely: in some there is nothing between bound and product."""
    outcomes, constraints = SPACES[case]
    space = Categories(declared=declare(outcomes, constraints=constraints))
    above, below = (CategoryFunction.declared(str(place), space, place) for place in (0, 1))
    channel = cdp.optimal(epsilon=0.5).settled_rows(space).public_channel(space)
    for tilt in (0.0, 1.0, -1.0):
        prior = np.exp(tilt * (above.values + below.values))
        products = product_bounds(above, below, channel, (prior / prior.sum())[np.newaxis])
        assert products[0] is not products[1]
        least, most = (one[0] @ channel.transition()[0] for one in products)
        assert (above.values * below.values - least).min() == pytest.approx(0, abs=1e-9)
        assert (most - above.values * below.values).min() == pytest.approx(0, abs=1e-9)


def release(rng: np.random.Generator, **options: Any) -> cdp.Release:
    n_units = 3000
    table = pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": np.array(["A", "B"])[rng.permutation(n_units) % 2],
            "clicked": rng.integers(0, 2, n_units),
            "spend": rng.integers(0, 4, n_units),
        }
    )
    if options.get("missing"):
        kept = pl.Series(rng.random(n_units) < 0.8)
        table = table.with_columns(pl.when(kept).then("spend").alias("spend"))
    if options.get("constraint"):
        table = table.with_columns(pl.col("spend") * pl.col("clicked"))
    parts: dict[str, Any] = {"unit": "user", "arm": "arm", "control": "A", "outcomes": OUTCOMES}
    mechanism = cdp.optimal(epsilon=0.5, sums=cdp.SumShares(totals=0.3))
    return cdp.release(table, **parts, mechanism=mechanism, **options)


# Whether rows tell the product of what is divided, by how it was released.
TOLD: dict[str, tuple[bool, str, dict[str, Any]]] = {
    "nothing": (False, "spend/clicked", {}),
    "declared": (True, "spend/clicked", {"metric": "clicked*spend"}),
    "implied": (True, "spend/clicked", {"constraint": ["spend>0 -> clicked"]}),
    "observed": (True, "spend", {"missing": ["spend"]}),
}


@pytest.mark.parametrize("case", TOLD)
def test_bounds_are_used_and_noted_where_rows_do_not_tell_the_product(
    case: str, rng: np.random.Generator
) -> None:
    told, metric, options = TOLD[case]
    found = cdp.estimate(release(rng, **options), metrics=metric)
    said = any("not identify the covariance of spend and clicked" in one for one in found.method)
    assert said != told
    pair = found[metric].interval
    assert isinstance(pair, ArmPair)
    for arm in (pair.treated, pair.control):
        assert isinstance(arm, ArmRatio)
        total = arm.total
        assert total.least == total.most if told else total.least < total.most
