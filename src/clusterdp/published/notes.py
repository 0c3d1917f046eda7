"""Notes to the reader of a release: every word follows from what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusterdp._text import range_in_words
from clusterdp.cells.assignment import pooling_notes
from clusterdp.mechanisms.draw import disclosure_notes, pilot_notes
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.spec.columns import aggregation_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.channels import Channel
    from clusterdp.published.manifest import Manifest


class ReleaseNote(NamedTuple):
    """A remark for readers of a release.

    Attributes:
        text: The remark.
        outcomes: The outcomes whose effects it is about; None if it is about all effects.
        is_of_effects: Whether it says what effects are on, or what rows reveal.
        clipped: The outcome that it says was clipped, and to which ends.
    """

    text: str
    outcomes: tuple[str, ...] | None = None
    is_of_effects: bool = True
    clipped: tuple[str, float, float] | None = None


def release_notes(
    manifest: Manifest, layout: Layout, channels: Sequence[Channel | None]
) -> tuple[ReleaseNote, ...]:
    """What a reader should know: of cells, of rows, of a pilot, and of rows that reveal much.

    Args:
        manifest: Of the release.
        layout: Its cells.
        channels: Those of the rows, question by question; None if there are no rows.
    """
    unit = manifest.provenance.unit
    # Declared probabilities of arms weigh all labels, those that lack an arm too.
    pooled = () if manifest.assignment is not None else pooling_notes(layout, manifest.pooling)
    of_all = (*_label_notes(manifest), *pooled, *aggregation_notes(manifest.aggregates, unit))
    questions = zip(manifest.terms.mechanisms, manifest.terms.spaces, channels, strict=True)
    disclosed = (note for each in questions for note in disclosure_notes(*each, unit=unit))
    found = (
        *map(ReleaseNote, of_all),
        *_clip_notes(manifest),
        *_pilot_notes(manifest),
        *(ReleaseNote(text, is_of_effects=False) for text in disclosed),
    )
    return tuple(dict.fromkeys(found))


def _label_notes(manifest: Manifest) -> tuple[str, ...]:
    """What effects rest on where clusters are private."""
    cluster = manifest.true_cluster
    if manifest.labels is None:
        return ()
    if manifest.assignment is None:
        note = (
            f"{cluster} is private, and arms are compared within noisy clusters. Effects are "
            "unbiased if arms had the same probabilities in all true clusters, as is assumed."
        )
    else:
        note = (
            f"{cluster} is private, and arms had different probabilities in true clusters, as "
            "declared. Plain means of arms are biased, also within noisy clusters. Use clusterdp "
            "estimate, or stratified_weight of clusterdp calibrate."
        )
    return (note,)


def _clip_notes(manifest: Manifest) -> tuple[ReleaseNote, ...]:
    """Which finite outcomes were clipped. Numbers always are, and labels never."""
    if not manifest.clip:
        return ()
    every = [one for space in manifest.terms.spaces for one in space.declared.outcomes]
    ends = [
        (one.name, float(one.space.low), float(one.space.high))
        for one in every
        if isinstance(one.space, OutcomeSpace) and one.space.names is None
    ]
    return tuple(ReleaseNote(clip_notes([one])[0], (one[0],), clipped=one) for one in ends)


def joined_texts(notes: Sequence[ReleaseNote]) -> list[str]:
    """The texts of notes, with one on all that was clipped."""
    clipped = [one.clipped for one in notes if one.clipped]
    return [*(one.text for one in notes if one.clipped is None), *clip_notes(clipped)]


def clip_notes(clipped: Sequence[tuple[str, float, float]]) -> list[str]:
    """One note on all outcomes that were clipped, with their ends."""
    if len(clipped) > 1:
        listed = ", ".join(f"{name} {range_in_words(low, high)}" for name, low, high in clipped)
        return [f"Values are clipped: {listed}."]
    return [f"{name} is clipped to {range_in_words(low, high)}." for name, low, high in clipped]


def _pilot_notes(manifest: Manifest) -> tuple[ReleaseNote, ...]:
    return tuple(
        ReleaseNote(text, is_of_effects=False)
        for before, after in zip(manifest.before_pilot, manifest.terms.pairs, strict=True)
        if before is not None
        for text in pilot_notes(before.outcomes.categories, before.prior, after)
    )
