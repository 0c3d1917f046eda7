"""What a release of a folder drew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.releasing.journal import Drawn

if TYPE_CHECKING:
    import clusterdp as cdp


def drawn_of(kept: bytes, published: cdp.Release) -> Drawn:
    """What a journal kept of a release that is published."""
    mechanisms = [question.mechanism for question in published.questions]
    spaces = [question.space for question in published.questions]
    return Drawn.from_bytes(kept, mechanisms, published.layout, spaces)
