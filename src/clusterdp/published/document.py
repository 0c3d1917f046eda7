"""What a published folder says of itself: one document, which README.md and index.html render.

Each section is a function of a `FolderView` that returns a `Section`; `SECTIONS` is their order. A
section that is added there is in both files, and `clusterdp verify` derives both again. README.md
is written first, so what needs the checksums of all other files is in index.html alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clusterdp._text import counted
from clusterdp.document.charts import sure_chart
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
from clusterdp.precision.forecast import UNSEEN
from clusterdp.precision.visible import visible_rows
from clusterdp.privacy.statement import rounded_up
from clusterdp.published._recipes import cautions, folder_of, recipes, sum_queries
from clusterdp.published.contents import (
    SHOWN_SEGMENT,
    FolderView,
    asked_texts,
    column_texts,
    detectable_chart,
    file_sums,
    file_texts,
    fingerprint,
    join_names,
    missing_texts,
    other_files,
    question_texts,
)
from clusterdp.published.manifest import arms_in_words, title_of, what_is_public
from clusterdp.spec.answers import NOT_ASKED
from clusterdp.spec.provenance import Provenance, provenance_pairs
from clusterdp.storage.folder import CELLS, ERRATA, PILOT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from clusterdp.document.model import Part
    from clusterdp.published.manifest import Manifest
    from clusterdp.storage.folder import FileSum


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
    chosen = SECTIONS if view.manifest.answers is None else ANSWER_SECTIONS
    sections = (section(view) for section in chosen)
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
    public = known[:1] if manifest.labels else known
    exact = join_names(["Ids", *(code(name) for name in public)])
    units = f"{counted(manifest.n_units, about.unit)} in a randomized experiment"
    lead = (
        f"This folder has noisy totals of {units}. Arms and sizes are exact; {view.outcomes} have "
        f"noise. Use it for average effects over all {about.units}."
    )
    if view.has_rows:
        lead = (
            f"This folder has one row for each of {units}. {exact} are exact; "
            f"{view.outcomes} {'are' if len(view.columns.outcomes) > 1 else 'is'} randomized. Use "
            "it for average effects, overall and in segments, and never for conclusions about one "
            f"{about.unit}."
        )
    numbers = [
        (about.units, f"{manifest.n_units:,}"),
        (f"arms: {', '.join(arms_in_words(manifest))}", str(len(manifest.arms))),
        ("privacy budget", f"ε = {rounded_up(manifest.guarantee.epsilon)}"),
        *([("published", str(about.released_on))] if about.released_on else []),
    ]
    said = [Paragraph(about.description)] if about.description else []
    glance = Facts(list(_at_a_glance(view)))
    return Section("", [Paragraph(lead, "lead"), KeyNumbers(numbers), *said, glance])


def _at_a_glance(view: FolderView) -> Iterator[tuple[str, str]]:
    """What is asked first: whom to ask, what is allowed, what can be seen, and how."""
    about = view.manifest.provenance
    asked = (
        ("Questions to", about.contact),
        ("Approved by", about.approved_by),
        ("License", about.licence or "not stated: ask before sharing"),
    )
    yield from ((name, text) for name, text in asked if text)
    precision, metric = view.precisions[0], view.metrics[0]
    tenth = precision.segment(SHOWN_SEGMENT)
    within = "" if tenth is None else f", {metric.detectable(tenth)} in a 10% segment"
    change = f"{metric.detectable(precision.overall)} among all {about.units}"
    yield "Detectable", f"a change in {code(metric.name)} of {change}{within}"
    yield "Get effects", code("clusterdp estimate .")
    yield "Corrections", f"in {code(ERRATA)}, if there are any"


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
    caption = f"How sure a reader who is undecided about one {stated.unit} can become."
    bar = [Chart(sure_chart(stated.at_most), caption)] if stated.at_most else []
    header = ("sure before", "sure after, at least", "sure after, at most")
    table = Table("How sure a reader can become", [header, *stated.bounds()])
    also = "If the experiment shows that a treatment works, it also shows that for people like you."
    formal = [stated.odds, in_code(what_is_public(manifest)), stated.bounds_lead]
    said = [covered, stated.formal, f"{stated.limits} {also}", other_releases(manifest)]
    if kept := manifest.terms.covariates_in_words(stated.unit):
        said.insert(1, f"{strong('Covariates of the owner')}: {kept}.")
    more = Section("The guarantee in detail", [*map(Paragraph, formal), table], is_folded=True)
    first, *rest = map(Paragraph, said)
    return Section("Privacy", [first, *bar, *rest, more], "guarantee")


def other_releases(manifest: Manifest) -> str:
    """What other releases about the same units add."""
    known, units = manifest.provenance, manifest.provenance.units
    if known.continues:
        return (
            f"{strong('This folder continues earlier ones')}, which have none of these {units}: "
            f"their ids were compared. Those folders add nothing to these limits. {_outside(known)}"
        )
    return _outside(known)


def _outside(known: Provenance) -> str:
    """What releases about the same units add, by the owner's ledger."""
    spent, units = known.spent_before, known.units
    if spent is None:
        return (
            f"These limits are for this folder only. Other releases about the same {units} add to "
            "them; no ledger tracked them."
        )
    if not spent.epsilon:
        return (
            "These limits are for this folder only. The owner's ledger had no earlier release "
            f"about these {units}; later ones add to them."
        )
    return (
        f"{strong(f'This is not the only release about these {units}.')} Earlier ones had spent "
        f"ε = {rounded_up(spent.epsilon)} when this one began, and add to these limits."
    )


