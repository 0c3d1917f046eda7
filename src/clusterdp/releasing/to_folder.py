"""A release into a folder: counted, drawn, randomized, sealed; complete or not at all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from clusterdp.engines.base import no_progress
from clusterdp.engines.local.table import unreadable, write_parquet
from clusterdp.errors import DataError, OutputError, notify_owner
from clusterdp.published.block_tables import stacked
from clusterdp.published.card import write_card
from clusterdp.published.cells import cells_table
from clusterdp.published.manifest import Manifest, software_name
from clusterdp.published.readme import write_readme
from clusterdp.published.sights import what_is_visible
from clusterdp.published.terms import Terms
from clusterdp.published.totals import totals_table
from clusterdp.releasing.blocks import channels_of, check_blocks, draw_blocks, release_notes
from clusterdp.releasing.journal import Drawn, Unrecorded
from clusterdp.releasing.labelling import label_first
from clusterdp.releasing.looking import look_first
from clusterdp.releasing.prepare import asked_of
from clusterdp.rows.labels import ANOTHER_TABLE, TABLE_CHANGED
from clusterdp.statistics.noise import add_exact_noise
from clusterdp.storage.files import CELLS, CHANNELS, INDEX, LOOK, MANIFEST, README, TOTALS, FileSum
from clusterdp.storage.folder import private_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import polars as pl

    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.published.manifest import BeforeLook
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.statistics.look import DrawnLook
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
    mechanisms: Sequence[Mechanism],
    target: Destination,
    progress: Progress | None = None,
    journal: Journal | None = None,
) -> None:
    """Privatize a table into a new folder.

    Args:
        prepared: The table.
        mechanisms: What to publish of each block.
        target: Where.
        progress: Where to report to.
        journal: What makes the release resumable; by default it is not.

    Raises:
        ClusterDPError: If the table, a parameter or the place is wrong. There is then no folder.
    """
    write_with(
        prepared,
        mechanisms,
        target,
        progress or Silence(),
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
) -> None:
    """As `write_release`, with the sources of randomness given, for tests."""
    check_blocks(prepared, mechanisms)
    with _plain_errors(target), target.staged() as staged:
        prepared = _labelled(prepared, mechanisms, journal, progress)
        layout = prepared.layout
        prepared, mechanisms, look, before = look_first(
            prepared, mechanisms, journal, add_noise, _look_progress(mechanisms, layout, progress)
        )
        manifest = _describe(prepared, mechanisms, before)
        drawn = _draw(prepared, mechanisms, journal, progress, add_noise)
        channels = channels_of(drawn.blocks)
        files: dict[str, FileSum] = {}
        if channels:
            randomizer = prepared.randomizer(channels, journal.key)
            randomized = progress.stage("randomizing rows", layout.n_units)
            written = prepared.table.write_rows(randomizer, staged.rows, randomized)
            if journal.key.tag(written.seen) != drawn.table_tag:
                raise DataError(TABLE_CHANGED)
            files |= written.files
        progress.stage("sealing the folder", 0)
        folder = staged.files
        for name, held in _tables(prepared, drawn, look).items():
            if held is not None:
                write_parquet(held.lazy(), folder / name)
        seen = what_is_visible(manifest, layout, [one.channel for one in drawn.blocks])
        readme = write_readme(manifest, files, seen)
        private_file(folder / README).write_text(readme, encoding="utf-8")
        files |= {
            path.name: FileSum.of(path)
            for path in folder.iterdir()
            if path.is_file() and path.name not in files
        }
        # After all others, whose checksums it shows.
        private_file(folder / INDEX).write_text(write_card(manifest, files, seen), encoding="utf-8")
        files[INDEX] = FileSum.of(folder / INDEX)
        sealed = manifest.sealed(files)
        journal.seal(sealed)
        # Last of all: a folder without a manifest is not a release.
        private_file(folder / MANIFEST).write_bytes(sealed)
    journal.commit(str(target))


def _tables(
    prepared: Prepared, drawn: Drawn, look: DrawnLook | None
) -> dict[str, pl.DataFrame | None]:
    """The tables beside the rows, by the names of their files; None where there is none."""
    layout, arms = prepared.layout, prepared.encoder.arms.values
    of_blocks = [
        None if one.channel is None else one.channel.channels_table() for one in drawn.blocks
    ]
    totals = [totals_table(arms, layout, one.statistics) for one in drawn.blocks]
    return {
        LOOK: None if look is None else look.to_table(),
        CELLS: cells_table(prepared.encoder, layout, drawn.blocks),
        TOTALS: stacked(totals),
        CHANNELS: stacked(of_blocks),
    }


def _draw(
    prepared: Prepared,
    mechanisms: Sequence[Mechanism],
    journal: Journal,
    progress: Progress,
    add_noise: NoiseSource,
) -> Drawn:
    """The first pass, and its noise: what an earlier run drew, if there was one."""
    layout, spaces = prepared.layout, prepared.table.spaces
    counting = progress.stage("counting cells", layout.n_units)
    asked = [asked_of(mechanism, layout, journal.key) for mechanism in mechanisms]
    found = prepared.table.count(layout, prepared.encoder, counting, asked)
    for notice in found.notices:
        notify_owner(notice)
    tag = journal.key.tag(found.seen)
    kept = journal.recall()
    if kept is None:
        progress.stage("drawing noise and designing the channel", 0)
        blocks = draw_blocks(found.totals, layout, spaces, mechanisms, add_noise)
        drawn = Drawn(blocks=blocks, table_tag=tag)
        journal.keep(bytes(drawn))
        return drawn
    drawn = Drawn.from_bytes(kept, mechanisms, layout, spaces)
    if drawn.table_tag != tag:
        raise DataError(ANOTHER_TABLE)
    return drawn


def _labelled(
    prepared: Prepared, mechanisms: Sequence[Mechanism], journal: Journal, progress: Progress
) -> Prepared:
    """With units given their labels, where clusters are private; what they lead to is checked."""
    if prepared.labelling is None:
        return prepared
    counting = progress.stage("giving labels", prepared.layout.n_units)
    prepared = label_first(prepared, journal, counting)
    check_blocks(prepared, mechanisms)
    return prepared


def _look_progress(
    mechanisms: Sequence[Mechanism], layout: Layout, progress: Progress
) -> Callable[[int], None]:
    if all(mechanism.look is None for mechanism in mechanisms):
        return no_progress
    return progress.stage("taking a look", layout.n_units)


def _describe(
    prepared: Prepared, mechanisms: Sequence[Mechanism], before: BeforeLook | None
) -> Manifest:
    table = prepared.table
    return Manifest.of(
        software=software_name(),
        columns=table.columns,
        layout=prepared.layout,
        terms=Terms.of(table.spaces, mechanisms, prepared.response),
        assignment=prepared.assignment,
        row_order=table.row_order,
        expected=prepared.expected,
        before_look=before,
        notes=release_notes(prepared, mechanisms),
        provenance=prepared.provenance,
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
