"""One document in every medium: whatever is in it is shown as it is, and its shape stays."""

from __future__ import annotations

import re
from html import unescape

import pytest

from clusterdp.document.markup import to_html, to_markdown, to_page
from clusterdp.document.model import (
    Code,
    Document,
    Facts,
    Items,
    Paragraph,
    Section,
    Table,
    as_notes,
    code,
    in_code,
    strong,
)
from clusterdp.document.text import to_lines, wrapped
from page_checks import assert_sound_page, page_text

HOSTILE = "<b>*x*</b> [a](b) _c_ # ! & | ~ \\ \x1b[2J {{ 7 }}"
PLAIN = HOSTILE.replace("\x1b", "?")


def parts(text: str) -> list[Paragraph | Facts | Items | Table | Code]:
    """Every part with this text everywhere."""
    return [
        Paragraph(text, "lead"),
        Paragraph(f"{strong(text)} and {code(text)}"),
        Facts([(text, text)]),
        *as_notes([text]),
        Items([text], is_ordered=True),
        Table(text, [("", text), (text, "1")]),
        Code(text, text, "sql"),
    ]


def document(text: str) -> Document:
    inner = Section(text, parts(text))
    return Document(text, [Section("", parts(text)), Section(text, [inner], "one")], text)


def in_words(markdown: str) -> str:
    """Markdown as a reader sees it, with single spaces; escapes are read."""
    return " ".join(re.sub(r"\\([\\`*_\[\]<>#|~&!])", r"\1", markdown).split())


def test_everything_is_escaped_in_every_medium() -> None:
    page = to_page(document(HOSTILE))
    assert_sound_page(page)
    assert PLAIN in page_text(page)
    for html in (page, to_html(*parts(HOSTILE))):
        assert "<b>" not in html
        assert "\x1b" not in html
        assert PLAIN in unescape(html)
    written = to_markdown(document(HOSTILE))
    prose = re.sub(r"`[^`]*`", "", re.sub(r"```.*?```", "", written, flags=re.DOTALL))
    assert not re.search(r"(?<!\\)[<_\[]", prose)
    assert "\x1b" not in written
    assert PLAIN in in_words(written)
    lines = to_lines(parts(HOSTILE))
    assert all("\x1b" not in line for line in lines)
    assert any(PLAIN in line for line in lines)


@pytest.mark.parametrize("name", ["a`b", "``", "`x` y"])
def test_code_holds_backticks_of_names(name: str) -> None:
    (span,) = re.findall(
        r"^(`+)( .* )\1$", to_markdown(Document("t", [_of(code(name))])), re.MULTILINE
    )
    assert span[1] == f" {name} "
    fenced = to_markdown(Document("t", [Section("", [Code("SQL", f"```\n{name}", "sql")])]))
    assert re.search(r"^````+sql\n```\n", fenced, re.MULTILINE)


def _of(text: str) -> Section:
    return Section("", [Paragraph(text)])


def test_a_command_is_never_broken() -> None:
    command = "clusterdp estimate . --metric 'a > 1'  # a remark that makes it rather long"
    written = to_markdown(Document("t", [_of("word " * 12 + code(command))]))
    assert f"`{command}`" in written
    assert max(map(len, written.splitlines())) <= max(80, len(command) + 2)


@pytest.mark.parametrize("mark", ["-", "+", "=", "1.", "12)"])
def test_no_line_of_a_text_becomes_another_block(mark: str) -> None:
    for text in (f"{mark} first", f"{'word ' * 15}wor {mark} after"):
        for line in to_markdown(Document("t", [_of(text)])).splitlines():
            assert not re.match(r"\s*([-+=]|\d+[.)])(\s|$)", line), line


def test_strong_words_may_hold_code() -> None:
    text = f"{strong('Not ' + code('x'))}: why"
    assert "<p><strong>Not <code>x</code></strong>: why</p>" in to_html(Paragraph(text))
    assert "**Not `x`**: why" in to_markdown(Document("t", [_of(text)]))
    assert to_lines([Paragraph(text)]) == ["Not `x`: why"]
    assert to_lines([Paragraph(in_code("Not `x`: why"))]) == ["Not `x`: why"]


def test_lines_fit_a_terminal() -> None:
    long = "word " * 40
    section = Section(long, [Paragraph(long), Items([long]), Table(long, [("a", "b")])])
    assert max(map(len, to_lines([section], 40))) <= 40
    assert to_lines([Facts([("a", "1"), ("long", "2")]), *as_notes(["n"])]) == [
        "a     1",
        "long  2",
        "note: n.",
    ]


def test_a_number_stays_with_its_unit_and_its_letter() -> None:
    for width in range(10, 40):
        lines = wrapped("it costs ε = 2.5, of 4 pp, which is (F = 0.78, p = 0.36)", width)
        assert not any(re.search(r"([εFp]( =)?| 4)$", line) for line in lines)
        assert " ".join(lines) == "it costs ε = 2.5, of 4 pp, which is (F = 0.78, p = 0.36)"
