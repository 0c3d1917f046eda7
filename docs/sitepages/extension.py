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
from sitepages.pages import DOCS, FOLDERS, Page, guides

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_TITLE = re.compile(r"\A# .*\n")


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
    if page.path.parent.name in FOLDERS:
        text = _with_outputs(page, _outputs(app, page))
        href = f"../../notebooks/{page.notebook_name}"
        link = f'<p class="notebook"><a href="{href}" download>This page as a notebook</a></p>'
        text = _TITLE.sub(lambda title: f"{title[0]}\n{link}\n", text)
    if page.path.name == "README.md" and page.path.parent.name in FOLDERS:
        text += toctree("", [link for link in page.links() if "/" not in link[1]])
    if page.path == DOCS / "index.md":
        text += "".join(toctree(*part) for part in parts(page))
    source[0] = text


def _with_outputs(page: Page, printed: list[str]) -> str:
    """The text of a page with what its blocks printed after each of them."""
    text = page.text
    for block, output in reversed(list(zip(page.blocks, printed, strict=True))):
        if output:
            shown = f"\n```{{code-block}} text\n:class: printed\n\n{output}\n```\n"
            text = text[: block.span[1]] + "\n" + shown + text[block.span[1] :]
    return text


def parts(page: Page) -> list[tuple[str, list[tuple[str, str]]]]:
    """The parts of the site: the headings of its first page, and the pages linked below each."""
    _, *pieces = _HEADING.split(page.text)
    return [
        (caption, Page(path=page.path, text=text).links())
        for caption, text in zip(pieces[::2], pieces[1::2], strict=True)
    ]


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
    """What the theme leaves out: wide code can be scrolled by keys, captions have a level."""
    context["body"] = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def _write_notebooks(app: Sphinx, error: Exception | None) -> None:
    if error is not None:
        return
    target = Path(app.outdir) / "notebooks"
    target.mkdir(exist_ok=True)
    for folder in FOLDERS:
        first, *others = guides(folder)
        starts = [(first, None), *((page, first) for page in others)]
        for page, start in starts:
            notebook = to_notebook(page, _outputs(app, page), start)
            (target / page.notebook_name).write_text(json.dumps(notebook, indent=1))
