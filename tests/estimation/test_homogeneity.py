"""What clusters take off sampling variances: unbiased, and with errors that cover."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA, assert_variance
from categories import one_outcome
from clusterdp.cells.layout import Layout
from clusterdp.estimation.cluster_gain import ArmMoments, cluster_gains
from clusterdp.estimation.means.responses import ResponseValues
from clusterdp.studies.formulas import homogeneity
from clusterdp.studies.simulation import Population
from populations import many_small_clusters, rare_binary

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.channels import Channel
    from clusterdp.estimation.cluster_gain import ClusterGain
    from clusterdp.outcomes.space import CategorySpace

N_REPLICATES = 800


def gain_of(
    clusters: IntArray, values: FloatArray, noise: FloatArray, sizes: IntArray
) -> ArmMoments:
    return ArmMoments(clusters, np.ones(len(clusters), dtype=np.int64), values, noise, sizes)


def test_both_variances_are_unbiased_over_all_assignments() -> None:
    """Against the paper's definition, from true outcomes; clusters have different arm shares."""
    space = cdp.OutcomeSpace.of([0, 1, 5])
    units = [np.array([0, 1, 2, 2]), np.array([0, 0, 1, 2, 1])]
    layout = Layout(clusters=(0, 1), arms=(0, 1), control=0, sizes=np.array([[2, 2], [2, 3]]))
    population = Population(
        type_outcomes=np.tile(np.arange(3)[:, np.newaxis], 2),
        type_counts=np.stack([np.bincount(one, minlength=3) for one in units]),
        layout=layout,
        space=space,
    )
    found = []
    for chosen in itertools.product(
        itertools.combinations(units[0], 2), itertools.combinations(units[1], 3)
    ):
        values = space.metric_values()[0][np.concatenate(chosen)]
        clusters = np.repeat([0, 1], [2, 3])
        rows = gain_of(clusters, values, np.zeros(5), np.array([4, 5]))
        found.append(rows.gain("y", 1)[2:6:2])
    within, merged = np.mean(found, axis=0)
    assert within == pytest.approx(homogeneity(population)[1], rel=1e-12)
    alone = homogeneity(population.merged())[1]
    assert merged == pytest.approx(alone, rel=1e-12)


@pytest.mark.parametrize("space", [cdp.OutcomeSpace.binary(), cdp.OutcomeSpace.of([0, 1, 5])])
def test_noise_of_rows_causes_no_bias(space: cdp.OutcomeSpace) -> None:
    """The expectation over every combination of responses is what true outcomes give."""
    channel, outputs = public_channel(one_outcome("y", space), epsilon=1.0)
    given, clusters = np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1])
    probs = channel.transition()[0]
    n_responses = len(probs)
    expected = np.zeros(2)
    for responses in itertools.product(range(n_responses), repeat=len(given)):
        chance = probs[list(responses), given].prod()
        values, noise = (one[0, list(responses)] for one in (outputs.values, outputs.noise))
        if chance:
            rows = gain_of(clusters, values, noise, np.array([4, 6]))
            expected += chance * np.array(rows.gain("y", 1)[2:6:2])
    true = gain_of(clusters, space.metric_values()[0][given], np.zeros(4), np.array([4, 6]))
    assert expected == pytest.approx(np.array(true.gain("y", 1)[2:6:2]), rel=1e-9)


def public_channel(space: CategorySpace, epsilon: float) -> tuple[Channel, ResponseValues]:
    channel = cdp.optimal(epsilon=epsilon).settled_rows(space).public_channel(space)
    return channel, ResponseValues.from_channel(channel, space)


