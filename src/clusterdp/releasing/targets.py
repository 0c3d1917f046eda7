"""Where a release goes: a new folder, complete or not at all; or memory."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterdp.engines.local.table import write_parquet
from clusterdp.errors import OutputError
from clusterdp.published.contents import FolderView
from clusterdp.published.document import write_card, write_readme
from clusterdp.published.notes import release_notes
from clusterdp.published.release import Release
from clusterdp.published.tables import cells_table, stacked, totals_table
from clusterdp.storage.folder import (
    CELLS,
    CHANNELS,
    INDEX,
    MANIFEST,
    PILOT,
    README,
    TOTALS,
    FileSum,
    Staged,
    private_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from clusterdp.published.manifest import Manifest
    from clusterdp.releasing.stages import ReleaseState
    from clusterdp.storage.folder import Destination


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """Memory: frames of the library that the table came from."""

    def staged(self, claim: str) -> AbstractContextManager[None]:  # noqa: ARG002 - as a folder
        """Nothing is put anywhere."""
        return nullcontext()

    def finish(self, state: ReleaseState, manifest: Manifest, staged: Staged | None) -> Release:  # noqa: ARG002 - as a folder
        """The release as a value."""
        opened, layout = state.opened, state.opened.layout
        return Release(
            units=None if state.rows is None else state.rows.rows,
            cells=opened.table.like(cells_table(opened.encoder, layout, state.drawn)),
            questions=state.drawn,
            guarantee=state.spec.terms.guarantee,
            columns=opened.table.columns.as_published(),
            layout=layout,
            remarks=release_notes(manifest, layout, [cells.channel for cells in state.drawn]),
            pilots=state.pilots,
            asking=opened.asking,
            response=state.spec.clusters.response,
            assignment=state.spec.clusters.probs(layout),
            provenance=state.spec.provenance,
        )


@dataclass(frozen=True, slots=True)
class FolderTarget:
    """A folder on a disk or in a store.

    Attributes:
        place: Where it appears.
    """

    place: Destination

    def __str__(self) -> str:
        return str(self.place)

    @contextmanager
    def staged(self, claim: str) -> Iterator[Staged]:
        """A private folder; errors that follow name the place and no data."""
        with _plain_errors(self.place), self.place.staged(claim) as staged:
            yield staged

    def finish(
        self, state: ReleaseState, manifest: Manifest, staged: Staged | None
    ) -> tuple[str, ...]:
        """Write everything but rows, the manifest last; what followed from pilots, in sentences."""
        assert staged is not None  # noqa: S101 - see `staged`
        state.progress.stage("sealing the folder", 0)
        folder = staged.files
        files = {} if state.rows is None else dict(state.rows.files)
        tables = {
            name: write_parquet(held.lazy(), folder / name)
            for name, held in _tables(state).items()
            if held is not None
        }
        channels = [cells.channel for cells in state.drawn]
        view = FolderView.from_parts(manifest, state.opened.layout, channels)
        readme = write_readme(view, files)
        private_file(folder / README).write_text(readme, encoding="utf-8")
        files |= tables | {README: FileSum.from_file(folder / README)}
        # After all others, whose checksums it shows.
        page = write_card(view, files)
        private_file(folder / INDEX).write_text(page, encoding="utf-8")
        files[INDEX] = FileSum.from_file(folder / INDEX)
        sealed = manifest.sealed(files)
        state.journal.seal(sealed)
        # Last of all: a folder without a manifest is not a release.
        private_file(folder / MANIFEST).write_bytes(sealed)
        return state.found


def _tables(state: ReleaseState) -> dict[str, pl.DataFrame | None]:
    """The tables next to the rows, by the names of their files; None where one is missing."""
    layout, encoder = state.opened.layout, state.opened.encoder
    names = state.opened.table.columns.question_names
    of_questions = [
        None if one.channel is None else one.channel.channels_table() for one in state.drawn
    ]
    totals = [totals_table(encoder.arms.values, layout, one.statistics) for one in state.drawn]
    return {
        PILOT: stacked(
            [None if pilot is None else pilot.to_table() for pilot in state.pilots], names
        ),
        CELLS: cells_table(encoder, layout, state.drawn),
        TOTALS: stacked(totals, names),
        CHANNELS: stacked(of_questions, names),
    }


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
