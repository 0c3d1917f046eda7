"""What must survive a crash, so that a release can be finished without spending its budget again.

A release draws randomness up to three times: a key for rows and for private clusters, noise for a
pilot, and noise for cells. Run again with the same key, noise and table it gives the same release,
so a repeated run reveals nothing more. With the same key and another table it would show exactly
whose outcome changed. So a run either compares the table before it uses a key again, or takes
another key for its rows.

`once` is the one way to draw: what an earlier run drew is recalled, and a stage does not know which
of both happened.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from clusterdp.errors import DataError
from clusterdp.mechanisms.draw import checked_channel
from clusterdp.rows.keys import ReleaseKey
from clusterdp.rows.value_codes import ANOTHER_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.engines.base import PassResult
    from clusterdp.mechanisms.draw import Question, ReleasedQuestion

T = TypeVar("T")
# What is written down: units were given labels; looks were drawn; the noise of cells was drawn.
Event = Literal["labelled", "looked", "drawn"]
LABELLED: Event = "labelled"
LOOKED: Event = "looked"
DRAWN: Event = "drawn"
Arrays = dict[str, Any]
_CHANNEL, _TAG = "channel", "table_tag"


def once(  # noqa: PLR0913 - what is drawn, and how it is written
    journal: Journal,
    event: Event,
    *,
    read: Callable[[], PassResult],
    draw: Callable[[PassResult], T],
    pack: Callable[[T], Arrays],
    unpack: Callable[[Arrays], T],
) -> tuple[T, PassResult | None]:
    """What an earlier run drew under an event; else drawn now, and written down before it is used.

    Args:
        journal: Where it is written down.
        event: What it is.
        read: Passes over the table.
        draw: Draws from what was read.
        pack: What was drawn, as arrays.
        unpack: Reads it back exactly.

    Returns:
        What was drawn; and what was read of the table, which is None where a later event is on
        record: the whole table was compared then, and is compared with that.

    Raises:
        DataError: If the table is not the one that an earlier run drew for.
    """
    stored = journal.recall(event)
    if stored is not None and event != DRAWN and journal.recall(DRAWN) is not None:
        return unpack(unpack_entry(stored)[0]), None
    found = read()
    tag = journal.key.tag(found.seen)
    if stored is None:
        drawn = draw(found)
        journal.keep(event, pack_entry(pack(drawn), tag))
        return drawn, found
    arrays, of_table = unpack_entry(stored)
    if of_table != tag:
        raise DataError(ANOTHER_TABLE)
    return unpack(arrays), found


def pack_entry(arrays: Arrays, table_tag: bytes) -> bytes:
    """What was drawn, to be kept and read back exactly.

    Args:
        arrays: What was drawn.
        table_tag: Which table it came from: a keyed checksum, which is worthless without the key.
    """
    stored, held = io.BytesIO(), {**arrays, _TAG: np.frombuffer(table_tag, dtype=np.uint8)}
    np.savez_compressed(stored, **held)
    return stored.getvalue()


def unpack_entry(stored: bytes) -> tuple[Arrays, bytes]:
    """What was kept, and which table it came from."""
    with np.load(io.BytesIO(stored), allow_pickle=False) as kept:
        arrays = {name: kept[name] for name in kept.files}
    return arrays, arrays.pop(_TAG).tobytes()


def pack_cells(questions: Sequence[ReleasedQuestion]) -> Arrays:
    """The statistics and the channel of each question: a run that is resumed designs nothing."""
    arrays: Arrays = {}
    for number, one in enumerate(questions):
        channel = {} if one.channel is None else {_CHANNEL: one.channel}
        parts = dict(enumerate(one.statistics)) | channel
        for part, drawn in parts.items():
            arrays |= {f"{number}.{part}.{name}": held for name, held in drawn.arrays().items()}
    return arrays


def unpack_cells(
    arrays: Arrays, questions: Sequence[Question], layout: Layout
) -> tuple[ReleasedQuestion, ...]:
    """What was kept of a release of these questions."""
    parts: dict[str, Arrays] = {}
    for name, part in arrays.items():
        whose, _, own_name = name.rpartition(".")
        parts.setdefault(whose, {})[own_name] = part
    found = []
    for number, question in enumerate(questions):
        space, mechanism = question.space, question.mechanism
        statistics = tuple(
            statistic.restore(
                parts[f"{number}.{place}"], mechanism.layout_of(statistic, layout), space
            )
            for place, statistic in enumerate(mechanism.statistics)
        )
        channel = None
        if mechanism.releases_rows:
            held = parts[f"{number}.{_CHANNEL}"]
            restored = question.rows.restore(held, space)
            channel = checked_channel(restored, space, mechanism)
        found.append(question.released(statistics, channel))
    return tuple(found)


class Journal(Protocol):
    """Where a run writes down what it has done, before it goes on."""

    @property
    def key(self) -> ReleaseKey:
        """The key of the release: of its labels, of the rounding of counts, of its checksums."""

    @property
    def row_key(self) -> ReleaseKey:
        """The key that its rows are randomized with."""

    @property
    def draws_anew(self) -> bool:
        """Whether rows get nothing from a key that another run may use with them."""

    def begin_rows(self) -> None:
        """Write down that rows are about to be randomized into a folder that nobody else can read.

        From now on they have a key that no run before used: which table that run read to its end
        is not known if it was killed. Rows that may be public keep their key.
        """

    def give_up(self, reason: str) -> None:
        """Write down that the release can never be finished; its budget stays spent."""

    def recall(self, event: Event) -> bytes | None:
        """What an earlier run kept under an event; None if it did not get that far."""

    def keep(self, event: Event, drawn: bytes) -> None:
        """Write down what was drawn: the release uses no other, and its budget stays spent."""

    def seal(self, manifest: bytes) -> None:
        """Write down what is about to be published."""

    def commit(self, place: str) -> None:
        """The release is published at a place: wipe its secrets."""


@dataclass(frozen=True, slots=True)
class NoJournal:
    """The journal of a release that is never resumed: it keeps a key, and that in memory alone."""

    key: ReleaseKey = field(default_factory=ReleaseKey.from_system)

    @property
    def row_key(self) -> ReleaseKey:
        """The same key: there is no run before."""
        return self.key

    @property
    def draws_anew(self) -> bool:
        """No other run has the key."""
        return True

    def begin_rows(self) -> None:
        """Nothing is kept."""

    def give_up(self, reason: str) -> None:
        """Nothing is kept."""

    def recall(self, event: Event) -> bytes | None:  # noqa: ARG002 - a protocol
        """Nothing: every run is the first."""
        return None

    def keep(self, event: Event, drawn: bytes) -> None:
        """Nothing is kept."""

    def seal(self, manifest: bytes) -> None:
        """Nothing is kept."""

    def commit(self, place: str) -> None:
        """There is nothing to wipe."""
