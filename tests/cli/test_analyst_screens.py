"""What the analyst's screens, the ledger and errors show at 80 columns, word by word.

The table is made by formula, and key, noise and day are fixed, so the numbers are the same always.
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
  visit   +21.0 pp   [11.7, 30.3]  <0.0001    40.4%      61.4%  +52.1%
  clicks     +0.20  [-0.01, 0.42]   0.0652     0.95       1.15  +21.3%
  rounds     +0.92   [0.46, 1.38]  <0.0001     2.92       3.84  +31.5%

Significant at 5% after Holm correction: visit, rounds. No clear effect on
clicks.
Variance due to privacy: visit 10%, clicks 12%, rounds 48%.

note: rounds is clipped to 0–10.
note: At this ε rows reveal a lot: the best guess from a unit's row is right for
      32% of units, against 2% without the row (if outcomes are equally likely).
Next: add --by COLUMN for segments, --html report.html to share, -v for more
"""
BY_TIER = """\
visit: treated = 1 vs 0 (control), by tier, ε = 6

  tier   units    effect        95% CI   Holm p   0   10   20    30   40 pp
  all      480  +21.0 pp  [11.7, 30.3]  <0.0001   │     ─────●─────
  basic    240  +21.9 pp  [ 8.7, 35.0]   0.0056   │    ──────●───────
  gold     240  +20.1 pp  [ 6.9, 33.3]   0.0112   │   ───────●───────

Both segments have significant effects. Holm p is corrected for 6 segment
effects. Below: clicks, rounds.

clicks: treated = 1 vs 0 (control), by tier, ε = 6

  tier   units  effect         95% CI  Holm p   -0.2  0    0.2  0.4   0.6
  all      480   +0.20  [-0.01, 0.42]  0.0652        ─┼─────●──────
  basic    240   +0.15  [-0.16, 0.46]  0.3557    ─────┼───●─────────
  gold     240   +0.26  [-0.04, 0.56]  0.1834        ─┼──────●─────────

No clear effect in basic, gold.

rounds: treated = 1 vs 0 (control), by tier, ε = 6

  tier   units  effect         95% CI  Holm p        0        1        2
  all      480   +0.92  [ 0.46, 1.38]  0.0002        │   ────●────
  basic    240   +1.19  [ 0.54, 1.84]  0.0021        │    ──────●─────
  gold     240   +0.65  [-0.01, 1.31]  0.1601        ┼─────●──────

No clear effect in gold.

Variance due to privacy: visit 10% (up to 10% in segments), clicks 12% (up to
12% in segments), rounds 48% (up to 50% in segments).

note: rounds is clipped to 0–10.
note: At this ε rows reveal a lot: the best guess from a unit's row is right for
      32% of units, against 2% without the row (if outcomes are equally likely).
Next: add --differences rest to compare segments, --html report.html to share,
  -v for more
"""
METRICS = """\
treated = 1 vs 0 (control), 480 units, within markets, ε = 6

  metric        effect         95% CI  p-value  control  treatment    lift
  rounds>=3      +4 pp      [-38, 46]   1.0000      56%        60%   +7.1%
  clicks/visit   -0.48  [-1.37, 0.29]   0.2296     2.35       1.88  -20.2%

No clear effect on either metric.
Variance due to privacy: rounds>=3 76%, clicks/visit 8%.

note: rounds>=3 is known only within bounds, because rounds was rounded between
      2.857143 and 4.285714. The estimate is the midpoint; the CI covers both
      bounds.
note: rounds is clipped to 0–10.
note: At this ε rows reveal a lot: the best guess from a unit's row is right for
      32% of units, against 2% without the row (if outcomes are equally likely).
Next: add --by COLUMN for segments, --html report.html to share, -v for more
"""
MOSTLY_NOISE = """\
warning: p95(rounds) is mostly privacy noise: an arm's mean has noise of about
         1.2 times the metric's range. Ask the owner to declare a threshold.
"""
NO_COLUMN = """\
error: No column 'teir' to segment by

  Did you mean 'tier'? Available: market, tier, fold. Add your own with segments
  (--segments FILE).
"""
LEDGER = """\
shop-users   ████████████████░░░░░░░░░░░░░░░░   2 of 4 spent, 2 remaining
        date (UTC)   release  outcomes  ε     status  by
  2024-02-29 12:00  0123abcd     visit  2  published  me

Reader who knows all other units' outcomes: 50% sure → at most 89% (cap: 99%)
Hash of the last entry:
HASH
Next: clusterdp ledger verify budget.db (prints the hash to keep elsewhere)
"""
NO_BUDGET = """\
error: Not enough budget for 'shop-users': this release needs ε = 2.5, and 2 of
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
    masked = re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)
    # When, its id, and the user who ran it; columns are as wide as the longest of them.
    row, shown = (
        re.sub(r" +", " ", re.sub(r"(\n  )\S+ \S+  [0-9a-f]{8} (.*published) +\S+", r"\1\2", one))
        for one in (masked, LEDGER)
    )
    assert row == shown
    refused = run(*spend, "--epsilon", 2.5, "--out", "second", width=80)
    assert (refused.exit_code, refused.stderr) == (2, NO_BUDGET)
