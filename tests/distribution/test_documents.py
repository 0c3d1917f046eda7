"""What the documents show is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import polars as pl
import pytest
from typer.testing import CliRunner

from clusterdp.channels import RowRule
from clusterdp.cli.app import app
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.outcomes.categories import CategoriesRecord
from clusterdp.outcomes.declaration import DeclaredRecord
from clusterdp.published.manifest import BeforeLook, ColumnNames, Manifest
from clusterdp.spec.provenance import Provenance, Spent
from clusterdp.spec.terms import GuaranteeTerms, QuestionTerms
from clusterdp.statistics import Statistic
from clusterdp.statistics.look import NoisyLook
from clusterdp.storage.folder import FileSum

if TYPE_CHECKING:
    from msgspec import Struct

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EVERY_DOCUMENT = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NAMED_CODE = re.compile(r"`([a-z_/]+/[a-z_]+\.py)(?:: ([\w.]+))?`")
# The module that a worked example adds.
EXAMPLE = "src/clusterdp/statistics/positives.py"


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
    opened = ((pl.col("treated") == 1) & (pl.col("user") % 3 > 0)).cast(pl.Int64)
    opens = table.select("user", opened=opened)
    given = {"frame": table, "segments": segments, "opens": opens}
    return {**given, "folder": tmp_path / "published"}


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


def test_code_that_documents_name_exists() -> None:
    """Modules, as `rows/keys.py`, and what is defined in them, as `rows/keys.py: ReleaseKey`."""
    missing = []
    for path in EVERY_DOCUMENT:
        for module, name in NAMED_CODE.findall(path.read_text()):
            homes = (ROOT / module, ROOT / "src" / module, ROOT / "src" / "clusterdp" / module)
            texts = [home.read_text() for home in homes if home.exists()]
            if not any(name.rpartition(".")[2] in text for text in texts) and module != EXAMPLE:
                missing.append(f"{path.name}: {module} {name}")
    assert missing == []


def test_the_format_describes_every_key_of_a_manifest() -> None:
    described = (ROOT / "docs" / "format.md").read_text()
    kinds: list[type[Struct]] = [Manifest, QuestionTerms, ColumnNames, GuaranteeTerms, FileSum]
    kinds += [CategoriesRecord, DeclaredRecord, BeforeLook, NoisyLook, Provenance, Spent]
    kinds += [Mechanism, *get_args(Statistic), *get_args(RowRule)]
    tags = [kind.__struct_config__.tag for kind in kinds if kind.__struct_config__.tag]
    keys = [field for kind in kinds for field in kind.__struct_fields__]
    assert [name for name in (*keys, *tags) if f"`{name}`" not in described] == []


def test_links_between_documents_lead_somewhere() -> None:
    for path in EVERY_DOCUMENT:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
