"""What cells mean for an estimate: remarks on their sizes, and what private clusters allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.estimation.notes import Note, Weight
from clusterdp.estimation.results import FEW_UNITS
from clusterdp.estimation.sample_ratio import (
    OWNER_DECLARES,
    PRIVATE_CLUSTERS_DIFFER,
    arm_notes,
    sample_ratio_notes,
)

if TYPE_CHECKING:
    from clusterdp.estimation.crossing import AskedExposure
    from clusterdp.estimation.label_weights import LabelWeights
    from clusterdp.estimation.metric_effects import Wanted
    from clusterdp.estimation.moments import Estimator
    from clusterdp.experiment.layout import Layout
    from clusterdp.published.release import Release


def arm_share_notes(layout: Layout, assigned_by: str | None) -> list[str]:
    """What an owner should know of the shares of arms before a release."""
    if assigned_by is not None:
        return []
    shares = None if layout.arm_shares is None else np.array(layout.arm_shares)
    return [note.text for note in arm_notes(layout, shares, OWNER_DECLARES)]


def estimate_share_notes(
    layout: Layout,
    shares: dict[Any, float] | None,
    labels: LabelWeights | None,
    assigned_by: str | None,
) -> list[Note]:
    """What the check of sample ratios finds, by declared probabilities of arms if there are any."""
    if assigned_by is not None:
        text = (
            f"arms were assigned by {assigned_by} as a whole, so how many units they have follows "
            "from the groups, and is not compared with planned shares"
        )
        return [Note(text)]
    if labels is None:
        return sample_ratio_notes(layout, shares)
    if labels.probs is None:
        return sample_ratio_notes(layout, shares, PRIVATE_CLUSTERS_DIFFER)
    return labels.ratio_notes(layout)


def check_weighted(
    labels: LabelWeights | None,
    release: Release,
    wanted: Wanted,
    dimensions: list[tuple[str, ...]],
    exposed: AskedExposure | None,
) -> None:
    """Raise a ParameterError if something is asked for that private clusters do not tell."""
    if labels is None:
        return
    by_group = any(labels.column in dimension for dimension in dimensions)
    if labels.probs is not None and wanted.estimator == "unstratified":
        raise ParameterError(
            "arms have different probabilities in clusters that are private, where plain means "
            "are biased; leave out estimator='unstratified' (--unstratified)"
        )
    weighted = by_group or labels.probs is not None
    others = (wanted.covariates, release.columns.assigned_by, exposed)
    if weighted and any(others):
        raise ParameterError(
            f"effects that are weighted by noisy labels of {labels.column!r} are neither adjusted, "
            "nor on those exposed, nor of arms that were assigned to groups; leave out adjust, "
            "exposure or by"
        )
    if by_group and wanted.differences:
        raise ParameterError(
            f"true clusters of {labels.column!r} are not known unit by unit, so their effects are "
            "not compared with each other; leave out differences (--differences)"
        )


def scope_notes(layout: Layout, estimator: Estimator, labels: LabelWeights | None) -> list[Note]:
    """Remarks on cells that arms are compared within; none where units count by their labels.

    What effects rest on where clusters are private is said in the notes of the release.
    """
    weighted = labels is not None and labels.probs is not None
    return [] if weighted else layout_notes(layout, estimator)


def layout_notes(layout: Layout, estimator: Estimator) -> list[Note]:
    """Remarks on estimates from cells of these sizes."""
    notes = []
    compared = layout.compared().sizes
    n_single = int((compared == 1).sum())
    if n_single and estimator == "stratified":
        text = (
            f"cells with one unit: {n_single}; their variance is taken from the rest of their arm, "
            "which errs on the wide side"
        )
        notes.append(Note(text))
    n_left_out = layout.n_units - int(compared.sum())
    if n_left_out and estimator == "stratified":
        n_clusters = len(layout.clusters) - len(compared)
        text = (
            f"{n_clusters:,} of {len(layout.clusters):,} clusters have no unit in some arm, so no "
            f"effect can be compared there; their {n_left_out:,} units are left out"
        )
        notes.append(Note(text, Weight.SCOPE))
    if layout.sizes.sum(axis=0).min() < FEW_UNITS:
        notes.append(Note(f"an arm has fewer than {FEW_UNITS} units: intervals are by Student's t"))
    shares = layout.sizes / layout.sizes.sum(axis=1, keepdims=True)
    if estimator == "unstratified" and np.ptp(shares, axis=0).max() > 1 / np.sqrt(layout.n_units):
        text = (
            "arms have different shares in different clusters: if assignment was by cluster, the "
            "unstratified estimate mixes the effect with differences between clusters"
        )
        notes.append(Note(text, Weight.WARNING))
    return notes
