"""The picture in the README: effects from true outcomes, and from private folders.

python examples/what_you_can_see.py     # writes docs/figures/what_you_can_see.svg and .png

The data are 120,000 simulated users, half of them shown an ad. Privacy noise is fresh in every run,
so the private intervals differ from run to run.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from clusterdp.document._matplotlib import COLOURS, new_figure, save_figure
from clusterdp.privacy.statement import percent_rounded_up

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"clicks": "0..5"},
}
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "what_you_can_see"
TIERS = ("gold", "silver", "basic")
EPSILONS = (2.0, 1.0)
# What the owner believes about clicks before the experiment; it is not learned from the table.
REFERENCE = (50, 25, 12, 6, 4, 3)


class Series(NamedTuple):
    """Effects with intervals, for everyone and for each tier."""

    label: str
    effects: list[cdp.Effect]
    colour: str


def simulate_campaign(rng: np.random.Generator) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The owner's table and the analyst's: users in 40 markets, half of them shown an ad.

    The ad makes one user in ten click once more, and three in ten among gold customers.
    """
    n_users, n_markets = 120_000, 40
    user = rng.permutation(10**6)[:n_users]
    market = rng.integers(0, n_markets, n_users)
    tier = rng.choice(TIERS, n_users, p=[0.2, 0.3, 0.5])
    without_ad = rng.binomial(4, rng.uniform(0.02, 0.3, n_markets)[market])
    more = rng.binomial(1, np.where(tier == "gold", 0.3, 0.1))
    treated = rng.permutation(n_users) % 2
    clicks = without_ad + treated * more
    owner = pl.DataFrame({"user": user, "treated": treated, "market": market, "clicks": clicks})
    return owner, pl.DataFrame({"user": user, "tier": tier})


def true_effects(owner: pl.DataFrame, analyst: pl.DataFrame) -> Series:
    """From true clicks, which only the owner has."""
    table = owner.join(analyst, on="user")
    tables = [table, *(table.filter(tier=tier) for tier in TIERS)]
    effects = [cdp.estimate_without_privacy(one, **PARTS)[1] for one in tables]
    return Series("true clicks: the owner alone has these", effects, "#333333")


def private_effects(
    owner: pl.DataFrame, analyst: pl.DataFrame, epsilon: float, colour: str
) -> Series:
    """From a release with that ε, joined to the analyst's own table."""
    plan = cdp.plan(owner, epsilon=epsilon, baseline=REFERENCE, **PARTS)
    release = cdp.release(owner, plan)
    estimate = cdp.estimate(release, segments=analyst, on="user", by=["tier"])
    effects = [estimate[1], *(estimate[f"tier={tier}"] for tier in TIERS)]
    belief = percent_rounded_up(math.exp(epsilon) / (1 + math.exp(epsilon)))
    label = f"private folder, ε = {epsilon:g}: a suspicion of 50% becomes at most {belief}"
    return Series(label, effects, colour)


def draw(panel: Axes, series: list[Series]) -> None:
    """One group of intervals for everyone and for each tier, in clicks per 100 users."""
    for number, one in enumerate(series):
        low, high = 100 * np.array([effect.ci(0.95) for effect in one.effects]).T
        middle = 100 * np.array([effect.effect for effect in one.effects])
        places = np.arange(len(middle)) + 0.22 * (number - 1)
        panel.errorbar(
            middle,
            places,
            xerr=[middle - low, high - middle],
            fmt="o",
            color=one.colour,
            capsize=3,
            label=one.label,
        )
    panel.axvline(0, color="#888888", linewidth=0.8)
    panel.set_yticks(range(1 + len(TIERS)), ["all users", *(f"{tier} customers" for tier in TIERS)])
    panel.invert_yaxis()
    panel.set_xlabel("additional clicks per 100 users because of the ad, with 95% intervals")
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.tick_params(left=False)


def main() -> None:
    """Simulate, release at each ε, estimate, and draw."""
    owner, analyst = simulate_campaign(np.random.default_rng())
    series = [true_effects(owner, analyst)]
    for epsilon, colour in zip(EPSILONS, COLOURS, strict=False):
        series.append(private_effects(owner, analyst, epsilon, colour))
    figure = new_figure(None, (8.4, 4.6))
    panel = figure.subplots()
    draw(panel, series)
    figure.legend(loc="outside lower left", frameon=False, fontsize=9)
    panel.set_title("What did the ad do? One experiment, with and without privacy", loc="left")
    FIGURE.parent.mkdir(exist_ok=True)
    for suffix in (".svg", ".png"):
        save_figure(figure, FIGURE.with_suffix(suffix))


if __name__ == "__main__":
    main()
