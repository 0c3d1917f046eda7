"""What the folder of an answer says of itself that no release does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp._text import counted
from clusterdp.document.model import Code, Facts, KeyNumbers, Paragraph, Section, code
from clusterdp.privacy.statement import rounded_up
from clusterdp.spec.answers import NOT_ASKED

if TYPE_CHECKING:
    from clusterdp.published.contents import FolderView
    from clusterdp.published.manifest import Manifest


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
