"""What a pilot costs and what it finds, where nobody declares a baseline.

    make bench-pilot

A cost is the variance that privacy adds to one unit's outcome, rounding included, in closed form
for a known distribution; looks are drawn. Writes `docs/studies/pilot.md`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.study_page import write_study
from clusterdp.cells.layout import Layout
from clusterdp.channels.optimal import OptimalRows
from clusterdp.errors import OwnerNotice
from clusterdp.mechanisms.settling import settle_outcomes
from clusterdp.outcomes.baseline import choose_categories
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import DeclaredOutcomes, declare
from clusterdp.outcomes.grid import Density, place_grid
from clusterdp.planning.advice import advise_pilot
from clusterdp.precision.expected import Scenario, uniform_baseline
from clusterdp.statistics.noise import simulated_noise
from clusterdp.statistics.pilot import NoisyPilot, pilot_space

if TYPE_CHECKING:
    from clusterdp.outcomes.grid import Grid
    from clusterdp.outcomes.number import Number

N_UNITS = 50_000
N_LOOKS = 20
EPSILONS = (1.0, 2.0, 4.0)
FINE_POINTS = 64
GAME_UNITS, GAME_RELEASES, GAME_EPSILON, GAME_PILOT = 90_000, 12, 2.0, 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Outcomes of many units, and the range that is declared for them."""

    name: str
    outcomes: np.ndarray
    declared: str

    @property
    def space(self) -> DeclaredOutcomes:
        """What is declared."""
        return declare({"y": self.declared})


def cases(rng: np.random.Generator) -> list[Case]:
    """Wide ranges that nobody knows, then ranges and values as somebody who knows declares them."""
    lognormal = rng.lognormal(3, 1.5, N_UNITS)
    inflated = np.where(rng.random(N_UNITS) < 0.8, 0.0, rng.lognormal(3, 1, N_UNITS))
    counts = rng.negative_binomial(1, 0.2, N_UNITS).astype(np.float64)
    wide = "number:0..1000000"
    shapes = {"lognormal": lognormal, "zero-inflated": inflated, "counts": counts}
    found = [Case(name=name, outcomes=y, declared=wide) for name, y in shapes.items()]
    found.append(
        Case(name="uniform over all of it", outcomes=rng.uniform(0, 1e6, N_UNITS), declared=wide)
    )
    for name, y in shapes.items():
        high = float(np.ceil(np.quantile(y, 0.995)))
        found.append(Case(name=f"{name}, known range", outcomes=y, declared=f"number:0..{high:g}"))
    found.append(
        Case(name="counts, 0..9", outcomes=np.minimum(counts, 9.0), declared="0..9"),
    )
    evenly = rng.integers(0, 6, N_UNITS).astype(np.float64)
    found.append(Case(name="even, 0..5", outcomes=evenly, declared="0..5"))
    return found


def density(outcomes: np.ndarray, number: Number) -> Density:
    """How outcomes are distributed after clipping."""
    steps, copies = np.unique(number.quantize(outcomes)[0], return_counts=True)
    return Density(steps=steps.astype(np.int64), probs=copies / copies.sum())


def excess(
    space: Categories, prior: tuple[float, ...] | None, epsilon: float, y: np.ndarray
) -> float:
    """The variance that privacy adds to a unit's outcome."""
    channel = OptimalRows(epsilon=epsilon, prior=prior).public_channel(space)
    noise = channel.noise_variance()[0]
    if not space.grids:
        encoder = space.encoder()
        categories = encoder.table[encoder.encode({"y": y}).positions]
        return float(noise @ np.bincount(categories, minlength=len(noise)) / len(y))
    (grid,) = space.grids
    found = density(y, grid.number)
    return float(noise @ grid.rounded(found)) + rounding_variance(grid, found)


def rounding_variance(grid: Grid, found: Density) -> float:
    """E[(y − l)(u − y)]: the variance that rounding adds, on average."""
    lower = grid.lower(found.steps)
    above = found.steps - np.array(grid.points)[lower]
    added = float(found.probs @ (above * (grid.widths[lower] - above)))
    return added * float(grid.number.unit**2)


