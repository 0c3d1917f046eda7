"""Do 95% intervals of asked segments cover: of segments that were given, and of the best of 20.

Every replicate draws units, publishes, asks, answers and estimates, each as owner and analyst do.
The best of 20 segments without an effect is chosen by released rows of fold 0. Asked about fold 1,
its interval should cover 0 as often as any other. Asked about the same units, it does not.
`bench/after_release.py` repeats both.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import clusterdp as cdp

if TYPE_CHECKING:
    from collections.abc import Callable

RATE, LIFT, GOLD = 0.3, 0.1, 0.1
# Each of several ways to divide all units has so many segments.
N_SEGMENTS, N_WAYS = 20, 5
# What each dimension of a follow-up is answered at.
EPSILON = 0.5


def draw(rng: np.random.Generator, n_units: int, lift: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Units, whose treatment raises visits of gold, and labels."""
    treated = rng.integers(0, 2, n_units)
    tier = rng.choice(["basic", "gold", "silver"], n_units, p=[0.9 - GOLD, GOLD, 0.1])
    visit = rng.random(n_units) < RATE + lift * treated * (tier == "gold")
    units = pl.DataFrame({"user": np.arange(n_units), "arm": treated, "visit": visit.astype(int)})
    ways = {
        f"way{way}": pl.Series(rng.integers(0, N_SEGMENTS, n_units)).cast(pl.String)
        for way in range(N_WAYS)
    }
    return units, pl.DataFrame({"user": np.arange(n_units), "tier": tier, **ways})


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

    def estimate(self, **more: Any) -> dict[tuple[str, str], Any]:
        """Effects by column and segment."""
        found = cdp.estimate(self.folder / "published", **more)
        segments = ((one.of.segment, one) for one in found.effects if one.of.segment)
        return {(column, str(value)): one for ((column, value),), one in segments}

    def confirm(
        self, name: str, by: list[str], labels: pl.DataFrame, **more: Any
    ) -> dict[tuple[str, str], Any]:
        """Effects by segment, with the answer to a follow-up."""
        asked, answered = self.folder / f"{name}-asked", self.folder / name
        cdp.ask(self.folder / "published", segments=labels, by=by, out=asked, **more)
        epsilon = EPSILON * len(by)
        cdp.answer(asked, self._units, epsilon=epsilon, ledger=self.ledger, out=answered)
        return self.estimate(answers=answered, followups=asked, by=by)


def covers(effect: Any, truth: float) -> bool:
    """Whether the 95% interval of an effect holds the truth."""
    low, high = effect.ci()
    return bool(low <= truth <= high)


def asked_segments(rng: np.random.Generator, n_units: int) -> dict[str, list[bool]]:
    """Whether intervals cover in segments that were given."""
    units, labels = draw(rng, n_units, LIFT)
    with tempfile.TemporaryDirectory() as made:
        found = Sides(Path(made), units).confirm("answer", ["tier", "way0"], labels)
    covered: dict[str, list[bool]] = {}
    for (column, value), one in found.items():
        name = f"asked, {value}" if column == "tier" else f"asked, {N_SEGMENTS} segments"
        truth = LIFT * GOLD if column != "tier" else LIFT * (value == "gold")
        covered.setdefault(name, []).append(covers(one, truth))
    return covered


def best_of_many(rng: np.random.Generator, n_units: int) -> dict[str, list[bool]]:
    """Whether the interval of the best segment covers, on other units and on the same.

    Of each way to divide units, the best of its segments.
    """
    units, labels = draw(rng, n_units, 0.0)
    ways = [f"way{way}" for way in range(N_WAYS)]
    with tempfile.TemporaryDirectory() as made:
        sides = Sides(Path(made), units)
        found = {}
        for name, fold, more in (
            ("other units", 0, {"found_in_fold": 0}),
            ("same units", None, {}),
        ):
            by_rows = sides.estimate(segments=labels, by=ways, fold=fold)
            best = {
                way: max(
                    (one for one in by_rows if one[0] == way), key=lambda one: by_rows[one].effect
                )
                for way in ways
            }
            chosen = labels.select(
                "user", *(pl.when(pl.col(way) == best[way][1]).then(way) for way in ways)
            )
            confirmed = sides.confirm(name.replace(" ", "-"), ways, chosen, **more)
            found[f"best of {N_SEGMENTS}, {name}"] = [
                covers(one, 0.0) for one in confirmed.values()
            ]
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
