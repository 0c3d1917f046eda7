"""Every statistic there is. A new one is a module of its own, and a name in this list."""

from __future__ import annotations

from clusterdp.statistics.contrasts import DrawnContrasts, NoisyContrasts
from clusterdp.statistics.counts import DrawnCounts, NoisyCounts
from clusterdp.statistics.sums import DrawnSums, NoisySums

Statistic = NoisyCounts | NoisyContrasts | NoisySums
Drawn = DrawnCounts | DrawnContrasts | DrawnSums
