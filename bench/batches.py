"""Batches of one experiment: what a year of weeks costs, in ε and in time.

    python -m bench.batches [number of batches] [users in each]

Every batch is compared with the ids of all earlier ones. The ledger's ε after the last one is that
of one release.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

import clusterdp as cdp
from clusterdp.published.verification import verify_folder

EPSILON = 2


def weekly_users(number: int, n_users: int, rng: np.random.Generator) -> pl.DataFrame:
    """Users who joined in a week, in any order."""
    treated = rng.integers(0, 2, n_users)
    return pl.DataFrame(
        {
            "user": rng.permutation(n_users) + number * n_users,
            "treated": treated,
            "visit": rng.binomial(1, 0.3 + 0.02 * treated),
        }
    )


def run_batches(n_batches: int, n_users: int, folder: Path) -> tuple[list[float], float]:
    """Publish batches; the seconds that each took, and ε of the ledger in the end."""
    rng, seconds, weeks = np.random.default_rng(), list[float](), list[str]()
    ledger = cdp.Ledger.create(folder / "budget.db", cap_epsilon=EPSILON)
    for number in range(n_batches):
        users = weekly_users(number, n_users, rng)
        begun, out = time.perf_counter(), str(folder / f"week{number:02}")
        cdp.publish(
            users,
            out=out,
            outcomes={"visit": "0,1"},
            unit="user",
            arm="treated",
            epsilon=EPSILON,
            mechanism="optimal",
            ledger=ledger,
            population="users",
            continues=weeks,
        )
        seconds.append(time.perf_counter() - begun)
        weeks.append(out)
    problems = [one.problem for one in verify_folder(weeks[-1], weeks[:-1]) if one.problem]
    if problems or ledger.verify():
        raise SystemExit(f"{weeks[-1]}: {', '.join([*problems, *ledger.verify()])}")
    return seconds, ledger.balance("users").basic.epsilon


def main() -> None:
    """Print what batches cost."""
    n_batches, n_users = (
        int(one) for one in (*sys.argv[1:], *("52", "10000")[len(sys.argv) - 1 :])
    )
    with tempfile.TemporaryDirectory() as folder:
        seconds, epsilon = run_batches(n_batches, n_users, Path(folder))
    print(
        f"{n_batches} batches of {n_users:,} users: ε of the ledger {epsilon:g}, of one {EPSILON}"
    )
    print(f"seconds: {sum(seconds):.1f}; the first {seconds[0]:.2f}, the last {seconds[-1]:.2f}")


if __name__ == "__main__":
    main()
