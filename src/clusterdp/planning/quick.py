"""What to expect of a mechanism, by interpolation where its channel takes long to design."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clusterdp.planning.predictions import expect, expect_with, takes_long, without_sums
from clusterdp.planning.row_noise import RowNoise

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario
    from clusterdp.precision.expected import Precision


def expect_quickly(mechanism: Mechanism, scenario: Scenario) -> tuple[Precision, ...]:
    """What to expect of every metric if outcomes are distributed like the reference."""
    layout, space, _ = scenario
    if not mechanism.designs_rows or not takes_long(space):
        return expect(mechanism, scenario)
    noise = RowNoise(without_sums(mechanism, space), scenario)(mechanism.row_epsilon(space))
    return expect_with(mechanism, scenario, np.repeat(noise[:, np.newaxis], len(layout.arms), 1))
