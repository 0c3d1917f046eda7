"""Do 95% intervals of whole releases cover, whatever a plan is for?

    make bench-coverage

Lines run on all cores, and stop after a stated time: two cores need about five hours for all
replicates. Those that are known least go first. What was measured is kept in
`build/release_coverage`, so that the next run goes on where this one stopped; a change of the
program begins anew, and a published line stays until the program has measured it as often, or a
quarter of what is wanted. Writes
`docs/studies/release_coverage.md`.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

import clusterdp as cdp
from bench import release_draws
from bench.release_draws import STUDIES, Replicates, Study, replicate
from bench.study_page import without_thousands, write_study, written_rows

if TYPE_CHECKING:
    from clusterdp._arrays import FloatArray

N_REPLICATES, N_TESTS = 2000, 8000
# What one run may take; a line that is cut off says how many replicates it has.
MINUTES = 120.0
# Replicates that share a plan, and are kept together.
_AT_ONCE = 250
# The share of what is wanted that takes the place of what an earlier program measured.
_ENOUGH = 0.25
_ROOT = Path(__file__).parents[1]
_KEPT = _ROOT / "build" / "release_coverage"
# What is wanted: of coverage, of the mean standard error, of its 5th and 95th percentile, and of
# predictions.
COVERAGE, MEAN_ERROR, SPREAD, PREDICTED = (0.935, 0.98), (0.95, 1.10), 0.15, (0.9, 1.15)
# How much wider percentiles may be than without privacy.
_WIDER = 1.15
# Replicates that must have been clipped alike.
_ALIKE = 30


class Line(NamedTuple):
    """What replicates of one release show of one kind of effects.

    Attributes:
        what: The design, what it is planned for, ε, and the effects.
        n_replicates: How many replicates there were.
        n_intervals: How many intervals there were.
        coverage: The share of 95% intervals that hold the truth.
        without: The same without privacy.
        ratio: The mean standard error over the standard deviation of estimates.
        low: The 5th percentile of the same.
        high: The 95th percentile.
        plain_low: The 5th percentile without privacy.
        plain_high: The 95th percentile.
        length: The mean length of intervals over those of known standard deviations.
        deviation: The standard deviation of estimates.
        plain_deviation: The same without privacy.
        privacy: What privacy adds, in squares, as reported.
        predicted: The planned standard error over the standard deviation of estimates.
        none: The share of effects without an interval.
    """

    what: tuple[str, ...]
    n_replicates: int
    n_intervals: int
    coverage: float
    without: float
    ratio: float
    low: float
    high: float
    plain_low: float
    plain_high: float
    length: float
    deviation: float
    plain_deviation: float
    privacy: float
    predicted: float
    none: float

    def misses(self) -> list[str]:
        """What is not as wanted, by more than two Monte Carlo standard errors."""
        of_share = 2 * math.sqrt(0.05 * 0.95 / max(self.n_intervals, 1))
        of_error = math.sqrt(2 / self.n_replicates)
        widest = max(SPREAD, _WIDER * (self.plain_high - self.plain_low) / 2)
        found = {
            "coverage": not _within(self.coverage, COVERAGE, of_share),
            "mean": not _within(self.ratio, MEAN_ERROR, of_error * self.ratio),
            "spread": (self.high - self.low) / 2 > widest * self.ratio,
            "predicted": self.predicted < PREDICTED[0] * (1 - of_error)
            or self.predicted > PREDICTED[1] * (1 + of_error),
        }
        return [name for name, missed in found.items() if missed]

    def cells(self) -> tuple[str, ...]:
        """As text."""
        return (
            *self.what,
            f"{self.n_replicates:,}",
            f"{self.coverage:.1%}",
            f"{self.without:.1%}",
            f"{self.ratio:.2f}",
            f"{self.low:.2f} to {self.high:.2f}",
            f"{self.plain_low:.2f} to {self.plain_high:.2f}",
            f"{self.length:.2f}",
            f"{self.deviation:.3g}",
            f"{self.plain_deviation:.3g}",
            f"{self.privacy:.3g}",
            "" if math.isnan(self.predicted) else f"{self.predicted:.2f}",
            f"{self.none:.1%}",
            ", ".join(self.misses()),
        )


def _within(number: float, ends: tuple[float, float], tolerance: float) -> bool:
    return ends[0] - tolerance <= number <= ends[1] + tolerance


HEADER = (
    "design",
    "planned for",
    "ε",
    "effect",
    "replicates",
    "coverage",
    "without privacy",
    "SE/SD",
    "5 to 95%",
    "without privacy",
    "length",
    "SD",
    "without privacy",
    "of privacy",
    "predicted",
    "no interval",
    "not as wanted",
    "program",
)


TESTS_HEADER = (
    "design",
    "planned for",
    "ε",
    "tests",
    "rejected",
    "± (Monte Carlo)",
    "program",
)
# The cells of a row.
Row = Sequence[str]


class _Measured(NamedTuple):
    """What some intervals show: coverage, SE over SD, length over that of a known SD, and SD."""

    coverage: float
    ratios: FloatArray
    length: float
    deviations: FloatArray

    @classmethod
    def of(cls, numbers: FloatArray, clips: FloatArray) -> _Measured:
        """What some numbers show, axes `[replicate, effect, number]`.

        The standard deviation of estimates depends on where outcomes are clipped: standard errors
        are compared with that of replicates which are clipped alike, if there are enough.
        """
        covered = (numbers[..., 2] <= 0) & (numbers[..., 3] >= 0)
        ends, alike, sizes = np.unique(clips, return_inverse=True, return_counts=True)
        if sizes.max() < _ALIKE:
            ends, alike, sizes = clips[:1], np.zeros(len(clips), np.int64), np.array([len(clips)])
        every = np.array(
            [np.nanstd(numbers[alike == one, :, 0], axis=0, ddof=1) for one in range(len(ends))]
        )[alike]
        enough = (sizes >= min(_ALIKE, len(clips)))[alike, np.newaxis]
        known = np.isfinite(numbers[..., 1])
        lengths = (numbers[..., 3] - numbers[..., 2]) / (2 * stats.norm.ppf(0.975) * every)
        return cls(
            float(covered[known].mean()) if known.any() else math.nan,
            (numbers[..., 1] / every)[known & enough],
            float(lengths[known & enough].mean()),
            np.nanstd(numbers[..., 0], axis=0, ddof=1),
        )


def _line(
    what: tuple[str, ...],
    private: FloatArray,
    plain: FloatArray,
    predicted: float,
    clips: FloatArray,
) -> Line:
    """A line; axes of `private` and `plain` are `[replicate, effect, number]`."""
    found, without = _Measured.of(private, clips), _Measured.of(plain, clips)
    low, high = np.quantile(found.ratios, [0.05, 0.95]) if found.ratios.size else [math.nan] * 2
    plain_low, plain_high = np.quantile(without.ratios, [0.05, 0.95])
    return Line(
        what=what,
        n_replicates=len(private),
        n_intervals=found.ratios.size,
        coverage=found.coverage,
        without=without.coverage,
        ratio=float(found.ratios.mean()) if found.ratios.size else math.nan,
        low=float(low),
        high=float(high),
        plain_low=float(plain_low),
        plain_high=float(plain_high),
        length=found.length,
        deviation=float(np.sqrt((found.deviations**2).mean())),
        plain_deviation=float(np.sqrt((without.deviations**2).mean())),
        privacy=float(np.sqrt(np.nanmean(private[..., 4]))),
        # A plan is for the effect that is known least; of groups, for all alike.
        predicted=predicted
        / float(
            np.sqrt((found.deviations**2).mean())
            if "groups" in what[-1]
            else found.deviations.max()
        ),
        none=float(1 - np.isfinite(private[..., 1]).mean()),
    )


class Task(NamedTuple):
    """Some replicates of one design, purpose and ε, and the file that keeps them."""

    study: int
    purpose: str | None
    epsilon: float
    part: int
    file: Path

    @property
    def what(self) -> tuple[str, ...]:
        """The design, what it is planned for, and ε, as tables have them."""
        name = without_thousands(STUDIES[self.study].name)
        return (name, self.purpose or "everything", f"{self.epsilon:g}")


class Published:
    """What was measured before: the rows of both tables, by design, purpose and ε."""

    def __init__(self) -> None:
        """Read the page of the study, and the table beside it."""
        self.intervals = _by_design(written_rows("release_coverage", HEADER))
        self.tests = _by_design(written_rows("release_coverage", TESTS_HEADER))

    def share(self, what: tuple[str, ...]) -> float:
        """How much of what is wanted is known of a design, purpose and ε."""
        counts = [int(row[4]) / N_REPLICATES for row in self.intervals.get(what, [])]
        counts += [int(row[3]) / N_TESTS for row in self.tests.get(what, [])]
        return min(counts, default=0.0)


def _by_design(rows: list[list[str]]) -> dict[tuple[str, ...], list[list[str]]]:
    found: dict[tuple[str, ...], list[list[str]]] = {}
    for row in rows:
        found.setdefault(tuple(without_thousands(cell) for cell in row[:3]), []).append(row)
    return found


def measure(chosen: Iterable[Study], minutes: float) -> list[Task]:
    """Measure what there is time for; all tasks, also of what was not measured.

    What is known least goes first.
    """
    folder, published = _KEPT / _program_hash(), Published()
    folder.mkdir(parents=True, exist_ok=True)
    names = {one.name for one in chosen}
    every = [
        Task(index, purpose, epsilon, part, folder / f"{index}-{purpose}-{epsilon:g}-{part}")
        for index, study in enumerate(STUDIES)
        for purpose in study.purposes
        for epsilon in study.epsilons
        for part in range(_n_wanted(study) // _AT_ONCE)
    ]
    todo = [one for one in every if STUDIES[one.study].name in names and not one.file.exists()]
    todo.sort(
        key=lambda one: (
            max(published.share(one.what), one.part * _AT_ONCE / _n_wanted(STUDIES[one.study])),
            one.part,
        )
    )
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_measure, todo, [time.monotonic() + 60 * minutes] * len(todo)))
    return every


def _n_wanted(study: Study) -> int:
    """Tests of homogeneity want more replicates than intervals."""
    return N_TESTS if "differences" in study.asked else N_REPLICATES


def rows_of(tasks: list[Task]) -> tuple[list[Row], list[Row]]:
    """The rows of both tables: what this program measured, or what is published if it is little."""
    published, intervals, tests = Published(), list[Row](), list[Row]()
    for first in tasks:
        if first.part:
            continue
        parts = [one.file for one in tasks if one[:3] == first[:3] and one.file.exists()]
        share = len(parts) * _AT_ONCE / _n_wanted(STUDIES[first.study])
        if not parts or share < min(published.share(first.what), _ENOUGH):
            intervals += published.intervals.get(first.what, [])
            tests += published.tests.get(first.what, [])
            continue
        found = Replicates.together([pickle.loads(one.read_bytes()) for one in parts])  # noqa: S301 - our own files
        program = first.file.parent.name
        intervals += [(*line.cells(), program) for line in lines(found)]
        if found.tests:
            tests.append((*test_cells(found), program))
    return intervals, tests


def lines(found: Replicates) -> list[Line]:
    """A line for each kind of effects."""
    of_kinds = zip(found.kinds, found.private, found.plain, found.predicted, strict=False)
    return [
        _line((*found.what, kind), private, plain, predicted, found.clips)
        for kind, private, plain, predicted in of_kinds
    ]


def test_cells(found: Replicates) -> tuple[str, ...]:
    """How often a test of homogeneity rejects at 5% where effects are the same, as text."""
    n_tests = len(found.tests)
    error = math.sqrt(0.05 * 0.95 / n_tests)
    return (*found.what, f"{n_tests}", f"{np.mean(found.tests):.1%}", f"{error:.1%}")


def _program_hash() -> str:
    """A name for the program that is measured: its sources, and the draws."""
    sources = sorted((_ROOT / "src").rglob("*.py"))
    digest = hashlib.sha256()
    for source in [*sources, Path(release_draws.__file__)]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:8]


def _measure(task: Task, end: float) -> None:
    """Measure and keep some replicates, unless the time is up."""
    seconds = end - time.monotonic()
    if seconds < 0:
        return
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    study = STUDIES[task.study]
    found = replicate(study, task.purpose, task.epsilon, _AT_ONCE, seconds=seconds)
    if len(found.clips) == _AT_ONCE:
        task.file.write_bytes(pickle.dumps(found))


def page(intervals: list[Row], tests: list[Row], minutes: float) -> str:
    """The page."""
    return _PAGE.format(
        minutes=f"{minutes:.0f}",
        n_lines=len(intervals),
        n_sound=sum(not row[HEADER.index("not as wanted")] for row in intervals),
        table=_table(HEADER, intervals),
        tests=_table(TESTS_HEADER, tests),
    )


def _table(header: tuple[str, ...], found: list[Row]) -> str:
    rows = [header, ("---",) * len(header), *found]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


_PAGE = """# Do intervals of whole releases cover?

