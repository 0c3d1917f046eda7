"""The check of sample ratios: do the arms have the shares that were planned?"""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation.notes import Note, Weight

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.experiment.layout import Layout

# The probability of a false alarm about a table. Half of it is for the arms of the whole table; the
# other half is for the arms of its clusters.
_LEVEL = 1e-3
_CLUSTERS_SHOWN = 3
# What it means if arms have different shares in different clusters.
PUBLIC_CLUSTERS_DIFFER = (
    "expected if planned shares differ between clusters, else an error in assignment or logging"
)
# How shares are declared, by an owner before a release and by an analyst after it.
OWNER_DECLARES = "declare it: arm_shares=... (--arm-shares {})"
ANALYST_DECLARES = (
    "the owner declared no shares; compare with those planned by shares=... (--shares)"
)
PRIVATE_CLUSTERS_DIFFER = (
    "these are noisy labels, which mix true clusters, so effects are biased; the owner has to "
    "declare the probabilities of arms (assignment=..., --assignment) and publish again"
)


def sample_ratio_notes(
    layout: Layout,
    expected: dict[Any, float] | None = None,
    if_clusters_differ: str = PUBLIC_CLUSTERS_DIFFER,
) -> list[Note]:
    """Arms whose shares of units are not as planned, overall and cluster by cluster.

    Args:
        layout: The cells.
        expected: The planned share of each arm, by label; by default as the owner declared them.
            Where nobody did, unequal shares are a question and no alarm, and clusters are compared
            with the shares of all clusters together.
        if_clusters_differ: What is said of clusters whose shares are not as planned.
    """
    shares = _expected_shares(layout, expected)
    notes = arm_notes(layout, shares, ANALYST_DECLARES)
    if len(layout.clusters) == 1:
        return notes
    arm_sizes, cluster_sizes = layout.sizes.sum(axis=0), layout.sizes.sum(axis=1, keepdims=True)
    if shares is not None:
        cell_p_values = binomial_p_values(layout.sizes, cluster_sizes, shares)
    else:
        cell_p_values = hypergeometric_p_values(layout.sizes, cluster_sizes, arm_sizes)
    off = np.flatnonzero(for_all_arms(cell_p_values) < _LEVEL / 2 / len(layout.clusters))
    if len(off):
        named = ", ".join(str(layout.clusters[index]) for index in off[:_CLUSTERS_SHOWN])
        more = f" and {len(off) - _CLUSTERS_SHOWN} more" if len(off) > _CLUSTERS_SHOWN else ""
        text = (
            f"sample-ratio mismatch within {len(off)} of {len(layout.clusters)} clusters: "
            f"{named}{more}; {if_clusters_differ}"
        )
        harmless = shares is None and if_clusters_differ == PUBLIC_CLUSTERS_DIFFER
        notes.append(Note(text, Weight.SCOPE if harmless else Weight.WARNING))
    return notes


def arm_notes(layout: Layout, shares: FloatArray | None, declare: str) -> list[Note]:
    """A warning if arms do not have their planned shares; a question if none were declared.

    Args:
        layout: The cells.
        shares: The planned shares; None if they are not known.
        declare: How to declare them.
    """
    n_arms, sizes = len(layout.arms), layout.sizes.sum(axis=0)
    meant = np.full(n_arms, 1 / n_arms) if shares is None else shares
    p_value = float(for_all_arms(binomial_p_values(sizes, layout.n_units, meant)))
    if p_value >= _LEVEL / 2:
        return []
    pairs = list(zip(layout.arms, sizes / layout.n_units, strict=True))
    found = ", ".join(f"{arm} {share:.2%}" for arm, share in pairs)
    if shares is None:
        example = ",".join(f"{arm}={share:.2g}" for arm, share in pairs)
        text = f"arms have {found} of the units: is that what was planned? "
        return [Note(text + declare.format(example), Weight.SCOPE)]
    planned = ", ".join(f"{share:.2%}" for share in shares)
    text = f"sample-ratio mismatch: arms have {found}, and were planned to have {planned}"
    return [Note(f"{text} (p = {p_value:.2g})", Weight.WARNING)]


