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
from clusterdp.document.charts import Axis, ChartLine, line_chart, sure_chart
from clusterdp.document.markup import to_markdown, to_page
from clusterdp.document.model import (
    Chart,
    Code,
    Document,
    Facts,
    Items,
    KeyNumbers,
    Paragraph,
    Section,
    Table,
    code,
    in_code,
    strong,
)
from clusterdp.document.scales import Logarithmic
from clusterdp.outcomes.declaration import parse_space
from clusterdp.privacy.statement import rounded_up
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
from clusterdp.spec.columns import RESPONSE
from clusterdp.spec.provenance import provenance_pairs
from clusterdp.storage.folder import CELLS, ERRATA, PILOT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from clusterdp.document.model import Part
    from clusterdp.precision.prediction import ExpectedVariance
    from clusterdp.precision.visible import ShownMetric
    from clusterdp.published.manifest import Manifest
    from clusterdp.storage.folder import FileSum


_TENTH = 0.1
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
        f"{view.manifest.software} wrote this with the release. Corrections are added later to "
        f"{code(ERRATA)}, which no checksum covers.",
    )


def introduction(view: FolderView) -> Section:
    """What this is, for whom, and its key numbers."""
    manifest, about = view.manifest, view.manifest.provenance
    known = [manifest.columns.arm, *filter(None, [manifest.columns.cluster])]
    exact = join_names([code(name) for name in known if not (manifest.labels and name != known[0])])
    units = f"{manifest.n_units:,} units in a randomized experiment"
    lead = (
        f"This folder has noisy totals of {units}. Arms and sizes are exact; {view.outcomes} have "
        "noise. Use it for average effects over all units."
    )
    if view.has_rows:
        lead = (
            f"This folder has one row for each of {units}. Ids, {exact} are exact; "
            f"{view.outcomes} {'are' if len(view.columns.outcomes) > 1 else 'is'} randomized. Use "
            "it for average effects, overall and in segments, and never for conclusions about one "
            "unit."
        )
    numbers = [
        ("units", f"{manifest.n_units:,}"),
        (f"arms: {', '.join(arms_in_words(manifest))}", str(len(manifest.arms))),
        ("privacy budget", f"ε = {rounded_up(manifest.guarantee.epsilon)}"),
    ]
    if about.released_on:
        numbers.append(("published", str(about.released_on)))
    said = [Paragraph(about.description)] if about.description else []
    ask = f"Questions: {about.contact}. " if about.contact else ""
    below = Paragraph(f"{ask}Corrections, if any, are in {code(ERRATA)}.", "soft")
    return Section("", [Paragraph(lead, "lead"), KeyNumbers(numbers), *said, below])


def protection(view: FolderView) -> Section:
    """What a reader can learn of a unit, what is not protected, and the definition."""
    manifest = view.manifest
    stated = manifest.terms.guarantee.statement(manifest.provenance.unit)
    cluster = f"{code(str(manifest.true_cluster))}; " if manifest.labels else ""
    observed = ", and whether they were observed" if view.columns.missing else ""
    covered = (
        f"{strong(f'Protected: the {stated.protected} of every {stated.unit}')} "
        f"({cluster}{view.outcomes}), all of them together{observed}. {stated.plain}"
    )
    caption = "How sure a reader who is undecided about one unit can become."
    bar = [Chart(sure_chart(stated.at_most), caption)] if stated.at_most else []
    header = ("sure before", "sure after, at least", "sure after, at most")
    table = Table("How sure a reader can become", [header, *stated.bounds()])
    also = "If the experiment shows that a treatment works, it also shows that for people like you."
    formal = [stated.odds, in_code(what_is_public(manifest)), stated.bounds_lead]
    said = [covered, stated.formal, f"{stated.limits} {also}", _composition(manifest)]
    more = Section("The guarantee in detail", [*map(Paragraph, formal), table], is_folded=True)
    first, *rest = map(Paragraph, said)
    return Section("Privacy", [first, *bar, *rest, more], "guarantee")


def _composition(manifest: Manifest) -> str:
    """What other releases about the same units add."""
    spent = manifest.provenance.spent_before
    if spent is None:
        return (
            "These limits are for this folder only. Other releases about the same units add to "
            "them; no ledger tracked them."
        )
    if not spent.epsilon:
        return (
            "These limits are for this folder only. The owner's ledger had no earlier release "
            "about these units; later ones add to them."
        )
    return (
        f"{strong('This is not the only release about these units.')} Earlier ones had spent "
        f"ε = {rounded_up(spent.epsilon)} when this one began, and add to these limits."
    )


