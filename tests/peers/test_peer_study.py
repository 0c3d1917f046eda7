"""The comparison with methods of others, in short: every method on small draws, and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from bench.peers import methods
from bench.peers.__main__ import plan_of
from bench.peers.costs import Cost
from bench.peers.figures import FIGURES, draw_figures
from bench.peers.hillstrom import read_hillstrom
from bench.peers.methods import METHODS
from bench.peers.page import as_markdown
from bench.peers.promise import PROMISES
from bench.peers.results import Results, load, save
from bench.peers.simulated import AllRespond, FewRespond, SimulatedPopulation
from bench.peers.study import (
    EPSILONS,
    HILLSTROM,
    OVERALL,
    SIMULATED,
    Found,
    Key,
    Mean,
    gain_of,
    judge,
    measure_method,
)
from bench.peers.summary import GAIN, OVERALL_ERROR, Summary
from bench.peers.tables import described
from bench.peers.trial import BY_ONE_FEATURE, BY_OWN_COLUMN, BY_TWO_FEATURES

from assertions import assert_mean

if TYPE_CHECKING:
    from pathlib import Path

    from bench.peers.trial import Trial

LIBRARIES = {
    methods.PURE_LDP: "pure_ldp",
    methods.MULTI_FREQ: "multi_freq_ldpy",
    methods.BOOSTED: "interpret.privacy",
}


@pytest.fixture(scope="module")
def trial() -> Trial:
    return SimulatedPopulation(FewRespond(), n_units=2000).draw(np.random.default_rng())


@pytest.fixture(scope="module")
def results(trial: Trial) -> Results:
    """Of one draw, which stands for all; methods whose library is missing have what others found.

    The page needs numbers of every method; whether a library responds as it should is tested where
    it is installed.
    """
    rng = np.random.default_rng()
    quick = [one for one in METHODS if one not in {*LIBRARIES, methods.OPENDP}]
    measured = {one.name: measure_method(one, trial, 1.0, rng) for one in quick}
    forced = measured[methods.FORCED.name]
    found: Found = {
        Key(population, one.name, epsilon, *what): [value, 1.1 * value]
        for population in SIMULATED
        for one in METHODS
        for epsilon in EPSILONS
        for what, value in measured.get(one.name, forced).items()
    }
    costs = {one.name: Cost(0.1, 10.0) for one in METHODS}
    return Results(summary=Summary(found), costs=costs, n_units=2000, rates={"OpenDP": 1e4})


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.name)
def test_every_method_answers_what_it_says(method: methods.Method, trial: Trial) -> None:
    if method in LIBRARIES:
        name = LIBRARIES[method]
        pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[bench]'")
    found = measure_method(method, trial, 2.0, np.random.default_rng())
    assert (OVERALL, "squared error") in found
    assert all(np.isfinite(value) for value in found.values())
    one_question = method.questions == methods.ONE
    assert ((BY_OWN_COLUMN, "squared error") in found) is not one_question
    assert (("targeting", "gain") in found) is not one_question


def test_the_page_has_every_method_and_its_promise_above_it(results: Results) -> None:
    text = as_markdown(results)
    tables = text.split("### ")[1:]
    assert len(tables) == 6 * len(SIMULATED)
    for table in tables:
        for promise in PROMISES:
            above = table.index(described(promise))
            for method in METHODS:
                if method.promise is promise:
                    assert above < table.index(f"| {method.name} | {method.released} |")
    assert "Hillstrom's table was not there" in text
    assert "nan" not in text


def test_the_page_of_a_file_is_that_of_its_run(results: Results, tmp_path: Path) -> None:
    save(results, tmp_path / "found.json")
    assert as_markdown(load(tmp_path / "found.json")) == as_markdown(results)


def test_figures_are_drawn_and_say_what_each_line_promises(
    results: Results, tmp_path: Path
) -> None:
    draw_figures(results.summary, tmp_path)
    for one in FIGURES:
        text = (tmp_path / one.name).read_text(encoding="utf-8")
        assert methods.OURS.name in text
        assert methods.OURS.promise.title in text


def test_answers_are_judged_against_the_truth() -> None:
    from bench.peers.given import Answer

    assert judge(Answer(0.3, 0.1, 0.5), 0.2) == pytest.approx(
        {"squared error": 0.01, "covered": 1.0, "width": 0.4}
    )
    assert judge(Answer(0.3, 0.1, 0.5), 0.6)["covered"] == 0
    assert set(judge(Answer(0.3), 0.6)) == {"squared error"}


def test_means_have_the_error_of_their_runs() -> None:
    mean = Mean.of([1.0, 2.0, 3.0, 6.0])
    assert mean.value == 3.0
    assert mean.error == pytest.approx(np.std([1, 2, 3, 6], ddof=1) / 2)


def test_ratios_are_of_the_methods_that_are_named(results: Results) -> None:
    summary = results.summary
    above, below = methods.FORCED, methods.NO_PRIVACY
    low, high = summary.ratios(OVERALL_ERROR, above, below)
    values = [
        summary.found[Key(SIMULATED[0], one.name, 1.0, OVERALL, "squared error")][0]
        for one in (above, below)
    ]
    assert low == pytest.approx(values[0] / values[1])
    assert high == pytest.approx(low)
    assert summary.mean(GAIN, SIMULATED[0], methods.ONE_CLUSTER, 1.0) is None


@pytest.mark.parametrize("law", [FewRespond(), AllRespond()], ids=lambda one: one.name)
def test_true_effects_are_those_of_the_law(law: FewRespond | AllRespond) -> None:
    """Features are uniform in [−1, 1], a fifth has a tier that adds 0.08: integrals by hand."""
    effect, segments = SimulatedPopulation(law).truth
    tier = 0.2 * 0.08
    few = {
        BY_TWO_FEATURES: 0.15 + tier,
        BY_ONE_FEATURE: 0.09 + tier,
        BY_OWN_COLUMN: 0.06 + 0.08,
    }
    every = {
        BY_TWO_FEATURES: 0.04 + 0.025 + tier,
        BY_ONE_FEATURE: 0.04 + 0.0225 + tier,
        BY_OWN_COLUMN: 0.04 + 0.08,
    }
    expected = few if law.n_features == 3 else every
    assert effect == pytest.approx(expected[BY_OWN_COLUMN] - 0.08 + tier, abs=5e-4)
    assert segments == pytest.approx(expected, abs=2e-3)


def test_the_best_rule_gains_most_and_its_opposite_least(trial: Trial) -> None:
    class Told:
        """Who is told the effects, or their opposite."""

        def __init__(self, sign: float) -> None:
            self.sign = sign

        def overall(self) -> None: ...

        def segment(self, inside: np.ndarray) -> None: ...

        def uplift(self, features: np.ndarray) -> np.ndarray:
            return np.asarray(self.sign * FewRespond().effect(features))

    best, worst = (gain_of(Told(sign), trial) for sign in (1.0, -1.0))
    assert best is not None
    assert worst is not None
    # A quarter has 0.15 and the others 0.03: 30% are that quarter and a sixth of themselves more.
    assert best == pytest.approx((0.25 * 0.15 + 0.05 * 0.03) / 0.3 - 0.06, abs=2e-3)
    assert worst == pytest.approx(0.03 - 0.06, abs=2e-3)


def test_outcomes_of_a_draw_have_the_mean_of_the_law() -> None:
    sample = SimulatedPopulation(AllRespond(), n_units=20_000).draw(np.random.default_rng()).sample
    assert_mean(sample.outcomes[sample.arms == 0], 0.3, 0.3**0.5)
    assert sample.arms.sum() == 10_000
    with pytest.raises(AssertionError):
        assert_mean(sample.outcomes[sample.arms == 1], 0.3, 0.3**0.5)


def test_hillstrom_is_read_and_halved(tmp_path: Path) -> None:
    """A table of its form; women's e-mails, that of men left out."""
    rng, n_rows = np.random.default_rng(), 6000
    arms = ["No E-Mail", "Womens E-Mail", "Mens E-Mail"]
    pl.DataFrame(
        {
            "recency": rng.integers(1, 13, n_rows),
            "history_segment": rng.choice(["1) $0 - $100", "2) $100 - $200"], n_rows),
            "history": rng.uniform(30, 3000, n_rows),
            "mens": rng.integers(0, 2, n_rows),
            "womens": rng.integers(0, 2, n_rows),
            "zip_code": rng.choice(["Urban", "Rural", "Surburban"], n_rows),
            "newbie": rng.integers(0, 2, n_rows),
            "channel": rng.choice(["Web", "Phone", "Multichannel"], n_rows),
            "segment": rng.choice(arms, n_rows),
            "visit": rng.integers(0, 2, n_rows),
        }
    ).write_csv(tmp_path / "hillstrom.csv")
    drawn = read_hillstrom(tmp_path / "hillstrom.csv").draw(rng)
    sample = drawn.sample
    assert sample.features.shape == (sample.n_units, 7)
    assert (sample.features >= sample.bounds[:, 0]).all()
    assert (sample.features <= sample.bounds[:, 1]).all()
    assert set(sample.clusters) == {1, 2}
    assert abs(sample.n_units - len(drawn.targeting.features)) <= 1
    everyone = np.ones(len(drawn.targeting.features), dtype=np.bool_)
    assert drawn.targeting.gain(everyone) == 0


def test_a_run_without_hillstrom_says_so_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path / "hillstrom.csv", 1, 1)
    assert plan.populations == SIMULATED
    assert "simulated populations alone" in capsys.readouterr().out
    (tmp_path / "hillstrom.csv").touch()
    assert plan_of(tmp_path / "hillstrom.csv", 1, 1).populations == (*SIMULATED, HILLSTROM)
