"""Formulas as drawings in the page: no script, and no font that a reader would need.

Browsers draw MathML well only where a font for mathematics is installed, which many systems lack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from docutils import nodes
from ziamath.config import config
from ziamath.zmath import Latex

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

_PIXELS = 18
# Outlines in the drawing itself: a page has many, whose names must not meet.
config.svg2 = False


def drawing(latex: str, *, in_line: bool) -> str:
    """A formula as SVG, in the colour of the text around it, with its source for who listens."""
    formula = Latex(latex, size=_PIXELS, color="currentColor", inline=in_line)
    drawn = formula.svgxml()
    drawn.set("role", "img")
    drawn.set("aria-label", latex)
    if in_line:
        drawn.set("style", f"vertical-align: {formula.getyofst():.1f}px")
    return ET.tostring(drawn, encoding="unicode")


def inline(translator: HTML5Translator, node: nodes.Element) -> None:
    """A formula in a line."""
    translator.body.append(drawing(node.astext(), in_line=True))
    raise nodes.SkipNode


def displayed(translator: HTML5Translator, node: nodes.Element) -> None:
    """A formula on lines of its own; rows are separated by an empty line."""
    rows = [row.strip() for row in node.astext().split("\n\n") if row.strip()]
    drawn = "".join(f"<div>{drawing(row, in_line=False)}</div>" for row in rows)
    translator.body.append(f'<div class="formula" tabindex="0">{drawn}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the renderer under the name `drawings`."""
    app.add_html_math_renderer(
        "drawings", inline_renderers=(inline, None), block_renderers=(displayed, None)
    )
