"""What the documents show is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import polars as pl

ROOT = Path(__file__).parent.parent
EXAMPLES = [
    pytest.param(code, id=f"{path.name}-{index}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for index, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run(code: str, table: pl.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    exec(code, {"frame": table})  # noqa: S102 - our own documents
    printed = capsys.readouterr().out
    for promised in re.findall(r"print\(mechanism\.guarantee\(space\)\)\s+# (.*)", code):
        assert promised in printed


def test_links_between_documents_lead_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
