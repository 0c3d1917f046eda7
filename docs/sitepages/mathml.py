"""Formulas as MathML, which browsers draw themselves: no script and no font of another host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


def inline(translator: HTML5Translator, node: nodes.Element) -> None:
    """A formula in a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed(translator: HTML5Translator, node: nodes.Element) -> None:
    """A formula on lines of its own; rows are separated by an empty line."""
    rows = [row for row in node.astext().split("\n\n") if row.strip()]
    drawn = "".join(f"<div>{convert(row.strip(), display='block')}</div>" for row in rows)
    translator.body.append(f'<div class="formula" tabindex="0">{drawn}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the renderer under the name `mathml`."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(displayed, None)
    )
