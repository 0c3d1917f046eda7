"""Rows per second of the in-memory release, beside plain k-ary responses, all in one run.

    make bench

Goals are of rows in the order of the table. Unless the owner declares that order public, rows are
put in the order of ids, which takes longer. The plain responses do less: no ids, no arms or
clusters, no checks, no noisy prior, no decoding, and pseudorandom instead of keyed cryptographic
draws. They are the floor to compare with.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.peers.library_response import multi_freq_ldpy

if TYPE_CHECKING:
    from collections.abc import Callable

SPACE = cdp.OutcomeSpace.integers(-5, 6)
N_CLUSTERS = 1000
PLAIN = "NumPy k-ary response alone"
# multi-freq-ldpy randomizes one value per call; a sample tells its rate.
LDPY_ROWS = 200_000


class Side(NamedTuple):
    """What is run, over how many rows, and how many million of them a second it should take."""

    run: Callable[[], object]
    n_rows: int
    goal: float | None = None


def experiment(n_rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """A table of integer ids in random order, two arms, 1,000 clusters and 12 outcomes."""
    return pl.DataFrame(
        {
            "user": rng.permutation(n_rows).astype(np.int64) * 3,
            "treated": rng.integers(0, 2, n_rows),
            "market": rng.integers(0, N_CLUSTERS, n_rows),
            "clicks": rng.integers(-5, 7, n_rows),
        }
    )


def release(table: pl.DataFrame, *, keep_order: bool) -> None:
    """The whole of a release: checks, counts, noise, prior, rows, cells."""
    cdp.release(
        table,
        mechanism=cdp.cluster_dp(noise_scale=10, prior_floor=0.02, epsilon=2),
        outcomes={"clicks": SPACE},
        unit="user",
        arm="treated",
        cluster="market",
        keep_order=keep_order,
    )


def numpy_response(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """k-ary randomized response on ready-made codes."""
    keep_prob = 1 - cdp.uniform_prior_dp(epsilon=2).parameters(SPACE)["resample_prob"]
    redrawn = rng.integers(0, SPACE.n_categories, len(codes))
    return np.where(rng.random(len(codes)) < keep_prob, codes, redrawn)


def best_rates(sides: dict[str, Side], repeats: int) -> dict[str, float]:
    """Rows per second of the fastest of some runs of each side, in turn, after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side.run()
            seconds[name].append(time.perf_counter() - start)
    return {name: side.n_rows / min(seconds[name][1:]) for name, side in sides.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    table = experiment(options.rows, rng)
    text_ids = table.with_columns(user=pl.format("user-{}", "user"))
    codes = (table["clicks"] + 5).to_numpy()
    sample = codes[:LDPY_ROWS]
    sides = {
        "integer ids, order kept": Side(
            lambda: release(table, keep_order=True), options.rows, goal=10
        ),
        "string ids, order kept": Side(
            lambda: release(text_ids, keep_order=True), options.rows, goal=5
        ),
        "integer ids, order of ids": Side(lambda: release(table, keep_order=False), options.rows),
        "string ids, order of ids": Side(lambda: release(text_ids, keep_order=False), options.rows),
        PLAIN: Side(lambda: numpy_response(codes, rng), options.rows),
        "multi-freq-ldpy k-ary response alone": Side(
            lambda: multi_freq_ldpy(sample, SPACE.n_categories, 2.0), len(sample)
        ),
    }
    rates = best_rates(sides, options.repeats)
    print(f"{options.rows:,} rows, {N_CLUSTERS:,} clusters, {SPACE.n_categories} outcomes")
    for name, rate in rates.items():
        goal = sides[name].goal
        asked = "" if goal is None else f"   the goal is at least {goal}"
        share = rate / rates[PLAIN]
        print(f"  {name:38}{rate / 1e6:8.2f} million rows/s   {share:6.3f} of NumPy's{asked}")


if __name__ == "__main__":
    main()
