"""What privacy costs with several metrics: one channel for all, beside other ways to share ε.

    make bench-variance

Costs are sums over metrics of excess variance over the metric's own variance, at equal ε and δ = 0,
per unit and in closed form: nothing is simulated. Writes `docs/studies/joint_frontier.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

import clusterdp as cdp
from bench.study_page import write_study
from clusterdp.channels._optimal_channel import OptimalChannel, design_optimal
from clusterdp.channels.optimal import OptimalRows
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clusterdp._arrays import FloatArray

EPSILONS = (0.5, 1.0, 2.0, 4.0)
# Splits of ε into so many parts are tried; halves and thirds are among them.
N_PARTS = 12
# Of 64,000 customers; thirds of those who bought spent about so many dollars.
HILLSTROM_VISIT, HILLSTROM_CONVERSION, HILLSTROM_SPENT = 0.1468, 0.0090, (32, 81, 236)
# Players who come back after one day and after seven, and the grid of the rounds they play.
GAME_RETURNS, GAME_ROUNDS = (0.45, 0.19), (0, 2, 5, 10, 18, 31, 53, 90, 150, 240, 360, 493)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Outcomes that are released together.

    Attributes:
        name: In words.
        space: Their categories.
        prior: How likely categories are, which all mechanisms know; axes `[category]`.
    """

    name: str
    space: Categories
    prior: FloatArray

    @property
    def values(self) -> FloatArray:
        """What categories count as; axes `[metric, category]`."""
        return self.space.metric_values()

    @property
    def variances(self) -> FloatArray:
        """The variance of each metric; axes `[metric]`."""
        return np.asarray(self.values**2 @ self.prior - (self.values @ self.prior) ** 2)

    def alone(self, metric: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The distinct values of a metric, and their probabilities."""
        values, places = np.unique(self.values[metric], return_inverse=True)
        return tuple(values.tolist()), tuple(np.bincount(places, self.prior).tolist())


def binary(name: str, n_metrics: int, rate: float) -> Case:
    """Independent binary metrics, all of one rate."""
    space = Categories(declared=declare({f"metric {place}": "0,1" for place in range(n_metrics)}))
    return Case(name=name, space=space, prior=independent(space, [[1 - rate, rate]] * n_metrics))


def funnel() -> Case:
    """No spend without a conversion, no conversion without a visit and a spend: K = 5."""
    declared = declare(
        {"visit": "0,1", "conversion": "0,1", "spend": (0, *HILLSTROM_SPENT)},
        constraints=(
            "conversion -> visit",
            "spend>0 -> conversion",
            "conversion -> spend>0",
        ),
    )
    visited = HILLSTROM_VISIT - HILLSTROM_CONVERSION
    prior = [1 - HILLSTROM_VISIT, visited, *[HILLSTROM_CONVERSION / 3] * 3]
    return Case(
        name="visit, conversion, spend (Hillstrom)",
        space=Categories(declared=declared),
        prior=np.array(prior),
    )


def game() -> Case:
    """Two binary metrics and a number of rounds, lognormal with median 16, on 12 grid points."""
    space = Categories(
        declared=declare({"day 1": "0,1", "day 7": "0,1", "rounds": GAME_ROUNDS}),
    )
    middles = (np.array(GAME_ROUNDS[1:]) + GAME_ROUNDS[:-1]) / 2
    below = stats.lognorm(s=1.5, scale=16).cdf([*middles, np.inf])
    rounds = np.diff(below, prepend=0.0)
    returns = [[1 - rate, rate] for rate in GAME_RETURNS]
    return Case(
        name="a game: two binary, rounds on 12 points",
        space=space,
        prior=independent(space, [*returns, rounds]),
    )


def independent(space: Categories, margins: Sequence[Sequence[float] | FloatArray]) -> FloatArray:
    """The prior of independent outcomes, from the probabilities of their levels."""
    factors = [
        np.asarray(margin)[levels] for margin, levels in zip(margins, space.levels, strict=True)
    ]
    return np.asarray(np.prod(factors, axis=0))


def cases() -> tuple[Case, ...]:
    """What is compared."""
    return (
        binary("two binary, 50%", 2, 0.5),
        binary("two binary, 5%", 2, 0.05),
        binary("three binary, 50%", 3, 0.5),
        binary("three binary, 5%", 3, 0.05),
        funnel(),
        game(),
    )


def least_cost(values: FloatArray, prior: FloatArray, epsilon: float) -> float:
    """Excess variance over variance, summed over metrics, by the channel for exactly this prior."""
    space = cdp.OutcomeSpace.of(range(len(prior)))
    response = OptimalRows(epsilon=epsilon).bound(space)
    weights = 1 / (values**2 @ prior - (values @ prior) ** 2)
    tables, outputs, _ = design_optimal(prior[np.newaxis], values, weights, response)
    channel = OptimalChannel(
        tables=tables, outputs=outputs, groups=np.zeros((1, 1), dtype=np.int64), values=values
    )
    return float(channel.weighted_noise(weights)[0] @ prior)


@cache
def cost_alone(values: tuple[float, ...], probs: tuple[float, ...], epsilon: float) -> float:
    """Excess variance over variance of one metric, by the optimal channel for it alone."""
    return least_cost(np.array([values]), np.array(probs), epsilon)


def split_evenly(case: Case, epsilon: float) -> float:
    """A channel for each metric, each with the same share of ε."""
    n_metrics = len(case.values)
    return sum(cost_alone(*case.alone(metric), epsilon / n_metrics) for metric in range(n_metrics))


def split(case: Case, epsilon: float) -> float:
    """A channel for each metric with a share of ε; the best of all splits into N_PARTS parts."""
    n_metrics = len(case.values)
    most = N_PARTS - n_metrics + 1
    costs = np.array(
        [
            [
                cost_alone(*case.alone(metric), epsilon * parts / N_PARTS)
                for parts in range(1, most + 1)
            ]
            for metric in range(n_metrics)
        ]
    )
    return min(
        sum(float(costs[metric, parts - 1]) for metric, parts in enumerate(chosen))
        for chosen in product(range(1, most + 1), repeat=n_metrics)
        if sum(chosen) == N_PARTS
    )


def sampled(case: Case, epsilon: float) -> float:
    """Every person reveals one metric, drawn at random, at the whole ε.

    A mean is over one in m people: its variance is m·(variance + excess) instead of the variance.
    """
    n_metrics = len(case.values)
    alone = (cost_alone(*case.alone(metric), epsilon) for metric in range(n_metrics))
    return sum(n_metrics * (1 + cost) - 1 for cost in alone)


def response(case: Case, epsilon: float) -> float:
    """k-ary response of the category: kept with probability 1 − λ, else drawn evenly.

    A value f counts as (f − λ·mean f)/(1 − λ), with λ = K/(e^ε + K − 1).
    """
    n_categories = case.space.n_categories
    resample = n_categories / (np.exp(epsilon) + n_categories - 1)
    probs = np.full((n_categories, n_categories), resample / n_categories)
    probs += (1 - resample) * np.eye(n_categories)
    even = case.values.mean(axis=1, keepdims=True)
    decoded = (case.values - resample * even) / (1 - resample)
    squares = (decoded[:, np.newaxis, :] - case.values[..., np.newaxis]) ** 2
    excess = (probs * squares).sum(axis=-1) @ case.prior
    return float((excess / case.variances).sum())


def ours(case: Case, epsilon: float) -> float:
    """The optimal channel for all metrics at once, in the integers that the machine uses."""
    return least_cost(case.values, case.prior, epsilon)


def released(case: Case, epsilon: float) -> float:
    """The same as a release has it: designed with a little of the uniform distribution."""
    rows = cdp.optimal(epsilon=epsilon, prior=tuple(case.prior)).settled_rows(case.space)
    channel = rows.public_channel(case.space)
    excess = [channel.noise_variance(metric)[0] @ case.prior for metric in range(len(case.values))]
    return float((np.array(excess) / case.variances).sum())


OURS = "one channel for all (ours)"
SPLIT = "ε split at best"
RELEASED = "the same, as released"
EVEN = "ε split evenly"
MECHANISMS: dict[str, Callable[[Case, float], float]] = {
    EVEN: split_evenly,
    SPLIT: split,
    "one metric per person": sampled,
    "k-ary response of all": response,
    OURS: ours,
    RELEASED: released,
}
OTHERS = tuple(name for name in MECHANISMS if name not in (OURS, RELEASED))
Found = dict[tuple[str, str, float], float]


def measure(compared: Sequence[Case], epsilons: Sequence[float] = EPSILONS) -> Found:
    """Costs by case, mechanism and ε."""
    found = {}
    for case in compared:
        for name, compute in MECHANISMS.items():
            for epsilon in epsilons:
                found[case.name, name, epsilon] = compute(case, epsilon)
        print(f"{case.name}: done", flush=True)
    return found


def gains(found: Found, case: str, other: str) -> list[float]:
    """How many times less ours costs than another mechanism, by ε."""
    return [
        cost / found[case, OURS, epsilon]
        for (name, mechanism, epsilon), cost in found.items()
        if (name, mechanism) == (case, other)
    ]


def claims(found: Found) -> list[str]:
    """The sentences that the tables support, with their numbers."""
    names = list(dict.fromkeys(name for name, _, _ in found))
    least = min(gain for name in names for other in OTHERS for gain in gains(found, name, other))
    as_released = max(gain for name in names for gain in gains(found, name, RELEASED))
    by_split = [gain for name in names for gain in gains(found, name, SPLIT)]
    funnel_gains = ", ".join(f"{gain:.1f}" for gain in gains(found, funnel().name, SPLIT))
    evenly = ", ".join(f"{gain:.1f}" for gain in gains(found, funnel().name, EVEN))
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    return [
        (
            "Compared with one channel for all metrics, the best other costs "
            f"{least:.4f} times as much or more."
        ),
        f"As released, it costs at most {as_released:.3f} times as much.",
        f"Splitting ε, at best, costs {min(by_split):.1f} to {max(by_split):.1f} times as much.",
        (
            f"For Hillstrom's funnel at ε = {epsilons}: {funnel_gains} times as much at the best "
            f"split, {evenly} times at the even one."
        ),
    ]


def as_markdown(found: Found) -> str:
    """The page."""
    lines = [
        "# What privacy costs with several metrics",
        "",
        "Written by `make bench-variance`; not edited by hand. A cost is the sum over metrics of",
        "the excess variance, which privacy adds, over the variance the metric has anyway. All",
        "are at equal, valid ε and δ = 0, per unit, and every mechanism knows the distribution.",
        "",
        *(f"- {sentence}" for sentence in claims(found)),
        "",
        "*ε split* releases each metric by the optimal channel for it alone, at a share of ε: the",
        f"same for all, or the best of all splits into {N_PARTS} parts. *One metric per person*:",
        "each person reveals one metric, drawn at random, at the whole ε. *k-ary response of all*",
        "keeps a person's combination of outcomes or draws one uniformly. *One channel for all*",
        "and all others are designed for the distribution itself. A release designs for it mixed",
        "with a little of the uniform one, because nobody knows it exactly: *the same, as",
        "released* is what that costs if the baseline is right after all.",
    ]
    for name in dict.fromkeys(name for name, _, _ in found):
        lines += ["", f"## {name}", ""]
        lines += ["| ε | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |"]
        lines += ["|---|" + "---:|" * len(EPSILONS)]
        for mechanism in MECHANISMS:
            costs = [found[name, mechanism, epsilon] for epsilon in EPSILONS]
            lines.append(f"| {mechanism} | " + " | ".join(f"{cost:.4g}" for cost in costs) + " |")
        ratios = " | ".join(f"{gain:.2f}" for gain in gains(found, name, SPLIT))
        lines.append(f"| best split over ours | {ratios} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write and show."""
    text = as_markdown(measure(cases()))
    write_study("joint_frontier", text)
    print(text)


if __name__ == "__main__":
    main()
