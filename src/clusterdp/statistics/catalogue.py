"""Every statistic there is. A new one is a module of its own, and a name in this list."""

from __future__ import annotations

from clusterdp.statistics.base import DrawnStatistic
from clusterdp.statistics.contrasts import NoisyContrasts
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.sums import NoisySums, NoisyTotals

Statistic = NoisyCounts | NoisyContrasts | NoisySums | NoisyTotals
Drawn = DrawnStatistic
