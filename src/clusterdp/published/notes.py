"""Notes to the reader of a release: every word follows from what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.cells.assignment import pooling_notes
from clusterdp.mechanisms.draw import disclosure_notes, pilot_notes
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.spec.columns import aggregation_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.published.manifest import Manifest


def release_notes(
    manifest: Manifest, layout: Layout, channels: Sequence[Channel | None]
) -> tuple[str, ...]:
    """What a reader should know: of cells, of rows, of a pilot, and of rows that reveal much.

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
        *_clip_notes(manifest),
        *_pilot_notes(manifest),
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


def _clip_notes(manifest: Manifest) -> tuple[str, ...]:
    """Which finite outcomes were clipped. Numbers always are, and labels never."""
    if not manifest.clip:
        return ()
    every = [one for space in manifest.terms.spaces for one in space.declared.outcomes]
    return tuple(
        f"{one.name} is clipped to {one.space.low:g}–{one.space.high:g}."
        for one in every
        if isinstance(one.space, OutcomeSpace) and one.space.names is None
    )


def _pilot_notes(manifest: Manifest) -> tuple[str, ...]:
    notes = (
        note
        for before, after in zip(manifest.before_pilot, manifest.terms.pairs, strict=True)
        if before is not None
        for note in pilot_notes(before.outcomes.categories, before.prior, after)
    )
    return tuple(dict.fromkeys(notes))
