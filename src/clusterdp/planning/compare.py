"""A comparison: every mechanism at its best, one recommended, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clusterdp._progress import no_progress
from clusterdp.cells.assignment import pool_small_clusters
from clusterdp.channels.optimal import OptimalBudget
from clusterdp.errors import ParameterError
from clusterdp.mechanisms.draw import check_exact
from clusterdp.planning.choose import MECHANISMS, MechanismChoice, plan_mechanisms
from clusterdp.precision.forecast import predict, predict_quickly, purpose_variances
from clusterdp.spec.fields import SUM_SHARES
from clusterdp.spec.purpose import USUAL_SEGMENT, parse_purpose
from clusterdp.spec.request import BudgetRequest
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.statistics.covariates import NoisyCovariates
from clusterdp.statistics.sums import totals_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clusterdp._arrays import CodeArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.planning._split import Losses, Split
    from clusterdp.planning.advice import PilotAdvice
    from clusterdp.precision.expected import Scenario
    from clusterdp.precision.forecast import ExpectedVariance, Prediction
    from clusterdp.spec.purpose import Purpose

    # A way to form clusters, in words, how many there are, and what to expect, metric by metric.
    ClusterAlternative = tuple[str, int, tuple[ExpectedVariance, ...]]


# Predictions closer than this are treated as equal.
_AS_GOOD = 1.001
# Where nothing is declared they are for uniform outcomes, for which alone counts gain nothing.
_AS_GOOD_BLINDLY = 1.05
# Clusters that expect fewer units in some arm are small.
SMALL = 50
# Of shares of ε in options.
_DIGITS = 12


class MechanismOption(NamedTuple):
    """A mechanism at its best parameters, with what to expect of it.

    Attributes:
        name: Its name, as in `MECHANISMS`.
        mechanism: With parameters and split.
        precisions: What to expect of effects, metric by metric.
        split: How ε is split between statistics and rows.
        losses: What it loses for each purpose against a plan for that alone.
    """

    name: str
    mechanism: Mechanism
    precisions: tuple[ExpectedVariance, ...]
    split: Split
    losses: Losses

    @property
    def overall(self) -> tuple[Prediction, ...]:
        """What to expect of the overall effect, metric by metric."""
        return tuple(one.overall for one in self.precisions)

    def segment(self, share: float) -> tuple[Prediction, ...] | None:
        """The same of a segment; None for mechanisms that release no rows."""
        if not self.mechanism.releases_rows:
            return None
        return tuple(one.segment(share) or one.overall for one in self.precisions)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MechanismComparison:
    """What was compared, and what is recommended.

    Attributes:
        request: What was asked for; with a budget.
        scenario: What is known.
        options: One for every mechanism that can serve, in the order of `MECHANISMS`.
        chosen: The name of the recommended one.
        reason: Why, in a sentence.
        shown_share: The share of the segment that predictions are shown for.
        clusterings: What plans for the same table with other clusters would give.
        advice: Why the recommended option has a pilot that was not asked for; None if it has none.
    """

    request: BudgetRequest
    scenario: Scenario
    options: tuple[MechanismOption, ...]
    chosen: str
    reason: str
    shown_share: float
    clusterings: tuple[ClusterAlternative, ...]
    advice: PilotAdvice | None = None

    @property
    def choice(self) -> MechanismOption:
        """The recommended option."""
        return next(option for option in self.options if option.name == self.chosen)

    @property
    def epsilon(self) -> float:
        """The budget."""
        return self.request.epsilon or 0.0


def compare(
    requests: Sequence[BudgetRequest],
    scenarios: Sequence[Scenario],
    on_done: Callable[[int], None] = no_progress,
) -> tuple[MechanismComparison, ...]:
    """Compare every mechanism at the budget, each at its own best, and recommend one.

    With several questions it is the one that was asked for, or `optimal`.

    Args:
        requests: What is asked of each question.
        scenarios: What is known of each question.
        on_done: Called with 1 after each of `n_steps`.
    """
    if requests[0].epsilon is None:
        raise ParameterError("give epsilon, the budget to plan for, or mde, the effect to find")
    serving = _serving(requests, scenarios, on_done)
    every_option = [options_of(name, made, scenarios) for name, made in serving.items()]
    options = list(zip(*every_option, strict=True))
    purposes = parse_purpose(requests[0].optimize_for, scenarios[0].layout)
    chosen = _best(options[0], scenarios[0], purposes).name
    best = [next(one for one in every if one.name == chosen) for every in options]
    comparable = [_comparable(*one) for one in zip(best, requests, strict=True)]
    clusterings = compare_clusters(comparable, scenarios, [one.precisions for one in best])
    on_done(1)
    return tuple(
        MechanismComparison(
            request=request,
            scenario=scenario,
            options=every,
            chosen=chosen,
            reason=_reason(own.mechanism, scenario, purposes),
            shown_share=next((one.share for one in purposes if one.share < 1), USUAL_SEGMENT),
            clusterings=others,
        )
        for request, scenario, every, own, others in zip(
            requests, scenarios, options, best, clusterings, strict=True
        )
    )


def options_of(
    name: str,
    made: MechanismChoice,
    scenarios: Sequence[Scenario],
    predicted: Callable[[Mechanism, Scenario], tuple[ExpectedVariance, ...]] = predict,
) -> tuple[MechanismOption, ...]:
    """A choice with what to expect of it, question by question."""
    return tuple(
        MechanismOption(name, mechanism, predicted(mechanism, scenario), made.split, made.losses)
        for mechanism, scenario in zip(made.mechanisms, scenarios, strict=True)
    )


def n_steps(requests: Sequence[BudgetRequest]) -> int:
    """How many steps a comparison takes."""
    return 1 + len(_names(requests))


def with_pilots(
    comparisons: Sequence[MechanismComparison],
    advice: Sequence[PilotAdvice | None],
    pilots: Sequence[float | None],
) -> tuple[MechanismComparison, ...]:
    """The same with pilots recommended next to the mechanisms.

    Args:
        comparisons: The plan of each question.
        advice: Why a pilot pays for each question; None if nothing says so.
        pilots: The share of ε for each question's pilot.
    """
    requests = [
        replace(_comparable(one.choice, one.request), pilot=pilot)
        for one, pilot in zip(comparisons, pilots, strict=True)
    ]
    scenarios = [one.scenario for one in comparisons]
    looking = options_of(comparisons[0].chosen, plan_mechanisms(requests, scenarios), scenarios)
    found = []
    for one, request, own, new in zip(comparisons, requests, advice, looking, strict=True):
        options = tuple(new if old.name == new.name else old for old in one.options)
        found.append(replace(one, request=request, options=options, advice=own))
    return tuple(found)


def _comparable(option: MechanismOption, request: BudgetRequest) -> BudgetRequest:
    """A request for the same mechanism with the same counts or prior; sums are free."""
    named, counts = _named(option.name, request), option.mechanism.find(NoisyCounts)
    if isinstance(option.mechanism.rows, OptimalBudget):
        share = round(option.split.counts, _DIGITS)
        return replace(named, counts_share=share, prior=option.mechanism.rows.prior)
    if counts is not None and option.mechanism.releases_rows:
        return replace(named, noise_scale=counts.noise_scale)
    return named


def _names(requests: Sequence[BudgetRequest]) -> tuple[str, ...]:
    """The mechanisms to compare."""
    if requests[0].mechanism:
        return (requests[0].mechanism,)
    return tuple(MECHANISMS) if len(requests) == 1 else ("optimal",)


def _serving(
    requests: Sequence[BudgetRequest], scenarios: Sequence[Scenario], on_done: Callable[[int], None]
) -> dict[str, MechanismChoice]:
    """Every mechanism at its best, by name, or the one that was asked for.

    Mechanisms that cannot publish what is declared are left out, unless one was asked for by name.
    """
    serving = {}
    for name in _names(requests):
        made = at_its_best(name, requests, scenarios)
        on_done(1)
        try:
            for mechanism, known in zip(made.mechanisms, scenarios, strict=True):
                check_exact(known.layout, known.space, mechanism)
        except ParameterError:
            if requests[0].mechanism or len(requests) > 1:
                raise
            continue
        serving[name] = made
    return serving


def _best(
    options: Sequence[MechanismOption], scenario: Scenario, purposes: tuple[Purpose, ...]
) -> MechanismOption:
    """The best that releases rows, if any does; earlier ones where several are as good.

    It is the one of least largest regret against the best of all options for each purpose.
    """
    with_rows = [option for option in options if option.mechanism.releases_rows] or options
    every = [purpose_variances(one.precisions, purposes, scenario) for one in with_rows]
    variances = np.max(every, axis=-1)
    regrets = (variances / variances.min(axis=0)).max(axis=1)
    as_good = _AS_GOOD if scenario.baseline.is_declared else _AS_GOOD_BLINDLY
    return with_rows[int(np.argmax(regrets <= regrets.min() * as_good**2))]


def _reason(mechanism: Mechanism, scenario: Scenario, purposes: tuple[Purpose, ...]) -> str:
    """Why this mechanism with this split, in a sentence."""
    if not mechanism.releases_rows:
        return "It was the only one compared. It publishes aggregates only, without segments."
    counts = mechanism.find(NoisyCounts)
    if scenario.space.n_categories == 2:
        why = "For a binary outcome, clusters cannot reduce the noise in rows."
    elif counts is not None:
        cost, of = 2 / counts.noise_scale, "cells" if counts.scope == "cluster" else "arms"
        why = f"Randomizers are optimized for noisy counts of {of}, which cost {cost:.2g} of ε."
    elif scenario.baseline.is_declared:
        why = "The randomizer is optimized for your baseline, at no privacy cost."
    else:
        why = "No baseline was given, so the randomizer treats all values as equally likely."
    words = [one.in_words(scenario.layout) for one in purposes]
    if len(words) == 1:
        return f"{why} ε is split for {words[0]}."
    *most, last = words
    return f"{why} ε is balanced between {', '.join(most)} and {last}."


# What ε is spent on, and what for.
_SPENT_ON = {
    "rows": "rows (any segment later)",
    "totals": "arm totals (overall effect)",
    "sums": "cluster totals (effects across clusters)",
    "counts": "noisy counts of outcomes",
    "contrasts": "differences between arms in each cluster",
    "pilot": "pilot histogram (finds the range)",
    "covariates": "covariates (overall effect)",
    "labels": "noisy clusters",
}


def spent_on(label: str) -> str:
    """What a part of ε is spent on, and what for."""
    kind, _, columns = label.partition(" by ")
    return f"totals by {columns} (its groups)" if columns else _SPENT_ON.get(kind, kind)


def budget(mechanism: Mechanism, scenario: Scenario) -> dict[str, float]:
    """Where ε goes: shares of the whole, by what they are spent on; breakdowns are always named."""
    spent = {one.label: float(one.loss()[0].loss) for one in mechanism.noisy}
    if mechanism.releases_rows:
        spent = {"rows": mechanism.row_epsilon(scenario.space), **spent}
        for one in scenario.layout.breakdowns:
            spent.setdefault(totals_label(one.columns), 0.0)
    whole = sum(spent.values())
    return {name: part / whole for name, part in spent.items()}


def mechanism_options(comparisons: Sequence[MechanismComparison]) -> dict[str, Any]:
    """The options of a release that make exactly the recommended mechanisms.

    The priors of several questions follow from the baseline.
    """
    first = comparisons[0]
    name, mechanism, _, split, _ = first.choice
    epsilon, delta = first.epsilon, first.request.delta
    options: dict[str, Any] = {"mechanism": name, "epsilon": epsilon}
    if delta:
        options["delta"] = delta
    pilots = [one.choice.mechanism.pilot for one in comparisons]
    if pilot := next((one for one in pilots if one is not None), None):
        options["pilot"] = round(pilot.epsilon / epsilon, _DIGITS)
    counts = mechanism.find(NoisyCounts)
    if name == "optimal":
        options["counts_share"] = round(split.counts, _DIGITS)
    elif counts is not None and name != "noisy-histogram":
        options["noise_scale"] = counts.noise_scale
    if mechanism.rows is not None:
        # Shares have a few digits, which what they are multiplied by must not add to.
        options |= {
            name: round(share, _DIGITS) for name, share in zip(SUM_SHARES, split[1:], strict=True)
        }
        options |= mechanism.rows.options() if len(comparisons) == 1 else {}
    if covariates := mechanism.find(NoisyCovariates):
        options["covariate_share"] = round(covariates.epsilon / epsilon, _DIGITS)
    return options


def at_its_best(
    name: str, requests: Sequence[BudgetRequest], scenarios: Sequence[Scenario]
) -> MechanismChoice:
    """A mechanism with what was given of the budget, and its own parameters left to be chosen."""
    return plan_mechanisms([_named(name, one) for one in requests], scenarios)


def _named(name: str, request: BudgetRequest) -> BudgetRequest:
    """A request for a mechanism by name: the same, or one with the same budget and purpose.

    A pilot and noisy counts that were asked for are the optimal channel's; no other takes them.
    """
    if request.mechanism == name:
        return request
    optimal = name == "optimal"
    return BudgetRequest(
        mechanism=name,
        pilot=request.pilot if optimal else None,
        counts_share=request.counts_share if optimal else None,
        epsilon=request.epsilon,
        delta=0.0 if name.startswith("noisy-") else request.delta,
        optimize_for=request.optimize_for,
        asked=request.asked,
        covariates=() if name.startswith("noisy-") else request.covariates,
        covariate_share=request.covariate_share,
    )


def compare_clusters(
    requests: Sequence[BudgetRequest],
    scenarios: Sequence[Scenario],
    planned: Sequence[tuple[ExpectedVariance, ...]],
) -> list[tuple[ClusterAlternative, ...]]:
    """Plans for the same table with other clusters, by question; none where there are no clusters.

    Args:
        requests: What is asked of each question, with a mechanism.
        scenarios: What is known of each question.
        planned: What to expect of each question with clusters as they are.
    """
    n_clusters = len(scenarios[0].layout.clusters)
    if n_clusters == 1:
        return [() for _ in scenarios]
    found = [[("your clusters", n_clusters, one)] for one in planned]
    for name, codes in _other_clusters(scenarios[0].layout):
        others = [merged(scenario, codes) for scenario in scenarios]
        made = plan_mechanisms(requests, others).mechanisms
        for every, mechanism, other in zip(found, made, others, strict=True):
            precisions = predict_quickly(mechanism, other)
            every.append((name, len(other.layout.clusters), precisions))
    return [tuple(every) for every in found]


def merged(scenario: Scenario, codes: CodeArray) -> Scenario:
    """The same units in fewer clusters.

    Args:
        scenario: What is known.
        codes: The new cluster of each old one, from 0 on.
    """
    layout, baseline = scenario.layout, scenario.baseline
    n_clusters = int(codes.max()) + 1
    sizes = np.zeros((n_clusters, len(layout.arms)), dtype=np.int64)
    np.add.at(sizes, codes, layout.sizes)
    if baseline.differs:
        kinds = np.zeros((*sizes.shape, scenario.space.n_categories))
        np.add.at(kinds, codes, layout.sizes[..., np.newaxis] * scenario.probs)
        baseline = replace(baseline, kinds=kinds / sizes[..., np.newaxis])
    fewer = replace(layout, clusters=tuple(range(n_clusters)), sizes=sizes)
    return replace(scenario, layout=fewer, baseline=baseline)


def _other_clusters(layout: Layout) -> Iterator[tuple[str, CodeArray]]:
    numbered = replace(layout, clusters=tuple(range(len(layout.clusters))))
    pooled, codes, _ = pool_small_clusters(numbered, SMALL)
    if codes is not None and len(pooled.clusters) > 1:
        yield f"clusters below {SMALL} in an arm pooled", codes
    yield "no clusters", np.zeros(len(layout.clusters), dtype=np.int64)
