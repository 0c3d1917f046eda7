"""Notes to the reader of a release: every word follows from what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.experiment.aggregates import aggregation_notes
from clusterdp.experiment.pooling import pooling_notes
from clusterdp.mechanisms.disclosure import disclosure_notes
from clusterdp.mechanisms.settling import Settled, look_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.channels.catalogue import Channel
    from clusterdp.experiment.layout import Layout
    from clusterdp.published.manifest import Manifest


def release_notes(
    manifest: Manifest, layout: Layout, channels: Sequence[Channel | None]
) -> tuple[str, ...]:
    """What a reader should know: of cells, of rows, of a look, and of rows that reveal much.

    Args:
        manifest: Of the release.
        layout: Its cells.
        channels: Those of the rows, block by block; None if there are no rows.
    """
    blocks = zip(manifest.terms.mechanisms, manifest.terms.spaces, channels, strict=True)
    disclosed = [note for block in blocks for note in disclosure_notes(*block)]
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
    cluster = manifest.columns.cluster
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
    before = manifest.before_look
    if before is None:
        return ()
    after = Settled(manifest.terms.spaces[0], manifest.terms.mechanisms[0])
    return look_notes(before.outcomes.categories(), before.prior, after)
