"""Intervals of shares, quantiles and ratios cover: a part of `make bench-metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from bench.metric_coverage import MECHANISMS, OTHERS, rates, study
from bench.metric_draws import (
    ArmMean,
    Experiment,
    Question,
    draw,
    questions,
    released_estimates,
)
from bench.metric_lines import LEVEL
from scipy import stats

import clusterdp as cdp
from assertions import ALPHA
from clusterdp.estimation.means import spread
from clusterdp.estimation.metrics.levels import Levels
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.outcomes.grid import Grid

if TYPE_CHECKING:
    from clusterdp.mechanisms.mechanism import Mechanism

N_REPLICATES = 500
CASES: dict[str, tuple[int, int, dict[str, Mechanism]]] = {
    "two values": (2, 2_000, {"ε=1": MECHANISMS["ε=1"]}),
    "six values": (6, 2_000, {"ε=2": MECHANISMS["ε=2"]}),
    "a channel by cell": (6, 20_000, {"Cluster-DP": OTHERS["Cluster-DP"]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_intervals_cover(case: str, rng: np.random.Generator) -> None:
    """False alarms: ALPHA for each rate if it is 93.5%, and for each bias.

    Quantiles jump between values, and have a bias from true outcomes too.
    """
    fewest = stats.binom.ppf(ALPHA, N_REPLICATES, 0.935) / N_REPLICATES
    # Two arms are counted as one, though they are independent.
    n_outcomes, n_units, mechanisms = CASES[case]
    for line in study(questions(n_outcomes), n_units, mechanisms, N_REPLICATES, rng):
        (found,) = line.private.values()
        assert found.arm >= fewest, line
        assert found.difference >= fewest, line
        if line.name == "share":
            assert abs(found.bias) <= stats.norm.isf(ALPHA / 2), line


def test_intervals_that_forget_privacy_do_not_cover(rng: np.random.Generator) -> None:
    """The negative control, for every kind of metric that is not a few values."""
    for experiment, question in questions(6):
        if question.name not in {"share", "ratio"}:
            continue
        drawn = draw(experiment, 2_000, 0.2, N_REPLICATES, rng)
        mechanism = MECHANISMS["ε=1"]
        found = released_estimates(drawn, question, experiment.space, mechanism, rng)
        blind = [
            (
                control._replace(privacy=np.zeros_like(control.privacy)),
                treated._replace(privacy=np.zeros_like(treated.privacy)),
            )
            for control, treated in found
        ]
        covered = rates(blind, question)
        assert covered.difference < LEVEL - 0.1


def skewed() -> tuple[Experiment, Question]:
    """Amounts up to 10,000 of a number up to 16 million, whose rows hardly tell them apart."""
    number = cdp.Number(0, 16_000_000)
    grid = Grid(number=number, points=(0, 1000, 3000, 6000, 10_000, 16_000_000))
    space = Categories(declared=declare({"y": number}), grids=(grid,))
    probs = np.array([[0.3, 0.3, 0.2, 0.15, 0.05, 0.0], [0.25, 0.3, 0.2, 0.15, 0.1, 0.0]])
    share = Levels("y", space).functions[2]
    control, treated = (float(true) for true in probs @ share.values)
    return Experiment(space, probs), Question("share", (share,), ArmMean, (control, treated))


def test_noise_that_few_rows_carry_is_bounded(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False alarms: ALPHA if intervals cover 94%; the negative control estimates the noise."""
    experiment, question = skewed()
    mechanism = cdp.optimal(epsilon=2)
    drawn = draw(experiment, 2_000, 1.0, 300, rng)

    def covered() -> float:
        found = released_estimates(drawn, question, experiment.space, mechanism, rng)
        return rates(found, question).arm

    assert covered() >= stats.binom.ppf(ALPHA, 300, 0.94) / 300
    monkeypatch.setattr(spread, "_MOST_KURTOSIS", np.inf)
    assert covered() < 0.8
