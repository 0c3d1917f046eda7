"""Release a frame in memory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Unpack

from clusterdp.errors import ParameterError
from clusterdp.owner.keywords import ReleaseKeywords, takes
from clusterdp.owner.task import python_task, require_ledger
from clusterdp.releasing.in_memory import release_in_memory
from clusterdp.rows.keys import ReleaseKey
from clusterdp.statistics.noise import add_exact_noise

if TYPE_CHECKING:
    from clusterdp.owner.plan import Plan
    from clusterdp.published.release import Release


@takes(ReleaseKeywords)
def release(
    source: Any,
    plan: Plan | str | os.PathLike[str] | None = None,
    **options: Unpack[ReleaseKeywords],
) -> Release:
    """Privatize every outcome of an experiment's frame, in memory.

    Each call spends the stated guarantee anew. Two releases of the same people's outcomes add up,
    and no ledger tracks them. `publish` writes a folder and can spend from a ledger.

    The mechanism is a name, or made by a builder such as `cluster_dp`. What a name leaves open is
    chosen as `plan` does.

    Args:
        source: A pandas, Polars, PyArrow, DuckDB or Spark frame with one row per unit. A Spark
            frame is evaluated several times and must give the same rows each time; if it does not,
            checkpoint it.
        plan: A `Plan`, or the path of a plan file. Its options need not be given again.
        **options: Options of the table and the mechanism.

    Raises:
        DataError: If the table breaks a rule.
        ParameterError: If a parameter is wrong.
    """
    if isinstance(source, str | os.PathLike):
        raise ParameterError("release takes a frame, got the name of a table; publish takes names")
    require_ledger("a release in memory spends from none; use clusterdp.publish(..., ledger=...)")
    task = python_task(source, plan, options)
    with ExitStack() as stack:
        prepared = task.prepare(task.open_engine(stack), None)
        task.check_rows(prepared)
        mechanisms = task.choose_mechanisms(prepared.layout)
        return release_in_memory(prepared, mechanisms, ReleaseKey.from_system(), add_exact_noise)