def measurement(view: FolderView) -> Section:
    """Outcomes, combinations, metrics; who was asked; and notes."""
    manifest = view.manifest
    parts: list[Part] = []
    if manifest.terms.has_pilot:
        parts.append(
            Paragraph(
                "Declared ranges were narrowed by a pilot: a noisy histogram of all units. It took "
                f"part of ε and is published in {code(PILOT)}."
            )
        )
    measured = [text for question in manifest.questions for text in question_texts(question)]
    parts.append(Items([*measured, *missing_texts(view.columns), *view.notes]))
    asked = asked_texts(manifest)
    if asked:
        several = (
            "Each unit's row answers one question. Which one is public and was drawn by a hash. "
            "Debiased columns of other questions are empty. A mean that skips empty fields is "
            f"unbiased. Noisy sums cover all units. In {code(CELLS)}, columns of the second "
            f"question end with {code('_2')}."
        )
        parts += [Paragraph(several), Items(asked, is_ordered=True)]
    return Section("Outcomes", parts, "measured")


def exact_and_private(view: FolderView) -> Section:
    """The columns of rows: which are exact, which private, and what they hold."""
    heading, manifest = "Columns", view.manifest
    if view.has_rows:
        where = f"Rows are in {code(folder_of(view.rows))}. No column has true outcomes."
        return Section(heading, [Paragraph(where), Facts(column_texts(view))], "columns")
    known = "Arms, clusters and the sizes of cells are exact; all that depends on outcomes"
    if manifest.labels:
        protected = manifest.terms.guarantee.statement().protected
        known = f"Arms are exact; all that depends on {protected}"
    told = Paragraph(f"There are no rows of units. {known} has noise.")
    return Section(heading, [told], "columns")


def usage(view: FolderView) -> Section:
    """What the rows are right for, and how to use them with and without our software."""
    heading, verify = "Use it", "clusterdp verify .\nclusterdp estimate .\n"
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
    clipped = manifest.clip or columns.outcomes[0] in view.manifest.terms.spaces[0].declared.numbers
    true = "the clipped outcome" if clipped else "the true outcome"
    true += ", 0 where it is missing" * (columns.outcomes[0] in columns.missing)
    group, cluster = manifest.columns.randomization_unit, manifest.columns.cluster
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
    heading = "What not to do"
    if not view.has_rows:
        text = (
            "This folder has no rows, so it does not identify effects in segments, medians or "
            "other metrics."
        )
        return Section(heading, [Paragraph(text)], "not")
    text = (
        "Values of randomized columns are not outcomes. Use their means only. Where the release "
        "does not identify an answer, the command says what the owner has to declare."
    )
    return Section(heading, [Paragraph(text), Items(cautions(view.manifest))], "not")


def visible_effects(view: FolderView) -> Section:
    """Minimum detectable effects, in short and metric by metric."""
    seen = view.seen
    several = "With several arms, numbers are for the least precise one. "
    about = (
        f"{seen.assumed} {several * (len(view.manifest.arms) > 2)}Effects on shares are in "
        "percentage points (pp)."
    )
    parts: list[Part | Section] = [seen.mde(), Paragraph(about, "soft")]
    grouped_by = join_names([" × ".join(level) for level in view.levels if level])
    if grouped_by:
        text = (
            f"Groups of {grouped_by} have noisy totals of their own, so effects there are more "
            "precise than in other segments of their size."
        )
        parts.append(Paragraph(text))
    pairs = zip(seen.precisions, seen.metrics, seen.tables(), strict=True)
    for precision, metric, rows in pairs:
        table = Table(f"Minimum detectable effect on {metric.name}", rows)
        parts.append(Section(code(metric.name), [*_chart(metric, precision), table]))
    return Section("What you can detect", parts, "see")


def _chart(metric: ShownMetric, precision: ExpectedVariance) -> list[Chart]:
    """Detectable effects against the share of a segment; nothing where there are no rows."""
    shares = [float(share) for share in np.geomspace(*_SHARES, _N_POINTS)]
    found = [one for share in shares if (one := precision.segment(share)) is not None]
    if not found:
        return []
    # No line goes beyond what is possible.
    unit = 100 if metric.is_share else 1
    ours = [unit * min(one.detectable_effect, one.largest_effect) for one in found]
    true = [unit * min(one.detectable_without_privacy, one.largest_effect) for one in found]
    tenth = precision.segment(_TENTH)
    told = f"All units: {metric.detectable(precision.overall)}."
    cost = "The gap between the lines is the cost of privacy. Log scales."
    if tenth is not None:
        told += f" A 10% segment: {metric.detectable(tenth)}."
        factor = tenth.detectable_effect / tenth.detectable_without_privacy
        cost = f"Privacy costs a factor of {factor:.1f} in a 10% segment. {cost}"
    drawing = line_chart(
        [ChartLine("this release", shares, ours, true), ChartLine("no privacy", shares, true)],
        Axis("segment, as a share of all units", Logarithmic.over(shares), "{:.0%}".format),
        Axis(
            f"MDE on {metric.name}{', percentage points' * metric.is_share}",
            Logarithmic.over([*ours, *true]),
        ),
        title=f"Minimum detectable effect on {metric.name}, by the size of the segment",
        description=told,
        gap="cost of privacy",
    )
    return [Chart(drawing, cost)]


