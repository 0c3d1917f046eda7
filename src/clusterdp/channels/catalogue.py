"""Every way to randomize rows, and the channels these lead to. A new one is listed here."""

from __future__ import annotations

from clusterdp.channels.optimal import OptimalChannel
from clusterdp.channels.optimal_rows import OptimalBudget, OptimalRows
from clusterdp.channels.resampled_rows import ResampledRows, ResamplingBudget
from clusterdp.channels.resampling import ResamplingChannel

RowRule = ResampledRows | OptimalRows
RowBudget = ResamplingBudget | OptimalBudget
Channel = ResamplingChannel | OptimalChannel
