"""What developers read names files, names, commands and targets that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import typer.main

from clusterdp.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
ENVIRONMENT = ("CI",)
PACKAGE = ROOT / "src" / "clusterdp"
ROOMS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
_BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
# A file or a folder, and what is in it; `NAME` stands for what a reader adds.
_PLACE = re.compile(r"([\w./-]+(?:\.(?:py|md|html|toml)|/))(?:: ([\w.]+))?")
_NAME = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*")


def spans(page: str) -> list[str]:
    """What a page sets as code, without its blocks and the example that another test runs."""
    text = (ROOT / page).read_text(encoding="utf-8").partition("## Worked example")[0]
    found = _SPAN.findall(_BLOCK.sub("", text))
    return [one for one in dict.fromkeys(found) if "NAME" not in one]


@cache
def files() -> list[Path]:
    """The files that pages may name."""
    folders = ("src", "tests", "bench", "docs", "tools", "examples")
    return [*ROOT.glob("*.*"), *(one for folder in folders for one in (ROOT / folder).rglob("*"))]


def found_at(place: str) -> list[Path]:
    """The files of a path from the root or the package, or of a bare name anywhere."""
    at = [base / place for base in (ROOT, PACKAGE) if (base / place).exists()]
    return at or [one for one in files() if "/" not in place and one.name == place]


@cache
def defined_in(path: Path) -> frozenset[str]:
    """Names that a module defines, members of its classes as `Class.member`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for one in node.body for name in _names(one)}
        if isinstance(node, ast.stmt):
            found |= _names(node)
    return frozenset(found)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {one.id for one in targets if isinstance(one, ast.Name)}


@cache
def words() -> frozenset[str]:
    """Every word of the code and of its settings."""
    kinds = {".py", ".toml", ".html"}
    kept = (one for one in files() if one.suffix in kinds and one != Path(__file__))
    texts = [one.read_text(encoding="utf-8") for one in (ROOT / "Makefile", *kept)]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def exists(span: str) -> bool:
    """Whether what a page names is there; what is no name at all is taken as it is."""
    if place := _PLACE.fullmatch(span):
        path, name = place.groups()
        at = found_at(path)
        return any(name in defined_in(one) for one in at) if name else bool(at)
    if span.startswith("make "):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        return re.search(rf"^{span[5:]}:", makefile, re.MULTILINE) is not None
    if span.startswith("clusterdp "):
        return span.split()[1] in typer.main.get_group(app).commands
    return _NAME.fullmatch(span) is None or span in ENVIRONMENT or _is_defined(span)


def _is_defined(name: str) -> bool:
    """Types and members of types by their definition, other names as words of the code."""
    owner, _, member = name.rpartition(".")
    if not owner[:1].isupper() and not (name == member and name[:1].isupper()):
        return member in words()
    return any(name in defined_in(one) for one in files() if one.suffix == ".py")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str) -> None:
    named = spans(page)
    assert len(named) > 80
    assert [one for one in named if not exists(one)] == []


@pytest.mark.parametrize(
    "span",
    [
        "rows/no_such_file.py",
        "no_such_file.py",
        "rows/keys.py: NoSuchKey",
        "KeyRing.no_such_method",
        "NoSuchType",
        "no_such_function",
        "make no-such-target",
        "clusterdp nosuchcommand",
    ],
)
def test_what_does_not_exist_is_found(span: str) -> None:
    assert not exists(span)


def is_defined_in_its_room(span: str) -> bool:
    """Whether `room.module.name` or `room.name` is where code says that it is."""
    room, *modules, name = span.split(".")
    at = PACKAGE / room / "/".join(modules)
    kept = [at.with_suffix(".py")] if modules else at.rglob("*.py")
    return any(name in defined_in(one) for one in kept if one.exists())


def test_what_code_says_of_other_rooms_is_there() -> None:
    named = {
        (span, path.name)
        for path in PACKAGE.rglob("*.py")
        for span in _SPAN.findall(path.read_text(encoding="utf-8"))
        if span.endswith(".py") or (_NAME.fullmatch(span) and span.split(".")[0] in ROOMS)
    }
    dotted = {
        (span, name)
        for span, name in named
        if "." in span and not _PLACE.fullmatch(span) and not span.endswith(".parquet")
    }
    assert len(named) > 20
    assert {one for one in named if one[0].endswith(".py") and not exists(one[0])} == set()
    assert {one for one in dotted if not is_defined_in_its_room(one[0])} == set()


@pytest.mark.parametrize("span", ["rows.keys.NoSuchKey", "rows.no_module.KeyRing", "rows.nothing"])
def test_what_another_room_does_not_have_is_found(span: str) -> None:
    assert not is_defined_in_its_room(span)
    assert is_defined_in_its_room("rows.keys.KeyRing")
    assert is_defined_in_its_room("rows.KeyRing")
