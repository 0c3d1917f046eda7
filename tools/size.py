"""How large the house is, in numbers that formatting does not change.

    python tools/size.py

Statements are counted without imports and docstrings. Studies (`studies`) are counted apart: they
repeat the paper, and nothing else in the package uses them.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src"
PACKAGE = "clusterdp"
STUDIES = f"{PACKAGE}.studies"
_RECORDS = {"NamedTuple", "Struct", "TypedDict"}


@dataclass
class Module:
    """One file.

    Attributes:
        name: Its dotted name.
        lines: How many lines it has.
        words: Lines that are docstring or comment.
        statements: Statements but for imports and docstrings.
        records: Classes that hold fields.
        names: Public classes and functions that are defined at its top.
        functions: Functions with their lines and parameters.
        imports: Modules of the house that it imports, for types too.
    """

    name: str
    lines: int = 0
    words: int = 0
    statements: int = 0
    records: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    functions: list[tuple[str, int, int]] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)


def read_modules(root: Path = ROOT) -> dict[str, Module]:
    """All modules of the package, by name."""
    paths = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: _read(name, path, set(paths)) for name, path in paths.items()}


def _read(name: str, path: Path, known: set[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    found = Module(name, lines=len(text.splitlines()))
    quoted = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            first = node.body[0]
            quoted.add(first)
            found.words += (first.end_lineno or first.lineno) - first.lineno + 1
        if isinstance(node, ast.FunctionDef):
            given = node.args
            n_given = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
            n_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            found.functions.append((f"{name}.{node.name}", n_lines, n_given))
        if isinstance(node, ast.ClassDef) and _is_record(node):
            found.records.append(node.name)
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.imports |= _imported(node, known) - {name}
        elif isinstance(node, ast.stmt) and node not in quoted:
            found.statements += 1
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            found.names.append(node.name)
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and text.splitlines()[token.start[0] - 1].strip()[0] == "#"
    }
    found.words += len(comments)
    return found


def _is_record(node: ast.ClassDef) -> bool:
    """Whether a class is a dataclass, a named tuple or a struct."""
    bases = {getattr(base, "attr", getattr(base, "id", "")) for base in node.bases}
    made_by = {ast.unparse(one).split("(")[0].split(".")[-1] for one in node.decorator_list}
    return bool(bases & _RECORDS) or "dataclass" in made_by


def _imported(node: ast.Import | ast.ImportFrom, known: set[str]) -> set[str]:
    if isinstance(node, ast.Import):
        return {one.name for one in node.names} & known
    below = {f"{node.module}.{one.name}" for one in node.names} & known
    rest = any(f"{node.module}.{one.name}" not in known for one in node.names)
    return below | ({node.module or ""} & known if rest else set())


def circles(modules: dict[str, Module]) -> list[list[str]]:
    """Groups of modules that import each other, for types too (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(modules[name].imports):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in modules:
        if name not in index:
            visit(name)
    return found


def named_twice(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Public names with more than one definition, and where."""
    places = defaultdict(list)
    for module in modules.values():
        for name in module.names:
            places[name].append(module.name)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def main() -> None:
    """Print the numbers."""
    modules = read_modules()
    house = [one for name, one in modules.items() if not name.startswith(STUDIES)]
    studies = [one for name, one in modules.items() if name.startswith(STUDIES)]
    rooms = Counter[str]()
    for module in house:
        rooms[".".join(module.name.split(".")[:2])] += module.statements
    lines, words = (sum(getattr(one, what) for one in house) for what in ("lines", "words"))
    functions = [one for module in house for one in module.functions]
    longest = max(functions, key=lambda one: one[1])
    most_given = max(functions, key=lambda one: one[2])
    largest = max(house, key=lambda one: one.lines)
    print(f"{'statements':22}{sum(one.statements for one in house):,}")
    print(f"{'  of studies':22}{sum(one.statements for one in studies):,}")
    print(f"{'lines':22}{lines:,} ({words / lines:.0%} docstring or comment)")
    print(f"{'  of studies':22}{sum(one.lines for one in studies):,}")
    print(f"{'modules':22}{len(house):,} and {len(studies)} of studies")
    print(f"{'largest module':22}{largest.lines} lines, {largest.name}")
    print(f"{'records':22}{sum(len(one.records) for one in house):,}")
    print(f"{'longest function':22}{longest[1]} lines, {longest[0]}")
    print(f"{'longest parameters':22}{most_given[2]}, {most_given[0]}")
    print(f"{'circles':22}{len(circles(modules))} {[len(one) for one in circles(modules)]}")
    print(f"{'public names twice':22}{len(named_twice(modules))}")
    for name, count in sorted(rooms.items()):
        print(f"  {name:30}{count:6,}")


if __name__ == "__main__":
    main()
