"""A comparison: every mechanism at its best, one recommended, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterdp.channels.integers import LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.draw import check_exact
from clusterdp.planning import choose as planning
from clusterdp.planning.assumptions import REMEDY, UNIFORM
from clusterdp.planning.choose import MECHANISMS, Request
from clusterdp.planning.predictions import (
    Prediction,
    is_joint,
    weighted_variance,
)
from clusterdp.planning.split import MOST_SUMS_SHARE, USUAL_SEGMENT, quick_predictions
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.sums import NoisySums

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Scenario

# Predictions closer than this are treated as equal.
_AS_GOOD = 1.001
# The range of ε that is searched. Half of ε may go to sums, and the rows need enough of the rest.
LEAST_EPSILON, MOST_EPSILON = 2 * SMALLEST_ROW_EPSILON, LARGEST_ROW_EPSILON


class Option(NamedTuple):
    """A mechanism at its best parameters, with what to expect of it.

    Attributes:
        name: Its name, as in `MECHANISMS`.
        mechanism: With parameters and split.
        overall: What to expect of the overall effect, metric by metric.
        segment: The same of a segment; None for mechanisms that release no rows.
    """

    name: str
    mechanism: Mechanism
    overall: tuple[Prediction, ...]
    segment: tuple[Prediction, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """What was compared, and what is recommended.

    Attributes:
        request: What was asked for; with a budget.
        scenario: What is known.
        options: One for every mechanism that can serve, in the order of `MECHANISMS`.
        chosen: The name of the recommended one.
        reason: Why, in a sentence.
        shown_share: The share of the segment that predictions are shown for.
    """

    request: Request
    scenario: Scenario
    options: tuple[Option, ...]
    chosen: str
    reason: str
    shown_share: float

    @property
    def choice(self) -> Option:
        """The recommended option."""
        return next(option for option in self.options if option.name == self.chosen)

    @property
    def epsilon(self) -> float:
        """The budget."""
        return self.request.epsilon or 0.0

    @property
    def segment_share(self) -> float:
        """What it was planned for; 1 for the overall effect."""
        return self.request.segment_share


def compare(request: Request, scenario: Scenario) -> Comparison:
    """Compare every mechanism at the budget, each at its own best, and recommend one."""
    if request.epsilon is None:
        raise ParameterError("give epsilon, the budget to plan for, or mde, the effect to find")
    shown = request.segment_share if request.segment_share < 1 else USUAL_SEGMENT
    options = [
        _option(name, made, scenario, shown) for name, made in _serving(request, scenario).items()
    ]
    best = _best(options, scenario, overall=request.segment_share == 1)
    return Comparison(
        request=request,
        scenario=scenario,
        options=tuple(options),
        chosen=best.name,
        reason=explain(best.mechanism, scenario, request.segment_share),
        shown_share=shown,
    )


def _option(name: str, made: Mechanism, scenario: Scenario, segment_share: float) -> Option:
    segment = quick_predictions(made, scenario, segment_share) if made.releases_rows else None
    return Option(name, made, quick_predictions(made, scenario), segment)


def _serving(request: Request, scenario: Scenario) -> dict[str, Mechanism]:
    """Every mechanism at its best, by name, or the one that was asked for.

    Mechanisms that cannot publish several metrics are left out, unless one was asked for by name.
    """
    layout, space, _ = scenario
    if request.mechanism:
        made = at_its_best(request.mechanism, request, scenario)
        check_exact(layout, space, made)
        return {request.mechanism: made}
    serving = {}
    for name in MECHANISMS:
        made = at_its_best(name, request, scenario)
        if not is_joint(space) or _is_servable(made, scenario):
            serving[name] = made
    return serving


def _is_servable(mechanism: Mechanism, scenario: Scenario) -> bool:
    """Whether a mechanism can publish what is known of a scenario."""
    try:
        check_exact(scenario.layout, scenario.space, mechanism)
    except ParameterError:
        return False
    return True


def _best(options: list[Option], scenario: Scenario, *, overall: bool) -> Option:
    """The best that releases rows, if any does; earlier ones where several are as good."""
    with_rows = [option for option in options if option.segment is not None] or options

    def variance(option: Option) -> float:
        wanted = option.overall if overall else option.segment or option.overall
        return weighted_variance(wanted, scenario)

    least = min(variance(option) for option in with_rows)
    return next(option for option in with_rows if variance(option) <= _AS_GOOD**2 * least)


def smallest_epsilon(request: Request, effect: float, scenario: Scenario, metric: int = 0) -> float:
    """The smallest ε at which the best mechanism can see an effect of this size, to 1%.

    Args:
        request: What was asked for, without a budget.
        effect: The effect to find.
        scenario: What is known.
        metric: Which metric the effect is on.

    Raises:
        ParameterError: If no ε can.
    """
    if not (math.isfinite(effect) and effect > 0):
        raise ParameterError(f"mde must be a number above 0, got {effect}")

    def sees(epsilon: float) -> Prediction:
        made = planning.choose(replace(request, epsilon=epsilon), scenario)
        return quick_predictions(made, scenario, request.segment_share)[metric]

    at_most = sees(MOST_EPSILON)
    if at_most.detectable_effect > effect:
        remedy = "plan for a larger effect"
        if not scenario.reference.is_declared:
            remedy = f"{UNIFORM}; {REMEDY}"
        raise ParameterError(
            f"no epsilon can detect an effect of mde={effect:g} (--mde): even without privacy the "
            f"smallest is {at_most.detectable_without_privacy:.4g}; {remedy}"
        )
    low, high = LEAST_EPSILON, MOST_EPSILON
    if sees(low).detectable_effect <= effect:
        return low
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        if sees(middle).detectable_effect <= effect:
            high = middle
        else:
            low = middle
    return math.ceil(high * 1000) / 1000


def explain(mechanism: Mechanism, scenario: Scenario, share: float) -> str:
    """Why this mechanism with this split, in a sentence."""
    if not mechanism.releases_rows:
        return "it is the only one compared; it releases aggregates alone, so there are no segments"
    parts, counts, sums = [], mechanism.find(NoisyCounts), mechanism.find(NoisySums)
    if scenario.space.n_categories == 2:
        parts.append("binary outcome: clusters cannot reduce privacy noise here")
    elif counts is not None:
        cost = 2 / counts.noise_scale
        pays = "clusters differ enough for" if scenario.reference.differs else "cells are better by"
        parts.append(f"{pays} noisy counts of {cost:.2g} of epsilon")
    elif scenario.reference.is_declared:
        parts.append("the channel is designed for the reference, which costs nothing")
    else:
        parts.append("nothing is known of outcomes, so the channel is designed for all alike")
    budget = mechanism.guarantee(scenario.space).epsilon
    wanted = "the overall effect" if share == 1 else f"segments of {share:.0%}"
    if sums is None:
        what = "the whole budget" if counts is None else "all else"
        parts.append(f"{what} goes to the rows, which is best for {wanted}")
    else:
        part = sums.epsilon / budget
        most = ", the most that keeps rows useful," if part > MOST_SUMS_SHARE - 0.005 else ""
        parts.append(
            f"{part:.0%} of the budget{most} goes to cell sums, which is best for {wanted}"
        )
    return "; ".join(parts)


def to_options(comparison: Comparison) -> dict[str, Any]:
    """The options of a release that make exactly the recommended mechanism."""
    name, mechanism, *_ = comparison.choice
    epsilon, delta = comparison.epsilon, comparison.request.delta
    options: dict[str, Any] = {"mechanism": name, "epsilon": epsilon}
    if delta:
        options["delta"] = delta
    counts, sums = mechanism.find(NoisyCounts), mechanism.find(NoisySums)
    if counts is not None and name != "noisy-histogram":
        options["noise_scale"] = counts.noise_scale
    if mechanism.rows is not None:
        options["sums_share"] = 0.0 if sums is None else sums.epsilon / epsilon
        options |= mechanism.rows.options()
    return options


def at_its_best(name: str, request: Request, scenario: Scenario) -> Mechanism:
    """A mechanism with what was given of the budget, and its own parameters left to be chosen."""
    if request.mechanism == name:
        return planning.choose(request, scenario)
    at = Request(
        mechanism=name,
        epsilon=request.epsilon,
        delta=0.0 if name.startswith("noisy-") else request.delta,
        segment_share=request.segment_share,
    )
    return planning.choose(at, scenario)
