"""After a release: do 95% intervals cover with answers, over folders, and over several looks?

    make bench-coverage

Follow-ups are drawn in `bench/followup_coverage.py`, and folders in `bench/folder_coverage.py`.
Looks are here: eight batches without an effect arrive one after the other. Each is released and
calibrated by the functions that estimates call, for ten thousand experiments at a time. Writes
`docs/studies/after_release.md`.
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import clusterdp as cdp
from bench import folder_coverage, followup_coverage
from bench.study_page import write_study
from clusterdp.cells.layout import Layout
from clusterdp.estimation.effects.looks import AnytimeLook, Look, PlannedLook, spending_boundaries
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.declaration import declare
from clusterdp.studies.simulation import simulate_estimates

if TYPE_CHECKING:
    from collections.abc import Sequence

N_EXPERIMENTS, N_LOOKS, UNITS = 10_000, 8, 1000
RATES, EPSILONS = (0.3, 0.05), (1.0, 2.0)
# Looks that nobody planned: this many batches, intervals being shortest at the eighth.
N_UNPLANNED = 40
MOST_POSITIVES, LONGEST = 0.055, 1.07


class Share(NamedTuple):
    """How often something happened."""

    share: float
    n_times: int

    @classmethod
    def of_flags(cls, flags: Sequence[bool] | np.ndarray) -> Share:
        """The share of those that are true."""
        return cls(float(np.mean(flags)), len(flags))

    def __str__(self) -> str:
        error = math.sqrt(self.share * (1 - self.share) / self.n_times)
        return f"{self.share:.1%} ± {error:.1%}"


def draw_batches(
    rate: float, epsilon: float, n_batches: int, n_experiments: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Effects of batches without an effect, and their variances; axes `[experiment, batch]`."""
    space = Categories(declared=declare({"visit": cdp.OutcomeSpace.binary()}))
    half = UNITS // 2
    layout = Layout(
        clusters=("all",), arms=(0, 1), control=0, sizes=np.array([[half, half]]), breakdowns=()
    )
    mechanism = cdp.optimal(epsilon=epsilon, prior=[1 - rate, rate], sums=cdp.SumShares(totals=0.1))
    effects, variances = [], []
    for _ in range(n_batches):
        ones = rng.binomial(half, rate, size=(n_experiments, 1, 2))
        counts = np.stack([half - ones, ones], axis=-1)
        found = simulate_estimates(
            counts, layout, space, mechanism, rng, "stratified", "everything"
        )
        effects.append(found.effects[:, 0])
        variances.append(found.variances[:, 0])
    return np.stack(effects, axis=1), np.stack(variances, axis=1)


def statistics_at_looks(effects: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Effects over standard errors, of all batches until each look; axes `[experiment, look]`."""
    return np.asarray(effects.cumsum(axis=1) / np.sqrt(variances.cumsum(axis=1)))


def false_positives(at_looks: np.ndarray, looks: Sequence[Look]) -> Share:
    """How often zero is outside some interval."""
    from scipy import stats

    reaches = stats.norm.isf([one.nominal(0.05) / 2 for one in looks])
    return Share.of_flags((np.abs(at_looks) >= reaches).any(axis=1))


def look_lines(n_experiments: int, rng: np.random.Generator) -> list[tuple[object, ...]]:
    """False positives over all looks: of planned ones, single intervals, and unplanned ones."""
    planned = [PlannedLook(number=one + 1, planned=N_LOOKS) for one in range(N_LOOKS)]
    single = [PlannedLook(number=1, planned=1)] * N_LOOKS
    unplanned = [
        AnytimeLook(share=(one + 1) / N_LOOKS, aim=N_LOOKS * UNITS) for one in range(N_UNPLANNED)
    ]
    lines: list[tuple[object, ...]] = []
    for rate in RATES:
        for epsilon in EPSILONS:
            drawn = draw_batches(rate, epsilon, N_UNPLANNED, n_experiments, rng)
            at_looks = statistics_at_looks(*drawn)
            few = at_looks[:, :N_LOOKS]
            lines.append(
                (
                    f"{rate:.0%}",
                    f"{epsilon:g}",
                    false_positives(few, planned),
                    false_positives(few, single),
                    false_positives(at_looks, unplanned),
                )
            )
    return lines


def followup_lines(n_replicates: int, n_units: int) -> list[tuple[object, ...]]:
    """Coverage in segments that were asked about."""
    studies = (followup_coverage.asked_segments, followup_coverage.best_of_many)
    return [
        (name, Share.of_flags(covered), f"{len(covered):,}")
        for study in studies
        for name, covered in followup_coverage.repeat(study, n_replicates, n_units).items()
    ]


def folder_lines(n_replicates: int, rng: np.random.Generator) -> list[tuple[object, ...]]:
    """Coverage of three folders together."""
    found = [folder_coverage.experiment(rng) for _ in range(n_replicates)]
    return [
        (metric, label, *(Share.of_flags(flags) for flags in zip(*each, strict=True)))
        for metric, label in found[0]
        for each in [[one[metric, label] for one in found]]
    ]


def table(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """Lines as Markdown."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(map(str, one))} |" for one in rows)


