"""The shape of the package: one definition for each name, no circles, short files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tools import size

if TYPE_CHECKING:
    from pathlib import Path

MOST_LINES = 500
# Of all lines, docstrings and comments are at least this share.
LEAST_EXPLAINED = 0.17
COUNTED = ("lines", "words")


@pytest.fixture(scope="module")
def modules() -> dict[str, size.Module]:
    return size.read_modules()


def test_a_public_name_has_one_definition(modules: dict[str, size.Module]) -> None:
    assert size.named_twice(modules) == {}


def test_no_modules_import_each_other_in_a_circle(modules: dict[str, size.Module]) -> None:
    """Imports for types count."""
    assert size.circles(modules) == []


def test_files_are_short_and_explained(modules: dict[str, size.Module]) -> None:
    assert [name for name, one in modules.items() if one.lines > MOST_LINES] == []
    lines, words = (sum(getattr(one, what) for one in modules.values()) for what in COUNTED)
    assert words >= LEAST_EXPLAINED * lines


def test_both_would_be_found(tmp_path: Path) -> None:
    package = tmp_path / "clusterdp"
    package.mkdir()
    for name, other in (("one", "two"), ("two", "one")):
        text = f"if TYPE_CHECKING:\n    from clusterdp.{other} import show\ndef show(): ...\n"
        (package / f"{name}.py").write_text(text)
    (package / "__init__.py").write_text("")
    planted = size.read_modules(tmp_path)
    assert size.named_twice(planted) == {"show": ["clusterdp.one", "clusterdp.two"]}
    assert size.circles(planted) == [["clusterdp.one", "clusterdp.two"]]
