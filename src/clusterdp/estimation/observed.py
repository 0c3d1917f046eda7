"""Effects on outcomes that may be missing: of those observed, and what attrition may do to them.

A metric of such an outcome is measured as R·f, R whether it was observed. Its mean among those
observed is the ratio E[R·f]/E[R] of each arm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterdp.estimation.attrition import attrition_bounds
from clusterdp.estimation.measured import CategoryFunction
from clusterdp.estimation.notes import Note, Weight
from clusterdp.estimation.ratio import RatioRows
from clusterdp.experiment.expressions import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clusterdp.estimation.metric_effects import Found, Wanted
    from clusterdp.estimation.results import Effect
    from clusterdp.estimation.segments import RowCounts
    from clusterdp.experiment.declared import DeclaredOutcomes
    from clusterdp.published.release import Release

# The level of the test that arms have the same share observed.
_LEVEL = 0.01


def of_those_observed(release: Release, rows: RowCounts, wanted: Wanted, place: int) -> Found:
    """Effects on a metric among those observed, with bounds for attrition of an outcome itself.

    Args:
        release: The release.
        rows: Its rows as counts.
        wanted: What to estimate.
        place: The place of a metric of an outcome that may be missing.
    """
    declared, name = release.space.declared, str(release.space.declared.metrics[place])
    observed = declared.observed_place(place)
    assert observed is not None  # noqa: S101 - by definition of the place
    above = CategoryFunction.declared(name, release.space, place)
    below = CategoryFunction.declared(str(declared.metrics[observed]), release.space, observed)
    is_outcome = place < len(declared.outcomes)
    if is_outcome:
        # R·y is R·(y − middle) and middle·R.
        above = above.minus(-declared.outcomes[place].middle, below)
    ratio = RatioRows.of(above, below, release, rows, wanted, name=name)
    found = ratio.estimate()
    if wanted.covariates or wanted.differences:
        text = f"{name}: a mean of those observed, neither adjusted nor compared between segments"
        found.notes.append(Note(text, Weight.SCOPE))
    if is_outcome:
        found.bounds.extend(attrition_bounds(ratio, release, rows, wanted, place))
    return found


def missing_notes(declared: DeclaredOutcomes) -> list[str]:
    """What effects on outcomes that may be missing are of."""
    return [f"{name}, of those observed" for name in declared.missing]


def attrition_notes(declared: DeclaredOutcomes, effects: Iterable[Effect]) -> list[Note]:
    """Warnings where the share observed differs between arms, overall.

    Args:
        declared: The declared outcomes.
        effects: All effects.
    """
    shares = {name + OBSERVED: name for name in declared.missing}
    return [
        Note(
            f"attrition: {one.of.metric} differs between {one.of.arm} and {one.of.control} (p = "
            f"{one.p_value:.2g}), so the effect on {shares[one.of.metric]} of those observed may "
            "be due to who is observed; its bounds allow for that",
            Weight.WARNING,
        )
        for one in effects
        if one.of.metric in shares and one.of.label == "overall" and one.p_value < _LEVEL
    ]
