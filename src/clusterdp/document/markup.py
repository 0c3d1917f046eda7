"""Documents as markup: Markdown, HTML for notebooks, and self-contained pages.

Pages are made by Jinja2. Every value in a template is plain, and escaped unless the template
is a text (`.txt`); a name that was not given is an error. Pages extend `base.html`; `parts.html`
has what they share; `document.html` shows a `Document`. A page has scripts only if it fills the
block `script`: the policy of all others forbids them.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from clusterdp._text import plain_text
from clusterdp.document.model import (
    Code,
    Facts,
    Items,
    KeyNumbers,
    Paragraph,
    Section,
    Table,
    in_code,
    render_inline,
    strong,
)
from clusterdp.document.text import aligned, in_plain_text

if TYPE_CHECKING:
    from jinja2 import Environment

    from clusterdp.document.model import Document, Part

_WIDTH = 80
# Stands for a space at which no line is broken.
_FIRM = "\0"


def render(package: str | tuple[str, ...], template: str, **values: Any) -> str:
    """A page.

    Args:
        package: The package whose folder `templates` holds the template; or several, in order.
        template: Its name, such as `plan.html`.
        **values: What is put into it.
    """
    packages = (package,) if isinstance(package, str) else package
    return _environment(packages).get_template(template).render(values)


@cache
def _environment(packages: tuple[str, ...]) -> Environment:
    """The templates of some packages, compiled once."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(one) for one in (*packages, "clusterdp.document")]),
        autoescape=select_autoescape(disabled_extensions=["txt"], default=True),
        finalize=_plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "inline": lambda text: Markup(_in_html(text)),  # noqa: S704 - escaped there
        "in_code": in_code,
        "kind": lambda part: type(part).__name__,
    }
    return environment


def _plain(value: Any) -> Any:
    """What is put into a page, without characters that are not plain; markup stays markup."""
    return type(value)(plain_text(value, "\n\t")) if isinstance(value, str) else value


def to_page(document: Document) -> str:
    """A document as a page. Sections with an anchor are linked to from its top."""
    return render("clusterdp.document", "document.html", document=document)


def to_html(*parts: Part | Section) -> str:
    """Parts of a document for notebooks: as on a page, with the style of pages."""
    opened = [
        inner
        for part in parts
        for inner in (part.parts if isinstance(part, Section) and not part.heading else [part])
    ]
    return render("clusterdp.document", "notebook.html", parts=opened)


def _in_html(text: str) -> str:
    def as_code(content: str) -> str:
        return f"<code>{escape(content)}</code>"

    # A budget is one word: no line ends within it.
    whole = re.sub("([εδ]) = ", "\\1\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}", text)
    return render_inline(whole, escape, as_code, ("<strong>", "</strong>"))


def to_markdown(document: Document) -> str:
    """A document as Markdown; charts are left out."""
    title = f"# {_in_markdown(document.title)}"
    blocks = [block for one in document.sections for block in _markdown_section(one, "##")]
    written = "\n\n".join([title, *blocks, *_lines(document.footer)]) + "\n"
    return written.replace(_FIRM, " ")


def _markdown_section(section: Section, level: str) -> list[str]:
    blocks = [] if not section.heading else [f"{level} {_in_markdown(section.heading)}"]
    for part in section.parts:
        if isinstance(part, Section):
            blocks += _markdown_section(part, f"{level}#")
        else:
            blocks += _markdown_part(part)
    return blocks


def _markdown_part(part: Part) -> list[str]:  # noqa: PLR0911 - one for each kind of part
    match part:
        case Paragraph(text):
            return _lines(text)
        case Facts(pairs):
            return _markdown_part(Items([f"{name}: {text}" for name, text in pairs]))
        case KeyNumbers(pairs):
            return _markdown_part(Items([f"{strong(text)} {name}" for name, text in pairs]))
        case Items(texts, is_ordered):
            marks = [f"{number}. " if is_ordered else "- " for number in range(1, len(texts) + 1)]
            items = [_fill(text, mark) for text, mark in zip(texts, marks, strict=True)]
            return ["\n".join(items)] if items else []
        case Table(title, rows, _, groups):
            shown = [tuple(map(in_plain_text, row)) for row in rows]
            return [*_lines(title), _fenced("\n".join(aligned(shown, groups=groups)))]
        case Code(label, lines, language):
            return [f"{_in_markdown(label)}:\n{_fenced(lines, language)}"]
    return []


def _fenced(lines: str, language: str = "") -> str:
    fence = _fence(lines, 3)
    return f"{fence}{language}\n{plain_text(lines, chr(10))}\n{fence}"


def _fence(content: str, least: int) -> str:
    """More backticks than stand together in what is between them."""
    longest = max(map(len, re.findall("`+", content)), default=0)
    return "`" * max(least, longest + 1)


def _lines(text: str) -> list[str]:
    return [_fill(text)] if text else []


def _fill(text: str, mark: str = "") -> str:
    """A text in lines, of which none is broken within code or taken for another block."""
    lines = textwrap.wrap(
        _in_markdown(text),
        _WIDTH,
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_long_words=False,
        break_on_hyphens=False,
    )
    own = len(mark)
    firm = (
        line[:own] + re.sub(r"^(\d*)([-+=.)])(?=\s|$)", r"\1\\\2", line[own:]) for line in lines
    )
    return "\n".join(firm)


def _in_markdown(text: str) -> str:
    """A text that Markdown shows as it is."""

    def escaped(plain: str) -> str:
        return re.sub(r"([\\`*_\[\]<>#|~&!])", r"\\\1", plain)

    def as_code(code: str) -> str:
        fence, room = _fence(code, 1), " " if "`" in code else ""
        return f"{fence}{room}{code}{room}{fence}".replace(" ", _FIRM)

    return render_inline(text, escaped, as_code, ("**", "**"))
