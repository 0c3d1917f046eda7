"""What must survive a crash, so that a release can be finished without spending its budget again.

A release draws randomness up to three times: noise for a look, noise for cells, and a key for rows
and for private clusters. Run again with the same key, noise and table it gives the same release, so
a repeated run reveals nothing more. With the same key and another table it would show exactly whose
outcome changed. So a run either compares the table before it uses a key again, or takes another key
for its rows.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from clusterdp.mechanisms.draw import CellRelease, checked_channel
from clusterdp.rows.keys import ReleaseKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp._arrays import IntArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace

_CHANNEL = "channel"


class Drawn(NamedTuple):
    """What a first pass leaves behind.

    Attributes:
        questions: Of each question the noisy statistics of cells, and the channel that was designed
            from them: a run that is resumed designs nothing.
        table_tag: Which table they are of: a keyed checksum, which is worthless without the key.
    """

    questions: tuple[CellRelease, ...]
    table_tag: bytes

    def __bytes__(self) -> bytes:
        """To be kept, and read back exactly."""
        arrays: dict[str, Any] = {"table_tag": np.frombuffer(self.table_tag, dtype=np.uint8)}
        for question, (statistics, channel) in enumerate(self.questions):
            parts = dict(enumerate(statistics)) | ({} if channel is None else {_CHANNEL: channel})
            for part, drawn in parts.items():
                arrays |= {
                    f"{question}.{part}.{name}": held for name, held in drawn.arrays().items()
                }
        return _stored(arrays)

    @classmethod
    def from_bytes(
        cls,
        stored: bytes,
        mechanisms: Sequence[Mechanism],
        layout: Layout,
        spaces: Sequence[CategorySpace],
    ) -> Drawn:
        """What was kept of a release by these mechanisms, one for each question."""
        parts: dict[str, dict[str, Any]] = {}
        for name, part in _restored(stored).items():
            whose, _, own_name = name.rpartition(".")
            parts.setdefault(whose, {})[own_name] = part
        questions = []
        for question, (mechanism, space) in enumerate(zip(mechanisms, spaces, strict=True)):
            statistics = tuple(
                statistic.restore(
                    parts[f"{question}.{place}"], mechanism.layout_of(statistic, layout), space
                )
                for place, statistic in enumerate(mechanism.statistics)
            )
            channel = None
            if mechanism.releases_rows:
                held = parts[f"{question}.{_CHANNEL}"]
                restored = mechanism.settled_rows(space).restore(held, space)
                channel = checked_channel(restored, space, mechanism)
            questions.append(CellRelease(statistics, channel))
        return cls(questions=tuple(questions), table_tag=parts[""]["table_tag"].tobytes())


class KeptLabels(NamedTuple):
    """What giving units their labels leaves behind.

    Attributes:
        sizes: Units by the label that they were given and by arm; axes `[label, arm]`.
        table_tag: Which table they are of, as in `Drawn`.
    """

    sizes: IntArray
    table_tag: bytes

    def __bytes__(self) -> bytes:
        """To be kept, and read back exactly."""
        tag = np.frombuffer(self.table_tag, dtype=np.uint8)
        return _stored({"sizes": self.sizes, "table_tag": tag})

    @classmethod
    def from_bytes(cls, stored: bytes) -> KeptLabels:
        """What was kept."""
        kept = _restored(stored)
        return cls(sizes=kept["sizes"], table_tag=kept["table_tag"].tobytes())


class KeptLooks(NamedTuple):
    """What looks leave behind.

    Attributes:
        noisy_counts: Units in each bin, with noise, by the number of the question; axes `[bin]`.
        table_tag: Which table they are of, as in `Drawn`.
    """

    noisy_counts: dict[int, IntArray]
    table_tag: bytes

    def __bytes__(self) -> bytes:
        """To be kept, and read back exactly."""
        tag = np.frombuffer(self.table_tag, dtype=np.uint8)
        looks = {str(number): counts for number, counts in self.noisy_counts.items()}
        return _stored({**looks, "table_tag": tag})

    @classmethod
    def from_bytes(cls, stored: bytes) -> KeptLooks:
        """What was kept."""
        kept = _restored(stored)
        tag = kept.pop("table_tag").tobytes()
        return cls(noisy_counts={int(name): held for name, held in kept.items()}, table_tag=tag)


def _stored(arrays: dict[str, Any]) -> bytes:
    stored = io.BytesIO()
    np.savez_compressed(stored, **arrays)
    return stored.getvalue()


def _restored(stored: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


class Journal(Protocol):
    """Where a run writes down what it has done, before it goes on."""

    @property
    def key(self) -> ReleaseKey:
        """The key of the release: of its labels, of the rounding of counts, of its checksums."""
        ...

    @property
    def row_key(self) -> ReleaseKey:
        """The key that its rows are randomized with."""
        ...

    @property
    def draws_anew(self) -> bool:
        """Whether rows get nothing from a key that another run may use with them."""
        ...

    def begin_rows(self) -> None:
        """Write down that rows are about to be randomized into a folder that nobody else can read.

        From now on they have a key that no run before used: which table that run read to its end
        is not known if it was killed. Rows that may be public keep their key.
        """
        ...

    def give_up(self, reason: str) -> None:
        """Write down that the release can never be finished; its budget stays spent."""
        ...

    def recall_labels(self) -> bytes | None:
        """The counts of given labels that an earlier run kept; None if there was none."""
        ...

    def keep_labels(self, counted: bytes) -> None:
        """Write down that units were given labels: from now on the budget stays spent."""
        ...

    def recall_look(self) -> bytes | None:
        """The looks that an earlier run kept; None if there were none."""
        ...

    def keep_look(self, drawn: bytes) -> None:
        """Write down looks: from now on the release uses no other, and its budget stays spent."""
        ...

    def recall(self) -> bytes | None:
        """What an earlier run kept; None if there was none, or it did not get that far."""
        ...

    def keep(self, drawn: bytes) -> None:
        """Write down what was drawn: from now on the release uses no other."""
        ...

    def seal(self, manifest: bytes) -> None:
        """Write down what is about to be published."""
        ...

    def commit(self, place: str) -> None:
        """The release is published at a place: wipe its secrets."""
        ...


@dataclass(frozen=True, slots=True)
class Unrecorded:
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

    def recall_labels(self) -> None:
        """Nothing: every run is the first."""
        return

    def keep_labels(self, counted: bytes) -> None:
        """Nothing is kept."""

    def recall_look(self) -> None:
        """Nothing: every run is the first."""
        return

    def keep_look(self, drawn: bytes) -> None:
        """Nothing is kept."""

    def recall(self) -> None:
        """Nothing: every run is the first."""
        return

    def keep(self, drawn: bytes) -> None:
        """Nothing is kept."""

    def seal(self, manifest: bytes) -> None:
        """Nothing is kept."""

    def commit(self, place: str) -> None:
        """There is nothing to wipe."""
