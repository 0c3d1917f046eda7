"""Do 95% intervals of asked segments cover: of segments that were given, and of the best of 20.

    make bench-coverage

Every replicate draws units, publishes, asks, answers and estimates, each as owner and analyst do.
The best of 20 segments without an effect is chosen by released rows of fold 0. Asked about fold 1,
its interval should cover 0 as often as any other. Asked about the same units, it does not.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import clusterdp as cdp

if TYPE_CHECKING:
    from collections.abc import Callable

RATE, LIFT, N_SEGMENTS = 0.3, 0.1, 20
# What coverage should lie between.
GOAL = (0.935, 0.98)


def draw(rng: np.random.Generator, n_units: int, lift: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Units, whose treatment raises visits of gold, and labels."""
    treated = rng.integers(0, 2, n_units)
    tier = rng.choice(["basic", "gold", "silver"], n_units, p=[0.6, 0.1, 0.3])
    visit = rng.random(n_units) < RATE + lift * treated * (tier == "gold")
    units = pl.DataFrame({"user": np.arange(n_units), "arm": treated, "visit": visit.astype(int)})
    segment = pl.Series("segment", rng.integers(0, N_SEGMENTS, n_units)).cast(pl.String)
    return units, pl.DataFrame({"user": np.arange(n_units), "tier": tier, "segment": segment})


class Sides:
    """Owner and analyst, with a folder for what they exchange."""

    def __init__(self, folder: Path, units: pl.DataFrame) -> None:
        self.folder, self._units = folder, units
        self.ledger = cdp.Ledger.create(folder / "budget.db", 10)
        cdp.publish(
            units,
            out=folder / "published",
            unit="user",
            arm="arm",
            outcomes={"visit": "0,1"},
            mechanism=cdp.optimal(epsilon=2, sums=cdp.SumShares(totals=0.1)),
            folds=2,
            ledger=self.ledger,
            population="users",
        )

    def estimate(self, **more: Any) -> dict[str, Any]:
        """Effects by segment."""
        found = cdp.estimate(self.folder / "published", **more)
        return {str(one.of.segment[0][1]): one for one in found.effects if one.of.segment}

    def confirm(self, name: str, by: str, labels: pl.DataFrame, **more: Any) -> dict[str, Any]:
        """Effects by segment, with the answer to a follow-up."""
        asked, answered = self.folder / f"{name}-asked", self.folder / name
        cdp.ask(self.folder / "published", segments=labels, by=by, out=asked, **more)
        cdp.answer(asked, self._units, epsilon=0.5, ledger=self.ledger, out=answered)
        return self.estimate(answers=answered, followups=asked, by=by)


def covers(effect: Any, truth: float) -> bool:
    """Whether the 95% interval of an effect holds the truth."""
    low, high = effect.ci()
    return bool(low <= truth <= high)


def asked_segments(rng: np.random.Generator, n_units: int) -> dict[str, list[bool]]:
    """Whether intervals cover in segments that were given."""
    units, labels = draw(rng, n_units, LIFT)
    with tempfile.TemporaryDirectory() as made:
        found = Sides(Path(made), units).confirm("answer", "tier", labels)
    return {f"asked, {tier}": [covers(one, LIFT * (tier == "gold"))] for tier, one in found.items()}


def best_of_many(rng: np.random.Generator, n_units: int) -> dict[str, list[bool]]:
    """Whether the interval of the best segment covers, on other units and on the same."""
    units, labels = draw(rng, n_units, 0.0)
    with tempfile.TemporaryDirectory() as made:
        sides = Sides(Path(made), units)
        found = {}
        for name, fold, more in (
            ("other units", 0, {"found_in_fold": 0}),
            ("same units", None, {}),
        ):
            by_rows = sides.estimate(segments=labels, by="segment", fold=fold)
            best = max(by_rows, key=lambda one: by_rows[one].effect)
            chosen = labels.filter(pl.col("segment") == best).select("user", best="segment")
            (effect,) = sides.confirm(name.replace(" ", "-"), "best", chosen, **more).values()
            found[f"best of {N_SEGMENTS}, {name}"] = [covers(effect, 0.0)]
    return found


def repeat(
    study: Callable[[np.random.Generator, int], dict[str, list[bool]]],
    n_replicates: int,
    n_units: int,
) -> dict[str, list[bool]]:
    """What some replicates found."""
    rng, found = np.random.default_rng(), dict[str, list[bool]]()
    for _ in range(n_replicates):
        for name, covered in study(rng, n_units).items():
            found.setdefault(name, []).extend(covered)
    return found


def main() -> None:
    """Print how often intervals cover, with the goal."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--units", type=int, default=20_000)
    asked = parser.parse_args()
    for study in (asked_segments, best_of_many):
        for name, covered in repeat(study, asked.replicates, asked.units).items():
            share, error = np.mean(covered), np.std(covered) / len(covered) ** 0.5
            goal = "" if name.endswith("same units") else f"   goal: {GOAL[0]:.1%} to {GOAL[1]:.0%}"
            print(f"{name:32} {share:7.1%} ± {error:.1%} of {len(covered)}{goal}", flush=True)


if __name__ == "__main__":
    main()
