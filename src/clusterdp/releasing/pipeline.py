"""The release: one pipeline from a table to what is published, in memory or in a folder.

Memory, folder, store and Spark differ in the engine's table and in the target, nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from clusterdp._progress import NoProgress
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.stages import (
    ReleaseState,
    count_and_draw,
    randomize,
    randomize_clusters,
    take_pilots,
)
from clusterdp.releasing.targets import describe
from clusterdp.statistics.noise import add_exact_noise

if TYPE_CHECKING:
    from clusterdp._progress import Progress
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.releasing.targets import ReleaseTarget
    from clusterdp.spec.spec import ReleaseSpec
    from clusterdp.statistics.noise import NoiseSource

R = TypeVar("R")


def run(  # noqa: PLR0913 - what is released, where to, and where randomness comes from
    opened: OpenTable,
    spec: ReleaseSpec,
    target: ReleaseTarget[R],
    *,
    journal: Journal | None = None,
    add_noise: NoiseSource | None = None,
    progress: Progress | None = None,
) -> R:
    """Privatize every outcome of a table.

    Args:
        opened: The table.
        spec: What is published of it.
        target: Where to.
        journal: What makes the release resumable; by default it is not.
        add_noise: Where noise on statistics comes from; by default what is exact.
        progress: Where to report to.

    Returns:
        What the target makes of it: a release in memory, or what followed from pilots.

    Raises:
        ClusterDPError: If the table, a parameter or the place is wrong. Nothing is published then.
    """
    journal = journal or NoJournal()
    spec.check(opened.layout)
    state = ReleaseState(
        opened=opened.asking_by(spec.mechanisms, journal.key),
        spec=spec,
        journal=journal,
        add_noise=add_noise or add_exact_noise,
        progress=progress or NoProgress(),
    )
    with target.staged(journal.key.claim()) as staged:
        folder = None if staged is None else staged.rows
        state = take_pilots(randomize_clusters(state))
        # Before noise is drawn: nothing may fail after it that could have been checked before.
        manifest = describe(state)
        state = randomize(count_and_draw(state, folder), folder)
        finished = target.finish(state, manifest, staged)
    # Before the release is on record as published: nobody looks for what a killed run left then.
    opened.table.close()
    journal.commit(str(target))
    return finished
