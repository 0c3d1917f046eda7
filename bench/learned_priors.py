"""What priors learned from noisy counts are worth, where nobody declares a baseline.

    make bench-pilot

Excess variance of the effect in a segment of 10%, as a plan for segments releases it: exact given
the channels that drawn counts lead to, averaged over draws. Writes
`docs/studies/learned_priors.md`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from bench.frontier import Table, limit, observed
from bench.study_page import write_study
from clusterdp.cells.layout import Layout
from clusterdp.planning import choose as planning
from clusterdp.precision.expected import Scenario, uniform_baseline
from clusterdp.spec.request import BudgetRequest
from clusterdp.statistics.counts import NoisyCounts
from clusterdp.studies import populations as paper

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import FloatArray

    Draw = Callable[[np.random.Generator], Table]

SEGMENT = 0.1
# How many tables are drawn, two releases of each: of Experiment 1 at one ε, and of all else.
MAIN_EPSILON, N_MAIN, N_OTHER = 4.0, 500, 6
# Of how many of them the least is computed.
N_LEAST = 40
EPSILONS = (2.0, 3.0, 4.0)
CELLS = np.repeat([[250], [500], [1000]], 2, axis=1)
N_LEVELS = 12


def experiment_one(rng: np.random.Generator) -> Table:
    """A population of the paper's Experiment 1 that nobody has seen before."""
    drawn = paper.sub_population(int(rng.integers(100, 2**31)))
    return observed("Experiment 1", drawn, rng)


def shaped(name: str, probs: FloatArray, rng: np.random.Generator) -> Table:
    """Cells of 250 to 1,000 units whose outcomes all have one distribution."""
    counts = rng.multinomial(CELLS, probs / probs.sum())
    layout = Layout(
        clusters=tuple(range(len(CELLS))), arms=(0, 1), control=0, sizes=counts.sum(axis=-1)
    )
    return Table(name, counts, layout, cdp.OutcomeSpace.integers(0, N_LEVELS - 1))


def populations() -> dict[str, Draw]:
    """What is drawn, by name: the paper's, smooth shapes, and shapes that are not."""
    level = np.arange(N_LEVELS)
    shapes = {
        "uniform": np.ones(N_LEVELS),
        "falling": np.exp(-0.45 * level),
        "in the middle": np.exp(-(((level - 5.5) / 1.6) ** 2) / 2),
        "mostly 0": np.where(level == 0, 0.85, 0.15 / (N_LEVELS - 1)),
        "heaped at every fifth": np.where(level % 5 == 0, 1.0, 0.1),
        "even numbers alone": np.where(level % 2 == 0, 1.0, 0.02),
        "both ends": np.where(level % (N_LEVELS - 1) == 0, 1.0, 0.01),
    }
    found: dict[str, Draw] = {"Experiment 1": experiment_one}
    return found | {name: partial(shaped, name, probs) for name, probs in shapes.items()}


def n_draws(name: str, epsilon: float) -> int:
    """How many tables are drawn."""
    is_main = name == "Experiment 1" and epsilon == MAIN_EPSILON
    return N_MAIN if is_main else N_OTHER


class Found(NamedTuple):
    """Excess variances over draws; axes `[draw]`.

    Attributes:
        share: The share of ε that the plan pays for counts; 0 if it does not.
        learned: As planned.
        plain: As planned if counts are declined.
        least: The optimal channel for each cell's true distribution, at no cost; of some draws.
    """

    share: float
    learned: FloatArray
    plain: FloatArray
    least: FloatArray


def measure(draw: Draw, epsilon: float, n_tables: int, rng: np.random.Generator) -> Found:
    """Plans of a population, and what they come to."""
    first = draw(rng)
    blind = Scenario(first.layout, first.space, uniform_baseline(first.space))
    purpose = f"segments:{SEGMENT}"
    asked = [
        BudgetRequest(epsilon=epsilon, optimize_for=purpose, counts_share=one)
        for one in (None, 0.0)
    ]
    learned, plain = (planning.choose(one, blind) for one in asked)
    counts = learned.find(NoisyCounts)
    share = 0.0 if counts is None else 2 / counts.noise_scale / epsilon
    tables = [draw(rng) for _ in range(n_tables if share else 0)]
    with_counts, without = (
        np.array([table.excess_drawn(one, SEGMENT, rng) for table in tables])
        for one in (learned, plain)
    )
    least = np.array([limit(table, epsilon, SEGMENT) for table in tables[:N_LEAST]])
    return Found(share, with_counts, without, least)


def as_markdown(found: dict[tuple[str, float], Found]) -> str:
    """The page."""
    taken = [one for one in found.values() if one.share]
    worst = max(float(one.learned.mean() / one.plain.mean()) for one in taken)
    main = found["Experiment 1", MAIN_EPSILON]
    error = main.learned.std(ddof=1) / np.sqrt(len(main.learned))
    lines = [
        "# What learned priors are worth",
        "",
        "Written by `make bench-pilot`; not edited by hand. Excess variance of the effect in a",
        "segment of 10%: what privacy adds. Plans are for such segments and know nothing of",
        "outcomes. *Learned* has noisy counts, their cost included; *plain* has none; the *least*",
        "is that of the optimal channel for the true distribution of each cell, at no cost. Ratios",
        f"are of means over {2 * N_OTHER} releases, of {N_OTHER} tables.",
        "",
        f"- Experiment 1 at ε = {MAIN_EPSILON:g}, mean of {2 * len(main.learned):,} releases:",
        f"  {main.learned.mean():.5f} with a standard error of {error:.5f};",
        f"  {main.plain.mean():.4f} plain, {main.least.mean():.4f} at least.",
        f"- Where counts are planned, learned is at most {worst:.2f} times plain.",
        "",
        "| outcomes | ε | share of ε | learned over plain | learned over least |",
        "|---|---:|---:|---:|---:|",
    ]
    for (name, epsilon), one in found.items():
        if not one.share:
            lines.append(f"| {name} | {epsilon:g} | not planned | | |")
            continue
        # The least is of the first tables alone.
        ratios = (one.learned[: len(other)].mean() / other.mean() for other in one[2:])
        cells = " | ".join(f"{ratio:.3f}" for ratio in ratios)
        lines.append(f"| {name} | {epsilon:g} | {one.share:.2%} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write and show."""
    rng = np.random.default_rng()
    found = {}
    for name, draw in populations().items():
        for epsilon in EPSILONS:
            one = measure(draw, epsilon, n_draws(name, epsilon), rng)
            found[name, epsilon] = one
            print(name, epsilon, one.share, flush=True)
    text = as_markdown(found)
    write_study("learned_priors", text)
    print(text)


if __name__ == "__main__":
    main()
