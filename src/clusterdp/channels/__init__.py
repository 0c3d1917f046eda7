"""How rows are randomized, on arrays alone.

A row rule has the parameters of the rows and their cost. It designs, from a prior, the channel that
rows go through: probabilities in integers, and what each output counts as. A budget is what a rule
follows from. Every rule, budget and channel is in a list below.
"""

from __future__ import annotations

from clusterdp.channels._optimal_channel import OptimalChannel
from clusterdp.channels.optimal import OptimalBudget, OptimalRows
from clusterdp.channels.resampling import ResampledRows, ResamplingBudget, ResamplingChannel

RowRule = ResampledRows | OptimalRows
RowBudget = ResamplingBudget | OptimalBudget
Channel = ResamplingChannel | OptimalChannel
