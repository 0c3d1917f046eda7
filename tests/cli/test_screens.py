"""What the owner's screens and `inspect` show at 80 columns, word by word.

The table is made by formula, and key, noise and day are fixed, so the numbers are the same always.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cli_runs import run
from fixed_randomness import fixed_randomness
from frozen_releases import experiment

if TYPE_CHECKING:
    from pathlib import Path

DECLARED = """
[table]
source = "experiment.parquet"
unit = "user"
arm = "treated"
control = 0
cluster = "market"

[outcomes]
visit = { type = "binary", baseline = 0.30 }
clicks = { type = "count", max = 3, baseline = { mean = 1, sd = 1 } }

[privacy]
epsilon = 2

[about]
title = "Ad campaign"
contact = "experiments@example.org"

[output]
folder = "published"
"""
MDE = """
Minimum detectable effect (80% power, two-sided 5% test)
               all units         10% segment         1% segment
  outcome  ε = 2  no privacy  ε = 2  no privacy  ε = 2  no privacy
  visit    15 pp       12 pp  91 pp       37 pp   none        none
  clicks    0.37        0.26    2.2        0.81   none         2.6
"""
PLAN = f"""\
At ε = 2 you can detect a change in visit of 15 pp among all units, and of 91 pp
in a 10% segment.
{MDE}
Privacy     ε = 2, δ = 0, one unit's outcomes (label DP). A reader who knows
            every other unit's outcomes and is 50% sure of one unit's outcome
            can be at most 89% sure after reading the release.
Design      480 units, 3 clusters (market), 2 arms. No outcome was read.
Assumes     your baselines: visit 30%, clicks mean 1 (sd 1)
ε split     73% rows (any segment later), 27% arm totals (overall effect)
Budget      no ledger (cannot be added later; see [privacy])
Not stated  description, license (cannot be added later; see [about])

Wrote experiment.lock and plan.html. Add -v for more
Next: clusterdp release experiment.toml
"""
RELEASE = """\
This publishes 480 units to published and cannot be undone.

Public      user, treated, market: exactly as in your table
Protected   visit, clicks: ε = 2, δ = 0, one unit's outcomes (label DP)
            reader who knows all other units' outcomes: 50% sure → at most 89%
Budget      no ledger (cannot be added later; see [privacy])
Not stated  description, license (cannot be added later; see [about])

Published to published (7 files, 0.1 MB)
Next: clusterdp inspect published
"""
ASKED = """\
This publishes 480 units to again and cannot be undone.

Public      user, treated, market: exactly as in your table
Protected   visit, clicks: ε = 2, δ = 0, one unit's outcomes (label DP)
            reader who knows all other units' outcomes: 50% sure → at most 89%
Budget      shop-users: spends 2 of the 4 remaining
Not stated  description, license (cannot be added later; see [about])

Published to again (7 files, 0.1 MB)
Release ID, 2 of 4 remaining.
Next: clusterdp inspect again
"""
INSPECT = f"""\
Ad campaign, published 2024-02-29

480 units (user), 2 arms (treated: 0 = control, 1), 3 clusters (market)
{MDE}
Public      user, treated, market, fold
Randomized  response, visit_debiased, clicks_debiased
Privacy     ε = 2, δ = 0, one unit's outcomes (label DP). A reader who knows
            every other unit's outcomes and is 50% sure of one unit's outcome
            can be at most 89% sure after reading the release.
Contact     experiments@example.org
Budget      no ledger: earlier releases about these units are unknown
Not stated  description, dates, license, approver, reason for ε. License not
            stated: ask before sharing.

Next: clusterdp estimate published
"""


DRAFTED = """\
Wrote draft.toml: 11 columns, 480 rows, 2 arms, 3 clusters, no duplicate ids. No
outcome was read.
Next: fill in each "?" and each [], then clusterdp plan draft.toml
"""
VERIFIED = """\
published is sound: it passed all 16 checks.

ok   manifest, checksums and schema
ok   the folder has no other files
ok   the guarantee matches the parameters
ok   files have no hidden content
ok   the README matches the manifest
ok   index.html matches the manifest
ok   randomizers match the published numbers
ok   randomizers satisfy their stated epsilon
ok   randomizers are unbiased
ok   rows can be read
ok   row counts match cell sizes
ok   debiased columns match responses
ok   each unit has one row
ok   row counts match the groups of breakdowns
ok   folds match ids
ok   rows are sorted by id
note: No check can confirm these statements of the owner:
- that responses were drawn as stated
- that noise in statistics was drawn as stated
- names, labels and values of outcomes
- which columns are private
- entries of the manifest: control, expected, prior, title, contact, released_on
"""


def test_screens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    experiment().write_parquet("experiment.parquet")
    (tmp_path / "experiment.toml").write_text(DECLARED, encoding="utf-8")
    with fixed_randomness():
        planned = run("plan", "experiment.toml", "--html", "plan.html", width=80)
        released = run("release", "experiment.toml", "--yes", width=80)
    assert planned.stdout == PLAN
    assert released.stdout == RELEASE
    assert run("inspect", "published", width=80).stdout == INSPECT
    public = ["--unit", "user", "--arm", "treated", "--cluster", "market"]
    drafted = run("init", "experiment.parquet", *public, "--out", "draft.toml", width=80)
    assert drafted.stdout == DRAFTED
    assert run("verify", "published", width=80).stdout == VERIFIED


def test_a_release_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("clusterdp.cli.owner.on_terminal", lambda: True)
    experiment().write_parquet("experiment.parquet")
    budget = 'ledger = "budget.db"\npopulation = "shop-users"\n\n[about]'
    declared = DECLARED.replace("[about]", budget).replace('"published"', '"again"')
    (tmp_path / "experiment.toml").write_text(declared, encoding="utf-8")
    assert run("ledger", "init", "budget.db", "--cap-epsilon", 4).exit_code == 0
    with fixed_randomness():
        assert run("plan", "experiment.toml").exit_code == 0
        done = run("release", "experiment.toml", "--new-population", width=80, typed="y\n")
    assert re.sub("Release [0-9a-f]{8}", "Release ID", done.stdout) == ASKED


@pytest.mark.parametrize("width", [40, 60, 80])
def test_more_fits_every_terminal(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment().write_parquet("experiment.parquet")
    (tmp_path / "experiment.toml").write_text(DECLARED, encoding="utf-8")
    planned = run("plan", "experiment.toml", "-v", width=width)
    previewed = run("release", "experiment.toml", "--dry-run", "-v", width=width)
    for done in (planned, previewed):
        assert done.exit_code == 0, done.output
        assert max(map(len, done.stdout.splitlines())) <= width
    assert "Mechanism" in planned.stdout
    assert "SE among all units, by mechanism" in " ".join(planned.stdout.split())
    assert "Mechanism" in previewed.stdout
