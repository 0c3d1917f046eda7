"""What the analyst's screens, the ledger and errors show at 80 columns, word by word.

The table is made by formula, and key, noise and day are fixed, so the numbers are the same always.
The randomizer follows from a formula, too: last digits of an optimal one depend on the processor.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import clusterdp as cdp
from cli_runs import run
from fixed_randomness import fixed_randomness
from frozen_releases import PARTS, experiment

if TYPE_CHECKING:
    from pathlib import Path

OVERALL = """\
treated = 1 vs 0 (control), 480 units, within markets, ε = 6

  metric    effect         95% CI  p-value  control  treatment    lift
  visit   +20.2 pp   [10.7, 29.7]  <0.0001    38.8%      59.0%  +52.1%
  clicks     +0.18  [-0.05, 0.41]   0.1162     0.97       1.15  +18.9%
  rounds     +0.95   [0.49, 1.41]  <0.0001     2.87       3.82  +33.0%

Significant at 5% after Holm correction: visit, rounds. No clear effect on
clicks.
Variance due to privacy: visit 15%, clicks 22%, rounds 53%.

note: rounds is clipped to 0–10.
Next: add --by COLUMN for segments, --html report.html to share, -v for more
"""
BY_TIER = """\
visit: treated = 1 vs 0 (control), by tier, ε = 6

  tier   units    effect        95% CI   Holm p   0   10   20    30   40 pp
  all      480  +20.2 pp  [10.7, 29.7]  <0.0001   │     ─────●─────
  basic    240  +22.1 pp  [ 5.6, 38.7]   0.0436   │  ─────────●────────
  gold     240  +18.3 pp  [ 1.7, 34.9]   0.1236   │─────────●────────

No clear effect in gold. Holm p is corrected for 6 segment effects. Below:
clicks, rounds.

clicks: treated = 1 vs 0 (control), by tier, ε = 6

  tier   units  effect         95% CI  Holm p   -0.4     0       0.4
  all      480   +0.18  [-0.05, 0.41]  0.1162           ─┼───●──────
  basic    240   +0.20  [-0.19, 0.58]  0.9700        ────┼────●─────────
  gold     240   +0.17  [-0.22, 0.56]  0.9700       ─────┼───●─────────

No clear effect in any segment.

rounds: treated = 1 vs 0 (control), by tier, ε = 6

  tier   units  effect         95% CI   Holm p   -1    0     1    2     3
  all      480   +0.95  [ 0.49, 1.41]  <0.0001         │  ──●───
  basic    240   +1.65  [ 0.82, 2.48]   0.0006         │   ─────●─────
  gold     240   +0.25  [-0.59, 1.08]   0.9700     ────┼●─────

No clear effect in gold.

Variance due to privacy: visit 15% (up to 44% in segments), clicks 22% (up to
47% in segments), rounds 53% (up to 72% in segments).

note: rounds is clipped to 0–10.
Next: add --differences rest to compare segments, --html report.html to share,
  -v for more
"""
METRICS = """\
treated = 1 vs 0 (control), 480 units, within markets, ε = 6

  metric        effect         95% CI  p-value  control  treatment    lift
  rounds>=3          –  [-22.1, 51.2]   1.0000        –          –       –
  clicks/visit   -0.57  [-1.53, 0.25]   0.1791     2.53       1.96  -22.6%

No clear effect on clicks/visit.
Variance due to privacy: clicks/visit 13%.

note: rounds>=3 is not answerable from this release, because rounds was rounded
      between 2.8571 and 4.2857. In control it is anywhere between 40% and 63%.
      Ask the owner for metrics = ["rounds >= 3"].
note: rounds is clipped to 0–10.
Next: add --by COLUMN for segments, --html report.html to share, -v for more
"""
MOSTLY_NOISE = """\
warning: p95(rounds) is mostly privacy noise: an arm's mean has noise of about
         1.2 times the metric's range. Ask the owner to declare a threshold.
"""
NO_COLUMN = """\
error: no column 'teir' to segment by

  Did you mean 'tier'? Available: market, tier, fold.
  Fix: add your own with --segments FILE.
"""
LEDGER = """\
shop-users   ████████████░░░░░░░░░░░░   2 of 4 spent, 2 remaining
        date (UTC)   release  outcomes  ε     status  by
  2024-02-29 12:00  0123abcd     visit  2  published  me

Reader who knows all other units' outcomes: 50% sure → at most 89% (cap: 99%)
Next: clusterdp ledger verify budget.db (prints the hash to keep elsewhere)
"""
NO_BUDGET = """\
error: not enough budget for 'shop-users': this release needs ε = 2.5, and 2 of
       4 remains

  No outcome was read and nothing was spent.
  Fix: set epsilon = 2 or less.
"""
ASKED = {
    "overall": ([], OVERALL),
    "segments": (["--by", "tier"], BY_TIER),
    "metrics": (["--metric", "rounds>=3", "--metric", "clicks/visit"], METRICS),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place to work in, with a release."""
    monkeypatch.chdir(tmp_path)
    outcomes = {"visit": "0,1", "clicks": "0..3", "rounds": "number:0..10"}
    with fixed_randomness():
        cdp.publish(
            experiment(),
            **PARTS,
            out=tmp_path / "published",
            control=0,
            outcomes=outcomes,
            epsilon=6,
            passthrough="tier",
            mechanism="uniform-prior-dp",
            totals_share=0.2,
        )
    return tmp_path


@pytest.mark.parametrize(("asked", "screen"), ASKED.values(), ids=ASKED)
def test_estimates(asked: list[str], screen: str, folder: Path) -> None:
    assert (folder / "published").is_dir()
    assert run("estimate", "published", *asked, width=80).output == screen


def test_a_warning(folder: Path) -> None:
    declared = {"visit": "0,1", "rounds": "number:0..10"}
    with fixed_randomness():
        cdp.publish(
            experiment(), **PARTS, out=folder / "weak", control=0, outcomes=declared, epsilon=0.5
        )
    output = run("estimate", "weak", "--metric", "p95(rounds)", width=80).output
    assert output[output.index("warning:") : output.index("note:")] == MOSTLY_NOISE


def test_an_unknown_column(folder: Path) -> None:
    refused = run("estimate", folder / "published", "--by", "teir", width=80)
    assert (refused.exit_code, refused.output) == (2, NO_COLUMN)


def test_a_ledger_and_a_release_beyond_its_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment().write_parquet("t.parquet")
    cdp.Ledger.create("budget.db", cap_epsilon=4)
    spend = ["release", "t.parquet", "--unit", "user", "--arm", "treated", "--cluster", "market"]
    spend += ["--outcome", "visit=0,1", "--ledger", "budget.db", "--population", "shop-users"]
    paid = run(*spend, "--epsilon", 2, "--out", "first", "--new-population")
    assert paid.exit_code == 0, paid.output
    text = run("ledger", "show", "budget.db", width=80).output
    # When, its id, and the user who ran it; columns are as wide as the longest of them.
    row, shown = (
        re.sub(r" +", " ", re.sub(r"(\n  )\S+ \S+  [0-9a-f]{8} (.*published) +\S+", r"\1\2", one))
        for one in (text, LEDGER)
    )
    assert row == shown
    refused = run(*spend, "--epsilon", 2.5, "--out", "second", width=80)
    assert (refused.exit_code, refused.stderr) == (2, NO_BUDGET)
