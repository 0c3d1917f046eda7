"""Releases of open tables by mechanisms made by hand, with all randomness given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp._progress import NoProgress
from clusterdp.releasing import stages
from clusterdp.releasing.journal import NoJournal
from clusterdp.releasing.prepare import prepare
from clusterdp.releasing.stages import ReleaseState
from clusterdp.releasing.targets import FolderTarget, MemoryTarget
from clusterdp.spec.provenance import Provenance
from clusterdp.spec.spec import QuestionSpec, ReleaseSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import clusterdp as cdp
    from clusterdp._progress import Progress
    from clusterdp.outcomes.categories import Categories
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import OpenTable
    from clusterdp.rows.keys import ReleaseKey
    from clusterdp.spec.columns import Columns
    from clusterdp.statistics.noise import NoiseSource
    from clusterdp.storage.folder import Destination


def spec_for(
    opened: OpenTable, mechanisms: Sequence[cdp.Mechanism], provenance: Provenance | None = None
) -> ReleaseSpec:
    """What is published of a table whose owner declared nothing else."""
    pairs = zip(opened.table.spaces, mechanisms, strict=True)
    questions = [
        QuestionSpec(space=space, mechanism=mechanism, rounding=(0.0,) * len(space.metric_values()))
        for space, mechanism in pairs
    ]
    return ReleaseSpec.from_questions(questions, opened.clusters, provenance or Provenance())


def state_of(
    opened: OpenTable,
    mechanisms: Sequence[cdp.Mechanism],
    journal: Journal,
    add_noise: NoiseSource,
) -> ReleaseState:
    """A release that is about to begin."""
    return ReleaseState(
        opened=opened,
        spec=spec_for(opened, mechanisms),
        journal=journal,
        add_noise=add_noise,
        progress=NoProgress(),
    )


def write_release(
    opened: OpenTable,
    mechanisms: Sequence[cdp.Mechanism],
    target: Destination,
    progress: Progress | None = None,
    **more: Any,
) -> tuple[str, ...]:
    """Release a table into a folder; more is as in `run`."""
    spec = spec_for(opened, mechanisms)
    return stages.run(opened, spec, FolderTarget(target), progress=progress, **more)


write_with = write_release


def release_in_memory(
    opened: OpenTable,
    mechanisms: Sequence[cdp.Mechanism],
    key: ReleaseKey,
    add_noise: NoiseSource,
) -> cdp.Release:
    """Release a table in memory."""
    spec, journal = spec_for(opened, mechanisms), NoJournal(key)
    return stages.run(opened, spec, MemoryTarget(), journal=journal, add_noise=add_noise)


def run_release(
    frame: Any,
    *,
    mechanism: cdp.Mechanism,
    space: Categories,
    columns: Columns,
    key: ReleaseKey,
    add_noise: NoiseSource,
    **choices: Any,
) -> cdp.Release:
    """Open a frame and release it in one question. Choices are those of `prepare`.

    With the same key and the same noise it gives the same release.
    """
    opened = prepare(frame, columns=columns, spaces=(space,), **choices)
    return release_in_memory(opened, (mechanism,), key, add_noise)
