"""How often decisions are wrong: verdicts on margins, and what they are made of.

    make bench-metrics

Experiments are drawn with effects at the boundary, where a verdict is wrong most often: arms anew,
outcomes released anew, effects estimated by the code that `estimate` calls. A few hundred more are
whole tables, released and estimated as people do. Writes `docs/studies/decisions.md`.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.study_page import write_study
from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.effect import EffectArrays, EffectTarget, to_effect
from clusterdp.estimation.effects.margins import best_arms, margin_verdicts
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.studies.simulation import simulate_estimates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clusterdp._arrays import FloatArray, IntArray
    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.estimation.effects.intervals import Scale
    from clusterdp.mechanisms.mechanism import Mechanism

N_UNITS, N_CLUSTERS = 20_000, 10
N_EXPERIMENTS, N_TOGETHER, N_RELEASES, N_COVERED = 10_000, 1000, 1000, 5000
N_MERGED, N_BEST = 500, 4000
PROBABLE = (0.5, 0.7, 0.9, 0.99)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
LEVEL, SPACE = 0.95, OutcomeSpace.integers(0, 1)


def mechanism(epsilon: float, totals: float) -> Mechanism:
    """Rows, and perhaps totals of arms."""
    return cdp.optimal(epsilon=epsilon, sums=cdp.SumShares(totals=totals))


def layout_of(n_arms: int, n_units: int = N_UNITS) -> Layout:
    """Clusters of one size, and arms of one size in each."""
    arms = tuple("ABCDEF"[:n_arms])
    sizes = np.full((N_CLUSTERS, n_arms), n_units // N_CLUSTERS // n_arms)
    return Layout(clusters=tuple(range(N_CLUSTERS)), arms=arms, control=0, sizes=sizes)


def experiments(
    rates: Sequence[float],
    released: Mechanism,
    n_experiments: int,
    rng: np.random.Generator,
    n_units: int = N_UNITS,
) -> Iterator[list[Effect]]:
    """The effects of each experiment, one per treatment, where arms have given shares of visits."""
    for _ in range(math.ceil(n_experiments / N_TOGETHER)):
        yield from drawn_together(np.tile(rates, (N_TOGETHER, 1)), released, rng, n_units)


def drawn_together(
    rates: FloatArray, released: Mechanism, rng: np.random.Generator, n_units: int = N_UNITS
) -> Iterator[list[Effect]]:
    """The effects of experiments, each with its own shares of visits; axes `[experiment, arm]`."""
    layout = layout_of(rates.shape[1], n_units)
    sizes = layout.sizes.sum(axis=0)
    ones = rng.binomial(layout.sizes, rates[:, np.newaxis])
    counts = np.stack([layout.sizes - ones, ones], axis=-1)
    arrays = simulate_estimates(counts, layout, SPACE, released, rng, "stratified", "everything")
    parts = {one.name: getattr(arrays, one.name) for one in fields(arrays)}
    for place in range(len(rates)):
        one: dict[str, Any] = {name: each[place] for name, each in parts.items()}
        yield [
            _effect(EffectArrays(**one), layout, sizes, position)
            for position in range(len(layout.treatments))
        ]


def _effect(arrays: EffectArrays, layout: Layout, sizes: IntArray, position: int) -> Effect:
    arm = layout.treatments[position]
    of = EffectTarget("visit", layout.arms[arm], layout.arms[layout.control])
    found = to_effect(arrays, of, sizes[[layout.control, arm]], position=position)
    return replace(found, possible=(0.0, 1.0), is_share=True)


def doubt(share: float, number: int) -> float:
    """The Monte Carlo standard error of a share."""
    return math.sqrt(share * (1 - share) / number)


class Question(NamedTuple):
    """A question of a margin whose true answer is no, as barely as it can be.

    Attributes:
        name: In words.
        effect: The true effect.
        margin: The margin.
        is_equivalence: Whether the effect should lie within ± the margin.
    """

    name: str
    effect: float
    margin: float
    is_equivalence: bool = False


QUESTIONS = (
    Question("not worse by more than the margin", -0.04, -0.04),
    Question("better by more than the margin", 0.04, 0.04),
    Question("equivalent within ± the margin", 0.12, 0.12, is_equivalence=True),
    Question("equivalent within ± the margin, worse", -0.12, 0.12, is_equivalence=True),
)


def holds(effects: Sequence[Effect], question: Question) -> bool:
    """Whether the verdict is yes."""
    given, none = {"visit": question.margin}, dict[str, float]()
    both = (none, given) if question.is_equivalence else (given, none)
    (verdict,) = margin_verdicts(effects, *both, LEVEL)
    return verdict.holds


def margin_lines(rng: np.random.Generator) -> Iterator[str]:
    """Errors of verdicts at the boundary."""
    for question in QUESTIONS:
        for epsilon in EPSILONS:
            for totals in (0.0, 0.1):
                rates, released = (0.3, 0.3 + question.effect), mechanism(epsilon, totals)
                drawn = experiments(rates, released, N_EXPERIMENTS, rng)
                wrong = float(np.mean([holds(one, question) for one in drawn]))
                yield (
                    f"| {question.name} | {epsilon:g} | {totals:.0%} | {N_EXPERIMENTS:,} | "
                    f"{wrong:.2%} ± {doubt(wrong, N_EXPERIMENTS):.2%} |"
                )


# Shares of control and of the treatment.
RATES = ((0.005, 0.0075), (0.02, 0.02), (0.1, 0.08), (0.5, 0.55), (0.97, 0.98))


def scale_lines(rng: np.random.Generator) -> Iterator[str]:
    """How often intervals of ratios and odds ratios cover."""
    for control, treated in RATES:
        odds = treated / (1 - treated) / (control / (1 - control))
        truths: dict[Scale, float] = {"ratio": treated / control, "odds": odds}
        for epsilon in EPSILONS:
            for totals in (0.0, 0.1):
                held, bounded = np.zeros(2), np.zeros(2)
                drawn = experiments((control, treated), mechanism(epsilon, totals), N_COVERED, rng)
                for (one,) in drawn:
                    for place, (scale, truth) in enumerate(truths.items()):
                        found = one.on_scale(scale, LEVEL)
                        assert found is not None  # noqa: S101 - both are of shares
                        held[place] += found.low <= truth <= found.high
                        bounded[place] += math.isfinite(found.high)
                covered = held / N_COVERED
                yield (
                    f"| {control:.1%} | {treated:.2%} | {epsilon:g} | {totals:.0%} | "
                    f"{covered[0]:.1%} | {bounded[0] / N_COVERED:.0%} | "
                    f"{covered[1]:.1%} | {bounded[1] / N_COVERED:.0%} |"
                )


def draw_table(rates: Sequence[float], n_units: int, rng: np.random.Generator) -> pl.DataFrame:
    """Users of arms A, B, … whose visits have given rates."""
    arm = rng.permutation(np.arange(n_units) % len(rates))
    visit = (rng.random(n_units) < np.array(rates)[arm]).astype(np.int64)
    names = np.array(list("ABCDEF"))[arm]
    return pl.DataFrame({"user": np.arange(n_units), "arm": names, "visit": visit})


def release(table: pl.DataFrame, epsilon: float) -> cdp.Release:
    """A release as people make it, with 10% of ε for totals."""
    return cdp.release(
        table,
        unit="user",
        arm="arm",
        control="A",
        outcomes={"visit": "0,1"},
        mechanism="optimal",
        totals_share=0.1,
        epsilon=epsilon,
    )


def whole_lines(rng: np.random.Generator) -> Iterator[str]:
    """The same of whole releases."""
    for question in QUESTIONS[:3]:
        wrong = []
        for _ in range(N_RELEASES):
            table = draw_table((0.3, 0.3 + question.effect), N_UNITS, rng)
            given = {"visit": question.margin}
            options: Any = {"equivalence" if question.is_equivalence else "margins": given}
            found = cdp.estimate(release(table, 2.0), **options)
            wrong.append(found.verdicts[0].holds)
        share = float(np.mean(wrong))
        error = doubt(share, N_RELEASES)
        yield f"| {question.name} | 2 | {N_RELEASES:,} | {share:.1%} ± {error:.1%} |"


def merged_lines(rng: np.random.Generator) -> Iterator[str]:
    """How often intervals of two arms merged against control cover, in whole releases."""
    rates = (0.3, 0.36, 0.42)
    for epsilon in EPSILONS[1:]:
        held = 0
        for _ in range(N_MERGED):
            table = draw_table(rates, N_UNITS // 4, rng)
            found = cdp.estimate(release(table, epsilon), arms={"both": ["B", "C"]})
            low, high = found.ci()
            held += low <= np.mean(rates[1:]) - rates[0] <= high
        share = held / N_MERGED
        yield f"| {epsilon:g} | {N_MERGED} | {share:.1%} ± {doubt(share, N_MERGED):.1%} |"


def best_lines(rng: np.random.Generator) -> Iterator[str]:
    """How often the most probable arm is the best one, by the probability that is stated."""
    for epsilon in EPSILONS:
        stated, right = [], []
        for _ in range(N_BEST // N_TOGETHER):
            rates = rng.normal(0.3, 0.02, (N_TOGETHER, 3))
            drawn = drawn_together(rates, mechanism(epsilon, 0.1), rng)
            for truth, effects in zip(rates, drawn, strict=True):
                (arm, prob), *_ = best_arms(effects, ())[0].arms
                stated.append(prob)
                right.append("ABC".index(arm) == truth.argmax())
        places = np.digitize(stated, PROBABLE)
        for place, low in enumerate((0.0, *PROBABLE)):
            mine = places == place
            if (number := int(mine.sum())) > 0:
                share, mean = float(np.mean(np.array(right)[mine])), np.array(stated)[mine].mean()
                yield (
                    f"| {epsilon:g} | {low:.0%} or more | {number:,} | {mean:.1%} | "
                    f"{share:.1%} ± {doubt(share, number):.1%} |"
                )


def page(
    margins: list[str], whole: list[str], scales: list[str], merged: list[str], best: list[str]
) -> str:
    """What was measured, as a page."""
    return f"""# Decisions
{N_UNITS:,} users in {N_CLUSTERS} clusters, and visits of about 30% of control. Made by `make
bench-metrics`. In each experiment arms, responses and noise of totals are drawn again.