class Drawn:
    """Clusters of different kinds, whose rows are drawn again and again."""

    def __init__(
        self, n_values: int, n_clusters: int, mean_size: int, apart: float, rng: np.random.Generator
    ) -> None:
        self.space = one_outcome("y", cdp.OutcomeSpace.integers(0, n_values - 1))
        self.channel, self.outputs = public_channel(self.space, epsilon=2.0)
        self.cluster_sizes = 2 * rng.integers(mean_size // 2, 2 * mean_size, n_clusters)
        shares = rng.uniform(0.35, 0.65, n_clusters)
        self.sizes = np.maximum((self.cluster_sizes * shares).astype(np.int64), 2)
        values = np.arange(n_values)
        tilts = np.exp(apart * np.outer(rng.normal(size=n_clusters), values) / (n_values - 1))
        # Far from a mean of 0.5, where the variance of two values is at its largest and has errors
        # to one side only.
        probs = 0.3**values * tilts
        self.probs = probs / probs.sum(axis=1, keepdims=True)
        means, self.shares = self.probs @ values, self.cluster_sizes / self.cluster_sizes.sum()
        spread = self.probs @ values**2 - means**2
        n_units = self.cluster_sizes.sum()
        # Of all units, drawn anew: the squared mean of clusters is of as many draws.
        square = (self.shares @ means) ** 2 + self.shares**2 / self.cluster_sizes @ spread
        self.within = self.shares**2 / self.sizes @ spread
        everyone = self.shares @ (spread + means**2) - square
        self.merged = n_units / (n_units - 1) / self.sizes.sum() * everyone

    @property
    def gain(self) -> float:
        return 1 - float(self.within / self.merged)

    def draw(self, rng: np.random.Generator) -> ArmMoments:
        released = self.probs @ self.channel.transition()[0].T
        counts = rng.multinomial(self.sizes, released)
        clusters, responses = np.nonzero(counts)
        values, noise = (one[0, responses] for one in (self.outputs.values, self.outputs.noise))
        return ArmMoments(clusters, counts[clusters, responses], values, noise, self.cluster_sizes)


@pytest.mark.parametrize(
    ("n_values", "n_clusters", "mean_size", "apart"),
    [(2, 40, 80, 0.0), (2, 40, 80, 1.5), (5, 40, 240, 1.0), (3, 300, 6, 1.0)],
    ids=["alike", "apart", "five values", "small cells"],
)
def test_two_standard_errors_cover(
    n_values: int, n_clusters: int, mean_size: int, apart: float, rng: np.random.Generator
) -> None:
    """95.4% by a normal law; 93% is right, and variances by a fifth.

    False alarms: ALPHA for each of six assertions. Variances are some eight standard errors above
    zero or more, so that gains exist.
    """
    drawn = Drawn(n_values, n_clusters, mean_size, apart, rng)
    gains = [drawn.draw(rng).gain("y", 0) for _ in range(N_REPLICATES)]
    true = np.array([drawn.within, drawn.merged, drawn.gain])
    estimates, errors = (np.array([one[first:8:2] for one in gains]) for first in (2, 3))
    covered = (np.abs(estimates - true) <= 2 * errors).sum(axis=0)
    assert covered.min() >= stats.binom(N_REPLICATES, 0.93).ppf(ALPHA)
    for found, error in zip(estimates.T, errors.T, strict=True):
        assert_variance(found, float((error**2).mean()), relative_error=0.2)


def test_errors_without_pairs_would_not_cover(rng: np.random.Generator) -> None:
    """The negative control: of clusters that are alike, the gain is all noise of pairs."""
    drawn = Drawn(2, 40, 80, 0.0, rng)
    covered = 0
    for _ in range(N_REPLICATES):
        rows = drawn.draw(rng)
        found, ratio = rows.gain("y", 0), drawn.within / drawn.merged
        units = max(rows.unit_variance(1.0, -ratio * rows.merged_weight), 0.0)
        covered += abs(found.gain - drawn.gain) <= 2 * np.sqrt(units) / found.merged
    assert covered < stats.binom(N_REPLICATES, 0.93).ppf(ALPHA)


@pytest.mark.parametrize("build", [rare_binary, many_small_clusters], ids=lambda one: one.__name__)
def test_a_release_shows_what_theory_says(
    build: Callable[[np.random.Generator], Population], rng: np.random.Generator
) -> None:
    """Within six standard errors of the definition; false alarms: below 1e-8 of a normal law."""
    population = build(rng)
    layout, space = population.layout, population.space
    counts = population.assign(1, rng)[0]
    cells = [(c, a, y) for (c, a, y), n in np.ndenumerate(counts) for _ in range(n)]
    table = pl.DataFrame(cells, schema=["cluster", "arm", "code"], orient="row")
    values = pl.Series(space.metric_values()[0])
    table = table.with_columns(unit=pl.int_range(pl.len()), y=values.gather(table["code"]))
    released = cdp.release(
        table,
        outcomes={"y": ",".join(map(str, space.metric_values()[0]))},
        unit="unit",
        arm="arm",
        cluster="cluster",
        control=layout.control,
        mechanism=cdp.optimal(epsilon=4),
    )
    found = cluster_gains(released)
    assert [one.arm for one in found] == list(range(len(layout.arms)))
    if (layout.sizes >= 2).all():
        for one, within in zip(found, homogeneity(population), strict=True):
            assert abs(one.within - within) < 6 * one.within_error


@pytest.mark.parametrize(
    "options",
    [
        {"cluster": None, "mechanism": cdp.uniform_prior_dp(epsilon=1)},
        {"mechanism": cdp.noisy_histogram(epsilon=1)},
    ],
    ids=["no clusters", "no rows"],
)
def test_nothing_to_say(options: dict[str, Any], table: pl.DataFrame) -> None:
    given: dict[str, Any] = {
        "outcomes": {"clicks": "0..3"},
        "unit": "user",
        "arm": "treated",
        "cluster": "market",
    }
    assert cluster_gains(cdp.release(table, **{**given, **options})) == []


def test_noise_that_hides_the_variance() -> None:
    """A gain is a share of something: where that may be zero, there is none."""
    hidden = gain_of(
        np.array([0, 0, 1, 1]), np.array([9.0, -9, 9, -9]), np.full(4, 100.0), np.array([4, 4])
    )
    found: ClusterGain = hidden.gain("y", 0)
    assert found.row()[-1] == "too noisy"
