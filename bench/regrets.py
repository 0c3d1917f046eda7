"""How much the default plan loses for each purpose, against the best found by a fine search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from clusterdp.planning import choose as planning
from clusterdp.precision.expected import Scenario, uniform_baseline
from clusterdp.precision.forecast import predict, purpose_variances
from clusterdp.precision.row_noise import RowNoise
from clusterdp.spec.purpose import parse_purpose
from clusterdp.spec.request import BudgetRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clusterdp._arrays import FloatArray
    from clusterdp.cells.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.space import CategorySpace

EPSILONS = (0.5, 1.0, 2.0, 4.0)


class Regrets(NamedTuple):
    """The largest regret of a default plan, and the least that any split of a fine search has."""

    planned: float
    least: float


def measure_regrets(
    populations: Mapping[str, tuple[Layout, CategorySpace]],
) -> dict[tuple[str, float], Regrets]:
    """Regrets of default plans without a baseline, by population and ε."""
    found = {}
    for name, (layout, space) in populations.items():
        blind = Scenario(replace(layout, folds=2), space, uniform_baseline(space))
        for epsilon in EPSILONS:
            found[name, epsilon] = regrets_of(blind, epsilon)
            print(f"{name}, regret at ε = {epsilon:g}: {found[name, epsilon]}")
    return found


def regrets_of(scenario: Scenario, epsilon: float) -> Regrets:
    """Regrets against the best of a fine search for each purpose, every channel designed."""
    chosen = planning.choose(BudgetRequest(epsilon=epsilon), scenario)
    purposes = parse_purpose(None, scenario.layout)

    def variances(mechanism: Mechanism, noise: RowNoise) -> FloatArray:
        precisions = predict(mechanism, scenario, noise)
        return np.asarray(purpose_variances(precisions, purposes, scenario).max(axis=-1))

    searched = [variances(chosen, RowNoise.designed(chosen, scenario))]
    for together in (0.0, *np.geomspace(0.002, 0.5, 40), *np.linspace(0.52, 0.97, 12)):
        # Rows depend on what is left for them alone, so their noise is computed once.
        noise = RowNoise.designed(at_split(epsilon, together, 0.0), scenario)
        parts = np.linspace(0, 1, 13)
        searched += [variances(at_split(epsilon, together, part), noise) for part in parts]
    regrets = np.sqrt(np.array(searched) / np.min(searched, axis=0)).max(axis=1)
    return Regrets(float(regrets[0]), float(regrets[1:].min()))


def at_split(epsilon: float, together: float, clusters: float) -> Mechanism:
    """The optimal channel, with this share of ε for sums and this part of it for cell sums."""
    return cdp.optimal(
        epsilon=epsilon,
        sums=cdp.SumShares(totals=together * (1 - clusters), clusters=together * clusters),
    )


def regret_lines(found: dict[tuple[str, float], Regrets]) -> list[str]:
    """The table of regrets."""
    names = dict.fromkeys(name for name, _ in found)
    lines = [
        "",
        "## One plan for all purposes",
        "",
        "The default plan serves the overall effect and segments of 10% at once. Its *regret* is",
        "the predicted standard error over that of the best plan for a purpose alone. Here is the",
        "larger of the two, and in brackets the least that a fine search over splits of ε finds.",
        "",
        "| ε | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |",
        "|---|" + "---:|" * len(EPSILONS),
    ]
    for name in names:
        cells = [found[name, epsilon] for epsilon in EPSILONS]
        shown = " | ".join(f"{one.planned:.4f} ({one.least:.4f})" for one in cells)
        lines.append(f"| {name} | {shown} |")
    return lines
