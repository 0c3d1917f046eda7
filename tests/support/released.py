"""What a release of a folder drew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp.releasing.journal import pack_cells, pack_entry, unpack_cells, unpack_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    import clusterdp as cdp
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.draw import Question, ReleasedQuestion


class Drawn(NamedTuple):
    """What a journal keeps of the cells of each question, and which table they are of."""

    questions: tuple[ReleasedQuestion, ...]
    table_tag: bytes

    def __bytes__(self) -> bytes:
        return pack_entry(pack_cells(self.questions), self.table_tag)

    @classmethod
    def from_bytes(cls, stored: bytes, questions: Sequence[Question], layout: Layout) -> Drawn:
        """What was kept of a release of these questions."""
        arrays, tag = unpack_entry(stored)
        return cls(unpack_cells(arrays, questions, layout), tag)


def drawn_of(kept: bytes, published: cdp.Release) -> Drawn:
    """What a journal kept of a release that is published."""
    return Drawn.from_bytes(kept, published.questions, published.layout)
