"""How each paper was read: what was chosen where it leaves something open."""

from __future__ import annotations

import inspect
from typing import Final

from bench.peers import (
    binned_sums,
    disobedience,
    forced_response,
    library_response,
    local_laplace,
    private_boosting,
    subsample_aggregate,
)
from bench.peers.prose import paragraph

_MODULES: Final = (
    forced_response,
    disobedience,
    local_laplace,
    subsample_aggregate,
    binned_sums,
    private_boosting,
    library_response,
)
_IN_WORDS: Final = (
    (
        "**Ohnishi and Awan (2023) and noisy Horvitz–Thompson.** Without noise the two estimates",
        "are the same. But Ohnishi and Awan add noise to every person's term, for nobody is",
        "trusted, and noisy Horvitz–Thompson adds it once, to the mean. With n people that is n",
        "times the noise variance. Both have rows in the tables.",
    ),
    (
        "**Lee et al. (2019), in words.** Private propensity scores, for inverse probability",
        "weighting of observational data. In a randomized experiment the owner assigned the arms:",
        "propensities are known, and there is nothing to estimate and nothing to spend ε on.",
    ),
    (
        "**Esfandiari et al. (2022), in words.** Label privacy for training: people are clustered",
        "by their features, and labels are drawn again from a noisy distribution of the cluster.",
        "Cluster-DP, from which clusterdp starts, has its channel from there. It promises what",
        "ours does, and [frontier.md](frontier.md) has its numbers next to those of the optimal",
        "channel.",
    ),
)


def readings() -> list[str]:
    """What the modules of the methods say of them, and what was read but not run."""
    lines = []
    for module in _MODULES:
        title, *rest = (inspect.getdoc(module) or "").split("\n\n")
        lines += paragraph(f"**{' '.join(title.split())}**", *(" ".join(rest).split()))
    for one in _IN_WORDS:
        lines += paragraph(*one)
    return lines[:-1]
