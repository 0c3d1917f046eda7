"""What a manifest states that no check of its folder can confirm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.mechanisms.catalogue import usual_name
from clusterdp.published.folder import unit_files
from clusterdp.published.manifest import software_name

if TYPE_CHECKING:
    from clusterdp.published.manifest import Manifest


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
