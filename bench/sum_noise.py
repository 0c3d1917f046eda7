"""What noise on the sums of several metrics together gains over Laplace noise on each.

    make bench-variance

A level of sums of m metrics has discrete Laplace noise on each, or noise on all of them together
whose box is as wide as the spans; the statistic takes what is smaller. Noise of density
∝ exp(−ε·‖x‖) costs ε if no difference of two categories is longer than 1. It is r·u, with r of a
Gamma(m + 1) distribution of scale 1/ε and u uniform in the unit ball of the norm. So metric j has
variance (m + 1)(m + 2)·E[u_j²]/ε². In the hull norm the ball is the convex hull of all differences,
the smallest that there is: it bounds what any norm could gain. Plans are made anew as if sums had
that variance. Writes `docs/studies/sum_noise.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.spatial import Delaunay

from bench.joint_frontier import Case, binary, funnel, independent
from bench.study_page import write_study
from clusterdp.cells.layout import Breakdown, Layout
from clusterdp.mechanisms import catalogue as builders
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.planning._split import SplitForecast, best_split
from clusterdp.precision import closed_form
from clusterdp.precision.expected import ExpectedOutcomes, Scenario
from clusterdp.spec.purpose import parse_purpose
from clusterdp.spec.request import BudgetRequest
from clusterdp.statistics import _sum_noise
from clusterdp.statistics._sum_noise import sum_variances

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace
    from clusterdp.planning._split import Split

EPSILONS, N_UNITS = (0.5, 1.0, 2.0, 4.0), (5_000, 50_000, 500_000)
N_CLUSTERS, N_GROUPS, N_POINTS = 20, 4, 400_000
# Where noise is as good as continuous.
_SMALL_EPSILON = 0.01


class Gain(NamedTuple):
    """Standard errors with other noise over those with Laplace noise, by purpose."""

    overall: float
    breakdown: float
    segment: float


def cases() -> tuple[Case, ...]:
    """What is compared: nested metrics, independent ones, and two of them with a number."""
    space = Categories(declared=declare({"a": "0,1", "b": "0,1", "level": "0..7"}))
    level = 0.6 ** np.arange(8)
    margins = [[0.9, 0.1], [0.9, 0.1], level / level.sum()]
    mixed = Case(name="two binary at 10%, 8 levels", space=space, prior=independent(space, margins))
    return (funnel(), binary("three binary, 10% each", 3, 0.1), mixed)


def box_factors(space: CategorySpace) -> FloatArray:
    """The variance of the noise that sums have over that of Laplace noise; axes `[metric]`."""
    once = np.array([_SMALL_EPSILON])
    return np.asarray((sum_variances(space, once) / _laplace_variances(space, once))[0])


def hull_factors(space: CategorySpace) -> FloatArray:
    """The same in the hull norm, of sums without squares: a bound on what any norm could gain."""
    spans = np.ptp(space.metric_values(), axis=1)
    scaled = (space.metric_values() / spans[:, np.newaxis]).T
    n_metrics = scaled.shape[1]
    differences = (scaled[:, np.newaxis] - scaled).reshape(-1, n_metrics)
    hull = Delaunay(np.unique(differences.round(12), axis=0))
    points = np.random.default_rng(0).uniform(-1, 1, (N_POINTS, n_metrics))
    inside = points[hull.find_simplex(points) >= 0]
    of_hull = (n_metrics + 1) * (n_metrics + 2) * (inside**2).mean(axis=0)
    of_laplace = _laplace_variances(space, np.array([_SMALL_EPSILON]))[0]
    return np.asarray(of_hull * (spans / _SMALL_EPSILON) ** 2 / of_laplace)


def _laplace_variances(space: CategorySpace, epsilons: FloatArray, weight: int = 1) -> FloatArray:
    """As `sum_variances`, with Laplace noise on the sums of each metric."""
    with patch.object(_sum_noise, "_boxes", _sum_noise._apart):  # noqa: SLF001 - what if
        return sum_variances(space, epsilons, weight)


def scenario_of(case: Case, n_units: int) -> Scenario:
    """Equal clusters, two arms, a breakdown into equal groups, the true distribution known."""
    each = n_units // N_CLUSTERS // 2
    by = Breakdown(
        columns=("group",),
        labels=(tuple(map(str, range(N_GROUPS))),),
        sizes=np.full((N_GROUPS, 2), n_units // N_GROUPS // 2),
    )
    layout = Layout(
        clusters=tuple(range(N_CLUSTERS)),
        arms=(0, 1),
        control=0,
        sizes=np.full((N_CLUSTERS, 2), each),
        breakdowns=(by,),
        folds=2,
    )
    expected = ExpectedOutcomes(kinds=case.prior[np.newaxis, np.newaxis])
    return Scenario(layout, case.space, expected)


def planned_errors(case: Case, scenario: Scenario, epsilon: float) -> FloatArray:
    """Predicted standard errors of the default plan, at its best split; axes `[purpose]`."""
    purposes = parse_purpose(None, scenario.layout)

    def build(split: Split) -> Mechanism:
        sums = split.sum_shares(scenario.layout)
        return builders.optimal(epsilon=epsilon, prior=case.prior.tolist(), sums=sums)

    best, _ = best_split([build], [scenario], BudgetRequest(epsilon=epsilon), (0.0,))
    predicted = SplitForecast([build], 0.0, epsilon, [scenario], purposes)
    return np.asarray(np.sqrt(predicted(np.array([best[1:]]))[0]))


def gain(case: Case, factors: FloatArray, n_units: int, epsilon: float) -> Gain:
    """What smaller noise on sums gains over Laplace noise, the split of ε searched anew."""
    scenario = scenario_of(case, n_units)

    def smaller(space: CategorySpace, epsilons: FloatArray, weight: int = 1) -> FloatArray:
        return np.asarray(factors * _laplace_variances(space, epsilons, weight))

    with patch.object(closed_form, "sum_variances", _laplace_variances):
        of_laplace = planned_errors(case, scenario, epsilon)
    with patch.object(closed_form, "sum_variances", smaller):
        then = planned_errors(case, scenario, epsilon)
    return Gain(*(then / of_laplace).tolist())


def as_markdown() -> str:
    """The page."""
    lines = [
        "# Noise on the sums of several metrics",
        "",
        "Written by `make bench-variance`; not edited by hand. Sums of several metrics have noise",
        "together, in a *box* as wide as their spans, or Laplace noise on each, whichever is",
        "smaller (`statistics/_sum_noise.py`). Noise in the norm of the *hull* of all differences",
        "of two categories would have less variance yet. It is not built: hulls in many metrics",
        "have too many facets, and their variance on a coarse lattice no closed form. The hull is",
        "of sums without squares, so that its gain is a bound.",
        "",
        "The tables have predicted standard errors of the default plan, its split of ε searched",
        "anew, over those with Laplace noise: overall / breakdown into 4 groups / segment of 10%,",
        "all metrics together. There are 20 clusters, two arms and two folds; the distribution is",
        "known. A default plan serves several purposes, so one can gain what another leaves.",
    ]
    for case in cases():
        norms = {"box": box_factors(case.space), "hull": hull_factors(case.space)}
        lines += ["", f"## {case.name}", ""]
        lines += [
            f"- {name}: variance of noise {', '.join(f'{one:.2f}' for one in factors)} times that "
            "of Laplace noise, metric by metric."
            for name, factors in norms.items()
        ]
        lines += ["", "| norm | units | " + " | ".join(f"ε = {one:g}" for one in EPSILONS) + " |"]
        lines += ["|---|---:|" + "---:|" * len(EPSILONS)]
        for name, factors in norms.items():
            for n_units in N_UNITS:
                gains = [gain(case, factors, n_units, epsilon) for epsilon in EPSILONS]
                shown = " | ".join(" / ".join(f"{part:.2f}" for part in one) for one in gains)
                lines.append(f"| {name} | {n_units:,} | {shown} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write and show."""
    text = as_markdown()
    write_study("sum_noise", text)
    print(text)


if __name__ == "__main__":
    main()
