"""Every way to randomize rows, and the channels these lead to. A new one is listed here."""

from __future__ import annotations

from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.channels.optimal import OptimalBudget, OptimalRows
from clusterdp.channels.resampling import ResampledRows, ResamplingBudget, ResamplingChannel

RowRule = ResampledRows | OptimalRows
RowBudget = ResamplingBudget | OptimalBudget
Channel = ResamplingChannel | OptimalChannel
