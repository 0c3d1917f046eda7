"""The passes over a table that is released into a folder, and the noise that is drawn.

Where noisy counts decide how rows are randomized, one pass counts and another randomizes. Else an
engine that writes rows where nobody else sees them randomizes them while it counts, in one pass.

    one pass:    write down that rows begin · count and randomize · draw noise, write it down
    two passes:  count · draw noise, write it down · write down that rows begin · randomize
    resumed:     count and compare the table · write down that rows begin · randomize

So no row is randomized before that is on record, and no noise is drawn before every row was
checked. Once noise is on record, so is which table it is of: a run that is resumed compares first.
Rows that begin get a key of their own, so that no key is used with two tables, whatever became of
the table while a run that was killed read it. Where others see rows as they are written, they keep
their key: two keys would be two draws.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.engines.base import BOTH_AT_ONCE, COUNTING, RANDOMIZING, WantedRows
from clusterdp.errors import DataError, TableChangedError, notify_owner
from clusterdp.mechanisms.draw import CellRelease
from clusterdp.releasing.blocks import channels_of, draw_blocks, draw_noise, public_channels
from clusterdp.releasing.journal import Drawn
from clusterdp.releasing.prepare import asked_of
from clusterdp.rows.labels import ANOTHER_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clusterdp.channels.catalogue import Channel
    from clusterdp.engines.base import Counted, Stages, WrittenRows
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.rows.fingerprint import Fingerprint
    from clusterdp.statistics.noise import NoiseSource


class Released(NamedTuple):
    """What the passes leave.

    Attributes:
        drawn: The noisy statistics and channels of every block.
        rows: The rows that were written; None where none are published.
    """

    drawn: Drawn
    rows: WrittenRows | None


class TablePasses(NamedTuple):
    """What is done with a table, and what it is recorded in.

    Attributes:
        prepared: The table.
        mechanisms: What is published of each block.
        journal: What makes the release resumable.
        stages: Where to report to.
        add_noise: Where noise on statistics comes from.
    """

    prepared: Prepared
    mechanisms: Sequence[Mechanism]
    journal: Journal
    stages: Stages
    add_noise: NoiseSource

    def run(self, folder: str) -> Released:
        """Count, draw, and write rows into a private folder, which is removed if that fails.

        Raises:
            DataError: If a row breaks a rule, before noise is drawn; or if the table is not the
                one that an earlier run drew noise for, or changes meanwhile.
        """
        kept = self._kept()
        known = self._public_channels() if kept is None else ()
        counted, rows = self._first_pass(known, folder)
        _notify(counted.notices)
        drawn = self._draw(counted, known) if kept is None else kept
        self._compare(drawn, counted.seen, DataError(ANOTHER_TABLE))
        channels = channels_of(drawn.blocks)
        if rows is None and channels:
            rows = self._second_pass(drawn, channels, folder)
        if rows is not None:
            _notify(rows.notices)
        return Released(drawn, rows)

    def _first_pass(
        self, known: Sequence[Channel], folder: str
    ) -> tuple[Counted, WrittenRows | None]:
        """Count; and write rows, if their channels are public and the engine does both at once."""
        table, layout, encoder = self.prepared.table, self.prepared.layout, self.prepared.encoder
        asked = [asked_of(mechanism, layout, self.journal.key) for mechanism in self.mechanisms]
        if known and table.writes_unseen:
            progress = self.stages.stage(BOTH_AT_ONCE, layout.n_units)
            self.journal.begin_rows()
            wanted = self._wanted(known, folder)
            return table.count_and_write(layout, encoder, asked, wanted, progress)
        counting = self.stages.stage(COUNTING, layout.n_units)
        return table.count(layout, encoder, counting, asked), None

    def _second_pass(self, drawn: Drawn, channels: Sequence[Channel], folder: str) -> WrittenRows:
        """Randomize the rows of a table that is on record."""
        randomizing = self.stages.stage(RANDOMIZING, self.prepared.layout.n_units)
        if self.prepared.table.writes_unseen:
            self.journal.begin_rows()
        with self._given_up_if_changed():
            rows = self.prepared.table.write_rows(*self._wanted(channels, folder), randomizing)
            self._compare(drawn, rows.seen, TableChangedError())
        return rows

    def _compare(self, drawn: Drawn, seen: Fingerprint, error: DataError) -> None:
        """Raise an error unless what was drawn is of the table that was read."""
        if drawn.table_tag != self.journal.key.tag(seen):
            raise error

    @contextmanager
    def _given_up_if_changed(self) -> Iterator[None]:
        """The table on record never gets rows by a key that was used with another one."""
        try:
            yield
        except TableChangedError:
            self.journal.give_up("the table changed while its rows were randomized")
            raise

    def _wanted(self, channels: Sequence[Channel], folder: str) -> WantedRows:
        return WantedRows(self.prepared.randomizer(channels, self.journal.row_key), folder)

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

    def _draw(self, counted: Counted, known: Sequence[Channel]) -> Drawn:
        """Draw noise, once, and write it down; rows that were written keep their channels."""
        self.stages.stage("drawing noise and designing the channel", 0)
        layout, spaces = self.prepared.layout, self.prepared.table.spaces
        to_draw = (counted.totals, layout, spaces, self.mechanisms, self.add_noise)
        if known:
            blocks = tuple(map(CellRelease, draw_noise(*to_draw), known))
        else:
            blocks = draw_blocks(*to_draw)
        drawn = Drawn(blocks=blocks, table_tag=self.journal.key.tag(counted.seen))
        self.journal.keep(bytes(drawn))
        return drawn


def _notify(notices: Sequence[str]) -> None:
    for notice in notices:
        notify_owner(notice)
