"""A comparison: every mechanism at its best, one recommended, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp.errors import ParameterError
from clusterdp.mechanisms.parts import LARGEST_ROW_EPSILON, SMALLEST_ROW_EPSILON, NoisyCounts
from clusterdp.planning import choose as planning
from clusterdp.planning.choose import MECHANISMS, Prediction, Request
from clusterdp.planning.split import MOST_SUMS_SHARE, USUAL_SEGMENT

if TYPE_CHECKING:
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning.assumptions import Reference

# Predictions closer than this are treated as equal.
_AS_GOOD = 1.001
# A plan may give half of it to sums.
_LEAST_EPSILON, _MOST_EPSILON = 2 * SMALLEST_ROW_EPSILON, LARGEST_ROW_EPSILON


class Option(NamedTuple):
    """A mechanism at its best parameters, with what to expect of it.

    Attributes:
        name: Its name, as in `MECHANISMS`.
        mechanism: With parameters and split.
        overall: The standard error of the overall effect.
        segment: That of a segment; None for mechanisms that release no rows.
    """

    name: str
    mechanism: Mechanism
    overall: Prediction
    segment: Prediction | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """What was compared, and what is recommended.

    Attributes:
        request: What was asked for; with a budget.
        layout: What is public.
        reference: What outcomes are thought to be like.
        options: One for every mechanism, in the order of `MECHANISMS`.
        chosen: The name of the recommended one.
        reason: Why, in a sentence.
        shown_share: The share of the segment that predictions are shown for.
    """

    request: Request
    layout: Layout
    reference: Reference
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


def compare(request: Request, layout: Layout, reference: Reference) -> Comparison:
    """Compare every mechanism at the budget, each at its own best, and recommend one."""
    if request.epsilon is None:
        raise ParameterError("give epsilon, the budget to plan for, or mde, the effect to find")
    shown = request.segment_share if request.segment_share < 1 else USUAL_SEGMENT
    names = [request.mechanism] if request.mechanism else list(MECHANISMS)
    options = []
    for name in names:
        made = _at_its_best(name, request, layout, reference)
        overall = planning.predict(made, layout, reference)
        segment = None
        if made.releases_rows:
            segment = planning.predict(made, layout, reference, shown)
        options.append(Option(name, made, overall, segment))
    best = _best(options, overall=request.segment_share == 1)
    return Comparison(
        request=request,
        layout=layout,
        reference=reference,
        options=tuple(options),
        chosen=best.name,
        reason=explain(best.mechanism, layout, reference, request.segment_share),
        shown_share=shown,
    )


def _best(options: list[Option], *, overall: bool) -> Option:
    """The first that is as good as the best; one that releases rows, if any does."""
    with_rows = [option for option in options if option.segment is not None] or options

    def error(option: Option) -> float:
        segment = option.segment or option.overall
        return option.overall.std_error if overall else segment.std_error

    least = min(error(option) for option in with_rows)
    return next(option for option in with_rows if error(option) <= _AS_GOOD * least)


def smallest_epsilon(
    request: Request, effect: float, layout: Layout, reference: Reference
) -> float:
    """The smallest ε at which the best mechanism can see an effect of this size, to 1%.

    Raises:
        ParameterError: If no ε can.
    """
    if not (math.isfinite(effect) and effect > 0):
        raise ParameterError(f"mde must be a number above 0, got {effect}")

    def sees(epsilon: float) -> Prediction:
        made = planning.choose(replace(request, epsilon=epsilon), layout, reference)
        return planning.predict(made, layout, reference, request.segment_share)

    at_most = sees(_MOST_EPSILON)
    if at_most.detectable_effect > effect:
        raise ParameterError(
            f"no epsilon can see an effect of {effect:g}: even without privacy the smallest is "
            f"{at_most.detectable_without_privacy:.4g}"
        )
    low, high = _LEAST_EPSILON, _MOST_EPSILON
    if sees(low).detectable_effect <= effect:
        return low
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        if sees(middle).detectable_effect <= effect:
            high = middle
        else:
            low = middle
    return math.ceil(high * 1000) / 1000


class Curve(NamedTuple):
    """Standard errors of a mechanism at its best, against ε."""

    name: str
    epsilons: tuple[float, ...]
    std_errors: tuple[float, ...]


def trade_off(comparison: Comparison) -> list[Curve]:
    """What each mechanism could do at other budgets, for what is planned for."""
    request, layout = comparison.request, comparison.layout
    reference = comparison.reference
    centre = request.epsilon or 1.0
    around = np.clip(centre * np.geomspace(1 / 8, 4, 9), _LEAST_EPSILON, _MOST_EPSILON)
    epsilons = tuple(float(value) for value in np.unique(around))
    curves = []
    for name in MECHANISMS:
        made = [
            _at_its_best(name, replace(request, epsilon=epsilon), layout, reference)
            for epsilon in epsilons
        ]
        if request.segment_share < 1 and not made[0].releases_rows:
            continue
        errors = [
            planning.predict(one, layout, reference, request.segment_share).std_error
            for one in made
        ]
        curves.append(Curve(name, epsilons, tuple(errors)))
    return curves


def explain(mechanism: Mechanism, layout: Layout, reference: Reference, share: float) -> str:
    """Why this mechanism with this split, in a sentence."""
    if not mechanism.releases_rows:
        return "it is the only one compared; it releases aggregates alone, so there are no segments"
    parts = []
    if layout.space.n_outcomes == 2:
        parts.append("binary outcome: clusters cannot reduce privacy noise here")
    elif isinstance(mechanism.summary, NoisyCounts):
        cost = 2 / mechanism.summary.noise_scale
        parts.append(f"clusters differ enough for noisy counts of {cost:.2g} of epsilon to pay")
    elif reference.is_declared:
        parts.append("the channel is designed for the reference, which costs nothing")
    else:
        parts.append("nothing is known of outcomes, so the channel is designed for all alike")
    budget = mechanism.guarantee(layout.space).epsilon
    wanted = "the overall effect" if share == 1 else f"segments of {share:.0%}"
    if mechanism.sums is None:
        what = "all else" if isinstance(mechanism.summary, NoisyCounts) else "the whole budget"
        parts.append(f"{what} goes to the rows, which is best for {wanted}")
    else:
        part = mechanism.sums.epsilon / budget
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
    if isinstance(mechanism.summary, NoisyCounts) and name != "noisy-histogram":
        options["noise_scale"] = mechanism.summary.noise_scale
    if mechanism.prior_floor is not None:
        options["prior_floor"] = mechanism.prior_floor
    if mechanism.releases_rows:
        options["sums_share"] = 0.0
    if mechanism.sums is not None:
        options["sums_share"] = mechanism.sums.epsilon / epsilon
    if mechanism.public_prior is not None:
        options["prior"] = list(mechanism.public_prior)
    return options


def _at_its_best(name: str, request: Request, layout: Layout, reference: Reference) -> Mechanism:
    """A mechanism with what was given of the budget, and its own parameters left to be chosen."""
    if request.mechanism == name:
        return planning.choose(request, layout, reference)
    at = Request(
        mechanism=name,
        epsilon=request.epsilon,
        delta=0.0 if name.startswith("noisy-") else request.delta,
        segment_share=request.segment_share,
    )
    return planning.choose(at, layout, reference)
