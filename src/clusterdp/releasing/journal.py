"""What must survive a crash, so that a release can be finished without spending its budget again.

A release draws randomness twice: noise for cells, and a key for rows. Run again with the same key
and the same noise it gives the same release, so nobody gets a second look at anyone.
"""

from __future__ import annotations

import dataclasses
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from clusterdp.channels.draw import Statistics
from clusterdp.channels.statistics import ContrastSummary, CountSummary, SumSummary
from clusterdp.rows.keys import ReleaseKey

if TYPE_CHECKING:
    from clusterdp.channels.statistics import Summary


class Drawn(NamedTuple):
    """What a first pass leaves behind.

    Attributes:
        statistics: The noisy statistics of cells.
        table_tag: Which table they are of: a keyed checksum, which tells nothing without the key.
    """

    statistics: Statistics
    table_tag: bytes

    def __bytes__(self) -> bytes:
        """To be kept, and read back exactly."""
        arrays: dict[str, Any] = {"table_tag": np.frombuffer(self.table_tag, dtype=np.uint8)}
        for part in self.statistics:
            if part is not None:
                kind = type(part).__name__
                fields = ((one.name, getattr(part, one.name)) for one in dataclasses.fields(part))
                arrays |= {f"{kind}.{name}": held for name, held in fields if held is not None}
        stored = io.BytesIO()
        np.savez_compressed(stored, **arrays)
        return stored.getvalue()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Drawn:
        """What was kept."""
        with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
            parts: dict[str, dict[str, Any]] = {}
            for name in arrays.files:
                kind, _, field_name = name.rpartition(".")
                held = arrays[name]
                parts.setdefault(kind, {})[field_name] = held if held.ndim else held.item()
        tag = parts.pop("")["table_tag"].tobytes()
        sums = parts.pop("SumSummary", None)
        summary: Summary | None = None
        for kind in (CountSummary, ContrastSummary):
            if kind.__name__ in parts:
                summary = kind(**parts[kind.__name__])
        return cls(
            statistics=Statistics(
                summary=summary,
                sums=None if sums is None else SumSummary(**{"squares": None, **sums}),
            ),
            table_tag=tag,
        )


class Journal(Protocol):
    """Where a run writes down what it has done, before it goes on."""

    @property
    def key(self) -> ReleaseKey:
        """The key of the release's rows."""
        ...

    def recall(self) -> Drawn | None:
        """What an earlier run drew; None if there was none, or it did not get that far."""
        ...

    def keep(self, drawn: Drawn) -> None:
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

    def recall(self) -> Drawn | None:
        """Nothing: every run is the first."""
        return None

    def keep(self, drawn: Drawn) -> None:
        """Let it go."""

    def seal(self, manifest: bytes) -> None:
        """Let it go."""

    def commit(self, place: str) -> None:
        """There is nothing to wipe."""
