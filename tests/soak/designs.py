"""Channels designed for whatever noisy counts were drawn: none may fail."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from categories import one_outcome
from clusterdp.cells.layout import Layout
from clusterdp.channels._optimal_channel import MOST_BIAS, OptimalBound, OptimalChannel
from clusterdp.mechanisms.draw import check_exact, release_cells
from clusterdp.rows.encoding import QuestionEncoder
from clusterdp.rows.randomizing import QuestionRandomizer
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import simulated_noise
from soak.report import Line

if TYPE_CHECKING:
    from clusterdp._arrays import IntArray
    from clusterdp.channels import Channel
    from clusterdp.mechanisms.mechanism import Mechanism

DELTAS = (0.0, 1e-6, 1e-3, 1e-2)
# Units in a cell, clusters, outcomes, and ε of the release.
_SIZES, _CLUSTERS, _OUTCOMES, _EPSILONS = (2, 500), (1, 120), (2, 12), (0.2, 9.0)
# What counts take of ε.
_SHARES = (0.05, 0.6)


class Case(NamedTuple):
    """A release to draw: its cells, what it publishes, and true counts."""

    layout: Layout
    space: cdp.OutcomeSpace
    mechanism: Mechanism
    counts: IntArray


def run_designs(n_cases: int, rng: np.random.Generator) -> Line:
    """Draw and design so many random releases, each δ as often as the others."""
    begun, failed = time.perf_counter(), 0
    for number in range(n_cases):
        case = random_case(rng, delta=DELTAS[number % len(DELTAS)])
        check_exact(case.layout, case.space, case.mechanism)
        try:
            sound = is_sound(draw_and_design(case, rng), case)
        except Exception:  # noqa: BLE001 - whatever it is, it is what must not be
            sound = False
        failed += not sound
    seconds = time.perf_counter() - begun
    return Line(
        trial="designs after a draw",
        runs=n_cases,
        faults=failed,
        lost=failed,
        overspent=0,
        partial=0,
        details=f"counts, delta 0 to 0.01, cells of 2 to 500 units; {seconds:.0f} s",
    )


def random_case(rng: np.random.Generator, *, delta: float, epsilon: float | None = None) -> Case:
    """Cells of every size, outcomes of every shape, spread evenly or not."""
    n_clusters, n_outcomes = rng.integers(*_CLUSTERS, endpoint=True), rng.integers(*_OUTCOMES)
    sizes = rng.integers(*_SIZES, (n_clusters, 2), endpoint=True)
    steps = rng.integers(1, 20, n_outcomes) if rng.random() < 0.5 else np.ones(n_outcomes)
    space = cdp.OutcomeSpace.of((np.cumsum(steps) - rng.integers(0, 40)).tolist())
    if epsilon is None:
        epsilon = float(np.exp(rng.uniform(*np.log(_EPSILONS))))
    layout = Layout(clusters=tuple(range(n_clusters)), arms=(0, 1), control=0, sizes=sizes)
    mechanism = cdp.optimal(
        epsilon=epsilon,
        delta=delta,
        noise_scale=2 / (float(rng.uniform(*_SHARES)) * epsilon),
        sums=cdp.SumShares(clusters=0.2 if rng.random() < 0.5 else 0.0),
    )
    probs = rng.dirichlet(np.full(n_outcomes, 0.7), size=(n_clusters, 2))
    return Case(layout, space, mechanism, rng.multinomial(sizes, probs))


def draw_and_design(case: Case, rng: np.random.Generator) -> Channel | None:
    """Everything from the draw to the look-up tables that rows are randomized with."""
    layout, space, mechanism, counts = case
    totals = CellTotals.from_counts(counts, space)
    _, channel = release_cells(totals, layout, space, mechanism, simulated_noise(rng))
    if channel is not None:
        encoder = QuestionEncoder.for_space(one_outcome("y", space), clip=False)
        QuestionRandomizer.from_channel(encoder, channel)
    return channel


def is_sound(channel: Channel | None, case: Case) -> bool:
    """Whether a channel is within its response and unbiased, as `clusterdp verify` asks."""
    response = case.mechanism.settled_rows(case.space).bound(case.space)
    if not isinstance(channel, OptimalChannel) or not isinstance(response, OptimalBound):
        return False
    largest = max(1.0, float(np.abs(channel.outputs).max()))
    unbiased = np.abs(channel.bias()).max() <= MOST_BIAS * largest
    return bool(unbiased) and response.allows(channel)