def page(n_units: int, parts: tuple[str, str, str], n_folders: int, n_looks: int) -> str:
    """What was measured, as a page."""
    asked, folders, looks = parts
    last = spending_boundaries(0.05, N_LOOKS)[-1] / spending_boundaries(0.05, 1)[-1]
    goal = " to ".join(f"{one:.1%}" for one in folder_coverage.GOAL)
    sizes = ", ".join(
        f"{units:,} units at ε = {one:g}" for units, one, *_ in folder_coverage.FOLDERS
    )
    lift = followup_coverage.RATE + followup_coverage.LIFT
    return f"""# After a release: answers, several folders, several looks
Do 95% intervals cover where a question is asked later, where folders are estimated together, and
where results are read several times? Made by `python -m bench.after_release`, a part of
`make bench-coverage`. After ± is the Monte Carlo error. The goal for coverage is {goal}.

## Segments that were asked about
Each replicate draws {n_units:,} units, publishes at ε = 2, asks, answers and estimates, as owner
and analyst do. Each dimension of an answer has ε = {followup_coverage.EPSILON:g}. Treatment raises
visits from {followup_coverage.RATE:.0%} to {lift:.0%} in gold alone.

The best of {followup_coverage.N_SEGMENTS} segments has no effect. Units are divided into so many in
{followup_coverage.N_WAYS} ways. "Other units": it was chosen by released rows of fold 0, and asked
about fold 1. "Same units": it was chosen by rows of all units, and asked about all. That is the
mistake that `--found-in-fold` prevents.

{asked}

## Three folders together
{sizes}. Folders differ in level and in effect. Of {n_folders:,} experiments. The last column has
intervals without the noise of privacy, which are too short.

{folders}

## Looks without an effect
Batches of {UNITS:,} units arrive one after the other, each released as rows and totals. A false
positive is an interval that leaves out zero, at any look. Of {n_looks:,} experiments in each line.

- **Planned looks**: {N_LOOKS}, by α spending. The last interval is {last:.3f} times as long as that
  of a single look. Goals: at most {MOST_POSITIVES:.1%} false positives, {LONGEST:g} times.
- **Single intervals**: what an analyst has who reads {N_LOOKS} times without `--look`.
- **Unplanned looks**: {N_UNPLANNED} looks with `--anytime`, intervals being shortest at the eighth.

{looks}
"""


def main() -> None:
    """Measure, show and write."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--units", type=int, default=6000)
    parser.add_argument("--folders", type=int, default=800)
    parser.add_argument("--looks", type=int, default=N_EXPERIMENTS)
    given = parser.parse_args()
    rng = np.random.default_rng()
    of_looks = table(
        ("rate", "ε of a batch", "planned looks", "single intervals", "unplanned looks"),
        look_lines(given.looks, rng),
    )
    of_folders = table(
        ("metric", "segment", "95% intervals that cover", "without privacy noise"),
        folder_lines(given.folders, rng),
    )
    of_followups = table(
        ("segment", "95% intervals that cover", "intervals"),
        followup_lines(given.replicates, given.units),
    )
    text = page(given.units, (of_followups, of_folders, of_looks), given.folders, given.looks)
    write_study("after_release", text)
    print(text)


if __name__ == "__main__":
    main()
