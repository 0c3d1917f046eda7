"""A release into a folder: counted, drawn, randomized, sealed; complete or not at all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from clusterdp._progress import NoProgress, no_progress
from clusterdp.engines.local.table import write_parquet
from clusterdp.errors import OutputError
from clusterdp.published.document import write_card, write_readme
from clusterdp.published.notes import release_notes
from clusterdp.published.tables import cells_table, stacked, totals_table
from clusterdp.published.visible import what_is_visible
from clusterdp.releasing.journal import Unrecorded
from clusterdp.releasing.labelling import label_first
from clusterdp.releasing.looking import look_first
from clusterdp.releasing.pipeline import TablePasses
from clusterdp.releasing.questions import check_questions, describe
from clusterdp.statistics.noise import add_exact_noise
from clusterdp.storage.folder import (
    CELLS,
    CHANNELS,
    INDEX,
    LOOK,
    MANIFEST,
    README,
    TOTALS,
    FileSum,
    private_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl

    from clusterdp._progress import Progress
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.releasing.journal import Drawn, Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.statistics.look import DrawnLook
    from clusterdp.statistics.noise import NoiseSource
    from clusterdp.storage.folder import Destination


def write_release(
    prepared: Prepared,
    mechanisms: Sequence[Mechanism],
    target: Destination,
    progress: Progress | None = None,
    journal: Journal | None = None,
) -> tuple[str, ...]:
    """Privatize a table into a new folder.

    Args:
        prepared: The table.
        mechanisms: What to publish of each question.
        target: Where.
        progress: Where to report to.
        journal: What makes the release resumable; by default it is not.

    Returns:
        What followed from its look, in sentences that are published; nothing without one.

    Raises:
        ClusterDPError: If the table, a parameter or the place is wrong. There is then no folder.
    """
    return write_with(
        prepared,
        mechanisms,
        target,
        progress or NoProgress(),
        journal=journal or Unrecorded(),
        add_noise=add_exact_noise,
    )


def write_with(  # noqa: PLR0913 - as `write_release`, and where noise comes from
    prepared: Prepared,
    mechanisms: Sequence[Mechanism],
    target: Destination,
    progress: Progress,
    *,
    journal: Journal,
    add_noise: NoiseSource,
) -> tuple[str, ...]:
    """As `write_release`, with the sources of randomness given, for tests."""
    check_questions(prepared, mechanisms)
    prepared = prepared.asking_by(mechanisms, journal.key)
    with _plain_errors(target), target.staged(journal.key.claim()) as staged:
        prepared = _labelled(prepared, mechanisms, journal, progress)
        layout = prepared.layout
        prepared, mechanisms, looks, before, found = look_first(
            prepared, mechanisms, journal, add_noise, _look_progress(mechanisms, layout, progress)
        )
        manifest = describe(prepared, mechanisms, before)
        passes = TablePasses(prepared, mechanisms, journal, progress, add_noise)
        drawn, of_rows = passes.run(staged.rows)
        files = dict(of_rows)
        progress.stage("sealing the folder", 0)
        folder = staged.files
        tables = {
            name: write_parquet(held.lazy(), folder / name)
            for name, held in _tables(prepared, drawn, looks).items()
            if held is not None
        }
        channels = [one.channel for one in drawn.questions]
        seen = what_is_visible(manifest, layout, channels)
        notes = release_notes(manifest, layout, channels)
        readme = write_readme(manifest, files, seen, notes)
        private_file(folder / README).write_text(readme, encoding="utf-8")
        files |= tables | {README: FileSum.of(folder / README)}
        # After all others, whose checksums it shows.
        page = write_card(manifest, files, seen, notes)
        private_file(folder / INDEX).write_text(page, encoding="utf-8")
        files[INDEX] = FileSum.of(folder / INDEX)
        sealed = manifest.sealed(files)
        journal.seal(sealed)
        # Last of all: a folder without a manifest is not a release.
        private_file(folder / MANIFEST).write_bytes(sealed)
    journal.commit(str(target))
    return found


def _tables(
    prepared: Prepared, drawn: Drawn, looks: Sequence[DrawnLook | None]
) -> dict[str, pl.DataFrame | None]:
    """The tables beside the rows, by the names of their files; None where there is none."""
    layout, arms = prepared.layout, prepared.encoder.arms.values
    names = prepared.table.columns.question_names
    of_questions = [
        None if one.channel is None else one.channel.channels_table() for one in drawn.questions
    ]
    totals = [totals_table(arms, layout, one.statistics) for one in drawn.questions]
    return {
        LOOK: stacked([None if look is None else look.to_table() for look in looks], names),
        CELLS: cells_table(prepared.encoder, layout, drawn.questions),
        TOTALS: stacked(totals, names),
        CHANNELS: stacked(of_questions, names),
    }


def _labelled(
    prepared: Prepared, mechanisms: Sequence[Mechanism], journal: Journal, progress: Progress
) -> Prepared:
    """With units given their labels, where clusters are private; what they lead to is checked."""
    if prepared.response is None:
        return prepared
    counting = progress.stage("giving labels", prepared.layout.n_units)
    prepared = label_first(prepared, journal, counting)
    check_questions(prepared, mechanisms)
    return prepared


def _look_progress(
    mechanisms: Sequence[Mechanism], layout: Layout, progress: Progress
) -> Callable[[int], None]:
    if all(mechanism.look is None for mechanism in mechanisms):
        return no_progress
    return progress.stage("taking a look", layout.n_units)


@contextmanager
def _plain_errors(target: Destination) -> Iterator[None]:
    """Errors of the disk and of Polars as one line that names the place and no data."""
    import polars as pl

    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"cannot write {target}: {reason}") from None
    except pl.exceptions.PolarsError as error:
        raise OutputError(f"cannot write {target}: {type(error).__name__}") from None
