"""The story of one experiment, a funnel of three outcomes, from the plan to the analyst's report.

make demo
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from clusterdp.owner.keywords import in_lines

EPSILON = 2.0
PARTS: dict[str, Any] = {
    "unit": "user",
    "arm": "treated",
    "cluster": "market",
    "outcomes": {"visit": "0,1", "order": "0,1", "spend": cdp.Number(0, 200)},
    "implies": ["order -> visit", "spend>0 -> order"],
}
# What the owner knows of earlier campaigns.
REFERENCE = {"visit": "0.3", "order": "0.1", "spend": "mean:3,std:12"}
FOLDER = Path("demo-output")
_PEOPLE, _MARKETS = 120_000, 40


class Campaign(NamedTuple):
    """A simulated experiment.

    Attributes:
        owner: The owner's table.
        analyst: What the analyst alone knows.
        effects: The true effect on each outcome, by name.
    """

    owner: pl.DataFrame
    analyst: pl.DataFrame
    effects: dict[str, float]


def simulate_campaign(rng: np.random.Generator) -> Campaign:
    """120,000 users in 40 markets, half of them shown an ad.

    Whoever orders has visited, and whoever spends has ordered. The ad brings two more visitors in a
    hundred users, and ten in a hundred among gold customers, which only the analyst knows.
    """
    user = rng.permutation(10**6)[:_PEOPLE]
    market = rng.integers(0, _MARKETS, _PEOPLE)
    tier = rng.choice(["gold", "silver", "basic"], _PEOPLE, p=[0.2, 0.3, 0.5])
    rate = rng.uniform(0.2, 0.4, _MARKETS)[market]
    lift = np.where(tier == "gold", 0.1, 0.02)
    chance, orders = rng.random(_PEOPLE), rng.random(_PEOPLE) < 0.3
    amount = np.round(np.minimum(rng.gamma(2.0, 15.0, _PEOPLE), 200), 2)
    arms = [_funnel(chance < rate + shown * lift, orders, amount) for shown in (0, 1)]
    treated = rng.permutation(_PEOPLE) % 2
    owner = pl.DataFrame({"user": user, "treated": treated, "market": market}).with_columns(
        [
            pl.Series(name, np.where(treated == 1, arms[1][name], arms[0][name]))
            for name in PARTS["outcomes"]
        ]
    )
    effects = {name: float((arms[1][name] - arms[0][name]).mean()) for name in PARTS["outcomes"]}
    return Campaign(owner, pl.DataFrame({"user": user, "tier": tier}), effects)


def _funnel(visits: Any, orders: Any, amount: Any) -> dict[str, Any]:
    """The outcomes of users who visit or not, and would order or not."""
    order = visits & orders
    return {
        "visit": visits.astype(np.int64),
        "order": order.astype(np.int64),
        "spend": np.where(order, amount, 0.0),
    }


def run_command(*words: str) -> None:
    """Print a command and run it."""
    lines = in_lines(["clusterdp", *words])
    print(f"\n$ {lines}\n", flush=True)
    script = Path(sys.executable).with_name("clusterdp")
    arguments = [word for part in words for word in shlex.split(part)]
    subprocess.run([str(script), *arguments], check=True)  # noqa: S603 - our own


def declared() -> list[str]:
    """The outcomes as the command line declares them."""
    words = [f"--outcome {name}={space}" for name, space in PARTS["outcomes"].items()]
    words += [f'--implies "{implication}"' for implication in PARTS["implies"]]
    return [*words, *(f"--reference {name}={text}" for name, text in REFERENCE.items())]


def say(text: str) -> None:
    """Print a paragraph that fits a terminal."""
    print(f"\n{textwrap.fill(text, 78)}", flush=True)


def main() -> None:
    """Run both halves and show what each of them sees."""
    owner, analyst, effects = simulate_campaign(np.random.default_rng())
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    owner.write_parquet(FOLDER / "funnel.parquet")
    analyst.write_csv(FOLDER / "crm.csv")
    plan, published = FOLDER / "plan.toml", FOLDER / "published"
    page, report = FOLDER / "plan.html", FOLDER / "report.html"

    say(
        f"1. A shop showed an ad to half of {_PEOPLE:,} users. It has a table of who visited, who "
        "ordered and what they spent. Nobody else may see it:"
    )
    with pl.Config(tbl_width_chars=78, tbl_hide_dataframe_shape=True):
        print(owner.head(3))
    say(
        "2. The owner plans. That reads arms and markets, and no outcome. The page shows a meeting "
        "what each ε protects, and which effects can be seen with it:"
    )
    run_command(
        f"plan {FOLDER}/funnel.parquet",
        "--arm treated --cluster market",
        *declared(),
        f"--epsilon {EPSILON:g}",
        f"--out {plan} --html {page}",
    )
    say("3. The owner carries the plan out, once, with one budget for all three outcomes:")
    run_command("release", f"--plan {plan}", "--unit user", f"--out {published}")
    say("Every user is in it. Each debiased column averages to the truth:")
    with pl.Config(tbl_width_chars=78, tbl_hide_dataframe_shape=True, float_precision=2):
        print(pl.read_parquet(published / "units.parquet", n_rows=3).drop("fold", "response"))
    say("4. The analyst has that folder, and a table of customer tiers that is theirs alone:")
    run_command(
        f"estimate {published}",
        f"--segments {FOLDER}/crm.csv --by tier",
        f"--plot {FOLDER}/forest.svg",
        f"--html {report}",
    )
    true = ", ".join(f"{name} {effect:.4f}" for name, effect in effects.items())
    say(
        f"5. The true overall effects, which only this simulation knows: {true}. Each interval "
        "misses the truth one time in twenty; run it again."
    )
    say("Now open in a browser:")
    pages = {
        page: "the plan, with a slider over ε",
        published / "index.html": "what was published, and how to use it",
        report: "what the analyst found",
    }
    for path, words in pages.items():
        print(f"  {path!s:32}  {words}")
    print("\ndocs/planning.md compares mechanisms.")


if __name__ == "__main__":
    main()
