"""Every kind of effect is unbiased, and its privacy variance is right: by enumeration.

All responses of eight units are enumerated with their exact probabilities. The estimate is affine
in published sums, so their noise is stood for by none, and by one unit of it on each sum.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome
from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.channels.base import TABLE_TOTAL
from clusterdp.estimation.means import adjustment
from clusterdp.rows.keys import ReleaseKey, UnitIds, fold_numbers
from clusterdp.spec.columns import RESPONSE, Columns
from clusterdp.statistics.noise import ALONE, noise_variance
from runs import run_release

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.statistics.noise import NoiseSource

KEY = ReleaseKey(b"k" * 32)
SPACE = one_outcome("clicks", cdp.OutcomeSpace.of([0, 1]))
COLUMNS = Columns(
    unit="user",
    arm="treated",
    cluster="market",
    outcomes=("clicks",),
    breakdowns=(("region",),),
    folds=2,
)
# Some units have the largest weight and others do not.
CAPPED = 2.0
LEVELS = {
    "totals": cdp.SumShares(totals=0.2, noise_in_rows=CAPPED),
    "clusters": cdp.SumShares(clusters=0.3),
    "breakdown": cdp.SumShares(breakdowns=((("region",), 0.3),), noise_in_rows=CAPPED),
    "all": cdp.SumShares(
        totals=0.1, clusters=0.2, breakdowns=((("region",), 0.2),), noise_in_rows=CAPPED
    ),
}
# What is asked of `estimate`; the analyst's table has a tier and a covariate.
ASKED: dict[str, dict[str, Any]] = {
    "everything": {"by": ["tier", "region"], "differences": "rest"},
    "adjusted": {"adjust": "before"},
    "held out": {"fold": 1},
    "unstratified": {"estimator": "unstratified", "by": "tier"},
}
# Overall, in two tiers and two regions, and the first of these against the other.
N_EFFECTS = {"everything": 7, "adjusted": 2, "held out": 1, "unstratified": 3}


def eight_units() -> pl.DataFrame:
    """Arms have one and three units in a market; two in each fold, region and tier."""
    ids = np.arange(200)
    folds = fold_numbers(UnitIds(pl.Series(ids)), 2)
    users = [*ids[folds == 0][:4], *ids[folds == 1][:4]]
    return pl.DataFrame(
        {
            "user": users,
            "treated": [0, 0, 1, 1, 0, 0, 1, 1],
            "market": [0, 1, 0, 0, 1, 1, 0, 1],
            "region": ["n", "s", "s", "n", "s", "n", "n", "s"],
            "clicks": [1, 0, 1, 1, 1, 0, 0, 0],
            "tier": ["a", "b", "a", "b", "a", "b", "a", "b"],
            "before": [0.3, 1.0, -0.4, 2.0, 0.8, -1.1, 0.1, 0.6],
        }
    )


def release(mechanism: Mechanism, add_noise: NoiseSource) -> cdp.Release:
    table = eight_units().drop("tier", "before")
    return run_release(
        table, mechanism=mechanism, space=SPACE, columns=COLUMNS, key=KEY, add_noise=add_noise
    )


def effects(of: cdp.Release, asked: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
    """All effects, and their privacy variances."""
    own = eight_units().select("user", "tier", "before")
    needs_own = "tier" in str(asked) or "before" in str(asked)
    found = cdp.estimate(of, segments=own if needs_own else None, **asked).effects
    return (
        np.array([one.effect for one in found]),
        np.array([one.privacy_variance for one in found]),
    )


def every_response(of: cdp.Release) -> Iterator[tuple[float, cdp.Release]]:
    """The release with all responses that its rows can have, and their probabilities."""
    channel = of.questions[0].channel
    assert isinstance(channel, OptimalChannel)
    probs = channel.tables[0] / TABLE_TOTAL  # one channel for all cells
    table = eight_units()
    outcomes = dict(zip(table["user"], table["clicks"], strict=True))
    true = [outcomes[user] for user in of.units["user"]]
    for responses in itertools.product(range(probs.shape[1]), repeat=len(true)):
        chance = float(np.prod(probs[true, responses]))
        if chance > 0:
            drawn = pl.Series(RESPONSE, responses, dtype=of.units[RESPONSE].dtype)
            yield chance, replace(of, units=of.units.with_columns(drawn))


def truthful(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
    """Sums without noise."""
    return values


def one_more(place: int, scales: list[float]) -> NoiseSource:
    """One unit of noise on the sum of some place; its scale is appended to a list."""
    n_seen = 0

    def add_noise(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        nonlocal n_seen
        noisy = values.copy()
        if n_seen <= place < n_seen + values.size:
            noisy.flat[place - n_seen] += 1
            scales.append(scale)
        n_seen += values.size
        return noisy

    return add_noise


def sum_noise(mechanism: Mechanism, asked: dict[str, Any]) -> FloatArray:
    """b'Wb: what the noise of sums adds to the variance of each effect, sum by sum."""
    without, _ = effects(release(mechanism, truthful), asked)
    total = np.zeros_like(without)
    for place in itertools.count():
        scales: list[float] = []
        moved = effects(release(mechanism, one_more(place, scales)), asked)[0] - without
        if not scales:
            return total
        total += moved**2 * noise_variance(scales[0])
    raise AssertionError


