"""A guide as a notebook: the same text, the same code, and what it printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sitepages.pages import Block, Page

# Where pages of the site are, seen from the notebooks.
_SITE = ".."
_START = "The code of *Your first release*, which this page continues:"

Cell = dict[str, Any]


def to_notebook(page: Page, printed: list[str], start: Page | None = None) -> dict[str, Any]:
    """A notebook of a page, as version 4.5 of the format has it.

    Args:
        page: The page.
        printed: What each of its blocks printed; empty texts where nothing was.
        start: The page whose code comes first, or None.
    """
    cells = [] if start is None else _start_cells(start)
    begin = 0
    for block, output in zip(page.blocks, printed, strict=True):
        cells += _text_cells(page, page.text[begin : block.span[0]])
        cells += [_cell(block, output)]
        begin = block.span[1]
    cells += _text_cells(page, page.text[begin:])
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def to_python(block: Block) -> str | None:
    """The code of a block for a kernel of Python; None if it is of another language."""
    code = block.code.rstrip("\n")
    if block.language == "python":
        return code
    if block.language == "sh":
        lines = code.replace("\\\n", "\\\r").split("\n")
        return "\n".join(f"!{line}" for line in lines).replace("\\\r", "\\\n")
    if block.language == "sql":
        return f'import duckdb\n\nprint(duckdb.sql("""\n{code}\n"""))'
    if block.language == "toml":
        return f"%%writefile experiment.toml\n{code}"
    return None


def _start_cells(start: Page) -> list[Cell]:
    blocks = [block for block in start.blocks if block.language == "python"]
    return [_text(_START), *(_cell(block, "") for block in blocks)]


def _text_cells(page: Page, text: str) -> list[Cell]:
    """A cell of text whose links lead to the site; none if there is no text."""
    return [_text(page.with_links(text.strip(), _SITE))] if text.strip() else []


def _cell(block: Block, output: str) -> Cell:
    """A cell that a kernel of Python runs; what it cannot run is text."""
    code = to_python(block)
    if code is None:
        return _text(f"```{block.language}\n{block.code}```")
    stream = {"output_type": "stream", "name": "stdout", "text": f"{output}\n"}
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "source": code,
        "outputs": [stream] if output else [],
    }


def _text(source: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": source}
