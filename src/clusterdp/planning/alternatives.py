"""The same plan otherwise: at other budgets, at the smallest one, and with other clusters.

Questions, grids and pilots stay as they were planned; what is left open is chosen again.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterdp._progress import no_progress
from clusterdp.cells.layout import EVERYONE
from clusterdp.channels.base import LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON
from clusterdp.errors import ParameterError
from clusterdp.planning.choose import plan_mechanisms
from clusterdp.planning.compare import at_its_best, options_of
from clusterdp.planning.decide import REMEDY, UNIFORM
from clusterdp.precision.forecast import predict_quickly
from clusterdp.precision.visible import shown_metrics
from clusterdp.spec.clusters import PrivateClusters, PublicClusters
from clusterdp.spec.purpose import parse_purpose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp.cells.layout import Layout
    from clusterdp.planning.compare import MechanismComparison, MechanismOption
    from clusterdp.planning.decide import Draft
    from clusterdp.precision.expected import Scenario
    from clusterdp.precision.forecast import ExpectedVariance, Prediction
    from clusterdp.spec.purpose import Purpose
    from clusterdp.spec.request import BudgetRequest

    # The recommended mechanism of each question, by ε of the whole release.
    Budgets = dict[float, tuple[MechanismOption, ...]]

# The range of ε that is searched. Something must be left for sums next to the least rows.
LEAST_EPSILON, MOST_EPSILON = 2 * SMALLEST_ROW_EPSILON, LARGEST_ROW_EPSILON
# Budgets are such numbers times a power of ten, from an eighth of the planned one to four times it.
_DIGITS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
_BELOW, _ABOVE = 8, 4
_OURS = (
    "at the same ε, the SE of the overall effect on {} is {} with private clusters, {} with public "
    "ones"
)
_LEAVE_OUT = "Leave clusters out, unless you need effects in true clusters"


def round_budgets(epsilon: float) -> list[float]:
    """Budgets around the planned one that people would choose; it is one of them."""
    low, high = epsilon / _BELOW, epsilon * _ABOVE
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    # By way of text, which gives the number that is written so.
    every = {float(f"{digit}e{power}") for power in powers for digit in _DIGITS}
    return sorted({epsilon, *(one for one in every if low <= one <= high)})


def other_budgets(
    comparisons: Sequence[MechanismComparison],
    epsilon: float,
    on_done: Callable[[int], None],
    *,
    fixed: float = 0.0,
) -> Budgets:
    """The plan at other budgets, in their order, with the planned one as it is.

    Questions, grids and pilots stay as they were planned; what is left open is chosen again.
    Budgets at which something that was asked for cannot be had are left out.

    Args:
        comparisons: The plan of each question.
        epsilon: The budget of the release.
        on_done: Called with 1 after each budget.
        fixed: What private clusters take of every budget.
    """
    found: Budgets = {}
    for one in round_budgets(epsilon):
        factor = (one - fixed) / (epsilon - fixed)
        scaled = [compared.epsilon * factor for compared in comparisons]
        if one == epsilon:
            found[one] = tuple(compared.choice for compared in comparisons)
        elif min(scaled) >= LEAST_EPSILON and max(scaled) <= MOST_EPSILON:
            with contextlib.suppress(ParameterError):
                found[one] = at_budget(comparisons, scaled)
        on_done(1)
    return found


def targets(comparison: MechanismComparison) -> tuple[Purpose, ...]:
    """What a plan is shown for: everyone, breakdowns, a segment; everyone alone without rows."""
    layout = comparison.scenario.layout
    if not comparison.choice.mechanism.releases_rows:
        return parse_purpose("overall")
    overall, *breakdowns, segment = parse_purpose(None, layout)
    return (overall, *breakdowns, segment._replace(share=comparison.shown_share))


def at_budget(
    comparisons: Sequence[MechanismComparison], epsilons: Sequence[float]
) -> tuple[MechanismOption, ...]:
    """The recommended mechanisms at other ε, one for each question; their split is chosen again."""
    name, scenarios = comparisons[0].chosen, [one.scenario for one in comparisons]
    pairs = zip(comparisons, epsilons, strict=True)
    requests = [replace(one.request, epsilon=epsilon) for one, epsilon in pairs]
    return options_of(name, at_its_best(name, requests, scenarios), scenarios, predict_quickly)


def smallest_epsilon(
    requests: Sequence[BudgetRequest],
    effect: float,
    scenarios: Sequence[Scenario],
    target: tuple[int, int] = (0, 0),
    on_tried: Callable[[int], None] = no_progress,
) -> float:
    """The smallest ε of a question at which the best mechanism can see an effect of a size, to 1%.

    Args:
        requests: What is asked of each question, without a budget.
        effect: The effect to find.
        scenarios: What is known of each question.
        target: The question and the metric in it that the effect is on.
        on_tried: Called with 1 after each budget that was tried.

    Raises:
        ParameterError: If no ε can.
    """
    if not (math.isfinite(effect) and effect > 0):
        raise ParameterError(f"mde must be a number above 0, got {effect}")
    question, metric = target
    request, scenario = requests[question], scenarios[question]

    def sees(epsilon: float) -> Prediction:
        given = [replace(one, epsilon=epsilon) for one in requests]
        made = plan_mechanisms(given, scenarios).mechanisms[question]
        on_tried(1)
        return shown_prediction(predict_quickly(made, scenario)[metric], request, scenario)

    at_most = sees(MOST_EPSILON)
    if at_most.detectable_effect > effect:
        remedy = "Plan for a larger effect."
        if not scenario.baseline.is_declared:
            remedy = f"{UNIFORM} {REMEDY}"
        raise ParameterError(
            f"no epsilon can detect an effect of mde={effect:g} (--mde): even without privacy the "
            f"smallest is {at_most.detectable_without_privacy:.2g}. {remedy}"
        )
    low, high = LEAST_EPSILON, MOST_EPSILON
    if sees(low).detectable_effect <= effect:
        return low
    # Every ε is tried as it would be planned, in thousandths: splits of ε are on a grid, so that
    # rounding up afterwards could lose the effect again.
    while high / low > 1.01 and (middle := math.ceil(1000 * math.sqrt(low * high)) / 1000) < high:
        if sees(middle).detectable_effect <= effect:
            high = middle
        else:
            low = middle
    return high


def shown_prediction(
    precision: ExpectedVariance, request: BudgetRequest, scenario: Scenario
) -> Prediction:
    """What a request is about, in one number: its least certain effect.

    It is the overall effect where all purposes are served.
    """
    layout, asked = scenario.layout, request.optimize_for or "overall"
    found = (precision.least_certain(one, layout) for one in parse_purpose(asked, layout))
    return max(found, key=lambda one: one.std_error)


def cost_notes(draft: Draft, layout: Layout, planned: MechanismComparison) -> list[str]:
    """What private clusters cost; nothing is said of public ones.

    Args:
        draft: What was asked for.
        layout: The cells to be expected with given labels.
        planned: The comparison of the first question.
    """
    clusters = draft.request.clusters
    if not isinstance(clusters, PrivateClusters):
        return []
    epsilon = planned.epsilon + clusters.epsilon
    metric = shown_metrics(draft.questions[0].categories)[0]
    public = replace(draft, request=replace(draft.request, clusters=PublicClusters()))
    by_public = _overall_error(public, clusters.unanswered(layout), epsilon)
    if clusters.assignment is not None:
        # Only rows have weights that invert the response.
        budget = replace(
            draft.request.budget,
            mechanism=planned.chosen,
            totals_share=0.0,
            sums_share=0.0,
            breakdown_share=0.0,
        )
        rows = replace(draft, request=replace(draft.request, budget=budget))
        ours = clusters.inflation(layout) * _overall_error(rows, layout, epsilon)
        return [_OURS.format(metric.name, metric.change(ours), metric.change(by_public))]
    together = layout.sizes.sum(axis=0, keepdims=True)
    alone = replace(layout, clusters=(EVERYONE,), sizes=together)
    ours, without = planned.choice.overall[0].std_error, _overall_error(public, alone, epsilon)
    text = _OURS.format(metric.name, metric.change(ours), metric.change(by_public))
    text += f", and {metric.change(without)} without clusters"
    if ours >= without:
        text += f". {_LEAVE_OUT}"
    return [text]


def _overall_error(draft: Draft, layout: Layout, epsilon: float) -> float:
    """The standard error to expect of the first metric's overall effect."""
    scenarios = draft.scenarios(layout)
    made = plan_mechanisms(draft.budgets(epsilon), scenarios).mechanisms[0]
    return predict_quickly(made, scenarios[0])[0].overall.std_error
