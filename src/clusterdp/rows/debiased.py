"""Published columns of debiased outcomes, from what responses count as in each metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray
    from clusterdp.experiment.declared import DeclaredOutcomes


def debiased_columns(
    decode: Callable[[int], FloatArray], declared: DeclaredOutcomes
) -> list[FloatArray]:
    """What responses count as in each published column, in the order of `Columns.debiased`.

    An outcome that may be missing is measured as R·(y − middle) and R. Its columns are R·y, which
    is the first plus middle·R, and R.

    Args:
        decode: What responses count as in a metric, by its place.
        declared: The declared outcomes.
    """
    n_outcomes = len(declared.outcomes)
    observed = {name: decode(n_outcomes + place) for place, name in enumerate(declared.missing)}
    values = [
        decode(place) + outcome.middle * observed[outcome.name]
        if outcome.may_be_missing
        else decode(place)
        for place, outcome in enumerate(declared.outcomes)
    ]
    return [*values, *observed.values()]
