"""A test that effects of segments are the same keeps its level, whatever the tails of noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from clusterdp.estimation.effects.effect import EffectTarget
from clusterdp.estimation.metrics.mean import SegmentErrors, _same_effects

N_SEGMENTS, N_DRAWS = 30, 3000


def errors(effects: np.ndarray, share: float) -> SegmentErrors:
    """Effects of variance 1, of which published sums have a share, one for each segment."""
    covariances = np.eye(N_SEGMENTS)
    return SegmentErrors(
        effects=effects,
        sampling=(1 - share) * covariances,
        privacy=share * covariances,
        known=share * covariances,
        degrees=np.full(N_SEGMENTS, 1e6),
        by_sums=np.sqrt(share) * covariances,
    )


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_level_holds_under_laplace_noise(share: float, rng: np.random.Generator) -> None:
    """With normal degrees of freedom 11% would be rejected if all noise is Laplace's.

    Three moments are matched, so that 4.1 to 5.2% are (6,000 draws each). A rate has a standard
    error of 0.4%, and five of them are added: a false alarm is below 1 in a million.
    """
    size = (N_DRAWS, N_SEGMENTS)
    drawn = np.sqrt(1 - share) * rng.normal(size=size)
    drawn += np.sqrt(share / 2) * rng.laplace(size=size)
    of = EffectTarget("score", 1, 0, (("region", "north"),))
    found = [_same_effects(errors(one, share), of) for one in drawn]
    rejected = np.mean([one.p_value < 0.05 for one in found])
    assert 0.041 - 5 * 0.004 < rejected < 0.052 + 5 * 0.004
    # Each of 30 sums counts 29/30 of the share.
    counted = share * 29 / 30
    variance = 58 + 3 * 30 * counted**2
    third = 8 * 29 + 30 * (36 * counted**2 + 30 * counted**3)
    assert found[0].effect_degrees == pytest.approx(8 * variance**3 / third**2)


@pytest.mark.parametrize(("degrees", "share"), [(25, 0.0), (25, 0.5), (100, 0.5)])
def test_the_level_holds_where_variances_are_estimated(
    degrees: int, share: float, rng: np.random.Generator
) -> None:
    """Those of sampling, with few degrees of freedom: 30 segments of 13 units in each arm, or 51.

    By 20,000 draws each, 4.7 to 5.3% are rejected. Without Welch's correction it would be 11% of
    the first. A rate has a standard error of 0.4%, and five of them are added, as above.
    """
    size = (N_DRAWS, N_SEGMENTS)
    drawn = np.sqrt(1 - share) * rng.normal(size=size)
    drawn += np.sqrt(share / 2) * rng.laplace(size=size)
    sampling = (1 - share) * rng.chisquare(degrees, size) / degrees
    of, rejected = EffectTarget("score", 1, 0, (("region", "north"),)), []
    for one, estimated in zip(drawn, sampling, strict=True):
        known = errors(one, share)
        known = known._replace(
            sampling=np.diag(estimated),
            degrees=degrees * ((estimated + share) / np.maximum(estimated, 1e-9)) ** 2,
        )
        rejected.append(_same_effects(known, of).p_value < 0.05)
    assert 0.045 - 5 * 0.004 < np.mean(rejected) < 0.057 + 5 * 0.004


def test_the_spread_of_small_groups_is_not_understated(rng: np.random.Generator) -> None:
    """Groups of 40, known by their totals about as well as by their rows.

    Variances of sampling are 1.7% too large on average, from rounding, with a standard error of
    1.1% over 600 groups; five of them are added. They were 7.7% too small: outcomes were compared
    with a noisy mean, and published squares were weighed by themselves.
    """
    n_groups, size, ratios = 100, 40, []
    groups = np.repeat(np.arange(n_groups), size)
    for _ in range(6):
        arms = np.concatenate([rng.permutation(np.arange(size) % 2) for _ in range(n_groups)])
        scores = np.clip(np.rint(rng.normal(50, 22, len(groups))), 0, 100)
        table = pl.DataFrame({"id": range(len(groups)), "group": groups, "arm": arms, "y": scores})
        asked: dict[str, Any] = {"unit": "id", "arm": "arm", "breakdown": "group", "epsilon": 4}
        release = cdp.release(table, outcomes={"y": "number:0..100"}, **asked)
        effects = [one for one in cdp.estimate(release, by="group").effects if one.of.segment]
        found = {one.of.segment[0][1]: one.std_error**2 - one.privacy_variance for one in effects}
        cells = table.group_by("group", "arm").agg(known=pl.col("y").var() / pl.len())
        known = cells.group_by("group").agg(pl.col("known").sum())
        ratios += [found[group] / variance for group, variance in known.iter_rows()]
    assert 1.017 - 5 * 0.011 < np.mean(ratios) < 1.017 + 5 * 0.011
