"""What a published folder says of itself in short, for terminals, and what only its owner knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._text import counted
from clusterdp.document.model import Facts, Paragraph, Section, as_notes
from clusterdp.mechanisms.catalogue import usual_name
from clusterdp.outcomes.declaration import parse_space
from clusterdp.published.document import answer_facts, visible_effects
from clusterdp.published.folder import unit_files
from clusterdp.published.manifest import arms_in_words, software_name, title_of
from clusterdp.published.notes import joined_texts
from clusterdp.spec.columns import RESPONSE
from clusterdp.spec.provenance import provenance_pairs
from clusterdp.statistics.covariates import NoisyCovariates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clusterdp.document.model import Part
    from clusterdp.published.contents import FolderView
    from clusterdp.published.manifest import Manifest


def overview(view: FolderView) -> list[Part]:
    """What a folder is, in short, for terminals and notebooks."""
    manifest, terms = view.manifest, view.manifest.terms
    columns, about = manifest.named_columns, manifest.provenance
    day = f", published {about.released_on}" if about.released_on else ""
    what = about.title or f"{', '.join(terms.outcome_names)}: a randomized experiment"
    what = title_of(manifest) if manifest.answers else what
    arms = ", ".join(
        f"{arm} = control" if arm == str(manifest.control) else arm
        for arm in arms_in_words(manifest)
    )
    clusters = ""
    if manifest.n_clusters:
        clusters = f", {counted(manifest.n_clusters, 'cluster')} ({manifest.columns.cluster})"
    size = (
        f"{counted(manifest.n_units, about.unit)} ({manifest.columns.unit}), "
        f"{counted(len(manifest.arms), 'arm')} ({manifest.columns.arm}: {arms}){clusters}"
    )
    published = columns.published if terms.releases_rows else columns.cell
    private = [*columns.debiased, RESPONSE, *([columns.cluster] if manifest.labels else [])]
    pairs = [
        ("Public", ", ".join(name for name in published if name not in private)),
        ("Randomized", ", ".join(name for name in published if name in private)),
        ("Covariates", terms.covariates_in_words(about.unit)),
        ("Privacy", str(terms.guarantee.statement(about.unit))),
        *(pair for pair in provenance_pairs(about) if pair[0] != "Published"),
    ]
    bound = [] if manifest.answers is None else answer_facts(manifest, in_short=True).pairs
    shown = Facts([(name, text) for name, text in (*bound, *pairs) if text])
    return [
        Paragraph(f"{what}{day}"),
        Paragraph(size),
        *([view.mde()] if manifest.answers is None else []),
        shown,
        *as_notes(joined_texts(view.remarks)),
    ]


def particulars(view: FolderView) -> list[Part | Section]:
    """What reviewers ask for: outcomes, mechanisms, breakdowns, files."""
    manifest, terms = view.manifest, view.manifest.terms
    declared = [question.outcomes.declared for question in manifest.questions]
    outcomes = [one for each in declared for one in each.outcomes]
    values = [
        f"{parse_space(one.space).in_words}{', or missing' * one.may_be_missing}"
        for one in outcomes
    ]
    private = "" if terms.labels is None else f"{terms.labels.guarantee().epsilon:g}"
    breakdowns = [
        f"{', '.join(one.columns)} ({counted(len(one.sizes), 'group')})"
        for one in manifest.breakdowns
    ]
    files = (f"{name} ({_size(file.bytes)})" for name, file in manifest.files.items())
    pairs = [
        *(("Outcome", f"{one.name}: {told}") for one, told in zip(outcomes, values, strict=True)),
        *(("Constraint", text) for each in declared for text in each.constraints),
        *(("Metric", text) for each in declared for text in each.metrics),
        ("Private clusters", private and f"take {private} of ε = {manifest.guarantee.epsilon:g}"),
        *mechanism_facts(manifest),
        *(("Breakdown", text) for text in breakdowns),
        ("Folds", str(manifest.folds) if manifest.folds > 1 else ""),
        ("Files", ", ".join(files)),
        ("Written by", manifest.software),
    ]
    told = Facts([(name, text) for name, text in pairs if text])
    if manifest.answers is not None:
        return [told]
    # The headings of a page say what its tables say; here they are next to each other.
    shown = visible_effects(view).parts[1:]
    return [told, *(Section("", one.parts) if isinstance(one, Section) else one for one in shown)]


def mechanism_facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The mechanism of each question; where there are several, with its outcomes and its share."""
    for question, space in zip(manifest.questions, manifest.terms.spaces, strict=True):
        mechanism = question.mechanism
        numbers = mechanism.parameters(space).items()
        whole = f"{mechanism.name} ({', '.join(f'{name} {value:.6g}' for name, value in numbers)})"
        of = f"{mechanism.asked_share:.1%} of {manifest.provenance.units}"
        asked = f"{', '.join(question.names)}: asked of {of}"
        is_only = len(manifest.questions) == 1
        yield ("Mechanism", whole) if is_only else ("Question", f"{asked}, {whole}")


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"


def owners_words(manifest: Manifest) -> list[str]:
    """What a manifest states that nothing else in the folder shows: nobody but its owner knows.

    What matters most to readers is first: what ε and effects rest on.
    """
    known, named = manifest.provenance, manifest.columns
    declared = {
        "that responses were drawn as stated": manifest.terms.releases_rows,
        "that noise in statistics was drawn as stated": any(
            one.pilot is not None or one.statistics for one in manifest.terms.mechanisms
        ),
        "that the questions' salt was drawn at random": manifest.asking is not None,
        "software": manifest.software != software_name(),
        "control": True,
        "randomization_unit": named.randomization_unit is not None,
        "correlation": manifest.assigned is not None,
        "assignment": manifest.assignment is not None,
        "arm_shares": manifest.arm_shares is not None,
        "row_order": manifest.row_order == "table",
        "which file a row is in": len(unit_files(manifest)) > 1 and manifest.row_order == "ids",
        # With a pilot, it is what the pilot shows.
        "expected": any(
            one is not None
            for one, before in zip(manifest.expected, manifest.before_pilot, strict=True)
            if before is None
        ),
        "rounding": any(
            any(added)
            for added, before in zip(manifest.rounding, manifest.before_pilot, strict=True)
            if before is None
        ),
        "what was declared before the pilot": any(manifest.before_pilot),
        "prior": any(
            one.prior is not None and one.pilot is None for one in manifest.terms.mechanisms
        ),
        "columns and ranges of covariates": any(
            one.find(NoisyCovariates) for one in manifest.terms.mechanisms
        ),
        "weights": any(question.outcomes.declared.weights for question in manifest.questions),
        "pooling": manifest.pooling is not None,
        "aggregates": bool(manifest.aggregates),
        "clip": manifest.clip,
        "the name of the mechanism": any(
            one.name != usual_name(one) for one in manifest.terms.mechanisms
        ),
        "answers": manifest.answers is not None,
        "names of columns": not manifest.terms.releases_rows,
        "numbers of units": not manifest.terms.releases_rows,
        "names, labels and values of outcomes": True,
        "values of passthrough columns": bool(named.kept) and manifest.terms.releases_rows,
        # Exact clusters, and clusters that went through a response, look the same.
        "which columns are private": named.cluster is not None,
        "shares of questions, beyond what ids show": manifest.asking is not None,
    }
    said = [name for name, there in declared.items() if there]
    return [*said, *(name for name in known.__struct_fields__ if getattr(known, name) is not None)]