Written by `make bench-coverage`; not edited by hand. Each line is a design whose outcomes do not
depend on the arm, so that every effect is zero. In each replicate the table is drawn again, planned
with a right baseline, released and estimated by the functions that people call. Next to it is
what true outcomes give in the same tables. A run stops after {minutes} minutes, and the next one
goes on, with what is known least first; *replicates* says how many each line had. *program* names
the version that measured a line, by a hash of its sources; a line without one was measured before
this was recorded. A line stays until a later version has as many replicates, or 500 of them (2,000
tests). A coverage of 95% over 2,000 effects has a Monte Carlo standard error of 0.5 points, and a
ratio of standard errors one of 1.6%.

- *SE/SD* is the mean standard error over the standard deviation of estimates, with its 5th and 95th
  percentile; *length* that of intervals over those of a known standard deviation; *of privacy* what
  privacy adds in squares, as reported; *predicted* the planned standard error over the standard
  deviation.
- *not as wanted* names what is outside its range by more than two Monte Carlo standard errors:
  *coverage* of 93.5 to 98%; *mean* SE/SD of 0.95 to 1.10; *spread* of its percentiles within ±15%,
  or 1.15 times as wide as without privacy; *predicted* 0.9 to 1.15.

{n_sound} of {n_lines} lines are as wanted in everything.

