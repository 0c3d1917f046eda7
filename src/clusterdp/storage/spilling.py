"""Polars holds rows in memory alone: what it spilled would be true outcomes on a shared disk.

When memory is short, Polars stores intermediate rows in `/var/tmp/polars-USER/spill`, with any
TMPDIR: unencrypted, in a folder whose owner it does not check, and left behind by a kill. A
release gains nothing by that. Its passes stream, it sorts in ranges of its own, and to aggregate
rows Polars needs as much memory with spilling as without.
"""

from __future__ import annotations

import os
import sys

# Polars spills beyond the smaller of a share of the machine's memory and a number of megabytes. It
# reads both when it starts, and whenever it is asked to. Here both exceed any machine.
_NEVER = {
    "POLARS_OOC_MEMORY_BUDGET_FRACTION": "1e9",
    "POLARS_OOC_MEMORY_BUDGET_MB": "1000000000",
    # Where it spills is read once, at the first spill. No folder can be made here: a version that
    # does not know the limits fails to spill, and goes on in memory.
    "POLARS_OOC_SPILL_DIR": f"{os.devnull}/clusterdp",
}


def keep_rows_in_memory() -> None:
    """Keep Polars from spilling in this process and those that it starts.

    It holds from now on, also where Polars has been imported, or has spilled, before.
    """
    os.environ |= _NEVER
    polars = sys.modules.get("polars")
    if polars is not None:
        polars.Config.reload_env_vars()
