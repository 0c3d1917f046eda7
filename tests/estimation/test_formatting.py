"""Tables of effects on narrow terminals: every effect with its interval can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clusterdp.document.text import Column, fitted

if TYPE_CHECKING:
    import numpy as np


def number(rng: np.random.Generator) -> str:
    """Up to thirty letters."""
    size = 10.0 ** rng.uniform(-3, 19)
    return f"{rng.choice([-1, 1]) * size:.{rng.integers(0, 10)}f}"


@pytest.mark.parametrize("width", [50, 80])
def test_effects_and_intervals_fit_whatever_their_length(
    width: int, rng: np.random.Generator
) -> None:
    for _ in range(200):
        n_rows = int(rng.integers(1, 4))

        def numbers(n_rows: int = n_rows) -> tuple[str, ...]:
            return tuple(number(rng) for _ in range(n_rows))

        effects = numbers()
        intervals = tuple(f"[{number(rng)}, {number(rng)}]" for _ in range(n_rows))
        names = tuple("segment " * int(rng.integers(1, 20)) for _ in range(n_rows))
        columns = [
            Column("customers who came back", names, is_label=True),
            Column("effect", effects),
            Column("std error", numbers()),
            Column("99.99% interval", intervals),
            Column("Holm", numbers(), rank=2),
            Column("arm mean", numbers(), starts_line=True),
        ]
        lines, _ = fitted(columns, width)
        assert max(map(len, lines)) <= width
        together = " ".join(" ".join(lines).split())
        assert all(one in together for one in (*effects, *intervals))