def binomial_p_values(found: IntArray, n_units: IntArray | int, shares: FloatArray) -> FloatArray:
    """Two-sided p-values of counts out of some units, each with a known probability.

    A tail is P(x) + P(x+1) + …, in which each term is at most r = P(x+1)/P(x) times the one before.
    It is bounded by P(x)/(1 − r): valid for counts of any size, and a few percent above the tail
    where that is small.
    """
    from scipy.special import gammaln, xlogy

    absent = n_units - found
    logs = gammaln(n_units + 1.0) - gammaln(found + 1.0) - gammaln(absent + 1.0)
    logs = logs + xlogy(found, shares) + xlogy(absent, 1 - shares)
    rises = absent * shares / ((found + 1) * (1 - shares))
    falls = found * (1 - shares) / ((absent + 1) * shares)
    return _two_sided(logs, rises, falls)


def hypergeometric_p_values(
    found: IntArray, cluster_sizes: IntArray, arm_sizes: IntArray
) -> FloatArray:
    """Two-sided p-values of cells, given the sizes of all clusters and arms.

    If every unit had the same chances, the cells of a cluster are a draw from all units without
    replacement. Tails are bounded as those of `binomial_p_values`.

    Args:
        found: Axes `[cluster, arm]`.
        cluster_sizes: Axes `[cluster, 1]`.
        arm_sizes: Axes `[arm]`.
    """
    from scipy.special import gammaln

    n_units = arm_sizes.sum()
    absent, elsewhere = cluster_sizes - found, arm_sizes - found
    neither = n_units - cluster_sizes - elsewhere
    margins = (cluster_sizes, n_units - cluster_sizes, arm_sizes, n_units - arm_sizes)
    logs = sum(gammaln(margin + 1.0) for margin in margins) - gammaln(n_units + 1.0)
    logs = logs - sum(gammaln(cell + 1.0) for cell in (found, absent, elsewhere, neither))
    rises = absent * elsewhere / ((found + 1.0) * (neither + 1.0))
    falls = found * neither / ((absent + 1.0) * (elsewhere + 1.0))
    return _two_sided(logs, rises, falls)


def _two_sided(logs: FloatArray, rises: FloatArray, falls: FloatArray) -> FloatArray:
    """Twice the smaller tail: from log P(x), P(x+1)/P(x) and P(x−1)/P(x)."""
    ratio = np.minimum(rises, falls)
    tail = np.exp(logs) / np.where(ratio < 1, 1 - ratio, 1.0)
    return np.where(ratio < 1, np.minimum(2 * tail, 1.0), 1.0)


def for_all_arms(p_values: FloatArray) -> FloatArray:
    """One p-value for all arms, the last axis (Bonferroni). Two arms have the same."""
    n_arms = p_values.shape[-1]
    n_tests = 1 if n_arms == 2 else n_arms
    return np.asarray(np.minimum(n_tests * p_values.min(axis=-1), 1.0))


def _expected_shares(layout: Layout, expected: dict[Any, float] | None) -> FloatArray | None:
    """Shares that add up to one; arms are found by the text of their labels."""
    if expected is None:
        return None if layout.arm_shares is None else np.array(layout.arm_shares)
    arms = [str(arm) for arm in layout.arms]
    if isinstance(expected, dict):
        given = {str(arm): share for arm, share in expected.items()}
        if sorted(given) == sorted(arms) and all(map(_is_share, given.values())):
            shares = np.array([given[arm] for arm in arms], dtype=np.float64)
            return np.asarray(shares / shares.sum())
    raise ParameterError(
        f"shares must give a number above 0 for every arm ({', '.join(arms)}), got {expected!r}"
    )


def _is_share(share: Any) -> bool:
    is_number = isinstance(share, Real) and not isinstance(share, bool)
    return is_number and 0 < float(share) < math.inf
