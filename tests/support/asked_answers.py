"""A small release with its follow-ups and answers, as owner and analyst make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import clusterdp as cdp

if TYPE_CHECKING:
    from pathlib import Path

TIERS = ("basic", "gold", "silver")
OUTCOMES = {"visit": "0,1", "spend": "number:0..20"}
BASELINE = ["visit=0.4", "spend=4,5"]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A release in a folder, with its table, the analyst's labels and the ledger.

    Attributes:
        folder: Where all of it is.
        table: The owner's table.
        labels: The analyst's table.
    """

    folder: Path
    table: pl.DataFrame
    labels: pl.DataFrame

    @property
    def published(self) -> Path:
        return self.folder / "published"

    @property
    def ledger(self) -> cdp.Ledger:
        return cdp.Ledger(self.folder / "budget.db")

    def spent(self) -> float:
        """ε of the ledger, without what rounding up adds."""
        return round(self.ledger.balance("users").basic.epsilon, 3)

    def ask(self, name: str = "followup", **more: Any) -> cdp.Asked:
        asked: dict[str, Any] = {"by": "tier", "segments": self.labels, **more}
        return cdp.ask(self.published, out=self.folder / name, **asked)

    def answer(self, name: str = "followup", out: str = "answer", **more: Any) -> cdp.Published:
        given: dict[str, Any] = {"epsilon": 0.5, "ledger": self.ledger, **more}
        return cdp.answer(self.folder / name, out=self.folder / out, **given)

    def estimate(self, *answers: str, **more: Any) -> cdp.Estimate:
        return cdp.estimate(self.published, answers=[self.folder / one for one in answers], **more)

    def totals(self, out: str = "answer") -> pl.DataFrame:
        """The noisy totals of an answer."""
        return pl.read_parquet(self.folder / out / "totals.parquet")


def draw_table(rng: np.random.Generator, n_units: int, lift: float = 0.2) -> pl.DataFrame:
    """Units in three tiers; treatment raises visits of one of them."""
    treated = rng.permutation(n_units) % 2
    tier = rng.choice(TIERS, n_units, p=[0.5, 0.2, 0.3])
    visit = rng.random(n_units) < 0.3 + lift * treated * (tier == "gold")
    return pl.DataFrame(
        {
            "user": rng.permutation(3 * n_units)[:n_units],
            "treated": treated,
            "market": rng.integers(0, 3, n_units),
            "visit": visit.astype(np.int64),
            "spend": np.round(visit * rng.gamma(2, 5, n_units), 2).clip(0, 20),
            "tier": tier,
            "region": rng.choice(["north", "south"], n_units),
        }
    )


def make_experiment(
    folder: Path, rng: np.random.Generator, n_units: int = 1200, **options: Any
) -> Experiment:
    """Publish a release with a ledger; the analyst has tiers and regions in their own table."""
    whole = draw_table(rng, n_units)
    table = whole.drop("tier", "region")
    folder.mkdir(exist_ok=True)
    table.write_parquet(folder / "table.parquet")
    cdp.Ledger.create(folder / "budget.db", 10)
    asked: dict[str, Any] = {
        "unit": "user",
        "arm": "treated",
        "cluster": "market",
        "outcomes": OUTCOMES,
        "constraint": ["spend>0 -> visit"],
        "baseline": BASELINE,
        "epsilon": 2,
        "ledger": str(folder / "budget.db"),
        "population": "users",
        **options,
    }
    cdp.publish(str(folder / "table.parquet"), out=folder / "published", **asked)
    labels = whole.select("user", "tier", "region").sample(fraction=1.0, shuffle=True, seed=1)
    return Experiment(folder=folder, table=table, labels=labels)
