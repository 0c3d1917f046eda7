"""That numbers are rounded to a grid is noise of rows: sums and sampling are of exact numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

import clusterdp as cdp
from assertions import assert_variance
from clusterdp.channels.base import ASKED_TOTAL
from clusterdp.mechanisms.draw import release_cells
from clusterdp.outcomes.baseline import FittedOutcomes, parse_margins, with_points
from clusterdp.outcomes.declaration import declare
from clusterdp.precision.closed_form import published_noise
from clusterdp.precision.expected import Scenario, histogram_baseline
from clusterdp.precision.forecast import predict
from clusterdp.precision.row_noise import RowNoise
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.counts import DrawnCounts
from clusterdp.statistics.noise import simulated_noise
from populations import make_layout

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.baseline import JointPrior
    from clusterdp.outcomes.categories import Categories

DECLARED = declare({"spend": cdp.Number(0, 100)})
FITTED = FittedOutcomes(DECLARED, parse_margins({"spend": "mean:10,std:12"}, DECLARED.spaces))
N_UNITS, N_RELEASES = 150, 4000


def on_few_points() -> tuple[Categories, JointPrior]:
    """Categories whose grid adds much variance, and their prior."""
    categories = with_points(DECLARED, FITTED.densities, 4)
    assert categories is not None
    return categories, FITTED.prior_of(categories)


def simulated_effects(
    mechanism: Mechanism, space: Categories, scenario: Scenario, rng: np.random.Generator
) -> FloatArray:
    """Effects in simulated releases, from units drawn anew for each; axes `[release]`."""
    (grid,) = space.grids
    prior = mechanism.settled_rows(space).public_prior(space)
    channel = mechanism.settled_rows(space).public_channel(space)
    below, decode = channel.transition()[0].cumsum(axis=0), channel.decode()[0]
    share, centre = mechanism.asked_share, float(space.metric_values()[0] @ prior)
    spread = prior @ (space.metric_values()[0] - centre) ** 2
    noise = RowNoise.from_channel(channel, scenario, prior).public[0]
    assumed = noise / share + (1 / share - 1) * spread
    (of_sums,) = published_noise(mechanism, scenario.layout, space)
    variance = float(of_sums.totals)
    weight = float(mechanism.total_weights(scenario.layout)[0, 0])
    factor = weight / (N_UNITS * weight**2 + variance / assumed)
    steps = np.array(FITTED.fine.grids[0].points)
    means = []
    for _ in range(2):
        drawn = rng.choice(steps, (N_RELEASES, N_UNITS), p=FITTED.prior.probs)
        lower = grid.lower(drawn.ravel()).reshape(drawn.shape).astype(np.int64)
        up = (drawn - np.array(grid.points)[lower]) / grid.widths[lower]
        category = lower + (rng.random(drawn.shape) < up)
        words = rng.random(drawn.shape)
        response = sum((words > one[category]).astype(np.int64) for one in below[:-1])
        asked = rng.random(drawn.shape) < share
        rows = centre + np.where(asked, (decode[response] - centre) / share, 0.0)
        exact = drawn * float(grid.number.unit) + grid.number.low
        found = rows.mean(axis=1)
        if math.isfinite(variance):
            published = weight * exact.sum(axis=1) + rng.normal(0, variance**0.5, N_RELEASES)
            found = found - factor * (weight * rows.sum(axis=1) - published)
        means.append(found)
    return np.asarray(means[1] - means[0])


@pytest.mark.parametrize("totals", [0.0, 0.3])
@pytest.mark.parametrize("asked", [ASKED_TOTAL, ASKED_TOTAL // 2], ids=["all", "half"])
def test_predictions_of_rounded_numbers_come_true(
    totals: float, asked: int, rng: np.random.Generator
) -> None:
    space, prior = on_few_points()
    layout = make_layout([[N_UNITS, N_UNITS]])
    sums = cdp.SumShares(totals=totals)
    mechanism = cdp.optimal(epsilon=5, prior=prior.probs.tolist(), sums=sums)
    mechanism = msgspec.structs.replace(mechanism, asked=asked)
    baseline = histogram_baseline(
        space, prior.probs.tolist(), rounding=tuple(prior.rounding.tolist())
    )
    scenario = Scenario(layout, space, baseline)
    (expected,) = predict(mechanism, scenario)
    effects = simulated_effects(mechanism, space, scenario, rng)
    assert_variance(effects, expected.overall.std_error**2, relative_error=0.06)
    assert expected.overall.sampling_std_error == pytest.approx(12 * math.sqrt(2 / N_UNITS))
    if totals:  # with rounding in sampling, which totals do not take off, the release seems worse
        blind = Scenario(layout, space, histogram_baseline(space, prior.probs.tolist()))
        (other,) = predict(mechanism, blind)
        assert other.overall.std_error > 1.05 * expected.overall.std_error


def test_rounding_is_what_a_grid_adds_to_true_variances() -> None:
    space, prior = on_few_points()
    values = space.metric_values()[0]
    spread = prior.probs @ (values - prior.probs @ values) ** 2
    assert spread - prior.rounding[0] == pytest.approx(12**2)
    assert prior.rounding[0] > 20
    declared = declare({"visit": "0,1"})
    finite = FittedOutcomes(declared, parse_margins({"visit": "0.1"}, declared.spaces))
    assert finite.prior_of(finite.fine).rounding.tolist() == [0.0]


def test_what_is_assumed_is_what_was_declared() -> None:
    """The mean and the deviation are of the outcome, not of the rounded one; some are missing."""
    declared = declare(
        {"spend": cdp.Number(0, 100), "score": cdp.Number(0, 10)},
        metrics=["spend>0"],
        missing=["score"],
    )
    given = {"spend": "mean:10,std:12", "score": "mean:4,std:1.5", "score_observed": "0.3"}
    margins = parse_margins(given, declared.margin_spaces)
    fitted = FittedOutcomes(declared, margins)
    space = with_points(declared, fitted.densities, 4)
    assert space is not None
    prior = fitted.prior_of(space)
    baseline = histogram_baseline(
        space, prior.probs.tolist(), rounding=tuple(prior.rounding.tolist())
    )
    known = Scenario(make_layout([[100, 100]]), space, baseline)
    found = dict(zip(map(str, declared.metrics), known.moments(), strict=True))
    assert found["spend"] == pytest.approx((10, 12), rel=1e-3)
    assert found["score"] == pytest.approx((4, 1.5), rel=1e-3)
    assert found["score_observed"][0] == pytest.approx(0.3, rel=1e-3)
    # What is to be measured counts relative to true variances, as on the fine grid.
    np.testing.assert_allclose(
        known.weights, fitted.fine.metric_weights(fitted.prior.probs), rtol=1e-6
    )


@pytest.mark.parametrize("within", [0.2, 0.7])
def test_clusters_differ_in_true_outcomes(within: float) -> None:
    """Of the variance that is between clusters, none is rounding."""
    space, prior = on_few_points()
    baseline = histogram_baseline(
        space, prior.probs.tolist(), within, rounding=tuple(prior.rounding.tolist())
    )
    means = baseline.kinds[:, 0] @ space.metric_values()[0]
    assert means.var() == pytest.approx((1 - within) * 12**2, rel=1e-6)


def test_counts_are_of_rounded_numbers(rng: np.random.Generator) -> None:
    """A histogram alone has the noise of rounding as well."""
    space, prior = on_few_points()
    layout = make_layout([[N_UNITS, N_UNITS]])
    baseline = histogram_baseline(
        space, prior.probs.tolist(), rounding=tuple(prior.rounding.tolist())
    )
    mechanism = cdp.noisy_histogram(epsilon=4)
    (expected,) = predict(mechanism, Scenario(layout, space, baseline))
    counts = rng.multinomial(N_UNITS, prior.probs, (N_RELEASES, 1, 2))
    statistics, _ = release_cells(
        CellTotals.from_counts(counts, space), layout, space, mechanism, simulated_noise(rng)
    )
    (drawn,) = statistics
    assert isinstance(drawn, DrawnCounts)
    means = drawn.noisy_counts @ space.metric_values()[0] / N_UNITS
    assert_variance(means[:, 1] - means[:, 0], expected.overall.std_error**2, relative_error=0.06)
    assert expected.overall.sampling_std_error == pytest.approx(12 * math.sqrt(2 / N_UNITS))
