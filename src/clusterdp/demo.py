"""The story of one experiment, a funnel of three outcomes, from the plan to the analyst's report.

clusterdp demo
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from clusterdp.errors import ParameterError
from clusterdp.owner.keywords import in_lines

# What the owner fills in of the draft of `clusterdp init`: what can happen, what earlier campaigns
# make them expect, and how much privacy. Nothing of it comes from this table.
FILLED_IN = {
    "visit": '{ type = "binary", baseline = 0.3 }',
    "order": '{ type = "binary", baseline = 0.1 }',
    "spend": '{ type = "number", range = [0, 200], baseline = { mean = 3, sd = 12 } }',
    "constraints": '["order -> visit", "spend > 0 -> order"]',
    "epsilon": "2",
    "title": '"Ad campaign: visits, orders and spend"',
}
FOLDER = Path("demo-output")
OUTCOMES = ("visit", "order", "spend")
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

    Users who order have visited, and users who spend have ordered. The ad brings two more visitors
    in a hundred users, and ten in a hundred among gold customers, which only the analyst knows.
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
        [pl.Series(name, np.where(treated == 1, arms[1][name], arms[0][name])) for name in OUTCOMES]
    )
    effects = {name: float((arms[1][name] - arms[0][name]).mean()) for name in OUTCOMES}
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
    arguments = [word for part in words for word in shlex.split(part)]
    subprocess.run([sys.executable, "-m", "clusterdp", *arguments], check=True)  # noqa: S603 - our own


def fill_in(path: Path) -> None:
    """Complete a draft, and print the lines that were filled in."""
    lines = path.read_text(encoding="utf-8").splitlines()
    keys = [line.partition(" = ")[0] for line in lines]
    filled = {key: f"{key} = {FILLED_IN[key]}" for key in keys if key in FILLED_IN}
    completed = [filled.get(key, line) for key, line in zip(keys, lines, strict=True)]
    path.write_text("\n".join(completed) + "\n", encoding="utf-8")
    print(*filled.values(), sep="\n")


def print_rows(rows: pl.DataFrame) -> None:
    """Print a few rows that fit a terminal."""
    with pl.Config(
        tbl_width_chars=78,
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        float_precision=2,
    ):
        print(rows)


def say(text: str) -> None:
    """Print a paragraph that fits a terminal."""
    print(f"\n{textwrap.fill(text, 78)}", flush=True)


def main() -> None:
    """Run both halves and show what each of them sees."""
    if find_spec("sqlalchemy") is None:
        raise ParameterError(
            "The demo has a ledger, which is not installed. Nothing was written. Fix: "
            "pip install 'clusterdp[ledger]'."
        )
    owner, analyst, effects = simulate_campaign(np.random.default_rng())
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    owner.write_parquet(FOLDER / "funnel.parquet")
    analyst.write_csv(FOLDER / "crm.csv")
    file, published = FOLDER / "experiment.toml", FOLDER / "published"
    page, report = FOLDER / "plan.html", FOLDER / "report.html"

    say(
        f"1. A shop showed an ad to half of {_PEOPLE:,} users. It has a table of who visited, who "
        "ordered and what they spent. Only the shop may see it:"
    )
    print_rows(owner.head(3))
    say("2. The owner drafts a file from the names and types of columns. No outcome is read:")
    run_command(
        f"init {FOLDER}/funnel.parquet",
        "--unit user --arm treated --cluster market",
        f"--out {file}",
    )
    say("The owner fills in what only they know, and adds nothing from the table:")
    fill_in(file)
    say(
        "3. The owner plans, which reads arms and markets only. The page shows a meeting what "
        "each ε protects, and which effects it can detect:"
    )
    run_command(f"plan {file} --html {page}")
    say("4. The owner publishes as planned, once. A ledger counts it:")
    ledger = FOLDER / "budget.db"
    run_command(f"ledger init {ledger} --cap-epsilon 4")
    run_command(f"release {file}", f"--ledger {ledger} --population shop-users --yes")
    say("Every user is in it. Each debiased column averages to the truth:")
    print_rows(pl.read_parquet(published / "units.parquet", n_rows=3).drop("fold", "response"))
    say("5. The analyst has that folder, and a table of customer tiers of their own:")
    run_command(
        f"estimate {published}",
        f"--segments {FOLDER}/crm.csv --by tier",
        *([f"--plot {FOLDER}/forest.svg"] if find_spec("matplotlib") else []),
        f"--html {report}",
    )
    say(
        "6. Effects by tier are noisy. Tiers were chosen before anyone looked at rows, so the "
        "analyst asks for noisy totals of all of them. The owner will see these labels:"
    )
    asked, answer = FOLDER / "followup", FOLDER / "answer"
    run_command(
        f"ask {published}",
        f"--segments {FOLDER}/crm.csv --by tier --metric visit",
        f"--out {asked}",
    )
    say("7. The owner answers with a tenth of the budget that the release took:")
    run_command(f"answer {asked}", f"--epsilon 0.2 --ledger {ledger} --out {answer} --yes")
    say("8. The same effects, now by rows and totals:")
    run_command(f"estimate {published}", f"--answer {answer} --by tier --metric visit")
    true = ", ".join(f"{name} {effect:.4f}" for name, effect in effects.items())
    say(
        f"9. The true overall effects, which only this simulation knows: {true}. Each 95% CI "
        "misses the truth one time in twenty; run it again."
    )
    say("Now open in a browser:")
    pages = {
        page: "the plan, with a slider over ε",
        published / "index.html": "what was published, and how to use it",
        report: "what the analyst found",
        answer / "index.html": "what was answered later",
    }
    for path, words in pages.items():
        print(f"  {path!s:32}  {words}")
    print("\ndocs/owner/plan.md shows how to choose ε.")
    print("docs/analyst/followup.md shows how to ask later.")
