"""The recommended mechanism at other budgets: what could be detected, and where ε would go."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, NamedTuple

from clusterdp.errors import ParameterError
from clusterdp.planning.compare import LEAST_EPSILON, MOST_EPSILON, at_budget
from clusterdp.planning.prediction import of_purpose
from clusterdp.spec.purpose import parse_purpose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.planning.compare import Comparison, Option
    from clusterdp.precision.prediction import Precision, Prediction
    from clusterdp.spec.purpose import Purpose

# Budgets are such numbers times a power of ten, from an eighth of the planned one to four times it.
_DIGITS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
_BELOW, _ABOVE = 8, 4


class Budget(NamedTuple):
    """What a plan would be at some ε.

    Attributes:
        epsilon: ε of the whole release.
        options: The recommended mechanism of each question at it.
    """

    epsilon: float
    options: tuple[Option, ...]


def round_budgets(epsilon: float) -> list[float]:
    """Budgets around the planned one that people would choose; it is one of them."""
    low, high = epsilon / _BELOW, epsilon * _ABOVE
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    # By way of text, which gives the number that is written so.
    every = {float(f"{digit}e{power}") for power in powers for digit in _DIGITS}
    return sorted({epsilon, *(one for one in every if low <= one <= high)})


def other_budgets(
    comparisons: Sequence[Comparison],
    epsilon: float,
    on_done: Callable[[int], None],
    *,
    fixed: float = 0.0,
) -> tuple[Budget, ...]:
    """The plan at other budgets, in their order, with the planned one as it is.

    Questions, grids and looks stay as they were planned; what is left open is chosen anew. Budgets
    at which something that was asked for cannot be had are left out.

    Args:
        comparisons: The plan of each question.
        epsilon: The budget of the release.
        on_done: Called with 1 after each budget.
        fixed: What private clusters take of every budget.
    """
    found = []
    for one in round_budgets(epsilon):
        factor = (one - fixed) / (epsilon - fixed)
        scaled = [compared.epsilon * factor for compared in comparisons]
        if one == epsilon:
            found.append(Budget(one, tuple(compared.choice for compared in comparisons)))
        elif min(scaled) >= LEAST_EPSILON and max(scaled) <= MOST_EPSILON:
            with contextlib.suppress(ParameterError):
                found.append(Budget(one, at_budget(comparisons, scaled)))
        on_done(1)
    return tuple(found)


def targets(comparison: Comparison) -> tuple[Purpose, ...]:
    """What a plan is shown for: everyone, breakdowns, a segment; everyone alone without rows."""
    layout = comparison.scenario.layout
    if not comparison.choice.mechanism.releases_rows:
        return parse_purpose("overall")
    overall, *breakdowns, segment = parse_purpose(None, layout)
    return (overall, *breakdowns, segment._replace(share=comparison.shown_share))


def least_certain(precision: Precision, target: Purpose, layout: Layout) -> Prediction:
    """What to expect of a target: of the groups of a breakdown, the least certain."""
    found = (one for _, one in of_purpose(precision, target, layout))
    return max(found, key=lambda one: one.std_error)