def least_excess(case: Case, number: Number, epsilon: float) -> float:
    """What the optimal channel on many points costs that knows the range and the distribution."""
    found = density(case.outcomes, number)
    grid = place_grid(number, n_points=FINE_POINTS, density=found)
    space = Categories(declared=declare({"y": number}), grids=(grid,))
    prior = tuple(grid.rounded(found).tolist())
    return excess(space, prior, epsilon, case.outcomes)


class Found(NamedTuple):
    """What pilots found, over many of them.

    Attributes:
        share: Of ε, as the planner recommends; None if it does not.
        highs: Upper ends that numbers were clipped to.
        quiet: What they would be clipped to without noise; None if there are none.
        clipped: The share of units beyond, on average.
        to_least: Excess variance over the least there is on the same range; cost included.
        to_none: The same over that of a release without a pilot; outcomes clipped alike.
    """

    share: float | None
    highs: tuple[float, ...] = ()
    quiet: float | None = None
    clipped: float = 0.0
    to_least: float = float("nan")
    to_none: float = float("nan")


def advised(case: Case, epsilon: float) -> float | None:
    """The share that the planner recommends."""
    space, _ = choose_categories(case.space, {})
    layout = Layout(clusters=("all",), arms=(0, 1), control=0, sizes=np.array([[N_UNITS // 2] * 2]))
    scenario = Scenario(layout, space, uniform_baseline(space))
    advice = advise_pilot(cdp.optimal(epsilon=epsilon), scenario, space, epsilon)
    return None if advice is None else advice.share


def measure(case: Case, epsilon: float, rng: np.random.Generator) -> Found:
    """Looks at a case, and what follows from them."""
    share = advised(case, epsilon)
    if share is None:
        return Found(None)
    bins = pilot_space(case.space)
    encoder = bins.encoder()
    positions = encoder.encode({"y": case.outcomes}).positions
    counts = np.bincount(encoder.table[positions], minlength=bins.n_categories)
    pilot = NoisyPilot(epsilon=share * epsilon)
    declared, _ = choose_categories(case.space, {})
    without = excess(declared, None, epsilon, case.outcomes)
    least = cache(lambda number: least_excess(case, number, epsilon))
    quiet, _ = settle_outcomes(bins, counts, 0.0, N_UNITS)
    ends = [number.high for number in quiet.declared.numbers.values()]
    highs, clipped, to_least, to_none = [], [], [], []
    for _ in range(N_LOOKS):
        drawn = pilot.draw(counts, bins, simulated_noise(rng))
        space, prior = settle_outcomes(bins, drawn.noisy_counts, drawn.variance, N_UNITS)
        cost = excess(space, prior, (1 - share) * epsilon, case.outcomes)
        to_none.append(cost / without)
        for number in space.declared.numbers.values():
            highs.append(number.high)
            clipped.append(float((case.outcomes > number.high).mean()))
            to_least.append(cost / least(number))
    mean = np.mean if highs else lambda _: float("nan")
    return Found(
        share=share,
        highs=tuple(highs),
        quiet=ends[0] if ends else None,
        clipped=float(mean(clipped)),
        to_least=float(mean(to_least)),
        to_none=float(np.mean(to_none)),
    )


class Play(NamedTuple):
    """One release of the game, on rounds."""

    high: float
    truth: float
    estimate: float
    low_end: float
    high_end: float


def play(rng: np.random.Generator) -> Play:
    """Publish rounds and retention of a game, knowing nothing of the range of rounds."""

    def rounds_of(luck: np.ndarray, arm: np.ndarray) -> np.ndarray:
        return np.asarray(np.floor(np.exp(2.7 + 1.5 * luck - 0.15 * arm)))

    luck, arm = rng.normal(size=GAME_UNITS), rng.integers(0, 2, GAME_UNITS)
    retained = luck + rng.normal(size=GAME_UNITS) > 0.8
    table = pl.DataFrame(
        {"user": range(GAME_UNITS), "arm": arm, "rounds": rounds_of(luck, arm), "kept": retained}
    )
    release = cdp.release(
        table,
        outcomes={"rounds": "number:0..1000000", "kept": "0,1"},
        unit="user",
        arm="arm",
        epsilon=GAME_EPSILON,
        pilot=GAME_PILOT,
    )
    high = release.questions[0].space.declared.numbers["rounds"].high
    every = rng.normal(size=2_000_000)
    means = [np.minimum(rounds_of(every, np.array(one)), high).mean() for one in (0, 1)]
    effect = cdp.estimate(release).effects[0]
    return Play(high, means[1] - means[0], effect.effect, *effect.ci())


def as_markdown(found: dict[tuple[str, float], Found], plays: list[Play]) -> str:
    """The page."""
    return "\n".join([*_head(found), *_tables(found), *_game(plays)]) + "\n"


def _head(found: dict[tuple[str, float], Found]) -> list[str]:
    taken = [one for one in found.values() if one.share is not None]
    worst = max(one.to_least for one in taken if one.highs)
    most = max(one.to_none for one in taken)
    return [
        "# What a pilot costs, and what it finds",
        "",
        "Written by `make bench-pilot`; not edited by hand. Excess is the variance that privacy",
        f"adds to a unit's outcome, rounding included. There are {N_UNITS:,} units, nobody",
        f"declares a baseline, and every figure is the mean over {N_LOOKS} pilots, their cost",
        "included. The share of ε is the one that the planner recommends.",
        "",
        "- *Clipped at*: the ends that pilots found. *Without noise*: the end that a pilot without",
        "  noise would find. *Beyond*: units whose outcome is clipped. All three are of numbers;",
        "  an outcome of single values is not clipped.",
        f"- *Over the least*: excess over the optimal channel on {FINE_POINTS} points of the",
        "  same range, which knows the distribution and needs no pilot. It is at most",
        f"  {worst:.2f} times as much.",
        "- *Over none*: excess over a release without a pilot. Where a pilot is recommended,",
        f"  it is at most {most:.2f} times as much.",
        "",
    ]


def _tables(found: dict[tuple[str, float], Found]) -> list[str]:
    lines = [
        (
            "| outcomes | ε | share | clipped at | without noise | beyond "
            "| over the least | over none |"
        ),
        "|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for (name, epsilon), one in found.items():
        if one.share is None:
            lines.append(f"| {name} | {epsilon:g} | not recommended | | | | | |")
            continue
        number = ["", "", "", ""]
        if one.highs:
            ends = f"{min(one.highs):g} to {max(one.highs):g}"
            number = [ends, f"{one.quiet:g}", f"{one.clipped:.2%}", f"{one.to_least:.3f}"]
        cells = [f"{epsilon:g}", f"{one.share:g}", *number, f"{one.to_none:.3g}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _game(plays: list[Play]) -> list[str]:
    covered = sum(one.low_end <= one.truth <= one.high_end for one in plays)
    signs = sum(one.estimate < 0 for one in plays)
    rows = [
        f"| {one.high:g} | {one.truth:.3g} | {one.estimate:.3g} | "
        f"{one.low_end:.3g} to {one.high_end:.3g} |"
        for one in plays
    ]
    share, budget = f"`--pilot {GAME_PILOT:g}`", f"ε = {GAME_EPSILON:g}"
    return [
        "",
        "## A game whose rounds nobody knows the range of",
        "",
        f"{GAME_UNITS:,} players, rounds declared as `number:0..1000000` and retention as `0,1`,",
        f"released together at {budget} with {share} and no other choice.",
        f"The truth is the effect on clipped rounds. Of {len(plays)} releases, {covered} intervals",
        f"cover it and {signs} estimates have its sign.",
        "",
        "| clipped at | true effect | estimate | 95% interval |",
        "|---:|---:|---:|---|",
        *rows,
    ]


def main() -> None:
    """Measure, write and show."""
    rng = np.random.default_rng()
    found = {}
    for case in cases(rng):
        for epsilon in EPSILONS:
            found[case.name, epsilon] = measure(case, epsilon, rng)
            print(case.name, epsilon, found[case.name, epsilon], flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OwnerNotice)
        plays = [play(rng) for _ in range(GAME_RELEASES)]
    text = as_markdown(found, plays)
    write_study("pilot", text)
    print(text)


if __name__ == "__main__":
    main()
