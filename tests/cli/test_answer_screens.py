"""What `ask` and `answer` show at 80 columns, word by word; it follows from public numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

import clusterdp as cdp
from cli_runs import run
from frozen_releases import experiment

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ASKED = """\
Wrote followup: the owner will see these labels. labels.parquet has an id and a
label for 480 units. Send the folder only if you may share them.

SE of effects on visit
              units     now  ε = 0.05  ε = 0.1  ε = 0.2  ε = 0.5  no privacy
  tier=basic    319  7.2 pp    7.2 pp   7.1 pp   6.8 pp   6.2 pp      5.6 pp
  tier=gold     161   11 pp     11 pp    11 pp    11 pp   9.3 pp      7.9 pp

note: If you chose these segments by looking at released rows, ask with
      --found-in-fold: the same units overstate the effects they were chosen
      for.
Next: send followup to the owner: clusterdp answer followup --epsilon 0.2
  --ledger ... --out answer
"""
ANSWERED = """\
This publishes noisy totals of 2 groups to answer and cannot be undone.

Asked      tier of 480 units
Metrics    visit
Public     names of groups and their sizes by arm; ids and labels only as a
           checksum
Protected  visit: ε = 0.5, δ = 0, one unit's outcomes (label DP)
           reader who knows all other units' outcomes: 50% sure → at most 63%
Budget     shop-users: spends 0.5 of the 2 remaining
Reason     which tier to target

SE of effects on visit
              units     now  ε = 0.5  no privacy
  tier=basic    319  7.2 pp   6.2 pp      5.6 pp
  tier=gold     161   11 pp   9.3 pp      7.9 pp

note: The ledger has 1 earlier release of 'visit' about 'shop-users'. With this
      one, all releases about 'shop-users' spend ε = 2.5.
Next: the same without --dry-run
"""


def test_a_question_and_what_an_answer_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = experiment()
    table.write_parquet("t.parquet")
    gold = pl.when(pl.col("user") % 3 == 0).then(pl.lit("gold")).otherwise(pl.lit("basic"))
    table.select("user", tier=gold).write_csv("crm.csv")
    cdp.Ledger.create("budget.db", cap_epsilon=4)
    spend = ["release", "t.parquet", "--unit", "user", "--arm", "treated", "--cluster", "market"]
    spend += ["--outcome", "visit=0,1", "--ledger", "budget.db", "--population", "shop-users"]
    paid = run(*spend, "--epsilon", 2, "--out", "published", "--new-population")
    assert paid.exit_code == 0, paid.output
    ask = ["ask", "published", "--segments", "crm.csv", "--by", "tier"]
    asked = run(*ask, "--reason", "which tier to target", "--out", "followup", width=80)
    assert (asked.exit_code, asked.output) == (0, ASKED)
    answer = ["answer", "followup", "--epsilon", 0.5, "--ledger", "budget.db", "--out", "answer"]
    previewed = run(*answer, "--dry-run", width=80)
    assert (previewed.exit_code, previewed.output) == (0, ANSWERED)
