"""Each method of others against what its paper states: unbiased, private, of known variance."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bench.peers import (
    binned_sums,
    disobedience,
    forced_response,
    local_laplace,
    subsample_aggregate,
)
from bench.peers.given import RowsGiven, difference_in_means
from bench.peers.ours import EXPERIMENT, one_cluster, planned, table_of
from bench.peers.simulated import FewRespond, SimulatedPopulation
from bench.peers.subsample_aggregate import EFFECT_SHARE
from scipy import stats

import clusterdp as cdp
from assertions import assert_mean, assert_variance

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.trial import Sample

EPSILONS = [0.5, 1.0, 2.0, 4.0]
POPULATION = SimulatedPopulation(FewRespond(), n_units=4000)
Z = float(stats.norm.isf(0.025))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


@pytest.fixture
def sample(rng: np.random.Generator) -> Sample:
    return POPULATION.draw(rng).sample


def loss(channel: np.ndarray) -> float:
    """The largest log ratio of probabilities of an answer; axes `[outcome, answer]`."""
    return float(np.log(channel.max(axis=0) / channel.min(axis=0)).max())


@pytest.mark.parametrize("mechanism", [cdp.optimal, cdp.uniform_prior_dp])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_forced_response_is_ours_for_two_outcomes_to_the_digit(
    mechanism: Callable[..., cdp.Mechanism], epsilon: float, sample: Sample
) -> None:
    """The same rows give the same effect and the same standard error."""
    release = cdp.release(table_of(sample), mechanism=mechanism(epsilon=epsilon), **EXPERIMENT)
    answers = release.units.sort("user")["response"].to_numpy()
    device = forced_response.fair_device(epsilon)
    theirs = difference_in_means((answers - device.yes_prob) / device.truth_prob, sample.arms)
    found = cdp.estimate(release, estimator="unstratified").effects[0]
    assert theirs.effect == pytest.approx(found.effect, rel=1e-10, abs=1e-12)
    assert (theirs.high - theirs.low) / 2 == pytest.approx(Z * found.std_error, rel=1e-10)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_devices_are_as_private_as_stated(epsilon: float) -> None:
    for device in disobedience.devices_at(epsilon):
        assert loss(device.channel()) == pytest.approx(epsilon)


def test_a_more_truthful_device_is_caught() -> None:
    forced = forced_response.fair_device(1.0).yes_prob
    assert loss(forced_response.Device(forced, 0.9 * forced).channel()) > 1.05


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_forced_response_is_unbiased_with_the_variance_of_its_formula(epsilon: float) -> None:
    """Exactly, over the channel: its noise has variance e^ε/(e^ε − 1)² whatever the outcome."""
    device = forced_response.fair_device(epsilon)
    values = (np.arange(2) - device.yes_prob) / device.truth_prob
    means = device.channel() @ values
    assert means == pytest.approx([0, 1])
    assert device.channel() @ values**2 - means**2 == pytest.approx(
        np.exp(epsilon) / (np.exp(epsilon) - 1) ** 2
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("obeying", [1.0, 0.9, 0.6])
def test_two_devices_give_the_effect_on_those_who_obey(epsilon: float, obeying: float) -> None:
    """From the shares of yes that the design expects; one device is biased by that share."""
    devices, means = disobedience.devices_at(epsilon), np.array([0.2, 0.35])
    told = np.array([one.yes_prob + one.truth_prob * means for one in devices]).T
    sizes, shares = np.full((2, 2), 1000), np.array([0.5, 0.5])
    weights = disobedience.weights_of(devices)
    found = disobedience.ratio_of_cells(obeying * told, sizes, shares, weights)
    assert found.effect == pytest.approx(0.15)
    fair = devices[0]
    debiased = (obeying * told[:, 0] - fair.yes_prob) / fair.truth_prob
    assert debiased[1] - debiased[0] == pytest.approx(obeying * 0.15)


def test_intervals_of_two_devices_have_the_variance_of_their_draws(
    rng: np.random.Generator,
) -> None:
    """Shares of yes are means of many answers, drawn as such."""
    devices, means, sizes = (
        disobedience.devices_at(2.0),
        np.array([0.2, 0.3]),
        np.full((2, 2), 5000),
    )
    told = 0.9 * np.array([one.yes_prob + one.truth_prob * means for one in devices]).T
    weights, shares = disobedience.weights_of(devices), np.array([0.5, 0.5])
    found = [
        disobedience.ratio_of_cells(yes / sizes, sizes, shares, weights)
        for yes in rng.binomial(sizes, told, size=(4000, 2, 2))
    ]
    stated = np.mean([((one.high - one.low) / 2 / Z) ** 2 for one in found])
    effects = np.array([one.effect for one in found])
    assert_variance(effects, float(stated), relative_error=0.02)
    with pytest.raises(AssertionError):
        assert_variance(effects, 0.8 * float(stated), relative_error=0.02)


def test_terms_without_noise_are_one_cluster_of_horvitz_thompson(
    sample: Sample, rng: np.random.Generator
) -> None:
    """So is ours with all but no noise; and both are the difference in means."""
    terms = local_laplace.terms_of(sample.outcomes, sample.arms)
    plain = difference_in_means(sample.outcomes.astype(float), sample.arms)
    assert terms.mean() == pytest.approx(plain.effect)
    ours = one_cluster(sample, 1000.0, rng).overall()
    assert ours.effect == pytest.approx(plain.effect, abs=1e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_local_noise_has_n_times_the_variance_of_central_noise(
    sample: Sample, rng: np.random.Generator, epsilon: float
) -> None:
    spans = local_laplace.spans_in_arm(sample.arms)
    local = 2 * (spans**2).sum() / epsilon**2 / sample.n_units**2
    central = cdp.estimate(one_cluster(sample, epsilon, rng).release).effects[0].privacy_variance
    assert local / central == pytest.approx(sample.n_units, rel=1e-3)


def test_terms_differ_by_no_more_than_their_span() -> None:
    """Over all pairs of arms and outcomes that may be mistaken for one another."""
    arms = np.array([0, 0, 0, 1])  # a quarter is treated
    terms = {
        (arm, y): local_laplace.terms_of(np.full(4, y), arms)[place]
        for arm, place in ((0, 0), (1, 3))
        for y in (0, 1)
    }
    moves = [abs(one - other) for one, other in itertools.combinations(terms.values(), 2)]
    assert max(moves) == pytest.approx(local_laplace.spans_of_anyone(arms)[0])
    for arm, place in ((0, 0), (1, 3)):
        span = local_laplace.spans_in_arm(arms)[place]
        assert abs(terms[arm, 1] - terms[arm, 0]) == pytest.approx(span)
        assert max(moves) > 1.2 * span  # the span of public arms does not protect arms


def test_noisy_terms_are_unbiased_with_the_variance_of_their_formula(
    sample: Sample, rng: np.random.Generator
) -> None:
    true = local_laplace.terms_of(sample.outcomes, sample.arms)
    for release, spans in (
        (local_laplace.outcome_alone, local_laplace.spans_in_arm),
        (local_laplace.arm_and_outcome, local_laplace.spans_of_anyone),
    ):
        scaled = (release(sample, 0.5, rng).terms - true) / (spans(sample.arms) / 0.5)
        assert_mean(scaled, 0, 2**0.5)
        assert_mean(scaled**2, 2, 20**0.5)  # the fourth moment of a Laplace draw is 24
        with pytest.raises(AssertionError):
            assert_mean((scaled * 1.5) ** 2, 2, 20**0.5)


def test_no_record_moves_a_subset_by_more_than_its_range() -> None:
    """All tables of five records in a subset, and all changes of one record."""
    records = list(itertools.product((0, 1), repeat=2))  # arm and outcome
    found = {}
    for table in itertools.product(range(4), repeat=5):
        arms, outcomes = np.array([records[one] for one in table]).T
        effect, variance = subsample_aggregate.estimates_in(np.zeros(5, int), 1, outcomes, arms)
        found[table] = np.array([effect[0], variance[0]])
    moves = [
        np.abs(found[table] - found[(*table[:place], other, *table[place + 1 :])])
        for table in found
        for place in range(5)
        for other in range(4)
    ]
    most = np.max(moves, axis=0)
    assert most[0] <= subsample_aggregate.EFFECT_RANGE
    assert most[1] <= subsample_aggregate.VARIANCE_RANGE
    assert most[1] > subsample_aggregate.VARIANCE_RANGE / 2  # half of it would not be private


def test_subsets_are_unbiased_and_the_posterior_has_all_of_the_variance(
    sample: Sample, rng: np.random.Generator
) -> None:
    """At ε = 3 the noisy variance is off by a third; its mean over 1,000 releases by a percent."""
    n_subsets, epsilon = sample.n_units // subsample_aggregate.UNITS_PER_SUBSET, 3.0
    scale = subsample_aggregate.EFFECT_RANGE / n_subsets / epsilon / EFFECT_SHARE
    drawn = [subsample_aggregate.release(sample, epsilon, rng).draws for _ in range(1000)]
    _, variances = subsample_aggregate.subset_estimates(sample.outcomes, sample.arms, rng)
    sampling = variances.mean() / n_subsets
    spread = np.mean([one.var() for one in drawn])
    assert spread == pytest.approx(sampling + 2 * scale**2, rel=0.06)
    assert spread != pytest.approx(sampling, rel=0.06)  # the noise is in it, too
    whole = difference_in_means(sample.outcomes.astype(float), sample.arms).effect
    medians = np.array([np.median(one) for one in drawn])
    assert_mean(medians, whole, 1.2 * (2 * scale**2 + sampling) ** 0.5)


def test_draws_between_ends_follow_the_laplace_law(rng: np.random.Generator) -> None:
    """Also where nearly all of it is beyond an end."""
    for middle in (-0.3, 0.1, 0.5, 0.9):
        draws = subsample_aggregate.draw_between(middle, 0.1, 0.5, 40_000, rng)
        grid = np.linspace(0, 0.5, 5001)
        density = np.exp(-np.abs(grid - middle) / 0.1)
        mean = float((grid * density).sum() / density.sum())
        assert_mean(draws, mean, 0.15)
        assert draws.min() >= 0
        assert draws.max() <= 0.5


def test_sums_of_bins_have_the_noise_that_one_outcome_needs(rng: np.random.Generator) -> None:
    noise = binned_sums.noisy(np.zeros(20_000), 0.5, rng) * 0.5
    assert_mean(noise**2, 2, 20**0.5)
    with pytest.raises(AssertionError):
        assert_mean((noise / 2) ** 2, 2, 20**0.5)  # half the noise is ε = 1


def test_bins_without_noise_are_the_stratified_estimate(
    sample: Sample, rng: np.random.Generator
) -> None:
    given = binned_sums.release(sample, 1e9, rng, n_bins=4)
    strata = [
        (given.bins == one).mean()
        * difference_in_means(
            sample.outcomes[given.bins == one].astype(float), sample.arms[given.bins == one]
        ).effect
        for one in range(4)
    ]
    assert given.overall().effect == pytest.approx(sum(strata), abs=1e-6)
    assert given.segment(given.bins == 2).effect == pytest.approx(
        strata[2] / (given.bins == 2).mean(), abs=1e-6
    )


@pytest.mark.parametrize("purpose", [None, "overall", "segments:0.1"])
def test_ours_promises_the_epsilon_that_was_asked_for(
    sample: Sample, rng: np.random.Generator, purpose: str | None
) -> None:
    given = planned(sample, 1.0, rng, optimize_for=purpose)
    assert given.release.guarantee.epsilon <= 1.0
    assert given.release.guarantee.delta == 0


def test_linear_models_of_rows_find_a_linear_effect(rng: np.random.Generator) -> None:
    features, arms = rng.normal(size=(500, 3)), np.arange(500) % 2
    values = 1 + features @ [1.0, 2.0, 0.0] + arms * (0.5 + features @ [0.0, -1.0, 3.0])
    rows = RowsGiven(values=values, arms=arms, features=features)
    assert rows.uplift(features) == pytest.approx(0.5 + features @ [0.0, -1.0, 3.0])
