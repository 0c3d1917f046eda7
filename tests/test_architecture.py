"""Data flows one way: no module imports one that comes after it in ARCHITECTURE.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "clusterdp"


def mapped_modules() -> list[str]:
    """Every module of the map, in its order; folders by their name."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("| stage | file |") : text.index("Gold standard")]
    rows = [line.split("|")[2] for line in table.splitlines()[2:] if line.startswith("|")]
    return [name for row in rows for name in re.findall(r"`([\w/]+?)(?:\.py|/)`", row)]


def imported(path: Path) -> set[str]:
    """The package's modules that a file imports when it runs, not for types alone."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "clusterdp":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clusterdp."):
            found.add(str(node.module).split(".")[1])
    return found


def test_every_module_is_on_the_map() -> None:
    there = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    unmapped = {"__init__", "py", "arrays", "errors", "demo"}
    assert there - unmapped == set(mapped_modules()) - unmapped


def test_no_module_imports_a_later_one() -> None:
    order = {name: place for place, name in enumerate(mapped_modules())}
    for name, place in order.items():
        files = [PACKAGE / f"{name}.py"]
        if (PACKAGE / name).is_dir():
            files = list((PACKAGE / name).glob("*.py"))
        for path in files:
            later = {other for other in imported(path) if order.get(other, -1) > place}
            assert not later, f"{path.name} imports {', '.join(sorted(later))}, which comes later"
