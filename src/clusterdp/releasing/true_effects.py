"""Effects from true outcomes, for the owner's eyes: to compare a release with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp.estimation.effects.findings import VARYING, Origin, call_text, with_families
from clusterdp.estimation.effects.notes import Note, Weight, arms_check, sorted_notes
from clusterdp.estimation.means.arms import total_moments, true_effects
from clusterdp.estimation.means.functions import CategoryFunction
from clusterdp.estimation.means.responses import CellMoments
from clusterdp.estimation.means.weights import weigh
from clusterdp.estimation.metrics.observed import missing_notes
from clusterdp.estimation.metrics.sample_ratio import layout_notes, sample_ratio_notes
from clusterdp.estimation.report.results import Estimate
from clusterdp.estimation.without_rows import overall_effects
from clusterdp.outcomes.baseline import choose_categories
from clusterdp.outcomes.declaration import declare
from clusterdp.releasing.prepare import prepare
from clusterdp.rows.tally import CountRequest
from clusterdp.spec.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clusterdp.cells.layout import Layout
    from clusterdp.estimation.effects.effect import Estimator
    from clusterdp.outcomes.declaration import Spaces


def estimate_without_privacy(  # noqa: PLR0913 - the parts of a table, all by name
    frame: Any,
    *,
    outcomes: Spaces | Iterable[str],
    unit: str,
    arm: str,
    cluster: str,
    constraint: Iterable[str] = (),
    metric: Iterable[str] = (),
    missing: Iterable[str] = (),
    control: Any = None,
    estimator: Estimator = "stratified",
    clip: bool = False,
) -> Estimate:
    """Effects from true outcomes, for the owner only: this result is not private."""
    given = dict(locals())
    declared = declare(outcomes, constraints=constraint, metrics=metric, missing=missing)
    space, _ = choose_categories(declared, {})
    columns = Columns(
        unit=unit, arm=arm, cluster=cluster, outcomes=declared.names, missing=declared.missing
    )
    prepared = prepare(frame, columns=columns, spaces=(space,), control=control, clip=clip)
    layout = prepared.layout
    (totals,) = prepared.count([CountRequest(sums=True)]).counted.totals
    effects = []
    every = [total_moments(totals, layout, space, place) for place in range(len(declared.metrics))]
    of_observed = space.of_observed()
    for place, measured in enumerate(declared.metrics):
        true = every[place]
        if place in of_observed:
            observed, origin = of_observed[place]
            true = _of_those_observed(true, every[observed], origin, layout, estimator)
        arrays = true_effects(true, layout, estimator)
        effects += overall_effects(arrays, layout, str(measured))
    functions = [
        CategoryFunction.declared(str(measured), space, place)
        for place, measured in enumerate(declared.metrics)
    ]
    shares = [one.name for one in functions if one.is_share(space)]
    ratio_notes = sample_ratio_notes(layout)
    remarks = [*layout_notes(layout, estimator), *ratio_notes]
    remarks += [Note(text, Weight.SCOPE) for text in missing_notes(declared, declared.missing)]
    notes = sorted_notes(remarks)
    return Estimate(
        effects=with_families(effects, VARYING),
        treatment=arm,
        estimator=estimator,
        mechanism="true outcomes (not private)",
        guarantee=None,
        origin=Origin.from_layout(
            frame, layout, cluster, shares, call_text(estimate_without_privacy, given)
        ),
        family=VARYING,
        warnings=notes[Weight.WARNING],
        notes=notes[Weight.SCOPE],
        method=notes[Weight.METHOD],
        checks=(arms_check(layout, ratio_notes),),
    )


def _of_those_observed(
    above: CellMoments, below: CellMoments, origin: float, layout: Layout, estimator: Estimator
) -> CellMoments:
    """Moments whose means are N/D of every arm, by linearization: θ + (N − θD)/D, θ the ratio.

    N is 0 where R, which is 0 or 1, is: so N·R = N, and their covariance follows from their means.
    """
    shares = weigh(layout.sizes, layout, list(range(len(layout.arms))), estimator).shares
    share = (shares * below.means).sum(axis=0)
    ratio = (shares * above.means).sum(axis=0) / share
    crossed = above.sizes * above.means * (1 - below.means)
    squares = above.squares - 2 * ratio * crossed + ratio**2 * below.squares
    return CellMoments(
        sizes=above.sizes,
        means=origin + ratio + (above.means - ratio * below.means) / share,
        squares=np.maximum(squares, 0.0) / share**2,
        noise=above.noise,
    )
