"""What is stated about outcomes that may be missing, over many releases: docs/studies/attrition.md.

Units are of finitely many types: what a unit's outcome would be in each arm, and in which arms it
would be observed. So what estimates should be is known exactly.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

import clusterdp as cdp
from bench.study_page import write_study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clusterdp._arrays import BoolArray, FloatArray

N_UNITS, N_CLUSTERS, REPLICATES = 4000, 4, 2000
HIGHEST = 5
# What decides who is observed: so many kinds of units, all equally likely.
_KINDS = 40


class Units(NamedTuple):
    """Types of units, equally likely ones repeated.

    Attributes:
        outcomes: The outcome in each arm; axes `[type, arm]`.
        observed: Whether it would be observed; axes `[type, arm]`.
        probs: How likely each type is; axes `[type]`.
    """

    outcomes: FloatArray
    observed: BoolArray
    probs: FloatArray

    def mean(self, arm: int, of: BoolArray) -> float:
        """The mean outcome in an arm of some types."""
        weights = self.probs * of
        return float(weights @ self.outcomes[:, arm] / weights.sum())

    @property
    def shares(self) -> FloatArray:
        """The share observed; axes `[arm]`."""
        return np.asarray(self.probs @ self.observed)

    @property
    def of_those_observed(self) -> float:
        """The difference of means of observed units in each arm."""
        return self.mean(1, self.observed[:, 1]) - self.mean(0, self.observed[:, 0])

    @property
    def in_either_arm(self) -> float:
        """The effect on units that would be observed in either arm."""
        always = np.asarray(self.observed.all(axis=1))
        return self.mean(1, always) - self.mean(0, always)

    @property
    def of_everyone(self) -> float:
        """The effect on everyone."""
        return float(self.probs @ (self.outcomes[:, 1] - self.outcomes[:, 0]))

    def sharpest_bounds(self) -> tuple[float, float]:
        """The bounds of Lee (2009), exactly."""
        more = int(np.argmax(self.shares))
        share = float(self.shares.min() / self.shares.max())
        weights = self.probs * self.observed[:, more]
        order = np.argsort(self.outcomes[:, more])
        values, weights = self.outcomes[order, more], weights[order] / weights.sum()
        lowest, highest = (
            float(_first(part, share) @ ends) / share
            for part, ends in ((weights, values), (weights[::-1], values[::-1]))
        )
        kept = self.mean(1 - more, self.observed[:, 1 - more])
        return (lowest - kept, highest - kept) if more else (kept - highest, kept - lowest)

    def table(self, rng: np.random.Generator) -> pl.DataFrame:
        """New units, assigned at random within clusters."""
        types = rng.choice(len(self.probs), N_UNITS, p=self.probs)
        arms = rng.permuted(np.arange(N_UNITS).reshape(N_CLUSTERS, -1) % 2, axis=1).ravel()
        y = np.where(self.observed[types, arms], self.outcomes[types, arms], np.nan)
        clusters = np.repeat(np.arange(N_CLUSTERS), N_UNITS // N_CLUSTERS)
        return pl.DataFrame({"unit": range(N_UNITS), "arm": arms, "cluster": clusters, "y": y})


def _first(weights: FloatArray, share: float) -> FloatArray:
    """As much of each weight as makes the first of them add up to a share."""
    before = np.cumsum(weights) - weights
    return np.clip(share - before, 0.0, weights)


# The share observed in an arm of those with an outcome, as a part of the highest.
SCENARIOS: dict[str, Callable[[int, FloatArray], FloatArray]] = {
    "at random": lambda _, y: np.full_like(y, 0.85),
    "by arm": lambda arm, y: np.full_like(y, 0.75 if arm else 0.9),
    "by outcome": lambda _, y: 0.6 + 0.35 * y,
    "by arm and outcome": lambda arm, y: 0.6 + 0.3 * y if arm else np.full_like(y, 0.9),
}
SPACES = {"0..5": "0..5", "number": "number:0..48"}


def make_units(scenario: str, space: str) -> Units:
    """The types of a scenario: treatment adds one to three in ten outcomes of 0 to 4.

    A number is eight times that and a remainder.
    """
    first = np.array([0.35, 0.25, 0.17, 0.11, 0.07, 0.05])
    parts = [0.0, 2.6, 5.3, 7.9] if space == "number" else [0.0]
    scale = 8.0 if space == "number" else 1.0
    outcomes, observed, probs = [], [], []
    for low, gain, part in itertools.product(range(HIGHEST + 1), (0, 1), parts):
        levels = np.minimum(np.array([low, low + gain]), HIGHEST)
        pair = scale * levels + part
        shares = [SCENARIOS[scenario](arm, pair / (scale * 6))[arm] for arm in range(2)]
        for kind in (np.arange(_KINDS) + 0.5) / _KINDS:
            outcomes.append(pair)
            observed.append([kind < share for share in shares])
            probs.append(first[low] * (0.3 if gain else 0.7) / len(parts) / _KINDS)
    return Units(np.array(outcomes), np.array(observed), np.array(probs) / np.sum(probs))


class Line(NamedTuple):
    """What was found over many releases of one scenario.

    Attributes:
        scenario: Who is observed.
        space: The outcome.
        epsilon: The budget.
        units: The types.
        effects: Effects on observed units.
        intervals: Their limits; axes `[release, side]`.
        bounds: For attrition; axes `[release, side]`.
        limits: Of these; axes `[release, side]`.
        warned: Whether attrition was warned of.
        n_from_ends: How many bounds were from the declared ends.
    """

    scenario: str
    space: str
    epsilon: float
    units: Units
    effects: FloatArray
    intervals: FloatArray
    bounds: FloatArray
    limits: FloatArray
    warned: BoolArray
    n_from_ends: int

    @property
    def bias(self) -> float:
        """The mean error of the effect on observed units, in its Monte Carlo standard error."""
        errors = self.effects - self.units.of_those_observed
        return float(errors.mean() / (errors.std(ddof=1) / np.sqrt(len(errors))))

    def covered(self, truth: float) -> float:
        """How often intervals hold a number."""
        return _held(self.intervals, truth)

    def limited(self) -> float:
        """How often limits hold the effect on units that would be observed in either arm."""
        return _held(self.limits, self.units.in_either_arm)

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        low, high = self.bounds.mean(axis=0)
        sharp = self.units.sharpest_bounds()
        return (
            self.scenario,
            self.space,
            f"{self.epsilon:g}",
            f"{self.units.of_those_observed:.3f}",
            f"{self.bias:+.1f}",
            f"{self.covered(self.units.of_those_observed):.1%}",
            f"{self.units.in_either_arm:.3f}",
            f"{self.covered(self.units.in_either_arm):.1%}",
            f"{self.warned.mean():.1%}",
            f"{sharp[0]:.3f} to {sharp[1]:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{self.limited():.1%}",
        )


def _held(limits: FloatArray, truth: float) -> float:
    return float(((limits[:, 0] <= truth) & (truth <= limits[:, 1])).mean())


HEADER = (
    "missing",
    "outcome",
    "ε",
    "effect on observed units",
    "bias",
    "coverage",
    "effect on units observed in either arm",
    "held by the same interval",
    "warned",
    "sharpest bounds",
    "mean bounds",
    "held by their limits",
)


def measure(
    scenario: str, space: str, epsilon: float, rng: np.random.Generator, n_releases: int
) -> Line:
    """Release and estimate again and again."""
    units = make_units(scenario, space)
    mechanism = cdp.optimal(epsilon=epsilon, sums=cdp.SumShares(totals=0.1))
    found = []
    for _ in range(n_releases):
        released = cdp.release(
            units.table(rng),
            outcomes={"y": SPACES[space]},
            missing=["y"],
            unit="unit",
            arm="arm",
            cluster="cluster",
            mechanism=mechanism,
        )
        estimate = cdp.estimate(released)
        warned = any(note.startswith("Attrition") for note in estimate.warnings)
        found.append((estimate["y"], estimate.bounds[0], warned))
    effects, bounds, warnings = zip(*found, strict=True)
    return Line(
        scenario=scenario,
        space=space,
        epsilon=epsilon,
        units=units,
        effects=np.array([one.effect for one in effects]),
        intervals=np.array([one.ci() for one in effects]),
        bounds=np.array([(one.low, one.high) for one in bounds]),
        limits=np.array([one.limits for one in bounds]),
        warned=np.array(warnings),
        n_from_ends=sum(one.from_ends for one in bounds),
    )


STUDIES = tuple((scenario, "0..5", 2.0) for scenario in SCENARIOS)


def study(of: tuple[str, str, float]) -> Line:
    """One line, with random numbers of its own."""
    return measure(*of, np.random.default_rng(), REPLICATES)


def all_lines() -> Iterator[Line]:
    """Every study, two at a time."""
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(study, STUDIES)


def as_markdown(lines: list[Line]) -> str:
    """The page."""
    rows = [HEADER, tuple("---" for _ in HEADER), *(line.cells() for line in lines)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"""# Missing outcomes: does what is stated hold?

