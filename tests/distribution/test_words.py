"""What people read: its length, its words, and the one privacy statement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import clusterdp as cdp
from clusterdp.privacy.statement import PrivacyStatement
from plain_words import EVERYWHERE, IN_PROSE, docstrings, forbidden, messages, without_code
from sitepages.pages import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ROOT = DOCS.parent
SOURCE = ROOT / "src" / "clusterdp"
STUDIES = DOCS / "studies"
GUIDES = [ROOT / "README.md", *(p for p in DOCS.rglob("*.md") if STUDIES not in p.parents)]
FOR_DEVELOPERS = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
DOCUMENTS = [*GUIDES, *FOR_DEVELOPERS, *STUDIES.glob("*.md")]
# Words that a document needs, with the reason.
EXCEPTIONS = {
    ("ARCHITECTURE.md", "channel"): "the package `channels` and its classes",
    ("ARCHITECTURE.md", "channels"): "the package `channels` and its classes",
    ("CONTRIBUTING.md", "channel"): "the package `channels` and its classes",
    ("CONTRIBUTING.md", "channels"): "the package `channels` and its classes",
    ("CONTRIBUTING.md", "category"): "the name of an axis",
    ("folder.md", "categories"): "a type of column",
    ("privacy.md", "channels"): "side channels",
}
# Words that messages and public docstrings need.
EXCEPTIONS_OF_CODE = {
    ("covariates.py", "categories"): "those of a covariate",
    ("history.py", "committed"): "stored names of events",
    ("history.py", "labelled"): "stored names of events",
    ("_store.py", "committed"): "SQL",
    ("_optimal_channel.py", "category"): "the name of an axis",
    ("_optimal_channel.py", "categories"): "an error of our own code",
    ("program.py", "category"): "the name of an axis",
    ("program.py", "categories"): "an error of our own code",
    ("optimal.py", "channel"): "a column of cells.parquet",
    ("optimal.py", "channels"): "channels.parquet",
    ("Guarantee", "neighbours"): "a key of the manifest",
    ("Ledger.close", "committed"): "a status, as Python has it",
    ("OutcomeSpace.metric_values", "category"): "the name of an axis",
    ("estimate", "categories"): "those of a covariate",
}
MOST_WORDS_OF_README, MOST_WORDS_OF_GUIDES = 1_400, 30_000
MOST_WORDS_OF_A_SENTENCE = 25
# What a unit is called in examples.
CALLED = ("unit", "user")
# The terms that the product uses, one word for each thing.
TERMS = """
cluster, private cluster, noisy cluster, randomization unit, unit, reader, owner, analyst,
reviewer, arm, treatment, control, outcome, metric, allowed values, clipped, outcome
combination, constraint, baseline, pilot histogram, randomizer, randomized response, debiased
column, question, cell, segment, segment by, breakdown, declared threshold, all units,
passthrough column, sorted by id, original row order, fold, held-out fold, minimum detectable
effect, mde, standard error, se, treatment se, control se, 95% ci, simultaneous 95% ci,
multiple-testing family, false positive, variance due to privacy, compliers, complier effect,
cace, exposure, not significantly different from zero, units with an observed outcome, response
rate, lee bounds, heterogeneity test, difference between segments, covariate-adjusted, cuped,
calibrated to published totals, sample ratio mismatch, srm, variance reduction from
stratification, sure before, sure after, guarantee, neighboring tables, budget cap, remaining
budget, published, abandoned, reject, safety check, owner-only warning, publish, release,
optimize for, balance, object storage
"""
MARKS = re.compile(r"[*>]")


def prose_of(path: Path) -> str:
    return without_code(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_have_plain_words(path: Path) -> None:
    rules = EVERYWHERE if STUDIES in path.parents else EVERYWHERE | IN_PROSE
    found = forbidden(prose_of(path), rules)
    assert [one for one in found if (path.name, one.word.lower()) not in EXCEPTIONS] == []


def test_exceptions_are_needed() -> None:
    words = {
        (path.name, one.word.lower())
        for path in DOCUMENTS
        for one in forbidden(prose_of(path), EVERYWHERE | IN_PROSE)
    }
    assert set(EXCEPTIONS) <= words


@pytest.mark.parametrize(
    "package", sorted({path.stem for path in SOURCE.iterdir()} - {"__pycache__"})
)
def test_code_has_plain_words(package: str) -> None:
    """Comments and docstrings, too."""
    files = [*SOURCE.glob(f"{package}.py"), *(SOURCE / package).rglob("*")]
    kinds = {".py", ".html", ".css", ".js", ".toml"}
    found = [
        f"{path.relative_to(SOURCE)}:{one.line}: {one.word} ({one.instead})"
        for path in files
        if path.suffix in kinds
        for one in forbidden(path.read_text(encoding="utf-8"), EVERYWHERE)
    ]
    assert found == []


def plain(where: str, texts: Iterable[str]) -> list[str]:
    """The forbidden words of texts that people see."""
    return [
        f"{where}: {one.word} ({one.instead})"
        for text in texts
        for one in forbidden(text, EVERYWHERE | IN_PROSE)
        if (where, one.word.lower()) not in EXCEPTIONS_OF_CODE
    ]


def test_messages_have_plain_words() -> None:
    """Errors, notes, help and checks keep to the words of documents."""
    code = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    assert [word for path, text in code.items() for word in plain(path.name, messages(text))] == []


def test_public_docstrings_have_plain_words() -> None:
    found = [
        word
        for name in cdp.__all__
        for part, text in docstrings(name, getattr(cdp, name))
        for word in plain(part, [text])
    ]
    assert found == []


def test_exceptions_of_code_are_needed() -> None:
    texts = [
        (path.name, text)
        for path in SOURCE.rglob("*.py")
        for text in messages(path.read_text(encoding="utf-8"))
    ]
    texts += [one for name in cdp.__all__ for one in docstrings(name, getattr(cdp, name))]
    words = {
        (where, one.word.lower())
        for where, text in texts
        for one in forbidden(text, EVERYWHERE | IN_PROSE)
    }
    assert set(EXCEPTIONS_OF_CODE) <= words


def test_forbidden_words_would_be_found() -> None:
    text = "Nobody.\nWhoever thought 50%\nbeforehand, `whoever`\n```\nrefused\n```\nis None"
    found = [(one.line, one.word) for one in forbidden(without_code(text), EVERYWHERE | IN_PROSE)]
    assert found == [(2, "Whoever"), (3, "beforehand")]


def test_the_readme_and_the_guides_are_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").split()) for path in GUIDES}
    assert lengths.pop(ROOT / "README.md") <= MOST_WORDS_OF_README
    assert sum(lengths.values()) <= MOST_WORDS_OF_GUIDES


def sentences(text: str) -> list[str]:
    """The sentences of a document, outside code, tables and headings."""
    text = re.sub(r"^ *(\||#|!\[|---).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *([-*>]|\d+\.)(?= |$)", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"\$[^$\n]+\$", "formula", text)
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    ends = re.compile(r"(?<=[.?!:])[*)\"_]*\s+(?=[A-Z*(\[\"`ε\d])")
    return [sentence for part in paragraphs for sentence in ends.split(part)]


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_short(path: Path) -> None:
    statements = " ".join(statement for called in CALLED for statement in stated(called))
    long = [
        sentence
        for sentence in sentences(prose_of(path))
        if len(sentence.split()) > MOST_WORDS_OF_A_SENTENCE and sentence not in statements
    ]
    assert long == []


def stated(called: str) -> tuple[str, str, str]:
    """The formal, plain and limiting statements at ε = 2, as documents quote them."""
    statement = PrivacyStatement(epsilon=2.0, unit=called)
    return (statement.formal, statement.plain, statement.limits)


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("README.md", "user"),
        ("docs/start/first_release.md", "user"),
        ("docs/owner/plan.md", "unit"),
        ("docs/owner/explain.md", "user"),
        ("docs/explanation/privacy.md", "unit"),
    ],
)
def test_documents_quote_the_privacy_statement(name: str, called: str) -> None:
    text = " ".join(MARKS.sub("", (ROOT / name).read_text(encoding="utf-8")).split())
    _, plain, limits = stated(called)
    assert plain in text
    assert limits in text


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_have_no_other_privacy_statement(path: Path) -> None:
    """Whatever says how sure a reader can become is one of the statements."""
    text = " ".join(MARKS.sub("", path.read_text(encoding="utf-8")).split())
    for called in CALLED:
        for statement in (*stated(called), PrivacyStatement(epsilon=2.0, unit=called).short):
            text = text.replace(statement, "")
            text = text.replace(statement[0].upper() + statement[1:], "")
    assert re.findall(r"\d+% sure of", text) == []


def test_the_table_of_epsilon_is_computed() -> None:
    for name in ("README.md", "docs/owner/plan.md"):
        rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+%) \|$", (ROOT / name).read_text(), re.MULTILINE)
        assert rows == [(e, PrivacyStatement(epsilon=float(e)).at_most) for e, _ in rows]
        assert rows


def test_the_glossary_has_every_term() -> None:
    text = (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    defined = [word for term, _ in entries for word in re.split(r"[,;()]", term)]
    defined += [word for _, meaning in entries for word in re.findall(r"\*\*(.+?)\*\*", meaning)]
    used = {term.strip() for term in TERMS.replace("\n", " ").split(",")}
    assert used - {word.strip().lower() for word in defined} == set()
