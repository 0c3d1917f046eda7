"""`clusterdp inspect`, `clusterdp verify` and `clusterdp errata`."""

from __future__ import annotations

import itertools
import textwrap
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from clusterdp._text import counted
from clusterdp.cells.layout import units_in_words
from clusterdp.cli.console import (
    REFUSED,
    AsJson,
    Folder,
    errors_in_one_line,
    print_json,
    print_line,
    print_note,
    print_pairs,
    print_text,
)
from clusterdp.document.text import aligned
from clusterdp.estimation.cluster_gain import GAIN_HEADER, estimate_homogeneity
from clusterdp.outcomes.declaration import parse_space
from clusterdp.published.folder import add_erratum, read_errata, read_files, read_manifest
from clusterdp.published.manifest import arms_in_words, what_is_public
from clusterdp.published.notes import release_notes
from clusterdp.published.verification import owners_words, verify_folder
from clusterdp.published.visible import what_is_visible
from clusterdp.spec.provenance import provenance_pairs
from clusterdp.storage.folder import ERRATA
from clusterdp.storage.reading import open_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp.estimation.cluster_gain import ClusterGain
    from clusterdp.published.manifest import Manifest
    from clusterdp.published.visible import Visible

    # A title, and rows of which the first is the header.
    Table = tuple[str, list[tuple[str, ...]]]

_WIDTH = 80
_UNSEALED = "erratum (not sealed)"


@errors_in_one_line()
def inspect(folder: Folder, *, as_json: AsJson = False) -> None:
    """Show what a published folder is, what it promises, and what can be seen in it.

    clusterdp inspect published/
    """
    files = open_files(folder)
    release, manifest = read_files(files)
    seen = what_is_visible(manifest, release.layout, [one.channel for one in release.questions])
    errata = read_errata(files)
    notes = release_notes(manifest, release.layout, [one.channel for one in release.questions])
    if as_json:
        about: dict[str, Any] = {"assumed": seen.assumed, "visible": seen.to_dict()}
        gains = [one.to_dict() for one in estimate_homogeneity(release)]
        about |= {"in_words": manifest.guarantee.in_words, "notes": notes}
        about |= {"homogeneity": gains, "errata": errata}
        print_json({**msgspec.to_builtins(manifest), **about})
        return
    remarks = [*(("note", note) for note in notes), *((_UNSEALED, line) for line in errata)]
    print_pairs([*_lines(manifest), *remarks])
    _print_tables(_seen_tables(seen))
    _print_tables(_gain_tables(estimate_homogeneity(release)))


@errors_in_one_line()
def verify(folder: Folder, *, as_json: AsJson = False) -> None:
    """Check that a folder is undamaged and that everything in it follows from the rest.

    clusterdp verify published/
    """
    checks = verify_folder(folder)
    sound = all(check.problem is None for check in checks)
    said = owners_words(read_manifest(folder)) if sound else []
    if as_json:
        listed = [check._asdict() for check in checks]
        print_json({"sound": sound, "checks": listed, "owners_words": said})
    else:
        for check in checks:
            mark = "ok  " if check.problem is None else "FAIL"
            print_line(f"{mark} {check.name}" + (f": {check.problem}" if check.problem else ""))
        if said:
            print_note(f"these are the owner's words, which nothing checks: {', '.join(said)}")
    if not sound:
        raise typer.Exit(REFUSED)


@errors_in_one_line()
def errata(
    folder: Folder,
    text: Annotated[str, typer.Argument(help="What turned out to be wrong, in one line.")],
) -> None:
    """Add an entry with today's date to the errata of a folder.

    clusterdp errata published/ "12 units were assigned twice; they are in no arm's count"

    They are in errata.md. The release stays sealed: no checksum covers them, and nothing checks
    who wrote them.
    """
    read_manifest(folder)
    add_erratum(open_files(folder), text, datetime.now(tz=UTC).date())
    print_line(f"added to {folder.rstrip('/')}/{ERRATA}")


def _lines(manifest: Manifest) -> list[tuple[str, str]]:
    columns, terms = manifest.to_columns(), manifest.terms
    declared = [question.outcomes.declared for question in manifest.questions]
    units = units_in_words(manifest.n_units, manifest.n_clusters)
    groups = [
        f"{', '.join(one.columns)} ({counted(len(one.sizes), 'group')})"
        for one in manifest.breakdowns
    ]
    arms = ", ".join(arms_in_words(manifest))
    published = columns.published if terms.releases_rows else columns.cell
    files = [f"{name} ({_size(file.bytes)})" for name, file in manifest.files.items()]
    about = manifest.provenance
    return [
        *([("title", about.title)] if about.title else []),
        *(
            (
                "outcome",
                f"{one.name}: {parse_space(one.space).in_words}"
                + ", or missing" * one.may_be_missing,
            )
            for each in declared
            for one in each.outcomes
        ),
        *(("implication", text) for each in declared for text in each.implications),
        *(("metric", text) for each in declared for text in each.metrics),
        ("privacy", manifest.guarantee.in_words),
        ("public", what_is_public(manifest)),
        *_label_lines(manifest),
        *_mechanisms(manifest),
        ("table", f"{units}, arms {arms} (control {manifest.control})"),
        *(("breakdown", one) for one in groups),
        *([("folds", str(manifest.folds))] if manifest.folds > 1 else []),
        ("columns", ", ".join(map(repr, published))),
        ("files", ", ".join(files)),
        *provenance_pairs(about),
        ("written by", manifest.software),
    ]


def _label_lines(manifest: Manifest) -> list[tuple[str, str]]:
    """What private clusters took of ε; nothing where clusters are public."""
    labels, whole = manifest.terms.labels, manifest.guarantee.epsilon
    if labels is None:
        return []
    return [("private clusters", f"took epsilon {labels.guarantee().epsilon:g} of {whole:g}")]


def _mechanisms(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The mechanism of each question; where there are several, with its outcomes and its ε."""
    for question, space in zip(manifest.questions, manifest.terms.spaces, strict=True):
        numbers = question.mechanism.parameters(space).items()
        parameters = ", ".join(f"{name} {value:.6g}" for name, value in numbers)
        whole = f"{question.mechanism.name} ({parameters})"
        if len(manifest.questions) > 1:
            asked = f"asked of {question.mechanism.asked_share:.1%} of units"
            whole = f"{', '.join(question.names)}: {asked}, {whole}"
        yield "mechanism" if len(manifest.questions) == 1 else "question", whole


def _print_tables(tables: list[Table]) -> None:
    for title, rows in tables:
        print_text("\n".join(["", *textwrap.wrap(title, _WIDTH), *aligned(rows)]))


def _seen_tables(seen: Visible) -> list[Table]:
    """What to expect of effects, metric by metric."""
    title = "what can be seen of {}: standard error and detectable effect (5% test, 80% power), {}"
    return [(title.format(name, seen.assumed), rows) for name, rows in seen.tables().items()]


def _gain_tables(gains: list[ClusterGain]) -> list[Table]:
    """What clusters took off sampling variances, metric by metric."""
    tables = []
    for metric, found in itertools.groupby(gains, key=lambda one: one.metric):
        rows = [one.row() for one in found]
        title = (
            f"what clusters take off the sampling variance of mean {metric}, estimated from rows "
            "(± standard errors; more is better)"
        )
        tables.append((title, [GAIN_HEADER, *rows]))
    return tables


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"