## Margins
The true effect is at the margin, where a verdict of yes is wrong most often. Verdicts are one-sided
tests at 5%; equivalence needs two of them. So 5% of the verdicts may be wrong.

| question | ε | for totals | experiments | wrong verdicts |
|---|---|---|---|---|
{chr(10).join(margins)}

Whole tables, released and estimated as people do:

| question | ε | releases | wrong verdicts |
|---|---|---|---|
{chr(10).join(whole)}

## Ratios
95% intervals of risk ratios and odds ratios, of {N_COVERED:,} experiments each (Monte Carlo
standard error {doubt(0.95, N_COVERED):.1%}). Where a share is not significantly different
from zero (or one), the interval has no upper limit; "bounded" is how many have one.

| control | treatment | ε | for totals | risk ratio covers | bounded | odds ratio covers | bounded |
|---|---|---|---|---|---|---|---|
{chr(10).join(scales)}

## Merged arms
Three arms, {N_UNITS // 4:,} users in all, 10% of ε for totals. Two arms are compared with the
third as one.

| ε | releases | 95% CI covers |
|---|---|---|
{chr(10).join(merged)}

## Which arm is best
Three arms whose rates have a standard deviation of 2 points, 10% of ε for totals: what is stated of
the most probable arm, and how often it is the best one.

| ε | stated | experiments | mean stated | is best |
|---|---|---|---|---|
{chr(10).join(best)}
"""


def main() -> None:
    """Measure, show and write."""
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    rng = np.random.default_rng()
    measured = (margin_lines, whole_lines, scale_lines, merged_lines, best_lines)
    text = page(*(list(lines(rng)) for lines in measured))
    write_study("decisions", text)
    print(text)


if __name__ == "__main__":
    main()
