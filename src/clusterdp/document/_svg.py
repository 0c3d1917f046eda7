"""Elements of SVG drawings, escaped where they are made."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Sequence


def element(name: str, content: str = "", **attributes: float | str) -> Markup:
    """An element; `_` in the name of an attribute stands for `-`, and one at its end for nothing.

    Args:
        name: Of the element.
        content: What is in it, escaped already.
        **attributes: Numbers are written with one digit after the point.
    """
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_written(value)}"'
        for key, value in attributes.items()
    )
    made = f"<{name}{listed}>{content}</{name}>" if content else f"<{name}{listed}/>"
    return Markup(made)  # noqa: S704 - escaped here, and by who gives the content


def text(content: str, x: float, y: float, **attributes: float | str) -> Markup:
    """A line of text."""
    return element("text", escape(content), x=x, y=y, **attributes)


def drawing(
    parts: Sequence[str], width: float, height: float, title: str, description: str
) -> Markup:
    """A drawing that screen readers read as one image, by its title and description."""
    head = [element("title", escape(title)), element("desc", escape(description))]
    return element(
        "svg",
        "".join([*head, *parts]),
        role="img",
        aria_label=f"{title}. {description}",
        viewBox=f"0 0 {_written(width)} {_written(height)}",
        class_="chart",
    )


def _written(value: float | str) -> str:
    if isinstance(value, str):
        return escape(value)
    return f"{value:.1f}".replace("-0.0", "0.0").removesuffix(".0")