Standard errors vary most where groups were assigned as a whole. Their variance is that between
groups, and each group is known with noise only. What noise adds is known and subtracted, and what
is left varies with it: of 80 groups, noise adds 3.5 times that variance if planned for everything
at ε = 1, 0.7 times at ε = 2 or planned for overall at ε = 1. Percentiles are then about ±37, 22 and
22% of the mean. Who knew everything but one variance that all groups share would have ±37, 20 and
22% (the bound of Cramér and Rao, for normal noise), and ±18% is wanted: only more of ε for totals
of groups would help. Of 80 groups planned for overall at ε = 2, and of 30 planned for everything at
ε = 2, that bound is as wanted (±17 and ±26%), and the estimate is just above. It does not take
groups of any size to vary equally, since intervals would be too short where large groups vary
more. Degrees of freedom allow for all of this.

In 79 schools planned for overall, standard errors are about 6% too large. Rows have too little of ε
to show how schools differ, so that this is left in the variance: an upper bound.

Where outcomes may be missing, an effect is a ratio. Noise that makes the share observed look
smaller makes its error larger by as much, and the standard error follows. In a tenth at ε = 1 this
is nearly all that standard errors vary by.

{table}

## Do tests of homogeneity keep their level?
How often they reject at 5% where effects are the same.

{tests}
"""


def main(names: list[str]) -> None:
    """Measure the named designs, or all, and write the page."""
    warnings.simplefilter("ignore", cdp.OwnerNotice)
    chosen = [one for one in STUDIES if not names or any(name in one.name for name in names)]
    intervals, tests = rows_of(measure(chosen, MINUTES))
    for row in (*intervals, *tests):
        print(*row, sep="  ")
    write_study("release_coverage", page(intervals, tests, MINUTES))


if __name__ == "__main__":
    main(sys.argv[1:])
