"""A certificate: what must be known of a release to approve it or to rely on it.

Everything follows from the sealed folder. What rests on the program that wrote it, and what only
the owner can answer, says so in the same words everywhere. Questions are those that NIST SP 800-226
asks of a claim of differential privacy, in our words, from the budget down to how data were
collected. The entry for the public registry of deployments is in `_registry.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp._text import counted
from clusterdp.document.model import (
    Code,
    Document,
    Facts,
    KeyNumbers,
    Paragraph,
    Section,
    code,
    in_code,
    strong,
)
from clusterdp.privacy.statement import rounded_up
from clusterdp.published._registry import OWNER_ONLY, registry_entry
from clusterdp.published.contents import join_names, question_texts
from clusterdp.published.document import other_releases
from clusterdp.published.manifest import title_of, what_is_public
from clusterdp.published.overview import mechanism_facts, owners_words

if TYPE_CHECKING:
    from clusterdp.document.model import Part
    from clusterdp.published.contents import FolderView


class _Answer(NamedTuple):
    """A question of a reviewer, with the answer.

    Attributes:
        question: What is asked.
        fact: What the folder shows; empty if it shows nothing of it.
        design: What holds if the program ran as it was written; empty if nothing.
        owner: What the owner has to add; empty if nothing.
    """

    question: str
    fact: str = ""
    owner: str = ""
    design: str = ""

    def texts(self, software: str) -> list[Paragraph]:
        """The question, then each answer by who gives it."""
        found = [Paragraph(strong(self.question))]
        found += [Paragraph(f"Fact: {self.fact}")] if self.fact else []
        found += [Paragraph(f"By design of {software}: {self.design}")] if self.design else []
        return found + ([Paragraph(f"{OWNER_ONLY} {self.owner}", "soft")] if self.owner else [])


def certificate(view: FolderView, sealed: str, enumerated: str) -> Document:
    """The certificate of a folder.

    Args:
        view: The folder.
        sealed: The SHA-256 of its manifest.
        enumerated: What the audit of its integers found, in a sentence.
    """
    software = view.manifest.software

    def asked(answers: list[_Answer]) -> list[Paragraph]:
        return [part for one in answers for part in one.texts(software)]

    sections = [
        _summary(view, sealed, enumerated),
        _signatures(),
        Section(
            "What a reviewer asks (NIST SP 800-226)", asked(_questions(view, enumerated)), "review"
        ),
        Section("For a data-protection impact assessment", asked(_assessment(view)), "dpia"),
        _registry(view),
    ]
    footer = (
        f"Made from the sealed folder alone. {code('clusterdp verify')} checks the folder, "
        f"{code('clusterdp audit')} recomputes its ε."
    )
    return Document(f"Privacy certificate: {title_of(view.manifest)}", sections, footer)


_SURE = "how sure a reader can become, from 50% before"


def _summary(view: FolderView, sealed: str, enumerated: str) -> Section:
    """What is published, what is protected, and how much: one page."""
    manifest, about = view.manifest, view.manifest.provenance
    stated = manifest.terms.guarantee.statement(about.unit)
    numbers = [
        ("privacy budget (ε)", rounded_up(stated.epsilon)),
        *([("δ", rounded_up(stated.delta))] if stated.delta else []),
        *([(_SURE, f"at most {stated.at_most}")] if stated.at_most else []),
        (about.units, f"{manifest.n_units:,}"),
    ]
    facts = [
        ("Protected", f"the {stated.protected} of every {about.unit}: {view.outcomes}"),
        ("Published as it is", in_code(what_is_public(manifest))),
        ("Recomputed", enumerated),
        ("Other releases", other_releases(manifest)),
        ("Approved by", about.approved_by or "not stated"),
        ("Reason for ε", about.reason or "not stated"),
        ("Manifest (SHA-256)", code(sealed)),
    ]
    said: list[Part] = [Paragraph(stated.plain, "lead"), KeyNumbers(numbers)]
    return Section("", [*said, Paragraph(stated.formal), Paragraph(stated.limits), Facts(facts)])


def _signatures() -> Section:
    """Lines to sign."""
    line = "_" * 28
    who = ("Data owner", "Privacy officer", "Reviewer")
    rows = [f"{one}: {line} Date: {'_' * 12}" for one in who]
    return Section("Signatures", [Code("I have read this certificate", "\n\n".join(rows))], "sign")


def _questions(view: FolderView, enumerated: str) -> list[_Answer]:
    """From the budget down: parameters, units, mechanisms, trust, security, collection."""
    manifest, about = view.manifest, view.manifest.provenance
    stated = manifest.terms.guarantee.statement(about.unit)
    unit, units = about.unit, about.units
    return [
        _Answer("What are ε and δ, and what do they mean?", f"{stated.numbers}. {stated.plain}"),
        _Answer(
            "Why this ε?",
            f"The owner's reason: {about.reason}" if about.reason else "",
            "" if about.reason else "State why this ε was chosen.",
        ),
        _Answer(
            "What is the unit of privacy?",
            f"All {stated.protected} of one {unit}. Neighboring tables differ in one {unit}'s "
            f"{stated.protected}, replaced by any other allowed ones. The number of {units} is "
            "public (bounded differential privacy).",
            f"State whether one person can be several {units}.",
        ),
        _Answer("What is not protected?", f"{stated.limits} {in_code(what_is_public(manifest))}"),
        _Answer("Do several releases add up?", other_releases(manifest)),
        _Answer(
            "Which mechanisms are used?",
            " ".join(f"{name}: {text}." for name, text in mechanism_facts(manifest)),
        ),
        _Answer(
            "Is the budget computed from what the machine does?",
            enumerated,
            design="Randomizers and noise are integers. ε is computed from these and rounded up.",
        ),
        _Answer(
            "Are floating-point attacks excluded?",
            design="Noise is discrete and sampled exactly. Rows are drawn by comparing integers "
            "with AES-256 of the id, under a key that is used once.",
        ),
        _Answer(
            "Was anything learned from the data without budget?",
            "A pilot histogram, which is part of ε, set ranges and randomizers."
            if manifest.terms.has_pilot
            else "",
            "State whether outcomes were looked at before they were declared.",
            design="Checks that reject a table read public columns, or one row at a time.",
        ),
        _Answer(
            "Who has to be trusted?",
            "",
            "State who can read the table, the ledger and its key.",
            "The owner holds true outcomes and runs the program (central model). Readers of the "
            "folder need not be trusted.",
        ),
        _Answer(
            "Does running time or memory reveal outcomes?",
            "",
            "State who could measure times or memory on the machine that published.",
            "The bytes of the folder follow from the key, the drawn noise, public columns, "
            "declared options and released outcomes. Readers ask the owner's table nothing.",
        ),
        _Answer(
            "Is it useful, and for whom may it be biased?",
            "Published randomizers are unbiased, so that means are right in every segment. Small "
            "segments are measured least precisely: README.md states what is detectable.",
            f"State which groups of {units} the experiment left out.",
        ),
        _Answer(
            "What can no check of this folder confirm?",
            f"These are the owner's words: {'; '.join(owners_words(manifest)).replace('_', ' ')}.",
        ),
    ]


def _assessment(view: FolderView) -> list[_Answer]:
    """Paragraphs for an assessment by the owner's data-protection officer."""
    manifest, about = view.manifest, view.manifest.provenance
    units = about.units
    arms = join_names([code(str(arm)) for arm in manifest.arms])
    measured = [text for question in manifest.questions for text in question_texts(question)]
    return [
        _Answer(
            "Nature and scope of the processing",
            f"Outcomes of {counted(manifest.n_units, about.unit)} in a randomized experiment with "
            f"arms {arms} are published with noise. Declared outcomes: {' '.join(measured)}",
            "State who the people are, where the data come from, and how long it is kept.",
        ),
        _Answer(
            "Purpose and legal basis", "", "State the purpose, the legal basis and the recipients."
        ),
        _Answer(
            "Necessity and proportionality",
            f"Columns of outcomes are randomized. They are right for averages over many {units}, "
            f"and say little about one {about.unit}.",
            "State why public columns are needed as they are.",
        ),
        _Answer(
            "Risks",
            f"{manifest.terms.guarantee.statement(about.unit).limits} Ids and public columns show "
            f"who took part. A reader who links {units} to each other can learn more than ε says.",
            "State what taking part reveals, and whether ids identify people.",
        ),
        _Answer(
            "Measures",
            "Every row is randomized, every statistic has noise, and a manifest has checksums of "
            "all files. What was published cannot be taken back.",
            "State access rules, the budget cap, and who decides about later releases.",
        ),
    ]


def _registry(view: FolderView) -> Section:
    """The entry for the public registry."""
    about = (
        "An entry for the public registry of differential-privacy deployments, all three tiers. "
        "Complete what only the owner can state before you submit it."
    )
    lines = registry_entry(view)
    return Section(
        "Registry entry",
        [Paragraph(about), Code("registry.yaml", lines, "yaml")],
        "registry",
        is_folded=True,
    )
