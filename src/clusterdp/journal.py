"""What must survive a crash, so that a release can be finished without spending its budget again.

A release draws randomness twice: noise for cells, and a key for rows. Run again with the same key
and the same noise it gives the same release, so nobody gets a second look at anyone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from clusterdp.randomness import ReleaseKey

if TYPE_CHECKING:
    from clusterdp.stages import Statistics


class Drawn(NamedTuple):
    """What a first pass leaves behind.

    Attributes:
        statistics: The noisy statistics of cells.
        table_tag: Which table they are of: a keyed checksum, which tells nothing without the key.
    """

    statistics: Statistics
    table_tag: bytes


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

    def commit(self) -> None:
        """The release is published: wipe its secrets."""
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

    def commit(self) -> None:
        """There is nothing to wipe."""
