"""Paragraphs of Markdown."""

from __future__ import annotations

from textwrap import fill

_WIDTH = 100


def paragraph(*sentences: str) -> list[str]:
    """Sentences as one paragraph, and an empty line."""
    return [fill(" ".join(sentences), _WIDTH, break_long_words=False, break_on_hyphens=False), ""]
