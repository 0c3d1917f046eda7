"""How outcomes and blocks are named in what is published."""

from __future__ import annotations

from clusterdp.experiment.expressions import OBSERVED

# An outcome that may be missing, 0 where it is, has the name of the outcome and this.
TIMES_OBSERVED = "_times_observed"
# The number of the block that a row of a published table is about, where there are several.
BLOCK = "block"


def block_suffixes(n_blocks: int) -> tuple[str, ...]:
    """What the columns of each block end with; nothing where there is one block."""
    return ("",) if n_blocks == 1 else tuple(f"_{place}" for place in range(1, n_blocks + 1))


def debiased_names(outcomes: tuple[str, ...], missing: tuple[str, ...]) -> tuple[str, ...]:
    """The published columns of some outcomes, of which some may be missing."""
    values = (f"{name}{TIMES_OBSERVED}" if name in missing else name for name in outcomes)
    observed = (f"{name}{OBSERVED}" for name in missing)
    return tuple(f"{name}_debiased" for name in (*values, *observed))
