"""What a published folder says of itself: one document, which README.md and index.html render.

Each section is a function of a `FolderView` that returns a `Section`; `SECTIONS` is their order. A
section that is added there is in both files, and `clusterdp verify` derives both again. README.md
is written first, so what needs the checksums of all other files is in index.html alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from clusterdp._text import counted
from clusterdp.cells.layout import units_in_words
from clusterdp.document.charts import Axis, ChartLine, line_chart
from clusterdp.document.markup import to_markdown, to_page
from clusterdp.document.model import (
    Chart,
    Code,
    Document,
    Facts,
    Items,
    Paragraph,
    Section,
    Table,
    code,
    in_code,
    strong,
)
from clusterdp.document.scales import Logarithmic
from clusterdp.outcomes.declaration import parse_space
from clusterdp.privacy.accounting import SLACK, belief_shifts, rounded_up
from clusterdp.published._recipes import cautions, folder_of, recipes, sum_queries
from clusterdp.published.contents import (
    FolderView,
    asked_texts,
    column_texts,
    file_sums,
    file_texts,
    fingerprint,
    join_names,
    missing_texts,
    other_files,
    question_texts,
)
from clusterdp.published.manifest import arms_in_words, title_of, what_is_public
from clusterdp.spec.provenance import provenance_pairs
from clusterdp.storage.folder import CELLS, ERRATA, LOOK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from clusterdp.document.model import Part
    from clusterdp.precision.prediction import ExpectedVariance, Prediction
    from clusterdp.published.manifest import Manifest
    from clusterdp.storage.folder import FileSum


_SMALL_SEGMENT = 0.05
# Segments that a chart shows.
_SHARES, _N_POINTS = (0.01, 1.0), 47
# What BibTeX reads as something else.
_IN_BIBTEX = {letter: "\\" + letter for letter in "{}%&#_$"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def write_readme(view: FolderView, row_files: Collection[str]) -> str:
    """README.md, where rows are in files of these names."""
    return to_markdown(folder_document(replace(view, files=row_files)))


def write_card(view: FolderView, files: Mapping[str, FileSum]) -> str:
    """index.html; `files` are all files with their checksums, the page itself among them or not."""
    return to_page(folder_document(replace(view, files=files, sums=other_files(files))))


def folder_document(view: FolderView) -> Document:
    """All that a folder says of itself."""
    sections = (section(view) for section in SECTIONS)
    return Document(
        title_of(view.manifest),
        [one for one in sections if one is not None],
        f"{view.manifest.software} wrote this with the release. Errata are added later, in "
        f"{code(ERRATA)}: no checksum covers them.",
    )


def introduction(view: FolderView) -> Section:
    """What the experiment was, and what the folder holds."""
    manifest, about = view.manifest, view.manifest.provenance
    clusters = f" in {counted(manifest.n_clusters, 'cluster')}" if manifest.n_clusters else ""
    held = f"noisy aggregates of what was measured of each unit ({view.outcomes}), so that"
    if view.has_rows:
        held = (
            f"a row for each unit, with noise in place of what was measured of it "
            f"({view.outcomes}), so that means and"
        )
    lead = (
        f"{counted(manifest.n_units, 'unit')} (column {code(manifest.columns.unit)}){clusters} "
        f"took part in a randomized experiment with the arms {join_names(arms_in_words(manifest))} "
        f"(control: {manifest.control}). This folder holds {held} effects can be estimated while "
        f"nobody's own {manifest.terms.to_guarantee().words.replaced} can be read off."
    )
    dates = (
        f"Collected: {about.collected or 'no dates were given'}. "
        f"Released: {about.released_on or 'the date was not recorded'}. "
        f"Contact: {about.contact or 'none was given'}. "
        f"What turned out to be wrong later: see {code(ERRATA)} beside this, if there is one."
    )
    description = about.description or "No description was given."
    return Section("", [Paragraph(lead, "lead"), Paragraph(description), Paragraph(dates)])


def protection(view: FolderView) -> Section:
    """What nobody learns of a unit, what everybody can, and the guarantee."""
    manifest, guarantee = view.manifest, view.manifest.terms.to_guarantee()
    words, delta = guarantee.words, ""
    if guarantee.delta:
        delta = f", but for a chance of at most {SLACK} × {rounded_up(guarantee.delta)}"
    cluster = f"{code(str(manifest.true_cluster))}; " if manifest.labels else ""
    observed = ", and whether they were observed" if view.columns.missing else ""
    suspected = (
        f"{strong(f'Protected: the {words.protected} of every unit')} ({cluster}{view.outcomes}), "
        f"all of them together{observed}. Suppose somebody suspects {words.suspected} of one unit. "
        f"They may know all else about it, and the {words.protected} of everybody else. However "
        f"they use this folder, their suspicion moves no further than this{delta}:"
    )
    header = ("thought before", "after: at least", "after: at most")
    table = Table(
        "A suspicion about one unit, in percent rounded outwards",
        [header, *belief_shifts(guarantee)],
    )
    exact = (
        f"{strong('Not protected:')} who is in the table, and whatever is exact below. Nor what is "
        "true of many people: if the experiment shows that an arm works, it shows that for people "
        "like you, too."
    )
    formal = (
        f"In the terms of the field: {manifest.guarantee.in_words} "
        f"{in_code(what_is_public(manifest))}"
    )
    below = map(Paragraph, (exact, _composition(manifest), formal))
    return Section("What is protected", [Paragraph(suspected), table, *below], "guarantee")


def _composition(manifest: Manifest) -> str:
    """What other releases about the same people add."""
    spent = manifest.provenance.spent_before
    if spent is None:
        return (
            "The table is of this folder alone. If there are other releases about the same people, "
            "what they tell comes on top; no ledger adds them up."
        )
    if not spent.epsilon:
        return (
            "The table is of this folder alone. The owner's ledger knew no earlier release about "
            "these people; what later ones tell comes on top."
        )
    return (
        f"{strong('This folder is not the only release about these people.')} Earlier ones had "
        f"spent ε = {rounded_up(spent.epsilon)} when this one began. What they tell comes on top "
        "of the table."
    )


def measurement(view: FolderView) -> Section:
    """Outcomes, combinations, metrics; who was asked; and notes."""
    manifest = view.manifest
    parts: list[Part] = []
    if manifest.terms.has_look:
        parts.append(
            Paragraph(
                "Ranges were declared before, and then clipped by a look: a noisy histogram of "
                f"everyone that was paid for out of ε and is published in {code(LOOK)}."
            )
        )
    measured = [text for question in manifest.questions for text in question_texts(question)]
    parts.append(Items([*measured, *missing_texts(view.columns), *view.notes]))
    asked = asked_texts(manifest)
    if asked:
        several = (
            "Each person's row answers one question. Which one is public and was drawn by a hash. "
            "Debiased columns of other questions are empty, and a mean that skips empty fields is "
            f"unbiased. Noisy sums are of everyone. In {code(CELLS)}, columns of the second "
            f"question end with {code('_2')}."
        )
        parts += [Paragraph(several), Items(asked, is_ordered=True)]
    return Section("What was measured", parts, "measured")


def exact_and_private(view: FolderView) -> Section:
    """The columns of rows: which are exact, which private, and what they hold."""
    heading, manifest = "Exact and private", view.manifest
    if view.has_rows:
        where = f"Rows are in {code(folder_of(view.rows))}. True outcomes are in no column."
        return Section(heading, [Paragraph(where), Facts(column_texts(view))], "columns")
    known = "Arms, clusters and the sizes of cells are exact; all that depends on outcomes"
    if manifest.labels:
        protected = manifest.terms.to_guarantee().words.protected
        known = f"Arms are exact; all that depends on {protected}"
    told = Paragraph(f"There are no rows of units. {known} has noise.")
    return Section(heading, [told], "columns")


def usage(view: FolderView) -> Section:
    """What the rows are right for, and how to use them with and without our software."""
    heading, verify = "How to use it", "clusterdp verify .\nclusterdp estimate .\n"
    if not view.has_rows:
        label = "clusterdp: effects with intervals"
        return Section(heading, [Code(label, verify.rstrip("\n"))], "use")
    label = "clusterdp: effects with intervals, compared within clusters, in any segment"
    paragraphs = [*_design_texts(view), _recipe_text(view)]
    if view.levels:
        label = "clusterdp: effects with intervals, more precisely than from rows alone"
    commands = (
        f"{verify}clusterdp estimate . --by COLUMN\n"
        "clusterdp calibrate . --out ../rows.parquet  # for other tools"
    )
    parts: list[Part] = [*map(Paragraph, paragraphs), *recipes(view.manifest, view.rows)]
    parts += [*sum_queries(view.manifest, view.rows), Code(label, commands, "sh")]
    return Section(heading, parts, "use")


def _design_texts(view: FolderView) -> Iterator[str]:
    """What a mean of a debiased column is, and what the design of the experiment asks for."""
    manifest, columns = view.manifest, view.columns
    true = "the true outcome" + ", 0 where it is missing" * (columns.outcomes[0] in columns.missing)
    group, cluster = manifest.columns.assigned_by, manifest.columns.cluster
    spread = "and so any ordinary standard error, " if group is None else ""
    yield (
        f"{strong(f'A mean of {code(columns.debiased[0])} is an unbiased mean of {true}')}, over "
        "all units or over any group of them that was not chosen by looking at outcomes. Use it "
        f"like any outcome; its spread, {spread}includes the noise of privacy. It is right for "
        "means and for nothing else, and values can lie far outside the range of outcomes."
    )
    if cluster is not None and manifest.assignment is None:
        yield (
            f"{strong(f'Compare arms within {code(cluster)}.')} Plain means of arms mix the effect "
            "with differences between clusters, if arms have different shares in them. In the "
            "recipes units have weights, so that every arm represents the same mix of clusters."
        )
    if group is not None:
        yield (
            f"{strong(f'Arms were assigned by {code(group)}, not unit by unit.')} Standard errors "
            "must be of how its groups differ, as in the recipes. Other tools need standard errors "
            f"clustered by {code(group)}; those of single units are far too small."
        )
    if manifest.assignment is not None:
        yield (
            f"{strong('Arms had different probabilities in true clusters, which are private.')} "
            f"Means of arms need weights: the recipes take rows of {code('clusterdp calibrate')}, "
            f"each counted by {code('stratified_weight')}."
        )


def _recipe_text(view: FolderView) -> str:
    about = (
        "The first outcome: the mean of each arm with its standard error, and effects, which are "
        "differences of means from that of control."
    )
    if not view.levels:
        return about
    return (
        f"{about} These snippets use rows alone, and are less exact than what can be seen below: "
        "that needs the noisy statistics beside the rows, too. "
        f"{code('clusterdp estimate')} uses both. {code('clusterdp calibrate')} writes rows that "
        "were moved by the sums, for other tools."
    )


def restrictions(view: FolderView) -> Section:
    """What gives wrong answers, why, and the command that gives a right one."""
    heading = "What may not be done"
    if not view.has_rows:
        text = (
            "There are no rows, so that effects in segments, medians and other metrics cannot be "
            "had from this folder."
        )
        return Section(heading, [Paragraph(text)], "not")
    text = (
        "Values of private columns are not outcomes, and nothing but means may be taken of them. "
        "Where rows do not tell the answer, a command says what the owner would have to declare."
    )
    return Section(heading, [Paragraph(text), Items(cautions(view.manifest))], "not")


def visible_effects(view: FolderView) -> Section:
    """Standard errors and detectable effects, metric by metric."""
    seen = view.seen
    about = (
        f"Standard errors to expect of the difference between an arm and control, {seen.assumed}. "
        f"{strong('Detectable')} is the smallest effect that a two-sided 5% test finds with 80% "
        "probability: 2.8 standard errors. Numbers are in the units of the outcome; of several "
        "arms, they are of the least certain one. The last column is what could be detected "
        "without privacy."
    )
    parts: list[Part | Section] = [Paragraph(about)]
    grouped_by = join_names([" × ".join(level) for level in view.levels if level])
    if grouped_by:
        text = (
            f"Groups of {grouped_by} have noisy totals of their own. So effects there are more "
            "exact than in other segments of their size. A segment that nobody declared is told by "
            "its own rows; totals of all units help the more, the larger it is."
        )
        parts.append(Paragraph(text))
    for precision, (name, rows) in zip(seen.precisions, seen.tables().items(), strict=True):
        sentence = _precision_text(precision)
        table = Table(f"Effects on {name}", rows)
        drawn = _chart(name, precision, sentence)
        parts.append(Section(code(name), [Paragraph(sentence), *drawn, table]))
    return Section("What can be seen", parts, "see")


def _precision_text(precision: ExpectedVariance) -> str:
    text = f"Over everyone, {_detected(precision.overall)}."
    small = precision.segment(_SMALL_SEGMENT)
    if small is None:
        return text
    return (
        f"{text} In a segment of {_SMALL_SEGMENT:.0%} of the units, the standard error is about "
        f"{small.std_error:.3g}, and {_detected(small)}."
    )


def _detected(found: Prediction) -> str:
    """What can be detected, in words."""
    if found.is_visible:
        return f"effects of {found.detectable_effect:.3g} or more can be detected"
    return f"no effect can be seen: the largest possible is {found.largest_effect:.3g}"


def _chart(metric: str, precision: ExpectedVariance, told: str) -> list[Chart]:
    """Detectable effects against the share of a segment; nothing where there are no rows."""
    shares = [float(share) for share in np.geomspace(*_SHARES, _N_POINTS)]
    found = [one for share in shares if (one := precision.segment(share)) is not None]
    if not found:
        return []
    # No line goes beyond what is possible.
    ours = [min(one.detectable_effect, one.largest_effect) for one in found]
    true = [min(one.detectable_without_privacy, one.largest_effect) for one in found]
    drawing = line_chart(
        [ChartLine("from this release", shares, ours), ChartLine("without privacy", shares, true)],
        Axis("segment, as a share of all units", Logarithmic.over(shares), "{:.0%}".format),
        Axis(f"smallest detectable effect on {metric}", Logarithmic.over([*ours, *true])),
        title=f"Smallest detectable effect on {metric}, by the size of the segment",
        description=told,
    )
    caption = "The further the lines are apart, the more privacy costs. Both axes are logarithmic."
    return [Chart(drawing, caption)]


def origin(view: FolderView) -> Section:
    """Where the release comes from; its description is in the introduction."""
    manifest = view.manifest
    _, *pairs = provenance_pairs(manifest.provenance)
    ledger = ""
    if manifest.provenance.spent_before:
        ledger = "The date and what was spent before are from the owner's ledger. "
    remark = (
        f"What the owner says of it; nothing checks that. {ledger}Written by {manifest.software}, "
        f"by the mechanism {manifest.terms.mechanism_names}."
    )
    return Section("Where it comes from", [Facts(pairs), Paragraph(remark, "soft")], "provenance")


def citation(view: FolderView) -> Section | None:
    """How to cite it, by a checksum of all that is in it."""
    if not view.sums:
        return None
    manifest, mark = view.manifest, fingerprint(view.sums)
    day, title = manifest.provenance.released_on, title_of(manifest)
    year = "n.d." if day is None else str(day.year)
    what = (
        "User-level results of a randomized experiment under label differential privacy, "
        f"epsilon = {rounded_up(manifest.guarantee.epsilon)}; {manifest.software}"
    )
    fields = {"title": title}
    if day is not None:
        fields |= {"year": year, "month": str(day.month)}
    fields |= {"howpublished": what, "note": f"Fingerprint {mark}"}
    lines = [
        f"  {name} = {{{''.join(_IN_BIBTEX.get(letter, letter) for letter in text)}}},"
        for name, text in fields.items()
    ]
    remark = (
        "The fingerprint is the start of the SHA-256 of the list of files below without the last "
        f"two, sorted by name, as {code('sha256sum')} prints it."
    )
    parts: list[Part] = [
        Paragraph(f"{title} ({year}). {what}. Fingerprint {mark}."),
        Code("BibTeX", "\n".join([f"@misc{{clusterdp-{mark},", *lines, "}"])),
        Paragraph(remark, "soft"),
    ]
    return Section("How to cite it", parts, "cite")


def contents(view: FolderView) -> Section:
    """What is in each file, and its checksum."""
    held = Facts([(code(name), text) for name, text in file_texts(view).items()])
    verify = Paragraph(
        f"{code('clusterdp verify .')} checks all of them, and that this follows from the rest."
    )
    sums = []
    if view.sums:
        rows = [(code(name), size, code(checksum)) for name, size, checksum in file_sums(view)]
        table = Table("Files of this folder", [("file", "bytes", "SHA-256"), *rows], "files")
        sums = [table]
    return Section("Files", [held, *sums, verify], "files")


SECTIONS = (
    introduction,
    protection,
    measurement,
    exact_and_private,
    usage,
    restrictions,
    visible_effects,
    origin,
    citation,
    contents,
)


def summary(manifest: Manifest) -> Facts:
    """What a folder is, in short, for terminals."""
    columns, terms, about = manifest.named_columns, manifest.terms, manifest.provenance
    declared = [question.outcomes.declared for question in manifest.questions]
    arms = ", ".join(arms_in_words(manifest))
    pairs = [("title", about.title)] if about.title else []
    for outcome in (one for each in declared for one in each.outcomes):
        values = f"{parse_space(outcome.space).in_words}{', or missing' * outcome.may_be_missing}"
        pairs.append(("outcome", f"{outcome.name}: {values}"))
    pairs += [("implication", text) for each in declared for text in each.implications]
    pairs += [("metric", text) for each in declared for text in each.metrics]
    pairs += [("privacy", manifest.guarantee.in_words)]
    pairs += [("public", in_code(what_is_public(manifest)))]
    if terms.labels is not None:
        spent, whole = terms.labels.guarantee().epsilon, manifest.guarantee.epsilon
        pairs.append(("private clusters", f"took epsilon {spent:g} of {whole:g}"))
    pairs += list(_mechanism_facts(manifest))
    units = units_in_words(manifest.n_units, manifest.n_clusters)
    pairs.append(("table", f"{units}, arms {arms} (control {manifest.control})"))
    for one in manifest.breakdowns:
        groups = counted(len(one.sizes), "group")
        pairs.append(("breakdown", f"{', '.join(one.columns)} ({groups})"))
    pairs += [("folds", str(manifest.folds))] if manifest.folds > 1 else []
    published = columns.published if terms.releases_rows else columns.cell
    pairs.append(("columns", ", ".join(map(repr, published))))
    files = (f"{name} ({_size(file.bytes)})" for name, file in manifest.files.items())
    pairs.append(("files", ", ".join(files)))
    return Facts([*pairs, *provenance_pairs(about), ("written by", manifest.software)])


def _mechanism_facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The mechanism of each question; where there are several, with its outcomes and its share."""
    for question, space in zip(manifest.questions, manifest.terms.spaces, strict=True):
        mechanism = question.mechanism
        numbers = mechanism.parameters(space).items()
        whole = f"{mechanism.name} ({', '.join(f'{name} {value:.6g}' for name, value in numbers)})"
        if len(manifest.questions) == 1:
            yield "mechanism", whole
        else:
            asked = f"asked of {mechanism.asked_share:.1%} of units"
            yield "question", f"{', '.join(question.names)}: {asked}, {whole}"


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"
