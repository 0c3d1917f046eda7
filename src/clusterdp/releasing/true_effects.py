"""Effects from true outcomes, for the owner's eyes: to compare a release with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clusterdp.estimation import moments
from clusterdp.estimation.arm_means import true_effects
from clusterdp.estimation.estimate import layout_notes, overall_effects
from clusterdp.estimation.results import Estimate
from clusterdp.estimation.sample_ratio import sample_ratio_notes
from clusterdp.experiment.chosen_grids import choose_categories
from clusterdp.experiment.declared import declare
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.counting import Asked
from clusterdp.rows.encoding import Columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clusterdp.estimation.moments import Estimator
    from clusterdp.experiment.declared import Spaces


def estimate_without_privacy(  # noqa: PLR0913 - the parts of a table, all by name
    frame: Any,
    *,
    outcomes: Spaces | Iterable[str],
    unit: str,
    arm: str,
    cluster: str,
    implies: Iterable[str] = (),
    metric: Iterable[str] = (),
    control: Any = None,
    estimator: Estimator = "stratified",
    clip: bool = False,
) -> Estimate:
    """Effects from the true outcomes, for the owner's eyes: this result is not private."""
    declared = declare(outcomes, implications=implies, metrics=metric)
    space, _ = choose_categories(declared, {})
    columns = Columns(unit=unit, arm=arm, cluster=cluster, outcomes=declared.names)
    prepared = prepare(frame, columns=columns, spaces=(space,), control=control, clip=clip)
    layout = prepared.layout
    found = prepared.table.count(layout, prepared.encoder, asked=[Asked(sums=True)])
    effects = []
    for place, measured in enumerate(declared.metrics):
        true = moments.total_moments(found.totals[0], layout, space, place)
        arrays = true_effects(true, layout, estimator)
        effects += overall_effects(arrays, layout, str(measured))
    return Estimate(
        effects=tuple(effects),
        treatment=arm,
        estimator=estimator,
        mechanism="true outcomes (not private)",
        guarantee=None,
        notes=(*layout_notes(layout, estimator), *sample_ratio_notes(layout)),
    )
