"""Functions of the category: decoded from channels, and told by published sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.errors import ParameterError
from clusterdp.estimation.means.functions import CategoryFunction, DecodedFunction, channel_priors
from clusterdp.estimation.reading.request import EstimateRequest
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.statistics.base import square_terms
from joint_populations import game_space

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.draw import ReleasedQuestion
from clusterdp.published.release import Release

MECHANISMS: dict[str, dict[str, Any]] = {
    "optimal": {"mechanism": "optimal"},
    "optimal, sums": {"mechanism": "optimal", "sums_share": 0.3},
    "optimal, counts": {"mechanism": "optimal", "counts_share": 0.15},
    "cluster": {"mechanism": "cluster-dp", "noise_scale": 6.0, "prior_floor": 0.02},
    "cluster-free": {"mechanism": "cluster-free-dp", "noise_scale": 6.0, "prior_floor": 0.02},
    "uniform": {"mechanism": "uniform-prior-dp"},
}


def released(rng: np.random.Generator, **options: Any) -> Release:
    """Two outcomes of 600 units, in three clusters that differ."""
    n_units = 600
    market = np.arange(n_units) % 3
    visit = rng.random(n_units) < 0.2 + 0.2 * market
    table = pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": rng.permutation(n_units) % 2,
            "market": market,
            "visit": visit.astype(np.int64),
            "spend": visit * rng.integers(0, 4, n_units),
        }
    )
    return cdp.release(
        table,
        unit="user",
        arm="arm",
        cluster="market",
        outcomes={"visit": "0,1", "spend": "0..3"},
        constraint=["spend>0 -> visit"],
        epsilon=3,
        **options,
    )


def expected(question: ReleasedQuestion, measured: DecodedFunction) -> FloatArray:
    """E[g | category], by all outputs; axes `[group, category]`."""
    assert question.channel is not None
    values = measured.outputs.values + measured.outputs.middle
    return np.asarray(np.einsum("gs,gsy->gy", values, question.channel.transition()))


@pytest.mark.parametrize("name", MECHANISMS)
def test_any_function_is_unbiased(name: str, rng: np.random.Generator) -> None:
    release = released(rng, **MECHANISMS[name])
    (question,) = release.questions
    for values in (*np.eye(5), rng.normal(size=5)):
        function = CategoryFunction.from_values("f", values, question.space)
        measured = DecodedFunction.from_question(
            function, question, EstimateRequest(release.layout)
        )
        means = expected(question, measured)
        np.testing.assert_allclose(means, np.broadcast_to(values, means.shape), atol=1e-9)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_noise_of_two_values_is_unbiased(name: str, rng: np.random.Generator) -> None:
    release = released(rng, **MECHANISMS[name])
    (question,) = release.questions
    assert question.channel is not None
    values = np.array([0.0, 1.0, 0.0, 0.0, 1.0])
    function = CategoryFunction.from_values("f", values, question.space)
    outputs = DecodedFunction.from_question(
        function, question, EstimateRequest(release.layout)
    ).outputs
    probs = question.channel.transition()
    true = (probs * (outputs.values[..., np.newaxis] - values + outputs.middle) ** 2).sum(axis=1)
    np.testing.assert_allclose(np.einsum("gs,gsy->gy", outputs.noise, probs), true, atol=1e-9)


def test_a_declared_metric_is_the_combination_of_itself(rng: np.random.Generator) -> None:
    """Also shifted and stretched; its sums and squares follow."""
    release = released(rng, **MECHANISMS["optimal, sums"])
    (question,) = release.questions
    spend = CategoryFunction.declared("spend", question.space, 1)
    other = CategoryFunction.from_values("other", 3 - 2 * spend.values, question.space)
    assert other.combination is not None
    np.testing.assert_allclose(other.combination, [0, -2], atol=1e-12)
    ours, theirs = (one.readings(question.statistics)[0] for one in (other, spend))
    np.testing.assert_allclose(ours.value, -2 * theirs.value)
    assert ours.variance == pytest.approx(4 * theirs.variance)
    assert ours.squares is not None
    assert theirs.squares is not None
    np.testing.assert_allclose(ours.squares, 4 * theirs.squares)
    assert ours.squares_variance == pytest.approx(16 * theirs.squares_variance)


def test_sums_of_two_metrics_combine(rng: np.random.Generator) -> None:
    """Noise is independent, so variances add up. Who spends visits: visit·spend is spend."""
    release = released(rng, **MECHANISMS["optimal, sums"])
    (question,) = release.questions
    visit, spend = (
        CategoryFunction.declared(str(place), question.space, place) for place in range(2)
    )
    both = spend.minus(1.5, visit)
    readings = [one.readings(question.statistics) for one in (both, spend, visit)]
    assert readings[0]
    for ours, first, second in zip(*readings, strict=True):
        np.testing.assert_allclose(ours.value, first.value - 1.5 * second.value)
        assert ours.variance == pytest.approx(first.variance + 2.25 * second.variance)
        # With s and v from their middles, (s − 1.5v)² has the terms s², s and v, v being 0 or 1.
        assert ours.squares is not None
        assert ours.squares_variance > first.squares_variance
    terms = square_terms(both.values, question.space.metric_values(), (False, True))
    assert terms is not None
    metrics = question.space.metric_values()
    middles = (metrics.min(axis=1) + metrics.max(axis=1)) / 2
    distances = (metrics - middles[:, np.newaxis]) ** 2
    middle = (both.values.min() + both.values.max()) / 2
    np.testing.assert_allclose(
        terms[0] + terms[1] @ np.vstack([metrics, distances]),
        (both.values - middle) ** 2,
        atol=1e-9,
    )
    assert square_terms(visit.values * spend.values**3, metrics, (False, True)) is None
    found = CategoryFunction.from_values("found", both.values, question.space)
    assert found.combination is not None
    np.testing.assert_allclose(found.combination, [-1.5, 1], atol=1e-12)


def test_counts_tell_every_function(rng: np.random.Generator) -> None:
    """A weighted sum is not told by the sums of its parts: noise of counts is shared."""
    release = released(rng, **MECHANISMS["cluster"])
    (question,) = release.questions
    values = rng.normal(size=5)
    (reading,) = CategoryFunction.from_values("f", values, question.space).readings(
        question.statistics
    )
    histogram = question.statistics[0].histogram()
    assert histogram is not None
    centred = values - values.mean()
    sums = histogram.noisy_counts[histogram.groups] @ centred
    expected_sums = sums + values.mean() * release.layout.sizes
    np.testing.assert_allclose(reading.value[:, 0], expected_sums)


def test_functions_outside_the_span_are_refused() -> None:
    """A joint channel of twelve categories has a span of fewer dimensions."""
    space = Categories(declared=declare({"a": "0,1", "b": "0,1", "c": "0..2"}))
    rows = cdp.optimal(epsilon=1).settled_rows(space)
    channel, prior = rows.public_channel(space), np.full((1, 12), 1 / 12)
    with pytest.raises(ParameterError, match=r'--metric "a\*b"'):
        CategoryFunction.from_values(
            "a*b", np.prod(space.outcome_values()[:2], axis=0), space
        ).outputs(channel, prior)
    for place in range(3):
        decoded, spanned = channel.decode_function(space.metric_values()[place], prior)
        assert spanned
        np.testing.assert_allclose(decoded, channel.decode(place), atol=1e-6)


def test_channels_are_decoded_for_what_counts_say(rng: np.random.Generator) -> None:
    release = released(rng, **MECHANISMS["optimal, counts"])
    (question,) = release.questions
    priors = channel_priors(question, release.layout)
    np.testing.assert_allclose(priors.sum(axis=1), 1)
    assert question.channel is not None
    assert len(priors) == len(question.channel.possible())
    without = released(rng, **MECHANISMS["optimal"])
    public = channel_priors(without.questions[0], without.layout)
    np.testing.assert_allclose(public, np.full((1, 5), 0.2))


def test_a_number_is_never_of_two_values() -> None:
    """Units lie between two grid points, so their squares do not follow from sums."""
    space = game_space()
    for place, metric in enumerate(space.declared.metrics):
        function = CategoryFunction.declared(str(metric), space, place)
        assert function.has_two_values(space) == space.metric_lattice().has_two_values(place)