Written by `make bench-coverage`; not edited by hand. {REPLICATES:,} releases a line, of {N_UNITS:,}
units in {N_CLUSTERS} clusters each, 10% of ε in totals. A share has a standard error of at most
{0.5 / np.sqrt(REPLICATES):.1%}. *Bias* is in Monte Carlo standard errors.

Treatment adds one to 30% of outcomes of 0 to 4: the effect on everyone is
{lines[0].units.of_everyone:.3f}. Outcomes are missing:

- *at random*: 15% in both arms;
- *by arm*: 10% in control, 25% in treatment, for any outcome;
- *by outcome*: the lower it is, the more often, equally in both arms;
- *by arm and outcome*: 10% in control; in treatment the lower, the more often.

The first effect is what `estimate` gives: the difference between observed units in each arm, with
an interval of nominally 95%. Where who is observed depends on outcomes it is not the effect on the
same people, which is the second one. The same interval can then fail to hold that; a warning and
bounds take its place. The warning is a test at 1% that shares observed are the same: small
differences are seldom found, and bounds hold with and without it. They hold if treatment moves who
is observed in one direction only, as it does in all of these. Their limits are those of several
thresholds at once (Bonferroni), so they hold more often than 95%.

{table}
"""


def main() -> None:
    """Measure, write and show."""
    lines = []
    for line in all_lines():
        print(*line.cells(), line.n_from_ends, sep="  ", flush=True)
        lines.append(line)
    write_study("attrition", as_markdown(lines))


if __name__ == "__main__":
    main()
