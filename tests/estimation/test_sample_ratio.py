"""Sample ratios: tails that hold for counts of any size, and few false alarms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.effects.notes import Weight
from clusterdp.estimation.metrics import sample_ratio as checks
from populations import make_layout

SPACE = cdp.OutcomeSpace.binary()


@given(st.integers(1, 300), st.floats(0.01, 0.99))
def test_binomial_tails_are_exact(n_units: int, share: float) -> None:
    found = np.arange(n_units + 1)
    told = checks.binomial_p_values(found, n_units, np.full(n_units + 1, share))
    law = stats.binom(n_units, share)
    exact = np.minimum(2 * np.minimum(law.cdf(found), law.sf(found - 1)), 1)
    normal = exact > 1e-250  # beyond, floats lose digits
    np.testing.assert_allclose(told[normal], exact[normal], rtol=1e-7)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_hypergeometric_tails_are_bounded_closely(a: int, b: int, c: int, d: int) -> None:
    sizes = np.array([[a, b], [c, d]])
    told = checks.hypergeometric_p_values(
        sizes, sizes.sum(axis=1, keepdims=True), sizes.sum(axis=0)
    )
    law = stats.hypergeom(sizes.sum(), a + c, a + b)
    exact = min(2 * min(law.cdf(a), law.sf(a - 1)), 1)
    np.testing.assert_allclose(told, told[0, 0])  # all four cells tell the same
    assert told[0, 0] >= exact * (1 - 1e-9)
    assert exact > 1e-3 or told[0, 0] <= 1.12 * exact


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.1, 0.9], [0.1, 0.2, 0.7]], ids=str)
@pytest.mark.parametrize("declared", [True, False])
def test_sound_tables_of_small_clusters_raise_no_alarm(
    *, declared: bool, shares: list[float], rng: np.random.Generator
) -> None:
    """Chi-squared tests raise one in 10 to 45% of such tables; 0.1% are allowed."""
    n_tables, alarms = 1000, 0
    for _ in range(n_tables):
        sizes = rng.multinomial(rng.integers(2, 12, size=300), shares)
        meant = {str(arm): share for arm, share in enumerate(shares)} if declared else None
        notes = checks.sample_ratio_notes(make_layout(sizes), meant)
        # Equal shares were not meant: what is said about them is right.
        alarms += any(declared or "within" in note.text for note in notes)
    assert alarms <= stats.binom(n_tables, 1e-3).isf(ALPHA)


@pytest.mark.parametrize("declared", [True, False])
def test_one_cluster_of_many_is_found(*, declared: bool) -> None:
    """27 and 73 in a cluster meant for 50 and 50: found among ten clusters, not among 10,000."""
    for n_clusters, is_found in ((10, True), (10_000, False)):
        sizes = np.full((n_clusters, 2), 50)
        sizes[0] = (27, 73)
        meant = {"0": 0.5, "1": 0.5} if declared else None
        notes = checks.sample_ratio_notes(make_layout(sizes), meant)
        assert any("within 1 of" in note.text for note in notes) == is_found


def test_one_cluster_has_nothing_to_be_compared_with() -> None:
    notes = checks.sample_ratio_notes(make_layout([[5000, 1000]]))
    assert [note.weight for note in notes] == [Weight.SCOPE]
    assert "0 83.33%, 1 16.67% of the units. If that was not planned" in notes[0].text


def test_a_sound_test_of_unequal_arms_is_no_alarm() -> None:
    """50/25/25: a question where nothing was declared, nothing where it was, an alarm if wrong."""
    layout = make_layout([[5000, 2500, 2500]])
    assert [note.weight for note in checks.sample_ratio_notes(layout)] == [Weight.SCOPE]
    planned = replace(layout, arm_shares=(0.5, 0.25, 0.25))
    assert checks.sample_ratio_notes(planned) == []
    wrong = replace(layout, arm_shares=(0.4, 0.3, 0.3))
    assert [note.weight for note in checks.sample_ratio_notes(wrong)] == [Weight.WARNING]
    # What an analyst knows comes before what the owner said.
    shares = {"0": 0.5, "1": 0.25, "2": 0.25}
    assert checks.sample_ratio_notes(wrong, shares) == []


def test_shares_go_with_their_arms() -> None:
    layout = replace(make_layout([[5000, 2500, 2500]]), arm_shares=(0.5, 0.3, 0.2))
    assert layout.of_arms([2, 0]).arm_shares == pytest.approx((2 / 7, 5 / 7))
