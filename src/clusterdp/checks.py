"""Checks an experimenter expects: do the arms have the shares they were meant to have?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.errors import ParameterError

if TYPE_CHECKING:
    from clusterdp.arrays import FloatArray
    from clusterdp.cells import Layout

# A mismatch is reported at this level; per cluster it is shared among the clusters.
_LEVEL = 1e-3
_CLUSTERS_SHOWN = 3


def sample_ratio_notes(layout: Layout, expected: dict[str, float] | None = None) -> list[str]:
    """What is wrong with the shares of the arms, overall and cluster by cluster.

    Args:
        layout: The cells.
        expected: The share each arm was meant to have, by label. Without it arms are compared with
            equal shares, and clusters with the shares of all clusters together.
    """
    from scipy.special import chdtrc

    arm_sizes = layout.sizes.sum(axis=0)
    shares = _expected_shares(layout, expected)
    statistic = float(
        ((arm_sizes - layout.n_units * shares) ** 2 / (layout.n_units * shares)).sum()
    )
    notes = []
    p_value = float(chdtrc(len(layout.arms) - 1, statistic))
    if p_value < _LEVEL:
        meant = "the stated shares" if expected else "equal shares, if these were meant"
        found = ", ".join(
            f"{arm}: {size / layout.n_units:.2%}"
            for arm, size in zip(layout.arms, arm_sizes, strict=True)
        )
        notes.append(f"sample-ratio mismatch: arms have {found}, not {meant} (p = {p_value:.2g})")
    within = shares if expected else arm_sizes / layout.n_units
    meant_sizes = layout.sizes.sum(axis=1, keepdims=True) * within
    statistics = ((layout.sizes - meant_sizes) ** 2 / meant_sizes).sum(axis=1)
    off = np.flatnonzero(chdtrc(len(layout.arms) - 1, statistics) < _LEVEL / len(layout.clusters))
    if len(off):
        named = ", ".join(str(layout.clusters[index]) for index in off[:_CLUSTERS_SHOWN])
        more = f" and {len(off) - _CLUSTERS_SHOWN} more" if len(off) > _CLUSTERS_SHOWN else ""
        notes.append(
            f"sample-ratio mismatch within {len(off)} of {len(layout.clusters)} clusters: "
            f"{named}{more}; fine if shares were meant to differ, a sign of trouble if not"
        )
    return notes


def _expected_shares(layout: Layout, expected: dict[str, float] | None) -> FloatArray:
    if expected is None:
        return np.full(len(layout.arms), 1 / len(layout.arms))
    shares = np.array([expected.get(str(arm), 0.0) for arm in layout.arms], dtype=np.float64)
    if (shares <= 0).any() or len(expected) != len(layout.arms):
        raise ParameterError(
            "shares must give a number above 0 for every arm: "
            + ", ".join(str(arm) for arm in layout.arms)
        )
    return np.asarray(shares / shares.sum())