def origin(view: FolderView) -> Section:
    """Where the release comes from; its description is in the introduction."""
    manifest = view.manifest
    pairs = [pair for pair in provenance_pairs(manifest.provenance) if pair[0] != "Description"]
    ledger = ""
    if manifest.provenance.spent_before:
        ledger = "The date and earlier spending are from the owner's ledger. "
    remark = (
        f"The owner's words; nothing checks them. {ledger}Written by {manifest.software}, "
        f"mechanism {manifest.terms.mechanism_names}."
    )
    return Section("Provenance", [Facts(pairs), Paragraph(remark, "soft")], "provenance")


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
    return Section("Cite it", parts, "cite", is_folded=True)


def contents(view: FolderView) -> Section:
    """What is in each file, and its checksum."""
    held = Facts([(code(name), text) for name, text in file_texts(view).items()])
    verify = Paragraph(f"{code('clusterdp verify .')} checks the files and this text.")
    sums = []
    if view.sums:
        rows = [(code(name), size, code(checksum)) for name, size, checksum in file_sums(view)]
        table = Table("Files of this folder", [("file", "bytes", "SHA-256"), *rows], "files")
        sums = [table]
    return Section("Files and checksums", [held, *sums, verify], "files", is_folded=True)


SECTIONS = (
    introduction,
    protection,
    measurement,
    exact_and_private,
    visible_effects,
    usage,
    restrictions,
    origin,
    citation,
    contents,
)


def overview(view: FolderView) -> list[Part]:
    """What a folder is, in short, for terminals and notebooks."""
    manifest, terms = view.manifest, view.manifest.terms
    columns, about = manifest.named_columns, manifest.provenance
    day = f", published {about.released_on}" if about.released_on else ""
    what = about.title or f"{', '.join(terms.outcome_names)}: a randomized experiment"
    arms = ", ".join(
        f"{arm} = control" if arm == str(manifest.control) else arm
        for arm in arms_in_words(manifest)
    )
    clusters = ""
    if manifest.n_clusters:
        clusters = f", {counted(manifest.n_clusters, 'cluster')} ({manifest.columns.cluster})"
    size = (
        f"{counted(manifest.n_units, 'unit')} ({manifest.columns.unit}), "
        f"{counted(len(manifest.arms), 'arm')} ({manifest.columns.arm}: {arms}){clusters}"
    )
    published = columns.published if terms.releases_rows else columns.cell
    private = [*columns.debiased, RESPONSE, *([columns.cluster] if manifest.labels else [])]
    pairs = [
        ("Public", ", ".join(name for name in published if name not in private)),
        ("Randomized", ", ".join(name for name in published if name in private)),
        ("Privacy", str(terms.guarantee)),
        *(pair for pair in provenance_pairs(about) if pair[0] != "Published"),
    ]
    notes = [Facts([], view.notes)] if view.notes else []
    shown = Facts([(name, text) for name, text in pairs if text])
    return [Paragraph(f"{what}{day}"), Paragraph(size), view.seen.mde(), shown, *notes]


def particulars(view: FolderView) -> list[Part | Section]:
    """What reviewers ask for: outcomes, mechanisms, breakdowns, files."""
    manifest, terms = view.manifest, view.manifest.terms
    declared = [question.outcomes.declared for question in manifest.questions]
    pairs = []
    for outcome in (one for each in declared for one in each.outcomes):
        values = f"{parse_space(outcome.space).in_words}{', or missing' * outcome.may_be_missing}"
        pairs.append(("Outcome", f"{outcome.name}: {values}"))
    pairs += [("Constraint", text) for each in declared for text in each.constraints]
    pairs += [("Metric", text) for each in declared for text in each.metrics]
    if terms.labels is not None:
        spent, whole = terms.labels.guarantee().epsilon, manifest.guarantee.epsilon
        pairs.append(("Private clusters", f"take {spent:g} of ε = {whole:g}"))
    pairs += list(_mechanism_facts(manifest))
    for one in manifest.breakdowns:
        groups = counted(len(one.sizes), "group")
        pairs.append(("Breakdown", f"{', '.join(one.columns)} ({groups})"))
    pairs += [("Folds", str(manifest.folds))] if manifest.folds > 1 else []
    files = (f"{name} ({_size(file.bytes)})" for name, file in manifest.files.items())
    pairs += [("Files", ", ".join(files)), ("Written by", manifest.software)]
    return [Facts(pairs), *visible_effects(view).parts[1:]]


def _mechanism_facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The mechanism of each question; where there are several, with its outcomes and its share."""
    for question, space in zip(manifest.questions, manifest.terms.spaces, strict=True):
        mechanism = question.mechanism
        numbers = mechanism.parameters(space).items()
        whole = f"{mechanism.name} ({', '.join(f'{name} {value:.6g}' for name, value in numbers)})"
        if len(manifest.questions) == 1:
            yield "Mechanism", whole
        else:
            asked = f"asked of {mechanism.asked_share:.1%} of units"
            yield "Question", f"{', '.join(question.names)}: {asked}, {whole}"


def _size(n_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:.1f} {unit}"
    return f"{n_bytes} bytes"
