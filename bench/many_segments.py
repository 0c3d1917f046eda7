"""What shrinking effects of many segments gains, and whether its intervals cover on average.

    make bench-metrics

In each replicate a table of 120,000 users in 100 segments is drawn, released and estimated, as
people do. Effects of segments are normal, or of one segment in ten alone. Writes
`docs/studies/many_segments.md`.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.study_page import write_study

N_UNITS, N_SEGMENTS, N_LARGEST = 120_000, 100, 10
MEAN_EFFECT, RATE = 0.02, 0.5
SPREADS, EPSILONS, SHAPES = (0.01, 0.03), (1.0, 2.0), ("normal", "one in ten")
# What all lines may take together, in minutes; lines that are cut off have fewer replicates.
N_REPLICATES, MINUTES = 100, 16.0


class Line(NamedTuple):
    """What replicates show; means over them, each with its Monte Carlo error."""

    shape: str
    spread: float
    epsilon: float
    n_replicates: int
    gain: float
    coverage: tuple[float, float]
    length: float
    bias: tuple[float, float]
    plain_bias: float


def draw_effects(shape: str, spread: float, rng: np.random.Generator) -> np.ndarray:
    """True effects of all segments, with a standard deviation."""
    if shape == "normal":
        return MEAN_EFFECT + spread * rng.standard_normal(N_SEGMENTS)
    moved = (rng.permutation(N_SEGMENTS) < N_SEGMENTS / 10) / math.sqrt(0.1)
    return np.asarray(MEAN_EFFECT + spread * moved * rng.choice([-1.0, 1.0], N_SEGMENTS))


def draw_table(effects: np.ndarray, rng: np.random.Generator) -> pl.DataFrame:
    """Users whose rate of visits in control is the same in every segment."""
    segment, arm = rng.integers(0, N_SEGMENTS, N_UNITS), rng.integers(0, 2, N_UNITS)
    visit = rng.random(N_UNITS) < RATE + (arm - 0.5) * effects[segment]
    return pl.DataFrame(
        {"user": np.arange(N_UNITS), "arm": arm, "segment": segment, "visit": visit.astype(int)}
    )


def measure(shape: str, spread: float, epsilon: float, seconds: float) -> Line:
    """One line, of as many replicates as there is time for."""
    rng, end = np.random.default_rng(), time.monotonic() + seconds
    found: list[tuple[float, ...]] = []
    for number in range(N_REPLICATES):
        if number > 1 and time.monotonic() > end:
            break
        truth = draw_effects(shape, spread, rng)
        release = cdp.release(
            draw_table(truth, rng),
            unit="user",
            arm="arm",
            control=0,
            outcomes={"visit": "0,1"},
            passthrough="segment",
            epsilon=epsilon,
        )
        by_segment = {
            dict(one.of.segment)["segment"]: one
            for one in cdp.estimate(release, by="segment").effects
            if one.of.segment
        }
        plain = np.array([by_segment[number].effect for number in range(N_SEGMENTS)])
        errors = np.array([by_segment[number].std_error for number in range(N_SEGMENTS)])
        shrunken = [by_segment[number].shrunken for number in range(N_SEGMENTS)]
        effects, low, high = np.array([one[:3] for one in shrunken if one is not None]).T
        found.append(
            (
                ((plain - truth) ** 2).mean(),
                ((effects - truth) ** 2).mean(),
                ((low <= truth) & (truth <= high)).mean(),
                (high - low).mean() / (2 * 1.96 * errors.mean()),
                (effects - truth)[np.argsort(-effects)[:N_LARGEST]].mean(),
                (plain - truth)[np.argsort(-plain)[:N_LARGEST]].mean(),
            )
        )
    each = np.array(found)
    plain_error, error, coverage, length, bias, plain_bias = each.mean(axis=0)
    doubt = each.std(axis=0, ddof=1) / math.sqrt(len(each))
    return Line(
        shape,
        spread,
        epsilon,
        len(each),
        plain_error / error,
        (coverage, doubt[2]),
        length,
        (bias, doubt[4]),
        plain_bias,
    )


def page(lines: list[Line]) -> str:
    """What was measured, as a page."""
    rows = [
        f"| {one.shape} | {one.spread:g} | {one.epsilon:g} | {one.n_replicates} | {one.gain:.1f} | "
        f"{one.coverage[0]:.1%} ± {one.coverage[1]:.1%} | {one.length:.2f} | "
        f"{one.bias[0]:+.4f} ± {one.bias[1]:.4f} | {one.plain_bias:+.4f} |"
        for one in lines
    ]
    return f"""# Effects of many segments, shrunken
{N_UNITS:,} users in {N_SEGMENTS} segments that the plan does not know, a rate of {RATE:.0%}, a mean
effect of {MEAN_EFFECT:g}. Effects of segments are normal, or differ in one segment of ten. Made by
`make bench-metrics`, which draws, releases and estimates as people do.

Coverage is the share of a release's {N_SEGMENTS} intervals that hold their effect. It is at least
95% by design, for effects of any shape; where effects are much smaller than noise, their shape
cannot be known, and more cover. Bias is that of the {N_LARGEST} largest estimates.

| effects | SD | ε | releases | plain / shrunken MSE | coverage | length / plain | bias | plain |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def main() -> None:
    """Measure, show and write."""
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    cases = [(shape, sd, one) for shape in SHAPES for sd in SPREADS for one in EPSILONS]
    found = [measure(*case, 60 * MINUTES / len(cases)) for case in cases]
    write_study("many_segments", page(found))
    print(page(found))


if __name__ == "__main__":
    main()
