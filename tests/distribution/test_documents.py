"""What the documents show is run as it stands."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

from clusterdp import demo
from clusterdp.channels import RowRule
from clusterdp.mechanisms.mechanism import Mechanism
from clusterdp.outcomes.categories import CategoriesRecord
from clusterdp.outcomes.declaration import DeclaredRecord
from clusterdp.privacy.accounting import Guarantee
from clusterdp.published.manifest import FORMAT_VERSION, BeforePilot, ColumnNames, Manifest
from clusterdp.spec.answers import Answers
from clusterdp.spec.fields import SECTIONS
from clusterdp.spec.provenance import Provenance, Spent
from clusterdp.spec.terms import QuestionTerms
from clusterdp.statistics import Statistic
from clusterdp.statistics.pilot import NoisyPilot
from clusterdp.storage.folder import FileSum
from sitepages.pages import Page
from sitepages.running import run_block

if TYPE_CHECKING:
    from msgspec import Struct

ROOT = Path(__file__).parents[2]
EVERY_DOCUMENT = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NAMED_CODE = re.compile(r"`([a-z_/]+/[a-z_]+\.py)(?:: ([\w.]+))?`")
# The module that a worked example adds.
EXAMPLE = "src/clusterdp/statistics/positives.py"


@pytest.fixture(scope="module")
def readme() -> Page:
    return Page.read(ROOT / "README.md")


def assert_shown(shown: str, printed: str) -> None:
    """Every line of an example was printed, but for its numbers; `...` leaves lines out."""
    lines = {skeleton(line) for line in printed.splitlines()}
    missing = [line for line in shown.splitlines() if line != "..." and skeleton(line) not in lines]
    assert missing == [], printed


def skeleton(line: str) -> str:
    """A line without what differs from run to run: numbers, marks of charts, spaces."""
    return " ".join(re.sub(r"[^A-Za-z:,]+", " ", line).split())


def test_the_python_of_the_readme_runs(
    readme: Page,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block, after in itertools.pairwise(readme.blocks):
        if block.language == "python":
            exec(block.code, names)  # noqa: S102 - our own document
            assert_shown(after.code, capsys.readouterr().out)
    assert names


@pytest.mark.slow
def test_the_commands_of_the_readme_run(
    readme: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the tables that the demo writes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    campaign = demo.simulate_campaign(np.random.default_rng())
    demo.FOLDER.mkdir()
    campaign.owner.write_parquet(demo.FOLDER / "funnel.parquet")
    campaign.analyst.write_csv(demo.FOLDER / "crm.csv")
    (experiment,) = [block.code for block in readme.blocks if block.language == "toml"]
    Path("experiment.toml").write_text(experiment, encoding="utf-8")
    examples = [block for block in readme.blocks if block.code.startswith("$ clusterdp ")]
    assert len(examples) == 3
    for example in examples:
        command, _, shown = example.code.removeprefix("$ ").partition("\n")
        answered = command.replace("release", "release --yes")  # as a reader answers its question
        block = dataclasses.replace(example, language="sh", code=answered)
        assert_shown(shown, run_block(readme, block, {}))


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
    described = (ROOT / "docs" / "reference" / "folder.md").read_text()
    kinds: list[type[Struct]] = [Manifest, QuestionTerms, ColumnNames, FileSum]
    kinds += [CategoriesRecord, DeclaredRecord, BeforePilot, NoisyPilot, Provenance, Spent]
    kinds += [Answers, Mechanism, *get_args(Statistic), *get_args(RowRule)]
    tags = [kind.__struct_config__.tag for kind in kinds if kind.__struct_config__.tag]
    keys = [field for kind in kinds for field in kind.__struct_fields__]
    keys += [field.name for field in dataclasses.fields(Guarantee)]
    assert [name for name in (*keys, *tags) if f"`{name}`" not in described] == []


def test_the_reference_has_every_key_of_an_experiment_file() -> None:
    described = (ROOT / "docs" / "reference" / "experiment_file.md").read_text()
    words = set(re.findall(r"\w+", described))
    keys = [key for section, keys in SECTIONS.items() for key in (section, *keys)]
    assert [key for key in keys if key not in words] == []


def test_no_document_promises_a_package_that_is_not_there() -> None:
    """It is installed from its folder, until it is on the index."""
    promise = re.compile(r"pip install [^\n]*clusterdp\b")
    assert [
        path.name
        for path in EVERY_DOCUMENT
        if path.name != "CHANGELOG.md" and promise.search(path.read_text())
    ] == []
    assert promise.search("pip install 'clusterdp[plot]'")


def test_links_between_documents_lead_somewhere() -> None:
    for path in EVERY_DOCUMENT:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_format_that_is_described_is_the_one_that_is_written() -> None:
    page = " ".join((ROOT / "docs" / "reference" / "folder.md").read_text().split())
    assert f"This page describes version {FORMAT_VERSION} of the format" in page
