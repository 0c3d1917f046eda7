"""Effects from true outcomes, for the owner's eyes: to compare a release with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.estimation import moments
from clusterdp.estimation.estimate import layout_notes, to_effects
from clusterdp.estimation.results import Estimate
from clusterdp.estimation.sample_ratio import sample_ratio_notes
from clusterdp.experiment.outcomes import OutcomeSpace
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.encoding import Columns

if TYPE_CHECKING:
    from clusterdp.estimation.moments import Estimator


def estimate_without_privacy(  # noqa: PLR0913 - the parts of a table, all by name
    frame: Any,
    *,
    outcomes: OutcomeSpace | str,
    unit: str,
    arm: str,
    cluster: str,
    outcome: str,
    control: Any = None,
    estimator: Estimator = "stratified",
    clip: bool = False,
) -> Estimate:
    """Effects from the true outcomes, for the owner's eyes: this result is not private."""
    space = OutcomeSpace.parse(outcomes)
    columns = Columns(unit=unit, arm=arm, cluster=cluster, outcome=outcome)
    prepared = prepare(frame, columns=columns, space=space, control=control, clip=clip)
    layout = prepared.layout
    counts = prepared.table.count(layout, prepared.encoder).counts
    arrays = moments.moment_effects(moments.true_moments(counts, space), layout, estimator)
    return Estimate(
        effects=tuple(to_effects(arrays, layout, layout.sizes.sum(axis=0))),
        outcome=outcome,
        treatment=arm,
        estimator=estimator,
        mechanism="true outcomes (not private)",
        guarantee=None,
        notes=(*layout_notes(layout, estimator), *sample_ratio_notes(layout)),
    )
