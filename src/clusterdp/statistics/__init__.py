"""Noisy statistics of cells: what may be published next to rows, or instead of them.

Each statistic is one module, and a name in the list below. It knows what it costs, how it is drawn,
the columns it is published in, how these are read back, and what it estimates.
"""

from __future__ import annotations

from clusterdp.statistics.contrasts import NoisyContrasts
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.covariates import NoisyCovariates
from clusterdp.statistics.sums import NoisySums, NoisyTotals

Statistic = NoisyCounts | NoisyContrasts | NoisySums | NoisyTotals | NoisyCovariates
