"""What the site adds to Sphinx: outputs of guides, notebooks, and navigation from plain links."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.errors import ExtensionError

import clusterdp
from sitepages import formulas
from sitepages.notebooks import to_notebook
from sitepages.pages import DOCS, FOLDERS, Block, Page, guides, start_of

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_TITLE = re.compile(r"\A# .*\n")
_SEARCH = (
    '<form class="find" action="../search.html" role="search">'
    '<input name="q" type="search" placeholder="Search the guides" aria-label="Search the guides">'
    "<button>Search</button></form>"
)
_TAB_NAMES = {"python": "Python", "sh": "Command line"}


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the steps to the events of a build."""
    formulas.setup(app)
    app.add_config_value("run_guides", default=True, rebuild="env", types=[bool])
    app.connect("builder-inited", _run_guides)
    app.connect("source-read", _fill_page)
    app.connect("missing-reference", _link_public_name)
    app.connect("html-page-context", _open_to_keyboards, priority=900)  # after the theme's
    app.connect("build-finished", _write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _run_guides(app: Sphinx) -> None:
    """Run the guides of all folders, two folders at a time, each in a process of its own."""
    if not app.config.run_guides:
        app.config.guide_outputs = {}
        return
    with ThreadPoolExecutor(2) as pool:
        app.config.guide_outputs = dict(zip(FOLDERS, pool.map(_printed, FOLDERS), strict=True))


def _printed(folder: str) -> dict[str, list[str]]:
    """What the guides of a folder print."""
    paths = [str(DOCS), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(  # noqa: S603 - our own interpreter and our own code
        [sys.executable, "-m", "sitepages.running", folder],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ExtensionError(f"a guide failed:\n{done.stderr}")
    printed: dict[str, list[str]] = json.loads(done.stdout)
    return printed


def _outputs(app: Sphinx, page: Page) -> list[str]:
    """What each block of a guide printed; nothing if guides were not run."""
    of_folder = app.config.guide_outputs.get(page.path.parent.name, {})
    return of_folder.get(page.path.name) or [""] * len(page.blocks)


def _fill_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to a page what its code printed, a link to its notebook, and what is below it."""
    page = Page(path=Path(app.env.doc2path(docname)), text=source[0])
    text = page.text
    if page.path.parent.name in FOLDERS and page.runs:
        text = _with_outputs(page, _outputs(app, page))
        href = f"../../notebooks/{page.notebook_name}"
        link = f'<p class="notebook"><a href="{href}" download>This page as a notebook</a></p>'
        text = _TITLE.sub(lambda title: f"{title[0]}\n{link}\n", text)
    if page.path.parent == DOCS.parent:  # for developers: outside the navigation
        text = f"---\norphan: true\n---\n{text}"
    if page.path == DOCS / "studies" / "README.md":
        text += toctree("", [link for link in page.links() if "/" not in link[1]])
    if page.path == DOCS / "index.md":
        text = _HEADING.sub(lambda first: f"{_SEARCH}\n\n{first[0]}", text, count=1)
        text += "".join(toctree(*part) for part in parts(page))
    source[0] = text


def _with_outputs(page: Page, printed: list[str]) -> str:
    """The text of a page with what its blocks printed. Blocks that follow each other are tabs."""
    text, end = page.text, 0
    pieces: list[str] = []
    for number, tabs in enumerate(_side_by_side(page)):
        first, last = tabs[0], tabs[-1]
        shown = [_shown(text, page.blocks[tab], printed[tab]) for tab in tabs]
        names = [_TAB_NAMES.get(page.blocks[tab].language, "") for tab in tabs]
        pieces.append(text[end : page.blocks[first].span[0]])
        pieces.append(shown[0] if len(tabs) == 1 else _tab_set(number, names, shown))
        end = page.blocks[last].span[1]
    return "".join([*pieces, text[end:]])


def _side_by_side(page: Page) -> list[list[int]]:
    """The numbers of blocks: those of different languages with no text between are together."""
    groups: list[list[int]] = []
    for number, block in enumerate(page.blocks):
        before = page.blocks[number - 1] if number else None
        if (
            before is not None
            and {before.language, block.language} <= set(_TAB_NAMES)
            and before.language != block.language
            and not page.text[before.span[1] : block.span[0]].strip()
        ):
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def _shown(text: str, block: Block, output: str) -> str:
    """A block of code, and below it what it printed."""
    code = text[slice(*block.span)]
    if not output:
        return code
    return f"{code}\n\n```{{code-block}} text\n:class: printed\n\n{output}\n```\n"


def _tab_set(number: int, names: list[str], shown: list[str]) -> str:
    """Tabs that need no script: a choice, and the panel that it opens."""
    tabs = [
        f'<input type="radio" name="tabs-{number}" id="tab-{number}-{place}"'
        f"{' checked' if place == 0 else ''}>"
        f'<label for="tab-{number}-{place}">{name}</label>'
        f'<div class="panel">\n\n{panel}\n\n</div>'
        for place, (name, panel) in enumerate(zip(names, shown, strict=True))
    ]
    return f'<div class="tabs">\n{"".join(tabs)}</div>\n'


def parts(page: Page) -> list[tuple[str, list[tuple[str, str]]]]:
    """The parts of the site: the headings of its first page, and the pages linked below each."""
    _, *pieces = _HEADING.split(page.text)
    linked = [Page(path=page.path, text=text).links() for text in pieces[1::2]]
    inside = [[link for link in links if not link[1].startswith("../")] for links in linked]
    return list(zip(pieces[::2], inside, strict=True))


def toctree(caption: str, links: list[tuple[str, str]]) -> str:
    """A table of contents for the side bar alone, of the first link to each page."""
    words = {target: words for words, target in reversed(links)}
    entries = "\n".join(f"{words} <{target}>" for target, words in reversed(words.items()))
    option = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n{option}\n{entries}\n```\n"


def _link_public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """A type in a signature that has a public name leads to it; its module is not public."""
    name = node.get("reftarget", "").rpartition(".")[2]
    if node.get("refdomain") != "py" or name not in clusterdp.__all__:
        return None
    python = env.domains.python_domain
    target = f"clusterdp.{name}"
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)


def _open_to_keyboards(
    _app: Sphinx, _name: str, _template: str, context: dict[str, Any], _tree: nodes.document | None
) -> None:
    """What the theme leaves out: keys scroll wide code and tables, captions have a level."""
    body = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    context["body"] = body.replace(
        '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'
    )
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def _write_notebooks(app: Sphinx, error: Exception | None) -> None:
    if error is not None:
        return
    target = Path(app.outdir) / "notebooks"
    target.mkdir(exist_ok=True)
    for page in (page for folder in FOLDERS for page in guides(folder) if page.runs):
        notebook = to_notebook(page, _outputs(app, page), start_of(page))
        (target / page.notebook_name).write_text(json.dumps(notebook, indent=1))
