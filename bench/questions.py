"""One question per person: how long people wait, and how much noise it has.

    make bench

Commands run in processes of their own, as people run them, the start of Python included; what is
stated is processor time, so that other work on the machine does not count. Noise is in closed form:
sums over metrics of excess variance over the metric's own variance, per unit.
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp

N_UNITS = 200_000
FOUR = {
    "converted": ("0,1", "0.04"),
    "sessions": ("number:0..200", "mean:4,std:9"),
    "revenue": ("number:0..1000", "mean:8,std:60"),
    "score": ("number:0..10", "mean:7,std:2"),
}
MORE = {
    "visited": ("0,1", "0.3"),
    "searched": ("0,1", "0.2"),
    "added": ("0,1", "0.1"),
    "minutes": ("number:0..600", "mean:12,std:30"),
    "items": ("0..5", "0.9,0.05,0.02,0.01,0.01,0.01"),
    "returned": ("0,1", "0.02"),
}
FUNNEL = {
    "visit": ("0,1", "0.15"),
    "conversion": ("0,1", "0.01"),
    "spend": ("number:0..500", "mean:1,std:15"),
}
IMPLIED = ("conversion -> visit", "spend>0 -> conversion")


def some_table(rng: np.random.Generator) -> pl.DataFrame:
    """A test with ten outcomes, a funnel and a segment."""
    binary = {
        name: rng.random(N_UNITS) < float(expected)
        for name, (space, expected) in (FOUR | MORE).items()
        if space == "0,1"
    }
    bought, visit = rng.random(N_UNITS) < 0.04, rng.random(N_UNITS) < 0.15
    conversion = visit & (rng.random(N_UNITS) < 0.06)
    score = np.clip(np.rint(rng.normal(7, 2, N_UNITS)), 0, 10)
    return pl.DataFrame(
        {
            "user": rng.permutation(10 * N_UNITS)[:N_UNITS],
            "arm": rng.integers(0, 2, N_UNITS),
            "tier": rng.integers(0, 8, N_UNITS),
            **{name: held.astype(np.int64) for name, held in binary.items()},
            "sessions": np.minimum(rng.negative_binomial(0.3, 0.07, N_UNITS), 200),
            "revenue": np.where(bought, np.minimum(rng.lognormal(5, 1, N_UNITS), 1000), 0.0),
            "score": np.where(rng.random(N_UNITS) < 0.1, score, np.nan),
            "minutes": np.minimum(rng.exponential(12, N_UNITS), 600),
            "items": np.minimum(rng.poisson(0.2, N_UNITS), 5),
            "visit": visit.astype(np.int64),
            "conversion": conversion.astype(np.int64),
            "spend": np.where(conversion, np.minimum(rng.lognormal(4, 1, N_UNITS), 500), 0.0),
        }
    )


class Timed(NamedTuple):
    """A command, and the processor seconds that it took."""

    name: str
    seconds: float
    goal: float


def timed(name: str, goal: float, *arguments: str) -> Timed:
    """Run a command of clusterdp in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(Path(sys.executable).with_name("clusterdp")), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timed(name, spent, goal)


def waits(folder: Path) -> list[Timed]:
    """Plans with their pages, releases and estimates of four outcomes, of ten and of a funnel."""
    table = str(folder / "test.parquet")
    some_table(np.random.default_rng()).write_parquet(table)
    found = []
    cases = (
        ("four outcomes", FOUR, ("--missing", "score"), 1.0),
        ("ten outcomes", FOUR | MORE, ("--missing", "score"), 2.0),
        ("the funnel", FUNNEL, (word for one in IMPLIED for word in ("--constraint", one)), 1.0),
    )
    for name, outcomes, more, factor in cases:
        page, plan, out = (str(folder / f"{name}{end}") for end in (".html", ".toml", ""))
        declared = [
            word
            for outcome, (space, expected) in outcomes.items()
            for option, text in (("--outcome", space), ("--baseline", expected))
            for word in (option, f"{outcome}={text}")
        ]
        planned = ("--unit", "user", "--arm", "arm", "--epsilon", "1", *declared, *more)
        found += [
            timed(
                f"plan and page, {name}",
                15 * factor,
                *("plan", table, *planned, "--html", page, "--out", plan),
            ),
            timed(f"release, {name}", 10 * factor, "release", plan, "--out", out),
            timed(
                f"estimate by tier, {name}",
                1.5 if outcomes is FUNNEL else 3 * factor,
                *("estimate", out, "--segments", table, "--on", "user", "--by", "tier"),
            ),
        ]
    return found


