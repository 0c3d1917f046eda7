"""A release into a folder: counted, drawn, randomized, sealed; complete or not at all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from clusterdp.engines.base import no_progress
from clusterdp.engines.local.table import unreadable, write_parquet
from clusterdp.errors import DataError, OutputError, notify_owner
from clusterdp.mechanisms.disclosure import disclosure_notes
from clusterdp.mechanisms.draw import check_exact, release_cells
from clusterdp.published.cells import cells_table
from clusterdp.published.manifest import Manifest, software_name
from clusterdp.published.readme import write_readme
from clusterdp.published.sights import what_is_visible
from clusterdp.published.terms import Terms
from clusterdp.published.totals import totals_table
from clusterdp.releasing.journal import Drawn, Unrecorded
from clusterdp.releasing.looking import look_first
from clusterdp.releasing.prepare import asked_of
from clusterdp.rows.encoding import ANOTHER_TABLE, TABLE_CHANGED
from clusterdp.statistics.noise import add_exact_noise
from clusterdp.storage.files import CELLS, CHANNELS, LOOK, MANIFEST, README, TOTALS, FileSum
from clusterdp.storage.folder import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.published.manifest import BeforeLook
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.statistics.noise import NoiseSource
    from clusterdp.storage.folder import Destination


class Progress(Protocol):
    """Where a long run reports to."""

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:
        """Start a stage over that many rows; returns what to call with rows done."""
        ...


class Silence:
    """Reports to nobody."""

    def stage(self, name: str, n_rows: int) -> Callable[[int], None]:  # noqa: ARG002 - a protocol
        """Start a stage that nobody watches."""
        return no_progress


def write_release(
    prepared: Prepared,
    mechanism: Mechanism,
    target: Destination,
    progress: Progress | None = None,
    journal: Journal | None = None,
) -> None:
    """Privatize a table into a new folder.

    Args:
        prepared: The table.
        mechanism: What to publish.
        target: Where.
        progress: Where to report to.
        journal: What makes the release resumable; by default it is not.

    Raises:
        ClusterDPError: If the table, a parameter or the place is wrong. There is then no folder.
    """
    write_with(
        prepared,
        mechanism,
        target,
        progress or Silence(),
        journal=journal or Unrecorded(),
        add_noise=add_exact_noise,
    )


def write_with(  # noqa: PLR0913 - as `write_release`, and where noise comes from
    prepared: Prepared,
    mechanism: Mechanism,
    target: Destination,
    progress: Progress,
    *,
    journal: Journal,
    add_noise: NoiseSource,
) -> None:
    """As `write_release`, with the sources of randomness given, for tests."""
    layout = prepared.layout
    check_exact(layout, prepared.table.space, mechanism)
    with _plain_errors(target), target.staged() as staged:
        prepared, mechanism, look, before = look_first(
            prepared, mechanism, journal, add_noise, _look_progress(mechanism, layout, progress)
        )
        manifest = _describe(prepared, mechanism, before)
        drawn = _draw(prepared, mechanism, journal, progress, add_noise)
        about_cells = drawn.about_cells
        files: dict[str, FileSum] = {}
        if about_cells.channel is not None:
            randomizer = prepared.randomizer(about_cells.channel, journal.key)
            randomized = progress.stage("randomizing rows", layout.n_units)
            written = prepared.table.write_rows(randomizer, staged.rows, randomized)
            if journal.key.tag(written.seen) != drawn.table_tag:
                raise DataError(TABLE_CHANGED)
            files |= written.files
        progress.stage("sealing the folder", 0)
        folder = staged.files
        if look is not None:
            write_parquet(look.to_table().lazy(), folder / LOOK)
        write_parquet(cells_table(prepared.encoder, layout, about_cells).lazy(), folder / CELLS)
        totals = totals_table(prepared.encoder.arms.values, layout, about_cells.statistics)
        if totals is not None:
            write_parquet(totals.lazy(), folder / TOTALS)
        channels = None if about_cells.channel is None else about_cells.channel.channels_table()
        if channels is not None:
            write_parquet(channels.lazy(), folder / CHANNELS)
        seen = what_is_visible(manifest, layout, about_cells.channel)
        readme = write_readme(manifest, files, seen)
        private_file(folder / README).write_text(readme, encoding="utf-8")
        files |= {
            path.name: FileSum.of(path)
            for path in folder.iterdir()
            if path.is_file() and path.name not in files
        }
        sealed = manifest.sealed(files)
        journal.seal(sealed)
        # Last of all: a folder without a manifest is not a release.
        private_file(folder / MANIFEST).write_bytes(sealed)
    journal.commit(str(target))


def _draw(
    prepared: Prepared,
    mechanism: Mechanism,
    journal: Journal,
    progress: Progress,
    add_noise: NoiseSource,
) -> Drawn:
    """The first pass, and its noise: what an earlier run drew, if there was one."""
    layout, space = prepared.layout, prepared.table.space
    counting = progress.stage("counting cells", layout.n_units)
    asked = asked_of(mechanism, layout, journal.key)
    found = prepared.table.count(layout, prepared.encoder, counting, asked)
    for notice in found.notices:
        notify_owner(notice)
    tag = journal.key.tag(found.seen)
    kept = journal.recall()
    if kept is None:
        progress.stage("drawing noise and designing the channel", 0)
        about_cells = release_cells(found.totals, layout, space, mechanism, add_noise)
        drawn = Drawn(about_cells=about_cells, table_tag=tag)
        journal.keep(bytes(drawn))
        return drawn
    drawn = Drawn.from_bytes(kept, mechanism, layout, space)
    if drawn.table_tag != tag:
        raise DataError(ANOTHER_TABLE)
    return drawn


def _look_progress(
    mechanism: Mechanism, layout: Layout, progress: Progress
) -> Callable[[int], None]:
    if mechanism.look is None:
        return no_progress
    return progress.stage("taking a look", layout.n_units)


def _describe(prepared: Prepared, mechanism: Mechanism, before: BeforeLook | None) -> Manifest:
    table = prepared.table
    return Manifest.of(
        software=software_name(),
        columns=table.columns,
        layout=prepared.layout,
        terms=Terms.of(table.space, mechanism),
        row_order=table.row_order,
        expected=prepared.expected,
        before_look=before,
        notes=(*prepared.notes, *disclosure_notes(mechanism, table.space)),
    )


@contextmanager
def _plain_errors(target: Destination) -> Iterator[None]:
    """Errors of the disk and of Polars as one line that names the place and no data."""
    import polars as pl

    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"cannot write {target}: {reason}") from None
    except pl.exceptions.PanicException as error:  # of Polars, over a damaged file
        raise unreadable(error) from None
    except pl.exceptions.PolarsError as error:
        if "could not parse" in str(error):  # a kept column, which only the second pass reads
            raise unreadable(error) from None
        full = "No space left" in str(error) or "os error 28" in str(error)
        reason = "No space left on device" if full else type(error).__name__
        raise OutputError(f"cannot write {target}: {reason}") from None
