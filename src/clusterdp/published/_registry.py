"""The entry of a release for the public registry of differential-privacy deployments, as YAML.

Keys are those of the registry's entries of September 2026 (registry.opendp.org). What the folder
does not show is a comment or a text that says so: an entry is a draft until its owner completes it.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import TYPE_CHECKING

from clusterdp.document.text import in_plain_text
from clusterdp.published.contents import question_texts
from clusterdp.published.document import other_releases
from clusterdp.published.manifest import title_of, what_is_public
from clusterdp.published.overview import mechanism_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp.published.contents import FolderView

    # Keys with numbers, texts, lists, or keys of their own; a None stands for a comment.
    Entry = Mapping[str, "Entry | Sequence[Entry] | Sequence[str] | str | float | None"]

OWNER_ONLY = "Only the owner can answer this."
_WIDTH = 96


def registry_entry(view: FolderView) -> str:
    """The entry as YAML."""
    manifest, about = view.manifest, view.manifest.provenance
    stated = manifest.terms.guarantee.statement(about.unit)
    measured = [text for question in manifest.questions for text in question_texts(question)]
    mechanisms = " ".join(f"{name}: {text}." for name, text in mechanism_facts(manifest))
    pilot = "A pilot histogram, which is part of ε, set ranges and grids of numbers. "
    many = bool(about.continues)
    basic: Entry = {
        "name": title_of(manifest),
        "data_curators": [{"data_curator_name": OWNER_ONLY, "data_curator_type": None}],
        "intended_use": (
            f"Average effects of a randomized experiment on {view.outcomes}, overall and in "
            "segments that readers choose."
        ),
        "data_product_type": "Dataset" if view.has_rows else "Summary statistics",
        "data_product_region": OWNER_ONLY,
        "description": about.description
        or f"{manifest.n_units:,} {about.units} of a randomized experiment. {' '.join(measured)}",
        "publication_date": str(about.released_on) if about.released_on else OWNER_ONLY,
        "data_product_sector": None,
    }
    entry: Entry = {
        "url_slug": None,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": basic,
            "dp_variant": {
                "variant_name": "Approximate DP" if stated.delta else "Pure DP",
                "data_domain": (
                    f"Tables of the {about.units} of the experiment whose outcomes are allowed "
                    f"values: {' '.join(measured)} Ids, arms and other public columns are fixed."
                ),
                "unprotected_quantities": f"{stated.limits} {what_is_public(manifest)}",
            },
            "privacy_loss": {
                "privacy_unit": f"One {about.unit}'s {stated.protected}",
                "privacy_unit_details": (
                    "Label differential privacy, bounded: two tables are adjacent if they have "
                    f"the same {about.units} and public columns, and differ in the "
                    f"{stated.protected} of one {about.unit}, all of them."
                ),
                "privacy_parameters": {
                    "epsilon": stated.epsilon,
                    **({"delta": stated.delta} if stated.delta else {}),
                },
                "privacy_parameters_details": f"{stated.formal} {stated.plain}",
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": (
                    "The owner holds true outcomes and runs the mechanism. Only the folder is "
                    "published."
                ),
                "actors": (
                    f"The owner, who is trusted with true outcomes. Analysts and all other "
                    f"readers of the folder, who are not trusted. {OWNER_ONLY} Who else can read "
                    "the table, the ledger and its key?"
                ),
                "release_type": "Many releases" if many else "One release",
                "release_type_details": other_releases(manifest),
                "data_source_type": "Dynamic" if many else "Static",
                "access_type": "Non-interactive",
                "access_type_details": (
                    "Readers get files. A later question costs a budget of its own."
                ),
            },
            "accounting": {
                "post_processing": (
                    "Debiased columns, estimates and pages are computed from randomized "
                    "responses, noisy statistics and public columns."
                ),
                "composition": (
                    "Sequential composition of rows, statistics and a pilot histogram about one "
                    f"{about.unit}. Where questions were divided among {about.units} by a public "
                    "hash of the id, the largest loss of a question counts."
                ),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": pilot * manifest.terms.has_pilot
                + f"{OWNER_ONLY} Were outcomes looked at before they were declared?",
                "mechanisms": (
                    f"{mechanisms} By design of {manifest.software}: discrete noise, sampled "
                    "exactly (OpenDP); responses by integer comparisons with AES-256. ε is "
                    "computed from integers and rounded up."
                ),
                "justification": about.reason or OWNER_ONLY,
            },
            "administrative": {
                "sources": about.contact or OWNER_ONLY,
                "registry_authors": [about.approved_by or OWNER_ONLY],
            },
        },
    }
    return "\n".join(_lines(entry)) + "\n"


def _lines(entry: Entry, indent: str = "") -> list[str]:
    """An entry as YAML; long texts are blocks, others are quoted as JSON quotes them."""
    lines = []
    for key, value in entry.items():
        if value is None:
            lines.append(f"{indent}# {key}: {OWNER_ONLY}")
        elif isinstance(value, dict):
            lines += [f"{indent}{key}:", *_lines(value, f"{indent}  ")]
        elif isinstance(value, list):
            lines.append(f"{indent}{key}:")
            for one in value:
                inner = [_quoted(one)] if isinstance(one, str) else _lines(one)
                lines += [f"{indent}  - {inner[0]}", *(f"{indent}    {line}" for line in inner[1:])]
        elif isinstance(value, str) and len(value) > _WIDTH - len(indent) - len(key):
            text = textwrap.wrap(in_plain_text(value), _WIDTH - len(indent))
            lines += [f"{indent}{key}: >-", *(f"{indent}  {line}" for line in text)]
        else:
            # A number needs its point: `1e-05` is a text to readers of YAML 1.1.
            number = re.sub(r"^(\d+)e", r"\1.0e", repr(value))
            lines.append(f"{indent}{key}: {_quoted(value) if isinstance(value, str) else number}")
    return lines


def _quoted(text: str) -> str:
    return json.dumps(in_plain_text(text), ensure_ascii=False)
