"""Notes to the reader of a release: every word follows from what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.cells.assignment import pooling_notes
from clusterdp.mechanisms.draw import Question, disclosure_notes, look_notes
from clusterdp.spec.columns import aggregation_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.published.manifest import Manifest


def release_notes(
    manifest: Manifest, layout: Layout, channels: Sequence[Channel | None]
) -> tuple[str, ...]:
    """What a reader should know: of cells, of rows, of a look, and of rows that reveal much.

    Args:
        manifest: Of the release.
        layout: Its cells.
        channels: Those of the rows, question by question; None if there are no rows.
    """
    questions = zip(manifest.terms.mechanisms, manifest.terms.spaces, channels, strict=True)
    disclosed = [note for question in questions for note in disclosure_notes(*question)]
    return (
        *_label_notes(manifest),
        # Declared probabilities of arms weigh all labels, those that lack an arm too.
        *(() if manifest.assignment is not None else pooling_notes(layout, manifest.pooling)),
        *aggregation_notes(manifest.aggregates),
        *_look_notes(manifest),
        *dict.fromkeys(disclosed),
    )


def _label_notes(manifest: Manifest) -> tuple[str, ...]:
    """What effects rest on where clusters are private."""
    cluster = manifest.true_cluster
    if manifest.labels is None:
        return ()
    if manifest.assignment is None:
        note = (
            f"{cluster} is private, and arms are compared within its noisy labels: this is "
            "right if arms had the same probabilities in all true clusters, as nothing else "
            "was declared"
        )
    else:
        note = (
            f"{cluster} is private, and arms had different probabilities in true clusters, which "
            "were declared: plain means of arms are biased, also within noisy labels. Means need "
            "weights (stratified_weight of clusterdp calibrate), as clusterdp estimate has them"
        )
    return (note,)


def _look_notes(manifest: Manifest) -> tuple[str, ...]:
    settled = map(Question, manifest.terms.spaces, manifest.terms.mechanisms)
    notes = (
        note
        for before, after in zip(manifest.before_look, settled, strict=True)
        if before is not None
        for note in look_notes(before.outcomes.categories, before.prior, after)
    )
    return tuple(dict.fromkeys(notes))