def row_noise(outcomes: dict[str, str], epsilon: float) -> float:
    """Σ of excess over variance of all metrics, uniform outcomes, as a release asks them."""
    n_units = 1000
    rng = np.random.default_rng(0)  # no number of the table is used but how many units there are
    columns = {name: np.zeros(n_units, dtype=np.int64) for name in outcomes}
    table = pl.DataFrame(
        {"user": np.arange(n_units), "arm": rng.permutation(n_units) % 2, **columns}
    )
    released = cdp.release(
        table,
        unit="user",
        arm="arm",
        outcomes=outcomes,
        epsilon=epsilon,
        totals_share=0.0,
        sums_share=0.0,
        folds=1,
    )
    found = 0.0
    for question in released.questions:
        assert question.channel is not None  # noqa: S101 - there are rows
        values, uniform = question.space.metric_values(), 1 / question.space.n_categories
        for metric, numbers in enumerate(values):
            spread = float(numbers.var())
            noise = float(question.channel.noise_variance(metric).mean(axis=0).sum() * uniform)
            found += (1 + noise / spread) / question.mechanism.asked_share - 1
    return found


# Of DESIGN's table of section 7: what must be reached at ε = 1 and 2.
TABLE = {
    "three binary": (dict.fromkeys("abc", "0,1"), (39.14, 8.90)),
    "five binary": (dict.fromkeys("abcde", "0,1"), (112.07, 28.05)),
    "two binary, 12 levels": ({"a": "0,1", "b": "0,1", "c": "0..11"}, (55.31, 16.0)),
    "8 and 8 levels": ({"a": "0..7", "b": "0..7"}, (38.7, 9.5)),
}
FIVE = dict.fromkeys("abcde", "0,1")
NUMBERS = dict.fromkeys(("x", "y", "z"), "number:0..100")
# What eight metrics must stay below, as a share of what blocks have that share ε.
MOST_OF_BLOCKS = 0.4
# Of ε for each of three blocks of a number; the block of five binary outcomes has the rest.
_SHARES = (0.15, 0.2, 0.25)


def block_noise(epsilon: float) -> float:
    """The same sum for blocks that share ε as is best: five binary outcomes, and each number."""
    return min(
        row_noise(FIVE, (1 - 3 * share) * epsilon)
        + sum(row_noise({name: space}, share * epsilon) for name, space in NUMBERS.items())
        for share in _SHARES
    )


def main() -> None:
    """Measure and show."""
    with tempfile.TemporaryDirectory() as folder:
        for one in waits(Path(folder)):
            print(f"{one.name:34}{one.seconds:7.1f} processor seconds  (goal {one.goal:g})")
    print()
    for name, (outcomes, goals) in TABLE.items():
        for epsilon, goal in zip((1.0, 2.0), goals, strict=True):
            excess = row_noise(outcomes, epsilon)
            print(
                f"{name:24} epsilon {epsilon:g}: excess {excess:8.2f}  (goal {goal:g}, "
                f"{math.copysign(abs(excess / goal - 1), excess - goal):+.1%})"
            )
    for epsilon in (1.0, 2.0):
        asked, shared = row_noise(FIVE | NUMBERS, epsilon), block_noise(epsilon)
        print(
            f"{'eight metrics':24} epsilon {epsilon:g}: excess {asked:8.2f}, in blocks that share "
            f"epsilon {shared:.2f}: {asked / shared:.2f} (goal {MOST_OF_BLOCKS:g})"
        )


if __name__ == "__main__":
    main()
