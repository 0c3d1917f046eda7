"""What the documents show is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from clusterdp.cli.app import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def names(table: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the examples take for given: a table, a published folder, an analyst's table."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "clicks.parquet"
    table.write_parquet(source)
    options = "--unit user --arm treated --cluster market --outcome clicks=0..3"
    arguments = ["release", str(source), *options.split(), "--epsilon", "2"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "published")])
    assert done.exit_code == 0, done.output
    segments = table.select(
        "user",
        tier=pl.when(pl.col("user") % 3 == 0).then(pl.lit("gold")).otherwise(pl.lit("basic")),
        region=pl.col("user") % 2,
        before=pl.col("secret"),
    )
    return {"frame": table, "folder": tmp_path / "published", "segments": segments}


# pyfixest and tea-tasting warn about their own dependencies.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_run(
    document: Path, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The examples of one document, in their order, one after the other."""
    for code in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        exec(code, names)  # noqa: S102 - our own documents
        printed = capsys.readouterr().out
        for promised in re.findall(r"^print\(.*\)\s+# (.*)$", code, re.MULTILINE):
            assert promised in printed


def test_links_between_documents_lead_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
