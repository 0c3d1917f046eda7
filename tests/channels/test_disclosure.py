"""What ε means to people: odds beside every guarantee, and how much rows give away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from assertions import assert_mean
from cli_runs import PARTS, release, run
from clusterdp.mechanisms.draw import best_guesses, disclosure_notes
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.mechanisms.mechanism import Mechanism

BINARY, FOUR = (Categories(declared=declare({"y": values})) for values in ("0,1", "0..3"))

DECLARED = (0.7, 0.1, 0.1, 0.1)
MECHANISMS = {
    "optimal": cdp.optimal(epsilon=4),
    "declared": cdp.optimal(epsilon=4, prior=DECLARED),
    "delta": cdp.optimal(epsilon=3, delta=0.01),
    "uniform": cdp.uniform_prior_dp(epsilon=4),
    "clustered": cdp.cluster_dp(noise_scale=3, prior_floor=0.1, epsilon=5),
}


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
def test_the_best_guess_by_hand(mechanism: Mechanism) -> None:
    """Against every rule of guessing one by one: output by output, the likeliest outcome."""
    prior = DECLARED if mechanism is MECHANISMS["declared"] else (0.25,) * 4
    right = 0.0
    for row in mechanism.settled_rows(FOUR).public_channel(FOUR).transition()[0]:
        right += max(prob * weight for prob, weight in zip(row, prior, strict=True))
    from_row, without = best_guesses(mechanism, FOUR)
    assert from_row == pytest.approx(right)
    assert without == max(prior)
    guarantee = mechanism.guarantee(FOUR)
    factor = np.exp(guarantee.epsilon)
    # Nobody guesses better than privacy allows.
    assert max(prior) <= from_row <= min(1, factor * max(prior) + guarantee.delta)


def test_rows_give_away_the_share_that_is_said(rng: np.random.Generator) -> None:
    """Read off the rows of a release; the share said of another ε is rejected."""
    n_rows = 100_000
    table = pl.DataFrame(
        {
            "user": rng.permutation(n_rows),
            "arm": np.arange(n_rows) % 2,
            "cluster": np.zeros(n_rows, np.int64),
            "y": rng.integers(0, 2, n_rows),
        }
    )
    released = cdp.release(
        table,
        mechanism=cdp.optimal(epsilon=5),
        outcomes={"y": "0,1"},
        unit="user",
        arm="arm",
        cluster="cluster",
    )
    rows = table.join(released.units.select("user", "y_debiased"), on="user")
    right = ((rows["y_debiased"] > 0.5) == (rows["y"] == 1)).to_numpy()

    def check(epsilon: float) -> None:
        share = best_guesses(cdp.optimal(epsilon=epsilon), BINARY)[0]
        assert_mean(right, share, np.sqrt(share * (1 - share)))

    check(5)
    with pytest.raises(AssertionError):
        check(4.5)


def test_small_epsilons_and_aggregates_have_no_note() -> None:
    assert not disclosure_notes(cdp.optimal(epsilon=2.9), BINARY)
    assert not disclosure_notes(cdp.noisy_histogram(epsilon=9), BINARY)
    (note,) = disclosure_notes(cdp.optimal(epsilon=5), BINARY, unit="customer")
    assert "a lot about y: the best guess from a customer's row" in note
    assert "99.4% of customers, against 50% without the row" in note
    (declared,) = disclosure_notes(MECHANISMS["declared"], FOUR)
    assert "as likely as declared" in declared


def test_rows_that_say_little_have_no_note() -> None:
    """Where nearly all units are alike, the best guess hardly needs the row, at the same ε."""
    rare = cdp.optimal(epsilon=4, prior=(0.997, 0.003))
    from_row, without = best_guesses(rare, BINARY)
    assert from_row < without + 0.003
    assert not disclosure_notes(rare, BINARY)
    assert disclosure_notes(cdp.optimal(epsilon=4, prior=(0.5, 0.5)), BINARY)


def test_it_is_said_wherever_a_release_is_shown(source: Path, tmp_path: Path) -> None:
    strong = ("--epsilon", 6)
    told = "At this ε rows reveal a lot"
    odds = "at most 99.8%"
    plan = run("plan", source, *PARTS[2:], *strong, "--out", tmp_path / "p.toml")
    options = (*PARTS, *strong)
    dry = run("release", source, *options, "--dry-run")
    shown = [plan.output, dry.output]
    done = release(source, tmp_path / "out", *strong)
    assert done.exit_code == 0, done.output
    shown += [done.output, (tmp_path / "out" / "README.md").read_text()]
    shown.append(run("inspect", tmp_path / "out").output)
    for text in shown:
        plain = " ".join(text.split())
        assert told in plain
        assert odds in plain
    assert any(told in note for note in cdp.read_release(tmp_path / "out").notes)
    listed = json.loads(run("release", source, *options, "--dry-run", "--json").stdout)["plan"]
    assert any(told in note for note in listed["notes"])
    assert run("verify", tmp_path / "out").exit_code == 0
    assert told not in run("estimate", tmp_path / "out").output  # it is not about effects


def test_a_ledger_says_what_its_cap_means(tmp_path: Path) -> None:
    made = run("ledger", "init", tmp_path / "ledger", "--cap-epsilon", 2)
    assert "50% sure → at most 89%" in " ".join(made.output.split())
