"""What a release of a folder drew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.releasing.journal import Drawn

if TYPE_CHECKING:
    import clusterdp as cdp


def drawn_of(kept: bytes, published: cdp.Release) -> Drawn:
    """What a journal kept of a release that is published."""
    mechanisms = [block.mechanism for block in published.blocks]
    spaces = [block.space for block in published.blocks]
    return Drawn.from_bytes(kept, mechanisms, published.layout, spaces)
