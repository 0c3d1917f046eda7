"""Effects with private clusters: weights that invert the response, and intervals that cover."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from bench.label_coverage import study
from bench.label_draws import LABELS, Clusters
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.cells.assignment import assignment_probs, expected_sizes, parse_by_label
from clusterdp.cells.layout import Layout
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.estimation.effects.intervals import TrueClusterInterval
from clusterdp.estimation.reading.clusters import ClusterInversion

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

PROBS = np.array([[0.8, 0.2], [0.5, 0.5], [0.65, 0.35], [0.4, 0.6]])


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("clusters", [None, ("north", "west", "pooled")])
def test_weights_invert_the_response(epsilon: float, clusters: tuple[str, ...] | None) -> None:
    """Σ K(ℓ|c)·w(ℓ) is what a unit of c is to count as, exactly, pooled labels too."""
    response = ClusterResponse.for_epsilon(LABELS, epsilon)
    chances, inverse = response.probs(clusters), response.inverse(clusters)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(chances @ inverse, np.eye(len(chances)), atol=1e-11)
    if clusters is None:
        weights = ClusterInversion(column="region", groups=LABELS, inverse=inverse, probs=PROBS)
        everyone = weights.factors()
        assert everyone is not None
        np.testing.assert_allclose(chances @ everyone, 1 / PROBS, rtol=1e-9)
        east = weights.factors((("region", "east"), ("tier", 1)))
        assert east is not None
        np.testing.assert_allclose(chances @ east, [[0], [0], [1], [0]], atol=1e-11)


def test_labels_are_given_with_the_stated_probabilities(rng: np.random.Generator) -> None:
    """Counted over every way that a word can go: ends of the ranges, and one beyond."""
    response = ClusterResponse.for_epsilon(LABELS, 1.0)
    ends = response.own + response.other * np.arange(len(LABELS), dtype=np.int64)
    for own in range(len(LABELS)):
        others = [label for label in range(len(LABELS)) if label != own]
        firsts = np.array([0, *ends[:-1]], dtype=np.uint64) << np.uint64(12)
        lasts = (ends.astype(np.uint64) << np.uint64(12)) - np.uint64(1)
        for words in (firsts, lasts):
            given = response.draw(words, np.full(len(LABELS), own))
            assert given.tolist() == [own, *others]
    assert int(ends[-1]) == 2**52
    words = rng.integers(0, 2**64, 20_000, dtype=np.uint64)
    found = np.bincount(response.draw(words, np.full(len(words), 2)), minlength=len(LABELS))
    assert stats.chisquare(found, len(words) * response.probs()[2]).pvalue > ALPHA


def test_the_budget_of_labels_is_used_up_and_not_exceeded() -> None:
    for epsilon, n_labels in itertools.product((1e-3, 0.5, 1.0, 3.0, 12.0), (2, 3, 50, 1000)):
        response = ClusterResponse.for_epsilon([str(one) for one in range(n_labels)], epsilon)
        assert 0.999 * epsilon <= response.guarantee().epsilon <= epsilon


def test_assignment_is_read_by_arm() -> None:
    sizes = np.ones((1, 3), dtype=np.int64)
    layout = Layout(clusters=("all",), arms=("email", "letter", "none"), control=2, sizes=sizes)
    given = parse_by_label("assignment", ["a=email:0.3/letter:0.2, b=letter:0.5/email:0.1"], "ab")
    np.testing.assert_allclose(assignment_probs(given, layout), [[0.3, 0.2, 0.5], [0.1, 0.5, 0.4]])
    with pytest.raises(cdp.ParameterError, match="each treatment"):
        assignment_probs({"a": "email:0.3"}, layout)


def test_expected_sizes_add_up_to_those_of_arms() -> None:
    chances = ClusterResponse.for_epsilon(LABELS, 1.0).probs()
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    for probs in (None, PROBS):
        found = expected_sizes([1001, 499], chances, shares, probs)
        assert found.sum(axis=0).tolist() == [1001, 499]
    alike = expected_sizes([100_000, 100_000], chances, shares, None)
    np.testing.assert_allclose(alike[:, 0] / 100_000, shares @ chances, atol=1e-5)


def people(probs: FloatArray, n_units: int, rng: np.random.Generator) -> pl.DataFrame:
    """An effect of 1 everywhere; those who are treated more often have larger outcomes."""
    clusters = np.arange(n_units) % len(LABELS)
    arm = rng.random(n_units) < probs[clusters, 1]
    outcome = clusters + arm + rng.integers(0, 2, n_units)
    return pl.DataFrame(
        {
            "user": np.arange(n_units),
            "arm": arm.astype(np.int64),
            "region": np.array(LABELS)[clusters],
            "tier": rng.integers(0, 2, n_units),
            "y": outcome,
        }
    )


PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "arm",
    "cluster": "region",
    "outcomes": {"y": "0..5"},
    "passthrough": "tier",
    "mechanism": cdp.optimal(epsilon=8, sums=cdp.SumShares(totals=0.1)),
    "private_cluster": 1.0,
    "labels": list(LABELS),
}


def test_declared_probabilities_remove_the_bias(rng: np.random.Generator) -> None:
    """Within noisy labels alone an effect of 1 is found far off. False alarms: 1e-6 each."""
    table = people(PROBS, 20_000, rng)
    declared = dict(zip(LABELS, PROBS[:, 1].tolist(), strict=True))
    alike = cdp.estimate(cdp.release(table, **PARTS))
    assert any("noisy clusters, which mix true ones" in one for one in alike.warnings)
    assert not any("expected if planned" in one for one in alike.warnings)
    reach = stats.norm.isf(ALPHA / 2)
    assert abs(alike.effect - 1) > reach * alike.std_error
    release = cdp.release(table, **PARTS, assignment=declared)
    found = cdp.estimate(release, by=["region", "tier", "region,tier"])
    assert found.warnings == ()
    for one in found.effects:
        low, high = one.ci(1 - ALPHA)
        assert low <= 1 <= high, one.of.label
    groups = [one for one in found.effects if "region" in dict(one.of.segment)]
    assert len(groups) == 3 * len(LABELS)
    # Who is in a cluster is estimated, and adds up to everyone.
    whole = [one for one in groups if len(one.of.segment) == 1]
    assert sum(one.n_treated + one.n_control for one in whole) == pytest.approx(20_000, abs=8)
    calibrated = cdp.calibrated_rows(release).with_columns(
        weighted=pl.col("y_calibrated") * pl.col("stratified_weight")
    )
    sums = calibrated.group_by("arm").agg(pl.col("weighted", "stratified_weight").sum()).sort("arm")
    means = (sums["weighted"] / sums["stratified_weight"]).to_list()
    assert means[1] - means[0] == pytest.approx(found.effects[0].effect)


def test_wrong_probabilities_are_noticed(rng: np.random.Generator) -> None:
    table = people(PROBS, 20_000, rng)
    wrong = cdp.release(table, **PARTS, assignment=dict.fromkeys(LABELS, 0.45))
    assert any("true clusters" in one for one in cdp.estimate(wrong).warnings)


def test_what_labels_do_not_tell_is_refused(rng: np.random.Generator) -> None:
    table = people(PROBS, 400, rng)
    alike = cdp.release(table, **PARTS)
    declared = cdp.release(table, **PARTS, assignment=dict.fromkeys(LABELS, 0.5))
    with pytest.raises(cdp.ParameterError, match="cannot be compared"):
        cdp.estimate(alike, by="region", differences="rest")
    with pytest.raises(cdp.ParameterError, match="cannot be adjusted"):
        cdp.estimate(alike, by="region", adjust="tier")
    with pytest.raises(cdp.ParameterError, match="cannot be adjusted"):
        cdp.estimate(declared, adjust="tier")
    with pytest.raises(cdp.ParameterError, match="cannot be adjusted, complier effects"):
        cdp.estimate(alike, by="region", exposure="tier")
    with pytest.raises(cdp.ParameterError, match="unstratified means are biased"):
        cdp.estimate(declared, estimator="unstratified")


def test_a_cluster_that_may_be_empty_has_no_bounds() -> None:
    told = TrueClusterInterval(effect=1.0, variance=0.04, lean=0.0, spread=0.01, degrees=np.inf)
    low, high = told.ci(0.95)
    assert low < 1 - 1.96 * 0.2 < 1 + 1.96 * 0.2 < high
    # The p-value is that of the interval which ends at zero.
    assert told.ci(1 - told.p_value)[0] == pytest.approx(0, abs=1e-9)
    unknown = TrueClusterInterval(effect=9.0, variance=0.04, lean=0.0, spread=0.3, degrees=np.inf)
    assert unknown.ci(0.95) == (-np.inf, np.inf)
    assert unknown.p_value > 0.05
    assert unknown.ci(1 - 1.01 * unknown.p_value)[0] > 0


N_REPLICATES = 200


@pytest.mark.parametrize("assigned", ["equal", "unequal"])
def test_intervals_cover(assigned: str, rng: np.random.Generator) -> None:
    """A part of `make bench-labels`. False alarms: ALPHA for each if intervals cover 93.5%."""
    fewest = stats.binom.ppf(ALPHA, N_REPLICATES, 0.935) / N_REPLICATES
    found = study(Clusters.of(20_000, assigned, 1.0), N_REPLICATES, rng)
    assert len(found) == 1 + len(LABELS)
    assert all(one.covered >= fewest for one in found.values()), found


def test_undeclared_probabilities_do_not_cover(rng: np.random.Generator) -> None:
    """The negative control: units of unequal shares, taken for equal ones."""
    fewest = stats.binom.ppf(ALPHA, N_REPLICATES, 0.935) / N_REPLICATES
    found = study(UndeclaredClusters.of(20_000, "unequal", 1.0), 50, rng)
    assert found["everyone"].covered < fewest


class UndeclaredClusters(Clusters):
    """Clusters whose probabilities of arms nobody declared."""

    def weights(self) -> ClusterInversion:
        """Those of equal probabilities."""
        return ClusterInversion(
            column="region", groups=LABELS, inverse=self.response.inverse(), probs=None
        )
