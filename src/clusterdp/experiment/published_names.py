"""How outcomes and blocks are named in what is published."""

from __future__ import annotations

# The number of the block that a row of a published table is about, where there are several.
BLOCK = "block"


def block_suffixes(n_blocks: int) -> tuple[str, ...]:
    """What the columns of each block end with; nothing where there is one block."""
    return ("",) if n_blocks == 1 else tuple(f"_{place}" for place in range(1, n_blocks + 1))


def debiased_column(outcome: str) -> str:
    """The published column of an outcome."""
    return f"{outcome}_debiased"
