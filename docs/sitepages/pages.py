"""A page of Markdown as text and blocks of code, and the folders whose pages are run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1]
# Folders whose code is run. Pages are in the order of docs/index.md.
FOLDERS = ("start", "owner", "analyst", "operate", "reference", "explanation")
# Pages of these folders continue the code of the first page of all.
CONTINUED = ("owner", "analyst", "operate")
START = "start/first_release.md"
# Languages that are run.
RUN = ("python", "sh", "sql", "r")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+\.md)(#[\w-]+)?\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code.

    Attributes:
        language: As the page names it; empty if it does not.
        code: What is between the fences.
        line: The line of the page that it begins on.
        span: Where it begins and ends in the text of the page, fences included.
    """

    language: str
    code: str
    line: int
    span: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of Markdown.

    Attributes:
        path: Where it is.
        text: All of it.
    """

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> Page:
        """A page from its file."""
        return cls(path=path, text=path.read_text(encoding="utf-8"))

    @property
    def blocks(self) -> list[Block]:
        """Its blocks of code, in their order."""
        return [
            Block(
                language=found[1],
                code=found[2],
                line=self.text.count("\n", 0, found.start()) + 2,
                span=found.span(),
            )
            for found in _FENCE.finditer(self.text)
        ]

    @property
    def runs(self) -> bool:
        """Whether some of its code is run, so that it is a notebook, too."""
        return any(block.language in RUN for block in self.blocks)

    @property
    def notebook_name(self) -> str:
        """The file name of the same page as a notebook."""
        return f"{self.path.parent.name}_{self.path.stem}.ipynb"

    def links(self) -> list[tuple[str, str]]:
        """Links to other pages: their words, and where they lead, in the order of the page."""
        return [(words, target) for words, target, _ in _LINK.findall(self.text)]

    def with_links(self, text: str, folder: str) -> str:
        """A text of this page whose links lead to pages of the site, seen from another folder."""

        def moved(found: re.Match[str]) -> str:
            target = (self.path.parent / found[2]).resolve().relative_to(DOCS.parent)
            return f"[{found[1]}]({folder}/{target.with_suffix('.html')}{found[3] or ''})"

        return _LINK.sub(moved, text)


def guides(folder: str) -> list[Page]:
    """The pages of a folder, in the order of the links of docs/index.md."""
    names = dict.fromkeys(target for _, target in Page.read(DOCS / "index.md").links())
    return [Page.read(DOCS / name) for name in names if name.startswith(f"{folder}/")]


def start_of(page: Page) -> Page | None:
    """The page whose code comes before that of another; None if nothing does."""
    return Page.read(DOCS / START) if page.path.parent.name in CONTINUED else None