def measurement(view: FolderView) -> Section:
    """Outcomes, combinations, metrics; who was asked; and notes."""
    manifest = view.manifest
    unit, units = manifest.provenance.unit, manifest.provenance.units
    pilot = Paragraph(
        f"Declared ranges were narrowed by a pilot: a noisy histogram of all {units}. It took part "
        f"of ε and is published in {code(PILOT)}."
    )
    measured = [text for question in manifest.questions for text in question_texts(question)]
    parts: list[Part] = [pilot] if manifest.terms.has_pilot else []
    parts.append(Items([*measured, *missing_texts(view.columns, view.units), *view.notes]))
    asked = asked_texts(manifest)
    if asked:
        several = (
            f"Each {unit}'s row answers one question. A public hash of the id chose it. "
            "Debiased columns of other questions are empty. A mean that skips empty fields is "
            f"unbiased. Noisy sums cover all {units}. In {code(CELLS)}, columns of the second "
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
    units = manifest.provenance.units
    told = Paragraph(f"The release has no rows of {units}. {known} has noise.")
    return Section(heading, [told], "columns")


def usage(view: FolderView) -> Section:
    """What the rows are right for, and how to use them with and without our software."""
    heading, verify = "Use it", "clusterdp verify .\nclusterdp estimate .\n"
    if not view.has_rows:
        label = "clusterdp: effects with intervals"
        return Section(heading, [Code(label, verify.rstrip("\n"))], "use")
    label = "clusterdp: effects with intervals, compared within clusters, in any segment"
    if view.levels:
        label = "clusterdp: effects with intervals, more precisely than from rows alone"
    commands = (
        f"{verify}clusterdp estimate . --by COLUMN\n"
        "clusterdp calibrate . --out ../rows.parquet  # for other tools"
    )
    snippets = [
        Paragraph(_recipe_text(view)),
        *recipes(view.manifest, view.rows),
        *sum_queries(view.manifest, view.rows),
    ]
    other = Section("Without clusterdp: SQL, pandas and R", snippets, is_folded=True)
    texts = map(Paragraph, _design_texts(view))
    return Section(heading, [Code(label, commands, "sh"), *texts, other], "use")


def _design_texts(view: FolderView) -> Iterator[str]:
    """What a mean of a debiased column is, and what the design of the experiment asks for."""
    manifest, columns, about = view.manifest, view.columns, view.manifest.provenance
    clipped = manifest.clip or columns.outcomes[0] in view.manifest.terms.spaces[0].declared.numbers
    true = "the clipped outcome" if clipped else "the true outcome"
    true += ", 0 where it is missing" * (columns.outcomes[0] in columns.missing)
    group, cluster = manifest.columns.randomization_unit, manifest.columns.cluster
    spread = ", and so any ordinary standard error," if group is None else ""
    yield (
        f"{strong(f'A mean of {code(columns.debiased[0])} is an unbiased mean of {true}')}, over "
        f"all {about.units} or over any group of them not chosen by looking at outcomes. Use it "
        f"like any outcome; its spread{spread} includes privacy noise. It is right for means "
        "only, and values can lie far outside the range of outcomes."
    )
    if cluster is not None and manifest.assignment is None:
        yield (
            f"{strong(f'Compare arms within {code(cluster)}.')} Plain means of arms mix the effect "
            "with differences between clusters, if arms have different shares in them. In the "
            f"recipes {about.units} have weights, so that every arm represents the same mix of "
            "clusters."
        )
    if group is not None:
        yield (
            f"{strong(f'Arms were assigned by {code(group)}, not by {about.unit}.')} Standard "
            "errors must measure how groups differ, as in the recipes. Other tools need errors "
            f"clustered by {code(group)}; standard errors by {about.unit} are far too small."
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
        f"{about} These snippets use rows only, so they are less precise than the table below. "
        f"{code('clusterdp estimate')} also uses the noisy statistics. "
        f"{code('clusterdp calibrate')} writes rows calibrated to them, for other tools."
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
    several = "With several arms, numbers are for the least precise one. "
    about = (
        f"{view.assumed} {several * (len(view.manifest.arms) > 2)}Effects on shares are in "
        "percentage points (pp)."
    )
    shown = view.mde()
    if any(UNSEEN in row for row in shown.rows):
        about += f" “{UNSEEN}”: not even the largest possible change is detectable."
    parts: list[Part | Section] = [shown, Paragraph(about, "soft")]
    grouped_by = join_names([" × ".join(level) for level in view.levels if level])
    if grouped_by:
        text = (
            f"Groups of {grouped_by} have noisy totals of their own, so effects there are more "
            "precise than in other segments of their size."
        )
        parts.append(Paragraph(text))
    for index, (precision, metric) in enumerate(zip(view.precisions, view.metrics, strict=True)):
        rows = visible_rows(view.targets, metric, index, view.units)
        table = Table(f"Minimum detectable effect on {metric.name}", rows)
        heading = f"{code(metric.name)} by the size of the segment"
        drawn: list[Part | Section] = [*detectable_chart(metric, precision, view.units), table]
        parts.append(Section(heading, drawn, is_folded=index > 0))
    return Section("What you can detect", parts, "see")


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
    dated = {} if day is None else {"year": year, "month": str(day.month)}
    fields = {"title": title, **dated, "howpublished": what, "note": f"Fingerprint {mark}"}
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


def answer_introduction(view: FolderView) -> Section:
    """What an answer is, which release it is about, and what is in its groups."""
    manifest, about = view.manifest, view.manifest.provenance
    lead = (
        f"This folder answers a follow-up to a release of {counted(manifest.n_units, about.unit)}. "
        f"It has noisy totals of {view.outcomes} by group and arm, and no rows. Use it together "
        "with the release."
    )
    numbers = [
        ("privacy budget, on top of the release", f"ε = {rounded_up(manifest.guarantee.epsilon)}"),
        *([("published", str(about.released_on))] if about.released_on else []),
    ]
    return Section("", [Paragraph(lead, "lead"), KeyNumbers(numbers), answer_facts(manifest)])


def answer_facts(manifest: Manifest, *, in_short: bool = False) -> Facts:
    """What an answer is bound to, and its groups; in short with checksums that fit a line."""
    answers = manifest.answers
    assert answers is not None  # noqa: S101 - the caller has an answer
    found, units = answers.found_in_fold, manifest.provenance.units
    groups = [
        f"{one.columns[0] if in_short else code(one.columns[0])}: "
        f"{counted(len(set(one.labels[0]) - {NOT_ASKED}), 'group')} of {labeled:,} labeled {units}"
        + (f"; {counted(pooled, 'small group')} pooled into {NOT_ASKED}" if pooled else "")
        for one, labeled, pooled in zip(
            manifest.breakdowns, answers.n_labeled, answers.n_pooled, strict=True
        )
    ]
    held = f"fold {found}; its {units} have no labels" if found is not None else ""
    bound = [answers.release, answers.followup]
    release, followup = (f"{one[:16]}…" if in_short else code(one) for one in bound)
    pairs = [
        ("Release", f"manifest {release}"),
        ("Follow-up", followup),
        ("Groups", "; ".join(groups)),
        ("Metrics", "all" if answers.metrics is None else ", ".join(answers.metrics)),
        ("Found in", held),
    ]
    return Facts([(name, text) for name, text in pairs if text])


def answer_usage(view: FolderView) -> Section:
    """How an answer is used: with its release and the analyst's labels."""
    commands = (
        "clusterdp verify .\n"
        "clusterdp estimate RELEASE --answer . --followup FOLLOWUP --by "
        f"{','.join(view.manifest.breakdowns[0].columns)}"
    )
    label = "clusterdp: effects in the groups, by rows of the release and these totals"
    text = (
        "Which unit has which label is not in this folder. The analyst's follow-up has that, and "
        "the key of the checksums in the manifest."
    )
    return Section("Use it", [Code(label, commands, "sh"), Paragraph(text)], "use")


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


ANSWER_SECTIONS = (
    answer_introduction,
    protection,
    measurement,
    answer_usage,
    origin,
    citation,
    contents,
)