@pytest.mark.parametrize(
    ("level", "asked"),
    [
        ("all", "everything"),
        *(
            pytest.param(level, asked, marks=pytest.mark.slow)
            for level in ("all", "totals")
            for asked in ASKED
            if (level, asked) != ("all", "everything")
        ),
    ],
)
def test_effects_are_unbiased_with_the_right_variance(
    level: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expected effect is that of true outcomes with the same weights.

    Slopes count in full: how much of them counts depends on how much outcomes seem to vary.
    """
    monkeypatch.setattr(adjustment, "_best_share", lambda *_: 1.0)
    mechanism = cdp.optimal(epsilon=1, sums=LEVELS[level], prior=[0.7, 0.3])
    published = release(mechanism, truthful)
    found = [(chance, *effects(one, ASKED[asked])) for chance, one in every_response(published)]
    chances = np.array([chance for chance, *_ in found])
    values = np.array([value for _, value, _ in found])
    assert chances.sum() == pytest.approx(1.0)
    assert values.shape[1] == N_EFFECTS[asked]
    mean = chances @ values
    exact = release(cdp.uniform_prior_dp(epsilon=40), truthful)  # rows as they are
    without_privacy, _ = effects(exact, ASKED[asked] | {"use": "rows"})
    np.testing.assert_allclose(mean, without_privacy, atol=1e-9)
    variance = chances @ (values - mean) ** 2 + sum_noise(mechanism, ASKED[asked])
    printed = chances @ np.array([privacy for *_, privacy in found])
    np.testing.assert_allclose(printed, variance, rtol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_calibrates(level: str) -> None:
    """The negative control of the above: sums that are off move the estimate."""
    mechanism = cdp.optimal(epsilon=1, sums=LEVELS[level], prior=[0.7, 0.3])
    asked = ASKED["everything"]
    right, _ = effects(release(mechanism, truthful), asked)
    wrong, _ = effects(release(mechanism, one_more(0, [])), asked)
    assert np.abs(right - wrong).max() > 1e-6


def test_weights_of_totals_are_capped_here() -> None:
    """So that totals alone do not give the stratified mean, and rows must cover the rest."""
    mechanism = cdp.optimal(epsilon=1, sums=LEVELS["totals"])
    layout = release(mechanism, truthful).layout
    weights, sizes = mechanism.total_weights(layout), layout.sizes
    ratios = weights / (sizes.sum(axis=1, keepdims=True) / sizes)
    assert np.ptp(ratios, axis=0).max() > 0.1


def test_held_out_rows_use_their_fold_alone() -> None:
    """Sums and rows of the other fold change nothing."""
    mechanism = cdp.optimal(epsilon=1, sums=LEVELS["all"], prior=[0.7, 0.3])
    published = release(mechanism, truthful)
    others = pl.when(pl.col("fold") == 0).then(1 - pl.col(RESPONSE)).otherwise(pl.col(RESPONSE))
    changed = replace(published, units=published.units.with_columns(others.alias(RESPONSE)))

    def shift(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        """Totals of fold 0, and sums of clusters, which no fold is told apart in."""
        if values.ndim < 4:
            return values + 5
        noisy = values.copy()
        noisy[:, 0] += 5  # [group, fold, arm, metric]
        return noisy

    moved = replace(changed, questions=release(mechanism, shift).questions)
    for asked, same in (({"fold": 1}, True), ({"fold": 0}, False), ({}, False)):
        before, after = effects(published, asked), effects(moved, asked)
        assert np.allclose(before[0], after[0]) == same
        assert np.allclose(before[1], after[1]) or not same


def test_holding_out_needs_folds() -> None:
    table = eight_units().drop("tier", "before")
    unfolded = run_release(
        table,
        mechanism=cdp.optimal(epsilon=1),
        space=SPACE,
        columns=replace(COLUMNS, folds=1),
        key=KEY,
        add_noise=truthful,
    )
    with pytest.raises(cdp.ParameterError, match="--folds 2"):
        cdp.estimate(unfolded, fold=1)
    with pytest.raises(cdp.ParameterError, match="from 0 to 1"):
        cdp.estimate(release(cdp.optimal(epsilon=1), truthful), fold=2)
