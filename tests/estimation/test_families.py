"""Families: p-values against statsmodels, intervals that agree with them, what is declared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from statsmodels.stats.multitest import multipletests

import clusterdp as cdp
from clusterdp.estimation.effects.effect import EffectTarget
from clusterdp.estimation.effects.findings import (
    VARYING,
    benjamini_hochberg,
    holm_p_values,
    parse_family,
    with_families,
)

METRICS, ARMS, TIERS = ("visit", "order"), ("B", "C"), ("gold", "silver", "basic")


def test_p_values_are_those_of_statsmodels(rng: np.random.Generator) -> None:
    """Also where some are the same, zero or one."""
    for n_effects in range(1, 40):
        p_values = np.clip(np.round(rng.normal(0.3, 0.4, n_effects), 2), 0, 1)
        for ours, method in ((holm_p_values, "holm"), (benjamini_hochberg, "fdr_bh")):
            theirs = multipletests(p_values, method=method)[1]
            np.testing.assert_allclose(ours(p_values), theirs, atol=1e-15)


def an_effect(of: EffectTarget, effect: float) -> cdp.Effect:
    return cdp.Effect(
        of=of,
        effect=effect,
        std_error=1.0,
        sampling_variance=1.0,
        privacy_variance=0.0,
        n_treated=500,
        n_control=500,
    )


def every_effect() -> list[cdp.Effect]:
    """Overall, in tiers, and differences between them; each is some standard errors from zero."""
    segments = [(), *((("tier", tier),) for tier in TIERS)]
    targets = [
        EffectTarget(metric, arm, "A", segment)
        for metric in METRICS
        for arm in ARMS
        for segment in segments
    ]
    targets += [of._replace(against="rest") for of in targets if of.segment]
    return [an_effect(of, 0.2 * place) for place, of in enumerate(targets)]


@pytest.mark.parametrize(
    ("family", "overall", "segments"),
    [
        (VARYING, 4, 12),
        ("segments", 1, 3),
        ("arms,segments", 2, 6),
        (["metrics"], 2, 2),
    ],
    ids=str,
)
def test_a_family_has_what_varies_in_it(family: Any, overall: int, segments: int) -> None:
    found = with_families(every_effect(), parse_family(family))
    for effect in found:
        assert effect.family_size == (segments if effect.of.segment else overall)
        assert effect.holm_p_value >= effect.bh_p_value >= effect.p_value


def test_intervals_agree_with_holms_p_values() -> None:
    """Where a simultaneous interval leaves out zero, Holm's p-value is below the level."""
    found = with_families(every_effect(), VARYING)
    outside = [effect for effect in found if effect.simultaneous_ci()[0] > 0]
    assert outside
    assert all(effect.holm_p_value < 0.05 for effect in outside)


def test_effects_without_an_interval_count_for_nothing() -> None:
    first, *others = every_effect()
    lacking = replace(first, effect=np.nan, std_error=np.nan)
    found = with_families([lacking, *others], VARYING)
    assert np.isnan(found[0].holm_p_value)
    assert found[0].family_size == 1
    assert {one.family_size for one in found if not one.of.segment} == {1, 3}


@pytest.mark.parametrize("wrong", ["", "arm", "arms,tiers", None, 3, [3], ()])
def test_families_that_are_none(wrong: Any) -> None:
    with pytest.raises(cdp.ParameterError, match=r"family must be|expected names"):
        parse_family(wrong)


def test_an_estimate_says_what_its_families_are(table: pl.DataFrame) -> None:
    release = cdp.release(
        table,
        mechanism=cdp.optimal(epsilon=2),
        outcomes={"clicks": "0..3"},
        unit="user",
        arm="treated",
        cluster="market",
    )
    tiers = table.select("user", tier=pl.col("user") % 3)
    found = cdp.estimate(release, segments=tiers, by="tier", differences="pairs", family="segments")
    assert [one.of.label for one in found.effects[4:]] == [
        "tier=0 vs tier=1",
        "tier=0 vs tier=2",
        "tier=1 vs tier=2",
    ]
    assert [one.family_size for one in found.effects] == [1, *[3] * 6]
    assert "corrected for 3 segment effects and for 3 differences" in " ".join(str(found).split())
    apart = found["tier=0 vs tier=2"]
    assert apart.effect == pytest.approx(found["tier=0"].effect - found["tier=2"].effect)
    assert found.to_dict()["effects"][4]["holm_p_value"] == found.effects[4].holm_p_value
    with pytest.raises(cdp.ParameterError, match='differences must be "rest" or "pairs", got True'):
        cdp.estimate(release, segments=tiers, by="tier", differences=True)  # type: ignore[arg-type]
