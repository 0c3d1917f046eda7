"""What every page must be, by its text alone: sound, self-contained, readable aloud, small."""

from __future__ import annotations

import re
from html.parser import HTMLParser

MOST_BYTES = 500_000
_VOID = {"meta", "link", "br", "hr", "img", "input", "col", "line", "path", "circle", "rect"}
_LINKS = {"href", "src", "srcset", "action", "xlink:href", "data", "poster", "formaction"}


class _Page(HTMLParser):
    """Reads a page, and fails where a browser would have to guess."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice"
        given = dict(attrs)
        self.tags.append((tag, given))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if "id" in given:
            self.ids.append(str(given["id"]))
        self.links += [str(value) for name, value in attrs if name in _LINKS]
        assert not any(name.startswith("on") for name in names), f"<{tag}> runs a script"
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "script" not in self.open:
            self.words.append(data)


def page_text(page: str) -> str:
    """What a person reads on a page, with single spaces."""
    return " ".join(" ".join(_Page(page).words).split())


def assert_sound_page(page: str) -> None:
    """A page is well-formed, in order, named, self-contained and not large."""
    assert len(page.encode()) < MOST_BYTES
    assert page.startswith("<!DOCTYPE html>\n")
    read = _Page(page)
    names = [tag for tag, _ in read.tags]
    assert read.tags[0] == ("html", {"lang": "en"})
    assert names.count("title") >= 1
    assert names.count("main") == 1
    assert read.headings[0] == 1
    assert read.headings.count(1) == 1
    steps = zip(read.headings, read.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in steps), read.headings
    assert len(set(read.ids)) == len(read.ids), "an id is there twice"
    for link in read.links:
        inside = link.removeprefix("#")
        local = re.fullmatch(r"[\w.-]+(/[\w.-]+)*", link)
        assert (link.startswith("#") and inside in read.ids) or link == "data:," or local, link
    for tag, given in read.tags:
        if tag == "img":
            assert given.get("alt")
        if tag == "svg" and given.get("aria-hidden") != "true":
            assert given["role"] == "img"
            assert given["aria-label"]
        if tag == "th":
            assert given["scope"] in ("col", "colgroup", "row")
    assert not re.search(r"url\(|@import|<script[^>]+src|<iframe|<object|<embed", page)
    policy = next(
        str(given["content"])
        for tag, given in read.tags
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert ("script-src" in policy) == ("script" in names)
