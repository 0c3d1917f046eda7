"""The release: the pipeline from a table to published rows and cells, in memory.

The passes over a table that is released into a folder, and the noise that is drawn.

Where noisy counts decide how rows are randomized, one pass counts and another randomizes. Else an
engine that writes rows where nobody else sees them randomizes them while it counts, in one pass.

    one pass:    write down that rows begin · count and randomize · draw noise, write it down
    two passes:  count · draw noise, write it down · write down that rows begin · randomize
    resumed:     count and compare the table · write down that rows begin · randomize

So no row is randomized before that is on record, and no noise is drawn before every row was
checked. Once noise is on record, so is which table it is of: a run that is resumed compares first.

No key is used with two tables, whatever became of the table while a run that was killed read it:

- Rows that begin in a private folder get a key of their own.
- Rows that others may see, or have seen, keep their key: two keys would be two draws. So do labels
  of private clusters, whose counts are on record. Then the second pass stores no row that anybody
  can read before it has read all of them and compared the table.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.engines.base import BOTH_AT_ONCE, COUNTING, RANDOMIZING
from clusterdp.errors import DataError, TableChangedError
from clusterdp.mechanisms.draw import CellRelease, draw_together
from clusterdp.published.notes import release_notes
from clusterdp.published.release import Release, ReleasedQuestion
from clusterdp.published.tables import cells_table
from clusterdp.releasing.journal import Drawn, Unrecorded
from clusterdp.releasing.labelling import label_first
from clusterdp.releasing.looking import look_first
from clusterdp.releasing.prepare import asked_of, prepare
from clusterdp.releasing.questions import (
    channels_of,
    check_questions,
    describe,
    draw_questions,
    public_channels,
)
from clusterdp.rows.keys import KeyRing
from clusterdp.rows.value_codes import ANOTHER_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clusterdp._progress import Progress
    from clusterdp.channels import Channel
    from clusterdp.engines.base import PassResult
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.categories import Categories
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.rows.keys import Fingerprint, ReleaseKey
    from clusterdp.spec.columns import Columns
    from clusterdp.statistics.noise import NoiseSource
    from clusterdp.storage.folder import FileSum


def run_release(  # noqa: PLR0913 - the parts of a table and the owner's choices, all by name
    frame: Any,
    *,
    mechanism: Mechanism,
    space: Categories,
    columns: Columns,
    key: ReleaseKey,
    add_noise: NoiseSource,
    **choices: Any,
) -> Release:
    """Prepare a frame and release it in one question, with all randomness given, for tests.

    With the same key and the same noise it gives the same release. Choices are those of `prepare`.
    """
    prepared = prepare(frame, columns=columns, spaces=(space,), **choices)
    return release_in_memory(prepared, (mechanism,), key, add_noise)


def release_in_memory(
    prepared: Prepared, mechanisms: Sequence[Mechanism], key: ReleaseKey, add_noise: NoiseSource
) -> Release:
    """Privatize every outcome of a table; what is published are frames of its own library.

    Args:
        prepared: The table.
        mechanisms: What to publish of each question.
        key: Where the randomness of rows comes from.
        add_noise: Where noise on statistics comes from.
    """
    check_questions(prepared, mechanisms)
    prepared = prepared.asking_by(mechanisms, key)
    if prepared.response is not None:
        prepared = label_first(prepared, Unrecorded(key))
        check_questions(prepared, mechanisms)
    prepared, mechanisms, looks, before, _ = look_first(
        prepared, mechanisms, Unrecorded(key), add_noise
    )
    table, layout, keys = prepared.table, prepared.layout, KeyRing(key)
    manifest = describe(prepared, mechanisms, before)
    asked = [asked_of(mechanism, layout) for mechanism in mechanisms]
    found = table.run(prepared.pass_with(keys, counts=asked))
    told = prepared.telling(found.notices)
    drawn = draw_questions(found.counted.totals, layout, table.spaces, mechanisms, add_noise)
    channels, units = channels_of(drawn), None
    if channels:
        again = table.run(prepared.pass_with(keys, channels))
        if again.seen != found.seen:
            raise TableChangedError
        units = again.rows
        told.telling(again.notices)
    return Release(
        units=units,
        cells=table.like(cells_table(prepared.encoder, layout, drawn)),
        questions=tuple(
            ReleasedQuestion(
                space=space, mechanism=mechanism, statistics=one.statistics, channel=one.channel
            )
            for space, mechanism, one in zip(table.spaces, mechanisms, drawn, strict=True)
        ),
        guarantee=manifest.terms.to_guarantee(),
        columns=table.columns.as_published(),
        layout=layout,
        notes=release_notes(manifest, layout, [one.channel for one in drawn]),
        looks=looks,
        asking=prepared.asking,
        response=prepared.response,
        assignment=prepared.assignment,
        provenance=prepared.provenance,
    )


class TablePasses(NamedTuple):
    """What is done with a table, and what it is recorded in.

    Attributes:
        prepared: The table.
        mechanisms: What is published of each question.
        journal: What makes the release resumable.
        stages: Where to report to.
        add_noise: Where noise on statistics comes from.
    """

    prepared: Prepared
    mechanisms: Sequence[Mechanism]
    journal: Journal
    stages: Progress
    add_noise: NoiseSource

    def run(self, folder: str) -> tuple[Drawn, Mapping[str, FileSum]]:
        """Count, draw, and write rows into a private folder, which is removed if that fails.

        Returns:
            The noisy statistics and channels of every question, and the files of rows.

        Raises:
            DataError: If a row breaks a rule, before noise is drawn; or if the table is not the
                one that an earlier run drew noise for, or changes meanwhile.
        """
        kept = self._kept()
        known = self._public_channels() if kept is None else ()
        found = self._first_pass(known, folder)
        told, files = self.prepared.telling(found.notices), found.files
        drawn = self._draw(found, known) if kept is None else kept
        self._compare(drawn, found.seen, DataError(ANOTHER_TABLE))
        channels = channels_of(drawn.questions)
        if not files and channels:
            rows = self._second_pass(drawn, channels, folder, found.seen)
            told.telling(rows.notices)
            files = rows.files
        return drawn, files

    def _first_pass(self, known: Sequence[Channel], folder: str) -> PassResult:
        """Count; and write rows, if their channels are public and the engine does both at once."""
        table, layout = self.prepared.table, self.prepared.layout
        counts = [asked_of(mechanism, layout) for mechanism in self.mechanisms]
        if known and self._draws_anew:
            progress = self.stages.stage(BOTH_AT_ONCE, layout.n_units)
            self.journal.begin_rows()
            asked = self.prepared.pass_with(
                self._keys, known, counts=counts, folder=folder, progress=progress
            )
        else:
            progress = self.stages.stage(COUNTING, layout.n_units)
            asked = self.prepared.pass_with(self._keys, counts=counts, progress=progress)
        return table.run(asked)

    def _second_pass(
        self, drawn: Drawn, channels: Sequence[Channel], folder: str, seen: Fingerprint
    ) -> PassResult:
        """Randomize the rows of a table that is on record."""
        progress = self.stages.stage(RANDOMIZING, self.prepared.layout.n_units)
        if self.prepared.table.writes_privately:
            self.journal.begin_rows()
        only = None if self._draws_anew else seen
        with self._given_up_if_changed() if only is None else nullcontext():
            asked = self.prepared.pass_with(
                self._keys, channels, folder=folder, only=only, progress=progress
            )
            rows = self.prepared.table.run(asked)
            self._compare(drawn, rows.seen, TableChangedError())
        return rows

    @property
    def _keys(self) -> KeyRing:
        """The keys by now: rows that begin anew may have others."""
        return KeyRing(self.journal.key, self.journal.row_key)

    @property
    def _draws_anew(self) -> bool:
        """Whether this run alone uses the keys of its rows, and nobody sees these meanwhile."""
        return self.prepared.table.writes_privately and self.journal.draws_anew

    def _compare(self, drawn: Drawn, seen: Fingerprint, error: DataError) -> None:
        """Raise an error unless what was drawn is of the table that was read."""
        if drawn.table_tag != self.journal.key.tag(seen):
            raise error

    @contextmanager
    def _given_up_if_changed(self) -> Iterator[None]:
        """The table on record gets no rows after those of another one were stored."""
        try:
            yield
        except TableChangedError:
            self.journal.give_up("the table changed while its rows were randomized")
            raise

    def _kept(self) -> Drawn | None:
        """What an earlier run drew, if there was one."""
        stored = self.journal.recall()
        if stored is None:
            return None
        layout, spaces = self.prepared.layout, self.prepared.table.spaces
        return Drawn.from_bytes(stored, self.mechanisms, layout, spaces)

    def _public_channels(self) -> tuple[Channel, ...]:
        spaces = self.prepared.table.spaces
        return public_channels(self.prepared.layout, spaces, self.mechanisms)

    def _draw(self, found: PassResult, known: Sequence[Channel]) -> Drawn:
        """Draw noise, once, and write it down; rows that were written keep their channels."""
        self.stages.stage("drawing noise and designing the channel", 0)
        layout, spaces = self.prepared.layout, self.prepared.table.spaces
        to_draw = (found.counted.totals, layout, spaces, self.mechanisms, self.add_noise)
        if known:
            questions = tuple(map(CellRelease, draw_together(*to_draw), known))
        else:
            questions = draw_questions(*to_draw)
        drawn = Drawn(questions=questions, table_tag=self.journal.key.tag(found.seen))
        self.journal.keep(bytes(drawn))
        return drawn
